#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "score/patch.h"
#include "score/seal_private.h"

/* One directory in its three forms; base or merged < 0: there is none, or nobody asks. */
struct place { int upper, base, merged; };

static int walk(struct seal_walk *w, const struct place *at, const char *prefix, unsigned depth);

static int open_in(int at, const char *name) {
        int fd = at < 0 ? -1 : openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        return fd < 0 ? -1 : fd;
}

static bool is_in(int at, const char *name) {
        struct stat st;
        return at >= 0 && fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static DIR *list(int fd) {
        int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *d = own < 0 ? NULL : fdopendir(own);
        if (!d)
                fd_close(own);
        return d;
}

static bool is_dull(const char *name, bool compiled) {
        size_t n = strlen(name);
        return strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, ".git") == 0 ||
               (!compiled && (strcmp(name, "__pycache__") == 0 || (n > 4 && strcmp(name + n - 4, ".pyc") == 0)));
}

static int entry(struct seal_walk *w, const struct place *at, const char *name, const char *prefix, unsigned depth) {
        char path[PATCH_PATH_MAX + 2], below[PATCH_PATH_MAX + 3];
        struct stat st;
        if (w->left == 0)
                return -E2BIG;
        w->left--;
        if (fstatat(at->upper, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || snprintf(path, sizeof path, "%s%s", prefix, name) > (int)PATCH_PATH_MAX)
                return 0;
        if (w->skip && strcmp(path, w->skip) == 0)
                return 0;
        if (!S_ISDIR(st.st_mode)) {
                bool gone = S_ISCHR(st.st_mode) && st.st_rdev == 0, was = is_in(at->base, name);
                return gone && (!was || at->merged >= 0) ? 0 : w->found(w->user, path, was);
        }
        struct place in = { open_in(at->upper, name), open_in(at->base, name), open_in(at->merged, name) };
        snprintf(below, sizeof below, "%s/", path);
        int r = in.upper < 0 || depth == 0 ? 0 : walk(w, &in, below, depth - 1);
        fd_close(in.upper);
        fd_close(in.base);
        fd_close(in.merged);
        return r;
}

/* Names that the base has and the sandbox no longer shows. */
static int gone(struct seal_walk *w, const struct place *at, const char *prefix) {
        DIR *d = at->base >= 0 && at->merged >= 0 ? list(at->base) : NULL;
        int r = 0;
        for (struct dirent *de; d && r == 0 && (de = readdir(d));) {
                char path[PATCH_PATH_MAX + 1];
                if (is_dull(de->d_name, false))
                        continue;
                if (w->left == 0)
                        r = -E2BIG;
                else if (w->left-- && !is_in(at->merged, de->d_name) && snprintf(path, sizeof path, "%s%s", prefix, de->d_name) < (int)sizeof path)
                        r = w->found(w->user, path, true);
        }
        if (d)
                closedir(d);
        return r;
}

static int walk(struct seal_walk *w, const struct place *at, const char *prefix, unsigned depth) {
        DIR *d = list(at->upper);
        int r = 0;
        for (struct dirent *de; d && r == 0 && (de = readdir(d));)
                if (!is_dull(de->d_name, w->compiled))
                        r = entry(w, at, de->d_name, prefix, depth);
        if (d)
                closedir(d);
        return r == 0 ? gone(w, at, prefix) : r;
}

int seal_walk(struct seal_walk *w, int upper, int base, int merged, const char *top) {
        char prefix[PATCH_PATH_MAX + 2] = "";
        struct place at = { fs_open_beneath(upper, *top ? top : ".", O_RDONLY | O_DIRECTORY, 0), base < 0 ? -1 : fs_open_beneath(base, *top ? top : ".", O_RDONLY | O_DIRECTORY, 0),
                            merged < 0 ? -1 : fs_open_beneath(merged, *top ? top : ".", O_RDONLY | O_DIRECTORY, 0) };
        if (*top && snprintf(prefix, sizeof prefix, "%s/", top) >= (int)sizeof prefix)
                return -ENAMETOOLONG;
        int r = at.upper < 0 ? 0 : walk(w, &at, prefix, SEAL_DEPTH_MAX);
        fd_close(at.upper);
        fd_close(at.base);
        fd_close(at.merged);
        return r;
}
