/* Sandboxes, the daemon's side of their state machine. */
#include <string.h>

#include "base/clock.h"
#include "base/metrics.h"
#include "sandbox/client.h"
#include "sandbox/spec.h"

/* The object stays in the spawner's list until its `gone` ran; its timer handle closes before it is freed. */

static void on_wall_closed(uv_handle_t *h) { free(h->data); }

static void finish_gone(struct sandbox *s) {
        s->state = SANDBOX_GONE;
        adopted_end_all(s);
        exec_end_all(s);
        sandbox_asks_end(s);
        for (int i = 0; i < LIMIT_KIND_MAX; i++)
                s->end.hit[i] |= s->hit[i];
        if (s->killed) {
                s->killed(s, s->killed_user);
                s->killed = NULL;
        }
        if (s->egress) {
                egress_net_stop(s->egress);
                s->end.has_network = true;
                s->end.network = *egress_net_counters(s->egress);
        }
        client_ref_drop(s->spawner, s->ref);
        *s->prev = s->next;
        if (s->next)
                s->next->prev = s->prev;
        s->cb.gone(s, &s->end, s->user);
        egress_net_close(TAKE_PTR(s->egress));
        s->allow = egress_rules_unref(s->allow);
        uv_timer_stop(&s->wall);
        uv_close((uv_handle_t *)&s->wall, on_wall_closed);
}

static void report_limit(struct sandbox *s, enum limit_kind kind) {
        if (s->hit[kind])
                return;
        s->hit[kind] = true;
        if (kind == LIMIT_MEMORY || kind == LIMIT_WALL)
                exec_mark_limit(s);
        if (s->cb.limit)
                s->cb.limit(s, kind, s->user);
}

static void on_wall(uv_timer_t *t) {
        struct sandbox *s = t->data;
        if (s->state != SANDBOX_READY)
                return;
        sandbox_kill_all(s, NULL, NULL);
        report_limit(s, LIMIT_WALL);
}

static void on_failed(struct sandbox *s, struct message *m) {
        struct error e = { 0 };
        const char *step = wire_get_str(&m->wire);
        e.code = (int)wire_get_u32(&m->wire);
        const char *text = wire_get_str(&m->wire);
        snprintf(e.text, sizeof e.text, "%s", text ? text : "");
        bool no_gone = m->handle == 0;
        s->handle = m->handle;
        if (s->state == SANDBOX_CREATING) {
                s->state = SANDBOX_FAILED;
                if (s->first)
                        exec_failed(s->first, step, e.code, e.text);
                if (s->cb.failed)
                        s->cb.failed(s, step ? step : "", &e, s->user);
        }
        if (no_gone)
                finish_gone(s);
}

/* Its sockets came with the word that it is there: nobody inside has waited for an answer yet. */
static int open_egress(struct sandbox *s, struct message *m, struct error *e) {
        if (m->n_fds != 2)
                return error_set(e, -EPROTO, "open the network of a sandbox");
        return egress_net_open(s->spawner->egress, TAKE_FD(m->fds[0]), TAKE_FD(m->fds[1]), s->allow, &s->egress, e);
}

static void on_created(struct sandbox *s, struct message *m) {
        s->handle = m->handle;
        struct error e = { 0 };
        if (s->allow && open_egress(s, m, &e) < 0) {
                s->state = SANDBOX_FAILED;
                if (s->cb.failed)
                        s->cb.failed(s, "open the network", &e, s->user);
                client_send(s->spawner, REQ_DESTROY, 0, s->handle, NULL, NULL, 0);
                return;
        }
        s->state = SANDBOX_READY;
        s->started_ms = now_ms();
        metrics_observe(METRIC_CREATE, (double)(now_ns() - s->asked_ns) / (double)NS_PER_S);
        if (s->destroy_wanted) {
                s->state = SANDBOX_DESTROYING;
                client_send(s->spawner, REQ_DESTROY, 0, s->handle, NULL, NULL, 0);
                return;
        }
        if (s->limits.wall_ms > 0)
                uv_timer_start(&s->wall, on_wall, s->limits.wall_ms, 0);
        if (s->cb.ready)
                s->cb.ready(s, s->user);
}

static void on_gone(struct sandbox *s, struct message *m) {
        wire_get(&m->wire, &s->end.usage, sizeof s->end.usage);
        wire_get(&m->wire, s->end.hit, sizeof s->end.hit);
        finish_gone(s);
}

static void handle(struct sandbox *s, struct message *m) {
        switch (m->type) {
        case EV_CREATED: on_created(s, m); break;
        case EV_FAILED: on_failed(s, m); break;
        case EV_GONE: on_gone(s, m); break;
        case EV_STARTED:
                if (s->first)
                        exec_started(s->first, m);
                break;
        case EV_EXITED:
                if (s->first)
                        exec_exited(s->first, m);
                break;
        case EV_LIMIT: {
                uint32_t kind = wire_get_u32(&m->wire);
                if (kind < LIMIT_KIND_MAX)
                        report_limit(s, kind);
                break;
        }
        case EV_KILLED:
                if (s->killed) {
                        void (*done)(struct sandbox *, void *) = s->killed;
                        s->killed = NULL;
                        done(s, s->killed_user);
                }
                break;
        default: break;
        }
}

