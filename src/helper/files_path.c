/* Paths of the sandbox, opened. */
#include <linux/magic.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#include "base/fs.h"
#include "helper/files.h"
#include "helper/verbs.h"

#ifndef MQUEUE_MAGIC
#define MQUEUE_MAGIC 0x19800202
#endif

/* The option `nolinks`. */
static uint64_t more_resolve;

void files_refuse_links(void) { more_resolve = RESOLVE_NO_SYMLINKS; }

static int open_in_root(const char *path, int flags) {
        struct open_how how = { .flags = (uint64_t)(flags | O_CLOEXEC), .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | more_resolve };
        /* A file system that changes under the walk is tried again, but not for ever. */
        for (int i = 0; i < 1000; i++) {
                long fd = syscall(SYS_openat2, HELPER_ROOT_FD, *path ? path : "/", &how, sizeof how);
                if (fd >= 0)
                        return (int)fd;
                if (errno != EINTR && errno != EAGAIN)
                        return errno == EXDEV ? -ENOENT : -errno;
        }
        return -EBUSY;
}

int files_open(const char *path, int flags) {
        return open_in_root(path, flags & O_PATH ? flags : flags | O_NONBLOCK | O_NOCTTY);
}

bool files_is_virtual(int fd) {
        struct statfs s;
        if (fstatfs(fd, &s) < 0)
                return true;
        switch ((unsigned long)s.f_type) {
        case PROC_SUPER_MAGIC: case SYSFS_MAGIC: case DEVPTS_SUPER_MAGIC: case CGROUP_SUPER_MAGIC: case CGROUP2_SUPER_MAGIC: case DEBUGFS_MAGIC:
        case TRACEFS_MAGIC: case SECURITYFS_MAGIC: case BPF_FS_MAGIC: case NSFS_MAGIC: case MQUEUE_MAGIC:
                return true;
        default:
                return false;
        }
}

/* Looked at before it is opened for real: opening a device or a FIFO can already be an act. What was looked at is what is opened,
 * by way of its descriptor, so no path is resolved twice. */
int files_open_kind(const char *path, int flags, mode_t kind) {
        _cleanup_close_ int seen = open_in_root(path, O_PATH);
        struct stat st, got;
        if (seen < 0)
                return seen;
        if (fstat(seen, &st) < 0)
                return -errno;
        if ((st.st_mode & S_IFMT) != kind)
                return S_ISDIR(st.st_mode) ? -EISDIR : kind == S_IFDIR ? -ENOTDIR : -EINVAL;
        if (files_is_virtual(seen))
                return -EINVAL;
        if (kind == S_IFDIR) {
                int fd = openat(seen, ".", (flags & ~O_ACCMODE) | O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                return fd < 0 ? -errno : fd;
        }
        _cleanup_close_ int fd = files_open(path, flags);
        if (fd < 0)
                return fd;
        if (fstat(fd, &got) < 0)
                return -errno;
        return got.st_dev == st.st_dev && got.st_ino == st.st_ino ? TAKE_FD(fd) : -EBUSY;
}

int files_give(int fd, const struct files_args *a) {
        return a->owner_given && fchown(fd, a->uid, a->gid) < 0 ? -errno : 0;
}

/* Makes what is missing of a directory's path, from its first missing part on. */
static int make_dirs(const char *path, const struct files_args *a) {
        char done[FILES_PATH_MAX + 1] = "";
        size_t at = 0;
        while (*path) {
                size_t n = strcspn(path, "/");
                if (n > 255 || at + n + 1 > FILES_PATH_MAX)
                        return -ENAMETOOLONG;
                char name[256];
                memcpy(name, path, n);
                name[n] = 0;
                _cleanup_close_ int dir = open_in_root(done, O_RDONLY | O_DIRECTORY);
                if (dir < 0)
                        return dir;
                if (n > 0 && mkdirat(dir, name, 0755) == 0) {
                        _cleanup_close_ int made = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                        int r = made < 0 ? -errno : files_give(made, a);
                        if (r < 0)
                                return r;
                } else if (n > 0 && errno != EEXIST)
                        return -errno;
                at += (size_t)snprintf(done + at, sizeof done - at, "/%s", name);
                path += n + (path[n] == '/');
        }
        return open_in_root(done, O_RDONLY | O_DIRECTORY);
}

int files_open_parent(const char *path, const struct files_args *make, char ret_name[static 256]) {
        char above[FILES_PATH_MAX + 1];
        size_t n = strlen(path);
        if (n > FILES_PATH_MAX)
                return -ENAMETOOLONG;
        while (n > 0 && path[n - 1] == '/')
                n--;
        size_t from = n;
        while (from > 0 && path[from - 1] != '/')
                from--;
        if (n - from > 255)
                return -ENAMETOOLONG;
        memcpy(ret_name, path + from, n - from);
        ret_name[n - from] = 0;
        if (!ret_name[0] || strcmp(ret_name, ".") == 0 || strcmp(ret_name, "..") == 0)
                return -EINVAL;
        memcpy(above, path, from);
        above[from] = 0;
        int fd = open_in_root(above, O_RDONLY | O_DIRECTORY);
        if (fd == -ENOENT && make && make->parents)
                fd = make_dirs(above, make);
        if (fd >= 0 && files_is_virtual(fd)) {
                fd_close(fd);
                return -EINVAL;
        }
        return fd;
}

int files_open_target(const char *path, const struct files_args *make, char ret_name[static 256]) {
        char at[FILES_PATH_MAX + 1], link[FILES_PATH_MAX + 1], joined[2 * FILES_PATH_MAX + 3];
        if (more_resolve)
                return files_open_parent(path, make, ret_name);        /* a link there is no file */
        snprintf(at, sizeof at, "%s", path);
        for (unsigned i = 0; i <= FILES_LINKS_MAX; i++) {
                _cleanup_close_ int dir = files_open_parent(at, make, ret_name);
                if (dir < 0)
                        return dir;
                ssize_t n = readlinkat(dir, ret_name, link, sizeof link - 1);
                if (n < 0)
                        return TAKE_FD(dir);   /* not a link, or not there */
                link[n] = 0;
                size_t top = strlen(at);
                while (top > 0 && at[top - 1] == '/')
                        top--;
                while (top > 0 && at[top - 1] != '/')
                        top--;
                int len = link[0] == '/' ? snprintf(joined, sizeof joined, "%s", link) : snprintf(joined, sizeof joined, "%.*s%s", (int)top, at, link);
                if (len < 0 || len > FILES_PATH_MAX)
                        return -ENAMETOOLONG;
                memcpy(at, joined, (size_t)len + 1);
        }
        return -ELOOP;
}
