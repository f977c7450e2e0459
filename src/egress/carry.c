/* Bytes of a connection, both ways, and its end.
 *
 * A read goes to the other side at once. What that does not take is kept (one read at most), and nothing more is read from here
 * until it is gone: a slow side slows the other down and costs READ_SIZE bytes. End of file is passed on as such, and the
 * other direction goes on. An error is passed on as a reset, so that half an answer does not look like a whole one. */
#include <string.h>

#include "base/clock.h"
#include "egress/connection.h"

static void on_read(uv_stream_t *from, ssize_t n, const uv_buf_t *buf);

static struct side *side_from(struct connection *c, const uv_stream_t *from) { return from == c->up.from ? &c->up : &c->down; }

/* Every read ends before the next begins: one space serves all. */
static void on_alloc(uv_handle_t *h, size_t want, uv_buf_t *buf) {
        static char space[READ_SIZE];
        *buf = uv_buf_init(space, sizeof space);
}

static void on_shutdown(uv_shutdown_t *req, int status) {
        struct connection *c = req->data;
        if (c->state == CONNECTION_CARRYING && c->up.ended && c->down.ended)
                connection_finish(c);
}

static void pass_end(struct side *s) {
        uv_read_stop(s->from);
        s->ended = true;
        s->shutdown.data = s->c;
        if (uv_shutdown(&s->shutdown, s->to, on_shutdown) < 0)
                connection_reset(s->c);
}

static void on_written(uv_write_t *req, int status) {
        struct side *s = req->data;
        struct connection *c = s->c;
        free(TAKE_PTR(s->pending));
        if (c->state != CONNECTION_CARRYING)
                return;
        c->deadline_ms = now_ms() + EGRESS_IDLE_MS;
        if (status < 0 || (!s->ended && uv_read_start(s->from, on_alloc, on_read) < 0))
                connection_reset(c);
}

static int write_later(struct side *s, const char *p, size_t n) {
        s->pending = malloc(n);
        if (!s->pending)
                return -ENOMEM;
        memcpy(s->pending, p, n);
        uv_buf_t b = uv_buf_init(s->pending, (unsigned)n);
        s->write.data = s;
        int r = uv_write(&s->write, s->to, &b, 1, on_written);
        if (r < 0)
                free(TAKE_PTR(s->pending));
        return r;
}

static int pass_on(struct side *s, char *p, size_t n) {
        uv_buf_t b = uv_buf_init(p, (unsigned)n);
        *s->bytes += n;
        int r = uv_try_write(s->to, &b, 1);
        if (r < 0 && r != UV_EAGAIN)
                return r;
        size_t gone = (size_t)MAX2(r, 0);
        if (gone == n)
                return 0;
        uv_read_stop(s->from);
        return write_later(s, p + gone, n - gone);
}

static void on_read(uv_stream_t *from, ssize_t n, const uv_buf_t *buf) {
        struct connection *c = from->data;
        if (n == 0 || c->state != CONNECTION_CARRYING)
                return;
        struct side *s = side_from(c, from);
        c->deadline_ms = now_ms() + EGRESS_IDLE_MS;
        if (n == UV_EOF)
                pass_end(s);
        else if (n < 0 || pass_on(s, buf->base, (size_t)n) < 0)
                connection_reset(c);
}

void carry_start(struct connection *c) {
        struct egress_counters *counters = &c->net->counters;
        uv_stream_t *in = (uv_stream_t *)&c->inner, *out = (uv_stream_t *)c->outer;
        c->up = (struct side){ .c = c, .from = in, .to = out, .bytes = &counters->bytes_up };
        c->down = (struct side){ .c = c, .from = out, .to = in, .bytes = &counters->bytes_down };
        c->deadline_ms = now_ms() + EGRESS_IDLE_MS;
        counters->connections++;
        uv_tcp_nodelay(&c->inner, 1);
        uv_tcp_nodelay(c->outer, 1);
        if (c->proxy) {
                static char yes[] = "HTTP/1.1 200 Connection established\r\n\r\n";
                uv_buf_t b = uv_buf_init(yes, sizeof yes - 1);
                if (uv_try_write(in, &b, 1) != (int)b.len) {
                        connection_reset(c);
                        return;
                }
                c->proxy = false;      /* from now on it is theirs */
        }
        int r = uv_read_start(out, on_alloc, on_read);
        if (r == 0)
                r = uv_read_start(in, on_alloc, on_read);
        /* What came behind a CONNECT; may stop the reading again. */
        if (r == 0 && c->head_used < c->head_len)
                r = pass_on(&c->up, c->head + c->head_used, c->head_len - c->head_used);
        free(TAKE_PTR(c->head));
        if (r < 0)
                connection_reset(c);
}

/* ---- end ---- */

static void unlink_connection(struct connection *c) {
        struct egress_net *n = c->net;
        *c->prev = c->next;
        if (c->next)
                c->next->prev = c->prev;
        n->egress->n_connections--;
        n->n_connections--;
        net_maybe_free(n);
}

static void let_go(struct connection *c) {
        if (--c->handles > 0)
                return;
        unlink_connection(c);
        free(c->head);
        free(c);
}

static void on_inner_closed(uv_handle_t *h) { let_go(h->data); }

static void on_outer_closed(uv_handle_t *h) {
        struct connection *c = h->data;
        free(h);
        if (c)
                let_go(c);
}

static void close_tcp(uv_tcp_t *tcp, bool reset, uv_close_cb closed) {
        if (!reset || uv_tcp_close_reset(tcp, closed) < 0)
                uv_close((uv_handle_t *)tcp, closed);
}

static void end(struct connection *c, bool reset) {
        if (c->state == CONNECTION_CLOSED)
                return;
        bool carried = c->state == CONNECTION_CARRYING;
        c->state = CONNECTION_CLOSED;
        c->net->counters.open--;
        if (c->lookup)
                lookup_cancel(TAKE_PTR(c->lookup));
        if (c->outer) {
                uv_tcp_t *outer = TAKE_PTR(c->outer);
                if (!carried)
                        outer->data = NULL;    /* its handle was never counted */
                close_tcp(outer, carried && reset, on_outer_closed);
        }
        close_tcp(&c->inner, reset, on_inner_closed);
}

void connection_reset(struct connection *c) { end(c, true); }
void connection_finish(struct connection *c) { end(c, false); }
