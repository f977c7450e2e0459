/* The seed: the mount namespace from which every sandbox's is copied. Copying the host's would cost a copy of each of its
 * mounts, and then their removal. */
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include "base/fs.h"
#include "sandbox/child.h"
#include "sandbox/mounts.h"

static int make_dev(int top) {
        static const struct { const char *name; unsigned major, minor; } nodes[] = {
                { "d/null", 1, 3 }, { "d/zero", 1, 5 }, { "d/full", 1, 7 }, { "d/random", 1, 8 }, { "d/urandom", 1, 9 }, { "d/tty", 5, 0 },
        };
        static const struct { const char *target, *name; } links[] = {
                { "/proc/self/fd", "d/fd" }, { "/proc/self/fd/0", "d/stdin" }, { "/proc/self/fd/1", "d/stdout" },
                { "/proc/self/fd/2", "d/stderr" }, { "pts/ptmx", "d/ptmx" },
        };
        for (size_t i = 0; i < ARRAY_SIZE(nodes); i++) {
                if (mknodat(top, nodes[i].name, S_IFCHR | 0666, makedev(nodes[i].major, nodes[i].minor)) < 0)
                        return -errno;
        }
        for (size_t i = 0; i < ARRAY_SIZE(links); i++) {
                if (symlinkat(links[i].target, top, links[i].name) < 0)
                        return -errno;
        }
        return mkdirat(top, "d/pts", 0755) < 0 || mkdirat(top, "d/shm", 01777) < 0 || mkdirat(top, "d/mqueue", 01777) < 0 ? -errno : 0;
}

static int fill_seed(void) {
        umask(0);
        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
                return -errno;
        _cleanup_close_ int top = mount_tmpfs(1 << 20, 64, 0755, MOUNT_ATTR_NOSUID);
        if (top < 0)
                return top;
        if (mkdirat(top, "e", 0555) < 0 || mkdirat(top, "d", 0755) < 0)
                return -errno;
        _cleanup_close_ int empty = openat(top, "n", O_WRONLY | O_CREAT | O_CLOEXEC, 0444);
        int r = empty < 0 ? -errno : make_dev(top);
        if (r < 0)
                return r;
        empty = fd_close(empty);
        if (move_mount(top, "", AT_FDCWD, "/tmp", MOVE_MOUNT_F_EMPTY_PATH) < 0 || fchdir(top) < 0 || mount_attrs(top, MOUNT_ATTR_RDONLY) < 0)
                return -errno;
        if (syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0)
                return -errno;
        return 0;
}

int seed_make(int *ret_ns, struct error *e) {
        int p[2], q[2];
        if (pipe2(p, O_CLOEXEC) < 0)
                return error_set(e, -errno, "pipe");
        if (pipe2(q, O_CLOEXEC) < 0) {
                int r = -errno;
                close(p[0]);
                close(p[1]);
                return error_set(e, r, "pipe");
        }
        pid_t pid = fork();
        if (pid == 0) {
                int code = fill_seed();
                char c;
                if (write(p[1], &code, sizeof code) != sizeof code)
                        _exit(1);
                close(q[1]);
                _exit(read(q[0], &c, 1) != 0);
        }
        int r = pid < 0 ? -errno : 0, code = -EPROTO;
        close(p[1]);
        close(q[0]);
        if (r == 0 && read(p[0], &code, sizeof code) != sizeof code)
                code = -EPROTO;
        if (r == 0)
                r = code;
        char path[48];
        snprintf(path, sizeof path, "/proc/%d/ns/mnt", pid);
        int ns = r < 0 ? -1 : open(path, O_RDONLY | O_CLOEXEC);
        if (r == 0 && ns < 0)
                r = -errno;
        close(q[1]);
        close(p[0]);
        if (pid > 0)
                waitpid(pid, NULL, 0);
        if (r < 0)
                return error_set(e, r, "make the seed of mount namespaces");
        *ret_ns = ns;
        return 0;
}
