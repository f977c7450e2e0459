/* One connection: a state machine over what came in.
 *
 *     HEAD ──whole──> BODY ──whole──> HANDLER ──answered──> HEAD ...
 *       │ refused       │ refused                    └──(close)──> FLUSH ──sent──> LINGER ──> closed
 *       └───────────────┴──────────────────────────────────────────^
 *
 * (A route that takes its bodies in pieces goes from HEAD to HANDLER; upload.c reads the body there.)
 *
 * conn_pump() moves it as far as it goes without waiting; everything else (bytes came, bytes went, a handler answered, a piece of the
 * body reached the disk) only changes facts and pumps. Requests are handled one after the other: pipelined answers are in order
 * because there is never a second request to answer.
 *
 * Back-pressure: nothing is read while the spool is behind; no request is taken while the peer does not read its answers; during a
 * handler only the rest of the head buffer is filled, which is enough to notice that the peer went away. */
#include "http/events.h"
#include "http/internal.h"

static const uv_buf_t no_room = { NULL, 0 };

struct conn *conn_new(struct http_server *s) {
        struct conn *c = calloc(1, sizeof *c);
        if (!c)
                return NULL;
        c->s = s;
        c->r.c = c;
        c->pending = 1;
        buf_init(&c->out, OUT_MAX);
        buf_init(&c->sending, OUT_MAX);
        buf_init(&c->r.path, s->cfg.limits.line_max + 1);
        buf_init(&c->r.raw, s->cfg.limits.line_max + 1);
        buf_init(&c->r.extra, EXTRA_MAX);
        body_init(&c->r.body);
        request_reset(&c->r);
        return c;
}

void conn_unref(struct conn *c) {
        if (--c->pending > 0)
                return;
        request_release(&c->r);
        buf_release(&c->out);
        buf_release(&c->sending);
        buf_release(&c->big);
        buf_release(&c->big_sending);
        free(c->in);
        server_forget(c);
        free(c);
}

static void closed(uv_handle_t *h) {
        tunnel_tell(h->data);
        conn_unref(h->data);
}

/* Whoever waits for the last answer to be out hears of it. */
static void tell_sent(struct conn *c, bool whole) {
        void (*sent)(bool, void *) = c->sent;
        c->sent = NULL;
        if (sent)
                sent(whole, c->sent_user);
}

void conn_close(struct conn *c) {
        if (c->state == CONN_CLOSED)
                return;
        bool unanswered = c->state == CONN_HANDLER && c->r.answer != ANSWER_DONE;
        c->state = CONN_CLOSED;
        uv_close(&c->h.handle, closed);
        tell_sent(c, false);
        if (c->r.sent && !unanswered) {        /* answered, but not on its way: there was no memory for it */
                c->sent = c->r.sent;
                c->sent_user = c->r.sent_user;
                c->r.sent = NULL;
                tell_sent(c, false);
        }
        if (unanswered && c->r.closed)
                c->r.closed(c->r.closed_user);
}

/* ---- taking a head ---- */

int conn_grow(struct conn *c, size_t want) {
        if (c->in_alloc - c->in_len >= want)
                return 0;
        size_t alloc = MAX2(c->in_alloc * 2, MAX2(c->in_len + want, (size_t)HEAD_FIRST_ALLOC));
        char *p = realloc(c->in, alloc);
        if (!p)
                return -ENOMEM;
        c->in = p;
        c->in_alloc = alloc;
        return 0;
}

/* Empty lines before a request are tolerated (RFC 9112, 2.2). */
static void skip_empty_lines(struct conn *c) {
        size_t n = 0;
        while (c->line == 0 && c->in_len - n >= 2 && c->in[n] == '\r' && c->in[n + 1] == '\n')
                n += 2;
        if (n) {
                memmove(c->in, c->in + n, c->in_len - n);
                c->in_len -= n;
                c->scanned = 0;
        }
}

