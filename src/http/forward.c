/* One exchange with another server.
 *
 *     client ──upload, in pieces──> uv_write ──> server        the upload pauses while more than HTTP_FORWARD_AHEAD_MAX wait
 *     client <──stream or tunnel── `left` <── llhttp <── server        reading stops while the client has not taken `left`
 *
 * `r` is the request until it is answered or gone, `t` the tunnel after a 101. The object lives until both handles are closed and
 * every write has come back. */
#include <strings.h>

#include "http/forward_internal.h"

static void finish(struct http_forward_run *f) {
        if (f->over)
                return;
        f->over = true;
        if (f->r) {
                http_on_close(f->r, NULL, NULL);
                http_on_drain(f->r, NULL, NULL);
                f->r = NULL;
        }
        uv_close((uv_handle_t *)f->tcp, forward_handle_closed);
        uv_close((uv_handle_t *)&f->timer, forward_handle_closed);
}

void forward_unref(struct http_forward_run *f) {
        if (--f->refs > 0)
                return;
        void (*done)(void *user) = f->done;
        void *user = f->user;
        buf_release(&f->fields);
        buf_release(&f->left);
        free(f->prefix);
        free(f->host);
        free(f->tcp);
        free(f);
        done(user);
}

void forward_handle_closed(uv_handle_t *h) { forward_unref(h->data); }

/* It did not work out, as far as the client can still be told. */
static void fail(struct http_forward_run *f, int status, const char *why) {
        struct http_request *r = TAKE_PTR(f->r);
        struct http_tunnel *t = TAKE_PTR(f->t);
        if (r) {
                http_on_close(r, NULL, NULL);
                http_on_drain(r, NULL, NULL);
                if (f->answering)
                        http_stream_abort(r);
                else
                        f->fail(r, status, why, f->user);
        }
        if (t)
                http_tunnel_close(t);
        finish(f);
}

void http_forward_cut(struct http_forward_run *f, const char *why) {
        if (!f->over)
                fail(f, 502, why);
}

static void client_gone(void *user) {
        struct http_forward_run *f = user;
        f->r = NULL;
        finish(f);
}

/* ---- to the server ---- */

struct put { uv_write_t req; struct http_forward_run *f; char bytes[]; };

static void put_done(uv_write_t *req, int status) {
        struct put *p = container_of(req, struct put, req);
        struct http_forward_run *f = p->f;
        free(p);
        f->active = true;
        /* A server that has had enough may have answered: that is read first, and its end tells. */
        if (!f->over && status < 0)
                f->deaf = true;
        size_t waits = f->over ? 0 : uv_stream_get_write_queue_size((uv_stream_t *)f->tcp);
        if (!f->over && waits <= HTTP_FORWARD_AHEAD_MAX / 2) {
                if (f->r && f->upload_paused) {
                        f->upload_paused = false;
                        http_upload_resume(f->r);
                }
                if (f->t && f->tunnel_paused) {
                        f->tunnel_paused = false;
                        http_tunnel_resume(f->t);
                }
        }
        forward_unref(f);
}

static int put(struct http_forward_run *f, const char *p, size_t n) {
        if (n == 0 || f->deaf)
                return 0;
        uv_buf_t b = uv_buf_init((char *)(uintptr_t)p, (unsigned)n);
        int sent = uv_stream_get_write_queue_size((uv_stream_t *)f->tcp) ? 0 : uv_try_write((uv_stream_t *)f->tcp, &b, 1);
        size_t took = sent > 0 ? (size_t)sent : 0;
        f->active = true;
        if (took == n)
                return 0;
        struct put *w = malloc(sizeof *w + (n - took));
        if (!w)
                return -ENOMEM;
        w->f = f;
        memcpy(w->bytes, p + took, n - took);
        b = uv_buf_init(w->bytes, (unsigned)(n - took));
        f->refs++;
        int r = uv_write(&w->req, (uv_stream_t *)f->tcp, &b, 1, put_done);
        if (r < 0) {
                f->refs--;
                free(w);
                return r;
        }
        return 0;
}

static bool ahead(const struct http_forward_run *f) {
        return uv_stream_get_write_queue_size((uv_stream_t *)f->tcp) > HTTP_FORWARD_AHEAD_MAX;
}

