/* The record of an image: one JSON file, $BRIG_HOME/images/<digest>.json, written once. */
#include <string.h>

#include "base/strv.h"
#include "store/image_store_private.h"

#define RECORD_FORMAT 1

static const char *const image_origin_names[IMAGE_ORIGIN_MAX] = { "import", "pull", "build", "snapshot", "builtin" };
STRING_TABLE(image_origin, image_origin_names, IMAGE_ORIGIN_MAX)

void image_free(struct image *img) {
        if (!img)
                return;
        image_config_release(&img->config);
        strv_free(img->names);
        free(img->base);
        free(img->source);
        free(img->keys);
        free(img->layers);
        free(img);
}

static void put_keys(const struct image *img, struct json_writer *w) {
        json_put_key(w, "layers");
        json_begin_array(w);
        for (size_t i = 0; i < img->n; i++)
                json_put_text(w, img->keys[i]);
        json_end_array(w);
}

int image_record_write(const struct image *img, struct buf *b) {
        struct json_writer w = JSON_WRITER(b);
        json_begin_object(&w);
        json_field_int(&w, "format", RECORD_FORMAT);
        json_field_text(&w, "digest", img->digest);
        json_field_text(&w, "base", img->base);
        json_field_text(&w, "base_key", img->base_key);
        put_keys(img, &w);
        json_field_text(&w, "origin", image_origin_to_string((int)img->origin));
        json_field_text(&w, "source", img->source);
        json_field_int(&w, "made_ms", img->created_ms);
        json_put_key(&w, "image");
        json_begin_object(&w);
        json_field_text(&w, "architecture", img->config.architecture);
        json_field_text(&w, "os", img->config.os);
        json_field_text(&w, "created", img->config.created);
        json_put_key(&w, "config");
        image_config_write(&img->config, &w);
        json_end_object(&w);
        json_end_object(&w);
        return json_finish(&w);
}

/* What two images must share to be one: all that a sandbox can see of them. */
int image_compute_digest(struct image *img) {
        _cleanup_buf_ struct buf b = BUF_INIT(IMAGE_CONFIG_BYTES_MAX);
        struct json_writer w = JSON_WRITER(&b);
        json_begin_object(&w);
        json_field_text(&w, "brig image", "1");
        json_field_text(&w, "base", img->base_key);
        put_keys(img, &w);
        json_put_key(&w, "config");
        image_config_write(&img->config, &w);
        json_end_object(&w);
        int r = json_finish(&w);
        return r < 0 ? r : sha256_hex(buf_str(&b), b.len, img->digest);
}

static int text(const struct json *o, const char *name, size_t max, char **ret) {
        struct json v;
        _cleanup_buf_ struct buf b = BUF_INIT(max);
        if (!json_get(o, name, &v) || v.type == JSON_NULL)
                return 0;
        int r = json_string(&v, &b);
        if (r < 0)
                return r;
        *ret = strdup(buf_str(&b));
        return *ret ? 0 : -ENOMEM;
}

static int key(const struct json *v, bool may_be_empty, char ret[static SHA256_HEX]) {
        _cleanup_buf_ struct buf b = BUF_INIT(SHA256_HEX);
        if (json_string(v, &b) < 0 || strspn(buf_str(&b), "0123456789abcdef") != b.len || (b.len != SHA256_HEX - 1 && !(may_be_empty && b.len == 0)))
                return -EBADMSG;
        snprintf(ret, SHA256_HEX, "%s", buf_str(&b));
        return 0;
}

static int read_layers(struct image_store *st, const struct json *doc, struct image *img) {
        struct json list, item;
        if (!json_get(doc, "layers", &list) || list.type != JSON_ARRAY || json_count(&list) > IMAGE_LAYERS_MAX)
                return -EBADMSG;
        img->n = json_count(&list);
        img->keys = calloc(img->n + 1, sizeof *img->keys);
        img->layers = calloc(img->n + 1, sizeof *img->layers);
        if (!img->keys || !img->layers)
                return -ENOMEM;
        size_t i = 0;
        for (struct json_iter it = json_iter(&list); json_next_item(&it, &item); i++) {
                int r = key(&item, false, img->keys[i]);
                if (r < 0)
                        return r;
                if (!(img->layers[i] = layer_cache_find(st->cache, img->keys[i])))
                        return -ENOENT;
        }
        return 0;
}

static int fill(struct image_store *st, const struct json *doc, struct image *img) {
        struct json v, config;
        int64_t format;
        _cleanup_free_ char *origin = NULL;
        if (!json_get(doc, "format", &v) || json_int(&v, &format) < 0 || format != RECORD_FORMAT)
                return -EBADMSG;
        if (!json_get(doc, "digest", &v) || key(&v, false, img->digest) < 0 || !json_get(doc, "base_key", &v) || key(&v, true, img->base_key) < 0)
                return -EBADMSG;
        int r = text(doc, "base", 4096, &img->base);
        r = r ? r : text(doc, "source", 4096, &img->source);
        r = r ? r : text(doc, "origin", 32, &origin);
        if (r < 0)
                return r;
        int o = image_origin_from_string(origin);
        if (!img->base || o < 0 || !json_get(doc, "made_ms", &v) || json_int(&v, &img->created_ms) < 0 || !json_get(doc, "image", &config))
                return -EBADMSG;
        img->origin = (enum image_origin)o;
        struct error e;
        r = image_config_parse(&config, &img->config, NULL, &e);
        return r < 0 ? r : read_layers(st, doc, img);
}

int image_record_read(struct image_store *st, const char *p, size_t n, struct image **ret) {
        struct json doc;
        struct error e;
        int r = json_parse(p, n, &doc, &e);
        if (r < 0)
                return r;
        struct image *img = calloc(1, sizeof *img);
        if (!img)
                return -ENOMEM;
        img->store = st;
        r = fill(st, &doc, img);
        if (r < 0) {
                image_free(img);
                return r;
        }
        *ret = img;
        return 0;
}
