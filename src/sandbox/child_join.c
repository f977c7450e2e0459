/* A process in a standing sandbox: a command, or a helper; perhaps with a mount namespace of its own. */
#include <fcntl.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/fs.h"
#include "sandbox/child_private.h"
#include "sandbox/file_pack.h"
#include "sandbox/mounts.h"

/* ---- a view of its own ---- */

/* Within the sandbox's root, which is the caller's; a link may lead anywhere in it, but not through /proc to a descriptor of ours. */
static int open_inside(const char *path, uint64_t flags) {
        const struct open_how how = { .flags = flags | O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
        _cleanup_close_ int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        int fd = root < 0 ? -1 : (int)syscall(SYS_openat2, root, path, &how, sizeof how);
        return fd < 0 ? -errno : fd;
}

static int make_dir(int parent, const char *name, uint32_t owner) {
        if (mkdirat(parent, name, 0755) < 0)
                return errno == EEXIST ? 0 : -errno;
        return fchownat(parent, name, owner, owner, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

/* The directory that holds the last component of `target`, made where it is not there; *ret_last points into path. */
static int open_above(const char *target, uint32_t owner, char path[static PATH_MAX], const char **ret_last) {
        size_t n = strlen(target);
        if (n >= PATH_MAX)
                return -ENAMETOOLONG;
        memcpy(path, target, n + 1);
        int dir = open_inside("/", 0);
        for (char *slash = path, *next; dir >= 0 && (next = strchr(slash + 1, '/')); slash = next) {
                *next = 0;
                int fd = open_inside(path, 0);
                if (fd == -ENOENT) {
                        int r = make_dir(dir, slash + 1, owner);
                        fd = r < 0 ? r : open_inside(path, 0);
                }
                close(dir);
                dir = fd;
                *next = '/';
        }
        *ret_last = strrchr(path, '/') + 1;
        return dir;
}

/* What is no directory there makes room: the place is to be covered, whatever it is. */
static int open_target(const char *target, uint32_t owner) {
        char path[PATH_MAX];
        const char *last;
        struct stat st;
        _cleanup_close_ int dir = open_above(target, owner, path, &last);
        if (dir < 0)
                return dir;
        bool there = fstatat(dir, last, &st, AT_SYMLINK_NOFOLLOW) == 0;
        if (there && !S_ISDIR(st.st_mode) && unlinkat(dir, last, 0) < 0)
                return -errno;
        int r = there && S_ISDIR(st.st_mode) ? 0 : make_dir(dir, last, owner);
        return r < 0 ? r : fs_open_beneath(dir, last, O_PATH | O_DIRECTORY, 0);
}

/* A fresh tmpfs over `target`, with the files of `pack` (-1: none). */
static int cover(const struct child_view *v, const char *target, mode_t mode, int pack, bool read_only, struct child_report *rep) {
        _cleanup_close_ int at = open_target(target, v->owner);
        if (at < 0)
                return child_fail(rep, "open the view's place", at);
        _cleanup_close_ int fs = mount_tmpfs(v->bytes, VIEW_INODES, mode, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
        _cleanup_close_ int top = fs < 0 ? -1 : openat(fs, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (top < 0 || fchown(top, v->owner, v->owner) < 0)
                return child_fail(rep, "make a view", fs < 0 ? fs : -errno);
        int r = pack < 0 ? 0 : file_pack_unpack(pack, top, v->owner);
        if (r < 0)
                return child_fail(rep, "fill the view", r);
        if (read_only && (r = mount_attrs(fs, MOUNT_ATTR_RDONLY)) < 0)
                return child_fail(rep, "close the view", r);
        if (move_mount(fs, "", at, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
                return child_fail(rep, "attach the view", -errno);
        return 0;
}

static int make_view(const struct child_join *c) {
        const struct child_view *v = &c->view;
        struct child_report *rep = c->report;
        if (unshare(CLONE_NEWNS) < 0)
                return child_fail(rep, "make a view", -errno);
        int r = cover(v, v->target, 0755, v->pack, v->read_only, rep);
        if (r == 0 && v->output)
                r = cover(v, v->output, 0777, -1, false, rep);
        if (r < 0)
                return r;
        /* By our own /proc: inside, the name could mean anything. */
        _cleanup_close_ int ns = openat(v->proc, "self/ns/mnt", O_RDONLY | O_CLOEXEC);
        r = ns < 0 ? -errno : child_send_fd(v->socket, ns);
        return r < 0 ? child_fail(rep, "pass the view on", r) : 0;
}

/* ---- joining ---- */

static int open_helper_fds(struct child_join *c, struct exec_request *x) {
        int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (root < 0)
                return -errno;
        x->fds[x->n_fds++] = (struct exec_fd){ root, HELPER_ROOT_FD };
        static const int target[PLANE_MAX] = { [PLANE_ROOT] = HELPER_BASE_FD, [PLANE_USR] = HELPER_BASE_USR_FD, [PLANE_OPT] = HELPER_BASE_OPT_FD };
        for (int p = 0; c->base && p < PLANE_MAX; p++)
                if (c->base[p] >= 0)
                        x->fds[x->n_fds++] = (struct exec_fd){ c->base[p], target[p] };
        for (int p = 0; c->upper >= 0 && p < PLANE_MAX; p++) {
                int fd = openat(c->upper, plane_dir[p], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                if (fd < 0 && errno != ENOENT)
                        return -errno;
                if (fd >= 0)
                        x->fds[x->n_fds++] = (struct exec_fd){ fd, HELPER_UPPER_FD + p };
        }
        if (c->own >= 0)
                x->fds[x->n_fds++] = (struct exec_fd){ c->own, HELPER_OWN_FD };
        return 0;
}

NORETURN static void join_main(struct child_join *c) {
        struct child_report *rep = c->report;
        int r = c->exec.cgroup ? cgroup_attach(c->exec.cgroup, c->exec.group, 0, c->exec.cloned_in) : 0;
        if (r < 0) {
                child_fail(rep, "join the cgroup", r);
                _exit(1);
        }
        int flags = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWCGROUP;
        if (!c->helper)
                flags |= CLONE_NEWNET;
        if (setns(c->init_pidfd, flags) < 0 || (c->helper && setns(c->net_ns, CLONE_NEWNET) < 0) ||
            (c->view_ns >= 0 && setns(c->view_ns, CLONE_NEWNS) < 0)) {
                child_fail(rep, "join the sandbox", -errno);
                _exit(1);
        }
        if (c->view.target && make_view(c) < 0)
                _exit(1);
        child_settle();
        struct exec_request x = *c->exec.x;
        c->exec.x = &x;
        if (c->helper) {
                r = open_helper_fds(c, &x);
                if (r < 0) {
                        child_fail(rep, "open the root", r);
                        _exit(1);
                }
        }
        child_finish(&c->exec, rep);
        _exit(1);
}

int child_join(struct child_join *c, pid_t *ret_pid) {
        *c->report = (struct child_report){ 0 };
        struct clone_args args = { .exit_signal = SIGCHLD };
        child_born_in_group(&c->exec, &args);
        /* A PID namespace can only be given to a child: the spawner points at the sandbox's for one clone. */
        static int own_ns = -1;
        if (own_ns < 0)
                own_ns = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
        if (c->helper)
                args.flags |= CLONE_NEWPID;
        else if (setns(c->init_pidfd, CLONE_NEWPID) < 0)
                return child_fail(c->report, "join the PID namespace", -errno);
        pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
        if (pid == 0)
                join_main(c);
        int r = pid < 0 ? -errno : 0;
        if (!c->helper && setns(own_ns, CLONE_NEWPID) < 0)
                abort();       /* every later child would be born in somebody's sandbox */
        if (r < 0)
                return child_fail(c->report, "clone", r);
        *ret_pid = pid;
        return 0;
}
