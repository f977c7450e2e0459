/* The spawner's side of the launchers; what one is: launcher.c.
 *
 * Nothing waits for what a launcher says, or each command would wake the spawner once more while it runs: it is read when a process has
 * died, when somebody wants to kill or signal, and with the tick that runs while there are commands. */
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fs.h"
#include "sandbox/child.h"
#include "sandbox/launch.h"
#include "sandbox/seccomp.h"

#define LAUNCHER_FILES 1024u           /* descriptors it may hold: those of a request, twice, at high numbers */
#define LAST_CAP 40u                   /* CAP_CHECKPOINT_RESTORE; the kernel's own last one is asked for */

static const char *const step_names[LAUNCH_STEP_MAX] = {
        [LAUNCH_OK] = "launch", [LAUNCH_REQUEST] = "launch: read the request", [LAUNCH_CLONE] = "clone", [LAUNCH_USER_NS] = "join the user namespace",
        [LAUNCH_FDS] = "place descriptors", [LAUNCH_LIMITS] = "set resource limits", [LAUNCH_BOUNDING] = "drop capabilities",
        [LAUNCH_FILTER] = "install the system call filter", [LAUNCH_IDS] = "set user ids", [LAUNCH_PRIVILEGES] = "set privileges",
        [LAUNCH_CWD] = "change to the working directory", [LAUNCH_EXECUTE] = "execute",
};

static uint32_t last_cap(void) {
        static uint32_t last;
        _cleanup_buf_ struct buf b = BUF_INIT(32);
        if (last == 0) {
                last = LAST_CAP;
                if (fs_read_file(AT_FDCWD, "/proc/sys/kernel/cap_last_cap", &b) == 0)
                        last = MIN2((uint32_t)strtoul(buf_str(&b), NULL, 10), 63u);
        }
        return last;
}

/* ---- its life ---- */

static int start(struct spawn *sp, struct cell *c) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                return -errno;
        _cleanup_close_ int ours = pair[0], theirs = pair[1];
        const int on = 1;
        static const char *const argv[] = { "launcher", NULL };
        const struct exec_request x = {
                .argv = (const char **)argv, .view_pack = -1,
                .fds = { { theirs, LAUNCH_CONTROL_FD }, { c->seat->user_ns, LAUNCH_USER_NS_FD }, { -1, LAUNCH_NULL_FD } }, .n_fds = LAUNCH_FIRST_FD,
        };
        struct child_report *report = &sp->reports[SPAWNER_PROCS_MAX];
        struct child_join j = {
                .init_pidfd = c->init_pidfd, .view_ns = -1, .upper = -1, .own = -1, .report = report,
                .exec = { .x = &x, .program = sp->launcher_image, .user_ns = -1, .null_fd = sp->null_file,
                          .filter = cell_filter(c, true), .cgroup = c->cgroup, .group = c->init_group },
        };
        if (setsockopt(ours, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) < 0)
                return -errno;
        cell_confine(c, false, &j.exec.confine);
        /* Only joining the user namespace, and naming a process in credentials. What it starts gets back what its profile allows
         * when it has joined. */
        j.exec.confine.caps = 1ull << CAP_SYS_ADMIN;
        j.exec.confine.no_new_privs = false;
        j.exec.confine.securebits = 0;
        j.exec.confine.nofile.rlim_max = MAX2(j.exec.confine.nofile.rlim_max, (rlim_t)LAUNCHER_FILES);
        j.exec.confine.nofile.rlim_cur = j.exec.confine.nofile.rlim_max;
        int r = child_join(&j, &c->launcher);
        if (r == 0)
                c->launch_fd = TAKE_FD(ours);
        return r;
}

