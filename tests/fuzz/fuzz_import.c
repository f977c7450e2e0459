/* The documents of an archive with images: whatever they say, what comes out is bounded, and paths stay in the archive. */
#include <string.h>

#include "base/strv.h"
#include "fuzz.h"
#include "store/image_config.h"
#include "store/image_manifest.h"

static void check_path(const struct image_blob *b) {
        ASSERT(b->path[0] && b->path[0] != '/' && strlen(b->path) < IMAGE_BLOB_PATH_MAX);
        ASSERT(strncmp(b->path, "../", 3) != 0 && !strstr(b->path, "/../"));
}

static void check_choice(struct image_choice *c) {
        ASSERT(c->n_layers <= IMAGE_MANIFEST_LAYERS_MAX);
        for (size_t i = 0; i < c->n_layers; i++)
                check_path(&c->layers[i]);
        image_choice_release(c);
}

/* What a configuration says can be written and is the same when it is read again. */
static void check_config(struct image_config *c) {
        _cleanup_buf_ struct buf first = BUF_INIT(16u << 20), second = BUF_INIT(16u << 20);
        struct json_writer w = JSON_WRITER(&first), v = JSON_WRITER(&second);
        struct image_config again;
        struct json doc;
        json_begin_object(&w);
        json_put_key(&w, "config");
        image_config_write(c, &w);
        json_end_object(&w);
        if (json_finish(&w) == 0 && json_parse(buf_str(&first), first.len, &doc, NULL) == 0 && image_config_parse(&doc, &again, NULL, NULL) == 0) {
                json_begin_object(&v);
                json_put_key(&v, "config");
                image_config_write(&again, &v);
                json_end_object(&v);
                ASSERT(json_finish(&v) == 0 && first.len == second.len && memcmp(first.data, second.data, first.len) == 0);
                image_config_release(&again);
        }
        image_config_release(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        static struct image_choice c;
        struct image_config config;
        char **ids = NULL;
        struct json doc;
        if (size > 1u << 20 || json_parse((const char *)data, size, &doc, NULL) < 0)
                return 0;
        c = (struct image_choice){ 0 };
        if (image_index_choose(&doc, NULL, &c, NULL) == 0) {
                check_path(&c.manifest);
                check_choice(&c);
        }
        c = (struct image_choice){ 0 };
        if (image_docker_choose(&doc, NULL, &c, NULL) == 0) {
                check_path(&c.config);
                check_choice(&c);
        }
        c = (struct image_choice){ 0 };
        if (image_manifest_parse(&doc, &c, NULL) == 0)
                check_choice(&c);
        if (image_config_parse(&doc, &config, &ids, NULL) == 0) {
                for (char **v = ids; v && *v; v++)
                        ASSERT(strlen(*v) == 64);
                strv_free(ids);
                check_config(&config);
        }
        return 0;
}
