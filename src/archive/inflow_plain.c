/* inflow.h for a program that gets archives from Brig itself, never packed: in place of inflow.c, whose libraries (zlib, liblzma, libzstd) it
 * need not have then. No hash. */
#include <unistd.h>

#include "archive/inflow.h"

struct inflow { int fd; uint64_t n, max; };

int inflow_open(int fd, uint64_t bytes_max, struct inflow **ret, struct error *e) {
        struct inflow *f = calloc(1, sizeof *f);
        if (!f)
                return error_set(e, -ENOMEM, "unpack");
        *f = (struct inflow){ .fd = fd, .max = bytes_max };
        *ret = f;
        return 0;
}

void inflow_free(struct inflow *f) { free(f); }

ssize_t inflow_read(struct inflow *f, void *p, size_t n, struct error *e) {
        ssize_t r;
        do
                r = read(f->fd, p, n);
        while (r < 0 && errno == EINTR);
        if (r < 0)
                return error_set(e, -errno, "read the archive");
        f->n += (uint64_t)r;
        return f->n > f->max ? error_say(e, -EFBIG, "the archive has more than %llu bytes", (unsigned long long)f->max) : r;
}

uint64_t inflow_bytes_in(const struct inflow *f) { return f->n; }
uint64_t inflow_bytes_out(const struct inflow *f) { return f->n; }
