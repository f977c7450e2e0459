#include "api/v1_image_work.h"

#include <string.h>

#include "http/events.h"

#define EVENT_MAX (64u * 1024)

struct image_work {
        struct http_request *r;
        bool stream, started, ended;
        uint64_t dropped;
        void (*cancel)(void *user); void *user;
        struct buf last; const char *last_event;       /* the end, while it cannot be sent */
};

static void work_free(struct image_work *w) {
        buf_release(&w->last);
        free(w);
}

static void closed(void *user) {
        struct image_work *w = user;
        if (!w->ended)
                w->cancel(w->user);
        work_free(w);
}

struct image_work *image_work_new(struct http_request *r, bool stream, void (*cancel)(void *user), void *user) {
        struct image_work *w = calloc(1, sizeof *w);
        if (!w) {
                v1_fault(r, -ENOMEM, NULL, NULL);
                return NULL;
        }
        *w = (struct image_work){ .r = r, .stream = stream, .cancel = cancel, .user = user, .last = BUF_INIT(EVENT_MAX) };
        http_on_close(r, closed, w);
        http_close_on_eof(r);  /* who leaves while an archive is unpacked or fetched takes that along */
        return w;
}

static void begin(struct image_work *w) {
        if (w->started)
                return;
        w->started = true;
        http_events_start(w->r);
}

void image_work_event(struct image_work *w, const char *event, struct buf *json) {
        char text[64];
        if (!w->stream || w->ended)
                return;
        begin(w);
        if (w->dropped > 0) {
                int n = snprintf(text, sizeof text, "{\"events\":%llu}", (unsigned long long)w->dropped);
                if (http_events_send(w->r, "dropped", NULL, text, (size_t)n) == -EAGAIN) {
                        w->dropped++;
                        return;
                }
                w->dropped = 0;
        }
        if (http_events_send(w->r, event, NULL, buf_str(json), json->len) == -EAGAIN)
                w->dropped++;
}

/* ---- the end ---- */

void v1_put_image(struct json_writer *w, const struct image *img, bool config) {
        struct image_info info;
        image_info(img, &info);
        json_begin_object(w);
        json_field_text(w, "digest", info.digest);
        json_put_key(w, "names");
        json_put_texts(w, (char *const *)(uintptr_t)info.names);
        json_field_text(w, "origin", image_origin_to_string((int)info.origin));
        json_field_text(w, "source", info.source);
        json_field_text(w, "base", info.base);
        json_field_uint(w, "layers", info.n_layers);
        json_field_uint(w, "bytes", info.bytes);
        json_field_uint(w, "users", info.users);
        v1_put_time(w, "created_at", info.created_ms);
        v1_put_time(w, "used_at", info.used_ms);
        if (config) {
                json_put_key(w, "config");
                image_config_write(info.config, w);
        }
        json_end_object(w);
}

/* A configuration may be larger than what is kept here for a slow reader, and so may all names: GET has them. */
static int put_image(struct buf *b, const struct image *img) {
        int r = -ENOSPC;
        for (int config = 1; config >= 0 && r == -ENOSPC; config--) {
                struct json_writer w = JSON_WRITER(b);
                buf_reset(b);
                v1_put_image(&w, img, config);
                r = json_finish(&w);
        }
        if (r == -ENOSPC) {
                struct image_info info;
                image_info(img, &info);
                buf_reset(b);
                r = buf_printf(b, "{\"digest\":\"%s\"}", info.digest);
        }
        return r;
}

static int status_of(enum image_failure f) {
        switch (f) {
        case IMAGE_OK: return 200;
        case IMAGE_NOT_FOUND: return 404;
        case IMAGE_INVALID: return 422;
        case IMAGE_TOO_LARGE: return 413;
        case IMAGE_UNREACHABLE: return 502;
        case IMAGE_UNAUTHORIZED: return 403;
        case IMAGE_STEP_FAILED: return 422;
        case IMAGE_TIMEOUT: return 504;
        case IMAGE_CANCELLED: case IMAGE_IN_USE: return 409;
        case IMAGE_DISK_FULL: return 503;
        case IMAGE_SESSION_ENDED: return 409;
        default: return 500;
        }
}

static int put_error(struct buf *b, enum image_failure f, const struct error *e) {
        struct json_writer w = JSON_WRITER(b);
        json_begin_object(&w);
        json_put_key(&w, "error");
        json_begin_object(&w);
        json_field_text(&w, "code", image_failure_to_string((int)f));
        json_field_text(&w, "message", e->text);
        json_field_text(&w, "hint", f == IMAGE_UNAUTHORIZED ? "give `auth`, or have the operator's credentials set" : NULL);
        json_end_object(&w);
        json_end_object(&w);
        return json_finish(&w);
}

static void drained(void *user) {
        struct image_work *w = user;
        if (!w->last_event)
                return;
        int x = http_events_send(w->r, w->last_event, NULL, buf_str(&w->last), w->last.len);
        if (x == -EAGAIN || x == -EPIPE)         /* later; or `closed` has freed it */
                return;
        struct http_request *r = w->r;
        http_on_close(r, NULL, NULL);
        http_on_drain(r, NULL, NULL);
        work_free(w);
        http_events_end(r);
}

void image_work_done(struct image_work *w, struct image *img, enum image_failure failure, const struct error *e) {
        int x = img ? put_image(&w->last, img) : put_error(&w->last, failure, e);
        w->ended = true;
        if (!w->stream) {
                struct http_request *r = w->r;
                http_on_close(r, NULL, NULL);
                v1_reply(r, status_of(failure), x, &w->last);
                work_free(w);
                return;
        }
        begin(w);
        if (x < 0) {
                buf_reset(&w->last);
                buf_adds(&w->last, "{}");
        }
        w->last_event = img ? "image" : "error";
        http_on_drain(w->r, drained, w);
        drained(w);
}

void image_work_refuse(struct image_work *w, int x, const char *text) {
        struct http_request *r = w->r;
        http_on_close(r, NULL, NULL);
        work_free(w);
        v1_fault(r, x, text, "image");
}
