#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "score/apply_tree.h"

/* The directory that holds path (O_PATH) and the last component. -ELOOP: a parent is a link; -ENOTDIR: it is something else. */
static int open_parent(int root, const char *path, const char **ret_name) {
        const char *slash = strrchr(path, '/');
        char parent[PATCH_PATH_MAX + 1];
        size_t n = slash ? (size_t)(slash - path) : 0;
        *ret_name = slash ? slash + 1 : path;
        if (n > PATCH_PATH_MAX)
                return -ENAMETOOLONG;
        memcpy(parent, path, n);
        parent[n] = 0;
        int fd = fs_open_beneath(root, n ? parent : ".", O_PATH | O_DIRECTORY, 0);
        if (fd != -ENOTDIR)
                return fd;
        /* The last component is no directory: a link is told apart from the rest. */
        _cleanup_close_ int at = fs_open_beneath(root, parent, O_PATH, 0);
        struct stat st;
        return at >= 0 && fstat(at, &st) == 0 && S_ISLNK(st.st_mode) ? -ELOOP : -ENOTDIR;
}

static int read_link(int dir, const char *name, struct entry *ret) {
        char target[4096];
        ssize_t n = readlinkat(dir, name, target, sizeof target);
        if (n < 0)
                return -errno;
        ret->data = strndup(target, (size_t)n);
        ret->len = (size_t)n;
        ret->type = ENTRY_LINK;
        return ret->data ? 0 : -ENOMEM;
}

static int read_file(int dir, const char *name, struct entry *ret) {
        _cleanup_close_ int fd = fs_open_beneath(dir, name, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
        _cleanup_buf_ struct buf b = BUF_INIT(PATCH_FILE_BYTES_MAX);
        struct stat st;
        if (fd < 0)
                return fd;
        if (fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode))
                return -EINVAL;
        if (st.st_size > (off_t)PATCH_FILE_BYTES_MAX)
                return -EFBIG;
        int r = fs_read_fd(fd, &b);
        if (r < 0)
                return r;
        size_t len = b.len;
        ret->data = buf_steal(&b);
        if (!ret->data)
                return -ENOMEM;
        ret->len = len;
        ret->type = ENTRY_FILE;
        ret->exec = st.st_mode & 0100;
        return 0;
}

int tree_read(int root, const char *path, struct entry *ret) {
        const char *name;
        struct stat st;
        *ret = (struct entry){ 0 };
        _cleanup_close_ int dir = open_parent(root, path, &name);
        if (dir == -ENOENT)
                return 0;
        if (dir == -ELOOP || dir == -ENOTDIR) {
                ret->type = dir == -ELOOP ? ENTRY_BEHIND_LINK : ENTRY_BEHIND_FILE;
                return 0;
        }
        if (dir < 0)
                return dir;
        if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? 0 : -errno;
        if (S_ISREG(st.st_mode))
                return read_file(dir, name, ret);
        if (S_ISLNK(st.st_mode))
                return read_link(dir, name, ret);
        ret->type = S_ISDIR(st.st_mode) ? ENTRY_DIR : ENTRY_OTHER;
        return 0;
}

int tree_source_read(void *user, const char *path, struct entry *ret) {
        return tree_read(*(int *)user, path, ret);
}

/* Adds one component to a path; ".." takes one away. False: out of the tree, or too long. */
static bool add_component(char *path, size_t *len, const char *p, size_t n) {
        if (n == 0 || (n == 1 && *p == '.'))
                return true;
        if (n == 2 && memcmp(p, "..", 2) == 0) {
                if (*len == 0)
                        return false;
                while (*len > 0 && path[--*len] != '/')
                        ;
                path[*len] = 0;
                return true;
        }
        if (*len + n + 1 > PATCH_PATH_MAX)
                return false;
        if (*len > 0)
                path[(*len)++] = '/';
        memcpy(path + *len, p, n);
        path[*len += n] = 0;
        return true;
}

