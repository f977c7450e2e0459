/* Any bytes as a .dockerignore; the rest, behind a NUL, as a path. */
#include <string.h>

#include "build/glob.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        const char *p = (const char *)data, *nul = memchr(p, 0, size);
        size_t n = nul ? (size_t)(nul - p) : size;
        char path[512] = "a/b/c";
        struct ignore *i;
        struct error e;
        if (nul && size - n - 1 < sizeof path) {
                memcpy(path, nul + 1, size - n - 1);
                path[size - n - 1] = 0;
        }
        if (n > 4096 || ignore_parse(p, n, &i, &e) < 0)
                return 0;
        ignore_matches(i, path);
        ignore_free(i);
        return 0;
}
