/* move, delete, mkdir, chmod, stat. */
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>

#include "base/fs.h"
#include "helper/files.h"
#include "helper/unpack.h"

static int say_entry(const char *path, int dir, const char *name, const struct stat *st) {
        _cleanup_buf_ struct buf b = BUF_INIT(FILES_ANSWER_MAX);
        struct json_writer w = JSON_WRITER(&b);
        json_begin_object(&w);
        files_put_entry(&w, "path", path, dir, name, st);
        json_end_object(&w);
        return files_answer(&b, &w);
}

static int stat_of(int dir, const char *name, struct stat *st) { return fstatat(dir, name, st, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0; }

int files_stat(const struct files_args *a) {
        char name[256] = "";
        struct stat st;
        _cleanup_close_ int fd = -1;
        int r;
        if (!a->follow && (fd = files_open_parent(a->path, NULL, name)) >= 0)
                r = stat_of(fd, name, &st);
        else {
                /* Followed to the end, or "/", "." and "..", which have no parent to be looked up in; and what lies in /proc. */
                fd = files_open(a->path, O_PATH | (a->follow ? 0 : O_NOFOLLOW));
                r = fd < 0 ? fd : fstat(fd, &st) < 0 ? -errno : 0;
        }
        return r < 0 ? files_fail(r, a->path) : say_entry(a->path, fd, name, &st);
}

int files_mkdir(const struct files_args *a) {
        char name[256];
        _cleanup_close_ int dir = files_open_parent(a->path, a, name);
        if (dir < 0)
                return files_fail(dir, a->path);
        struct stat st;
        bool made = mkdirat(dir, name, 0700) == 0;
        if (!made && !(errno == EEXIST && a->parents))
                return files_fail(-errno, a->path);
        _cleanup_close_ int fd = files_open_kind(a->path, O_RDONLY, S_IFDIR);
        int r = fd < 0 ? fd : 0;
        if (r == -EISDIR || r == -ENOTDIR)
                r = -EEXIST;
        if (r == 0 && made)
                r = files_give(fd, a);
        if (r == 0 && made && fchmod(fd, a->mode_given ? a->mode : 0755) < 0)
                r = -errno;
        if (r == 0 && fstat(fd, &st) < 0)
                r = -errno;
        return r < 0 ? files_fail(r, a->path) : say_entry(a->path, dir, name, &st);
}

int files_chmod(const struct files_args *a) {
        struct stat st;
        _cleanup_close_ int fd = files_open_kind(a->path, O_RDONLY, S_IFREG);
        if (fd == -EISDIR)
                fd = files_open_kind(a->path, O_RDONLY, S_IFDIR);
        int r = fd < 0 ? fd : files_give(fd, a);
        /* After the owner: a change of owner takes setuid bits away. */
        if (r == 0 && a->mode_given && fchmod(fd, a->mode) < 0)
                r = -errno;
        if (r == 0 && fstat(fd, &st) < 0)
                r = -errno;
        return r < 0 ? files_fail(r, a->path) : say_entry(a->path, fd, "", &st);
}

int files_delete(const struct files_args *a) {
        char name[256];
        _cleanup_close_ int dir = files_open_parent(a->path, NULL, name);
        int r = dir < 0 ? dir : unlinkat(dir, name, 0) < 0 ? -errno : 0;
        /* The kernel says EISDIR or EPERM of a directory. */
        if (r == -EISDIR || r == -EPERM) {
                struct stat st;
                bool is_dir = stat_of(dir, name, &st) == 0 && S_ISDIR(st.st_mode);
                if (is_dir)
                        r = a->recursive ? helper_remove(dir, name) : unlinkat(dir, name, AT_REMOVEDIR) < 0 ? -errno : 0;
        }
        if (r < 0)
                return files_fail(r, a->path);
        return fs_write_all(1, "{\"deleted\":true}", 16) < 0;
}

/* ---- move ---- */

/* Between file systems: a file or a link is copied. A directory is not; the caller has archives for that. */
static int copy_over(int from_dir, const char *from, int to_dir, const char *to, bool replace) {
        struct stat st;
        char temporary[32];
        if (stat_of(from_dir, from, &st) < 0)
                return -ENOENT;
        if (!S_ISREG(st.st_mode))
                return -EXDEV;
        _cleanup_close_ int in = openat(from_dir, from, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (in < 0 || fstat(in, &st) < 0 || !S_ISREG(st.st_mode))
                return -EXDEV;
        snprintf(temporary, sizeof temporary, ".brig-move-%d", (int)getpid());
        _cleanup_close_ int out = openat(to_dir, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (out < 0)
                return -errno;
        int r = 0;
        for (ssize_t n = 1; r == 0 && n > 0;) {
                n = sendfile(out, in, NULL, 1 << 20);
                r = n < 0 ? -errno : 0;
        }
        if (r == 0 && (fchown(out, st.st_uid, st.st_gid) < 0 || fchmod(out, st.st_mode & 07777) < 0 || futimens(out, (struct timespec[]){ st.st_atim, st.st_mtim }) < 0))
                r = -errno;
        if (r == 0 && renameat2(to_dir, temporary, to_dir, to, replace ? 0 : RENAME_NOREPLACE) < 0)
                r = -errno;
        if (r < 0)
                unlinkat(to_dir, temporary, 0);
        else if (unlinkat(from_dir, from, 0) < 0)
                r = -errno;
        return r;
}

int files_move(const struct files_args *a) {
        char from[256], to[256];
        struct stat st;
        _cleanup_close_ int from_dir = files_open_parent(a->path, NULL, from);
        if (from_dir < 0)
                return files_fail(from_dir, a->path);
        _cleanup_close_ int to_dir = files_open_parent(a->to, a, to);
        if (to_dir < 0)
                return files_fail(to_dir, a->to);
        int r = renameat2(from_dir, from, to_dir, to, a->replace ? 0 : RENAME_NOREPLACE) < 0 ? -errno : 0;
        if (r == -EXDEV)
                r = copy_over(from_dir, from, to_dir, to, a->replace);
        if (r == 0)
                r = stat_of(to_dir, to, &st);
        return r < 0 ? files_fail(r, r == -ENOENT || r == -EXDEV ? a->path : a->to) : say_entry(a->to, to_dir, to, &st);
}
