/* POST /v1/images/build: a JSON body, or the build context as an archive, with what the JSON body would say in the query's `options`. The
 * body comes in pieces: JSON is gathered, an archive goes to an unnamed file and is looked into by nobody here. */
#include <fcntl.h>
#include <string.h>

#include "api/build_fields.h"
#include "api/v1_image_work.h"
#include "base/fs.h"
#include "http/upload.h"

struct building {
        struct api *api;
        struct http_request *r;
        struct buf json;
        int fd;                            /* of the archive; -1: JSON */
        uint64_t bytes;
        struct image_work *work;
        struct build *build;
};

static void building_free(struct building *b) {
        buf_release(&b->json);
        fd_close(b->fd);
        free(b);
}

/* ---- while it is built ---- */

static void cancelled(void *user) {
        struct building *b = user;
        build_cancel(b->build);
        building_free(b);
}

static void put_where(struct json_writer *w, const struct build_event *ev) {
        json_field_uint(w, "step", ev->step);
        json_field_uint(w, "steps", ev->steps);
        json_field_uint(w, "line", ev->line);
}

static void event(const struct build_event *ev, void *user) {
        static const char *const names[] = { [BUILD_STEP] = "step", [BUILD_CACHED] = "cached", [BUILD_OUTPUT] = "output", [BUILD_PULL] = "pull" };
        struct building *b = user;
        _cleanup_buf_ struct buf text = BUF_INIT(256 * 1024);
        struct json_writer w = JSON_WRITER(&text);
        json_begin_object(&w);
        put_where(&w, ev);
        if (ev->text)
                json_field_string(&w, "text", ev->text, ev->len);
        if (ev->pull)
                json_field_uint(&w, "bytes", ev->pull->bytes_in);
        json_end_object(&w);
        if (json_finish(&w) == 0)
                image_work_event(b->work, names[ev->kind], &text);
}

static void done(struct image *img, enum image_failure failure, const struct error *e, void *user) {
        struct building *b = user;
        struct image_work *w = b->work;
        building_free(b);
        image_work_done(w, img, failure, e);
        if (img)
                image_unuse(img);
}

/* ---- start ---- */

static int start(struct building *b, const struct build_body *body, struct error *e) {
        static const struct build_callbacks callbacks = { .event = event, .done = done };
        struct builder *builder = engine_builder(b->api->engine);
        struct build_spec spec;
        int context;
        if (!builder)
                return error_say(e, -ESHUTDOWN, "draining");
        int r = build_body_spec(builder, body, &spec, &context, e);
        if (r < 0)
                return r;
        if (b->fd >= 0)
                spec.context = b->fd;
        r = build_start(builder, &spec, &callbacks, b, &b->build, e);
        fd_close(context);
        return r;
}

static void body_end(void *user) {
        struct building *b = user;
        const char *text = b->fd >= 0 ? http_query(b->r, "options") : buf_str(&b->json);
        struct build_body body;
        struct json object;
        struct error e;
        text = text ? text : "{}";
        http_on_close(b->r, NULL, NULL);
        if (json_parse(text, b->fd >= 0 ? strlen(text) : b->json.len, &object, NULL) < 0 || object.type != JSON_OBJECT) {
                v1_error(b->r, 400, "invalid", b->fd >= 0 ? "`options` must be a JSON object" : "The body must be a JSON object", NULL);
                building_free(b);
                return;
        }
        int x = build_body_decode(&object, b->fd >= 0, &body, &e);
        if (x < 0) {
                v1_fault(b->r, x, x == -EINVAL ? e.text : NULL, NULL);
                building_free(b);
                return;
        }
        b->work = image_work_new(b->r, body.stream, cancelled, b);
        if (!b->work) {
                building_free(b);
                build_body_release(&body);
                return;
        }
        x = start(b, &body, &e);
        if (x < 0) {
                image_work_refuse(b->work, x == -E2BIG ? -EINVAL : x, x == -EINVAL || x == -E2BIG ? e.text : NULL);
                building_free(b);
        }
        build_body_release(&body);
}

/* ---- the body ---- */

static void refuse(struct building *b, int x) {
        v1_fault(b->r, x, NULL, NULL);
        building_free(b);
}

static void body_piece(const char *p, size_t n, void *user) {
        struct building *b = user;
        int r;
        b->bytes += n;
        if (b->fd < 0)
                r = buf_add(&b->json, p, n);
        else
                r = b->bytes > BUILD_CONTEXT_BYTES_MAX ? -E2BIG : fs_write_all(b->fd, p, n);
        if (r < 0)
                refuse(b, r == -ENOSPC && b->fd < 0 ? -E2BIG : r);
}

static void body_lost(void *user) { building_free(user); }

void v1_post_build(struct http_request *r, void *user) {
        struct api *a = user;
        const char *type = http_header(r, "Content-Type");
        bool archive = type && strncasecmp(type, "application/", 12) == 0 && strncasecmp(type + 12, "json", 4) != 0 && strncasecmp(type + 12, "x-www-form", 10) != 0;
        struct builder *builder = engine_builder(a->engine);
        struct building *b = builder ? calloc(1, sizeof *b) : NULL;
        if (!b) {
                v1_fault(r, builder ? -ENOMEM : -ESHUTDOWN, NULL, NULL);
                return;
        }
        *b = (struct building){ .api = a, .r = r, .fd = -1, .json = BUF_INIT(BUILD_FILES_BYTES_MAX / 3 * 4 + (4u << 20)) };
        if (archive) {
                b->fd = build_unnamed_file(builder);
                if (b->fd < 0) {
                        refuse(b, b->fd);
                        return;
                }
        }
        http_on_close(r, body_lost, b);
        http_upload_start(r, &(struct http_upload){ body_piece, body_end }, b);
}
