/* Any text as a Dockerfile: what is accepted has lines in order and within its limits, and every word expands or is refused. */
#include <string.h>

#include "base/strv.h"
#include "build/dockerfile.h"
#include "build/expand.h"
#include "fuzz.h"

static const char *lookup(const char *name, size_t n, void *user) { return n % 3 == 0 ? NULL : n % 3 == 1 ? "" : "value"; }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        struct dockerfile d;
        struct error e = { 0 };
        if (dockerfile_parse((const char *)data, size, &d, &e) < 0) {
                ASSERT(memcmp(e.text, "dockerfile", 10) == 0);
                return 0;
        }
        unsigned line = 0;
        for (size_t i = 0; i < d.n; i++) {
                const struct instruction *in = &d.instructions[i];
                ASSERT(in->line > line && in->words);
                line = in->line;
                ASSERT(strv_len((const char *const *)in->words) <= DOCKERFILE_WORDS_MAX && in->n_heredocs <= DOCKERFILE_HEREDOCS_MAX);
                for (char **w = in->words; *w; w++) {
                        struct buf b = BUF_INIT(EXPAND_BYTES_MAX + 1);
                        expand_word(*w, d.escape, true, lookup, NULL, &b, &e);
                        ASSERT(b.len <= EXPAND_BYTES_MAX);
                        buf_release(&b);
                }
        }
        dockerfile_release(&d);
        return 0;
}
