/* Answers from descriptors: one piece is read, handed to the stream, and only when the stream took it the next is read. Files are
 * read by the loop's pool (a disk may be slow), pipes directly when the kernel says that there is something.
 *
 * The peer may vanish at any moment, also within a call that writes to it; then `r` is NULL, and whoever holds the object (a read
 * in the pool, a function of ours: `held`) lets it go when it is done. */
#include "http/internal.h"
#include "http/send.h"

struct sender {
        struct http_request *r;
        int fd;
        bool held, over;
        size_t len;                    /* of `piece`: read, and not yet taken */
        uint64_t at, left;             /* file: where to read next, how much of it goes out */
        uv_fs_t read;
        uv_poll_t poll;                /* pipe */
        void (*done)(int r, void *user); void *user;
        char piece[HTTP_SEND_PIECE];
};

static struct sender *sender_new(struct http_request *r, int fd, void (*done)(int r, void *user), void *user) {
        struct sender *s = malloc(sizeof *s);
        if (!s)
                return NULL;
        *s = (struct sender){ .r = r, .fd = fd, .done = done, .user = user };
        return s;
}

static void quiet(struct sender *s) {
        if (s->r) {
                http_on_close(s->r, NULL, NULL);
                http_on_drain(s->r, NULL, NULL);
        }
}

/* ---- ranges ---- */

static const char *number(const char *p, uint64_t *ret) {
        uint64_t v = 0;
        const char *start = p;
        for (; *p >= '0' && *p <= '9'; p++) {
                if (v > (UINT64_MAX - 9) / 10)
                        return NULL;
                v = v * 10 + (uint64_t)(*p - '0');
        }
        *ret = v;
        return p == start ? NULL : p;
}

int http_range(const struct http_request *r, uint64_t size, uint64_t *ret_from, uint64_t *ret_n) {
        const char *p = http_header(r, "Range");
        uint64_t first = 0, last = UINT64_MAX;
        if (!p || strncmp(p, "bytes=", 6) != 0 || http_header(r, "If-Range"))
                return 0;
        p += 6;
        bool suffix = *p == '-';
        if (suffix) {                   /* the last N bytes */
                p = number(p + 1, &last);
        } else if ((p = number(p, &first)) && *p == '-') {
                p++;
                if (*p)
                        p = number(p, &last);
        } else
                return 0;
        if (!p || *p || (!suffix && last < first))
                return 0;
        if (suffix) {
                if (last == 0 || size == 0)
                        return -ERANGE;
                first = size - MIN2(last, size);
                last = size - 1;
        } else if (first >= size)
                return -ERANGE;
        *ret_from = first;
        *ret_n = MIN2(last, size - 1) - first + 1;
        return 1;
}

void http_range_header(struct http_request *r, uint64_t size, uint64_t from, uint64_t n) {
        char text[80];
        snprintf(text, sizeof text, "bytes %llu-%llu/%llu", (unsigned long long)from, (unsigned long long)(from + n - 1), (unsigned long long)size);
        http_respond_header(r, "Content-Range", text);
        http_respond_header(r, "Accept-Ranges", "bytes");
}

void http_range_refuse(struct http_request *r, uint64_t size) {
        char text[40];
        snprintf(text, sizeof text, "bytes */%llu", (unsigned long long)size);
        http_respond_header(r, "Content-Range", text);
        http_respond_error(r, 416, "Range not satisfiable");
}

/* ---- files ---- */

static void file_end(struct sender *s, int result) {
        quiet(s);
        if (s->r && result == 0)
                http_stream_end(s->r);
        else if (s->r)
                http_stream_abort(s->r);
        fd_close(s->fd);
        if (s->done)
                s->done(s->r ? result : -ECANCELED, s->user);
        free(s);
}

static void file_closed(void *user) {
        struct sender *s = user;
        s->r = NULL;
        if (!s->held)
                file_end(s, -ECANCELED);
}

static void file_next(struct sender *s);

static void file_write(struct sender *s) {
        s->held = true;
        int e = http_stream_write(s->r, s->piece, s->len);
        s->held = false;
        if (!s->r || (e < 0 && e != -EAGAIN)) {
                file_end(s, e < 0 ? e : -ECANCELED);
        } else if (e == 0) {
                s->at += s->len;
                s->left -= s->len;
                s->len = 0;
                file_next(s);
        }
}

static void file_read(uv_fs_t *req) {
        struct sender *s = req->data;
        ssize_t n = req->result;
        uv_fs_req_cleanup(req);
        s->held = false;
        if (!s->r || n <= 0) {
                file_end(s, n < 0 ? (int)n : -EIO);      /* 0: shorter than its size */
                return;
        }
        s->len = (size_t)n;
        file_write(s);
}

