/* The lowest directory of an image, and the places in it that every sandbox has. */
#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "sandbox/mounts.h"
#include "sandbox/spawner.h"

/* Is `path` a directory image that the operator allows? Opened from the root's descriptor, so what is checked is what is used. */
static int open_directory(struct spawn *sp, const char *path, int *ret_fd) {
        for (size_t i = 0; i < sp->n_image_roots; i++) {
                const char *root = sp->image_root[i];
                size_t n = strlen(root);
                if (strncmp(path, root, n) != 0 || (path[n] != '/' && path[n] != 0))
                        continue;
                _cleanup_close_ int dir = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
                if (dir < 0)
                        return -errno;
                const char *below = path + n;
                while (*below == '/')
                        below++;
                int fd = fs_open_beneath(dir, *below ? below : ".", O_PATH | O_DIRECTORY, 0);
                if (fd < 0)
                        return fd;
                *ret_fd = fd;
                return 0;
        }
        return -EPERM;
}

/* What is below everything in an image: places for what is mounted, and what programs expect and an image may lack. Made once; as a
 * lower it is never in the way of what the image has, and in no layer. */
static int fill_lowest(int top) {
        static const char hosts[] = "127.0.0.1\tlocalhost brig\n::1\tlocalhost ip6-localhost ip6-loopback\n";
        static const struct { const char *name; mode_t mode; } dirs[] = { { "proc", 0555 }, { "dev", 0755 }, { "sys", 0555 }, { "etc", 0755 }, { "tmp", 01777 } };
        for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
                if (mkdirat(top, dirs[i].name, 0700) < 0 || fchmodat(top, dirs[i].name, dirs[i].mode, 0) < 0)
                        return -errno;
        _cleanup_close_ int fd = fs_open_beneath(top, "etc/hosts", O_WRONLY | O_CREAT | O_EXCL, 0644);
        int r = fd < 0 ? fd : fs_write_all(fd, hosts, strlen(hosts));
        return r == 0 && fchmod(fd, 0644) < 0 ? -errno : r;
}

static int lowest(struct spawn *sp) {
        if (sp->lowest >= 0)
                return 0;
        int made = mount_tmpfs(64 << 10, 16, 0755, MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID);
        int r = made < 0 ? made : fill_lowest(made);
        if (r == 0)
                r = mount_park(made);
        if (r < 0) {
                mount_release(made);
                return r;
        }
        sp->lowest = made;
        return 0;
}

static int open_scratch(struct spawn *sp, int *ret_fd) {
        int r = lowest(sp);
        int fd = r < 0 ? r : fcntl(sp->lowest, F_DUPFD_CLOEXEC, 3);
        if (fd < 0)
                return r < 0 ? r : -errno;
        *ret_fd = fd;
        return 0;
}

int cell_lowest(struct spawn *sp, uint64_t attrs, int user_ns) {
        int r = lowest(sp);
        if (r < 0)
                return r;
        int fd = mount_clone(sp->lowest, "", attrs, user_ns);
        /* Before Linux 6.3 a tmpfs cannot be id-mapped: there it belongs to nobody, and can be read all the same. */
        return fd == -EINVAL ? mount_clone(sp->lowest, "", attrs, -1) : fd;
}

int cell_open_base(struct spawn *sp, const char *image, int *ret_fd) {
        if (strcmp(image, IMAGE_HOST) == 0) {
                *ret_fd = -1;
                return 0;
        }
        return strcmp(image, IMAGE_SCRATCH) == 0 ? open_scratch(sp, ret_fd) : open_directory(sp, image, ret_fd);
}
