/* pack: FILES_HEAD_SIZE bytes of JSON, as read has them, then a tar archive of what is at the path: of a directory, "./" and what is in
 * it; of a file, that file under its name. With `max` 0 the head alone, so that whoever asks learns whether there is anything.
 *
 * Sockets, FIFOs and devices are left out, and so is what is on file systems that hold no files (/proc, /sys). Hard links within the
 * archive stay hard links. When something goes wrong behind the head, standard error says what, and the exit status tells. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "helper/files.h"
#include "archive/tar_stream.h"

#define SHOWN_MAX 600                  /* bytes of a path in a message */
#define LINKS_MAX 65536                /* files with several names that are remembered; others are written whole each time */

struct linked { dev_t dev; ino_t ino; char *name; };

struct pack {
        struct tar_stream *tar;
        struct linked *links;          /* open addressing, 2 * LINKS_MAX; NULL until the first */
        size_t n_links;
        char where[SHOWN_MAX + 1];     /* the entry that was too deep or too long; "" for other faults */
};

/* Names are the sandbox's: nothing that a terminal or a log would take for more than text. */
static int fail_at(struct pack *p, const char *path, int r) {
        size_t n = 0;
        for (; path[n] && n < SHOWN_MAX; n++)
                p->where[n] = (char)(path[n] > ' ' && path[n] < 0x7f ? path[n] : '?');
        p->where[n] = 0;
        return r;
}

/* The name that the file has in the archive already; else remembers this one. */
static const char *known_link(struct pack *p, const struct stat *st, const char *name) {
        if (st->st_nlink < 2)
                return NULL;
        if (!p->links && !(p->links = calloc(2 * LINKS_MAX, sizeof *p->links)))
                return NULL;
        size_t at = (size_t)((st->st_ino * 0x9e3779b97f4a7c15ull ^ st->st_dev) >> 20) % (2 * LINKS_MAX);
        for (; p->links[at].name; at = (at + 1) % (2 * LINKS_MAX))
                if (p->links[at].ino == st->st_ino && p->links[at].dev == st->st_dev)
                        return p->links[at].name;
        if (p->n_links < LINKS_MAX && (p->links[at].name = strdup(name))) {
                p->links[at].dev = st->st_dev;
                p->links[at].ino = st->st_ino;
                p->n_links++;
        }
        return NULL;
}

static int pack_file(struct pack *p, int dir, const char *name, const char *path) {
        struct stat st;
        _cleanup_close_ int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) < 0)
                return errno == ENOENT || errno == ELOOP || errno == ENXIO ? 0 : -errno;       /* somebody put something else there */
        if (!S_ISREG(st.st_mode) || files_is_virtual(fd))
                return 0;
        const char *before = known_link(p, &st, path);
        return before ? tar_stream_entry(p->tar, path, &st, before, true) : tar_stream_file(p->tar, path, &st, fd);
}

static int pack_dir(struct pack *p, int fd, const char *prefix, unsigned depth);

static int pack_one(struct pack *p, int dir, const char *prefix, const char *name, unsigned depth) {
        char path[2 * FILES_PATH_MAX], target[FILES_PATH_MAX + 1];
        struct stat st;
        if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return 0;
        int n = snprintf(path, sizeof path, "%s%s", prefix, name);
        if (n < 0 || n > FILES_PATH_MAX)
                return fail_at(p, prefix, -ENAMETOOLONG);
        if (S_ISREG(st.st_mode))
                return pack_file(p, dir, name, path);
        if (S_ISLNK(st.st_mode)) {
                ssize_t len = readlinkat(dir, name, target, sizeof target - 1);
                if (len < 0)
                        return 0;
                target[len] = 0;
                return tar_stream_entry(p->tar, path, &st, target, false);
        }
        if (!S_ISDIR(st.st_mode))
                return 0;
        int below = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (below < 0)
                return errno == ENOENT || errno == ELOOP || errno == ENOTDIR ? 0 : -errno;
        if (files_is_virtual(below)) {
                fd_close(below);
                return 0;
        }
        memcpy(path + n, "/", 2);
        return depth == 0 ? (fd_close(below), fail_at(p, path, -E2BIG)) : pack_dir(p, below, path, depth - 1);
}

/* Takes fd. */
static int pack_dir(struct pack *p, int fd, const char *prefix, unsigned depth) {
        struct stat st;
        DIR *d = fdopendir(fd);
        if (!d) {
                fd_close(fd);
                return -errno;
        }
        int r = fstat(fd, &st) < 0 ? -errno : tar_stream_entry(p->tar, prefix, &st, NULL, false);
        for (struct dirent *de; r == 0 && (de = readdir(d));)
                if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
                        r = pack_one(p, fd, prefix, de->d_name, depth);
        closedir(d);
        return r;
}

static int say_head(int fd) {
        _cleanup_buf_ struct buf b = BUF_INIT(FILES_HEAD_SIZE);
        struct json_writer w = JSON_WRITER(&b);
        struct stat st;
        if (fstat(fd, &st) < 0)
                return files_head_fail(-errno);
        json_begin_object(&w);
        files_put_facts(&w, &st);
        json_end_object(&w);
        return json_finish(&w) < 0 ? 1 : files_head(&b);
}

static int pack_root(struct pack *p, const struct files_args *a, int fd, bool is_dir) {
        const char *name = strrchr(a->path, '/');
        if (is_dir)
                return pack_dir(p, fcntl(fd, F_DUPFD_CLOEXEC, 3), "./", FILES_DEPTH_MAX);
        struct stat st;
        return fstat(fd, &st) < 0 ? -errno : tar_stream_file(p->tar, name ? name + 1 : a->path, &st, fd);
}

static const char *fault_text(int r) {
        switch (-r) {
        case EFBIG: return "the archive is too large";
        case E2BIG: return "the tree is too deep, more than 256 directories";
        case ENAMETOOLONG: return "a path is too long, below";
        default: return strerror(-r);
        }
}

int files_pack(const struct files_args *a) {
        struct pack p = { 0 };
        bool is_dir = true;
        _cleanup_close_ int fd = files_open_kind(a->path, O_RDONLY, S_IFDIR);
        if (fd == -ENOTDIR) {
                is_dir = false;
                fd = files_open_kind(a->path, O_RDONLY, S_IFREG);
        }
        if (fd < 0)
                return files_head_fail(fd);
        int said = say_head(fd);
        if (said != 0 || a->max == 0)
                return said;
        int r = tar_stream_open(1, a->gzip, (int)a->level, a->max, &p.tar);
        if (r == 0)
                r = pack_root(&p, a, fd, is_dir);
        if (r == 0)
                r = tar_stream_finish(p.tar);
        tar_stream_free(p.tar);
        for (size_t i = 0; p.links && i < 2 * LINKS_MAX; i++)
                free(p.links[i].name);
        free(p.links);
        if (r < 0)
                fprintf(stderr, "%s%s%s\n", fault_text(r), p.where[0] ? ": " : "", p.where);
        return r < 0 ? FILES_FAILED : 0;
}
