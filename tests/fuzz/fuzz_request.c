/* Any bytes as a scoring request: checking and decoding agree on whether it is one, and what was decoded can be released. */
#include "base/fields.h"
#include "fuzz.h"
#include "score/request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        struct score_defaults d;
        struct score_request checked, decoded;
        struct error e;
        score_defaults_init(&d);
        int a = score_request_from_json((const char *)data, size, FIELDS_CHECK, &d, &checked, &e);
        ASSERT(a == 0 || ((a == -EINVAL || a == -EOPNOTSUPP) && e.text[0]));
        int b = score_request_from_json((const char *)data, size, 0, &d, &decoded, NULL);
        ASSERT(a == b);
        if (a == 0) {
                ASSERT(checked.patch_len >= decoded.patch_len && strlen(decoded.patch) == decoded.patch_len);
                ASSERT(decoded.repo_url[0] && decoded.repo_path[0] == '/');
                score_request_release(&checked);
                score_request_release(&decoded);
        }
        return 0;
}
