/* A request's body into a pipe. Written directly while the reader keeps up; what the pipe does not take (less than one piece) is
 * kept, the upload paused, and the pipe watched. It is watched for the reader's end all the time. */
#include "http/internal.h"

struct pipe_upload {
        struct http_request *r;
        uv_poll_t poll;
        int fd;
        struct buf rest;
        bool paused, over;
        void (*done)(int r, void *user); void *user;
};

static void freed(uv_handle_t *h) {
        struct pipe_upload *u = h->data;
        buf_release(&u->rest);
        free(u);
}

static void finish(struct pipe_upload *u, int r) {
        u->over = true;
        if (u->r) {
                http_on_close(u->r, NULL, NULL);
                if (r < 0 && !u->paused)
                        http_upload_pause(u->r);        /* for good: the caller answers */
        }
        uv_close((uv_handle_t *)&u->poll, freed);
        u->done(r, u->user);
}

static void gone(void *user) {
        struct pipe_upload *u = user;
        u->r = NULL;
        finish(u, -ECANCELED);
}

/* How much of it was taken; -errno. */
static ssize_t put(struct pipe_upload *u, const char *p, size_t n) {
        size_t at = 0;
        while (at < n) {
                ssize_t w = write(u->fd, p + at, n - at);
                if (w < 0 && errno == EINTR)
                        continue;
                if (w < 0 && errno == EAGAIN)
                        break;
                if (w < 0)
                        return -errno;
                at += (size_t)w;
        }
        return (ssize_t)at;
}

static void watch(struct pipe_upload *u);

static void ready(uv_poll_t *poll, int status, int events) {
        struct pipe_upload *u = poll->data;
        if (u->over)
                return;
        ssize_t w = put(u, u->rest.data, u->rest.len);
        if (w >= 0 && status < 0 && u->rest.len == 0)
                w = -EPIPE;             /* its reader is gone, seen before there was anything to write */
        if (w < 0) {
                finish(u, (int)w);
                return;
        }
        buf_consume(&u->rest, (size_t)w);
        if (u->rest.len == 0 && u->paused) {
                u->paused = false;
                http_upload_resume(u->r);
        }
        watch(u);
}

static void watch(struct pipe_upload *u) {
        int r = uv_poll_start(&u->poll, u->rest.len ? UV_WRITABLE | UV_DISCONNECT : UV_DISCONNECT, ready);
        if (r < 0)
                finish(u, r);
}

static void piece(const char *p, size_t n, void *user) {
        struct pipe_upload *u = user;
        if (u->over)
                return;
        ssize_t w = put(u, p, n);
        if (w >= 0 && (size_t)w < n) {
                int r = buf_add(&u->rest, p + w, n - (size_t)w);
                if (r < 0)
                        w = r;
                else {
                        u->paused = true;
                        http_upload_pause(u->r);
                        watch(u);
                }
        }
        if (w < 0)
                finish(u, (int)w);
}

static void whole(void *user) {
        struct pipe_upload *u = user;
        if (!u->over)
                finish(u, 0);
}

int http_upload_to_pipe(struct http_request *r, int fd, void (*done)(int r, void *user), void *user) {
        struct pipe_upload *u = calloc(1, sizeof *u);
        if (!u)
                return -ENOMEM;
        *u = (struct pipe_upload){ .r = r, .fd = fd, .rest = BUF_INIT(HTTP_UPLOAD_PIECE_MAX), .done = done, .user = user };
        int e = uv_poll_init(r->c->s->loop, &u->poll, fd);
        if (e < 0) {
                free(u);
                return e;
        }
        u->poll.data = u;
        e = uv_poll_start(&u->poll, UV_DISCONNECT, ready);
        if (e < 0) {
                uv_close((uv_handle_t *)&u->poll, freed);
                return e;
        }
        http_on_close(r, gone, u);
        http_upload_start(r, &(struct http_upload){ piece, whole }, u);
        return 0;
}