static void upload_piece_came(const char *p, size_t n, void *user) {
        struct http_forward_run *f = user;
        char size[20];
        int r = 0;
        if (f->over)
                return;
        if (f->chunked)
                r = put(f, size, (size_t)snprintf(size, sizeof size, "%zx\r\n", n));
        if (r == 0)
                r = put(f, p, n);
        if (r == 0 && f->chunked)
                r = put(f, "\r\n", 2);
        if (r < 0)
                fail(f, 502, "Cannot send the request");
        else if (ahead(f) && !f->upload_paused) {
                f->upload_paused = true;
                http_upload_pause(f->r);
        }
}

static void upload_ended(void *user) {
        struct http_forward_run *f = user;
        f->sent = true;
        if (!f->over && f->chunked && put(f, "0\r\n\r\n", 5) < 0)
                fail(f, 502, "Cannot send the request");
}

/* ---- a tunnel, after a 101 ---- */

static void tunnel_data(struct http_tunnel *t, const char *p, size_t n, void *user) {
        struct http_forward_run *f = user;
        if (f->over)
                return;
        if (f->deaf || put(f, p, n) < 0)
                fail(f, 502, "");
        else if (ahead(f) && !f->tunnel_paused) {
                f->tunnel_paused = true;
                http_tunnel_pause(t);
        }
}

static void tunnel_closed(struct http_tunnel *t, void *user) {
        struct http_forward_run *f = user;
        f->t = NULL;
        finish(f);
        forward_unref(f);
}

static void read_on(struct http_forward_run *f);

static void tunnel_drain(struct http_tunnel *t, void *user) {
        struct http_forward_run *f = user;
        if (f->over || !f->t)
                return;
        int r = f->left.len ? http_tunnel_write(t, f->left.data, f->left.len) : 0;
        if (r == 0) {
                buf_reset(&f->left);
                read_on(f);
        } else if (r != -EAGAIN)
                fail(f, 502, "");
}

static void to_tunnel(struct http_forward_run *f, const char *p, size_t n) {
        int r = n ? http_tunnel_write(f->t, p, n) : 0;
        if (r == -EAGAIN)
                r = buf_add(&f->left, p, n);
        if (r < 0)
                fail(f, 502, "");
}

int forward_switch(struct http_forward_run *f, const char *protocol) {
        static const struct http_tunnel_calls calls = { tunnel_data, tunnel_drain, tunnel_closed };
        struct http_request *r = f->r;
        http_on_drain(r, NULL, NULL);
        f->r = NULL;           /* answered, one way or the other */
        int e = http_tunnel_accept(r, protocol, &calls, f, &f->t);
        if (e == 0)
                f->refs++;
        return e;
}

/* ---- from the server ---- */

static void drained(void *user) {
        struct http_forward_run *f = user;
        if (f->over || !f->r)
                return;
        if (f->left.len) {
                int r = http_stream_write(f->r, f->left.data, f->left.len);
                if (r == -EAGAIN || f->over)
                        return;
                if (r < 0) {
                        fail(f, 502, "");
                        return;
                }
                buf_reset(&f->left);
        }
        if (f->complete)
                forward_answered(f);
        else
                read_on(f);
}

void forward_answered(struct http_forward_run *f) {
        struct http_request *r = TAKE_PTR(f->r);
        http_on_close(r, NULL, NULL);
        http_on_drain(r, NULL, NULL);
        if (f->answering)
                http_stream_end(r);
        else
                http_respond(r, f->status, NULL, NULL, 0);     /* 204, 304 */
        finish(f);
}

int forward_body(struct http_forward_run *f, const char *p, size_t n) {
        if (f->left.len == 0) {
                int r = http_stream_write(f->r, p, n);
                if (r == 0)
                        return 0;
                if (r != -EAGAIN || !f->r)
                        return r;
        }
        return buf_add(&f->left, p, n);
}

static void parse(struct http_forward_run *f, const char *p, size_t n) {
        enum llhttp_errno e = p ? llhttp_execute(&f->parser, p, n) : llhttp_finish(&f->parser);
        if (f->over)
                return;
        if (e == HPE_PAUSED_UPGRADE && f->t) {
                const char *at = llhttp_get_error_pos(&f->parser);
                to_tunnel(f, at, (size_t)(p + n - at));
                return;
        }
        if (f->complete) {
                if (f->left.len == 0)
                        forward_answered(f);
                return;
        }
        if (!p || e != HPE_OK)
                fail(f, 502, p ? "The server's answer is not HTTP" : "The server closed the connection");
}

