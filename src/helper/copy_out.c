/* copy-out: what COPY and ADD of a Dockerfile take, as a tar archive at COPY_OUT_FD whose names are relative to the destination.
 *
 *     copy-out [top=DIR] [ignore] [root] [mode=OCTAL] [leaf=NAME] [archive] [bytes=N] [entries=N] -- SOURCE...
 *
 * Sources lie below `top` (default the root), whatever links and ".." they hold: nothing outside can be named. The last component of a
 * source is followed, links found within a directory are links. A directory's contents are copied, a file goes under its own name, or
 * under `leaf`. `root`: everything belongs to root. `ignore`: by the .dockerignore at top. `archive`: a single file that is a tar archive
 * is given as it is. What lies on other file systems than the image (/proc, /dev), sockets and devices are left out.
 *
 * Says on standard output "tree|file|archive HASH ENTRIES BYTES"; `file`: one source, and it was a file. The hash is over names, kinds, modes, owners and contents, not times. Status
 * 0; 1 with a reason on standard error: the sources' fault; 3: ours. */
#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define OPENSSL_SUPPRESS_DEPRECATED    /* the new interface brings half of OpenSSL into a static program */
#include <openssl/sha.h>

#include "archive/tar_write.h"
#include "base/fs.h"
#include "base/strv.h"
#include "build/glob.h"
#include "helper/verbs.h"

#define COPY_OUT_FD HELPER_FIRST_FREE_FD
#define COPY_DEPTH_MAX 256
#define COPY_PATH_MAX 4095u
#define COPY_ENTRIES_DEFAULT (1ull << 20)
#define COPY_BYTES_DEFAULT (16ull << 30)
#define COPY_NAMES_MAX (1u << 20)              /* of one directory */
#define COPY_SPACE (256u << 10)

struct copy {
        int top;
        struct ignore *ignore;
        bool root_owned, archive, set_mode;
        uint32_t mode;
        const char *leaf;
        uint64_t bytes_max, entries_max, bytes, entries;
        uint64_t mounts[4]; unsigned n_mounts;
        SHA256_CTX hash;
        struct buf out;
        char name[COPY_PATH_MAX + 1];          /* in the archive */
        char path[COPY_PATH_MAX + 1];          /* below top, without links */
        unsigned n_sources;
        bool is_archive, is_tree;
        char *why;                             /* their fault */
};

static int theirs(struct copy *c, const char *fmt, const char *what) {
        char shown[200];
        size_t i = 0;
        for (; what[i] && i < sizeof shown - 1; i++)
                shown[i] = (unsigned char)what[i] < ' ' || what[i] == 0x7f ? '?' : what[i];
        shown[i] = 0;
        if (!c->why && asprintf(&c->why, fmt, shown) < 0)
                c->why = NULL;
        return -EBADMSG;
}