bool launcher_prepare(struct spawn *sp, struct cell *c) {
        /* A task runs one command or two: it is not worth a process. */
        uint32_t worth = c->spec.profile == PROFILE_SESSION ? 1 : 2;
        if (sp->no_launchers || c->no_launcher || c->launcher > 0 || c->launch_fd >= 0 || c->commands < worth || c->direct || !c->cgroup || c->init_group < 0 ||
            c->freeze != FREEZE_NONE)
                return false;
        if (start(sp, c) < 0)
                c->no_launcher = true;
        return true;
}

void launcher_drop(struct spawn *sp, struct cell *c) {
        if (c->launch_fd < 0)
                return;
        c->launch_fd = fd_close(c->launch_fd);
        c->launcher_ready = false;
        for (size_t i = 0; i < sp->procs.alloc; i++) {
                struct proc *p = sp->procs.object[i];
                if (p && p->cell == c && p->launching)
                        proc_failed(sp, p, "launch", -EIO);
        }
}

bool launcher_reaped(struct spawn *sp, struct cell *c, pid_t pid) {
        if (c->launcher != pid)
                return false;
        launcher_listen(sp, c);
        c->no_launcher |= !c->launcher_ready;
        c->launcher = 0;
        launcher_drop(sp, c);
        return true;
}

/* ---- what it says ---- */

static void take_answer(struct spawn *sp, struct cell *c, const struct launch_answer *a, pid_t pid) {
        if (a->handle == 0) {
                c->launcher_ready = true;
                return;
        }
        struct proc *p = handle_get(&sp->procs, a->handle);
        if (!p || p->cell != c || a->step >= LAUNCH_STEP_MAX)
                return;
        bool was = p->launching;
        if (a->step == LAUNCH_OK || a->step == LAUNCH_CLONE || a->step == LAUNCH_REQUEST) {
                if (!was)
                        return;
                p->launching = false;
                sp->n_launching--;
                if (a->step != LAUNCH_OK || pid <= 0) {
                        proc_failed(sp, p, step_names[a->step], a->code < 0 ? a->code : -EIO);
                        return;
                }
                p->pid = pid;
                if (p->kill_wanted)
                        kill(pid, SIGKILL);
        } else
                *p->report = (struct child_report){ .step = step_names[a->step], .code = a->code < 0 ? a->code : -EIO };   /* it will be reaped */
}

void launcher_listen(struct spawn *sp, struct cell *c) {
        while (c->launch_fd >= 0) {
                union { struct cmsghdr align; char space[CMSG_SPACE(sizeof(struct ucred))]; } control;
                struct launch_answer a;
                struct iovec iov = { &a, sizeof a };
                struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof control };
                ssize_t n = recvmsg(c->launch_fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
                if (n < 0 && (errno == EAGAIN || errno == EINTR))
                        return;
                if (n != sizeof a) {
                        launcher_drop(sp, c);
                        return;
                }
                struct ucred who = { 0 };
                const struct cmsghdr *h = CMSG_FIRSTHDR(&msg);
                if (h && h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_CREDENTIALS)
                        memcpy(&who, CMSG_DATA(h), sizeof who);
                /* The launcher's own number stands there where it names nobody. */
                take_answer(sp, c, &a, who.pid == c->launcher ? 0 : who.pid);
        }
}

/* ---- requests ---- */

/* Where the string goes in the text; LAUNCH_NONE: no room. */
static uint32_t put_text(char *text, size_t size, size_t *at, const char *s) {
        size_t n = strlen(s) + 1, where = *at;
        if (n > size - where)
                return LAUNCH_NONE;
        memcpy(text + where, s, n);
        *at += n;
        return (uint32_t)where;
}

static const char *search_path(const struct exec_request *x) {
        for (const char *const *v = x->env; v && *v; v++)
                if (strncmp(*v, "PATH=", 5) == 0)
                        return *v + 5;
        return CHILD_DEFAULT_PATH;
}

static size_t count(const char *const *v) {
        size_t n = 0;
        while (v && v[n])
                n++;
        return n;
}

union request { struct launch_request r; char bytes[LAUNCH_BYTES_MAX]; };