/* Looks for the empty line. 1: found, head_len is set; 0: not yet; -1: refused. Remembers where it was. */
static int find_head(struct conn *c, struct refusal *ret) {
        const struct http_limits *l = &c->s->cfg.limits;
        while (c->scanned < c->in_len) {
                char *lf = memchr(c->in + c->scanned, '\n', c->in_len - c->scanned);
                if (!lf)
                        break;
                size_t at = (size_t)(lf - c->in);
                if (at == 0 || lf[-1] != '\r') {
                        *ret = (struct refusal){ 400, "Line not ended by CR LF" };
                        return -1;
                }
                bool empty = at - 1 == c->line;
                if (c->line == 0)
                        c->first_line = at + 1;
                c->scanned = c->line = at + 1;
                if (c->first_line - 2 > l->line_max)
                        break;
                if (c->scanned - c->first_line > l->header_max + 2)
                        break;
                if (empty) {
                        c->head_len = c->scanned;
                        return 1;
                }
        }
        if (c->line == 0 ? c->in_len > l->line_max + 1 : c->first_line - 2 > l->line_max) {
                *ret = (struct refusal){ 414, "Request line too long" };
                return -1;
        }
        if (c->line > 0 && c->in_len - c->first_line > l->header_max + 2) {
                *ret = (struct refusal){ 431, "Request header fields too large" };
                return -1;
        }
        c->scanned = c->in_len;
        return 0;
}

static void dispatch(struct conn *c) {
        struct http_request *r = &c->r;
        c->state = CONN_HANDLER;
        if (r->refused.status)
                response_refuse(c, r->refused, false);
        else
                r->route->handler(r, r->route->user ? r->route->user : c->s->cfg.user);
}

/* May the connection go on after this refusal, once the body was read and dropped? */
static bool worth_keeping(const struct http_request *r, int status) {
        switch (status) {
        case 401:
        case 403:
        case 404:
        case 405:
        case 417:
                return r->keep_alive && !r->expect_continue && r->content_length <= DISCARD_MAX;
        default:
                return false;
        }
}

static struct refusal judge(struct conn *c) {
        struct http_request *r = &c->r;
        struct refusal why = parser_head(c);
        request_identify(r);
        if (why.status)
                return why;
        struct refusal route = router_find(r);
        why = auth_check(r);
        if (why.status)
                buf_reset(&r->extra);
        else
                why = route;
        if (!why.status && r->content_length > body_limit(r))
                why = (struct refusal){ 413, "Request body too large" };
        return why;
}

/* Waits for room in the out buffers; true if the next request may be taken. */
static bool may_take(struct conn *c) {
        if (c->big.len || response_unsent(c) > OUT_PIPELINE_MAX)
                response_flush(c);
        return c->state != CONN_CLOSED && !c->big.len && response_unsent(c) <= OUT_PIPELINE_MAX;
}

static bool step_head(struct conn *c) {
        struct http_request *r = &c->r;
        struct refusal why = { 0, NULL };
        if (c->in_len == 0 || !may_take(c))
                return false;
        skip_empty_lines(c);
        if (c->in_len == 0)
                return false;
        if (!c->head_started) {
                c->head_started = true;
                r->started_ms = uv_now(c->s->loop);
        }
        int found = find_head(c, &why);
        if (found == 0)
                return false;
        c->state = CONN_HANDLER;
        if (found < 0) {
                request_identify(r);
                response_refuse(c, why, true);
                return true;
        }
        c->pos = c->head_len;
        why = judge(c);
        bool has_body = r->chunked || r->content_length > 0;
        if (why.status && (!worth_keeping(r, why.status))) {
                response_refuse(c, why, true);
                return true;
        }
        r->refused = why;
        c->complete = !has_body;
        if (!why.status && r->route->stream_body) {
                r->up.on = true;
                r->up.left.limit = READ_CHUNK;
        }
        if (!has_body || r->up.on) {
                dispatch(c);
                return true;
        }
        c->state = CONN_BODY;
        if (r->expect_continue && c->in_len == c->pos && response_raw(c, "HTTP/1.1 100 Continue\r\n\r\n", 25) < 0)
                conn_close(c);
        return true;
}

