#include <string.h>

#include "base/fs.h"
#include "sandbox/capture.h"

int capture_init(struct output_capture *c, size_t head_max, size_t tail_max, uint64_t disk_max, int log_fd) {
        *c = (struct output_capture){ .head_max = head_max, .tail_max = tail_max, .disk_max = disk_max, .log_fd = log_fd, .open = true };
        buf_init(&c->head, head_max + 1);
        return 0;
}

void capture_release(struct output_capture *c) {
        if (c->open)
                fd_close(c->log_fd);
        c->log_fd = -1;
        c->open = false;
        buf_release(&c->head);
        free(c->tail);
        c->tail = NULL;
        c->tail_at = c->tail_len = 0;
}

static void feed_log(struct output_capture *c, const char *p, size_t n) {
        uint64_t room = c->total < c->disk_max ? c->disk_max - c->total : 0;
        if (n > room) {
                c->over = true;
                n = (size_t)room;
        }
        if (c->log_fd < 0 || n == 0 || c->log_errno)
                return;
        int r = fs_write_all(c->log_fd, p, n);
        if (r < 0)
                c->log_errno = -r;
}

static void feed_tail(struct output_capture *c, const char *p, size_t n) {
        if (c->tail_max == 0)
                return;
        if (!c->tail) {
                c->tail = malloc(c->tail_max);
                if (!c->tail) {
                        c->tail_max = 0;
                        return;
                }
        }
        if (n > c->tail_max) {
                p += n - c->tail_max;
                n = c->tail_max;
        }
        size_t first = MIN2(n, c->tail_max - c->tail_at);
        memcpy(c->tail + c->tail_at, p, first);
        memcpy(c->tail, p + first, n - first);
        c->tail_at = (c->tail_at + n) % c->tail_max;
        c->tail_len = MIN2(c->tail_max, c->tail_len + n);
}

void capture_feed(struct output_capture *c, const void *bytes, size_t n) {
        const char *p = bytes;
        feed_log(c, p, n);
        c->total += n;
        size_t head = c->head.len < c->head_max ? MIN2(n, c->head_max - c->head.len) : 0;
        if (head > 0 && buf_add(&c->head, p, head) < 0)
                c->head_max = c->head.len;     /* no memory: the tail takes what follows */
        else {
                p += head;
                n -= head;
        }
        if (n > 0)
                feed_tail(c, p, n);
}

int capture_text(const struct output_capture *c, struct buf *b) {
        int r = buf_add(b, buf_str(&c->head), c->head.len);
        uint64_t left_out = c->total - c->head.len - c->tail_len;
        if (r == 0 && left_out > 0)
                r = buf_printf(b, "\n[... %llu bytes left out ...]\n", (unsigned long long)left_out);
        if (r == 0 && c->tail_len > 0) {
                size_t start = (c->tail_at + c->tail_max - c->tail_len) % c->tail_max;
                size_t first = MIN2(c->tail_len, c->tail_max - start);
                r = buf_add(b, c->tail + start, first);
                if (r == 0)
                        r = buf_add(b, c->tail, c->tail_len - first);
        }
        return r;
}
