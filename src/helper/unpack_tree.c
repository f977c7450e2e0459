/* Entries become files. Nothing here trusts a name, follows a link at the end of one, or writes where the sandbox has mounted something
 * of its own (/proc, /dev, /sys): entries there are skipped and counted. */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/fs.h"
#include "helper/unpack.h"
#include "helper/verbs.h"

#define COPY_SIZE (256u << 10)
#define OPAQUE_DEPTH_MAX 200           /* of what an archive has written below a directory that it then makes opaque */
#define WHITEOUT ".wh."
#define WHITEOUT_OPAQUE ".wh..wh..opq"
#define WHITEOUT_META ".wh..wh."       /* of aufs's own: hard links' store and the like */

static int theirs(struct error *e, const struct tar_entry *en, const char *why) {
        return error_say(e, -EBADMSG, "entry '%s': %s", unpack_show(en->path), why);
}

static int ours(struct error *e, const struct tar_entry *en, int r, const char *what) {
        switch (r) {
        case -EXDEV: return theirs(e, en, "a link leads out of the image");
        case -ELOOP: return theirs(e, en, "too many links");
        case -ENOTDIR: return theirs(e, en, "something on its way is no directory");
        case -EOVERFLOW: return theirs(e, en, "what is below it is too deep");
        case -ENAMETOOLONG: return theirs(e, en, "its name is too long");
        case -EBUSY: return theirs(e, en, "the sandbox has something mounted there");
        default: return error_set(e, r, "entry '%s': %s", unpack_show(en->path), what);
        }
}

/* ---- the directory an entry goes to ---- */

/* Below the root of an image a link to "/x" leads where it will lead in the sandbox; below another directory it leads out of that. */
static unsigned open_how_of(const struct unpack_tree *u) { return u->o->target[0] ? 0 : UNPACK_ABSOLUTE; }

/* Of directories: what a file says of its device means nothing in an overlay. */
static bool foreign(const struct unpack_tree *u, const struct stat *st) {
        if (!S_ISDIR(st->st_mode))
                return false;
        for (unsigned i = 0; i < u->n_devices; i++)
                if (u->device[i] == st->st_dev)
                        return false;
        return true;
}

static void leave_parent(struct unpack_tree *u) {
        if (u->parent_fd >= 0 && !u->parent_foreign) {
                const struct timespec t[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = u->parent_time.s, .tv_nsec = u->parent_time.ns } };
                (void)futimens(u->parent_fd, t);
        }
        u->parent_fd = fd_close(u->parent_fd);
}

/* Is what is there of the path in a mount of the sandbox's? */
static bool below_foreign(const struct unpack_tree *u, const char *path) {
        char above[TAR_NAME_MAX + 1], *slash;
        snprintf(above, sizeof above, "%s", path);
        while ((slash = strrchr(above, '/'))) {
                struct stat st;
                *slash = 0;
                _cleanup_close_ int fd = unpack_open_dir(u->root, above, open_how_of(u));
                if (fd >= 0)
                        return fstat(fd, &st) == 0 && foreign(u, &st);
        }
        return false;
}

static int enter_parent(struct unpack_tree *u, const char *path, const struct tar_entry *en, struct error *e) {
        struct stat st;
        bool inside = false;
        if (u->parent_fd >= 0 && strcmp(u->parent, path) == 0)
                return 0;
        leave_parent(u);
        int fd = unpack_open_dir(u->root, path, UNPACK_MAKE | open_how_of(u));
        if (fd < 0 && below_foreign(u, path))
                fd = openat(u->root, ".", O_PATH | O_CLOEXEC), inside = true;
        if (fd == -ENOENT || fd == -EACCES || fd == -EPERM)
                return theirs(e, en, "its directory cannot be made");
        if (fd < 0)
                return ours(e, en, fd, "open its directory");
        if (fstat(fd, &st) < 0) {
                close(fd);
                return ours(e, en, -errno, "look at its directory");
        }
        u->parent_fd = fd;
        u->parent_foreign = inside || foreign(u, &st);
        u->parent_time.s = st.st_mtim.tv_sec;
        u->parent_time.ns = (uint32_t)st.st_mtim.tv_nsec;
        snprintf(u->parent, sizeof u->parent, "%s", path);
        return 0;
}

/* ---- whiteouts ---- */

static int remove_unseen(struct unpack_tree *u, int dir, const char *path, unsigned depth);