/* ---- the body ---- */

static void feed(struct conn *c, const char *p, size_t n, size_t *ret_used) {
        struct refusal why = { 0, NULL };
        int r = parser_body(c, p, n, ret_used, &why);
        if (r < 0) {
                c->state = CONN_HANDLER;
                response_refuse(c, why, true);
        } else if (r > 0)
                c->complete = true;
}

static bool step_body(struct conn *c) {
        struct body *b = &c->r.body;
        if (b->busy)
                return false;
        if (!c->complete && c->pos < c->in_len) {
                size_t used;
                feed(c, c->in + c->pos, c->in_len - c->pos, &used);
                if (c->state != CONN_BODY)
                        return true;
                c->pos += used;
                if (c->pos == c->in_len && !c->complete)
                        c->in_len = c->pos = c->head_len;       /* room for the next read */
        }
        if (body_flush(c, c->complete))
                return false;
        if (b->r < 0) {
                c->state = CONN_HANDLER;
                response_refuse(c, (struct refusal){ 503, "Cannot store the request body" }, true);
                return true;
        }
        if (!c->complete)
                return false;
        dispatch(c);
        return true;
}

/* ---- reading ---- */

static bool wants_bytes(const struct conn *c) {
        switch (c->state) {
        case CONN_HEAD:
                return c->in_len < c->in_alloc || c->in_len == 0 || c->scanned == c->in_len;
        case CONN_BODY:
                return !c->r.body.busy && !c->complete;
        case CONN_HANDLER:
                return upload_wants(c) || (c->r.up.left.len == 0 && c->in_len < c->in_alloc);
        case CONN_TUNNEL:
                return tunnel_wants(c);
        default:
                return c->state != CONN_CLOSED;
        }
}

static void allocate(uv_handle_t *h, size_t suggested, uv_buf_t *ret) {
        struct conn *c = h->data;
        bool head = c->state != CONN_FLUSH && c->state != CONN_LINGER && c->state != CONN_TUNNEL;
        *ret = no_room;
        if (!head || (c->state == CONN_BODY && c->pos == c->in_len) || (c->state == CONN_HANDLER && upload_wants(c))) {
                *ret = uv_buf_init(c->s->read_buf, READ_CHUNK);
                return;
        }
        /* The head of a request that a handler holds must not move; an incomplete one may. */
        if (c->state == CONN_HEAD && c->scanned == c->in_len && conn_grow(c, 1024) < 0)
                return;
        ret->base = c->in + c->in_len;
        ret->len = c->in_alloc - c->in_len;
}

static void take_body_bytes(struct conn *c, const char *p, size_t n) {
        size_t used;
        feed(c, p, n, &used);
        if (used == n || c->state != CONN_BODY)
                return;
        if (conn_grow(c, n - used) < 0) {
                conn_close(c);
                return;
        }
        memcpy(c->in + c->in_len, p + used, n - used);
        c->in_len += n - used;
}

static void arrived(uv_stream_t *stream, ssize_t n, const uv_buf_t *b) {
        struct conn *c = stream->data;
        if (n == 0)
                return;
        if (n == UV_ENOBUFS) {
                uv_read_stop(stream);
                c->reading = false;
                return;
        }
        if (n == UV_EOF) {
                c->eof = true;
                c->reading = false;
                /* Who waits for one answer may have shut its own side; who listens to events and does so has left. */
                bool left = c->state == CONN_HANDLER && (upload_wants(c) || c->r.events || c->r.close_on_eof);
                if (c->state == CONN_BODY || c->state == CONN_LINGER || c->state == CONN_TUNNEL || left) {
                        conn_close(c);
                        return;
                }
        } else if (n < 0) {
                conn_close(c);
                return;
        } else if (c->state == CONN_BODY && b->base == c->s->read_buf)
                take_body_bytes(c, b->base, (size_t)n);
        else if (c->state == CONN_HANDLER && b->base == c->s->read_buf)
                upload_arrived(c, b->base, (size_t)n);
        else if (c->state == CONN_TUNNEL)
                tunnel_arrived(c, b->base, (size_t)n);
        else if (b->base != c->s->read_buf)
                c->in_len += (size_t)n;
        conn_pump(c);
}

