#include <fcntl.h>
#include <linux/loop.h>
#include <spawn.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include "base/buf.h"
#include "base/fs.h"
#include "sandbox/layer_loop.h"

#define LOOP_TRIES 64           /* another process may take the free device between our asking and our taking */
#define MKFS_SAYS_MAX 256
#define MKFS_FD 3

static const char *const mkfs_paths[] = { "/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4", NULL };

static int mkfs_spawn(char *const argv[], int image_fd, int says_fd, pid_t *ret) {
        char *env[] = { NULL };
        posix_spawn_file_actions_t fa;
        int r = posix_spawn_file_actions_init(&fa);
        if (r)
                return -r;
        r = posix_spawn_file_actions_adddup2(&fa, image_fd, MKFS_FD);
        r = r ? r : posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
        r = r ? r : posix_spawn_file_actions_addopen(&fa, 1, "/dev/null", O_WRONLY, 0);
        r = r ? r : posix_spawn_file_actions_adddup2(&fa, says_fd, 2);
        if (r == 0)
                r = ENOENT;
        for (size_t i = 0; r == ENOENT && mkfs_paths[i]; i++)
                r = posix_spawn(ret, mkfs_paths[i], &fa, NULL, argv, env);
        posix_spawn_file_actions_destroy(&fa);
        return -r;
}

int layer_loop_format(int image_fd, uint64_t inodes, uint32_t owner, struct error *e) {
        char n_inodes[32], extended[128], path[32];
        snprintf(n_inodes, sizeof n_inodes, "%llu", (unsigned long long)inodes);
        snprintf(extended, sizeof extended, "lazy_itable_init=1,nodiscard,root_owner=%u:%u", owner, owner);
        snprintf(path, sizeof path, "/proc/self/fd/%d", MKFS_FD);
        char *argv[] = { (char[]){ "mkfs.ext4" }, (char[]){ "-q" }, (char[]){ "-F" }, (char[]){ "-b" }, (char[]){ "4096" }, (char[]){ "-O" },
                         (char[]){ "^has_journal,^resize_inode" }, (char[]){ "-m" }, (char[]){ "0" }, (char[]){ "-N" }, n_inodes,
                         (char[]){ "-E" }, extended, path, NULL };
        int pipe_fd[2];
        if (pipe2(pipe_fd, O_CLOEXEC | O_NONBLOCK) < 0)
                return error_set(e, -errno, "pipe");
        _cleanup_close_ int rd = pipe_fd[0], wr = pipe_fd[1];
        pid_t pid;
        int status, r = mkfs_spawn(argv, image_fd, wr, &pid);
        if (r < 0)
                return error_set(e, r, "run mkfs.ext4");
        while (waitpid(pid, &status, 0) < 0)
                if (errno != EINTR)
                        return error_set(e, -errno, "wait for mkfs.ext4");
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
                return 0;
        char text[MKFS_SAYS_MAX];
        ssize_t got = read(rd, text, sizeof text - 1);
        text[got > 0 ? got : 0] = 0;
        text[strcspn(text, "\n")] = 0;
        return error_say(e, -EIO, "mkfs.ext4 failed (wait status %d): %s", status, text);
}

/* A configured loop device, open. */
static int loop_attach(int image_fd, bool read_only, char path[static 32], struct error *e) {
        _cleanup_close_ int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
        if (control < 0)
                return error_set(e, -errno, "open /dev/loop-control");
        for (int i = 0; i < LOOP_TRIES; i++) {
                int n = ioctl(control, LOOP_CTL_GET_FREE);
                if (n < 0)
                        return error_set(e, -errno, "find a free loop device");
                snprintf(path, 32, "/dev/loop%d", n);
                _cleanup_close_ int dev = open(path, (read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC);
                if (dev < 0 && errno != ENXIO && errno != EBUSY)
                        return error_set(e, -errno, "open %s", path);
                struct loop_config cfg = { .fd = (unsigned)image_fd,
                                           .info.lo_flags = LO_FLAGS_AUTOCLEAR | (read_only ? LO_FLAGS_READ_ONLY : 0u) };
                if (dev >= 0 && ioctl(dev, LOOP_CONFIGURE, &cfg) == 0)
                        return TAKE_FD(dev);
                if (dev >= 0 && errno != EBUSY)
                        return error_set(e, -errno, "configure %s", path);
        }
        return error_set(e, -EBUSY, "take a loop device");
}

int layer_loop_mount(int image_fd, bool read_only, struct error *e) {
        char path[32];
        _cleanup_close_ int dev = loop_attach(image_fd, read_only, path, e);
        if (dev < 0)
                return dev;
        _cleanup_close_ int fs = fsopen("ext4", FSOPEN_CLOEXEC);
        if (fs < 0)
                return error_set(e, -errno, "fsopen ext4");
        /* nobarrier: what a program inside syncs need not reach the disk. A machine that goes down takes the sandbox with it, and a layer is
         * written out as a whole when it is published. noinit_itable: a kernel thread would fill the inode tables with zeros and make the sparse file big. */
        if (fsconfig(fs, FSCONFIG_SET_STRING, "source", path, 0) < 0 ||
            (read_only && fsconfig(fs, FSCONFIG_SET_FLAG, "ro", NULL, 0) < 0) ||
            (!read_only && fsconfig(fs, FSCONFIG_SET_FLAG, "noinit_itable", NULL, 0) < 0) ||
            (!read_only && fsconfig(fs, FSCONFIG_SET_FLAG, "nobarrier", NULL, 0) < 0) ||
            fsconfig(fs, FSCONFIG_SET_STRING, "errors", "remount-ro", 0) < 0 ||
            fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
                return error_set(e, -errno, "mount the image on %s", path);
        int mnt = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NODEV | (read_only ? MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOATIME : MOUNT_ATTR_NOATIME));
        return mnt < 0 ? error_set(e, -errno, "fsmount") : mnt;
}

int layer_loop_seal(int mount_fd, struct error *e) {
        _cleanup_close_ int fs = fspick(mount_fd, "", FSPICK_EMPTY_PATH | FSPICK_CLOEXEC);
        if (fs < 0)
                return error_set(e, -errno, "fspick");
        if (fsconfig(fs, FSCONFIG_SET_FLAG, "ro", NULL, 0) < 0 || fsconfig(fs, FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0) < 0)
                return error_set(e, -errno, "make the layer's file system read-only");
        struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV };
        if (mount_setattr(mount_fd, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0)
                return error_set(e, -errno, "make the layer's mount read-only");
        return 0;
}
