/* SHA-256 (OpenSSL's). Digests are 32 bytes; their text form is 64 lower-case hex digits. */
#pragma once
#include "base/macros.h"

#define SHA256_BYTES 32
#define SHA256_HEX (SHA256_BYTES * 2 + 1)

struct sha256 { void *ctx; };

int sha256_init(struct sha256 *h);                          /* -ENOMEM */
void sha256_update(struct sha256 *h, const void *p, size_t n);
void sha256_update_str(struct sha256 *h, const char *s);    /* with its NUL: unambiguous concatenation */
void sha256_finish(struct sha256 *h, char ret_hex[static SHA256_HEX]);  /* also releases */
void sha256_release(struct sha256 *h);
int sha256_hex(const void *p, size_t n, char ret_hex[static SHA256_HEX]);
/* hex.c and random.c need no OpenSSL: the helper has them too. */
void hex_encode(const void *p, size_t n, char *ret /* 2n+1 */);
/* Cryptographically random bytes (getrandom); never fails on a running kernel. */
void random_bytes(void *p, size_t n);
/* A random version-4 UUID, 36 characters and NUL. */
void uuid_make(char ret[static 37]);
/* Equal bytes? In time that depends only on n. */
int secret_equal(const void *a, const void *b, size_t n);