static void file_next(struct sender *s) {
        if (s->left == 0) {
                file_end(s, 0);
                return;
        }
        uv_buf_t b = uv_buf_init(s->piece, (unsigned)MIN2(s->left, sizeof s->piece));
        s->read.data = s;
        s->held = true;
        int e = uv_fs_read(s->r->c->s->loop, &s->read, s->fd, &b, 1, (int64_t)s->at, file_read);
        if (e < 0) {
                s->held = false;
                file_end(s, e);
        }
}

static void file_drained(void *user) {
        struct sender *s = user;
        if (!s->held && s->len > 0)
                file_write(s);
}

void http_send_file(struct http_request *r, int fd, uint64_t size, const char *content_type, void (*done)(int r, void *user), void *user) {
        uint64_t from = 0, n = size;
        int part = http_range(r, size, &from, &n);
        struct sender *s = part < 0 ? NULL : sender_new(r, fd, done, user);
        if (!s) {
                fd_close(fd);
                if (part < 0)
                        http_range_refuse(r, size);
                else
                        http_respond_error(r, 503, "Out of memory");
                if (done)
                        done(part < 0 ? 0 : -ENOMEM, user);
                return;
        }
        s->at = from;
        s->left = r->head_only ? 0 : n;
        if (part)
                http_range_header(r, size, from, n);
        else
                http_respond_header(r, "Accept-Ranges", "bytes");
        http_on_close(r, file_closed, s);
        http_on_drain(r, file_drained, s);
        s->held = true;
        http_stream_start_length(r, part ? 206 : 200, content_type, n);
        s->held = false;
        if (s->r)
                file_next(s);
        else
                file_end(s, -ECANCELED);
}

/* ---- pipes ---- */

static void pipe_freed(uv_handle_t *h) {
        struct sender *s = h->data;
        fd_close(s->fd);
        free(s);
}

static void pipe_end(struct sender *s, int result) {
        if (s->over)
                return;
        s->over = true;
        quiet(s);
        uv_close((uv_handle_t *)&s->poll, pipe_freed);
        if (s->done)
                s->done(s->r ? result : -ECANCELED, s->user);
        else if (s->r && result == 0)
                http_stream_end(s->r);
        else if (s->r)
                http_stream_abort(s->r);
}

static void pipe_closed(void *user) {
        struct sender *s = user;
        s->r = NULL;
        if (!s->held)
                pipe_end(s, -ECANCELED);
}

static void pipe_ready(uv_poll_t *poll, int status, int events);

/* True if it was taken, and more may be read. */
static bool pipe_write(struct sender *s) {
        s->held = true;
        int e = http_stream_write(s->r, s->piece, s->len);
        s->held = false;
        if (!s->r)
                pipe_end(s, -ECANCELED);
        else if (e == -EAGAIN)
                uv_poll_stop(&s->poll);
        else if (e < 0)
                pipe_end(s, e);
        else
                s->len = 0;
        return e == 0 && !s->over;
}

static void pipe_ready(uv_poll_t *poll, int status, int events) {
        struct sender *s = poll->data;
        if (s->over)
                return;
        ssize_t n = read(s->fd, s->piece, sizeof s->piece);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return;
        if (n <= 0) {
                pipe_end(s, n < 0 ? -errno : 0);
                return;
        }
        s->len = (size_t)n;
        pipe_write(s);
}

static void pipe_drained(void *user) {
        struct sender *s = user;
        if (s->over || s->len == 0 || !pipe_write(s))
                return;
        int e = uv_poll_start(&s->poll, UV_READABLE, pipe_ready);
        if (e < 0)
                pipe_end(s, e);
}

void http_send_pipe(struct http_request *r, int status, int fd, int64_t length, const char *content_type, void (*done)(int r, void *user), void *user) {
        struct sender *s = sender_new(r, fd, done, user);
        int e = s ? uv_poll_init(r->c->s->loop, &s->poll, fd) : -ENOMEM;
        if (e < 0) {
                http_on_close(r, NULL, NULL);
                free(s);
                fd_close(fd);
                http_stream_start(r, status, content_type);
                if (done)
                        done(r->c->state == CONN_CLOSED ? -ECANCELED : e, user);
                else
                        http_stream_abort(r);
                return;
        }
        s->poll.data = s;
        http_on_close(r, pipe_closed, s);
        http_on_drain(r, pipe_drained, s);
        s->held = true;
        if (length < 0)
                http_stream_start(r, status, content_type);
        else
                http_stream_start_length(r, status, content_type, (uint64_t)length);
        s->held = false;
        e = s->r ? uv_poll_start(&s->poll, UV_READABLE, pipe_ready) : -ECANCELED;
        if (e < 0)
                pipe_end(s, e);
}
