/* The whole output of a task's command, from the log on disk: read on the loop's pool, a piece at a time, no faster than the
 * client takes it. */
#include <string.h>
#include <sys/stat.h>

#include "api/executor_internal.h"

#define LOG_PIECE (64u * 1024)

static const char *const stream_names[TASK_STREAM_MAX] = { "stdout", "stderr" };

static void put_stream(struct json_writer *w, struct engine *en, const char *id, enum task_stream stream) {
        _cleanup_close_ int fd = engine_task_log(en, id, stream);
        struct stat st;
        json_put_key(w, stream_names[stream]);
        if (fd < 0 || fstat(fd, &st) < 0) {
                json_put_null(w);
                return;
        }
        char url[96];
        snprintf(url, sizeof url, TASK_LOG_URL "/%s", id, stream_names[stream]);
        json_begin_object(w);
        json_field_text(w, "url", url);
        json_field_int(w, "bytes", st.st_size);
        json_end_object(w);
}

void executor_get_log(struct http_request *r, void *user) {
        struct api *a = user;
        const char *id = http_param(r, "id");
        enum task_status st;
        if (engine_task_status(a->engine, id, &st) < 0) {
                reply_not_found(r);
                return;
        }
        _cleanup_buf_ struct buf b = BUF_INIT(4096);
        struct json_writer w = JSON_WRITER(&b);
        json_begin_object(&w);
        json_field_text(&w, "task_id", id);
        for (int i = 0; i < TASK_STREAM_MAX; i++)
                put_stream(&w, a->engine, id, (enum task_stream)i);
        json_end_object(&w);
        reply_buf(r, 200, json_finish(&w), &b);
}

/* One download. The client may vanish at any moment, also within a call that writes to it; then `r` is NULL, and whoever
 * holds the object (a read on the pool, a function of ours: `held`) frees it when it is done. */
struct download {
        struct api *a;
        struct http_request *r;
        int fd;
        uv_fs_t read;
        bool held;
        int64_t at;
        size_t len;                    /* of what was read and not yet taken by the client */
        char piece[LOG_PIECE];
};

static void download_free(struct download *d) {
        fd_close(d->fd);
        free(d);
}

static void download_closed(void *user) {
        struct download *d = user;
        d->r = NULL;
        if (!d->held)
                download_free(d);
}

static void download_end(struct download *d) {
        if (d->r) {
                http_on_close(d->r, NULL, NULL);
                http_on_drain(d->r, NULL, NULL);
                http_stream_end(d->r);
        }
        download_free(d);
}

static void download_next(struct download *d);

/* Hands over what was read; then reads on, or waits until the client has caught up. */
static void download_write(struct download *d) {
        d->held = true;
        int x = http_stream_write(d->r, d->piece, d->len);
        d->held = false;
        if (!d->r || (x < 0 && x != -EAGAIN)) {
                download_end(d);
        } else if (x == 0) {
                d->len = 0;
                download_next(d);
        }
}

static void download_read(uv_fs_t *req) {
        struct download *d = req->data;
        ssize_t n = req->result;
        uv_fs_req_cleanup(req);
        d->held = false;
        if (!d->r || n <= 0) {         /* after a read error the log ends early: there is no other way to say it by now */
                download_end(d);
                return;
        }
        d->at += n;
        d->len = (size_t)n;
        download_write(d);
}

static void download_next(struct download *d) {
        uv_buf_t b = uv_buf_init(d->piece, sizeof d->piece);
        d->read.data = d;
        d->held = true;
        if (uv_fs_read(d->a->loop, &d->read, d->fd, &b, 1, d->at, download_read) < 0) {
                d->held = false;
                download_end(d);
        }
}

static void download_drained(void *user) {
        struct download *d = user;
        if (!d->held && d->len > 0)
                download_write(d);
}

static void start_download(struct api *a, struct http_request *r, enum task_stream stream) {
        int fd = engine_task_log(a->engine, http_param(r, "id"), stream);
        if (fd < 0) {
                reply_not_found(r);
                return;
        }
        struct download *d = calloc(1, sizeof *d);
        if (!d) {
                fd_close(fd);
                reply_error(r, fault_of_errno(-ENOMEM), fault_text(-ENOMEM));
                return;
        }
        d->a = a;
        d->r = r;
        d->fd = fd;
        http_on_close(r, download_closed, d);
        http_on_drain(r, download_drained, d);
        d->held = true;
        http_stream_start(r, 200, "application/octet-stream");
        d->held = false;
        if (d->r)
                download_next(d);
        else
                download_free(d);
}

void executor_get_stdout(struct http_request *r, void *user) {
        start_download(user, r, TASK_STDOUT);
}

void executor_get_stderr(struct http_request *r, void *user) {
        start_download(user, r, TASK_STDERR);
}
