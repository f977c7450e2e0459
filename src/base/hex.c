#include "base/hash.h"

void hex_encode(const void *p, size_t n, char *ret) {
        static const char digits[] = "0123456789abcdef";
        const unsigned char *b = p;
        for (size_t i = 0; i < n; i++) {
                ret[2 * i] = digits[b[i] >> 4];
                ret[2 * i + 1] = digits[b[i] & 15];
        }
        ret[2 * n] = 0;
}
