#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/fs.h"
#include "base/hash.h"

int fs_open_beneath(int dirfd, const char *path, int flags, mode_t mode) {
        struct open_how how = {
                .flags = (uint64_t)(unsigned)(flags | O_CLOEXEC | O_NOFOLLOW),
                .mode = flags & (O_CREAT | __O_TMPFILE) ? mode : 0,
                .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
        };
        for (;;) {
                long fd = syscall(SYS_openat2, dirfd, path, &how, sizeof how);
                if (fd >= 0)
                        return (int)fd;
                /* EAGAIN: a rename raced with the resolution; the kernel asks to try again. */
                if (errno != EINTR && errno != EAGAIN)
                        return -errno;
        }
}

int fs_read_fd(int fd, struct buf *b) {
        for (;;) {
                size_t want = MIN2((size_t)65536, b->limit - b->len);
                if (want == 0) {
                        char extra;
                        ssize_t more = read(fd, &extra, 1);
                        return more == 0 ? 0 : more < 0 ? -errno : -EFBIG;
                }
                int r = buf_reserve(b, want);
                if (r < 0)
                        return r;
                ssize_t got = read(fd, b->data + b->len, want);
                if (got < 0 && errno == EINTR)
                        continue;
                if (got < 0)
                        return -errno;
                b->len += (size_t)got;
                b->data[b->len] = 0;
                if (got == 0)
                        return 0;
        }
}

int fs_read_file(int dirfd, const char *path, struct buf *b) {
        _cleanup_close_ int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
        if (fd < 0)
                return -errno;
        return fs_read_fd(fd, b);
}

int fs_write_all(int fd, const void *p, size_t n) {
        const char *at = p;
        while (n > 0) {
                ssize_t put = write(fd, at, n);
                if (put < 0 && errno == EINTR)
                        continue;
                if (put < 0)
                        return -errno;
                at += put;
                n -= (size_t)put;
        }
        return 0;
}

int fs_write_atomic(int dirfd, const char *name, const void *p, size_t n, mode_t mode) {
        unsigned char salt[8];
        char hex[17], tmp[300];
        random_bytes(salt, sizeof salt);
        hex_encode(salt, sizeof salt, hex);
        if (snprintf(tmp, sizeof tmp, ".%s.%s", name, hex) >= (int)sizeof tmp)
                return -ENAMETOOLONG;
        _cleanup_close_ int fd = openat(dirfd, tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
        if (fd < 0)
                return -errno;
        int r = fs_write_all(fd, p, n);
        if (r == 0 && fsync(fd) < 0)
                r = -errno;
        if (r == 0 && renameat(dirfd, tmp, dirfd, name) < 0)
                r = -errno;
        if (r < 0) {
                unlinkat(dirfd, tmp, 0);
                return r;
        }
        _cleanup_close_ int dir = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (dir < 0 || fsync(dir) < 0)
                return -errno;
        return 0;
}

int fs_mkdir_p(const char *path, mode_t mode) {
        char part[4096];
        size_t n = strlen(path);
        if (path[0] != '/' || n >= sizeof part)
                return -EINVAL;
        memcpy(part, path, n + 1);
        for (char *slash = part + 1;; slash++) {
                if (*slash != '/' && *slash != 0)
                        continue;
                char kept = *slash;
                *slash = 0;
                if (mkdir(part, mode) < 0 && errno != EEXIST)
                        return -errno;
                *slash = kept;
                if (kept == 0)
                        return 0;
        }
}

int fs_memfd(const char *name, const void *p, size_t n) {
        _cleanup_close_ int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (fd < 0)
                return -errno;
        int r = fs_write_all(fd, p, n);
        if (r < 0)
                return r;
        if (lseek(fd, 0, SEEK_SET) < 0 ||
            fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
                return -errno;
        return TAKE_FD(fd);
}
