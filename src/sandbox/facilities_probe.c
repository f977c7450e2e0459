/* Probes of processes, files and mounts. Each runs in a child process: see run_probe. */
#include <fcntl.h>
#include <linux/landlock.h>
#include <linux/loop.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <linux/capability.h>

#include "sandbox/facilities_probe.h"

/* ---- processes and files ---- */

static int reap(long pid) {
        int status = 0;
        while (waitpid((pid_t)pid, &status, 0) < 0)
                if (errno != EINTR)
                        return -errno;
        return WIFEXITED(status) ? -WEXITSTATUS(status) : -ECANCELED;
}

static int try_namespaces(void) {
        pid_t pid = fork();
        if (pid < 0)
                return -errno;
        if (pid == 0)
                _exit(unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP) < 0 ? errno : 0);
        return reap(pid);
}

static int try_clone3(void) {
        int pidfd = -1;
        struct clone_args args = { .flags = CLONE_PIDFD, .pidfd = (uintptr_t)&pidfd, .exit_signal = SIGCHLD };
        long pid = syscall(SYS_clone3, &args, sizeof args);
        if (pid < 0)
                return -errno;
        if (pid == 0)
                _exit(0);
        fd_close(pidfd);
        return reap(pid);
}

static int try_pidfd(void) {
        _cleanup_close_ int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
        if (fd < 0)
                return -errno;
        return setns(fd, CLONE_NEWUTS) < 0 ? -errno : 0;   /* our own: changes nothing */
}

static int try_openat2(void) {
        struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
        _cleanup_close_ int fd = (int)syscall(SYS_openat2, AT_FDCWD, "/", &how, sizeof how);
        return fd < 0 ? -errno : 0;
}

static int try_loop(void) {
        _cleanup_close_ int fd = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
        if (fd < 0)
                return -errno;
        return ioctl(fd, LOOP_CTL_GET_FREE) < 0 ? -errno : 0;
}

static int try_sys_resource(void) {
        struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
        struct __user_cap_data_struct data[2] = { 0 };
        if (syscall(SYS_capget, &head, data) < 0)
                return -errno;
        return data[0].effective & 1u << CAP_SYS_RESOURCE ? 0 : -EPERM;
}

void facilities_probe_processes(struct facilities *f) {
        facility_tried(f, FACILITY_USER_NS, try_namespaces(), "unshare");
        facility_tried(f, FACILITY_CLONE3, try_clone3(), "clone3");
        facility_tried(f, FACILITY_PIDFD, try_pidfd(), "pidfd_open, setns");
        facility_tried(f, FACILITY_CLOSE_RANGE, syscall(SYS_close_range, ~0u, ~0u, 0) < 0 ? -errno : 0, "close_range");
        facility_tried(f, FACILITY_OPENAT2, try_openat2(), "openat2");
        facility_tried(f, FACILITY_LOOP, try_loop(), "/dev/loop-control");
        uint32_t action = SECCOMP_RET_ERRNO;
        facility_tried(f, FACILITY_SECCOMP, syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) < 0 ? -errno : 0, "seccomp");
        facility_tried(f, FACILITY_SYS_RESOURCE, try_sys_resource(), "CAP_SYS_RESOURCE");
        long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
        if (abi < 0)
                facility_tried(f, FACILITY_LANDLOCK, -errno, "landlock");
        else if (abi < 6)
                facility_set(f, FACILITY_LANDLOCK, FACILITY_DEGRADED, (int)abi, "ABI %ld scopes no sockets or signals", abi);
        else
                facility_set(f, FACILITY_LANDLOCK, FACILITY_OK, (int)abi, "ABI %ld", abi);
}

/* ---- mounts ---- */

#define SCRATCH "/tmp"   /* covered by a tmpfs in the probe's own mount namespace */

static int try_mount_api(void) {
        _cleanup_close_ int fs = (int)syscall(SYS_fsopen, "tmpfs", 1u /* FSOPEN_CLOEXEC */);
        if (fs < 0 || syscall(SYS_fsconfig, fs, 6 /* FSCONFIG_CMD_CREATE */, NULL, NULL, 0) < 0)
                return -errno;
        _cleanup_close_ int mnt = (int)syscall(SYS_fsmount, fs, 1u /* FSMOUNT_CLOEXEC */, 0);
        if (mnt < 0 || syscall(SYS_move_mount, mnt, "", AT_FDCWD, SCRATCH, 4u /* MOVE_MOUNT_F_EMPTY_PATH */) < 0)
                return -errno;
        _cleanup_close_ int tree = (int)syscall(SYS_open_tree, AT_FDCWD, SCRATCH, 1u /* OPEN_TREE_CLONE */ | O_CLOEXEC);
        if (tree < 0)
                return -errno;
        struct { uint64_t set, clear, propagation, userns; } attr = { .set = 1 /* MOUNT_ATTR_RDONLY */ };
        return syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0 ? -errno : 0;
}

