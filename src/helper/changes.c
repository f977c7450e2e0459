/* changes json OFFSET LIMIT | changes tar: what has been written to a sandbox, read from its uppers; in the order of a walk by names.
 *
 * json: {"changes":[{"path","change","type",...}],"more"} on standard output, entries OFFSET on. tar: a layer, with ".wh." names for what
 * is gone, on standard output. Status 0, or 1 with a reason on standard error.
 *
 * What is gone is what the lower file systems show and the sandbox does not: that holds for whiteouts and for directories that were
 * made anew in the place of others, and needs no attribute of the overlay's. What is mounted in the sandbox (/proc, /dev...) is not
 * looked into. A directory is in the list when it is new, or has another mode or owner. What Brig has written itself, the file at
 * HELPER_OWN_FD, is nobody's change. */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/fs.h"
#include "base/strv.h"
#include "helper/files.h"
#include "archive/tar_stream.h"
#include "helper/verbs.h"

#define UPPER_FD 250                   /* HELPER_UPPER_FD: of "/", then of "/usr" and "/opt" */
#define OWN_FD 253                     /* HELPER_OWN_FD: what Brig has written there itself, if anything */
#define DEPTH_MAX 256
#define NAMES_MAX (1u << 20)           /* of one directory */
#define ANSWER_MAX (16u << 20)
#define ANSWER_ROOM 16384              /* of that, for the entry that is written */
#define COMPARE_MAX (64ull << 20)      /* bytes of two files that look alike that are compared; above, it counts as changed */
#define TAR_MAX (64ull << 30)
#define LINKS_MAX 65536                /* files with several names that are remembered; others are written whole each time */

struct linked { ino_t ino; char *name; };

struct changes {
        struct json_writer w;
        struct buf answer;
        uint64_t offset, left, seen;
        bool more;
        struct tar_stream *tar;        /* NULL: json */
        struct linked *links; size_t n_links;          /* of one plane */
        uint64_t mount;                /* of the plane, in the sandbox */
        const char *where;             /* for a reason */
};

/* One directory in its three forms; base < 0: it was not there. */
struct place { int upper, base, merged; };

static bool is_own(const struct stat *st) {
        struct stat own;
        return S_ISREG(st->st_mode) && fstat(OWN_FD, &own) == 0 && own.st_dev == st->st_dev && own.st_ino == st->st_ino;
}

static bool is_whiteout(const struct stat *st) { return S_ISCHR(st->st_mode) && st->st_rdev == makedev(0, 0); }

/* ---- what is told ------------------------------------------------------------------------------------------------------- */

static const char *type_of(mode_t mode) {
        return S_ISREG(mode) ? "file" : S_ISDIR(mode) ? "directory" : S_ISLNK(mode) ? "symlink" : "other";
}

/* True: this entry is of the page. */
static bool counted(struct changes *c) {
        if (c->seen++ < c->offset)
                return false;
        if (c->left == 0 || c->answer.len > ANSWER_MAX - ANSWER_ROOM)
                c->more = true;
        else
                c->left--;
        return !c->more;
}

static void tell(struct changes *c, const char *path, const char *change, const struct stat *st) {
        if (!counted(c))
                return;
        char absolute[FILES_PATH_MAX + 2];
        snprintf(absolute, sizeof absolute, "/%s", path);
        json_begin_object(&c->w);
        files_put_bytes(&c->w, "path", absolute, strlen(absolute));
        json_field_text(&c->w, "change", change);
        json_field_text(&c->w, "type", st ? type_of(st->st_mode) : NULL);
        if (st && S_ISREG(st->st_mode))
                json_field_uint(&c->w, "size", (uint64_t)st->st_size);
        json_end_object(&c->w);
}

static int gone(struct changes *c, const char *prefix, const char *name) {
        char path[FILES_PATH_MAX + 1];
        if (!c->tar) {
                if (snprintf(path, sizeof path, "%s%s", prefix, name) >= (int)sizeof path)
                        return -ENAMETOOLONG;
                tell(c, path, "deleted", NULL);
                return 0;
        }
        const struct stat nothing = { .st_mode = S_IFREG | 0600 };
        if (snprintf(path, sizeof path, "%s.wh.%s", prefix, name) >= (int)sizeof path)
                return -ENAMETOOLONG;
        _cleanup_close_ int empty = open("/dev/null", O_RDONLY | O_CLOEXEC);
        return tar_stream_file(c->tar, path, &nothing, empty);
}

/* ---- files ---------------------------------------------------------------------------------------------------------------- */

static bool same_bytes(int a, int b) {
        static char one[65536], other[sizeof one];
        for (;;) {
                ssize_t n = read(a, one, sizeof one);
                if (n < 0)
                        return false;
                size_t have = 0;
                while (have < (size_t)n) {
                        ssize_t m = read(b, other + have, (size_t)n - have);
                        if (m <= 0)
                                return false;
                        have += (size_t)m;
                }
                if (memcmp(one, other, (size_t)n) != 0)
                        return false;
                if (n == 0)
                        return read(b, other, 1) == 0;
        }
}