bool tree_resolve(int root, const char *path, char ret[static PATCH_PATH_MAX + 1]) {
        char rest[2 * PATCH_PATH_MAX + 2], next[2 * PATCH_PATH_MAX + 2];
        size_t len = 0;
        unsigned links = 0;
        snprintf(rest, sizeof rest, "%s", path);
        ret[0] = 0;
        for (char *p = rest; *(p += strspn(p, "/"));) {
                CLEANUP(entry_release) struct entry en = { 0 };
                size_t n = strcspn(p, "/"), before = len;
                if (!add_component(ret, &len, p, n) || (len > 0 && tree_read(root, ret, &en) < 0))
                        return false;
                p += n;
                if (en.type != ENTRY_LINK)
                        continue;
                if (++links > TREE_LINKS_MAX || en.len == 0 || en.data[0] == '/' || snprintf(next, sizeof next, "%s/%s", en.data, p) >= (int)sizeof next)
                        return false;
                ret[len = before] = 0;
                memcpy(rest, next, sizeof rest);
                p = rest;
        }
        return links > 0 && len > 0;
}

/* ---- writing -------------------------------------------------------------------------------------------------------- */

static int make_parents(int root, const char *path) {
        char part[PATCH_PATH_MAX + 1];
        for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
                const char *name;
                size_t n = (size_t)(slash - path);
                if (n > PATCH_PATH_MAX)
                        return -ENAMETOOLONG;
                memcpy(part, path, n);
                part[n] = 0;
                _cleanup_close_ int dir = open_parent(root, part, &name);
                if (dir < 0)
                        return dir;
                if (mkdirat(dir, name, 0755) == 0) {
                        struct stat st;
                        if (fstat(dir, &st) == 0 && (st.st_uid != 0 || st.st_gid != 0))
                                (void)!fchownat(dir, name, st.st_uid, st.st_gid, AT_SYMLINK_NOFOLLOW);
                } else if (errno != EEXIST)
                        return -errno;
        }
        return 0;
}

/* Owner of what is made: that of what it replaces, else of its directory. */
static void owner_for(int dir, const char *name, struct stat *ret) {
        if (fstatat(dir, name, ret, AT_SYMLINK_NOFOLLOW) < 0 && fstat(dir, ret) < 0)
                *ret = (struct stat){ 0 };
}

static int clear_place(int dir, const char *name) {
        if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
                return 0;
        if (errno != EISDIR)
                return -errno;
        if (unlinkat(dir, name, AT_REMOVEDIR) == 0)
                return 0;
        return errno == ENOTEMPTY || errno == EEXIST ? -EBADMSG : -errno;
}

static int write_file(int dir, const char *name, const struct entry *en, const struct stat *owner) {
        _cleanup_close_ int fd = fs_open_beneath(dir, name, O_WRONLY | O_CREAT | O_EXCL, 0600);
        if (fd < 0)
                return fd;
        int r = fs_write_all(fd, en->data, en->len);
        if (r == 0 && (owner->st_uid != geteuid() || owner->st_gid != getegid()) && fchown(fd, owner->st_uid, owner->st_gid) < 0 && errno != EPERM)
                r = -errno;
        if (r == 0 && fchmod(fd, en->exec ? 0755 : 0644) < 0)
                r = -errno;
        return r;
}

static int write_item(int root, const struct plan_item *it) {
        const char *name;
        struct stat owner;
        int r = make_parents(root, it->path);
        if (r < 0)
                return r;
        _cleanup_close_ int dir = open_parent(root, it->path, &name);
        if (dir < 0)
                return dir;
        owner_for(dir, name, &owner);
        r = clear_place(dir, name);
        if (r < 0)
                return r;
        if (it->now.type == ENTRY_FILE)
                return write_file(dir, name, &it->now, &owner);
        return symlinkat(it->now.data, dir, name) < 0 ? -errno : 0;
}

static void remove_empty_parents(int root, const char *path) {
        char part[PATCH_PATH_MAX + 1];
        const char *name;
        snprintf(part, sizeof part, "%s", path);
        for (char *slash = strrchr(part, '/'); slash; slash = strrchr(part, '/')) {
                *slash = 0;
                _cleanup_close_ int dir = open_parent(root, part, &name);
                if (dir < 0 || unlinkat(dir, name, AT_REMOVEDIR) < 0)
                        return;
        }
}

