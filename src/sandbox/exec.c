/* Execs, the daemon's side: their life. What goes in and comes out: exec_io.c. */
#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "sandbox/exec.h"
#include "sandbox/spec.h"

static void exec_free(struct sandbox_exec *x) {
        exec_io_release(x);
        free(x);
}

static void on_closed(uv_handle_t *h) {
        struct sandbox_exec *x = h->data;
        if (--x->closing == 0)
                exec_free(x);
}

void exec_close_handle(struct sandbox_exec *x, uv_handle_t *h) {
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
        exec_io_close(x);
        if (x->timer_made)
                exec_close_handle(x, (uv_handle_t *)&x->timer);
        x->exited(x, &x->end, x->user);
        if (--x->closing == 0)
                exec_free(x);
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
        x->started = spec->started;
        x->output_bytes = spec->output_bytes ? spec->output_bytes : s->limits.output_bytes;
        int r = exec_io_prepare(x, spec);
        if (r == 0)
                r = exec_spec_encode(spec, x->far, body, fds, n_fds);
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
        x->closing = 1;                    /* its life itself; finish takes that away */
        exec_io_start(x);
        uv_timer_init(loop, &x->timer);
        x->timer.data = x;
        x->timer_made = true;
}

static void on_timeout(uv_timer_t *t) {
        struct sandbox_exec *x = t->data;
        x->end.timed_out = true;
        exec_kill(x);
}

void exec_started(struct sandbox_exec *x, struct message *m) {
        x->handle = m->handle;
        x->started_ms = now_ms();
        if (x->timeout_ms > 0)
                uv_timer_start(&x->timer, on_timeout, x->timeout_ms, 0);
        if (x->kill_wanted)
                exec_kill(x);
        if (x->pending)
                exec_signal(x, x->pending);
        if (x->started)
                x->started(x, x->user);
}

void exec_failed(struct sandbox_exec *x, const char *step, int code, const char *text) {
        x->end.started = false;
        x->end.error.code = code;
        snprintf(x->end.error.text, sizeof x->end.error.text, "%s", text && *text ? text : step ? step : "");
        finish(x);
}

static void take_end(struct sandbox_exec *x, struct message *m) {
        bool started = wire_get_u32(&m->wire) != 0;
        const char *step = wire_get_str(&m->wire);
        int code = (int)wire_get_u32(&m->wire);
        x->end.status = (int)wire_get_u32(&m->wire);
        wire_get(&m->wire, &x->end.rusage, sizeof x->end.rusage);
        x->end.frozen = wire_get_u32(&m->wire) != 0;
        x->end.started = started;
        if (!started)
                error_set(&x->end.error, code < 0 ? code : -EPROTO, "%s", step ? step : "execute");
        exec_io_drain(x);
        const struct sandbox *s = x->sandbox;
        if (s->destroy_wanted || s->hit[LIMIT_MEMORY] || s->hit[LIMIT_WALL])
                x->end.sandbox_ended = true;
        finish(x);
}

static void on_answer(struct spawner *sp, struct message *m, void *user) {
        struct sandbox_exec *x = user;
        if (m->type == EV_STARTED)
                exec_started(x, m);
        else if (m->type == EV_EXITED)
                take_end(x, m);
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

uint64_t exec_handle(const struct sandbox_exec *x) { return x->handle; }

int exec_kill(struct sandbox_exec *x) {
        x->kill_wanted = true;
        return x->handle && !x->ended ? client_send(x->sandbox->spawner, REQ_EXEC_KILL, 0, x->handle, NULL, NULL, 0) : 0;
}

/* ---- end ---- */

void exec_exited(struct sandbox_exec *x, struct message *m) { take_end(x, m); }

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
                exec_io_drain(x);
                finish(x);
        }
}
