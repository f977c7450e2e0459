#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>

#include "archive/tar_write.h"
#include "base/fs.h"
#include "base/strv.h"
#include "cmd/local_tar.h"

#define COPY_SIZE (256u << 10)

/* A file with several names, by the first of them. */
struct linked { dev_t dev; ino_t ino; char *path; };

struct packing {
        pthread_t thread;
        bool started, keep_links;
        int dir, in, out;              /* in: the thread's end of the pipe */
        int r;                         /* the thread's, once the pipe has ended */
        struct error e;
        atomic_ullong bytes;
        struct linked *links; size_t n_links;  /* 2 * LOCAL_LINKS_MAX, open addressing; NULL until there is one */
        char space[COPY_SIZE];
};

static int put(struct packing *p, const void *bytes, size_t n) {
        int r = fs_write_all(p->in, bytes, n);
        atomic_fetch_add(&p->bytes, n);
        return r;
}

static int put_header(struct packing *p, const char *path, enum tar_write_kind kind, const struct stat *st, const char *link) {
        _cleanup_buf_ struct buf b = BUF_INIT(TAR_WRITE_HEADER_MAX);
        int r = tar_write_header(&b, &(struct tar_item){
                .path = path, .link = link, .kind = kind, .mode = st->st_mode & 07777, .uid = st->st_uid, .gid = st->st_gid, .mtime = st->st_mtim.tv_sec,
                .size = kind == TAR_WRITE_FILE ? (uint64_t)st->st_size : 0 });
        return r < 0 ? r : put(p, b.data, b.len);
}

static int fail(struct packing *p, int r, const char *path) { return r == -EPIPE ? r : error_set(&p->e, r, "pack %.200s", path); }

/* Its place in the table, with path NULL where it is not known yet; NULL: it has one name only or is to be packed whole, or there is no room. */
static struct linked *link_slot(struct packing *p, const struct stat *st) {
        const size_t n = 2 * LOCAL_LINKS_MAX;
        if (!p->keep_links || st->st_nlink < 2 || (!p->links && !(p->links = calloc(n, sizeof *p->links))))
                return NULL;
        size_t at = (size_t)((st->st_ino ^ (uint64_t)st->st_dev << 32) * 0x9e3779b97f4a7c15ull >> 20) % n;
        for (; p->links[at].path; at = (at + 1) % n)
                if (p->links[at].ino == st->st_ino && p->links[at].dev == st->st_dev)
                        return &p->links[at];
        return p->n_links < LOCAL_LINKS_MAX ? &p->links[at] : NULL;
}

static void remember_link(struct packing *p, struct linked *l, const struct stat *st, const char *path) {
        if (!l || !(l->path = strdup(path)))
                return;                /* then its other names are packed whole */
        l->dev = st->st_dev;
        l->ino = st->st_ino;
        p->n_links++;
}

static void forget_links(struct packing *p) {
        for (size_t i = 0; p->links && i < 2 * LOCAL_LINKS_MAX; i++)
                free(p->links[i].path);
        free(p->links);
}

/* One that shrinks meanwhile is filled up: its size is said already. */
static int pack_file(struct packing *p, int dir, const char *name, const char *path) {
        struct stat st;
        _cleanup_close_ int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) < 0)
                return fail(p, -errno, path);
        if (!S_ISREG(st.st_mode))
                return 0;
        struct linked *l = link_slot(p, &st);
        int r = put_header(p, path, l && l->path ? TAR_WRITE_LINK : TAR_WRITE_FILE, &st, l ? l->path : NULL);
        if (r == 0 && l && l->path)
                return 0;
        uint64_t left = (uint64_t)st.st_size;
        while (r == 0 && left > 0) {
                ssize_t n = read(fd, p->space, (size_t)MIN2(left, (uint64_t)COPY_SIZE));
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return fail(p, -errno, path);
                if (n == 0) {
                        n = (ssize_t)MIN2(left, (uint64_t)COPY_SIZE);
                        memset(p->space, 0, (size_t)n);
                }
                r = put(p, p->space, (size_t)n);
                left -= (uint64_t)n;
        }
        static const char zeros[TAR_WRITE_BLOCK];
        r = r ? r : put(p, zeros, tar_write_padding((uint64_t)st.st_size));
        if (r == 0)
                remember_link(p, l, &st, path);
        return r < 0 ? fail(p, r, path) : 0;
}

