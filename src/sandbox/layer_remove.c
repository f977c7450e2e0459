#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "sandbox/layer_private.h"

#define REMOVE_DEPTH_MAX 64     /* deeper directories are moved up to the top first: the stack and the descriptors stay bounded */

static int remove_below(int top, int parent, const char *name, int depth, unsigned *moved);

static int remove_one(int top, int parent, const char *name, int depth, unsigned *moved) {
        if (unlinkat(parent, name, 0) == 0 || errno == ENOENT)
                return 0;
        if (errno != EISDIR && errno != EPERM)
                return -errno;
        if (depth < REMOVE_DEPTH_MAX)
                return remove_below(top, parent, name, depth, moved);
        char up[32];
        snprintf(up, sizeof up, ".deep.%u", (*moved)++);
        return renameat(parent, name, top, up) < 0 ? -errno : 0;
}

static int remove_below(int top, int parent, const char *name, int depth, unsigned *moved) {
        int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        DIR *d = fd < 0 ? NULL : fdopendir(fd);
        if (!d) {
                int r = errno == ENOENT ? 0 : -errno;
                fd_close(fd);
                return r;
        }
        int r = 0;
        const struct dirent *de;
        while (r == 0 && (de = readdir(d)))
                if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
                        r = remove_one(top < 0 ? dirfd(d) : top, dirfd(d), de->d_name, depth + 1, moved);
        closedir(d);
        if (r == 0 && unlinkat(parent, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
                r = -errno;
        return r;
}

int layer_remove_tree(int parent, const char *name) {
        unsigned moved = 0, before;
        int r;
        /* What was moved up while the top was being read may have been missed: ENOTEMPTY, and once more. */
        do {
                before = moved;
                r = remove_below(-1, parent, name, 0, &moved);
        } while (r == -ENOTEMPTY && moved != before);
        return r;
}
