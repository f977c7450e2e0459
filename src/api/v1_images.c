/* /v1/images: what the store has. */
#include <string.h>

#include "api/v1_image_work.h"
#include "base/strv.h"

#define LIST_BYTES_MAX (32u << 20)

static struct image_store *store_of(struct http_request *r, void *user) {
        struct image_store *st = engine_images(((struct api *)user)->engine);
        if (!st)
                v1_fault(r, -ESHUTDOWN, NULL, NULL);
        if (!st || image_store_ready(st))
                return st;
        http_respond_header(r, "Retry-After", "1");
        v1_error(r, 503, "starting", "The images have not been read yet", NULL);
        return NULL;
}

/* The image that the path names, or NULL and 404 is answered. */
static struct image *image_of(struct image_store *st, struct http_request *r) {
        struct image *img = image_find(st, http_param(r, "ref"));
        if (!img)
                v1_error(r, 404, "image_not_found", "There is no such image", "list them with GET /v1/images, or pull it");
        return img;
}

static void reply_image(struct http_request *r, const struct image *img) {
        _cleanup_buf_ struct buf b = BUF_INIT(IMAGE_CONFIG_BYTES_MAX * 2);
        struct json_writer w = JSON_WRITER(&b);
        v1_put_image(&w, img, true);
        v1_reply(r, 200, json_finish(&w), &b);
}

/* ---- list ---- */

struct gathered { struct image *all[IMAGE_IMAGES_MAX]; size_t n; };

static void gather(struct image *img, void *user) {
        struct gathered *g = user;
        if (g->n < IMAGE_IMAGES_MAX)
                g->all[g->n++] = img;
}

static int newest_first(const void *a, const void *b) {
        struct image_info x, y;
        image_info(*(struct image *const *)a, &x);
        image_info(*(struct image *const *)b, &y);
        return x.created_ms != y.created_ms ? (x.created_ms < y.created_ms) - (x.created_ms > y.created_ms) : strcmp(x.digest, y.digest);
}

void v1_list_images(struct http_request *r, void *user) {
        struct image_store *st = store_of(r, user);
        if (!st)
                return;
        _cleanup_free_ struct gathered *g = calloc(1, sizeof *g);
        if (!g) {
                v1_fault(r, -ENOMEM, NULL, NULL);
                return;
        }
        image_store_each(st, gather, g);
        qsort(g->all, g->n, sizeof *g->all, newest_first);
        _cleanup_buf_ struct buf b = BUF_INIT(LIST_BYTES_MAX);
        struct json_writer w = JSON_WRITER(&b);
        json_begin_object(&w);
        json_put_key(&w, "images");
        json_begin_array(&w);
        for (size_t i = 0; i < g->n; i++)
                v1_put_image(&w, g->all[i], false);
        json_end_array(&w);
        json_field_uint(&w, "bytes", image_store_bytes(st));
        json_field_uint(&w, "bytes_max", image_store_bytes_max(st));
        json_end_object(&w);
        v1_reply(r, 200, json_finish(&w), &b);
}

void v1_get_image(struct http_request *r, void *user) {
        struct image_store *st = store_of(r, user);
        struct image *img = st ? image_of(st, r) : NULL;
        if (img)
                reply_image(r, img);
}

/* ---- changes: answered when they are on disk ---- */

struct change { struct http_request *r; bool gone; };

static void closed(void *user) { ((struct change *)user)->gone = true; }

static struct change *change_new(struct http_request *r) {
        struct change *c = calloc(1, sizeof *c);
        if (!c) {
                v1_fault(r, -ENOMEM, NULL, NULL);
                return NULL;
        }
        c->r = r;
        http_on_close(r, closed, c);
        return c;
}

static void change_refused(struct change *c, int x, const char *text) {
        struct http_request *r = c->r;
        http_on_close(r, NULL, NULL);
        free(c);
        if (x == -EBUSY)
                v1_error(r, 409, "image_in_use", text, "end the sessions and tasks that use it");
        else
                v1_fault(r, x, x == -EINVAL ? text : NULL, "image");
}

/* The request, if somebody still wants an answer and all is well. */
static struct http_request *change_done(struct change *c, enum image_failure failure, const struct error *e) {
        struct http_request *r = c->gone ? NULL : c->r;
        free(c);
        if (!r)
                return NULL;
        http_on_close(r, NULL, NULL);
        if (failure == IMAGE_OK)
                return r;
        v1_error(r, failure == IMAGE_DISK_FULL ? 503 : failure == IMAGE_TOO_LARGE ? 413 : 500, image_failure_to_string((int)failure), e->text, NULL);
        return NULL;
}

static void removed(struct image *img, enum image_failure failure, const struct error *e, void *user) {
        struct http_request *r = change_done(user, failure, e);
        if (!r)
                return;
        _cleanup_buf_ struct buf b = BUF_INIT(4096);
        struct json_writer w = JSON_WRITER(&b);
        json_begin_object(&w);
        json_field_text(&w, "ref", http_param(r, "ref"));
        json_field_bool(&w, "deleted", true);
        json_end_object(&w);
        v1_reply(r, 200, json_finish(&w), &b);
}

void v1_delete_image(struct http_request *r, void *user) {
        struct image_store *st = store_of(r, user);
        struct error e;
        if (!st || !image_of(st, r))
                return;
        struct change *c = change_new(r);
        int x = c ? image_remove(st, http_param(r, "ref"), removed, c, &e) : 0;
        if (x < 0)
                change_refused(c, x, e.text);
}

struct tag_body { char *name; };
static const struct field tag_fields[] = {
        { .name = "name", .kind = FIELD_STRING, .at = offsetof(struct tag_body, name), .max = IMAGE_NAME_MAX, .doc = "the name to add" },
};
struct v1_body v1_tag_body(void) { return (struct v1_body){ tag_fields, ARRAY_SIZE(tag_fields) }; }

static void tagged(struct image *img, enum image_failure failure, const struct error *e, void *user) {
        struct http_request *r = change_done(user, failure, e);
        if (r)
                reply_image(r, img);
}

void v1_post_tag(struct http_request *r, void *user) {
        struct image_store *st = store_of(r, user);
        struct image *img = st ? image_of(st, r) : NULL;
        struct tag_body body = { 0 };
        struct json object;
        struct error e;
        if (!img || !v1_body(r, false, &object))
                return;
        int x = fields_decode(tag_fields, ARRAY_SIZE(tag_fields), &object, 0, &body, &e);
        if (x == 0 && !(body.name && body.name[0]))
                x = error_say(&e, -EINVAL, "Missing required fields: ['name']");
        if (x < 0) {
                v1_fault(r, x, e.text, NULL);
                free(body.name);
                return;
        }
        struct change *c = change_new(r);
        x = c ? image_tag(st, img, body.name, tagged, c, &e) : 0;
        free(body.name);
        if (x < 0)
                change_refused(c, x, e.text);
}
