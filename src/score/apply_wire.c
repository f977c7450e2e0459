#include "score/apply_wire.h"

int frame_add(struct buf *b, enum apply_frame type, const void *p, size_t n) {
        unsigned char head[5] = { (unsigned char)type, (unsigned char)n, (unsigned char)(n >> 8), (unsigned char)(n >> 16), (unsigned char)(n >> 24) };
        if (n > UINT32_MAX)
                return -ENOSPC;
        int r = buf_reserve(b, n + sizeof head);   /* a frame is whole or not there */
        if (r == 0)
                r = buf_add(b, head, sizeof head);
        return r == 0 ? buf_add(b, p, n) : r;
}

int frame_adds(struct buf *b, enum apply_frame type, const char *s) {
        return frame_add(b, type, s, strlen(s));
}

int frame_next(const char *data, size_t len, size_t *at, enum apply_frame *ret_type, const char **ret, size_t *ret_len) {
        if (*at == len)
                return 0;
        const unsigned char *p = (const unsigned char *)data + *at;
        if (len - *at < 5 || p[0] == FRAME_NONE || p[0] >= FRAME_MAX)
                return -EBADMSG;
        size_t n = (size_t)p[1] | (size_t)p[2] << 8 | (size_t)p[3] << 16 | (size_t)p[4] << 24;
        if (n > len - *at - 5)
                return -EBADMSG;
        *ret_type = p[0];
        *ret = data + *at + 5;
        *ret_len = n;
        *at += 5 + n;
        return 1;
}
