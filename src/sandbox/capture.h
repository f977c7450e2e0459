/* Capture of one output stream: the first and last bytes in memory for the record, everything (up to the byte limit) in a
 * log file on disk. Bytes are kept as they came; who encodes JSON replaces what is not UTF-8.
 *
 * The text of a record is head, a line that says how many bytes were left out, tail. Loop thread only. */
#pragma once
#include "base/buf.h"

struct output_capture {
        size_t head_max, tail_max;
        uint64_t disk_max;         /* beyond it, `over` is set and the rest is counted but not written */
        int log_fd;                /* owned; -1 = no log */
        uint64_t total;            /* bytes seen */
        struct buf head;
        char *tail;                /* ring of tail_max bytes */
        size_t tail_at, tail_len;
        int log_errno;             /* first failure of the log file: ENOSPC and the like; the capture goes on */
        bool over;
        bool open;                 /* false in a zeroed one, whose log_fd is nobody's */
};

int capture_init(struct output_capture *c, size_t head_max, size_t tail_max, uint64_t disk_max, int log_fd);
void capture_release(struct output_capture *c);    /* fine on a zeroed one, and twice */
void capture_feed(struct output_capture *c, const void *p, size_t n);
/* head + "\n[... N bytes left out ...]\n" + tail; to be appended to b. */
int capture_text(const struct output_capture *c, struct buf *b);
