#include "base/base64.h"

static const char alphabet[64] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

enum { SKIP = 64, PAD = 65, BAD = 66 };

static unsigned value(unsigned char c) {
        if (c >= 'A' && c <= 'Z')
                return c - 'A' + 0u;
        if (c >= 'a' && c <= 'z')
                return c - 'a' + 26u;
        if (c >= '0' && c <= '9')
                return c - '0' + 52u;
        switch (c) {
        case '+': return 62;
        case '/': return 63;
        case '=': return PAD;
        case ' ': case '\t': case '\r': case '\n': return SKIP;
        default: return BAD;
        }
}

int base64_encode(const void *p, size_t n, struct buf *b) {
        const unsigned char *in = p;
        if (n > SIZE_MAX / 2)
                return -ENOSPC;
        int r = buf_reserve(b, base64_encoded(n));
        if (r < 0)
                return r;
        char *out = b->data + b->len;
        for (; n >= 3; n -= 3, in += 3, out += 4) {
                uint32_t v = (uint32_t)in[0] << 16 | (uint32_t)in[1] << 8 | in[2];
                out[0] = alphabet[v >> 18];
                out[1] = alphabet[v >> 12 & 63];
                out[2] = alphabet[v >> 6 & 63];
                out[3] = alphabet[v & 63];
        }
        if (n) {
                uint32_t v = (uint32_t)in[0] << 16 | (n == 2 ? (uint32_t)in[1] << 8 : 0);
                out[0] = alphabet[v >> 18];
                out[1] = alphabet[v >> 12 & 63];
                out[2] = n == 2 ? alphabet[v >> 6 & 63] : '=';
                out[3] = '=';
                out += 4;
        }
        b->len = (size_t)(out - b->data);
        *out = 0;
        return 0;
}

/* The last group: `have` characters of it, then `pads`. */
static int finish(uint32_t bits, unsigned have, unsigned pads, char **out) {
        if (have == 0)
                return pads == 0 ? 0 : -EINVAL;
        if (have == 1 || have + pads != 4)
                return -EINVAL;
        unsigned spare = have == 2 ? 4 : 2;
        if (bits & ((1u << spare) - 1))
                return -EINVAL;
        bits >>= spare;
        if (have == 3)
                *(*out)++ = (char)(bits >> 8);
        *(*out)++ = (char)bits;
        return 0;
}

static size_t decoded(const char *p, size_t n) {
        size_t digits = 0;
        for (size_t i = 0; i < n; i++)
                digits += value((unsigned char)p[i]) < SKIP;
        return digits / 4 * 3 + digits % 4 * 3 / 4;
}

int base64_decode(const char *p, size_t n, struct buf *b) {
        int r = buf_reserve(b, decoded(p, n));
        if (r < 0)
                return r;
        char *out = b->data + b->len;
        uint32_t bits = 0;
        unsigned have = 0, pads = 0;
        for (size_t i = 0; i < n; i++) {
                unsigned v = value((unsigned char)p[i]);
                if (v == SKIP)
                        continue;
                if (v == BAD || (v == PAD ? ++pads > 2 : pads > 0)) {
                        b->data[b->len] = 0;
                        return -EINVAL;
                }
                if (v == PAD)
                        continue;
                bits = bits << 6 | v;
                if (++have == 4) {
                        *out++ = (char)(bits >> 16);
                        *out++ = (char)(bits >> 8);
                        *out++ = (char)bits;
                        bits = have = 0;
                }
        }
        r = finish(bits, have, pads, &out);
        if (r == 0)
                b->len = (size_t)(out - b->data);
        b->data[b->len] = 0;
        return r;
}