static void allocate(uv_handle_t *h, size_t suggested, uv_buf_t *ret) {
        struct http_forward_run *f = h->data;
        *ret = uv_buf_init(f->server->read_buf, READ_CHUNK);
}

static void arrived(uv_stream_t *stream, ssize_t n, const uv_buf_t *b) {
        struct http_forward_run *f = stream->data;
        if (n == 0 || f->over)
                return;
        f->active = true;
        if (f->t) {
                if (n > 0)
                        to_tunnel(f, b->base, (size_t)n);
                else
                        fail(f, 502, "");      /* its end is the tunnel's */
        } else if (n == UV_EOF)
                parse(f, NULL, 0);
        else if (n > 0 && !f->answering && (f->before += (size_t)n) > HTTP_FORWARD_BEFORE_MAX)
                fail(f, 502, "The server's answer does not begin");
        else if (n < 0)
                fail(f, 502, "The server broke the connection");
        else
                parse(f, b->base, (size_t)n);
        if (!f->over && (f->left.len || f->complete))
                uv_read_stop(stream);
}

static void read_on(struct http_forward_run *f) {
        int r = uv_read_start((uv_stream_t *)f->tcp, allocate, arrived);
        if (r < 0 && r != UV_EALREADY)
                fail(f, 502, "Cannot read the answer");
}

/* ---- time ---- */

static void late(uv_timer_t *timer) {
        struct http_forward_run *f = timer->data;
        if (f->over)
                return;
        /* Where it is the client that is slow, its own time limits hold. */
        bool client = f->left.len > 0 || (!f->sent && !f->upload_paused), begun = f->answering || f->t || !f->sent;
        if (client || (f->active && begun)) {
                f->active = false;
                return;
        }
        fail(f, 504, "The server does not answer");
}

void forward_answer_began(struct http_forward_run *f) {
        f->active = true;
        uv_timer_start(&f->timer, late, f->idle_ms, f->idle_ms);
}

/* ---- the beginning ---- */

static struct http_forward_run *forward_new(struct http_request *r, uv_tcp_t *tcp, const struct http_forward *o) {
        struct http_forward_run *f = calloc(1, sizeof *f);
        if (!f)
                return NULL;
        *f = (struct http_forward_run){
                .r = r, .server = r->c->s, .tcp = tcp, .fail = o->fail, .done = o->done, .user = o->user, .refs = 2,
                .prefix = strdup(o->prefix), .host = strdup(o->host), .idle_ms = o->idle_ms ? o->idle_ms : HTTP_FORWARD_IDLE_MS,
                .fields = BUF_INIT(HTTP_FORWARD_HEAD_MAX), .left = BUF_INIT(READ_CHUNK), .chunked = r->chunked,
        };
        if (f->prefix && f->host)
                return f;
        free(f->prefix);
        free(f->host);
        free(f);
        return NULL;
}

static void closed_unused(uv_handle_t *h) { free(h); }

struct http_forward_run *http_forward(struct http_request *r, uv_tcp_t *tcp, const struct http_forward *o) {
        _cleanup_buf_ struct buf head = BUF_INIT(FORWARD_REQUEST_MAX);
        struct http_forward_run *f = forward_new(r, tcp, o);
        const char *upgrade = r->has_length || r->chunked ? NULL : http_upgrade_asked(r);
        if (!f || forward_request_head(r, o, upgrade, &head) < 0) {
                if (f) {
                        free(f->prefix);
                        free(f->host);
                        free(f);
                }
                uv_close((uv_handle_t *)tcp, closed_unused);
                o->fail(r, 502, "Cannot send the request", o->user);
                o->done(o->user);
                return NULL;
        }
        tcp->data = f;
        uv_timer_init(f->server->loop, &f->timer);
        f->timer.data = f;
        uv_timer_start(&f->timer, late, o->first_ms ? o->first_ms : HTTP_FORWARD_FIRST_MS, o->first_ms ? o->first_ms : HTTP_FORWARD_FIRST_MS);
        uv_tcp_nodelay(tcp, 1);
        forward_parser_init(f, upgrade != NULL);
        http_on_close(r, client_gone, f);
        http_on_drain(r, drained, f);
        if (put(f, head.data, head.len) < 0) {
                fail(f, 502, "Cannot send the request");
                return f;
        }
        if (upgrade)
                f->sent = true;
        else
                http_upload_start(r, &(struct http_upload){ upload_piece_came, upload_ended }, f);
        read_on(f);
        return f;
}
