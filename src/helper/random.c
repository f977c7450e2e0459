/* The two functions of base/hash.h that files need, without OpenSSL. */
#include <sys/random.h>

#include "base/hash.h"

void random_bytes(void *p, size_t n) {
        char *at = p;
        while (n > 0) {
                ssize_t got = getrandom(at, n, 0);
                if (got > 0) {
                        at += got;
                        n -= (size_t)got;
                }
        }
}

void hex_encode(const void *p, size_t n, char *ret) {
        static const char digits[] = "0123456789abcdef";
        const unsigned char *b = p;
        for (size_t i = 0; i < n; i++) {
                ret[2 * i] = digits[b[i] >> 4];
                ret[2 * i + 1] = digits[b[i] & 15];
        }
        ret[2 * n] = 0;
}