/* Bytes to send, or 0: too much for one request. */
static size_t fill(const struct cell *c, const struct proc *p, const struct exec_request *x, union request *u) {
        struct confine_plan plan;
        size_t n_argv = count(x->argv), n_env = count(x->env), lists = (n_argv + n_env + 2) * sizeof(uint64_t), at = 0;
        if (n_argv + n_env > LAUNCH_BYTES_MAX / sizeof(uint64_t) || sizeof u->r + lists >= sizeof *u || x->n_fds > LAUNCH_FDS_MAX)
                return 0;
        cell_confine(c, false, &plan);
        u->r = (struct launch_request){
                .handle = p->handle, .caps = plan.caps, .nofile_soft = plan.nofile.rlim_cur, .nofile_hard = plan.nofile.rlim_max, .securebits = plan.securebits,
                .no_new_privs = plan.no_new_privs, .uid = x->uid, .gid = x->gid, .last_cap = last_cap(), .n_argv = (uint32_t)n_argv, .n_env = (uint32_t)n_env,
                .cwd = LAUNCH_NONE, .path = LAUNCH_NONE, .n_fds = (uint32_t)x->n_fds,
        };
        for (size_t i = 0; i < x->n_fds; i++)
                u->r.target[i] = (uint8_t)x->fds[i].target;
        uint64_t *list = (uint64_t *)(void *)(u->bytes + sizeof u->r);
        char *text = u->bytes + sizeof u->r + lists;
        size_t room = sizeof *u - sizeof u->r - lists;
        bool fits = true;
        for (size_t i = 0; i < n_argv + n_env + 2 && fits; i++) {
                const char *s = i < n_argv ? x->argv[i] : i > n_argv && i < n_argv + 1 + n_env ? x->env[i - n_argv - 1] : NULL;
                uint32_t where = s ? put_text(text, room, &at, s) : 0;
                fits = where != LAUNCH_NONE;
                list[i] = s ? where + 1u : 0;
        }
        if (x->cwd) {
                u->r.cwd = put_text(text, room, &at, x->cwd);
                fits &= u->r.cwd != LAUNCH_NONE;
        }
        if (!strchr(x->argv[0], '/')) {
                u->r.path = put_text(text, room, &at, search_path(x));
                fits &= u->r.path != LAUNCH_NONE;
        }
        u->r.n_text = (uint32_t)at;
        return fits ? sizeof u->r + lists + at : 0;
}

static int send_request(struct spawn *sp, const struct cell *c, const struct proc *p, const struct exec_request *x, union request *u, size_t n) {
        union { struct cmsghdr align; char space[CMSG_SPACE(sizeof(int) * (LAUNCH_FDS_MAX + 1))]; } control = { .space = { 0 } };
        int fds[LAUNCH_FDS_MAX + 1] = { p->group };
        size_t size = sizeof(int) * (x->n_fds + 1);
        for (size_t i = 0; i < x->n_fds; i++)
                fds[i + 1] = x->fds[i].fd < 0 ? sp->null_file : x->fds[i].fd;
        struct iovec iov = { u, n };
        struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = CMSG_SPACE(size) };
        control.align = (struct cmsghdr){ .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(size) };
        memcpy(CMSG_DATA(&control.align), fds, size);
        return sendmsg(c->launch_fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

int launch(struct spawn *sp, struct cell *c, struct proc *p, const struct exec_request *x) {
        static union request u;            /* one thread */
        if (c->launch_fd >= 0 && !c->launcher_ready)
                launcher_listen(sp, c);
        if (!c->launcher_ready || x->helper || x->tty || x->view || p->group < 0)
                return 0;
        size_t n = fill(c, p, x, &u);
        if (n == 0)
                return 0;
        /* Its queue is full, or it is dying: the long way. */
        if (send_request(sp, c, p, x, &u, n) < 0)
                return 0;
        p->launching = true;
        sp->n_launching++;
        return 1;
}
