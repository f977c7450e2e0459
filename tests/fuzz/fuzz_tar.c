/* Any bytes as an archive, in any packing: entries or an error, and never more data than an entry says it has. */
#include <string.h>

#include "archive/tar_read.h"
#include "base/fs.h"
#include "fuzz.h"

static int read_entry(struct tar_reader *t, const struct tar_entry *en) {
        static char space[65536];
        uint64_t at, end = 0;
        ssize_t n;
        ASSERT(en->path && en->link && strlen(en->path) <= TAR_NAME_MAX + 1 && strlen(en->link) <= TAR_NAME_MAX + 1 && en->n_xattrs <= TAR_XATTRS_MAX);
        while ((n = tar_data(t, space, sizeof space, &at, &(struct error){ 0 })) > 0) {
                ASSERT(at >= end && at + (uint64_t)n <= en->size);
                end = at + (uint64_t)n;
        }
        return (int)n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        struct inflow *in;
        struct tar_reader *t;
        struct tar_entry en;
        struct error e = { 0 };
        char hash[65];
        if (size > 1u << 20)
                return 0;
        _cleanup_close_ int fd = fs_memfd("fuzz", data, size);
        if (fd < 0 || inflow_open(fd, 16u << 20, &in, &e) < 0)
                return 0;
        int r = tar_open(in, &t, &e);
        if (r == 0) {
                while ((r = tar_next(t, &en, &e)) > 0 && (r = read_entry(t, &en)) >= 0)
                        ;
                tar_free(t);
        }
        if (r == 0 && inflow_finish(in, hash, &e) == 0)
                ASSERT(strlen(hash) == 64);
        inflow_free(in);
        return 0;
}
