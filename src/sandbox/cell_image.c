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

/* An empty directory to be the lowest of everything, made once. */
static int open_scratch(struct spawn *sp, int *ret_fd) {
        if (sp->empty_lower < 0) {
                int made = mount_tmpfs(4096, 2, 0755, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID);
                int r = made < 0 ? made : mount_park(made);
                if (r < 0) {
                        mount_release(made);
                        return r;
                }
                sp->empty_lower = made;
        }
        int fd = fcntl(sp->empty_lower, F_DUPFD_CLOEXEC, 3);
        if (fd < 0)
                return -errno;
        *ret_fd = fd;
        return 0;
}

int cell_open_base(struct spawn *sp, const char *image, int *ret_fd) {
        if (strcmp(image, IMAGE_HOST) == 0) {
                *ret_fd = -1;
                return 0;
        }
        return strcmp(image, IMAGE_SCRATCH) == 0 ? open_scratch(sp, ret_fd) : open_directory(sp, image, ret_fd);
}

static int add_dir(int root, const char *name, mode_t mode, uint32_t owner) {
        if (mkdirat(root, name, 0700) < 0)
                return errno == EEXIST ? 0 : -errno;
        return fchownat(root, name, owner, owner, AT_SYMLINK_NOFOLLOW) < 0 || fchmodat(root, name, mode, 0) < 0 ? -errno : 0;
}

/* What programs expect and an image may lack. Where it has something else at the place, that is the image's own business. */
static void add_usual(int root, uint32_t owner, const char *host_name) {
        char hosts[256];
        if (add_dir(root, "tmp", 01777, owner) < 0 || add_dir(root, "etc", 0755, owner) < 0)
                return;
        _cleanup_close_ int fd = fs_open_beneath(root, "etc/hosts", O_WRONLY | O_CREAT | O_EXCL, 0644);
        snprintf(hosts, sizeof hosts, "127.0.0.1\tlocalhost\n::1\tlocalhost\n127.0.1.1\t%s\n", host_name);
        if (fd >= 0 && (fchown(fd, owner, owner) < 0 || fs_write_all(fd, hosts, strlen(hosts)) < 0))
                unlinkat(root, "etc/hosts", 0);
}

int cell_fill_image(int root, uint32_t owner, const struct sandbox_spec *s, const char *host_name) {
        int r = 0;
        for (const char *const *t = (const char *const[]){ "proc", "dev", "sys", NULL }; *t && r == 0; t++)
                r = add_dir(root, *t, 0755, owner);
        if (r == 0 && (s->upper != UPPER_LAYER || s->profile == PROFILE_SETUP))
                add_usual(root, owner, host_name);
        return r;
}
