#include "base/utf8.h"

/* Length announced by a lead byte, and the bounds of the second byte, which carry all the special cases. */
static size_t lead(unsigned char c, unsigned char *lo, unsigned char *hi) {
        *lo = 0x80;
        *hi = 0xbf;
        if (c < 0x80)
                return 1;
        if (c >= 0xc2 && c <= 0xdf)
                return 2;
        if (c >= 0xe0 && c <= 0xef) {
                if (c == 0xe0)
                        *lo = 0xa0;
                if (c == 0xed)
                        *hi = 0x9f;
                return 3;
        }
        if (c >= 0xf0 && c <= 0xf4) {
                if (c == 0xf0)
                        *lo = 0x90;
                if (c == 0xf4)
                        *hi = 0x8f;
                return 4;
        }
        return 0;
}

size_t utf8_step(const char *p, size_t n, bool *ret_valid) {
        const unsigned char *u = (const unsigned char *)p;
        unsigned char lo, hi;
        size_t want = lead(u[0], &lo, &hi);
        *ret_valid = want == 1;
        if (want <= 1)
                return 1;
        for (size_t i = 1; i < want; i++) {
                if (i >= n || u[i] < lo || u[i] > hi)
                        return i;
                lo = 0x80;
                hi = 0xbf;
        }
        *ret_valid = true;
        return want;
}

bool utf8_valid(const char *p, size_t n) {
        for (size_t i = 0; i < n;) {
                bool ok;
                i += utf8_step(p + i, n - i, &ok);
                if (!ok)
                        return false;
        }
        return true;
}

size_t utf8_encode(uint32_t cp, char ret[static 4]) {
        if (cp > 0x10ffff || (cp >= 0xd800 && cp <= 0xdfff))
                cp = 0xfffd;
        if (cp < 0x80) {
                ret[0] = (char)cp;
                return 1;
        }
        if (cp < 0x800) {
                ret[0] = (char)(0xc0 | cp >> 6);
                ret[1] = (char)(0x80 | (cp & 0x3f));
                return 2;
        }
        if (cp < 0x10000) {
                ret[0] = (char)(0xe0 | cp >> 12);
                ret[1] = (char)(0x80 | (cp >> 6 & 0x3f));
                ret[2] = (char)(0x80 | (cp & 0x3f));
                return 3;
        }
        ret[0] = (char)(0xf0 | cp >> 18);
        ret[1] = (char)(0x80 | (cp >> 12 & 0x3f));
        ret[2] = (char)(0x80 | (cp >> 6 & 0x3f));
        ret[3] = (char)(0x80 | (cp & 0x3f));
        return 4;
}
