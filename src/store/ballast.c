#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/macros.h"
#include "store/ballast.h"

uint64_t disk_free(int dirfd) {
        struct statvfs v;
        if (fstatvfs(dirfd, &v) < 0)
                return INT64_MAX;
        return (uint64_t)v.f_bavail * v.f_frsize;
}

int ballast_make(struct ballast *b) {
        b->there = true;
        if (b->bytes == 0)
                return 0;
        struct stat st;
        if (fstatat(b->dirfd, BALLAST_FILE, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
            (uint64_t)st.st_size == b->bytes && (uint64_t)st.st_blocks * 512 >= b->bytes)
                return 0;
        b->there = false;
        unlinkat(b->dirfd, BALLAST_FILE, 0);
        if (disk_free(b->dirfd) < b->bytes + b->low_water)
                return -ENOSPC;
        _cleanup_close_ int fd = openat(b->dirfd, BALLAST_FILE, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0)
                return -errno;
        int r = posix_fallocate(fd, 0, (off_t)b->bytes);
        if (r != 0) {
                unlinkat(b->dirfd, BALLAST_FILE, 0);
                return -r;
        }
        b->there = true;
        return 0;
}

bool ballast_drop(struct ballast *b) {
        bool was = b->there && b->bytes > 0;
        b->there = b->bytes == 0;
        return unlinkat(b->dirfd, BALLAST_FILE, 0) == 0 || was;
}
