/* Any bytes as a patch: what is read names only what it may, points into its own text, and planning it against a small tree that
 * answers every question ends without touching anything. */
#include <string.h>

#include "base/error.h"
#include "fuzz.h"
#include "score/patch_name.h"
#include "score/patch_plan.h"

static int answer(void *user, const char *path, struct entry *ret) {
        static const char text[] = "a\nb\nc\n\nd\ne\n";
        ASSERT(!name_refusal(path));
        *ret = (struct entry){ 0 };
        if (path[0] == 'n')                /* absent */
                return 0;
        ret->type = path[0] == 'l' ? ENTRY_LINK : path[0] == 'd' ? ENTRY_DIR : ENTRY_FILE;
        if (ret->type == ENTRY_DIR)
                return 0;
        ret->data = strdup(text);
        ret->len = sizeof text - 1;
        return ret->data ? 0 : -ENOMEM;
}

static void check_parse(const char *text, size_t len, enum patch_level level) {
        struct patch p;
        struct error e = { 0 };
        int r = patch_parse(text, len, level, &p, &e);
        ASSERT(r == 0 || ((r == -EPERM || r == -EBADMSG) && e.text[0]));
        if (r < 0)
                return;
        for (size_t i = 0; i < p.n_files; i++) {
                const struct patch_file *f = &p.files[i];
                ASSERT(f->old_path || f->new_path);
                ASSERT(!f->old_path || !name_refusal(f->old_path));
                ASSERT(!f->new_path || !name_refusal(f->new_path));
                ASSERT(f->first + f->n <= p.n_hunks);
        }
        for (size_t i = 0; i < p.n_hunks; i++)
                ASSERT(p.hunks[i].first + p.hunks[i].n <= p.n_lines && p.hunks[i].n > 0);
        patch_release(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        const char *text = (const char *)data;
        struct patch_source src = { answer, NULL };
        struct patch_plan plan;
        struct error e;
        check_parse(text, size, PATCH_PARSE_STRICT);
        check_parse(text, size, PATCH_PARSE_REPAIR);
        int r = patch_plan(text, size, PATCH_LADDER, &src, &plan, &e);
        ASSERT(r == 0 || r == -EPERM || r == -EBADMSG);
        if (r == 0)
                plan_release(&plan);
        return 0;
}
