/* Any bytes as a helper's report: what is accepted is whole, agrees with itself and names only paths of a tree. */
#include "base/strv.h"
#include "fuzz.h"
#include "score/apply_report.h"
#include "score/patch_name.h"

static void check_paths(char **list) {
        for (; list && *list; list++)
                ASSERT(!name_refusal(*list));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        struct apply_result res;
        struct error e = { 0 };
        int r = apply_report_read((const char *)data, size, PATCH_LADDER, &res, &e);
        ASSERT(r == 0 || e.text[0]);
        if (r < 0)
                return 0;
        ASSERT(res.patch_applied == (res.patch_reason == NULL) && res.test_patch_applied == (res.test_patch_reason == NULL));
        ASSERT(!res.patch_applied || (res.rung > RUNG_NONE && res.rung < RUNG_MAX));
        check_paths(res.touched);
        check_paths(res.test_files);
        check_paths(res.restored);
        for (size_t i = 0; i < res.n_base_config; i++)
                ASSERT(!name_refusal(res.base_config[i].path));
        apply_result_release(&res);
        return 0;
}