/* A user namespace with a map, kept by its descriptor. */
static int make_userns(int *ret) {
        int go[2];
        if (pipe2(go, O_CLOEXEC) < 0)
                return -errno;
        pid_t pid = fork();
        if (pid == 0) {
                char c = unshare(CLONE_NEWUSER) < 0 ? (char)errno : 0;
                if (write(go[1], &c, 1) == 1)
                        pause();
                _exit(0);
        }
        char c = (char)EIO, path[64];
        int r = pid < 0 ? -errno : 0;
        fd_close(go[1]);
        if (r == 0)
                r = read(go[0], &c, 1) == 1 && c == 0 ? 0 : -(int)(unsigned char)c;
        fd_close(go[0]);
        for (int i = 0; r == 0 && i < 2; i++) {
                snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, i ? "gid_map" : "uid_map");
                _cleanup_close_ int map = open(path, O_WRONLY | O_CLOEXEC);
                if (map < 0 || write(map, "0 1000000 65536", 15) < 0)
                        r = -errno;
        }
        if (r == 0) {
                snprintf(path, sizeof path, "/proc/%d/ns/user", (int)pid);
                int fd = open(path, O_RDONLY | O_CLOEXEC);
                r = fd < 0 ? -errno : 0;
                if (r == 0)
                        *ret = fd;
        }
        if (pid > 0) {
                kill(pid, SIGKILL);
                (void)reap(pid);
        }
        return r;
}

/* An id-mapped detached copy of /usr, a directory of the file system that images come from. */
static int try_idmap(int *ret) {
        _cleanup_close_ int userns = -1, tree = -1;
        int r = make_userns(&userns);
        if (r < 0)
                return r;
        tree = (int)syscall(SYS_open_tree, AT_FDCWD, "/usr", 1u /* OPEN_TREE_CLONE */ | O_CLOEXEC);
        if (tree < 0)
                return -errno;
        struct { uint64_t set, clear, propagation, userns; } attr = { .set = 0x00100000 /* MOUNT_ATTR_IDMAP */, .userns = (uint64_t)userns };
        if (syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0)
                return -errno;
        *ret = TAKE_FD(tree);
        return 0;
}

static int try_overlay(int lower) {
        if (mkdir(SCRATCH "/l", 0755) < 0 || mkdir(SCRATCH "/u", 0755) < 0 || mkdir(SCRATCH "/w", 0755) < 0 || mkdir(SCRATCH "/m", 0755) < 0)
                return -errno;
        if (syscall(SYS_move_mount, lower, "", AT_FDCWD, SCRATCH "/l", 4u) < 0)
                return -errno;
        return mount("overlay", SCRATCH "/m", "overlay", 0, "lowerdir=" SCRATCH "/l,upperdir=" SCRATCH "/u,workdir=" SCRATCH "/w") < 0 ? -errno : 0;
}

/* Since 6.15: `tree` is detached, and an overlay of it can be made. */
static int try_detached_source(void) {
        _cleanup_close_ int tree = -1, clone = -1;
        int r = try_idmap(&tree);
        if (r < 0)
                return r;
        clone = (int)syscall(SYS_open_tree, tree, "", 1u /* OPEN_TREE_CLONE */ | O_CLOEXEC | AT_EMPTY_PATH);
        if (clone < 0)
                return -errno;
        char options[128];
        snprintf(options, sizeof options, "lowerdir=/proc/self/fd/%d:" SCRATCH "/u", tree);
        return mount("overlay", SCRATCH "/m", "overlay", 0, options) < 0 ? -errno : 0;
}

/* Since 6.8. */
static int try_overlay_append(void) {
        _cleanup_close_ int fs = (int)syscall(SYS_fsopen, "overlay", 1u);
        if (fs < 0 || syscall(SYS_fsconfig, fs, 1 /* FSCONFIG_SET_STRING */, "lowerdir+", "/usr", 0) < 0)
                return -errno;
        return 0;
}

void facilities_probe_mounts(struct facilities *f) {
        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
                int r = -errno;
                facility_tried(f, FACILITY_MOUNT_API, r, "unshare the mounts");
                facility_tried(f, FACILITY_IDMAP_MOUNT, r, "unshare the mounts");
                facility_tried(f, FACILITY_OVERLAY_IDMAP, r, "unshare the mounts");
                facility_tried(f, FACILITY_DETACHED_SOURCE, r, "unshare the mounts");
                facility_tried(f, FACILITY_OVERLAY_APPEND, r, "unshare the mounts");
                return;
        }
        _cleanup_close_ int lower = -1;
        int r = try_mount_api();
        facility_tried(f, FACILITY_MOUNT_API, r, "fsopen, fsmount, move_mount");
        r = try_idmap(&lower);
        facility_tried(f, FACILITY_IDMAP_MOUNT, r, "mount_setattr on /usr");
        facility_tried(f, FACILITY_OVERLAY_IDMAP, r < 0 ? r : try_overlay(lower), "overlay over it");
        facility_tried(f, FACILITY_DETACHED_SOURCE, try_detached_source(), "clone of, and overlay over, a detached mount");
        facility_tried(f, FACILITY_OVERLAY_APPEND, try_overlay_append(), "fsconfig lowerdir+");
}