/* ---- going on ---- */

static enum conn_phase phase_of(const struct conn *c) {
        if (c->writing)
                return PHASE_WRITE;
        switch (c->state) {
        case CONN_HEAD:
                return c->head_started ? PHASE_HEAD : PHASE_IDLE;
        case CONN_BODY:
                return c->r.body.busy ? PHASE_HANDLER : PHASE_BODY;
        case CONN_HANDLER:
                return upload_wants(c) ? PHASE_BODY : c->r.events ? PHASE_EVENTS : PHASE_HANDLER;
        case CONN_TUNNEL:
                return PHASE_TUNNEL;
        case CONN_LINGER:
                return PHASE_LINGER;
        default:
                return PHASE_HANDLER;
        }
}

void conn_arm(struct conn *c, enum conn_phase phase) {
        const struct http_limits *l = &c->s->cfg.limits;
        const uint64_t ms[] = {
                [PHASE_NONE] = 0, [PHASE_IDLE] = l->idle_timeout_ms, [PHASE_HEAD] = l->head_timeout_ms, [PHASE_BODY] = l->body_timeout_ms,
                [PHASE_HANDLER] = 0, [PHASE_WRITE] = l->write_timeout_ms, [PHASE_LINGER] = HTTP_LINGER_MS,
                [PHASE_EVENTS] = HTTP_EVENTS_KEEP_ALIVE_MS, [PHASE_TUNNEL] = c->tunnel ? c->tunnel->idle_ms : 0,
        };
        c->phase = phase;
        c->mark = phase == PHASE_WRITE ? response_unsent(c) : phase == PHASE_TUNNEL ? c->tunnel->received : phase == PHASE_EVENTS ? c->r.n_events : c->r.body.len;
        server_deadline(c, ms[phase]);
}

static void shut(uv_shutdown_t *req, int status) {
        conn_unref(req->data);
}

/* The answer is out. Closing now could destroy it: bytes that were not read make the kernel send a reset. So say that we are done,
 * and drop what comes until the peer is done too, or its time is up. */
static void linger(struct conn *c) {
        if (c->eof) {
                conn_close(c);
                return;
        }
        c->state = CONN_LINGER;
        c->shutdown.data = c;
        c->pending++;
        if (uv_shutdown(&c->shutdown, &c->h.stream, shut) < 0) {
                c->pending--;
                conn_close(c);
        }
}

/* After the pump: what to wait for. */
static void settle(struct conn *c) {
        bool sent = response_unsent(c) == 0 && !c->writing;
        if (c->state == CONN_HEAD && c->eof && (c->in_len == 0 || c->scanned == c->in_len))
                c->state = CONN_FLUSH;  /* no further request can come */
        if (c->state == CONN_FLUSH && sent)
                linger(c);
        if (c->state == CONN_CLOSED)
                return;
        enum conn_phase phase = phase_of(c);
        if (phase != c->phase)
                conn_arm(c, phase);
        bool want = !c->eof && wants_bytes(c);
        if (want && !c->reading && uv_read_start(&c->h.stream, allocate, arrived) < 0)
                conn_close(c);
        else if (!want && c->reading)
                uv_read_stop(&c->h.stream);
        c->reading = want;
}

