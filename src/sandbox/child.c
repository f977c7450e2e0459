/* What runs in a child of the spawner before it executes its program; the end that all births have in common. */
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/fs.h"
#include "sandbox/child_private.h"
#include "sandbox/facilities.h"
#include "sandbox/seccomp.h"

#define HIGH_FD 512            /* above every target: where descriptors wait while those are filled */

int child_fail(struct child_report *r, const char *step, int code) {
        r->code = code;
        r->step = step;
        return code;
}

int child_send_fd(int socket, int fd) {
        union { struct cmsghdr align; char space[CMSG_SPACE(sizeof(int))]; } control = { .space = { 0 } };
        char byte = 0;
        struct iovec iov = { &byte, 1 };
        struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof control.space };
        control.align = (struct cmsghdr){ .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int)) };
        memcpy(CMSG_DATA(&control.align), &fd, sizeof fd);
        return sendmsg(socket, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

/* ---- what every birth ends with ---- */

/* Descriptors that live on, moved out of the way in ascending order. */
struct parked { bool shared; int fd[CHILD_SLOTS]; size_t n; };

static int park(struct parked *p, int *fd) {
        if (*fd < 0)
                return 0;
        *fd = p->shared ? dup3(*fd, CHILD_SLOT + (int)p->n, O_CLOEXEC) : fcntl(*fd, F_DUPFD_CLOEXEC, p->n ? p->fd[p->n - 1] + 1 : HIGH_FD);
        if (*fd < 0)
                return -errno;
        p->fd[p->n++] = *fd;
        return 0;
}

/* Everything else is really closed, not only on execve: a link of the sandbox's to /proc/self/fd/N must find nothing of the
 * spawner's when the working directory or the program is looked up. */
static int close_others(const struct parked *p) {
        unsigned from = 0;
        for (size_t i = 0; i < p->n; i++) {
                unsigned fd = (unsigned)p->fd[i];
                if (fd > from && close_range(from, fd - 1, 0) < 0)
                        return -errno;
                from = fd + 1;
        }
        return close_range(from, ~0u, 0) < 0 ? -errno : 0;
}

int child_slots_reserve(int null_fd) { return child_slots_restore(null_fd, CHILD_SLOTS); }

int child_slots_restore(int null_fd, size_t n) {
        for (size_t i = 0; i < n; i++)
                if (dup3(null_fd, CHILD_SLOT + (int)i, O_CLOEXEC) < 0)
                        return -errno;
        return 0;
}

static int place_fds(struct child_exec *c) {
        struct parked p = { .shared = c->shared_files };
        const struct exec_request *x = c->x;
        int source[MESSAGE_FDS_MAX];
        int r = park(&p, &c->user_ns);
        if (r == 0)
                r = park(&p, &c->program);
        if (r == 0)
                r = park(&p, &c->confine.landlock_fd);
        for (size_t i = 0; i < x->n_fds && r == 0; i++) {
                source[i] = x->fds[i].fd < 0 ? c->null_fd : x->fds[i].fd;
                r = park(&p, &source[i]);
        }
        c->slots_used = p.n;
        /* From here on the table is our own, and holds nothing from the last slot on: what is not wanted is not even copied. */
        if (r == 0 && p.shared && close_range(CHILD_SLOT + (unsigned)p.n, ~0u, CLOSE_RANGE_UNSHARE) < 0)
                r = -errno;
        if (r == 0)
                r = close_others(&p);
        for (size_t i = 0; i < x->n_fds && r == 0; i++) {
                if (dup2(source[i], x->fds[i].target) < 0)
                        r = -errno;
                close(source[i]);
        }
        return r;
}

static void reset_signals(void) {
        struct sigaction dfl = { .sa_handler = SIG_DFL };
        sigset_t none;
        sigemptyset(&none);
        sigaction(SIGPIPE, &dfl, NULL);
        sigprocmask(SIG_SETMASK, &none, NULL);
}

/* As execvp, but with the PATH of the new environment and within the sandbox. */
static int exec_lookup(const struct exec_request *x) {
        const char *path = CHILD_DEFAULT_PATH;
        for (const char *const *v = x->env; v && *v; v++) {
                if (strncmp(*v, "PATH=", 5) == 0)
                        path = *v + 5;
        }
        size_t name = strlen(x->argv[0]);
        int r = -ENOENT;
        for (;;) {
                char full[4096];
                size_t n = strcspn(path, ":");
                if (n > 0 && n + name + 2 <= sizeof full) {
                        memcpy(full, path, n);
                        full[n] = '/';
                        memcpy(full + n + 1, x->argv[0], name + 1);
                        execve(full, (char *const *)x->argv, (char *const *)x->env);
                        if (errno == EACCES)
                                r = -EACCES;
                        else if (errno != ENOENT && errno != ENOTDIR)
                                return -errno;
                }
                if (path[n] == 0)
                        return r;
                path += n + 1;
        }
}

static int become(struct child_exec *c, struct child_report *rep) {
        const struct exec_request *x = c->x;
        const gid_t gid = x->gid;
        /* While it is still root inside, with all capabilities: dropping from the bounding set takes CAP_SETPCAP, and without
         * no_new_privs the others take CAP_SYS_ADMIN. */
        int r = confine_bounding(&c->confine);
        if (r < 0)
                return child_fail(rep, "drop capabilities", r);
        r = confine_landlock(&c->confine);
        if (r < 0)
                return child_fail(rep, "restrict by Landlock", r);
        r = c->filtered ? 0 : seccomp_install(c->filter);
        if (r < 0)
                return child_fail(rep, "install the system call filter", r);
        /* The ids go through plain system calls: the C library's own would try to change every thread's, which share
         * their memory with the spawner here. */
        if (syscall(SYS_setgroups, 1, &gid) < 0 || syscall(SYS_setresgid, gid, gid, gid) < 0)
                return child_fail(rep, "set group ids", -errno);
        if (syscall(SYS_setresuid, x->uid, x->uid, x->uid) < 0)
                return child_fail(rep, "set user ids", -errno);
        r = confine_privileges(&c->confine, x->uid);
        return r < 0 ? child_fail(rep, "set privileges", r) : 0;
}

void child_settle(void) {
        setsid();
        umask(022);
        reset_signals();
}

/* Its own terminal, from the sandbox's devpts, made as the program's own user. The other side goes to whoever reads what is stdin until
 * then. */
static int open_terminal(const struct exec_request *x, struct child_report *rep) {
        const struct open_how how = { .flags = O_RDWR | O_NOCTTY | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS };
        int other = (int)syscall(SYS_openat2, AT_FDCWD, "/dev/pts/ptmx", &how, sizeof how), unlock = 0;
        if (other < 0 || ioctl(other, TIOCSPTLCK, &unlock) < 0)
                return child_fail(rep, "make a terminal", -errno);
        int own = ioctl(other, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
        const struct winsize size = { .ws_row = x->rows, .ws_col = x->cols };
        if (own < 0 || ioctl(own, TIOCSWINSZ, &size) < 0 || ioctl(own, TIOCSCTTY, 0) < 0)
                return child_fail(rep, "make a terminal", -errno);
        int r = child_send_fd(0, other);
        if (r < 0)
                return child_fail(rep, "pass the terminal on", r);
        for (int i = 0; i < 3; i++)
                if (dup2(own, i) < 0)
                        return child_fail(rep, "make a terminal", -errno);
        close(own);
        close(other);
        return 0;
}

/* Already in every namespace but the user's; or, with user_ns -1, in that too. */
int child_finish(struct child_exec *c, struct child_report *rep) {
        const struct exec_request *x = c->x;
        static const char *const no_env[] = { NULL };
        int r = place_fds(c);
        if (r < 0)
                return child_fail(rep, "place descriptors", r);
        r = confine_rlimits(&c->confine);
        if (r < 0)
                return child_fail(rep, "set resource limits", r);
        if (c->user_ns >= 0 && setns(c->user_ns, CLONE_NEWUSER) < 0)
                return child_fail(rep, "join the user namespace", -errno);
        fd_close(c->user_ns);
        r = become(c, rep);
        if (r == 0 && x->tty)
                r = open_terminal(x, rep);
        if (r < 0)
                return r;
        /* Last, as nobody but the program's own user: the path is the sandbox's, links and all. */
        if (x->cwd && chdir(x->cwd) < 0)
                return child_fail(rep, "change to the working directory", -errno);
        char *const *argv = (char *const *)x->argv, *const *env = (char *const *)(x->env ? x->env : (const char **)no_env);
        if (c->program >= 0)
                r = syscall(SYS_execveat, c->program, "", argv, env, AT_EMPTY_PATH) < 0 ? -errno : 0;
        else if (strchr(x->argv[0], '/'))
                r = execve(x->argv[0], argv, env) < 0 ? -errno : 0;
        else
                r = exec_lookup(x);
        return child_fail(rep, "execute", r);
}

/* Being born in the group costs nothing; moving there takes a lock that waits for a grace period: up to 10 ms. */
void child_born_in_group(struct child_exec *c, struct clone_args *args) {
        c->cloned_in = c->cgroup && c->group >= 0 && facility_ok(FACILITY_CLONE_INTO_CGROUP);
        if (c->cloned_in) {
                args->flags |= CLONE_INTO_CGROUP;
                args->cgroup = (uint64_t)c->group;
        }
}
