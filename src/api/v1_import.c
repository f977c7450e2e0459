/* POST /v1/images/import: the archive comes in pieces and goes to an unnamed file, which nobody here looks into. */
#include <string.h>

#include "api/v1_image_work.h"
#include "base/fs.h"
#include "build/build.h"
#include "http/upload.h"
#include "store/image_import.h"

#define ARCHIVE_BYTES_MAX (64ull << 30)

struct importing {
        struct api *api;
        struct http_request *r;
        int fd;
        uint64_t bytes;
        struct image_work *work;
        struct image_import *import;
};

static void importing_free(struct importing *m) {
        fd_close(m->fd);
        free(m);
}

static void cancelled(void *user) {
        struct importing *m = user;
        image_import_cancel(m->import);
        importing_free(m);
}

static void progress(const char *what, const struct image_progress *p, void *user) {
        struct importing *m = user;
        _cleanup_buf_ struct buf b = BUF_INIT(1024);
        struct json_writer w = JSON_WRITER(&b);
        json_begin_object(&w);
        json_field_text(&w, "what", what);
        json_field_uint(&w, "bytes", p->bytes_in);
        json_field_uint(&w, "unpacked", p->bytes_out);
        json_field_uint(&w, "entries", p->entries);
        json_end_object(&w);
        if (json_finish(&w) == 0)
                image_work_event(m->work, "progress", &b);
}

static void done(struct image *img, enum image_failure failure, const struct error *e, void *user) {
        struct importing *m = user;
        struct image_work *w = m->work;
        importing_free(m);
        image_work_done(w, img, failure, e);
        if (img)
                image_unuse(img);
}

static bool wants_stream(struct http_request *r) {
        const char *s = http_query(r, "stream");
        return s && (*s == 0 || strcmp(s, "1") == 0 || strcmp(s, "true") == 0);
}

static const char *given(struct http_request *r, const char *key) {
        const char *s = http_query(r, key);
        return s && *s ? s : NULL;
}

static void body_end(void *user) {
        static const struct image_import_callbacks callbacks = { .progress = progress, .done = done };
        struct importing *m = user;
        struct image_store *st = engine_images(m->api->engine);
        struct error e;
        http_on_close(m->r, NULL, NULL);
        if (m->bytes == 0) {                   /* whoever was to make it has failed: even an archive of nothing has an end */
                v1_error(m->r, 422, "image_invalid", "the archive is empty: not one byte came", NULL);
                importing_free(m);
                return;
        }
        if (!st || lseek(m->fd, 0, SEEK_SET) < 0) {
                v1_fault(m->r, st ? -EIO : -ESHUTDOWN, NULL, NULL);
                importing_free(m);
                return;
        }
        const struct image_import_spec spec = { .fd = m->fd, .name = given(m->r, "name"), .select = given(m->r, "select"), .source = "upload" };
        m->work = image_work_new(m->r, wants_stream(m->r), cancelled, m);
        int x = m->work ? image_import_start(st, &spec, &callbacks, m, &m->import, &e) : 0;
        if (x < 0)
                image_work_refuse(m->work, x, x == -EINVAL ? e.text : NULL);
        if (x < 0 || !m->work)
                importing_free(m);
}

static void body_piece(const char *p, size_t n, void *user) {
        struct importing *m = user;
        m->bytes += n;
        int x = m->bytes > ARCHIVE_BYTES_MAX ? -E2BIG : fs_write_all(m->fd, p, n);
        if (x < 0) {
                v1_fault(m->r, x, NULL, NULL);
                importing_free(m);
        }
}

static void body_lost(void *user) { importing_free(user); }

void v1_post_import(struct http_request *r, void *user) {
        struct api *a = user;
        struct builder *builder = engine_builder(a->engine);
        struct importing *m = builder ? calloc(1, sizeof *m) : NULL;
        if (!m) {
                v1_fault(r, builder ? -ENOMEM : -ESHUTDOWN, NULL, NULL);
                return;
        }
        *m = (struct importing){ .api = a, .r = r, .fd = build_unnamed_file(builder) };
        if (m->fd < 0) {
                v1_fault(r, m->fd, NULL, NULL);
                importing_free(m);
                return;
        }
        http_on_close(r, body_lost, m);
        http_upload_start(r, &(struct http_upload){ body_piece, body_end }, m);
}
