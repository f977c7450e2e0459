/* Answers. A head is put together in the connection's out buffer, which lives as long as the connection, so an ordinary answer costs
 * no allocation; a small body is copied behind it, a large one is sent from where it is. What the socket does not take at once
 * goes to libuv, and the next bytes wait in the out buffer. */
#include "base/json.h"
#include "http/internal.h"

static const char *status_text(int status) {
        switch (status) {
        case 200: return "OK";
        case 201: return "Created";
        case 202: return "Accepted";
        case 101: return "Switching Protocols";
        case 204: return "No Content";
        case 206: return "Partial Content";
        case 301: return "Moved Permanently";
        case 302: return "Found";
        case 304: return "Not Modified";
        case 400: return "Bad Request";
        case 401: return "Unauthorized";
        case 403: return "Forbidden";
        case 404: return "Not Found";
        case 405: return "Method Not Allowed";
        case 408: return "Request Timeout";
        case 409: return "Conflict";
        case 410: return "Gone";
        case 411: return "Length Required";
        case 412: return "Precondition Failed";
        case 413: return "Content Too Large";
        case 414: return "URI Too Long";
        case 415: return "Unsupported Media Type";
        case 416: return "Range Not Satisfiable";
        case 417: return "Expectation Failed";
        case 426: return "Upgrade Required";
        case 422: return "Unprocessable Content";
        case 429: return "Too Many Requests";
        case 431: return "Request Header Fields Too Large";
        case 500: return "Internal Server Error";
        case 501: return "Not Implemented";
        case 502: return "Bad Gateway";
        case 503: return "Service Unavailable";
        case 504: return "Gateway Timeout";
        case 505: return "HTTP Version Not Supported";
        case 507: return "Insufficient Storage";
        default: return "Status";
        }
}

static bool has_no_body(int status) {
        return status == 204 || status == 304 || status < 200;
}

size_t response_unsent(const struct conn *c) {
        return c->out.len + (c->big.len - c->big_done) + (c->writing ? uv_stream_get_write_queue_size(&c->h.stream) : 0);
}

int response_raw(struct conn *c, const char *p, size_t n) {
        return buf_add(&c->out, p, n);
}

static void written(uv_write_t *req, int status) {
        struct conn *c = req->data;
        struct http_request *r = &c->r;
        c->writing = false;
        buf_reset(&c->sending);
        buf_release(&c->big_sending);
        if (status < 0)
                conn_close(c);
        if (c->state != CONN_CLOSED) {
                response_flush(c);
                if (c->state != CONN_CLOSED && r->want_drain && response_unsent(c) <= HTTP_STREAM_HIGH_WATER / 2) {
                        r->want_drain = false;
                        if (r->drain)
                                r->drain(r->drain_user);
                }
                if (c->state == CONN_TUNNEL)
                        tunnel_drained(c);
                conn_pump(c);
        }
        conn_unref(c);
}

/* Hands over what the socket did not take. */
static void queue_rest(struct conn *c) {
        struct buf swap = c->sending;
        uv_buf_t v[2];
        unsigned n = 0;
        c->sending = c->out;
        c->out = swap;
        c->out.limit = OUT_MAX;
        if (c->sending.len)
                v[n++] = uv_buf_init(c->sending.data, (unsigned)c->sending.len);
        c->big_sending = c->big;
        buf_init(&c->big, 0);
        if (c->big_sending.len)
                v[n++] = (uv_buf_t){ .base = c->big_sending.data + c->big_done, .len = c->big_sending.len - c->big_done };
        c->big_done = 0;
        c->write.data = c;
        c->writing = true;
        c->pending++;
        int r = uv_write(&c->write, &c->h.stream, v, n, written);
        if (r < 0) {
                c->writing = false;
                c->pending--;
                conn_close(c);
        }
}

void response_flush(struct conn *c) {
        uv_buf_t v[2];
        unsigned n = 0;
        if (c->writing || c->state == CONN_CLOSED)
                return;
        if (c->out.len)
                v[n++] = uv_buf_init(c->out.data, (unsigned)c->out.len);
        if (c->big.len)
                v[n++] = (uv_buf_t){ .base = c->big.data + c->big_done, .len = c->big.len - c->big_done };
        if (n == 0)
                return;
        int sent = uv_try_write(&c->h.stream, v, n);
        if (sent < 0 && sent != UV_EAGAIN) {
                conn_close(c);
                return;
        }
        size_t took = sent < 0 ? 0 : (size_t)sent, head = MIN2(took, c->out.len);
        if (head == c->out.len)
                buf_reset(&c->out);
        else
                buf_consume(&c->out, head);
        c->big_done += took - head;
        if (c->big_done == c->big.len) {
                buf_release(&c->big);
                c->big.len = c->big_done = 0;
        }
        if (c->out.len || c->big.len)
                queue_rest(c);
}

