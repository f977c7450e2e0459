/* An archive as it comes: bytes from a descriptor, decompressed as their first bytes say (gzip, xz, zstd, or plain), counted, and
 * hashed in their uncompressed form. Constant memory, but what the decompressors need for their windows (INFLOW_WINDOW_MAX).
 *
 * Helper code: hostile bytes, no daemon library. One thread. */
#pragma once
#include <stdbool.h>

#include "base/error.h"

#define INFLOW_WINDOW_MAX (256ull << 20)

struct inflow;

/* `fd` stays the caller's. `bytes_max`: of the uncompressed stream. */
int inflow_open(int fd, uint64_t bytes_max, struct inflow **ret, struct error *e);
void inflow_free(struct inflow *f);
/* Up to n bytes; 0 at the end. -EBADMSG: not what it began as, or cut off; -EFBIG: more than bytes_max; -errno of read. */
ssize_t inflow_read(struct inflow *f, void *p, size_t n, struct error *e);
/* Exactly n bytes, or -EBADMSG; with `end_ok`, 0 when there is not one byte more, else 1. */
int inflow_exactly(struct inflow *f, void *p, size_t n, bool end_ok, struct error *e);
int inflow_skip(struct inflow *f, uint64_t n, struct error *e);
/* Reads what is left (bounded like the rest), then gives the SHA-256 of all, 64 hex digits. */
int inflow_finish(struct inflow *f, char ret_hex[static 65], struct error *e);
uint64_t inflow_bytes_in(const struct inflow *f);          /* compressed */
uint64_t inflow_bytes_out(const struct inflow *f);
