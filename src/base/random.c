#include <sys/random.h>

#include "base/hash.h"

void random_bytes(void *p, size_t n) {
        char *at = p;
        while (n > 0) {
                ssize_t got = getrandom(at, n, 0);
                if (got < 0 && errno == EINTR)
                        continue;
                ASSERT(got > 0);
                at += got;
                n -= (size_t)got;
        }
}

void uuid_make(char ret[static 37]) {
        unsigned char b[16];
        random_bytes(b, sizeof b);
        b[6] = (unsigned char)((b[6] & 0x0f) | 0x40);
        b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
        char hex[33];
        hex_encode(b, sizeof b, hex);
        snprintf(ret, 37, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12, hex + 16, hex + 20);
}
