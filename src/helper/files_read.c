/* read: FILES_HEAD_SIZE bytes of JSON, which say what the file is; then, told "FROM COUNT\n" on standard input, those bytes. The head
 * comes first because whoever answers needs the size to understand which bytes are asked for; the file stays open in between. */
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "helper/files.h"
#include "sandbox/files_wire.h"

int files_head(struct buf *b) {
        char head[FILES_HEAD_SIZE];
        if (b->len > sizeof head - 1)
                return 1;
        memset(head, ' ', sizeof head);
        memcpy(head, b->data, b->len);
        head[sizeof head - 1] = '\n';
        return fs_write_all(1, head, sizeof head) < 0;
}

int files_head_fail(int r) {
        /* Without a path, which could be too long. */
        _cleanup_buf_ struct buf b = BUF_INIT(FILES_HEAD_SIZE);
        int x = files_describe(r, &b);
        return x < 0 || files_head(&b) ? 1 : FILES_FAILED;
}

static int read_order(uint64_t *from, uint64_t *count) {
        char line[64];
        size_t n = 0;
        while (n < sizeof line - 1) {
                ssize_t got = read(0, line + n, 1);
                if (got <= 0)
                        return -ECANCELED;
                if (line[n++] == '\n')
                        break;
        }
        line[n] = 0;
        char *end;
        *from = strtoull(line, &end, 10);
        if (*end != ' ')
                return -EINVAL;
        *count = strtoull(end + 1, &end, 10);
        return *end == '\n' ? 0 : -EINVAL;
}

static int send_part(int fd, uint64_t at, uint64_t count) {
        static char space[128 * 1024];
        while (count > 0) {
                ssize_t n = pread(fd, space, (size_t)MIN2(count, (uint64_t)sizeof space), (off_t)at);
                if (n < 0)
                        return -errno;
                if (n == 0)
                        return -EIO;           /* it became shorter: the other side counts */
                int r = fs_write_all(1, space, (size_t)n);
                if (r < 0)
                        return r;
                at += (uint64_t)n;
                count -= (uint64_t)n;
        }
        return 0;
}

int files_read(const struct files_args *a) {
        struct stat st;
        uint64_t from, count;
        _cleanup_close_ int fd = files_open_kind(a->path, O_RDONLY, S_IFREG);
        if (fd < 0)
                return files_head_fail(fd);
        if (fstat(fd, &st) < 0)
                return files_head_fail(-errno);
        _cleanup_buf_ struct buf b = BUF_INIT(FILES_HEAD_SIZE);
        struct json_writer w = JSON_WRITER(&b);
        json_begin_object(&w);
        files_put_facts(&w, &st);
        json_end_object(&w);
        if (json_finish(&w) < 0 || files_head(&b) || read_order(&from, &count) < 0)
                return 1;
        return send_part(fd, from, count) < 0;
}
