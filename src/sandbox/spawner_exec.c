/* Operations on execs: start, kill, reap. */
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "sandbox/child.h"
#include "sandbox/mounts.h"
#include "sandbox/seccomp.h"
#include "sandbox/spec.h"

/* ---- table ---- */

int proc_new(struct spawn *sp, struct cell *c, struct proc **ret) {
        struct proc *p = calloc(1, sizeof *p);
        if (!p)
                return -ENOMEM;
        int r = handle_new(&sp->procs, p, &p->handle);
        if (r < 0) {
                free(p);
                return r;
        }
        p->cell = c;
        p->group = p->view_socket = -1;
        p->report = &sp->reports[(uint32_t)p->handle - 1u];
        *p->report = (struct child_report){ 0 };
        c->n_procs++;
        *ret = p;
        return 0;
}

void proc_free(struct spawn *sp, struct proc *p) {
        group_give(p);
        fd_close(p->view_socket);
        p->cell->n_procs--;
        handle_drop(&sp->procs, p->handle);
        free(p);
}

/* ---- views ---- */

/* The child sends its mount namespace before it executes; it is there when it has ended. */
static void view_take(struct proc *p) {
        union { struct cmsghdr align; char space[CMSG_SPACE(sizeof(int))]; } control;
        char byte;
        struct iovec iov = { &byte, 1 };
        struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof control };
        if (p->view_socket < 0 || recvmsg(p->view_socket, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) < 0)
                return;
        const struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
                return;
        fd_close(p->cell->view_ns);
        memcpy(&p->cell->view_ns, CMSG_DATA(c), sizeof p->cell->view_ns);
        p->view_socket = fd_close(p->view_socket);
}

static void views_take(struct spawn *sp, const struct cell *c) {
        for (size_t i = 0; i < sp->procs.alloc; i++) {
                struct proc *p = sp->procs.object[i];
                if (p && p->cell == c)
                        view_take(p);
        }
}

static int view_prepare(struct spawn *sp, struct proc *p, const struct exec_request *x, struct child_join *j, int *ret_far) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                return -errno;
        p->view_socket = pair[0];
        j->view = (struct child_view){ .target = x->view, .output = x->view_output, .pack = x->view_pack, .bytes = x->view_bytes, .read_only = x->view_read_only, .owner = p->cell->seat->base,
                                       .proc = sp->own_proc, .socket = pair[1] };
        *ret_far = pair[1];
        return 0;
}

/* ---- ends ---- */

static void send_exited(struct spawn *sp, struct proc *p, const char *step, int code, int status, const struct rusage *ru, bool frozen) {
        _cleanup_buf_ struct buf b = BUF_INIT(4096);
        wire_put_u32(&b, code == 0);
        wire_put_str(&b, step ? step : "");
        wire_put_u32(&b, (uint32_t)code);
        wire_put_u32(&b, (uint32_t)status);
        wire_put(&b, ru, sizeof *ru);
        wire_put_u32(&b, frozen);
        spawner_send(sp, EV_EXITED, p->ref, p->handle, &b, NULL, 0);
}

static void proc_end(struct spawn *sp, struct proc *p, bool frozen) {
        send_exited(sp, p, p->report->step, p->report->code, p->status, &p->usage, frozen);
        proc_free(sp, p);
}

void procs_release_held(struct spawn *sp, struct cell *c, bool frozen) {
        for (size_t i = 0; i < sp->procs.alloc; i++) {
                struct proc *p = sp->procs.object[i];
                if (p && p->cell == c && p->held) {
                        p->held = false;
                        proc_end(sp, p, frozen);
                }
        }
}

struct proc *proc_of_pid(struct spawn *sp, pid_t pid) {
        for (size_t i = 0; i < sp->procs.alloc; i++) {
                struct proc *p = sp->procs.object[i];
                if (p && p->pid == pid)
                        return p;
        }
        return NULL;
}

void proc_reaped(struct spawn *sp, struct proc *p, int status, const struct rusage *ru) {
        struct cell *c = p->cell;
        launcher_listen(sp, c);            /* why it did not execute, if so */
        /* Who reads "killed" should know why: the event of the same death may come after it. */
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
                cell_check_oom(sp, c);
        view_take(p);
        p->pid = 0;
        p->status = status;
        p->usage = *ru;
        p->held = p->freeze_at_end && c->state == CELL_READY && p->report->code == 0;
        if (!p->held || c->freeze == FREEZE_STANDS)
                proc_end(sp, p, p->held);
        else if (freeze_start(sp, c) < 0)
                procs_release_held(sp, c, false);      /* it is told that they did not stand */
        cell_advance(sp, c);
}

void proc_failed(struct spawn *sp, struct proc *p, const char *step, int code) {
        if (p->launching)
                sp->n_launching--;
        p->launching = false;
        *p->report = (struct child_report){ .step = step, .code = code };
        proc_end(sp, p, false);
        timer_arm(sp, 1);      /* cells_tick sees whether that was what its sandbox waited for */
}

/* ---- start ---- */

