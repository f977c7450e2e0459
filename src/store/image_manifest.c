#include <string.h>

#include "base/strv.h"
#include "store/image_manifest.h"

#define TEXT_MAX 1024

void image_choice_release(struct image_choice *c) { c->names = strv_free(c->names); }

static int bad(struct error *e, const char *what) { return error_say(e, -EBADMSG, "the archive's %s is not valid", what); }

static int text(const struct json *o, const char *name, char *ret, size_t size) {
        struct json v;
        ret[0] = 0;
        if (!json_get(o, name, &v) || v.type == JSON_NULL)
                return -ENOENT;
        _cleanup_buf_ struct buf b = BUF_INIT(size - 1);
        if (json_string(&v, &b) < 0 || memchr(buf_str(&b), 0, b.len))
                return -EBADMSG;
        memcpy(ret, buf_str(&b), b.len + 1);
        return 0;
}

/* A path of the archive's own, as it stands in docker's manifest. */
static bool path_ok(const char *p) {
        if (!*p || *p == '/' || strlen(p) >= IMAGE_BLOB_PATH_MAX)
                return false;
        while (*p) {
                size_t n = strcspn(p, "/");
                if (n == 0 || n > 255 || (n == 2 && p[0] == '.' && p[1] == '.'))
                        return false;
                p += n + (p[n] == '/');
        }
        return true;
}

static int blob_of_descriptor(const struct json *d, struct image_blob *ret) {
        char digest[TEXT_MAX];
        if (d->type != JSON_OBJECT || text(d, "digest", digest, sizeof digest) < 0)
                return -EBADMSG;
        if (strncmp(digest, "sha256:", 7) != 0 || strlen(digest) != 71 || strspn(digest + 7, "0123456789abcdef") != 64)
                return -EBADMSG;
        memcpy(ret->digest, digest + 7, SHA256_HEX);
        snprintf(ret->path, sizeof ret->path, "blobs/sha256/%s", ret->digest);
        return 0;
}

/* ---- OCI ---- */

static bool platform_fits(const struct json *d) {
        struct json p;
        char os[TEXT_MAX], architecture[TEXT_MAX];
        if (!json_get(d, "platform", &p) || p.type != JSON_OBJECT)
                return true;
        return text(&p, "os", os, sizeof os) == 0 && text(&p, "architecture", architecture, sizeof architecture) == 0 && strcmp(os, "linux") == 0 &&
               strcmp(architecture, IMAGE_ARCHITECTURE) == 0;
}

static int add_name(char ***names, const char *name) {
        return name[0] && strv_len((const char *const *)*names) < IMAGE_MANIFEST_NAMES_MAX ? strv_push(names, name) : 0;
}

static int names_of_descriptor(const struct json *d, char ***ret) {
        struct json a;
        char name[TEXT_MAX];
        int r = 0;
        if (!json_get(d, "annotations", &a) || a.type != JSON_OBJECT)
                return 0;
        static const char *const keys[] = { "io.containerd.image.name", "org.opencontainers.image.ref.name" };
        for (size_t i = 0; i < ARRAY_SIZE(keys) && r == 0; i++)
                if (text(&a, keys[i], name, sizeof name) == 0)
                        r = add_name(ret, name);
        return r;
}

static int several(const char *const *all, struct error *e) {
        char list[200] = "";
        for (size_t i = 0, at = 0; all && all[i] && at < sizeof list - 1; i++)
                at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", all[i]);
        return error_say(e, -E2BIG, "the archive holds several images, and which one is not said: %s", list);
}

int image_index_choose(const struct json *doc, const char *select, struct image_choice *ret, struct error *e) {
        struct json list, d;
        char media[TEXT_MAX];
        size_t found = 0;
        _cleanup_strv_ char **all = NULL;
        struct image_choice c = { 0 };
        if (doc->type != JSON_OBJECT || !json_get(doc, "manifests", &list) || list.type != JSON_ARRAY)
                return bad(e, "index");
        for (struct json_iter it = json_iter(&list); json_next_item(&it, &d);) {
                _cleanup_strv_ char **names = NULL;
                struct image_blob b;
                if (blob_of_descriptor(&d, &b) < 0) {
                        image_choice_release(&c);
                        return bad(e, "index");
                }
                if (!platform_fits(&d) || names_of_descriptor(&d, &names) < 0)
                        continue;
                if (names && names[0])
                        (void)add_name(&all, names[0]);
                if (select && !strv_contains((const char *const *)names, select))
                        continue;
                if (found++ > 0)
                        continue;
                c.manifest = b;
                c.is_index = text(&d, "mediaType", media, sizeof media) == 0 && (strstr(media, "image.index") || strstr(media, "manifest.list"));
                c.names = TAKE_PTR(names);
        }
        if (found == 1) {
                *ret = c;
                return 0;
        }
        image_choice_release(&c);
        return found == 0 ? error_say(e, -ENOENT, "the archive holds no image%s%s for linux/" IMAGE_ARCHITECTURE, select ? " named " : "", select ? select : "")
                          : several((const char *const *)all, e);
}