static int in_root(int root, const char *path, uint64_t flags) {
        struct open_how how = { .flags = flags | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
        for (;;) {
                long fd = syscall(SYS_openat2, root, *path ? path : ".", &how, sizeof how);
                if (fd >= 0 || (errno != EINTR && errno != EAGAIN))
                        return fd >= 0 ? (int)fd : -errno;
        }
}

/* ---- the archive ---- */

static int put(struct copy *c, const void *p, size_t n) { return fs_write_all(COPY_OUT_FD, p, n); }

static void hash_text(struct copy *c, const char *s) { SHA256_Update(&c->hash, s, strlen(s) + 1); }

static void hash_item(struct copy *c, const struct tar_item *it) {
        char text[128];
        hash_text(c, it->path);
        hash_text(c, it->link ? it->link : "");
        snprintf(text, sizeof text, "%c %o %u %u %llu", it->kind, it->mode, it->uid, it->gid, (unsigned long long)it->size);
        hash_text(c, text);
}

static int put_header(struct copy *c, const struct tar_item *it) {
        if (++c->entries > c->entries_max)
                return theirs(c, "more files than are allowed, at %s", it->path);
        hash_item(c, it);
        buf_reset(&c->out);
        int r = tar_write_header(&c->out, it);
        return r ? r : put(c, c->out.data, c->out.len);
}

/* Exactly `size` bytes: a file that shrinks meanwhile is filled up, one that grows is cut. */
static int put_contents(struct copy *c, int fd, uint64_t size, bool pad) {
        static char space[COPY_SPACE], zeros[TAR_WRITE_BLOCK];
        uint64_t left = size;
        while (left > 0) {
                ssize_t n = read(fd, space, (size_t)MIN2(left, (uint64_t)sizeof space));
                if (n < 0)
                        return -errno;
                if (n == 0) {
                        n = (ssize_t)MIN2(left, (uint64_t)sizeof space);
                        memset(space, 0, (size_t)n);
                }
                SHA256_Update(&c->hash, space, (size_t)n);
                int r = put(c, space, (size_t)n);
                if (r < 0)
                        return r;
                left -= (uint64_t)n;
        }
        return pad ? put(c, zeros, tar_write_padding(size)) : 0;
}

static void item_of(const struct copy *c, const struct stat *st, struct tar_item *it) {
        *it = (struct tar_item){ .path = c->name, .mode = st->st_mode & 07777, .uid = c->root_owned ? 0 : st->st_uid, .gid = c->root_owned ? 0 : st->st_gid,
                                 .mtime = st->st_mtim.tv_sec };
        if (c->set_mode)
                it->mode = c->mode;
}

static int copy_file(struct copy *c, int dir, const char *name, const struct stat *st) {
        struct tar_item it;
        _cleanup_close_ int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (fd < 0)
                return -errno;
        uint64_t size = (uint64_t)st->st_size;
        if (size > c->bytes_max - c->bytes)
                return theirs(c, "more bytes than are allowed, at %s", c->path);
        c->bytes += size;
        item_of(c, st, &it);
        it.kind = TAR_WRITE_FILE;
        it.size = size;
        int r = put_header(c, &it);
        return r ? r : put_contents(c, fd, size, true);
}

static int copy_link(struct copy *c, int dir, const char *name, const struct stat *st) {
        char target[COPY_PATH_MAX + 1];
        struct tar_item it;
        ssize_t n = readlinkat(dir, name, target, sizeof target - 1);
        if (n < 0)
                return -errno;
        target[n] = 0;
        item_of(c, st, &it);
        it.mode = 0777;
        it.kind = TAR_WRITE_SYMLINK;
        it.link = target;
        return put_header(c, &it);
}

/* ---- directories ---- */

/* Mounts, not devices: a file of an overlay has the device of its layer. */
static uint64_t mount_of(int dir, const char *name) {
        struct statx sx;
        if (statx(dir, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | (*name ? 0 : AT_EMPTY_PATH), STATX_MNT_ID, &sx) < 0 || !(sx.stx_mask & STATX_MNT_ID))
                return 0;
        return sx.stx_mnt_id;
}

/* Is it of the image, and not something that the sandbox has mounted? */
static bool of_the_image(const struct copy *c, int dir, const char *name) {
        uint64_t m = mount_of(dir, name);
        for (unsigned i = 0; i < c->n_mounts; i++)
                if (m && c->mounts[i] == m)
                        return true;
        return false;
}

static int list(int dir, char ***ret) {
        int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *d = fd < 0 ? NULL : fdopendir(fd);
        size_t n = 0;
        int r = 0;
        if (!d) {
                r = -errno;
                fd_close(fd);
                return r;
        }
        r = strv_ensure(ret);
        for (const struct dirent *de; r == 0 && (de = readdir(d));)
                if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
                        r = n >= COPY_NAMES_MAX ? -E2BIG : strv_append_take(ret, &n, strdup(de->d_name));
        closedir(d);
        if (r == 0)
                strv_sort(*ret);
        return r;
}

/* Appends a component; the old length for back(). */
static int append(char *s, const char *name, size_t *ret_old) {
        size_t n = strlen(s);
        *ret_old = n;
        int put_n = snprintf(s + n, COPY_PATH_MAX + 1 - n, "%s%s", n ? "/" : "", name);
        if (put_n < 0 || (size_t)put_n >= COPY_PATH_MAX + 1 - n) {
                s[n] = 0;
                return -ENAMETOOLONG;
        }
        return 0;
}

static int copy_contents(struct copy *c, int dir, unsigned depth);

static int copy_entry(struct copy *c, int dir, const char *name, unsigned depth) {
        struct stat st;
        struct tar_item it;
        if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? 0 : -errno;
        bool ignored = c->ignore && ignore_matches(c->ignore, c->path);
        if (!of_the_image(c, dir, name))
                return 0;
        if (S_ISREG(st.st_mode))
                return ignored ? 0 : copy_file(c, dir, name, &st);
        if (S_ISLNK(st.st_mode))
                return ignored ? 0 : copy_link(c, dir, name, &st);
        if (!S_ISDIR(st.st_mode))
                return 0;
        if (ignored && !ignore_takes_back(c->ignore))
                return 0;
        _cleanup_close_ int below = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (below < 0)
                return -errno;
        if (!ignored) {
                item_of(c, &st, &it);
                it.kind = TAR_WRITE_DIR;
                int r = put_header(c, &it);
                if (r < 0)
                        return r;
        }
        return copy_contents(c, below, depth + 1);
}

static int copy_contents(struct copy *c, int dir, unsigned depth) {
        _cleanup_strv_ char **names = NULL;
        if (depth > COPY_DEPTH_MAX)
                return theirs(c, "directories nest too deep, at %s", c->path);
        int r = list(dir, &names);
        if (r == -E2BIG)
                return theirs(c, "more files than are allowed, in %s", c->path);
        for (char **n = names; r == 0 && *n; n++) {
                size_t name_was, path_was;
                r = append(c->name, *n, &name_was);
                r = r ? r : append(c->path, *n, &path_was);
                if (r < 0)
                        return theirs(c, "too long a path, in %s", c->path);
                r = copy_entry(c, dir, *n, depth);
                c->name[name_was] = 0;
                c->path[path_was] = 0;
        }
        return r;
}

/* ---- sources ---- */

static bool looks_like_archive(int fd) {
        unsigned char head[TAR_WRITE_BLOCK] = { 0 };
        ssize_t n = pread(fd, head, sizeof head, 0);
        if (n < 6)
                return false;
        return memcmp(head, "\x1f\x8b", 2) == 0 || memcmp(head, "\xfd" "7zXZ", 6) == 0 || memcmp(head, "\x28\xb5\x2f\xfd", 4) == 0 || memcmp(head + 257, "ustar", 5) == 0;
}

/* As a name says it: a compressed file that is no tar is an ordinary file. */
static bool named_archive(const char *name, int fd) {
        static const char *const ends[] = { ".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.zst", ".tzst" };
        size_t n = strlen(name);
        for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
                if (n > strlen(ends[i]) && strcmp(name + n - strlen(ends[i]), ends[i]) == 0)
                        return looks_like_archive(fd);
        return false;
}

static int give_archive(struct copy *c, int fd, const struct stat *st) {
        if ((uint64_t)st->st_size > c->bytes_max)
                return theirs(c, "more bytes than are allowed, at %s", c->path);
        if (c->n_sources > 1)
                return theirs(c, "an archive among several sources: %s; give it an ADD of its own", c->path);
        c->is_archive = true;
        c->entries = 1;
        c->bytes = (uint64_t)st->st_size;
        return put_contents(c, fd, (uint64_t)st->st_size, false);
}

/* The path of `source` below top without links, into c->path: for .dockerignore, which knows none. Links and ".." do not leave the top. (Not
 * by /proc: what is mounted there shows another PID namespace than ours.) */
static int resolve(struct copy *c, const char *source) {
        char todo[2 * COPY_PATH_MAX + 2], target[COPY_PATH_MAX + 1], rest[sizeof todo];
        unsigned links = 0;
        c->path[0] = 0;
        if (snprintf(todo, sizeof todo, "%s", source) > (int)COPY_PATH_MAX)
                return -ENAMETOOLONG;
        while (todo[0]) {
                char part[256];
                size_t n = strcspn(todo, "/"), skip = n + (todo[n] == '/'), old;
                if (n >= sizeof part)
                        return -ENAMETOOLONG;
                memcpy(part, todo, n);
                part[n] = 0;
                memmove(todo, todo + skip, strlen(todo + skip) + 1);
                if (n == 0 || strcmp(part, ".") == 0)
                        continue;
                if (strcmp(part, "..") == 0) {
                        char *slash = strrchr(c->path, '/');
                        *(slash ? slash : c->path) = 0;
                        continue;
                }
                _cleanup_close_ int dir = fs_open_beneath(c->top, c->path[0] ? c->path : ".", O_PATH | O_DIRECTORY, 0);
                ssize_t len = dir < 0 ? -1 : readlinkat(dir, part, target, sizeof target - 1);
                if (dir < 0)
                        return dir;
                if (len < 0 && errno != EINVAL)
                        return -errno;
                if (len < 0) {                   /* no link */
                        int r = append(c->path, part, &old);
                        if (r < 0)
                                return r;
                        continue;
                }
                target[len] = 0;
                if (++links > 40)
                        return -ELOOP;
                if (target[0] == '/')
                        c->path[0] = 0;
                memcpy(rest, todo, strlen(todo) + 1);
                if (snprintf(todo, sizeof todo, "%s/%s", target, rest) >= (int)sizeof todo)
                        return -ENAMETOOLONG;
        }
        return 0;
}

static int copy_source(struct copy *c, const char *source) {
        struct stat st;
        int r = resolve(c, source);
        _cleanup_close_ int fd = r < 0 ? r : fs_open_beneath(c->top, c->path[0] ? c->path : ".", O_PATH, 0);
        if (fd < 0)
                return theirs(c, fd == -ELOOP ? "%s: too many links" : "%s: no such file or directory", source);
        if (fstat(fd, &st) < 0)
                return -errno;
        const char *base = strrchr(source, '/');
        base = base ? base + 1 : source;
        if (!of_the_image(c, fd, ""))
                return theirs(c, "%s: not a file of the image", source);
        if (c->path[0] && c->ignore && ignore_matches(c->ignore, c->path) && !(S_ISDIR(st.st_mode) && ignore_takes_back(c->ignore)))
                return theirs(c, "%s: left out by .dockerignore", source);
        c->name[0] = 0;
        if (S_ISDIR(st.st_mode)) {
                _cleanup_close_ int dir = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                c->is_tree = true;
                return dir < 0 ? -errno : copy_contents(c, dir, 0);
        }
        if (!S_ISREG(st.st_mode))
                return theirs(c, "%s: neither a file nor a directory", source);
        snprintf(c->name, sizeof c->name, "%s", c->leaf ? c->leaf : base);
        _cleanup_close_ int file = fs_open_beneath(c->top, c->path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
        if (file < 0)
                return file;
        if (c->archive && named_archive(base, file))
                return give_archive(c, file, &st);
        if ((uint64_t)st.st_size > c->bytes_max - c->bytes)
                return theirs(c, "more bytes than are allowed, at %s", source);
        c->bytes += (uint64_t)st.st_size;
        struct tar_item it;
        item_of(c, &st, &it);
        it.kind = TAR_WRITE_FILE;
        it.size = (uint64_t)st.st_size;
        r = put_header(c, &it);
        return r ? r : put_contents(c, file, it.size, true);
}

/* Patterns are matched level by level; `found` counts. */
static int each_match(struct copy *c, const char *done, const char *pattern, unsigned depth, size_t *found) {
        char part[256], next[COPY_PATH_MAX + 1];
        size_t n = strcspn(pattern, "/");
        const char *rest = pattern + n + (pattern[n] == '/');
        _cleanup_strv_ char **names = NULL;
        struct glob *g = NULL;
        if (n == 0)
                return *rest ? each_match(c, done, rest, depth, found) : 0;
        if (n >= sizeof part || depth > COPY_DEPTH_MAX)
                return theirs(c, "%s: too long a pattern", pattern);
        memcpy(part, pattern, n);
        part[n] = 0;
        _cleanup_close_ int dir = in_root(c->top, done, O_RDONLY | O_DIRECTORY);
        if (dir < 0)
                return 0;
        int r = glob_new(part, &g);
        if (r < 0)
                return theirs(c, "%s: not a pattern", part);
        r = list(dir, &names);
        for (char **m = names; r == 0 && *m; m++) {
                if (!glob_matches(g, *m, false))
                        continue;
                if (snprintf(next, sizeof next, "%s%s%s", done, *done ? "/" : "", *m) >= (int)sizeof next)
                        continue;
                if (*rest)
                        r = each_match(c, next, rest, depth + 1, found);
                else if (!c->ignore || !ignore_matches(c->ignore, next)) {
                        ++*found;
                        c->n_sources++;
                        r = copy_source(c, next);
                }
        }
        glob_free(g);
        return r;
}

static int copy_all(struct copy *c, char **sources) {
        int r = 0;
        for (; r == 0 && *sources; sources++) {
                size_t found = 0;
                if (glob_is_plain(*sources)) {
                        c->n_sources++;
                        r = copy_source(c, *sources);
                        continue;
                }
                r = each_match(c, "", *sources, 0, &found);
                if (r == 0 && found == 0)
                        r = theirs(c, "%s: nothing matches", *sources);
        }
        return r;
}

/* ---- the verb ---- */

static int take_options(struct copy *c, char **argv, const char **top) {
        char **a = argv + 1;
        for (; *a && strcmp(*a, "--") != 0; a++) {
                if (strncmp(*a, "top=", 4) == 0)
                        *top = *a + 4;
                else if (strncmp(*a, "leaf=", 5) == 0)
                        c->leaf = *a + 5;
                else if (strncmp(*a, "mode=", 5) == 0) {
                        c->mode = (uint32_t)strtoul(*a + 5, NULL, 8) & 07777;
                        c->set_mode = true;
                } else if (strncmp(*a, "bytes=", 6) == 0)
                        c->bytes_max = strtoull(*a + 6, NULL, 10);
                else if (strncmp(*a, "entries=", 8) == 0)
                        c->entries_max = strtoull(*a + 8, NULL, 10);
                else if (strcmp(*a, "root") == 0)
                        c->root_owned = true;
                else if (strcmp(*a, "archive") == 0)
                        c->archive = true;
                else if (strcmp(*a, "ignore") != 0)
                        return -EINVAL;
        }
        return *a && a[1] ? (int)(a + 1 - argv) : -EINVAL;
}

static int load_ignore(struct copy *c) {
        _cleanup_buf_ struct buf b = BUF_INIT(IGNORE_BYTES_MAX + 1);
        struct error e;
        struct stat st;
        _cleanup_close_ int fd = in_root(c->top, ".dockerignore", O_RDONLY | O_NONBLOCK | O_NOCTTY);
        if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
                return 0;
        int r = fs_read_fd(fd, &b);
        r = r == -EFBIG ? theirs(c, "%s: too large", ".dockerignore") : r ? r : ignore_parse(buf_str(&b), b.len, &c->ignore, &e);
        return r == -EINVAL || r == -E2BIG ? theirs(c, "%s", e.text) : r;
}

static void know_mounts(struct copy *c) {
        static const char *const planes[] = { ".", "usr", "opt" };
        struct stat st;
        for (size_t i = 0; i < ARRAY_SIZE(planes); i++)
                if (fstatat(HELPER_ROOT_FD, planes[i], &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
                        c->mounts[c->n_mounts++] = mount_of(HELPER_ROOT_FD, planes[i]);
        c->mounts[c->n_mounts++] = mount_of(c->top, "");
}

int verb_copy_out(int argc, char **argv) {
        static const char end[TAR_WRITE_END];
        struct copy *c = calloc(1, sizeof *c);
        const char *top = "";
        unsigned char digest[SHA256_DIGEST_LENGTH];
        char hex[2 * SHA256_DIGEST_LENGTH + 1];
        bool ignore = false;
        if (!c)
                return 3;
        *c = (struct copy){ .bytes_max = COPY_BYTES_DEFAULT, .entries_max = COPY_ENTRIES_DEFAULT, .out = BUF_INIT(TAR_WRITE_HEADER_MAX) };
        SHA256_Init(&c->hash);
        int first = take_options(c, argv, &top);
        if (first < 0)
                return 64;
        for (int i = 1; i < first; i++)
                ignore |= strcmp(argv[i], "ignore") == 0;
        c->top = in_root(HELPER_ROOT_FD, top, O_RDONLY | O_DIRECTORY);
        int r = c->top < 0 ? c->top : 0;
        if (r == 0)
                know_mounts(c);
        if (r == 0 && ignore)
                r = load_ignore(c);
        r = r ? r : copy_all(c, argv + first);
        if (r == 0 && !c->is_archive)
                r = put(c, end, sizeof end);
        if (r < 0) {
                fprintf(stderr, "%s\n", c->why ? c->why : strerror(-r));
                return c->why ? 1 : 3;
        }
        SHA256_Final(digest, &c->hash);
        for (size_t i = 0; i < sizeof digest; i++)
                snprintf(hex + 2 * i, 3, "%02x", digest[i]);
        printf("%s %s %llu %llu\n", c->is_archive ? "archive" : c->is_tree || c->n_sources > 1 ? "tree" : "file", hex, (unsigned long long)c->entries, (unsigned long long)c->bytes);
        return fflush(stdout) == 0 ? 0 : 3;
}
