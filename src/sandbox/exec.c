/* Execs, the daemon's side: pipes, captures, time, the end.
 *
 * The end of an exec is the death of its main process, not the end of its output: what it left behind may hold the pipes open
 * for ever, and fill them for ever. So when the status arrives, exactly the bytes that are in the pipes at that moment are
 * taken, and the pipes are closed. */
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/clock.h"
#include "sandbox/capture.h"
#include "sandbox/client.h"
#include "sandbox/spec.h"

#define READ_SIZE 65536

struct stream { uv_poll_t poll; int fd; struct output_capture *capture; struct sandbox_exec *exec; bool polled; };

struct sandbox_exec {
        struct sandbox_exec *next, **prev;
        struct sandbox *sandbox;
        uint64_t ref, handle;
        struct stream stream[2];
        int write_end[2];
        uv_timer_t timer;
        uint64_t timeout_ms, started_ms, output_bytes;
        bool linked, timer_made, ended;
        int pending;                       /* signal asked for before it started */
        struct exec_end end;
        void (*exited)(struct sandbox_exec *x, const struct exec_end *end, void *user);
        void *user;
        unsigned closing;
};

static void exec_free(struct sandbox_exec *x) {
        for (int i = 0; i < 2; i++) {
                fd_close(x->stream[i].fd);
                fd_close(x->write_end[i]);
        }
        free(x);
}

static void on_closed(uv_handle_t *h) {
        struct sandbox_exec *x = h->data;
        if (--x->closing == 0)
                exec_free(x);
}

static void close_handle(struct sandbox_exec *x, uv_handle_t *h) {
        h->data = x;
        x->closing++;
        uv_close(h, on_closed);
}

static void finish(struct sandbox_exec *x) {
        if (x->ended)
                return;
        x->ended = true;
        if (x->linked) {
                *x->prev = x->next;
                if (x->next)
                        x->next->prev = x->prev;
        }
        if (x->sandbox->first == x)
                x->sandbox->first = NULL;
        client_ref_drop(x->sandbox->spawner, x->ref);
        x->end.wall_ms = x->started_ms ? now_ms() - x->started_ms : 0;
        x->closing++;
        for (int i = 0; i < 2; i++) {
                if (x->stream[i].polled)
                        close_handle(x, (uv_handle_t *)&x->stream[i].poll);
        }
        if (x->timer_made)
                close_handle(x, (uv_handle_t *)&x->timer);
        x->exited(x, &x->end, x->user);
        if (--x->closing == 0)
                exec_free(x);
}

/* ---- output ---- */

static void check_limit(struct sandbox_exec *x, const struct output_capture *c) {
        if (x->end.output_limit || (!c->over && c->total <= x->output_bytes))
                return;
        x->end.output_limit = true;
        x->sandbox->hit[LIMIT_OUTPUT] = true;
        if (x->handle)
                client_send(x->sandbox->spawner, REQ_EXEC_KILL, 0, x->handle, NULL, NULL, 0);
}