static int remove_unseen_child(struct unpack_tree *u, int dir, const char *name, const char *path, unsigned depth) {
        struct stat st;
        if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return -errno;
        if (foreign(u, &st)) {
                u->skipped++;
                return 0;
        }
        if (!path_set_has(u->seen, path))
                return helper_remove(dir, name);
        if (!S_ISDIR(st.st_mode))
                return 0;
        int below = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        return below < 0 ? -errno : remove_unseen(u, below, path, depth + 1);
}

/* Everything in the directory (taken over) that this archive has not written. */
static int remove_unseen(struct unpack_tree *u, int dir, const char *path, unsigned depth) {
        char full[2 * TAR_NAME_MAX];
        if (depth > OPAQUE_DEPTH_MAX) {
                close(dir);
                return -EOVERFLOW;
        }
        DIR *d = fdopendir(dir);
        if (!d) {
                int r = -errno;
                close(dir);
                return r;
        }
        int r = 0;
        for (const struct dirent *de; r == 0 && (de = readdir(d));) {
                if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0)
                        continue;
                int n = snprintf(full, sizeof full, "%s%s%s", path, *path ? "/" : "", de->d_name);
                r = n >= TAR_NAME_MAX ? helper_remove(dirfd(d), de->d_name) : remove_unseen_child(u, dirfd(d), de->d_name, full, depth);
        }
        closedir(d);
        return r;
}

