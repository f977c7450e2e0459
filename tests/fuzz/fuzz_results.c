/* Any bytes as what the helper says of result files: heads and contents that lie within them, one behind the other; and once there is no more,
 * there is no more. */
#include <string.h>

#include "fuzz.h"
#include "sandbox/results.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        struct output_capture c = { 0 };
        struct result_head h;
        const char *bytes;
        size_t at = 0, before = 0;
        if (size > 1u << 20)
                return 0;
        ASSERT(capture_init(&c, 1u << 20, 0, UINT64_MAX, -1) == 0);
        capture_feed(&c, data, size);
        while (results_next(&c, &at, &h, &bytes)) {
                ASSERT(bytes == c.head.data + before + sizeof h && at == before + sizeof h + h.bytes && at <= size);
                before = at;
        }
        ASSERT(at == before && !results_next(&c, &at, &h, &bytes));
        capture_release(&c);
        return 0;
}
