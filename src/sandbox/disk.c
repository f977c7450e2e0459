#include <sys/statfs.h>

#include "sandbox/disk.h"
#include "base/macros.h"

static bool short_of(uint64_t free, uint64_t all) {
        return all > 0 && free < all / 1000 * DISK_FULL_PERMILLE + all % 1000 * DISK_FULL_PERMILLE / 1000;
}

int disk_sample(int fd, struct disk_sample *ret) {
        struct statfs s;
        if (fstatfs(fd, &s) < 0)
                return -errno;
        /* f_bavail leaves out what only the host's root may use, as the sandbox sees it. Zero in all: no such limit (btrfs
         * has no inodes to count). */
        *ret = (struct disk_sample){
                .used_bytes = (s.f_blocks - s.f_bfree) * (uint64_t)s.f_bsize,
                .used_inodes = s.f_files - s.f_ffree,
                .full = short_of(s.f_bavail, s.f_blocks) || short_of(s.f_ffree, s.f_files),
        };
        return 0;
}
