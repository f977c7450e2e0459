/* write: what comes on standard input becomes a file: whole or not at all, or at the end of what is there. */
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "helper/files.h"
#include "sandbox/files_wire.h"

static int copy_in(int fd, uint64_t most, uint64_t *ret_bytes) {
        static char space[128 * 1024];
        uint64_t total = 0;
        for (;;) {
                ssize_t n = read(0, space, sizeof space);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                if (n == 0)
                        break;
                total += (uint64_t)n;
                if (total > most)
                        return -EFBIG;
                int r = fs_write_all(fd, space, (size_t)n);
                if (r < 0)
                        return r;
        }
        *ret_bytes = total;
        return 0;
}

/* Input that breaks off ends like input that is over: only the byte makes the difference. */
static int await_commit(void) {
        char byte;
        ssize_t n;
        while ((n = read(FILES_COMMIT_FD, &byte, 1)) < 0 && errno == EINTR)
                ;
        return n == 1 ? 0 : -ECANCELED;
}

static int say_written(const struct files_args *a, int fd, uint64_t bytes) {
        _cleanup_buf_ struct buf b = BUF_INIT(64 * 1024);
        struct json_writer w = JSON_WRITER(&b);
        struct stat st;
        if (fstat(fd, &st) < 0)
                return files_fail(-errno, a->path);
        json_begin_object(&w);
        files_put_entry(&w, "path", a->path, fd, "", &st);
        json_field_uint(&w, "written", bytes);
        json_end_object(&w);
        return files_answer(&b, &w);
}

/* What is there, if it is a file. 1: nothing is. */
static int look(int dir, const char *name, struct stat *st) {
        if (fstatat(dir, name, st, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? 1 : -errno;
        return S_ISDIR(st->st_mode) ? -EISDIR : S_ISREG(st->st_mode) ? 0 : -EINVAL;
}

static int append(const struct files_args *a, int dir, const char *name) {
        struct stat st;
        uint64_t bytes = 0;
        int r = look(dir, name, &st);
        bool fresh = r == 1;
        if (r < 0)
                return files_fail(r, a->path);
        _cleanup_close_ int fd = openat(dir, name, O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | (fresh ? O_CREAT | O_EXCL : 0), 0644);
        if (fd < 0 || fstat(fd, &st) < 0)
                return files_fail(-errno, a->path);
        r = S_ISREG(st.st_mode) ? 0 : -EINVAL;
        if (r == 0 && fresh)
                r = files_give(fd, a);
        if (r == 0 && a->mode_given && fchmod(fd, a->mode) < 0)
                r = -errno;
        if (r == 0)
                r = copy_in(fd, a->max, &bytes);
        if (r == 0)
                r = await_commit();
        /* What came of it is taken back, unless somebody else has written behind it. */
        struct stat now;
        if (r < 0 && fstat(fd, &now) == 0 && (uint64_t)now.st_size <= (uint64_t)st.st_size + bytes && ftruncate(fd, st.st_size) < 0)
                r = -errno;
        return r < 0 ? files_fail(r, a->path) : say_written(a, fd, bytes);
}

/* What it is going to be called already, so that no moment shows a file without its owner or mode. */
static int prepare(int fd, const struct files_args *a, const struct stat *old) {
        mode_t mode = a->mode_given ? a->mode : old ? old->st_mode & 07777 : 0644;
        int r = 0;
        r = old ? (fchown(fd, old->st_uid, old->st_gid) < 0 ? -errno : 0) : files_give(fd, a);
        if (r == 0 && fchmod(fd, mode) < 0)
                r = -errno;
        return r;
}

static int replace(const struct files_args *a, int dir, const char *name) {
        char temporary[40];
        struct stat st;
        uint64_t bytes = 0;
        int had = look(dir, name, &st);
        if (had < 0 || (had == 0 && !a->replace))
                return files_fail(had < 0 ? had : -EEXIST, a->path);
        snprintf(temporary, sizeof temporary, ".brig-write-%d-%ld", (int)getpid(), random());
        _cleanup_close_ int fd = openat(dir, temporary, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0)
                return files_fail(-errno, a->path);
        int r = copy_in(fd, a->max, &bytes);
        if (r == 0)
                r = await_commit();
        if (r == 0)
                r = prepare(fd, a, had == 0 ? &st : NULL);
        if (r == 0 && renameat2(dir, temporary, dir, name, a->replace ? 0 : RENAME_NOREPLACE) < 0)
                r = -errno;
        if (r < 0) {
                unlinkat(dir, temporary, 0);
                return files_fail(r, a->path);
        }
        return say_written(a, fd, bytes);
}

int files_write(const struct files_args *a) {
        char name[256];
        unsigned seed;
        random_bytes(&seed, sizeof seed);
        srandom(seed);
        _cleanup_close_ int dir = files_open_target(a->path, a, name);
        if (dir < 0)
                return files_fail(dir, a->path);
        return a->append ? append(a, dir, name) : replace(a, dir, name);
}