static void on_answer(struct spawner *sp, struct message *m, void *user) { handle(user, m); }

void sandbox_event(struct spawner *sp, struct message *m) {
        for (struct sandbox *s = sp->sandboxes; s; s = s->next) {
                if (s->handle == m->handle) {
                        handle(s, m);
                        return;
                }
        }
}

void sandbox_all_lost(struct spawner *sp) {
        while (sp->sandboxes) {
                struct sandbox *s = sp->sandboxes;
                if (s->state == SANDBOX_CREATING && s->cb.failed) {
                        struct error e;
                        error_set(&e, -EPIPE, "the spawner has died");
                        s->state = SANDBOX_FAILED;
                        s->cb.failed(s, "spawner", &e, s->user);
                }
                s->end.usage = (struct sandbox_usage){ -1, -1, -1, -1, -1 };
                finish_gone(s);
        }
}

static int create(struct spawner *sp, const struct sandbox_spec *spec, const struct exec_spec *first,
                  void (*exited)(struct sandbox_exec *, const struct exec_end *, void *), void *exec_user,
                  const struct sandbox_callbacks *cb, void *user, struct sandbox **ret, struct sandbox_exec **ret_exec, struct error *e) {
        int fds[MESSAGE_FDS_MAX], r = sandbox_spec_check(spec, e);
        size_t n_fds = 0;
        if (r == 0 && spec->network == NETWORK_ALLOW && (!sp->egress || !spec->allow))
                r = error_say(e, -EOPNOTSUPP, "the network \"allow\" is not there");
        if (r < 0)
                return r;
        struct sandbox *s = calloc(1, sizeof *s);
        _cleanup_buf_ struct buf b = BUF_INIT(MESSAGE_BODY_MAX);
        if (!s)
                return error_set(e, -ENOMEM, "create a sandbox");
        *s = (struct sandbox){ .spawner = sp, .cb = *cb, .user = user, .limits = spec->limits, .asked_ns = now_ns() };
        s->end.usage = (struct sandbox_usage){ -1, -1, -1, -1, -1 };
        struct sandbox_exec *x = NULL;
        r = sandbox_spec_encode(spec, first != NULL, &b, fds, &n_fds);
        if (r == 0 && first)
                r = exec_prepare(s, first, exited, exec_user, &b, fds, &n_fds, &x, e);
        if (r == 0)
                r = client_ref_new(sp, on_answer, s, &s->ref);
        if (r == 0) {
                r = client_send(sp, REQ_CREATE, s->ref, 0, &b, fds, n_fds);
                if (r < 0)
                        client_ref_drop(sp, s->ref);
        }
        if (r < 0) {
                if (x)
                        exec_abandon(x);
                free(s);
                return error_set(e, r, "create a sandbox");
        }
        if (x)
                exec_request_sent(x);
        s->first = x;
        s->allow = spec->network == NETWORK_ALLOW ? egress_rules_ref(spec->allow) : NULL;
        s->next = sp->sandboxes;
        s->prev = &sp->sandboxes;
        if (s->next)
                s->next->prev = &s->next;
        sp->sandboxes = s;
        uv_timer_init(sp->loop, &s->wall);
        s->wall.data = s;
        *ret = s;
        if (ret_exec)
                *ret_exec = x;
        return 0;
}

int sandbox_create(struct spawner *sp, const struct sandbox_spec *spec, const struct sandbox_callbacks *cb, void *user,
                   struct sandbox **ret, struct error *e) {
        return create(sp, spec, NULL, NULL, NULL, cb, user, ret, NULL, e);
}

int sandbox_create_direct(struct spawner *sp, const struct sandbox_spec *spec, const struct sandbox_callbacks *cb, void *user,
                          const struct exec_spec *first, void (*exited)(struct sandbox_exec *x, const struct exec_end *end, void *user),
                          void *exec_user, struct sandbox **ret, struct sandbox_exec **ret_exec, struct error *e) {
        return create(sp, spec, first, exited, exec_user, cb, user, ret, ret_exec, e);
}

void sandbox_destroy(struct sandbox *s) {
        s->destroy_wanted = true;
        if (s->state != SANDBOX_READY)
                return;        /* CREATING: when it is created; FAILED: it goes by itself */
        s->state = SANDBOX_DESTROYING;
        uv_timer_stop(&s->wall);
        if (s->egress)
                egress_net_stop(s->egress);
        client_send(s->spawner, REQ_DESTROY, 0, s->handle, NULL, NULL, 0);
}

uv_loop_t *sandbox_loop(const struct sandbox *s) { return s->spawner->loop; }

struct egress_net *sandbox_egress(struct sandbox *s) { return s->egress; }

int sandbox_kill_all(struct sandbox *s, void (*done)(struct sandbox *s, void *user), void *user) {
        if (s->state != SANDBOX_READY)
                return -ESHUTDOWN;
        if (done && s->killed)
                return -EBUSY;
        if (done) {
                s->killed = done;
                s->killed_user = user;
        }
        return client_send(s->spawner, REQ_KILL_ALL, 0, s->handle, NULL, NULL, 0);
}