static bool same_facts(const struct stat *a, const struct stat *b) {
        return a->st_mode == b->st_mode && a->st_uid == b->st_uid && a->st_gid == b->st_gid;
}

/* Opened for writing, and then not written. */
static bool same_file(const struct place *at, const char *name, const struct stat *st, const struct stat *old) {
        if (!same_facts(st, old) || st->st_size != old->st_size || (uint64_t)st->st_size > COMPARE_MAX || st->st_mtim.tv_sec != old->st_mtim.tv_sec ||
            st->st_mtim.tv_nsec != old->st_mtim.tv_nsec)
                return false;
        _cleanup_close_ int a = openat(at->upper, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        _cleanup_close_ int b = openat(at->base, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        return a >= 0 && b >= 0 && same_bytes(a, b);
}

static bool same_link(const struct place *at, const char *name, const struct stat *st, const struct stat *old) {
        char a[FILES_PATH_MAX + 1], b[FILES_PATH_MAX + 1];
        ssize_t n = readlinkat(at->upper, name, a, sizeof a), m = readlinkat(at->base, name, b, sizeof b);
        return same_facts(st, old) && n >= 0 && n == m && memcmp(a, b, (size_t)n) == 0;
}

static const char *known_link(struct changes *c, const struct stat *st, const char *path) {
        if (st->st_nlink < 2 || (!c->links && !(c->links = calloc(2 * LINKS_MAX, sizeof *c->links))))
                return NULL;
        size_t at = (size_t)(st->st_ino * 0x9e3779b97f4a7c15ull >> 20) % (2 * LINKS_MAX);
        for (; c->links[at].name; at = (at + 1) % (2 * LINKS_MAX))
                if (c->links[at].ino == st->st_ino)
                        return c->links[at].name;
        if (c->n_links < LINKS_MAX && (c->links[at].name = strdup(path))) {
                c->links[at].ino = st->st_ino;
                c->n_links++;
        }
        return NULL;
}

static void forget_links(struct changes *c) {
        for (size_t i = 0; c->links && i < 2 * LINKS_MAX; i++)
                free(c->links[i].name);
        free(c->links);
        c->links = NULL;
        c->n_links = 0;
}

static int pack(struct changes *c, const struct place *at, const char *name, const char *path, const struct stat *st) {
        char target[FILES_PATH_MAX + 1];
        if (S_ISLNK(st->st_mode)) {
                ssize_t n = readlinkat(at->upper, name, target, sizeof target - 1);
                if (n < 0)
                        return -errno;
                target[n] = 0;
                return tar_stream_entry(c->tar, path, st, target, false);
        }
        if (!S_ISREG(st->st_mode))
                return 0;              /* a socket, a FIFO: they are the processes', not the files' */
        const char *before = known_link(c, st, path);
        if (before)
                return tar_stream_entry(c->tar, path, st, before, true);
        _cleanup_close_ int fd = openat(at->upper, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        return fd < 0 ? -errno : tar_stream_file(c->tar, path, st, fd);
}

/* ---- the walk --------------------------------------------------------------------------------------------------------------- */

static int by_bytes(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Adds "+NAME" for each name of `fd` that `take` wants; sorted by name as the sign is the same for all of a kind. */
static int names_of(int fd, char sign, bool (*take)(const struct place *at, const char *name), const struct place *at, char ***list, size_t *n) {
        int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *d = own < 0 ? NULL : fdopendir(own);
        int r = 0;
        if (!d) {
                fd_close(own);
                return -errno;
        }
        for (struct dirent *de; r == 0 && (de = readdir(d));) {
                char entry[260];
                if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0 || !take(at, de->d_name))
                        continue;
                snprintf(entry, sizeof entry, "%s%c", de->d_name, sign);
                r = *n >= NAMES_MAX ? -E2BIG : strv_append_take(list, n, strdup(entry));
        }
        closedir(d);
        return r;
}

static bool is_written(const struct place *at, const char *name) {
        struct stat st;
        return fstatat(at->upper, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && !is_whiteout(&st);
}

static bool is_gone(const struct place *at, const char *name) {
        struct stat st;
        return fstatat(at->merged, name, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
}

static uint64_t mount_of(int dir, const char *name) {
        struct statx sx;
        if (statx(dir, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | (*name ? 0 : AT_EMPTY_PATH), STATX_MNT_ID, &sx) < 0 || !(sx.stx_mask & STATX_MNT_ID))
                return 0;
        return sx.stx_mnt_id;
}

static int walk(struct changes *c, const struct place *at, const char *prefix, unsigned depth);

static int open_dir(int at, const char *name) {
        int fd = at < 0 ? -1 : openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        return fd < 0 ? -1 : fd;
}

static int written_dir(struct changes *c, const struct place *at, const char *name, const char *path, const struct stat *st, const struct stat *old, unsigned depth) {
        char below[FILES_PATH_MAX + 2];
        int r = 0;
        snprintf(below, sizeof below, "%s/", path);
        if (c->tar)
                r = tar_stream_entry(c->tar, below, st, NULL, false);
        else if (!old || !S_ISDIR(old->st_mode) || !same_facts(st, old))
                tell(c, path, old ? "changed" : "added", st);
        struct place in = { .upper = open_dir(at->upper, name), .base = open_dir(at->base, name), .merged = open_dir(at->merged, name) };
        if (r == 0)
                r = in.upper < 0 || in.merged < 0 ? -EIO : depth == 0 ? -ELOOP : walk(c, &in, below, depth - 1);
        fd_close(in.upper);
        fd_close(in.base);
        fd_close(in.merged);
        return r;
}

static int written(struct changes *c, const struct place *at, const char *name, const char *prefix, unsigned depth) {
        char path[FILES_PATH_MAX + 1];
        struct stat st, before;
        if (fstatat(at->upper, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || is_own(&st) || mount_of(at->merged, name) != c->mount)
                return 0;              /* gone meanwhile, or ours, or something is mounted there */
        if (snprintf(path, sizeof path, "%s%s", prefix, name) >= (int)sizeof path - 1)
                return -ENAMETOOLONG;
        struct stat *old = at->base >= 0 && fstatat(at->base, name, &before, AT_SYMLINK_NOFOLLOW) == 0 ? &before : NULL;
        if (S_ISDIR(st.st_mode))
                return written_dir(c, at, name, path, &st, old, depth);
        if (old && ((S_ISREG(st.st_mode) && same_file(at, name, &st, old)) || (S_ISLNK(st.st_mode) && S_ISLNK(old->st_mode) && same_link(at, name, &st, old))))
                return 0;
        if (c->tar)
                return pack(c, at, name, path, &st);
        tell(c, path, old ? "changed" : "added", &st);
        return 0;
}

static int walk(struct changes *c, const struct place *at, const char *prefix, unsigned depth) {
        char **names = NULL;
        size_t n = 0;
        int r = names_of(at->upper, '+', is_written, at, &names, &n);
        if (r == 0 && at->base >= 0)
                r = names_of(at->base, '-', is_gone, at, &names, &n);
        if (n > 0)
                qsort(names, n, sizeof *names, by_bytes);
        for (size_t i = 0; r == 0 && i < n && !c->more; i++) {
                size_t len = strlen(names[i]);
                bool deleted = names[i][len - 1] == '-';
                names[i][len - 1] = 0;
                r = deleted ? gone(c, prefix, names[i]) : written(c, at, names[i], prefix, depth);
        }
        strv_free(names);
        return r;
}

static int plane(struct changes *c, int p, const char *path, const char *prefix) {
        struct stat st;
        if (fstat(UPPER_FD + p, &st) < 0)
                return 0;              /* no plane of its own */
        int merged = p == 0 ? fcntl(HELPER_ROOT_FD, F_DUPFD_CLOEXEC, 3) : openat(HELPER_ROOT_FD, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        struct place at = { .upper = UPPER_FD + p, .base = fstat(HELPER_BASE_FD + p, &st) == 0 ? HELPER_BASE_FD + p : -1, .merged = merged };
        if (merged < 0)
                return -errno;
        c->mount = mount_of(merged, "");
        c->where = path;
        int r = walk(c, &at, prefix, DEPTH_MAX);
        forget_links(c);
        fd_close(merged);
        return r;
}

static int planes(struct changes *c) {
        int r = plane(c, 0, "/", "");
        if (r == 0 && !c->more)
                r = plane(c, 1, "usr", "usr/");
        return r == 0 && !c->more ? plane(c, 2, "opt", "opt/") : r;
}

static int failed(const struct changes *c, int r) {
        fprintf(stderr, "below %s: %s\n", c->where, strerrordesc_np(-r));
        return 1;
}

static int json(struct changes *c) {
        c->w = (struct json_writer)JSON_WRITER(&c->answer);
        json_begin_object(&c->w);
        json_put_key(&c->w, "changes");
        json_begin_array(&c->w);
        int r = planes(c);
        json_end_array(&c->w);
        json_field_bool(&c->w, "more", c->more);
        json_end_object(&c->w);
        int x = json_finish(&c->w);
        if (r == 0)
                r = x < 0 ? x : fs_write_all(1, c->answer.data, c->answer.len);
        buf_release(&c->answer);
        return r < 0 ? failed(c, r) : 0;
}

static int tar(struct changes *c) {
        int r = tar_stream_open(1, false, 0, TAR_MAX, &c->tar);
        if (r == 0)
                r = planes(c);
        if (r == 0)
                r = tar_stream_finish(c->tar);
        tar_stream_free(c->tar);
        return r < 0 ? failed(c, r) : 0;
}

int verb_changes(int argc, char **argv) {
        struct changes c = { .answer = BUF_INIT(ANSWER_MAX), .where = "/" };
        if (argc == 2 && strcmp(argv[1], "tar") == 0)
                return tar(&c);
        if (argc != 4 || strcmp(argv[1], "json") != 0)
                return 1;
        c.offset = strtoull(argv[2], NULL, 10);
        c.left = strtoull(argv[3], NULL, 10);
        return json(&c);
}
