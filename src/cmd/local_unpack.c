#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>

#include "archive/tar_read.h"
#include "base/fs.h"
#include "cmd/local_tar.h"

#define COPY_SIZE (256u << 10)

/* ---- entries ------------------------------------------------------------------------------------------------------------------- */

struct unpacking {
        pthread_t thread;
        bool started;
        int dir, in, out;              /* in: what is written to; out: the thread's */
        bool keep_links;
        mode_t mask;
        uint64_t entries, skipped;
        int r;
        struct error e;
        char space[COPY_SIZE];
};

static int fail(struct unpacking *u, int r, const char *path) {
        if (r == -ELOOP || r == -EXDEV)
                return error_say(&u->e, r, "%.200s: a link is in the way", path);
        return error_set(&u->e, r, "%.200s", path);
}

/* The directory of an entry, made where it is missing. No component is a link. */
static int open_parent(struct unpacking *u, char *path, const char **ret_leaf) {
        char *slash = strrchr(path, '/');
        *ret_leaf = slash ? slash + 1 : path;
        if (!slash)
                return fs_open_beneath(u->dir, ".", O_RDONLY | O_DIRECTORY, 0);
        *slash = 0;
        int fd = fs_open_beneath(u->dir, path, O_RDONLY | O_DIRECTORY, 0);
        if (fd == -ENOENT) {
                const char *leaf;
                char above[LOCAL_NAME_MAX + 1];
                snprintf(above, sizeof above, "%s", path);
                _cleanup_close_ int parent = open_parent(u, above, &leaf);
                if (parent >= 0 && mkdirat(parent, leaf, 0777) < 0 && errno != EEXIST)
                        fd = -errno;
                else
                        fd = parent < 0 ? parent : fs_open_beneath(u->dir, path, O_RDONLY | O_DIRECTORY, 0);
        }
        *slash = '/';
        return fd;
}

static int copy(struct unpacking *u, struct tar_reader *t, int fd, const struct tar_entry *en) {
        for (;;) {
                uint64_t at;
                ssize_t n = tar_data(t, u->space, sizeof u->space, &at, &u->e);
                if (n < 0)
                        return (int)n;
                if (n == 0)
                        break;
                for (ssize_t done = 0; done < n;) {
                        ssize_t put = pwrite(fd, u->space + done, (size_t)(n - done), (off_t)(at + (uint64_t)done));
                        if (put < 0 && errno == EINTR)
                                continue;
                        if (put < 0)
                                return fail(u, -errno, en->path);
                        done += put;
                }
        }
        struct stat st;
        return fstat(fd, &st) == 0 && (uint64_t)st.st_size < en->size && ftruncate(fd, (off_t)en->size) < 0 ? fail(u, -errno, en->path) : 0;
}

/* What is there goes, but a directory: then the entry is new and nobody's link. */
static int clear_way(int parent, const char *leaf) { return unlinkat(parent, leaf, 0) < 0 && errno != ENOENT ? -errno : 0; }

static int make_file(struct unpacking *u, struct tar_reader *t, int parent, const char *leaf, const struct tar_entry *en) {
        int r = clear_way(parent, leaf);
        _cleanup_close_ int fd = r < 0 ? r : openat(parent, leaf, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0)
                return fail(u, r < 0 ? r : -errno, en->path);
        r = copy(u, t, fd, en);
        if (r < 0)
                return r;
        const struct timespec times[2] = { { .tv_nsec = UTIME_NOW }, { .tv_sec = en->mtime, .tv_nsec = en->mtime_ns } };
        (void)futimens(fd, times);
        return fchmod(fd, en->mode & 0777 & ~u->mask) < 0 ? fail(u, -errno, en->path) : 0;
}