struct cursor { char *p; };

static inline void add(struct cursor *w, const char *p, size_t n) {
        memcpy(w->p, p, n);
        w->p += n;
}

#define ADD(w, literal) add(w, literal, sizeof(literal) - 1)

static void add_number(struct cursor *w, uint64_t v) {
        char digits[20];
        size_t n = 0;
        do
                digits[sizeof digits - ++n] = (char)('0' + v % 10);
        while (v /= 10);
        add(w, digits + sizeof digits - n, n);
}

/* The head; length < 0: a stream. */
static int add_head(struct http_request *r, int status, const char *type, int64_t length, size_t more) {
        struct conn *c = r->c;
        const char *text = status_text(status), *id = http_request_id(r);
        size_t text_len = strlen(text), type_len = type ? strlen(type) : 0, id_len = strlen(id);
        int e = buf_reserve(&c->out, 512 + text_len + type_len + id_len + r->extra.len + more);
        if (e < 0)
                return e;
        struct cursor w = { c->out.data + c->out.len };
        ADD(&w, "HTTP/1.1 ");
        add_number(&w, (uint64_t)status);
        ADD(&w, " ");
        add(&w, text, text_len);
        ADD(&w, "\r\nDate: ");
        add(&w, server_date(c->s), 29);
        if (type_len) {
                ADD(&w, "\r\nContent-Type: ");
                add(&w, type, type_len);
        }
        if (length >= 0 && !has_no_body(status)) {
                ADD(&w, "\r\nContent-Length: ");
                add_number(&w, (uint64_t)length);
        } else if (length < 0 && r->minor == 1)
                ADD(&w, "\r\nTransfer-Encoding: chunked");
        if (id_len) {
                ADD(&w, "\r\nX-Request-Id: ");
                add(&w, id, id_len);
        }
        if (r->traceparent[0]) {
                ADD(&w, "\r\ntraceparent: ");
                add(&w, r->traceparent, 55);
        }
        if (!r->keep_alive)
                ADD(&w, "\r\nConnection: close");
        else if (r->minor == 0)
                ADD(&w, "\r\nConnection: keep-alive");
        ADD(&w, "\r\n");
        add(&w, buf_str(&r->extra), r->extra.len);
        ADD(&w, "\r\n");
        c->out.len = (size_t)(w.p - c->out.data);
        c->out.data[c->out.len] = 0;
        r->status = status;
        return 0;
}

int response_head(struct http_request *r, int status) {
        return add_head(r, status, NULL, 0, 0);
}

static void finish(struct http_request *r, int e) {
        r->answer = ANSWER_DONE;
        if (e < 0)
                conn_close(r->c);       /* no memory for the answer: the peer sees the connection end */
        else
                conn_answered(r->c);
}

static bool may_answer(const struct http_request *r) {
        if (r->c->state == CONN_CLOSED)
                return false;
        ASSERT(r->answer == ANSWER_NONE);
        return true;
}

static void keep_alive_check(struct http_request *r) {
        upload_settle(r);
        if (r->c->s->stopping)
                r->keep_alive = false;
}

void http_respond(struct http_request *r, int status, const char *content_type, const char *body, size_t n) {
        struct conn *c = r->c;
        if (n > COPY_MAX) {
                struct buf b = BUF_INIT(n);
                if (buf_add(&b, body, n) < 0) {
                        r->answer = ANSWER_DONE;
                        conn_close(c);
                } else
                        http_respond_buf(r, status, content_type, &b);
                return;
        }
        if (!may_answer(r))
                return;
        keep_alive_check(r);
        int e = add_head(r, status, content_type, (int64_t)n, n);
        if (e == 0 && !r->head_only && !has_no_body(status))
                e = buf_add(&c->out, body, n);
        finish(r, e);
}

void http_respond_buf(struct http_request *r, int status, const char *content_type, struct buf *b) {
        struct conn *c = r->c;
        if (b->len <= COPY_MAX) {
                http_respond(r, status, content_type, buf_str(b), b->len);
                buf_release(b);
                return;
        }
        if (!may_answer(r)) {
                buf_release(b);
                return;
        }
        keep_alive_check(r);
        int e = add_head(r, status, content_type, (int64_t)b->len, 0);
        if (e == 0 && !r->head_only && !has_no_body(status)) {
                ASSERT(c->big.len == 0);
                c->big = *b;
                c->big_done = 0;
                buf_init(b, b->limit);
        } else
                buf_release(b);
        finish(r, e);
}

