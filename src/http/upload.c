/* Bodies in pieces. The request is its handler's from the head on (CONN_HANDLER), and the body is read in that state: from what came
 * with the head, then straight from the server's read buffer, which all connections share. A handler that pauses stops the parser
 * at that byte; what was read behind it (at most one read) is kept in `left`, and nothing more is read. */
#include "http/internal.h"

void upload_reset(struct upload *u) {
        buf_release(&u->left);
        *u = (struct upload){ 0 };
}

int upload_piece(struct http_request *r, const char *p, size_t n) {
        struct upload *u = &r->up;
        struct conn *c = r->c;
        if (n == 0)     /* a span that was cut by a pause is ended again, empty */
                return 0;
        if (n > body_limit(r) - MIN2(r->body.len, body_limit(r))) {
                r->body.r = -EFBIG;
                return HPE_USER;
        }
        r->body.len += n;
        if (u->dropping)
                return 0;
        u->calls.data(p, n, u->user);
        if (c->state != CONN_HANDLER)   /* answered, or gone */
                return HPE_USER;
        return u->paused ? HPE_PAUSED : 0;
}

/* The body will not come whole. The handler hears of it first, so that the request is dead for it when the peer is told. */
static void fail(struct conn *c, struct refusal why) {
        struct http_request *r = &c->r;
        void (*closed)(void *user) = r->closed;
        if (r->answer != ANSWER_NONE) {
                conn_close(c);
                return;
        }
        r->closed = NULL;
        if (closed)
                closed(r->closed_user);
        response_refuse(c, why, true);
}

/* Gives bytes to the parser, and so to the handler. True if the request still is as it was. */
static bool feed(struct conn *c, const char *p, size_t n, size_t *ret_used) {
        struct upload *u = &c->r.up;
        struct refusal why = { 0, NULL };
        u->feeding = true;
        int r = parser_body(c, p, n, ret_used, &why);
        if (c->state != CONN_HANDLER)
                return false;
        u->feeding = false;
        if (r >= 0)
                return true;
        fail(c, why);
        return false;
}

static bool feed_left(struct conn *c) {
        struct upload *u = &c->r.up;
        _cleanup_buf_ struct buf b = u->left;   /* not the request's meanwhile: it may be answered */
        size_t used;
        buf_init(&u->left, READ_CHUNK);
        if (!feed(c, b.data, b.len, &used))
                return false;
        buf_consume(&b, used);
        u->left = b;
        buf_init(&b, 0);
        return true;
}

static bool feed_head_rest(struct conn *c) {
        size_t used;
        if (!feed(c, c->in + c->pos, c->in_len - c->pos, &used))
                return false;
        c->pos += used;
        if (c->pos == c->in_len && !c->complete)
                c->in_len = c->pos = c->head_len;
        return true;
}

bool upload_step(struct conn *c) {
        struct upload *u = &c->r.up;
        if (!u->started || u->ended || u->paused || u->feeding)
                return false;
        bool stopped = llhttp_get_errno(&c->parser) == HPE_PAUSED;       /* by a pause: the end may need no further byte */
        if (!c->complete) {
                if (u->left.len == 0 && c->pos == c->in_len && !stopped) {
                        if (c->eof)
                                conn_close(c);
                        return false;
                }
                return u->left.len ? feed_left(c) : feed_head_rest(c);
        }
        u->ended = true;
        u->calls.end(u->user);
        return true;
}

bool upload_wants(const struct conn *c) {
        const struct upload *u = &c->r.up;
        return u->started && !c->complete && !u->paused && u->left.len == 0 && c->pos == c->in_len;
}

void upload_arrived(struct conn *c, const char *p, size_t n) {
        size_t used;
        if (feed(c, p, n, &used) && used < n && buf_add(&c->r.up.left, p + used, n - used) < 0)
                conn_close(c);
}

void upload_late(struct conn *c, struct refusal why) {
        fail(c, why);
}

void upload_settle(struct http_request *r) {
        struct conn *c = r->c;
        struct upload *u = &r->up;
        struct refusal why;
        size_t used;
        if (!u->on || c->complete)
                return;
        if (!u->feeding && r->keep_alive) {
                u->dropping = u->feeding = true;
                if (u->left.len) {
                        if (parser_body(c, u->left.data, u->left.len, &used, &why) >= 0)
                                buf_consume(&u->left, used);
                } else if (parser_body(c, c->in + c->pos, c->in_len - c->pos, &used, &why) >= 0)
                        c->pos += used;
                u->feeding = false;
        }
        if (!c->complete)
                r->keep_alive = false;
}

void http_upload_start(struct http_request *r, const struct http_upload *calls, void *user) {
        struct conn *c = r->c;
        struct upload *u = &r->up;
        ASSERT(u->on && !u->started && calls->data && calls->end);
        if (c->state == CONN_CLOSED)
                return;
        u->calls = *calls;
        u->user = user;
        u->started = true;
        /* Without memory for it nothing is lost: a client that gets no answer sends the body after a while. */
        if (r->expect_continue && !c->complete && c->in_len == c->pos && r->answer == ANSWER_NONE)
                (void)response_raw(c, "HTTP/1.1 100 Continue\r\n\r\n", 25);
        if (!c->pumping)
                server_later(c);
}

void http_upload_pause(struct http_request *r) {
        r->up.paused++;
}

void http_upload_resume(struct http_request *r) {
        struct upload *u = &r->up;
        ASSERT(u->paused > 0);
        if (--u->paused == 0 && !u->feeding)
                server_later(r->c);
}

uint64_t http_upload_length(const struct http_request *r) {
        return r->chunked ? HTTP_BODY_ANY : r->content_length;
}
