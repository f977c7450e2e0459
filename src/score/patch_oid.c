/* SHA-1 of a blob as git names it. Small and plain: it compares what a patch claims with what is there, and guards nothing.
 * (The helper is a small static program; a crypto library for this one purpose would dwarf it.) */
#include <string.h>

#include "score/patch.h"

struct sha1 { uint32_t h[5]; uint64_t bytes; unsigned char block[64]; };

static uint32_t rol(uint32_t v, int n) { return v << n | v >> (32 - n); }

static void sha1_block(struct sha1 *s, const unsigned char *p) {
        static const uint32_t k[4] = { 0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6 };
        uint32_t w[80], a = s->h[0], b = s->h[1], c = s->h[2], d = s->h[3], e = s->h[4];
        for (int i = 0; i < 16; i++)
                w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 | (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
        for (int i = 16; i < 80; i++)
                w[i] = rol(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
        for (int i = 0; i < 80; i++) {
                uint32_t f = i < 20 ? (b & c) | (~b & d) : i >= 40 && i < 60 ? (b & c) | (b & d) | (c & d) : b ^ c ^ d;
                uint32_t t = rol(a, 5) + f + e + k[i / 20] + w[i];
                e = d; d = c; c = rol(b, 30); b = a; a = t;
        }
        s->h[0] += a; s->h[1] += b; s->h[2] += c; s->h[3] += d; s->h[4] += e;
}

static void sha1_add(struct sha1 *s, const void *data, size_t n) {
        const unsigned char *p = data;
        size_t have = s->bytes % 64;
        s->bytes += n;
        if (have) {
                size_t take = MIN2(64 - have, n);
                memcpy(s->block + have, p, take);
                p += take;
                n -= take;
                if (have + take < 64)
                        return;
                sha1_block(s, s->block);
        }
        for (; n >= 64; p += 64, n -= 64)
                sha1_block(s, p);
        if (n)
                memcpy(s->block, p, n);
}

void patch_blob_oid(const void *p, size_t n, char ret[static 41]) {
        struct sha1 s = { .h = { 0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0 } };
        char head[40];
        int len = snprintf(head, sizeof head, "blob %zu", n);
        sha1_add(&s, head, (size_t)len + 1);
        if (n)
                sha1_add(&s, p, n);
        uint64_t bits = s.bytes * 8;
        unsigned char pad[72] = { 0x80 }, size[8];
        size_t fill = (s.bytes % 64 < 56 ? 56 : 120) - s.bytes % 64;
        for (int i = 0; i < 8; i++)
                size[i] = (unsigned char)(bits >> (56 - 8 * i));
        sha1_add(&s, pad, fill);
        sha1_add(&s, size, 8);
        for (int i = 0; i < 5; i++)
                snprintf(ret + 8 * i, 9, "%08x", s.h[i]);
}
