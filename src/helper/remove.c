#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "helper/unpack.h"
#include "helper/verbs.h"

#define DEPTH_MAX 4096         /* deeper trees are moved up instead of walked down */

/* ---- directories that cannot be moved: those of an overlay's lower layers ---- */

#define WALK_DEPTH_MAX 65536

struct step { dev_t dev; ino_t ino; char name[256]; };     /* the directory above, and the name in it of the one below */

/* Removes all but directories; 1 and the name of one, 0: empty. */
static int clear_files(int dir, char ret[static 256]) {
        int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *d = fd < 0 ? NULL : fdopendir(fd);
        int r = d ? 0 : -errno;
        if (!d)
                fd_close(fd);
        for (struct dirent *de; d && r == 0 && (de = readdir(d));) {
                if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0 || unlinkat(dir, de->d_name, 0) == 0 || errno == ENOENT)
                        continue;
                r = errno == EISDIR || errno == EPERM ? 1 : -errno;
                snprintf(ret, 256, "%s", de->d_name);
        }
        if (d)
                closedir(d);
        return r;
}

/* One descriptor, whatever the depth. Up it goes by "..", and only if that is where we came from: somebody may move directories meanwhile. */
static int go_up(int *dir, const struct step *s) {
        struct stat st;
        int up = openat(*dir, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (up < 0)
                return -errno;
        fd_close(*dir);
        *dir = up;
        if (fstat(up, &st) < 0)
                return -errno;
        if (st.st_dev != s->dev || st.st_ino != s->ino)
                return -EAGAIN;
        return unlinkat(up, s->name, AT_REMOVEDIR) < 0 ? -errno : 0;
}

static int go_down(int *dir, struct step *s) {
        struct stat st;
        if (fstat(*dir, &st) < 0)
                return -errno;
        int below = openat(*dir, s->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (below < 0)
                return -errno;
        s->dev = st.st_dev;
        s->ino = st.st_ino;
        fd_close(*dir);
        *dir = below;
        return 0;
}

static int remove_walking(int at, const char *name) {
        _cleanup_close_ int dir = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        struct step *steps = NULL;
        size_t n = 0, room = 0;
        int r = dir < 0 ? -errno : 0;
        while (r == 0) {
                if (n == room) {
                        struct step *more = n < WALK_DEPTH_MAX ? reallocarray(steps, room = room ? room * 2 : 64, sizeof *steps) : NULL;
                        if (!more) {
                                r = n < WALK_DEPTH_MAX ? -ENOMEM : -ELOOP;
                                break;
                        }
                        steps = more;
                }
                r = clear_files(dir, steps[n].name);
                if (r > 0)
                        r = go_down(&dir, &steps[n++]);
                else if (r == 0 && n == 0)
                        break;
                else if (r == 0)
                        r = go_up(&dir, &steps[--n]);
        }
        free(steps);
        return r == 0 && unlinkat(at, name, AT_REMOVEDIR) < 0 ? -errno : r;
}

/* ---- any ---- */

/* Removes what is in the directory `dir` (taken over). Hostile trees may be deeper than the stack or our descriptors allow: below
 * FLAT_DEPTH a directory is first moved to the top, and then it is as shallow as any. */
#define FLAT_DEPTH 64

static int empty_dir(int dir, int top, unsigned depth, unsigned *serial) {
        DIR *d = fdopendir(dir);
        if (!d) {
                fd_close(dir);
                return -errno;
        }
        int r = 0;
        for (struct dirent *de; r == 0 && (de = readdir(d));) {
                if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0)
                        continue;
                if (unlinkat(dirfd(d), de->d_name, 0) == 0 || errno == ENOENT)
                        continue;
                if (errno != EISDIR && errno != EPERM) {
                        r = -errno;
                        break;
                }
                if (depth >= FLAT_DEPTH) {
                        char name[32];
                        snprintf(name, sizeof name, ".removed-%u", (*serial)++);
                        r = renameat(dirfd(d), de->d_name, top, name) < 0 ? -errno : 0;
                        if (r == -EXDEV)
                                r = remove_walking(dirfd(d), de->d_name);
                        continue;
                }
                int below = openat(dirfd(d), de->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                r = below < 0 ? -errno : empty_dir(below, top, depth + 1, serial);
                if (r == 0 && unlinkat(dirfd(d), de->d_name, AT_REMOVEDIR) < 0)
                        r = -errno;
        }
        closedir(d);
        return r;
}

int helper_remove(int root, const char *path) {
        const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
        char parent[4096] = ".";
        if (slash && slash > path)
                snprintf(parent, sizeof parent, "%.*s", (int)(slash - path), path);
        if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
                return -EINVAL;
        _cleanup_close_ int at = fs_open_beneath(root, parent, O_PATH | O_DIRECTORY, 0);
        if (at < 0)
                return at == -ENOENT ? 0 : at;
        if (unlinkat(at, name, 0) == 0 || errno == ENOENT)
                return 0;
        if (errno != EISDIR && errno != EPERM)
                return -errno;
        unsigned serial = 0;
        /* Several rounds, because each may have moved deep directories to the top. */
        for (unsigned round = 0; round < DEPTH_MAX; round++) {
                int dir = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                if (dir < 0)
                        return -errno;
                _cleanup_close_ int top = fcntl(dir, F_DUPFD_CLOEXEC, 3);
                int r = empty_dir(dir, top, 0, &serial);
                if (r < 0)
                        return r;
                if (unlinkat(at, name, AT_REMOVEDIR) == 0)
                        return 0;
                if (errno != ENOTEMPTY)
                        return -errno;
        }
        return -ELOOP;
}

int verb_remove_tree(int argc, char **argv) {
        if (argc != 2)
                return 64;
        const char *path = argv[1];
        while (*path == '/')
                path++;
        int r = helper_remove(HELPER_ROOT_FD, path);
        if (r < 0)
                fprintf(stderr, "remove-tree: %s\n", strerror(-r));
        return r < 0;
}

int verb_true(int argc, char **argv) { return 0; }
