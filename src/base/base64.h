/* Base64 (RFC 4648, section 4). No state, any thread. */
#pragma once
#include "base/buf.h"

/* Characters that n bytes become. */
static inline size_t base64_encoded(size_t n) { return (n + 2) / 3 * 4; }

/* Appends; -ENOSPC, -ENOMEM. A text in pieces is right when every piece but the last has a multiple of three bytes. */
int base64_encode(const void *p, size_t n, struct buf *b);
/* Appends the bytes. White space is skipped; -EINVAL for any other character, wrong padding, or bits left over. What was appended
 * before a fault is taken back. */
int base64_decode(const char *p, size_t n, struct buf *b);
