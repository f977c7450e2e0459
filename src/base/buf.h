/* A growing byte buffer with a limit given at init; reaching it is a normal error (-ENOSPC), and the
 * buffer keeps what it had. Always NUL-terminated behind len once something was added.
 *
 *     struct buf b = BUF_INIT(64 * 1024);
 *     r = buf_printf(&b, "%s=%d", key, n);
 *     ...
 *     buf_release(&b);
 *
 * Not thread-safe. Errors: -ENOSPC over the limit, -ENOMEM. */
#pragma once
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include "base/macros.h"

struct buf {
        char *data;      /* owned; NULL while empty */
        size_t len;      /* bytes used, without the NUL */
        size_t alloc;
        size_t limit;    /* most bytes it will ever hold */
};

#define BUF_INIT(limit_) { .data = NULL, .len = 0, .alloc = 0, .limit = (limit_) }

void buf_init(struct buf *b, size_t limit);
void buf_release(struct buf *b);                 /* frees the contents; the limit stays */
static inline void buf_reset(struct buf *b) { b->len = 0; if (b->data) b->data[0] = 0; }
int buf_reserve(struct buf *b, size_t more);     /* room for `more` bytes behind len */
int buf_add(struct buf *b, const void *p, size_t n);
int buf_addc(struct buf *b, char c);
int buf_adds(struct buf *b, const char *s);
int buf_printf(struct buf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
int buf_vprintf(struct buf *b, const char *fmt, va_list ap) PRINTF_LIKE(2, 0);
void buf_consume(struct buf *b, size_t n);       /* drops the first n bytes */
char *buf_steal(struct buf *b);                  /* the contents, to be freed by the caller; "" never NULL (NULL only on ENOMEM) */
static inline const char *buf_str(const struct buf *b) { return b->data ? b->data : ""; }

#define _cleanup_buf_ CLEANUP(buf_release)