static int apply_opaque(struct unpack_tree *u, const struct tar_entry *en, struct error *e) {
        int dir = openat(u->parent_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        int r = dir < 0 ? -errno : remove_unseen(u, dir, u->parent, 0);
        if (r == 0)
                r = path_set_add(u->seen, u->parent);
        return r < 0 ? ours(e, en, r, "hide what was there") : 0;
}

static int apply_whiteout(struct unpack_tree *u, const char *leaf, const struct tar_entry *en, struct error *e) {
        char path[2 * TAR_NAME_MAX];
        const char *name = leaf + strlen(WHITEOUT);
        if (strcmp(leaf, WHITEOUT_OPAQUE) == 0)
                return apply_opaque(u, en, e);
        if (strncmp(leaf, WHITEOUT_META, strlen(WHITEOUT_META)) == 0)
                return 0;
        if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
                return theirs(e, en, "a whiteout without a name");
        snprintf(path, sizeof path, "%s%s%s", u->parent, u->parent[0] ? "/" : "", name);
        int r = remove_unseen_child(u, u->parent_fd, name, path, 0);
        return r < 0 && r != -ENOENT ? ours(e, en, r, "remove what was there") : 0;
}

/* ---- attributes ---- */

static uint32_t known_id(uint64_t id) { return id < UNPACK_OVERFLOW_ID + 2u ? (uint32_t)id : UNPACK_OVERFLOW_ID; }

static int set_xattrs(int fd, const struct tar_entry *en, struct error *e) {
        for (size_t i = 0; i < en->n_xattrs; i++) {
                const char *name = en->xattrs[i].name;
                if (strstr(name, ".overlay."))
                        return theirs(e, en, "attributes of overlay file systems are not accepted");
                if (strncmp(name, "user.", 5) != 0 && strcmp(name, "security.capability") != 0)
                        continue;
                if (fsetxattr(fd, name, en->xattrs[i].value, en->xattrs[i].size, 0) < 0 && !(errno == EOPNOTSUPP && name[0] == 'u'))
                        return errno == EINVAL || errno == ERANGE || errno == E2BIG || errno == EPERM ? theirs(e, en, "an attribute that cannot be set") :
                               ours(e, en, -errno, "set an attribute");
        }
        return 0;
}

static void owner_of(const struct unpack_tree *u, const struct tar_entry *en, uint32_t *uid, uint32_t *gid) {
        *uid = u->o->set_owner ? u->o->uid : known_id(en->uid);
        *gid = u->o->set_owner ? u->o->gid : known_id(en->gid);
}

/* Owner first: it takes set-id bits and capabilities away. */
static int set_attributes(struct unpack_tree *u, int fd, const struct tar_entry *en, struct error *e) {
        uint32_t uid, gid;
        const struct timespec t[2] = { { .tv_sec = en->mtime, .tv_nsec = en->mtime_ns }, { .tv_sec = en->mtime, .tv_nsec = en->mtime_ns } };
        owner_of(u, en, &uid, &gid);
        if (fchown(fd, uid, gid) < 0)
                return ours(e, en, -errno, "set its owner");
        if (fchmod(fd, en->mode) < 0)
                return ours(e, en, -errno, "set its mode");
        int r = set_xattrs(fd, en, e);
        if (r < 0)
                return r;
        return futimens(fd, t) < 0 ? ours(e, en, -errno, "set its times") : 0;
}

/* Of what cannot be opened: links and FIFOs. */
static int set_at(struct unpack_tree *u, const char *leaf, const struct tar_entry *en, struct error *e) {
        uint32_t uid, gid;
        const struct timespec t[2] = { { .tv_sec = en->mtime, .tv_nsec = en->mtime_ns }, { .tv_sec = en->mtime, .tv_nsec = en->mtime_ns } };
        owner_of(u, en, &uid, &gid);
        if (fchownat(u->parent_fd, leaf, uid, gid, AT_SYMLINK_NOFOLLOW) < 0)
                return ours(e, en, -errno, "set its owner");
        if (en->type == TAR_FIFO && fchmodat(u->parent_fd, leaf, en->mode, 0) < 0)
                return ours(e, en, -errno, "set its mode");
        return utimensat(u->parent_fd, leaf, t, AT_SYMLINK_NOFOLLOW) < 0 ? ours(e, en, -errno, "set its times") : 0;
}

/* ---- kinds ---- */

static bool all_zero(const char *p, size_t n) { return n > 0 && *p == 0 && memcmp(p, p + 1, n - 1) == 0; }

/* Pieces of zeros become holes: a small archive cannot fill a disk with them, and files that were sparse are again. */
static int copy_data(struct tar_reader *t, int fd, const struct tar_entry *en, struct error *e) {
        static char space[COPY_SIZE];
        for (;;) {
                uint64_t at;
                ssize_t n = tar_data(t, space, sizeof space, &at, e);
                if (n < 0) {
                        error_prefix(e, "entry '%s'", unpack_show(en->path));
                        return (int)n;
                }
                if (n == 0)
                        break;
                for (ssize_t done = all_zero(space, (size_t)n) ? n : 0; done < n;) {
                        ssize_t put = pwrite(fd, space + done, (size_t)(n - done), (off_t)(at + (uint64_t)done));
                        if (put < 0 && errno == EINTR)
                                continue;
                        if (put < 0)
                                return ours(e, en, -errno, "write");
                        done += put;
                }
        }
        struct stat st;
        if (fstat(fd, &st) == 0 && (uint64_t)st.st_size < en->size && ftruncate(fd, (off_t)en->size) < 0)
                return ours(e, en, -errno, "set its size");
        return 0;
}

static int make_file(struct unpack_tree *u, struct tar_reader *t, const char *leaf, const struct tar_entry *en, struct error *e) {
        _cleanup_close_ int fd = openat(u->parent_fd, leaf, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0)
                return ours(e, en, -errno, "create");
        int r = copy_data(t, fd, en, e);
        return r < 0 ? r : set_attributes(u, fd, en, e);
}

static int make_hardlink(struct unpack_tree *u, const char *leaf, const struct tar_entry *en, struct error *e) {
        char path[TAR_NAME_MAX + 1], *slash;
        struct stat st;
        int r = unpack_clean(en->link, "the target of a hard link", path, e);
        if (r < 0)
                return r;
        slash = strrchr(path, '/');
        const char *name = slash ? slash + 1 : path;
        if (slash)
                *slash = 0;
        _cleanup_close_ int dir = unpack_open_dir(u->root, slash ? path : "", open_how_of(u));
        if (dir == -ENOENT || (dir >= 0 && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT))
                return theirs(e, en, "a hard link to what is not there");
        if (dir < 0)
                return ours(e, en, dir, "open the target of the link");
        if (S_ISDIR(st.st_mode))
                return theirs(e, en, "a hard link to a directory");
        if (linkat(dir, name, u->parent_fd, leaf, 0) < 0)
                return ours(e, en, -errno, "link");
        return 0;
}

static int make_dir(struct unpack_tree *u, const char *leaf, const struct tar_entry *en, struct error *e) {
        struct stat st;
        if (mkdirat(u->parent_fd, leaf, 0700) < 0 && errno != EEXIST)
                return ours(e, en, -errno, "make");
        _cleanup_close_ int fd = openat(u->parent_fd, leaf, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) < 0)
                return ours(e, en, -errno, "open");
        if (foreign(u, &st)) {
                u->skipped++;
                return 0;
        }
        return set_attributes(u, fd, en, e);
}

