/* Connections that have left HTTP. The head's buffer goes, and bytes come straight from the server's read buffer. `closed` is called
 * from the loop: by the pump once our side is done, or when the socket's handle has been closed. */
#include "http/internal.h"

const char *http_upgrade_asked(const struct http_request *r) {
        return r->minor == 1 && request_lists(r, "Connection", "upgrade") ? http_header(r, "Upgrade") : NULL;
}

static void leave_http(struct conn *c, struct http_tunnel *t) {
        struct http_server *s = c->s;
        if (s->cfg.log)
                s->cfg.log(&c->r, 101, uv_now(s->loop) - c->r.started_ms, s->cfg.user);
        free(TAKE_PTR(c->in));
        c->in_len = c->in_alloc = c->head_len = c->pos = c->scanned = c->line = c->first_line = 0;
        c->phase = PHASE_NONE;
        request_reset(&c->r);
        c->tunnel = t;
        c->state = CONN_TUNNEL;
}

int tunnel_open(struct http_request *r, const struct http_tunnel *like, struct http_tunnel **ret) {
        struct conn *c = r->c;
        size_t rest = c->in_len - c->pos;
        ASSERT(r->answer == ANSWER_NONE && c->state == CONN_HANDLER && (!r->up.on || c->complete));
        struct http_tunnel *t = malloc(sizeof *t);
        if (!t)
                return -ENOMEM;
        *t = *like;
        t->c = c;
        buf_init(&t->left, rest);
        r->keep_alive = true;
        if (buf_add(&t->left, c->in + c->pos, rest) < 0 || response_head(r, 101) < 0) {
                buf_release(&t->left);
                free(t);
                return -ENOMEM;
        }
        leave_http(c, t);
        if (!c->pumping)
                server_later(c);
        *ret = t;
        return 0;
}

void tunnel_no_memory(struct http_request *r) {
        buf_reset(&r->extra);
        http_respond_error(r, 503, "Out of memory");
}

int http_tunnel_accept(struct http_request *r, const char *protocol, const struct http_tunnel_calls *calls, void *user, struct http_tunnel **ret) {
        struct http_tunnel like = { .calls = *calls, .user = user };
        http_respond_header(r, "Upgrade", protocol);
        http_respond_header(r, "Connection", "Upgrade");
        int e = tunnel_open(r, &like, ret);
        if (e < 0)
                tunnel_no_memory(r);
        return e;
}

bool tunnel_wants(const struct conn *c) {
        return c->tunnel->paused == 0 && c->tunnel->left.len == 0;
}

static void give(struct http_tunnel *t, const char *p, size_t n) {
        t->received += n;
        t->calls.data(t, p, n, t->user);
}

void tunnel_arrived(struct conn *c, const char *p, size_t n) {
        struct http_tunnel *t = c->tunnel;
        if (!t->paused) {
                give(t, p, n);
                return;
        }
        /* Paused since the kernel was last asked: this one read is kept. */
        t->left.limit = READ_CHUNK;
        if (buf_add(&t->left, p, n) < 0)
                conn_close(c);
}

bool tunnel_step(struct conn *c) {
        struct http_tunnel *t = c->tunnel;
        if (t->paused || (t->left.len == 0 && !t->again))
                return false;
        _cleanup_buf_ struct buf b = t->left;
        buf_init(&t->left, 0);
        t->again = false;
        give(t, buf_str(&b), b.len);
        return true;
}

void tunnel_drained(struct conn *c) {
        struct http_tunnel *t = c->tunnel;
        if (!t->want_drain || response_unsent(c) > HTTP_TUNNEL_HIGH_WATER / 2)
                return;
        t->want_drain = false;
        if (t->calls.drain)
                t->calls.drain(t, t->user);
}

void tunnel_tell(struct conn *c) {
        struct http_tunnel *t = TAKE_PTR(c->tunnel);
        if (!t)
                return;
        t->calls.closed(t, t->user);
        buf_release(&t->left);
        free(t);
}

void tunnel_stopping(struct conn *c) {
        if (c->tunnel->stopping)
                c->tunnel->stopping(c->tunnel, c->tunnel->user);
}

bool tunnel_full(struct http_tunnel *t) {
        struct conn *c = t->c;
        /* Only what the socket did not take makes it call us back. */
        if (response_unsent(c) > HTTP_TUNNEL_HIGH_WATER)
                response_flush(c);
        if (c->state != CONN_TUNNEL)
                return true;
        if (response_unsent(c) > HTTP_TUNNEL_HIGH_WATER)
                t->want_drain = true;
        return response_unsent(c) > HTTP_TUNNEL_HIGH_WATER;
}

int tunnel_put(struct http_tunnel *t, const char *p, size_t n) {
        return t->c->state == CONN_TUNNEL ? buf_add(&t->c->out, p, n) : -EPIPE;
}

int http_tunnel_write(struct http_tunnel *t, const char *p, size_t n) {
        struct conn *c = t->c;
        if (c->state != CONN_TUNNEL)
                return -EPIPE;
        if (n > HTTP_TUNNEL_WRITE_MAX)
                return -EMSGSIZE;
        if (tunnel_full(t))
                return c->state == CONN_TUNNEL ? -EAGAIN : -EPIPE;
        int e = tunnel_put(t, p, n);
        if (e == 0)
                server_later(c);        /* what is written in one turn goes out together */
        return e;
}

void http_tunnel_pause(struct http_tunnel *t) {
        t->paused++;
}

void http_tunnel_resume(struct http_tunnel *t) {
        ASSERT(t->paused > 0);
        if (--t->paused == 0)
                server_later(t->c);
}

void http_tunnel_close(struct http_tunnel *t) {
        struct conn *c = t->c;
        if (c->state != CONN_TUNNEL)
                return;
        c->state = CONN_FLUSH;
        server_later(c);
}