/* Reads at most `most` bytes; false at end of file or on an error. */
static bool read_some(struct stream *s, size_t most) {
        static char space[READ_SIZE];      /* one loop thread */
        ssize_t n = read(s->fd, space, MIN2(most, sizeof space));
        if (n > 0) {
                capture_feed(s->capture, space, (size_t)n);
                check_limit(s->exec, s->capture);
        }
        return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

static void on_readable(uv_poll_t *p, int status, int events) {
        struct stream *s = p->data;
        if (status < 0 || !read_some(s, READ_SIZE))
                uv_poll_stop(p);
}

static void drain(struct stream *s) {
        int left = 0;
        if (s->fd < 0 || ioctl(s->fd, FIONREAD, &left) < 0)
                return;
        while (left > 0) {
                int take = MIN2(left, READ_SIZE);
                if (!read_some(s, (size_t)take))
                        return;
                left -= take;
        }
}

static int make_pipe(struct sandbox_exec *x, int i, struct output_capture *c) {
        int p[2];
        if (pipe2(p, O_CLOEXEC) < 0)
                return -errno;
        fcntl(p[0], F_SETFL, O_NONBLOCK);
        x->stream[i] = (struct stream){ .fd = p[0], .capture = c, .exec = x };
        x->write_end[i] = p[1];
        return 0;
}

/* ---- start ---- */

int exec_prepare(struct sandbox *s, const struct exec_spec *spec,
                 void (*exited)(struct sandbox_exec *x, const struct exec_end *end, void *user), void *user,
                 struct buf *body, int *fds, size_t *n_fds, struct sandbox_exec **ret, struct error *e) {
        struct sandbox_exec *x = calloc(1, sizeof *x);
        if (!x)
                return -ENOMEM;
        x->sandbox = s;
        x->exited = exited;
        x->user = user;
        x->timeout_ms = spec->timeout_ms;
        x->output_bytes = s->limits.output_bytes;
        x->stream[0].fd = x->stream[1].fd = x->write_end[0] = x->write_end[1] = -1;
        int r = spec->out ? make_pipe(x, 0, spec->out) : 0;
        if (r == 0 && spec->err && spec->err != spec->out)
                r = make_pipe(x, 1, spec->err);
        int err = spec->err && spec->err == spec->out ? x->write_end[0] : x->write_end[1];
        if (r == 0)
                r = exec_spec_encode(spec, x->write_end[0], err, body, fds, n_fds);
        if (r < 0)
                exec_free(x);
        else
                *ret = x;
        return r;
}

void exec_abandon(struct sandbox_exec *x) { exec_free(x); }

void exec_request_sent(struct sandbox_exec *x) {
        struct sandbox *s = x->sandbox;
        uv_loop_t *loop = s->spawner->loop;
        x->next = s->execs;
        x->prev = &s->execs;
        if (x->next)
                x->next->prev = &x->next;
        s->execs = x;
        x->linked = true;
        for (int i = 0; i < 2; i++) {
                x->write_end[i] = fd_close(x->write_end[i]);
                if (x->stream[i].fd < 0 || uv_poll_init(loop, &x->stream[i].poll, x->stream[i].fd) < 0)
                        continue;
                x->stream[i].poll.data = &x->stream[i];
                x->stream[i].polled = true;
                uv_poll_start(&x->stream[i].poll, UV_READABLE, on_readable);
        }
        uv_timer_init(loop, &x->timer);
        x->timer.data = x;
        x->timer_made = true;
}

static void on_timeout(uv_timer_t *t) {
        struct sandbox_exec *x = t->data;
        x->end.timed_out = true;
        client_send(x->sandbox->spawner, REQ_EXEC_KILL, 0, x->handle, NULL, NULL, 0);
}

void exec_started(struct sandbox_exec *x, struct message *m) {
        x->handle = m->handle;
        x->started_ms = now_ms();
        if (x->timeout_ms > 0)
                uv_timer_start(&x->timer, on_timeout, x->timeout_ms, 0);
        if (x->end.output_limit)
                client_send(x->sandbox->spawner, REQ_EXEC_KILL, 0, x->handle, NULL, NULL, 0);
        if (x->pending)
                exec_signal(x, x->pending);
}

void exec_failed(struct sandbox_exec *x, const char *step, int code, const char *text) {
        x->end.started = false;
        x->end.error.code = code;
        snprintf(x->end.error.text, sizeof x->end.error.text, "%s", text && *text ? text : step ? step : "");
        finish(x);
}

static void on_answer(struct spawner *sp, struct message *m, void *user) {
        struct sandbox_exec *x = user;
        if (m->type == EV_STARTED)
                exec_started(x, m);
        else if (m->type == EV_FAILED) {
                const char *step = wire_get_str(&m->wire);
                int code = (int)wire_get_u32(&m->wire);
                if (code == -ESHUTDOWN)
                        x->end.sandbox_ended = true;
                exec_failed(x, step, code, wire_get_str(&m->wire));
        }
}

int sandbox_exec(struct sandbox *s, const struct exec_spec *spec,
                 void (*exited)(struct sandbox_exec *x, const struct exec_end *end, void *user), void *user,
                 struct sandbox_exec **ret, struct error *e) {
        if (s->state != SANDBOX_READY)
                return error_set(e, -ESHUTDOWN, "exec in a sandbox that is not ready");
        int fds[MESSAGE_FDS_MAX];
        size_t n_fds = 0;
        _cleanup_buf_ struct buf b = BUF_INIT(MESSAGE_BODY_MAX);
        struct sandbox_exec *x;
        int r = exec_prepare(s, spec, exited, user, &b, fds, &n_fds, &x, e);
        if (r < 0)
                return error_set(e, r, "exec");
        r = client_ref_new(s->spawner, on_answer, x, &x->ref);
        if (r == 0)
                r = client_send(s->spawner, REQ_EXEC, x->ref, s->handle, &b, fds, n_fds);
        if (r < 0) {
                client_ref_drop(s->spawner, x->ref);
                exec_free(x);
                return error_set(e, r, "exec");
        }
        exec_request_sent(x);
        if (ret)
                *ret = x;
        return 0;
}

int exec_signal(struct sandbox_exec *x, int sig) {
        if (sig <= 0 || sig > 64)
                return -EINVAL;
        if (!x->handle) {
                x->pending = sig;
                return 0;
        }
        _cleanup_buf_ struct buf b = BUF_INIT(16);
        int r = wire_put_u32(&b, (uint32_t)sig);
        return r < 0 ? r : client_send(x->sandbox->spawner, REQ_EXEC_SIGNAL, 0, x->handle, &b, NULL, 0);
}

/* ---- end ---- */

static void take_end(struct sandbox_exec *x, struct message *m) {
        bool started = wire_get_u32(&m->wire) != 0;
        const char *step = wire_get_str(&m->wire);
        int code = (int)wire_get_u32(&m->wire);
        x->end.status = (int)wire_get_u32(&m->wire);
        wire_get(&m->wire, &x->end.rusage, sizeof x->end.rusage);
        x->end.started = started;
        if (!started)
                error_set(&x->end.error, code < 0 ? code : -EPROTO, "%s", step ? step : "execute");
        for (int i = 0; i < 2; i++)
                drain(&x->stream[i]);
        const struct sandbox *s = x->sandbox;
        if (s->destroy_wanted || s->hit[LIMIT_MEMORY] || s->hit[LIMIT_WALL])
                x->end.sandbox_ended = true;
        finish(x);
}

void exec_event(struct spawner *sp, struct message *m) {
        for (struct sandbox *s = sp->sandboxes; s; s = s->next) {
                for (struct sandbox_exec *x = s->execs; x; x = x->next) {
                        if (x->handle == m->handle) {
                                take_end(x, m);
                                return;
                        }
                }
        }
}

void exec_mark_limit(struct sandbox *s) {
        for (struct sandbox_exec *x = s->execs; x; x = x->next)
                x->end.sandbox_ended = true;
}

void exec_end_all(struct sandbox *s) {
        while (s->execs) {
                struct sandbox_exec *x = s->execs;
                x->end.sandbox_ended = true;
                x->end.started = x->handle != 0;
                x->end.status = SIGKILL;
                if (!x->end.started)
                        error_set(&x->end.error, -ESHUTDOWN, "the sandbox has ended");
                for (int i = 0; i < 2; i++)
                        drain(&x->stream[i]);
                finish(x);
        }
}