static int pack_link(struct packing *p, int dir, const char *name, const char *path, const struct stat *st) {
        char target[LOCAL_NAME_MAX + 1];
        ssize_t n = readlinkat(dir, name, target, sizeof target - 1);
        if (n < 0)
                return fail(p, -errno, path);
        target[n] = 0;
        int r = put_header(p, path, TAR_WRITE_SYMLINK, st, target);
        return r < 0 ? fail(p, r, path) : 0;
}

/* In the order of names, so that the same tree is the same stream. Takes fd. */
static int names_of(int fd, char ***ret) {
        DIR *d = fdopendir(fd);
        size_t n = 0;
        int r = strv_ensure(ret);
        if (!d) {
                fd_close(fd);
                return -errno;
        }
        for (struct dirent *de; r == 0 && (de = readdir(d));)
                if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
                        r = strv_append_take(ret, &n, strdup(de->d_name));
        closedir(d);
        strv_sort(*ret);
        return r;
}

static int pack_dir(struct packing *p, int dir, const char *prefix, unsigned depth);

static int pack_one(struct packing *p, int dir, const char *prefix, const char *name, unsigned depth) {
        char path[LOCAL_NAME_MAX + 1];
        struct stat st;
        if (snprintf(path, sizeof path, "%s%s%s", prefix, prefix[0] ? "/" : "", name) >= (int)sizeof path)
                return fail(p, -ENAMETOOLONG, prefix);
        if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? 0 : fail(p, -errno, path);
        if (S_ISREG(st.st_mode))
                return pack_file(p, dir, name, path);
        if (S_ISLNK(st.st_mode))
                return pack_link(p, dir, name, path, &st);
        if (!S_ISDIR(st.st_mode))
                return 0;
        if (depth == 0)
                return error_say(&p->e, -E2BIG, "%.200s: directories more than %d deep", path, LOCAL_DEPTH_MAX);
        _cleanup_close_ int below = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        int r = below < 0 ? -errno : put_header(p, path, TAR_WRITE_DIR, &st, NULL);
        return r < 0 ? fail(p, r, path) : pack_dir(p, below, path, depth - 1);
}

static int pack_dir(struct packing *p, int dir, const char *prefix, unsigned depth) {
        _cleanup_strv_ char **names = NULL;
        int again = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        int r = again < 0 ? -errno : names_of(again, &names);
        if (r < 0)
                return fail(p, r, prefix[0] ? prefix : ".");
        for (char **n = names; r == 0 && *n; n++)
                r = pack_one(p, dir, prefix, *n, depth);
        return r;
}

static void *pack(void *user) {
        struct packing *p = user;
        static const char zeros[TAR_WRITE_END];
        p->r = pack_dir(p, p->dir, "", LOCAL_DEPTH_MAX);
        if (p->r == 0)
                p->r = put(p, zeros, sizeof zeros);
        if (p->r < 0 && !p->e.code)
                error_set(&p->e, p->r, "pack");
        p->in = fd_close(p->in);
        return NULL;
}

int packing_start(const char *path, bool keep_links, struct packing **ret, struct error *e) {
        int ends[2];
        struct packing *p = calloc(1, sizeof *p);
        if (!p)
                return error_set(e, -ENOMEM, "pack %.200s", path);
        *p = (struct packing){ .keep_links = keep_links, .dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), .in = -1, .out = -1 };
        int r = p->dir < 0 || pipe2(ends, O_CLOEXEC) < 0 ? -errno : 0;
        if (r == 0) {
                p->in = ends[1];
                p->out = ends[0];
                r = -pthread_create(&p->thread, NULL, pack, p);
                p->started = r == 0;
        }
        if (r < 0) {
                packing_free(p);
                return error_set(e, r, "%.200s", path);
        }
        *ret = p;
        return 0;
}

static void join(struct packing *p) {
        if (p->started)
                pthread_join(p->thread, NULL);
        p->started = false;
}

ssize_t packing_read(char *bytes, size_t n, void *user) {
        struct packing *p = user;
        ssize_t r;
        do
                r = read(p->out, bytes, n);
        while (r < 0 && errno == EINTR);
        if (r != 0)
                return r < 0 ? -errno : r;
        join(p);
        return p->r;
}

uint64_t packing_bytes(const struct packing *p) { return atomic_load(&p->bytes); }

int packing_error(const struct packing *p, struct error *e) {
        if (p->started || p->r == 0 || p->r == -EPIPE)
                return 0;
        if (e)
                *e = p->e;
        return p->r;
}

void packing_free(struct packing *p) {
        if (!p)
                return;
        p->out = fd_close(p->out);     /* the thread's next write fails */
        join(p);
        fd_close(p->in);
        fd_close(p->dir);
        forget_links(p);
        free(p);
}