static int default_error_body(const char *message, struct buf *b) {
        struct json_writer w = JSON_WRITER(b);
        json_begin_object(&w);
        json_field_text(&w, "error", message);
        json_end_object(&w);
        return json_finish(&w);
}

void http_respond_error(struct http_request *r, int status, const char *message) {
        const struct http_config *cfg = &r->c->s->cfg;
        _cleanup_buf_ struct buf b = BUF_INIT(COPY_MAX);
        int e = cfg->error_body ? cfg->error_body(status, http_path(r), message, &b) : default_error_body(message, &b);
        if (status == 401)
                http_respond_header(r, "WWW-Authenticate", "Bearer");
        http_respond(r, status, "application/json", buf_str(&b), e < 0 ? 0 : b.len);
}

void response_refuse(struct conn *c, struct refusal why, bool close) {
        struct http_request *r = &c->r;
        if (close)
                r->keep_alive = false;
        r->answer = ANSWER_NONE;
        http_respond_error(r, why.status, why.message);
}

void http_respond_header(struct http_request *r, const char *name, const char *value) {
        for (const char *p = value; *p; p++)
                if ((unsigned char)*p < 0x20 || *p == 0x7f)
                        return;
        buf_printf(&r->extra, "%s: %s\r\n", name, value);
}

static void stream_start(struct http_request *r, int status, const char *content_type, int64_t length) {
        if (!may_answer(r))
                return;
        keep_alive_check(r);
        if (r->minor == 0 && length < 0)
                r->keep_alive = false;  /* its end is the connection's */
        if (add_head(r, status, content_type, length, 0) < 0) {
                conn_close(r->c);
                return;
        }
        r->fixed = length >= 0;
        r->out_left = length >= 0 ? (uint64_t)length : 0;
        r->answer = ANSWER_STREAM;
        response_flush(r->c);
}

void http_stream_start(struct http_request *r, int status, const char *content_type) {
        stream_start(r, status, content_type, -1);
}

void http_stream_start_length(struct http_request *r, int status, const char *content_type, uint64_t length) {
        ASSERT(length <= INT64_MAX);
        stream_start(r, status, content_type, (int64_t)length);
}

int http_stream_write(struct http_request *r, const char *p, size_t n) {
        struct conn *c = r->c;
        char size[20];
        if (c->state == CONN_CLOSED)
                return -EPIPE;
        ASSERT(r->answer == ANSWER_STREAM);
        if (n > HTTP_STREAM_WRITE_MAX || (r->fixed && n > r->out_left))
                return -EMSGSIZE;
        if (n == 0 || r->head_only)
                return 0;
        if (response_unsent(c) > HTTP_STREAM_HIGH_WATER) {
                r->want_drain = true;
                return -EAGAIN;
        }
        bool chunked = r->minor == 1 && !r->fixed;
        int e = buf_reserve(&c->out, n + sizeof size + 2);
        if (e < 0)
                return e;
        if (chunked)
                buf_add(&c->out, size, (size_t)snprintf(size, sizeof size, "%zx\r\n", n));
        buf_add(&c->out, p, n);
        if (chunked)
                buf_add(&c->out, "\r\n", 2);
        if (r->fixed)
                r->out_left -= n;
        response_flush(c);
        return c->state == CONN_CLOSED ? -EPIPE : 0;
}

void response_abort(struct http_request *r) {
        struct http_server *s = r->c->s;
        r->answer = ANSWER_DONE;
        if (s->cfg.log)
                s->cfg.log(r, r->status, uv_now(s->loop) - r->started_ms, s->cfg.user);
        conn_close(r->c);
}

void http_stream_abort(struct http_request *r) {
        if (r->c->state == CONN_CLOSED)
                return;
        ASSERT(r->answer == ANSWER_STREAM);
        response_abort(r);
}

void http_stream_end(struct http_request *r) {
        if (r->c->state == CONN_CLOSED)
                return;
        ASSERT(r->answer == ANSWER_STREAM);
        int e = 0;
        if (r->fixed && r->out_left > 0 && !r->head_only) {
                response_abort(r);
                return;
        }
        if (r->minor == 1 && !r->fixed && !r->head_only)
                e = buf_add(&r->c->out, "0\r\n\r\n", 5);
        finish(r, e);
}
