/* POST /v1/images/pull */
#include <string.h>

#include "api/build_fields.h"
#include "api/v1_image_work.h"
#include "registry/pull.h"

struct pulling { struct image_work *work; struct pull *pull; };

static void cancelled(void *user) {
        struct pulling *p = user;
        pull_cancel(p->pull);
        free(p);
}

static void progress(const struct pull_progress *g, void *user) {
        struct pulling *p = user;
        _cleanup_buf_ struct buf b = BUF_INIT(1024);
        struct json_writer w = JSON_WRITER(&b);
        json_begin_object(&w);
        json_field_uint(&w, "layers", g->layers);
        json_field_uint(&w, "layers_done", g->layers_done);
        json_field_uint(&w, "layers_wanted", g->fetched.layers_wanted);
        json_field_uint(&w, "layers_fetched", g->fetched.layers_done);
        json_field_uint(&w, "bytes", g->fetched.bytes_done);
        json_field_uint(&w, "bytes_wanted", g->fetched.bytes_wanted);
        json_end_object(&w);
        if (json_finish(&w) == 0)
                image_work_event(p->work, "progress", &b);
}

static void done(struct image *img, enum image_failure failure, const struct error *e, void *user) {
        struct pulling *p = user;
        struct image_work *w = p->work;
        free(p);
        image_work_done(w, img, failure, e);
        if (img)
                image_unuse(img);
}

void v1_post_pull(struct http_request *r, void *user) {
        static const struct pull_callbacks callbacks = { .progress = progress, .done = done };
        struct api *a = user;
        struct puller *puller = engine_puller(a->engine);
        struct pull_body body;
        struct json object;
        struct error e;
        if (!puller) {
                v1_fault(r, -ESHUTDOWN, NULL, NULL);
                return;
        }
        if (!v1_body(r, false, &object))
                return;
        int x = pull_body_decode(&object, &body, &e);
        if (x < 0) {
                v1_fault(r, x, e.text, NULL);
                return;
        }
        struct pulling *p = calloc(1, sizeof *p);
        if (p)
                p->work = image_work_new(r, body.stream, cancelled, p);
        if (p && p->work) {
                const struct pull_request req = { .name = body.name, .username = body.username, .password = body.password, .timeout_ms = body.timeout_ms };
                x = pull_start(puller, &req, &callbacks, p, &p->pull, &e);
                if (x < 0) {
                        image_work_refuse(p->work, x, x == -EINVAL ? e.text : NULL);
                        free(p);
                }
        } else {
                if (!p)
                        v1_fault(r, -ENOMEM, NULL, NULL);
                free(p);
        }
        pull_body_release(&body);
}