void conn_pump(struct conn *c) {
        if (c->pumping || c->state == CONN_CLOSED)
                return;
        c->pumping = true;
        for (bool more = true; more;)
                switch (c->state) {
                case CONN_HEAD:
                        more = step_head(c);
                        break;
                case CONN_BODY:
                        more = step_body(c);
                        break;
                case CONN_HANDLER:
                        more = upload_step(c);
                        break;
                case CONN_TUNNEL:
                        more = tunnel_step(c);
                        break;
                default:
                        more = false;
                }
        if (c->state != CONN_CLOSED)
                response_flush(c);
        c->pumping = false;
        if (c->sent && c->state != CONN_CLOSED && !c->writing && response_unsent(c) == 0)
                tell_sent(c, true);
        if (c->state != CONN_CLOSED)
                settle(c);
        if (c->state == CONN_FLUSH || c->state == CONN_LINGER)
                tunnel_tell(c);
}

void conn_answered(struct conn *c) {
        struct http_request *r = &c->r;
        struct http_server *s = c->s;
        if (s->cfg.log)
                s->cfg.log(r, r->status, uv_now(s->loop) - r->started_ms, s->cfg.user);
        bool keep = r->keep_alive;
        size_t rest = c->in_len - c->pos;
        _cleanup_buf_ struct buf left = r->up.left;        /* of the next request, read with the last of an upload */
        buf_init(&r->up.left, 0);
        if (!keep)
                rest = 0;
        else if (rest)
                memmove(c->in, c->in + c->pos, rest);
        c->in_len = rest;
        if (keep && left.len) {
                if (conn_grow(c, left.len) < 0) {
                        conn_close(c);
                        return;
                }
                memcpy(c->in + c->in_len, left.data, left.len);
                c->in_len += left.len;
        }
        c->head_len = c->pos = c->scanned = c->line = c->first_line = 0;
        c->head_started = c->complete = false;
        c->phase = PHASE_NONE;
        if (r->sent) {
                tell_sent(c, true);
                c->sent = r->sent;
                c->sent_user = r->sent_user;
        }
        request_reset(r);
        c->state = keep ? CONN_HEAD : CONN_FLUSH;
        conn_pump(c);
}

void conn_expired(struct conn *c) {
        struct refusal late = { 408, "Request timeout" };
        switch (c->phase) {
        case PHASE_WRITE:
                if (response_unsent(c) < c->mark)
                        conn_arm(c, PHASE_WRITE);
                else
                        conn_close(c);
                return;
        case PHASE_BODY:
                if (c->r.body.len - c->mark >= c->s->cfg.limits.body_rate_min) {
                        conn_arm(c, PHASE_BODY);
                        return;
                }
                if (c->state == CONN_HANDLER) {
                        upload_late(c, late);
                        return;
                }
                break;
        case PHASE_HEAD:
                request_identify(&c->r);
                break;
        case PHASE_EVENTS:
                if (c->r.n_events == c->mark)
                        events_expired(c);
                if (c->state == CONN_HANDLER && !c->writing)
                        conn_arm(c, PHASE_EVENTS);
                return;
        case PHASE_TUNNEL:
                if ((c->tunnel->received == c->mark || c->tunnel->strict) && c->tunnel->idle)
                        c->tunnel->idle(c->tunnel, c->tunnel->user);
                if (c->state == CONN_TUNNEL && !c->writing)
                        conn_arm(c, PHASE_TUNNEL);
                return;
        default:
                conn_close(c);
                return;
        }
        c->state = CONN_HANDLER;
        response_refuse(c, late, true);
}

void conn_drop_idle(struct conn *c) {
        if (c->state == CONN_TUNNEL)
                tunnel_stopping(c);
        if (c->state == CONN_HEAD && response_unsent(c) == 0)
                conn_close(c);
}

void conn_start(struct conn *c, struct refusal why) {
        if (why.status) {
                c->state = CONN_HANDLER;
                c->rejected = true;
                request_identify(&c->r);
                c->r.started_ms = uv_now(c->s->loop);
                response_refuse(c, why, true);
                return;
        }
        conn_pump(c);
}