/* What stands in the way goes; a directory stays for a directory. 1: it is a mount of the sandbox's, and stays. */
static int clear_way(struct unpack_tree *u, const char *leaf, const struct tar_entry *en, struct error *e) {
        struct stat st;
        if (fstatat(u->parent_fd, leaf, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? 0 : ours(e, en, -errno, "look");
        if (S_ISDIR(st.st_mode) && en->type == TAR_DIR)
                return 0;
        if (foreign(u, &st)) {
                u->skipped++;
                return 1;
        }
        int r = helper_remove(u->parent_fd, leaf);
        return r < 0 ? ours(e, en, r, "replace what is there") : 0;
}

static int make_entry(struct unpack_tree *u, struct tar_reader *t, const char *leaf, const struct tar_entry *en, struct error *e) {
        int r = clear_way(u, leaf, en, e);
        if (r != 0)
                return MIN2(r, 0);
        switch (en->type) {
        case TAR_FILE: return make_file(u, t, leaf, en, e);
        case TAR_DIR: return make_dir(u, leaf, en, e);
        case TAR_HARDLINK: return make_hardlink(u, leaf, en, e);
        case TAR_SYMLINK:
                if (!en->link[0])
                        return theirs(e, en, "a link without a target");
                r = symlinkat(en->link, u->parent_fd, leaf) < 0 ? ours(e, en, -errno, "link") : 0;
                return r < 0 ? r : set_at(u, leaf, en, e);
        case TAR_FIFO:
                r = mkfifoat(u->parent_fd, leaf, 0600) < 0 ? ours(e, en, -errno, "make") : 0;
                return r < 0 ? r : set_at(u, leaf, en, e);
        default: return theirs(e, en, "of a kind that is not accepted");
        }
}

/* Of what could not be finished nothing stays; what it took the place of is gone. */
static void take_back(struct unpack_tree *u, const char *leaf, const struct tar_entry *en) {
        if (en->type == TAR_FILE || en->type == TAR_SYMLINK || en->type == TAR_FIFO)
                (void)unlinkat(u->parent_fd, leaf, 0);
}

static int set_root(struct unpack_tree *u, const struct tar_entry *en, struct error *e) {
        if (en->type != TAR_DIR)
                return theirs(e, en, "the root is no directory");
        leave_parent(u);
        return set_attributes(u, u->root, en, e);
}

int unpack_entry(struct unpack_tree *u, struct tar_reader *t, const struct tar_entry *en, struct error *e) {
        char path[TAR_NAME_MAX + 1], parent[TAR_NAME_MAX + 1];
        if (++u->entries > u->o->entries_max)
                return error_say(e, -E2BIG, "the archive has more than %llu entries", (unsigned long long)u->o->entries_max);
        int r = unpack_clean(en->path, "the name", path, e);
        if (r < 0)
                return r;
        if (path[0] == 0)
                return set_root(u, en, e);
        const char *slash = strrchr(path, '/'), *leaf = slash ? slash + 1 : path;
        snprintf(parent, sizeof parent, "%.*s", slash ? (int)(slash - path) : 0, path);
        r = enter_parent(u, parent, en, e);
        if (r < 0)
                return r;
        if (u->parent_foreign) {
                u->skipped++;
                return 0;
        }
        if (en->type == TAR_CHAR || en->type == TAR_BLOCK)
                return theirs(e, en, "device nodes are not accepted");
        if (u->o->whiteouts && strncmp(leaf, WHITEOUT, strlen(WHITEOUT)) == 0)
                return apply_whiteout(u, leaf, en, e);
        if (en->type == TAR_OTHER)
                return theirs(e, en, "of a kind that is not accepted");
        r = make_entry(u, t, leaf, en, e);
        if (r < 0)
                take_back(u, leaf, en);
        if (r == 0 && (r = path_set_add(u->seen, path)) < 0)
                r = ours(e, en, r, "remember it");
        return r;
}

/* ---- begin and end ---- */

int unpack_tree_open(struct unpack_tree *u, const struct unpack_options *o, int root, struct error *e) {
        static const char *const planes[] = { ".", "usr", "opt" };
        struct stat st;
        *u = (struct unpack_tree){ .o = o, .root = -1, .parent_fd = -1 };
        for (size_t i = 0; i < ARRAY_SIZE(planes); i++)
                if (fstatat(root, planes[i], &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
                        u->device[u->n_devices++] = st.st_dev;
        u->root = unpack_open_dir(root, o->target, UNPACK_MAKE | UNPACK_ABSOLUTE);
        int r = u->root < 0 ? u->root : path_set_new((size_t)o->entries_max * 2, &u->seen);
        if (r < 0) {
                unpack_tree_close(u);
                return r == -ENOTDIR || r == -EXDEV || r == -ELOOP ? error_say(e, -EBADMSG, "'/%s' is not a directory of the image", unpack_show(o->target)) :
                       error_set(e, r, "open '%s'", unpack_show(o->target));
        }
        return 0;
}

void unpack_tree_close(struct unpack_tree *u) {
        leave_parent(u);
        u->root = fd_close(u->root);
        path_set_free(u->seen);
        u->seen = NULL;
}