static int remove_item(int root, const char *path) {
        const char *name;
        _cleanup_close_ int dir = open_parent(root, path, &name);
        if (dir == -ENOENT || dir == -ENOTDIR)
                return 0;
        if (dir < 0)
                return dir;
        if (unlinkat(dir, name, 0) < 0)
                return errno == ENOENT ? 0 : -errno;
        remove_empty_parents(root, path);
        return 0;
}

int tree_write(int root, const struct patch_plan *plan, struct error *e) {
        for (size_t i = plan->n; i-- > 0;) {
                const struct plan_item *it = &plan->items[i];
                int r = it->now.type == ENTRY_ABSENT ? remove_item(root, it->path) : 0;
                if (r < 0)
                        return error_set(e, r, "remove %s", it->path);
        }
        for (size_t i = 0; i < plan->n; i++) {
                const struct plan_item *it = &plan->items[i];
                int r = it->now.type != ENTRY_ABSENT ? write_item(root, it) : 0;
                if (r == -EBADMSG)
                        return error_say(e, r, "%s: a directory with contents is in the way", it->path);
                if (r < 0)
                        return error_set(e, r, "write %s", it->path);
        }
        return 0;
}

/* ---- back to base ---------------------------------------------------------------------------------------------------- */

static int remove_all(int dir, const char *name, int depth) {
        if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
                return 0;
        if (errno != EISDIR)
                return -errno;
        if (depth >= TREE_REMOVE_DEPTH_MAX)
                return -ELOOP;
        int fd = fs_open_beneath(dir, name, O_RDONLY | O_DIRECTORY, 0);
        if (fd < 0)
                return fd;
        DIR *d = fdopendir(fd);
        if (!d) {
                int r = -errno;
                close(fd);
                return r;
        }
        int r = 0;
        for (struct dirent *de; r == 0 && (de = readdir(d));)
                if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
                        r = remove_all(fd, de->d_name, depth + 1);
        closedir(d);
        return r == 0 && unlinkat(dir, name, AT_REMOVEDIR) < 0 ? -errno : r;
}

int tree_stat(int root, const char *path, struct stat *ret) {
        const char *name;
        *ret = (struct stat){ 0 };
        _cleanup_close_ int dir = open_parent(root, path, &name);
        if (dir == -ENOENT || dir == -ENOTDIR || dir == -ELOOP)
                return 0;
        if (dir < 0)
                return dir;
        return fstatat(dir, name, ret, AT_SYMLINK_NOFOLLOW) < 0 && errno != ENOENT ? -errno : 0;
}

static int same_bytes(int a, int b) {
        char x[32768], y[32768];
        for (;;) {
                ssize_t n = read(a, x, sizeof x);
                if (n < 0)
                        return -errno;
                for (ssize_t have = 0; have < n;) {
                        ssize_t m = read(b, y + have, (size_t)(n - have));
                        if (m < 0)
                                return -errno;
                        if (m == 0)
                                return 0;
                        have += m;
                }
                if (n == 0)
                        return read(b, y, 1) == 0;
                if (memcmp(x, y, (size_t)n) != 0)
                        return 0;
        }
}

/* 1 = equal, 0 = not. */
static int same_entry(int root, int base, const char *path, const struct stat *a, const struct stat *b) {
        if ((a->st_mode & S_IFMT) != (b->st_mode & S_IFMT))
                return 0;
        if (S_ISLNK(a->st_mode)) {
                CLEANUP(entry_release) struct entry x = { 0 }, y = { 0 };
                int r = tree_read(root, path, &x);
                if (r == 0)
                        r = tree_read(base, path, &y);
                return r < 0 ? r : x.len == y.len && memcmp(x.data, y.data, x.len) == 0;
        }
        if (!S_ISREG(a->st_mode))
                return 1;       /* a directory is a directory; nothing makes another FIFO out of a FIFO */
        if (a->st_size != b->st_size || ((a->st_mode ^ b->st_mode) & 07777))
                return 0;
        _cleanup_close_ int x = fs_open_beneath(root, path, O_RDONLY | O_NONBLOCK, 0), y = fs_open_beneath(base, path, O_RDONLY | O_NONBLOCK, 0);
        return x < 0 ? x : y < 0 ? y : same_bytes(x, y);
}

