/* The daemon's end of the socket to the spawner: start, answers to whom they belong, its death. */
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <string.h>
#include <sys/poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "sandbox/client.h"

#define HELLO_TIMEOUT_MS 60000         /* the first start of a machine copies the host image's skeleton */

/* ---- who waits for what ---- */

static int refs_grow(struct spawner *sp) {
        size_t alloc = MAX2((size_t)64, sp->alloc_refs * 2);
        struct client_ref *grown = calloc(alloc, sizeof *grown);
        if (!grown)
                return -ENOMEM;
        for (size_t i = 0; i < sp->alloc_refs; i++) {
                if (sp->refs[i].ref)
                        for (size_t at = sp->refs[i].ref % alloc;; at = (at + 1) % alloc) {
                                if (!grown[at].ref) {
                                        grown[at] = sp->refs[i];
                                        break;
                                }
                        }
        }
        free(sp->refs);
        sp->refs = grown;
        sp->alloc_refs = alloc;
        return 0;
}

static struct client_ref *ref_find(struct spawner *sp, uint64_t ref) {
        if (sp->alloc_refs == 0 || ref == 0)
                return NULL;
        for (size_t at = ref % sp->alloc_refs, n = 0; n < sp->alloc_refs && sp->refs[at].ref; at = (at + 1) % sp->alloc_refs, n++) {
                if (sp->refs[at].ref == ref)
                        return &sp->refs[at];
        }
        return NULL;
}

int client_ref_new(struct spawner *sp, void (*answer)(struct spawner *, struct message *, void *), void *user, uint64_t *ret) {
        if (sp->n_refs * 2 >= sp->alloc_refs) {
                int r = refs_grow(sp);
                if (r < 0)
                        return r;
        }
        uint64_t ref = ++sp->next_ref;
        size_t at = ref % sp->alloc_refs;
        while (sp->refs[at].ref)
                at = (at + 1) % sp->alloc_refs;
        sp->refs[at] = (struct client_ref){ ref, answer, user };
        sp->n_refs++;
        *ret = ref;
        return 0;
}

void client_ref_drop(struct spawner *sp, uint64_t ref) {
        struct client_ref *r = ref_find(sp, ref);
        if (!r)
                return;
        size_t hole = (size_t)(r - sp->refs), n = sp->alloc_refs;
        sp->n_refs--;
        /* Close the hole: whatever was pushed past it by collision moves back. */
        for (size_t at = (hole + 1) % n; sp->refs[at].ref; at = (at + 1) % n) {
                size_t home = sp->refs[at].ref % n;
                if ((at > hole && (home <= hole || home > at)) || (at < hole && home <= hole && home > at)) {
                        sp->refs[hole] = sp->refs[at];
                        hole = at;
                }
        }
        sp->refs[hole] = (struct client_ref){ 0 };
}

/* ---- the socket ---- */

static void update_poll(struct spawner *sp);

/* It gives itself SPAWNER_LOST_S; one that is stopped or hangs in the kernel must not hang the daemon too. What it has is then
 * removed when it goes, or by the sweep of the next start. */
static void await_end(struct spawner *sp) {
        struct pollfd p = { .fd = sp->pidfd, .events = POLLIN };
        uint64_t until = now_ms() + (SPAWNER_LOST_S + 2) * 1000, now;
        int r = -1;
        while (r < 0 && (now = now_ms()) < until && ((r = poll(&p, 1, (int)(until - now))) >= 0 || errno == EINTR))
                ;
        if (r != 0)
                (void)waitpid(sp->pid, NULL, WNOHANG);
}

static void on_lost(struct spawner *sp) {
        if (sp->dead)
                return;
        sp->dead = true;
        uv_poll_stop(&sp->poll);
        /* End of file is what makes a living one clean up and exit; the unprivileged daemon could not kill it, or wait for it
         * before it has let go of the socket. */
        shutdown(sp->channel.fd, SHUT_RDWR);
        await_end(sp);
        sandbox_all_lost(sp);
        if (sp->stopping) {
                if (sp->stopped)
                        sp->stopped(sp->stopped_user);
        } else if (sp->lost)
                sp->lost(sp->lost_user);
}

static void dispatch(struct spawner *sp, struct message *m) {
        struct client_ref *r = m->ref ? ref_find(sp, m->ref) : NULL;
        if (r)
                r->answer(sp, m, r->user);
        else if (m->handle)
                sandbox_event(sp, m);
}

static void on_poll(uv_poll_t *poll, int status, int events) {
        struct spawner *sp = poll->data;
        if (events & UV_WRITABLE && channel_flush(&sp->channel) < 0)
                status = -EPIPE;
        for (int i = 0; i < 64 && status == 0 && !sp->dead; i++) {
                CLEANUP(cleanup_message) struct message *m = NULL;
                int r = channel_recv(&sp->channel, &m);
                if (r < 0)
                        status = r;
                if (r <= 0)
                        break;
                dispatch(sp, m);
        }
        if (status < 0)
                on_lost(sp);
        else if (!sp->dead)
                update_poll(sp);
}

static void update_poll(struct spawner *sp) {
        uv_poll_start(&sp->poll, UV_READABLE | (channel_pending(&sp->channel) ? UV_WRITABLE : 0), on_poll);
}

int client_send(struct spawner *sp, uint32_t type, uint64_t ref, uint64_t handle, const struct buf *body, const int *fds, size_t n_fds) {
        if (sp->dead)
                return -EPIPE;
        int r = channel_send(&sp->channel, type, ref, handle, body, fds, n_fds);
        if (r == 0 && channel_pending(&sp->channel))
                update_poll(sp);
        return r;
}

/* ---- start ---- */

