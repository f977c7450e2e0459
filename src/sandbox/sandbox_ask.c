/* Questions to a sandbox that have one answer each: freeze, thaw, kill all but one, how much it uses, a socket of it, a mount. */
#include "sandbox/client.h"
#include "sandbox/spec.h"

struct sandbox_ask {
        struct sandbox_ask *next;
        struct sandbox *sandbox;
        uint64_t ref;
        void (*done)(struct sandbox *s, int r, void *user);
        void (*now)(struct sandbox *s, int r, const struct sandbox_now *now, void *user);
        void (*socket)(struct sandbox *s, int r, int fd, void *user);
        void *user;
};

static void finish(struct sandbox_ask *a, int r, const struct sandbox_now *now, int fd) {
        struct sandbox *s = a->sandbox;
        for (struct sandbox_ask **at = &s->asks; *at; at = &(*at)->next) {
                if (*at == a) {
                        *at = a->next;
                        s->n_asks--;
                        break;
                }
        }
        client_ref_drop(s->spawner, a->ref);
        if (a->now)
                a->now(s, r, r < 0 ? NULL : now, a->user);
        else if (a->socket)
                a->socket(s, r, r < 0 ? fd_close(fd) : fd, a->user);
        else if (a->done)
                a->done(s, r, a->user);
        free(a);
}

static void on_answer(struct spawner *sp, struct message *m, void *user) {
        struct sandbox_ask *a = user;
        struct sandbox_now now = { 0 };
        int r, fd = -1;
        switch (m->type) {
        case EV_DONE:
                r = (int)wire_get_u32(&m->wire);
                break;
        case EV_NOW:
                wire_get(&m->wire, &now, sizeof now);
                r = 0;
                break;
        case EV_SOCKET:
                fd = m->n_fds == 1 ? TAKE_FD(m->fds[0]) : -1;
                r = fd < 0 ? -EPROTO : 0;
                break;
        case EV_FAILED:
                wire_get_str(&m->wire);
                r = (int)wire_get_u32(&m->wire);
                break;
        default: r = -EPROTO;
        }
        if (m->wire.bad || (r == 0 && ((a->now != NULL) != (m->type == EV_NOW) || (a->socket != NULL) != (m->type == EV_SOCKET))))
                r = -EPROTO;
        if (!a->socket)
                fd = fd_close(fd);
        finish(a, r, &now, fd);
}

static int ask(struct sandbox *s, uint32_t type, const struct buf *body, const struct sandbox_ask *what) {
        if (s->state != SANDBOX_READY)
                return -ESHUTDOWN;
        if (s->n_asks >= SANDBOX_ASKS_MAX)
                return -EBUSY;
        struct sandbox_ask *a = malloc(sizeof *a);
        if (!a)
                return -ENOMEM;
        *a = *what;
        a->sandbox = s;
        int r = client_ref_new(s->spawner, on_answer, a, &a->ref);
        if (r == 0) {
                r = client_send(s->spawner, type, a->ref, s->handle, body, NULL, 0);
                if (r < 0)
                        client_ref_drop(s->spawner, a->ref);
        }
        if (r < 0) {
                free(a);
                return r;
        }
        a->next = s->asks;
        s->asks = a;
        s->n_asks++;
        return 0;
}

void sandbox_asks_end(struct sandbox *s) {
        while (s->asks)
                finish(s->asks, -ESHUTDOWN, NULL, -1);
}

static int freeze(struct sandbox *s, bool on, void (*done)(struct sandbox *s, int r, void *user), void *user) {
        _cleanup_buf_ struct buf b = BUF_INIT(16);
        int r = wire_put_u32(&b, on);
        return r < 0 ? r : ask(s, REQ_FREEZE, &b, &(struct sandbox_ask){ .done = done, .user = user });
}

int sandbox_freeze(struct sandbox *s, void (*done)(struct sandbox *s, int r, void *user), void *user) { return freeze(s, true, done, user); }
int sandbox_thaw(struct sandbox *s, void (*done)(struct sandbox *s, int r, void *user), void *user) { return freeze(s, false, done, user); }

int sandbox_usage_now(struct sandbox *s, void (*done)(struct sandbox *s, int r, const struct sandbox_now *now, void *user), void *user) {
        return ask(s, REQ_NOW, NULL, &(struct sandbox_ask){ .now = done, .user = user });
}

int sandbox_socket(struct sandbox *s, enum sandbox_socket_kind kind, void (*done)(struct sandbox *s, int r, int fd, void *user), void *user) {
        _cleanup_buf_ struct buf b = BUF_INIT(16);
        int r = wire_put_u32(&b, (uint32_t)kind);
        return r < 0 ? r : ask(s, REQ_SOCKET, &b, &(struct sandbox_ask){ .socket = done, .user = user });
}

int sandbox_mount(struct sandbox *s, const struct sandbox_bind *bind, void (*done)(struct sandbox *s, int r, void *user), void *user) {
        _cleanup_buf_ struct buf b = BUF_INIT(WORKSPACE_PATH_MAX + SPEC_PATH_MAX + 64);
        if (!workspace_path_ok(bind->path) || !spec_path_ok(bind->target))
                return -EINVAL;
        int r = wire_put_str(&b, bind->path);
        if (r == 0)
                r = wire_put_str(&b, bind->target);
        if (r == 0)
                r = wire_put_u32(&b, bind->writable);
        return r < 0 ? r : ask(s, REQ_MOUNT, &b, &(struct sandbox_ask){ .done = done, .user = user });
}

int sandbox_kill_others(struct sandbox *s, struct sandbox_exec *spare, void (*done)(struct sandbox *s, int r, void *user), void *user) {
        uint64_t handle = exec_handle(spare);
        if (handle == 0)
                return -EAGAIN;
        _cleanup_buf_ struct buf b = BUF_INIT(16);
        int r = wire_put_u64(&b, handle);
        return r < 0 ? r : ask(s, REQ_KILL_OTHERS, &b, &(struct sandbox_ask){ .done = done, .user = user });
}
