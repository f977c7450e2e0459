#include "base/buf.h"

void buf_init(struct buf *b, size_t limit) {
        *b = (struct buf)BUF_INIT(limit);
}

void buf_release(struct buf *b) {
        if (!b)
                return;
        free(b->data);
        b->data = NULL;
        b->len = b->alloc = 0;
}

int buf_reserve(struct buf *b, size_t more) {
        if (more > b->limit || b->len > b->limit - more)
                return -ENOSPC;
        size_t need = b->len + more + 1;
        if (need <= b->alloc)
                return 0;
        size_t grown = MAX2(need, MIN2(b->alloc * 2, b->limit + 1));
        grown = MAX2(grown, MIN2((size_t)64, b->limit + 1));
        char *p = realloc(b->data, grown);
        if (!p)
                return -ENOMEM;
        b->data = p;
        b->alloc = grown;
        b->data[b->len] = 0;
        return 0;
}

int buf_add(struct buf *b, const void *p, size_t n) {
        int r = buf_reserve(b, n);
        if (r < 0)
                return r;
        if (n)
                memcpy(b->data + b->len, p, n);
        b->len += n;
        b->data[b->len] = 0;
        return 0;
}

int buf_addc(struct buf *b, char c) {
        return buf_add(b, &c, 1);
}

int buf_adds(struct buf *b, const char *s) {
        return buf_add(b, s, strlen(s));
}

int buf_vprintf(struct buf *b, const char *fmt, va_list ap) {
        va_list again;
        va_copy(again, ap);
        int n = vsnprintf(NULL, 0, fmt, ap);
        int r = n < 0 ? -EINVAL : buf_reserve(b, (size_t)n);
        if (r == 0) {
                vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
                b->len += (size_t)n;
        }
        va_end(again);
        return r;
}

int buf_printf(struct buf *b, const char *fmt, ...) {
        va_list ap;
        va_start(ap, fmt);
        int r = buf_vprintf(b, fmt, ap);
        va_end(ap);
        return r;
}

void buf_consume(struct buf *b, size_t n) {
        ASSERT(n <= b->len);
        if (n == 0)
                return;
        memmove(b->data, b->data + n, b->len - n + 1);
        b->len -= n;
}

char *buf_steal(struct buf *b) {
        if (!b->data && buf_reserve(b, 0) < 0)
                return NULL;
        char *p = b->data;
        b->data = NULL;
        b->len = b->alloc = 0;
        return p;
}
