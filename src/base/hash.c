#include <openssl/evp.h>
#include <string.h>

#include "base/hash.h"

int sha256_init(struct sha256 *h) {
        h->ctx = EVP_MD_CTX_new();
        if (!h->ctx)
                return -ENOMEM;
        if (EVP_DigestInit_ex(h->ctx, EVP_sha256(), NULL) != 1) {
                sha256_release(h);
                return -ENOMEM;
        }
        return 0;
}

void sha256_update(struct sha256 *h, const void *p, size_t n) {
        ASSERT(EVP_DigestUpdate(h->ctx, p, n) == 1);
}

void sha256_update_str(struct sha256 *h, const char *s) {
        sha256_update(h, s, strlen(s) + 1);
}

void sha256_finish(struct sha256 *h, char ret_hex[static SHA256_HEX]) {
        unsigned char md[SHA256_BYTES];
        ASSERT(EVP_DigestFinal_ex(h->ctx, md, NULL) == 1);
        hex_encode(md, sizeof md, ret_hex);
        sha256_release(h);
}

void sha256_release(struct sha256 *h) {
        EVP_MD_CTX_free(h->ctx);
        h->ctx = NULL;
}

int sha256_hex(const void *p, size_t n, char ret_hex[static SHA256_HEX]) {
        struct sha256 h;
        int r = sha256_init(&h);
        if (r < 0)
                return r;
        sha256_update(&h, p, n);
        sha256_finish(&h, ret_hex);
        return 0;
}

int secret_equal(const void *a, const void *b, size_t n) {
        const volatile unsigned char *x = a, *y = b;
        unsigned char d = 0;
        for (size_t i = 0; i < n; i++)
                d |= (unsigned char)(x[i] ^ y[i]);
        return d == 0;
}