NORETURN static void child(int socket, const char *path) {
        /* Descriptor 3 is the socket; the environment stays behind, but for what tests force. */
        char force[512];
        const char *missing = getenv("BRIG_FORCE_MISSING");
        snprintf(force, sizeof force, "BRIG_FORCE_MISSING=%s", missing ? missing : "");
        char *const argv[] = { (char *)"brig", (char *)"spawner", NULL };
        char *const env[] = { (char *)"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", missing ? force : NULL, NULL };
        if (socket == 3 ? fcntl(3, F_SETFD, 0) < 0 : dup2(socket, 3) < 0)
                _exit(127);
        execve(path ? path : "/proc/self/exe", argv, env);
        _exit(127);
}

static int send_config(struct spawner *sp, const struct spawner_config *cfg) {
        _cleanup_buf_ struct buf b = BUF_INIT(MESSAGE_BODY_MAX);
        int r = wire_put_str(&b, cfg->home);
        if (r == 0)
                r = wire_put_str(&b, cfg->instance);
        if (r == 0)
                r = wire_put_u32(&b, cfg->id_base);
        if (r == 0)
                r = wire_put_u32(&b, cfg->daemon_uid);
        if (r == 0)
                r = wire_put_u32(&b, cfg->daemon_gid);
        if (r == 0)
                r = wire_put_strv(&b, cfg->image_roots);
        if (r == 0)
                r = wire_put_strv(&b, cfg->network_allow);
        return r < 0 ? r : channel_send(&sp->channel, REQ_HELLO, 0, 0, &b, NULL, 0);
}

static int await_hello(struct spawner *sp, struct error *e) {
        CLEANUP(cleanup_message) struct message *m = NULL;
        struct pollfd p = { .fd = sp->channel.fd, .events = POLLIN };
        int r = poll(&p, 1, HELLO_TIMEOUT_MS);
        if (r == 0)
                return error_say(e, -ETIMEDOUT, "start the spawner: no answer within %d s; does the last daemon's still remove what it had?", HELLO_TIMEOUT_MS / 1000);
        if (r > 0)
                r = channel_recv(&sp->channel, &m);
        if (r <= 0 || m->type != EV_HELLO)
                return error_set(e, r < 0 ? r : -EPROTO, "start the spawner");
        int code = (int)wire_get_u32(&m->wire);
        const char *text = wire_get_str(&m->wire), *fingerprint = wire_get_str(&m->wire);
        if (m->wire.bad || !text || !fingerprint)
                return error_set(e, -EPROTO, "start the spawner");
        if (code < 0)
                return error_say(e, code, "start the spawner: %s", text);
        snprintf(sp->description, sizeof sp->description, "%s", text);
        snprintf(sp->fingerprint, sizeof sp->fingerprint, "%s", fingerprint);
        return 0;
}

int spawner_start(uv_loop_t *loop, const struct spawner_config *cfg, struct spawner **ret, struct error *e) {
        int pair[2];
        struct spawner *sp = calloc(1, sizeof *sp);
        if (!sp)
                return error_set(e, -ENOMEM, "start the spawner");
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
                free(sp);
                return error_set(e, -errno, "socketpair");
        }
        sp->loop = loop;
        sp->pidfd = -1;
        struct clone_args args = { .flags = CLONE_NEWPID | CLONE_PIDFD, .pidfd = (uint64_t)(uintptr_t)&sp->pidfd, .exit_signal = SIGCHLD };
        sp->pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
        if (sp->pid == 0)
                child(pair[1], cfg->program);
        int r = sp->pid < 0 ? error_set(e, -errno, "clone the spawner") : 0;
        close(pair[1]);
        channel_init(&sp->channel, pair[0]);
        if (r == 0) {
                r = send_config(sp, cfg);
                if (r < 0)
                        error_set(e, r, "configure the spawner");
        }
        if (r == 0)
                r = await_hello(sp, e);
        if (r == 0)
                r = uv_poll_init(loop, &sp->poll, sp->channel.fd);
        if (r < 0) {
                if (sp->pid > 0) {
                        kill(sp->pid, SIGKILL);
                        waitpid(sp->pid, NULL, 0);
                }
                channel_release(&sp->channel);
                fd_close(sp->pidfd);
                free(sp);
                return r;
        }
        sp->poll.data = sp;
        update_poll(sp);
        *ret = sp;
        return 0;
}

void spawner_on_lost(struct spawner *sp, void (*lost)(void *user), void *user) {
        sp->lost = lost;
        sp->lost_user = user;
}

void spawner_set_egress(struct spawner *sp, struct egress *eg) { sp->egress = eg; }
const char *spawner_image_digest(const struct spawner *sp) { return sp->fingerprint; }
pid_t spawner_pid(const struct spawner *sp) { return sp->pid; }
const char *spawner_describe(const struct spawner *sp) { return sp->description; }

void spawner_stop(struct spawner *sp, void (*done)(void *user), void *user) {
        sp->stopping = true;
        sp->stopped = done;
        sp->stopped_user = user;
        /* Its end of file is the confirmation: it exits only when all is removed. */
        if (client_send(sp, REQ_STOP, 0, 0, NULL, NULL, 0) < 0 && !sp->dead)
                on_lost(sp);
}

static void on_poll_closed(uv_handle_t *h) {
        struct spawner *sp = h->data;
        channel_release(&sp->channel);
        fd_close(sp->pidfd);
        layers_forget(sp);
        free(sp->refs);
        free(sp);
}

void spawner_free(struct spawner *sp) {
        if (!sp)
                return;
        if (!sp->dead) {
                sp->lost = NULL;
                sp->stopped = NULL;
                on_lost(sp);
        }
        uv_close((uv_handle_t *)&sp->poll, on_poll_closed);
}