/* Lowers of the planes as read-only mounts, made on first use and kept. */
static int base_view(struct spawn *sp, struct cell *c, bool all) {
        return c->base[PLANE_ROOT] < 0 || (all && !c->base_all) ? cell_base(sp, c, all) : 0;
}

/* The next exec's, where there was one before. A launcher takes half a millisecond: one at a time. */
bool execs_prepare(struct spawn *sp) {
        bool more = false;
        for (size_t i = 0; i < sp->cells.alloc && !more; i++) {
                struct cell *c = sp->cells.object[i];
                if (c && c->state == CELL_READY) {
                        group_make_spare(c);
                        more = launcher_prepare(sp, c);
                }
        }
        return more;
}

static int start(struct spawn *sp, struct cell *c, struct proc *p, struct exec_request *x, struct fault *f) {
        struct child_join j = {
                .init_pidfd = c->init_pidfd, .helper = x->helper, .net_ns = sp->idle_net, .view_ns = -1, .upper = -1, .own = -1, .report = p->report,
                .exec = {
                        .x = x, .program = x->helper ? sp->helper_image : -1, .user_ns = c->seat->user_ns, .null_fd = sp->null_file,
                        .filter = cell_filter(c, false), .cgroup = c->cgroup, .group = p->group,
                },
        };
        _cleanup_close_ int own = x->helper && x->helper_upper ? cell_open_resolv_conf(c) : -1;
        cell_confine(c, x->helper, &j.exec.confine);
        if (x->helper) {
                int made = base_view(sp, c, x->helper_upper);
                if (made < 0)
                        return fault_set(f, "attach the base view", made);
                j.base = c->base;
                j.upper = x->helper_upper ? c->upper : -1;
                j.own = own;
        }
        _cleanup_close_ int far = -1;
        if (x->in_view) {
                views_take(sp, c);
                if (c->view_ns < 0)
                        return fault_set(f, "find the view", -ENOENT);
                j.view_ns = c->view_ns;
        }
        int r = x->view ? view_prepare(sp, p, x, &j, &far) : 0;
        if (r < 0)
                return fault_set(f, "make a view", r);
        r = child_join(&j, &p->pid);
        return r < 0 ? fault_set(f, p->report->step ? p->report->step : "clone", r) : 0;
}

int op_exec(struct spawn *sp, struct message *m, struct fault *f) {
        struct cell *c = handle_get(&sp->cells, m->handle);
        if (!c)
                return fault_set(f, "find the sandbox", -ENOENT);
        if (c->state != CELL_READY || c->direct || (c->killing && !c->sparing))
                return fault_set(f, "exec in a sandbox that has ended", -ESHUTDOWN);
        struct exec_request x;
        int r = exec_request_decode(m, &x);
        if (r < 0)
                return fault_set(f, "check the exec", r);
        if (!x.helper && (c->freeze != FREEZE_NONE || c->sparing)) {
                exec_request_release(&x);
                return fault_set(f, "exec in a sandbox that stands still", -EBUSY);
        }
        struct proc *p;
        r = proc_new(sp, c, &p);
        if (r < 0)
                fault_set(f, "make the exec", r);
        else {
                group_take(c, p, x.helper);
                p->freeze_at_end = x.freeze_at_end;
                p->ref = m->ref;
                c->commands += !x.helper;
                r = launch(sp, c, p, &x);
                if (r == 0)
                        r = start(sp, c, p, &x, f);
                if (r < 0)
                        proc_free(sp, p);
                else
                        spawner_send(sp, EV_STARTED, m->ref, p->handle, NULL, NULL, 0);
        }
        exec_request_release(&x);
        timer_arm(sp, 100);
        return r;
}

int op_exec_kill(struct spawn *sp, struct message *m, struct fault *f) {
        struct proc *p = handle_get(&sp->procs, m->handle);
        if (!p)
                return 0;      /* it has ended meanwhile: the event is on its way */
        struct cell *c = p->cell;
        p->kill_wanted = true;             /* should it not be born yet */
        launcher_listen(sp, c);
        if (handle_get(&sp->procs, m->handle) != p)
                return 0;
        if (p->group >= 0 && cgroup_sub_kill(p->group) == 0)
                return 0;
        /* Without a group of its own what it started cannot be told from what others did: all go. PID 1 takes all along. */
        if (p->pid > 0)
                kill(p->pid, SIGKILL);
        if (c->control.fd >= 0 && write(c->control.fd, "K", 1) != 1)
                return fault_set(f, "kill the exec", -EPIPE);
        return 0;
}

int op_exec_signal(struct spawn *sp, struct message *m, struct fault *f) {
        uint32_t sig = wire_get_u32(&m->wire);
        if (m->wire.bad || sig < 1 || sig > 64)
                return fault_set(f, "signal", -EINVAL);
        struct proc *p = handle_get(&sp->procs, m->handle);
        if (p && p->pid == 0 && p->launching)
                launcher_listen(sp, p->cell);
        p = handle_get(&sp->procs, m->handle);
        if (p && p->pid > 0)
                kill(p->pid, (int)sig);    /* not reaped, so the number is still its own */
        return 0;
}