/* Makes every parent of path what it is at base, as far as the path needs it. 1: nothing of path can exist (as at base). */
static int reset_parents(int root, int base, const char *path, bool wanted, bool *changed) {
        char part[PATCH_PATH_MAX + 1];
        for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
                const char *name;
                struct stat live, was;
                size_t n = (size_t)(slash - path);
                if (n > PATCH_PATH_MAX)
                        return -ENAMETOOLONG;
                memcpy(part, path, n);
                part[n] = 0;
                _cleanup_close_ int dir = open_parent(root, part, &name);
                int r = dir < 0 ? dir : tree_stat(base, part, &was);
                if (r < 0)
                        return r;
                if (fstatat(dir, name, &live, AT_SYMLINK_NOFOLLOW) < 0)
                        live.st_mode = 0;
                if (S_ISDIR(live.st_mode))
                        continue;
                if (live.st_mode && (r = same_entry(root, base, part, &live, &was)) != 0)
                        return r;      /* 1: at base, too, a link or a file is here */
                if (live.st_mode) {
                        *changed = true;
                        if ((r = remove_all(dir, name, 0)) < 0)
                                return r;
                }
                if (!wanted)
                        return 1;
                if (mkdirat(dir, name, 0700) < 0 || fchownat(dir, name, was.st_uid, was.st_gid, AT_SYMLINK_NOFOLLOW) < 0 || fchmodat(dir, name, was.st_mode & 07777, 0) < 0)
                        return -errno;
        }
        return 0;
}

static int copy_file(int dir, const char *name, int base, const char *path, const struct stat *was) {
        char chunk[32768];
        _cleanup_close_ int from = fs_open_beneath(base, path, O_RDONLY | O_NONBLOCK, 0);
        if (from < 0)
                return from;
        _cleanup_close_ int to = fs_open_beneath(dir, name, O_WRONLY | O_CREAT | O_EXCL, 0600);
        if (to < 0)
                return to;
        for (ssize_t n; (n = read(from, chunk, sizeof chunk)) != 0;) {
                int r = n < 0 ? -errno : fs_write_all(to, chunk, (size_t)n);
                if (r < 0)
                        return r;
        }
        struct timespec times[2] = { was->st_atim, was->st_mtim };
        if (fchown(to, was->st_uid, was->st_gid) < 0 || fchmod(to, was->st_mode & 07777) < 0 || futimens(to, times) < 0)
                return -errno;
        return 0;
}

static int recreate(int dir, const char *name, int base, const char *path, const struct stat *was) {
        CLEANUP(entry_release) struct entry link = { 0 };
        if (S_ISREG(was->st_mode))
                return copy_file(dir, name, base, path, was);
        if (S_ISDIR(was->st_mode))
                return mkdirat(dir, name, was->st_mode & 07777) < 0 ? -errno : 0;
        if (!S_ISLNK(was->st_mode))
                return -EINVAL;
        int r = tree_read(base, path, &link);
        return r < 0 ? r : symlinkat(link.data, dir, name) < 0 ? -errno : 0;
}

int tree_reset(int root, int base, const char *path, bool *ret_changed, struct error *e) {
        struct stat live, was;
        bool changed = false;
        const char *name;
        int r = tree_stat(base, path, &was);
        if (r == 0)
                r = reset_parents(root, base, path, was.st_mode != 0, &changed);
        if (r != 0) {
                if (r < 0)
                        return error_set(e, r, "reset %s", path);
                *ret_changed = changed;
                return 0;
        }
        _cleanup_close_ int dir = open_parent(root, path, &name);
        if (dir < 0)
                return error_set(e, dir, "reset %s", path);
        r = tree_stat(root, path, &live);
        if (r == 0)
                r = was.st_mode || live.st_mode ? same_entry(root, base, path, &live, &was) : 1;
        if (r == 0) {
                changed = true;
                r = remove_all(dir, name, 0);
                if (r == 0 && was.st_mode)
                        r = recreate(dir, name, base, path, &was);
        }
        if (r < 0)
                return error_set(e, r, "reset %s", path);
        *ret_changed = changed;
        return 0;
}