int image_manifest_parse(const struct json *doc, struct image_choice *ret, struct error *e) {
        struct json config, layers, d;
        if (doc->type != JSON_OBJECT || !json_get(doc, "config", &config) || blob_of_descriptor(&config, &ret->config) < 0 || !json_get(doc, "layers", &layers) ||
            layers.type != JSON_ARRAY)
                return bad(e, "manifest");
        ret->n_layers = 0;
        for (struct json_iter it = json_iter(&layers); json_next_item(&it, &d);) {
                if (ret->n_layers == IMAGE_MANIFEST_LAYERS_MAX)
                        return error_say(e, -E2BIG, "an image has at most %d layers", IMAGE_MANIFEST_LAYERS_MAX);
                if (blob_of_descriptor(&d, &ret->layers[ret->n_layers++]) < 0)
                        return bad(e, "manifest");
        }
        return 0;
}

/* ---- docker ---- */

static int docker_one(const struct json *o, struct image_choice *c, struct error *e) {
        struct json layers, tags, v;
        if (o->type != JSON_OBJECT || text(o, "Config", c->config.path, sizeof c->config.path) < 0 || !path_ok(c->config.path) || !json_get(o, "Layers", &layers) ||
            layers.type != JSON_ARRAY)
                return bad(e, "manifest.json");
        for (struct json_iter it = json_iter(&layers); json_next_item(&it, &v);) {
                _cleanup_buf_ struct buf b = BUF_INIT(IMAGE_BLOB_PATH_MAX - 1);
                if (c->n_layers == IMAGE_MANIFEST_LAYERS_MAX)
                        return error_say(e, -E2BIG, "an image has at most %d layers", IMAGE_MANIFEST_LAYERS_MAX);
                if (json_string(&v, &b) < 0 || memchr(buf_str(&b), 0, b.len) || !path_ok(buf_str(&b)))
                        return bad(e, "manifest.json");
                snprintf(c->layers[c->n_layers++].path, IMAGE_BLOB_PATH_MAX, "%s", buf_str(&b));
        }
        if (!json_get(o, "RepoTags", &tags) || tags.type != JSON_ARRAY)
                return 0;
        for (struct json_iter it = json_iter(&tags); json_next_item(&it, &v);) {
                _cleanup_buf_ struct buf b = BUF_INIT(TEXT_MAX);
                if (json_string(&v, &b) < 0 || add_name(&c->names, buf_str(&b)) < 0)
                        return bad(e, "manifest.json");
        }
        return 0;
}

int image_docker_choose(const struct json *doc, const char *select, struct image_choice *ret, struct error *e) {
        struct json o;
        size_t found = 0;
        _cleanup_strv_ char **all = NULL;
        struct image_choice *chosen = calloc(1, sizeof *chosen), *c = calloc(1, sizeof *c);
        int r = chosen && c ? 0 : error_set(e, -ENOMEM, "read the archive");
        if (r == 0 && doc->type != JSON_ARRAY)
                r = bad(e, "manifest.json");
        struct json_iter it = json_iter(doc);
        while (r == 0 && json_next_item(&it, &o)) {
                *c = (struct image_choice){ 0 };
                r = docker_one(&o, c, e);
                if (r == 0 && c->names && c->names[0])
                        (void)add_name(&all, c->names[0]);
                if (r == 0 && (!select || strv_contains((const char *const *)c->names, select)) && found++ == 0) {
                        *chosen = *c;
                        c->names = NULL;
                }
                image_choice_release(c);
        }
        if (r == 0 && found != 1)
                r = found ? several((const char *const *)all, e) : error_say(e, -ENOENT, "the archive holds no image%s%s", select ? " named " : "", select ? select : "");
        if (r == 0) {
                *ret = *chosen;
                chosen->names = NULL;
        }
        if (chosen)
                image_choice_release(chosen);
        free(chosen);
        free(c);
        return r;
}