static int make_dir(struct unpacking *u, int parent, const char *leaf, const struct tar_entry *en) {
        if (mkdirat(parent, leaf, 0700) < 0)
                return errno == EEXIST ? 0 : fail(u, -errno, en->path);
        _cleanup_close_ int fd = openat(parent, leaf, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        return fd < 0 || fchmod(fd, ((en->mode & 0777) | 0700) & ~u->mask) < 0 ? fail(u, -errno, en->path) : 0;
}

static int make_symlink(struct unpacking *u, int parent, const char *leaf, const char *path, const struct tar_entry *en) {
        if (!u->keep_links && !link_stays(path, en->link)) {
                u->skipped++;
                return 0;
        }
        int r = clear_way(parent, leaf);
        if (r == 0 && symlinkat(en->link, parent, leaf) < 0)
                r = -errno;
        return r < 0 ? fail(u, r, en->path) : 0;
}

/* To a file of the target that is no link. */
static int make_hardlink(struct unpacking *u, int parent, const char *leaf, const struct tar_entry *en) {
        char target[LOCAL_NAME_MAX + 1];
        const char *name;
        struct stat st;
        if (local_name(en->link, target) < 0 || !target[0])
                return error_say(&u->e, -EBADMSG, "%.200s: a link to a name that is not accepted", en->path);
        _cleanup_close_ int dir = open_parent(u, target, &name);
        if (dir < 0 || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return fail(u, dir < 0 ? dir : -errno, en->path);
        int r = S_ISREG(st.st_mode) ? clear_way(parent, leaf) : -EBADMSG;
        if (r == 0 && linkat(dir, name, parent, leaf, 0) < 0)
                r = -errno;
        return r < 0 ? fail(u, r, en->path) : 0;
}

static int make_entry(struct unpacking *u, struct tar_reader *t, const struct tar_entry *en) {
        char path[LOCAL_NAME_MAX + 1];
        const char *leaf;
        if (local_name(en->path, path) < 0)
                return error_say(&u->e, -EBADMSG, "the archive holds '%.200s', which leads out of it", en->path);
        if (!path[0])
                return 0;              /* the top itself */
        if (en->type != TAR_FILE && en->type != TAR_DIR && en->type != TAR_SYMLINK && en->type != TAR_HARDLINK) {
                u->skipped++;
                return 0;
        }
        _cleanup_close_ int parent = open_parent(u, path, &leaf);
        if (parent < 0)
                return fail(u, parent, en->path);
        u->entries++;
        switch (en->type) {
        case TAR_DIR: return make_dir(u, parent, leaf, en);
        case TAR_SYMLINK: return make_symlink(u, parent, leaf, path, en);
        case TAR_HARDLINK: return make_hardlink(u, parent, leaf, en);
        default: return make_file(u, t, parent, leaf, en);
        }
}

static void *unpack(void *user) {
        struct unpacking *u = user;
        struct inflow *in = NULL;
        struct tar_reader *t = NULL;
        struct tar_entry en;
        int r = inflow_open(u->out, UINT64_MAX, &in, &u->e);
        if (r == 0)
                r = tar_open(in, &t, &u->e);
        while (r == 0 && (r = tar_next(t, &en, &u->e)) > 0)
                r = make_entry(u, t, &en);
        /* What stands behind the end is padding. */
        while (r == 0 && inflow_read(in, u->space, sizeof u->space, NULL) > 0)
                ;
        tar_free(t);
        inflow_free(in);
        u->r = r;
        u->out = fd_close(u->out);
        return NULL;
}

int unpacking_start(int dir, bool keep_links, struct unpacking **ret, struct error *e) {
        int ends[2];
        struct unpacking *u = calloc(1, sizeof *u);
        if (!u)
                return error_set(e, -ENOMEM, "unpack");
        *u = (struct unpacking){ .dir = dir, .keep_links = keep_links, .in = -1, .out = -1, .mask = umask(0) };
        umask(u->mask);
        int r = pipe2(ends, O_CLOEXEC) < 0 ? -errno : 0;
        if (r == 0) {
                u->in = ends[1];
                u->out = ends[0];
                r = -pthread_create(&u->thread, NULL, unpack, u);
                u->started = r == 0;
        }
        if (r < 0) {
                unpacking_free(u);
                return error_set(e, r, "unpack");
        }
        *ret = u;
        return 0;
}

int unpacking_write(struct unpacking *u, const char *p, size_t n) { return fs_write_all(u->in, p, n); }

static void join(struct unpacking *u) {
        u->in = fd_close(u->in);
        if (u->started)
                pthread_join(u->thread, NULL);
        u->started = false;
}

int unpacking_end(struct unpacking *u, uint64_t *ret_entries, uint64_t *ret_skipped, struct error *e) {
        join(u);
        if (u->r < 0) {
                if (e)
                        *e = u->e;
                return u->r;
        }
        *ret_entries = u->entries;
        *ret_skipped = u->skipped;
        return 0;
}

void unpacking_free(struct unpacking *u) {
        if (!u)
                return;
        join(u);
        fd_close(u->out);
        free(u);
}
