#include <string.h>

#include "base/json.h"
#include "registry/manifest.h"

#define OCI "application/vnd.oci.image."
#define DOCKER "application/vnd.docker."

#if defined(__x86_64__)
const char *const manifest_architecture = "amd64";
#elif defined(__aarch64__)
const char *const manifest_architecture = "arm64";
#elif defined(__riscv) && __riscv_xlen == 64
const char *const manifest_architecture = "riscv64";
#elif defined(__powerpc64__) && defined(__LITTLE_ENDIAN__)
const char *const manifest_architecture = "ppc64le";
#elif defined(__s390x__)
const char *const manifest_architecture = "s390x";
#else
#error "name this architecture"
#endif

const char *const manifest_accept = OCI "index.v1+json, " OCI "manifest.v1+json, " DOCKER "distribution.manifest.list.v2+json, " DOCKER "distribution.manifest.v2+json";

enum media { MEDIA_UNKNOWN, MEDIA_IMAGE, MEDIA_INDEX, MEDIA_OLD };

static const struct { const char *name; enum media media; } manifests[] = {
        { OCI "manifest.v1+json", MEDIA_IMAGE },
        { DOCKER "distribution.manifest.v2+json", MEDIA_IMAGE },
        { OCI "index.v1+json", MEDIA_INDEX },
        { DOCKER "distribution.manifest.list.v2+json", MEDIA_INDEX },
        { DOCKER "distribution.manifest.v1+json", MEDIA_OLD },
        { DOCKER "distribution.manifest.v1+prettyjws", MEDIA_OLD },
};

static const struct { const char *name; enum layer_media media; } layer_types[] = {
        { OCI "layer.v1.tar", LAYER_TAR },
        { OCI "layer.v1.tar+gzip", LAYER_TAR_GZIP },
        { OCI "layer.v1.tar+zstd", LAYER_TAR_ZSTD },
        { DOCKER "image.rootfs.diff.tar", LAYER_TAR },
        { DOCKER "image.rootfs.diff.tar.gzip", LAYER_TAR_GZIP },
        { DOCKER "image.rootfs.diff.tar.zstd", LAYER_TAR_ZSTD },
};

static enum media media_of(const char *p, size_t n) {
        for (size_t i = 0; i < ARRAY_SIZE(manifests); i++)
                if (strlen(manifests[i].name) == n && strncasecmp(manifests[i].name, p, n) == 0)
                        return manifests[i].media;
        return MEDIA_UNKNOWN;
}

static enum media media_of_document(const struct json *doc, const char *content_type) {
        struct json v;
        enum media m = MEDIA_UNKNOWN;
        if (json_get(doc, "mediaType", &v) && v.type == JSON_STRING)
                m = media_of(v.p + 1, v.n - 2);
        if (m == MEDIA_UNKNOWN && content_type)
                m = media_of(content_type, strcspn(content_type, "; \t"));
        if (m == MEDIA_UNKNOWN && json_get(doc, "schemaVersion", &v) && v.n == 1 && *v.p == '1')
                m = MEDIA_OLD;
        if (m == MEDIA_UNKNOWN && json_get(doc, "manifests", &v))
                m = MEDIA_INDEX;
        if (m == MEDIA_UNKNOWN && json_get(doc, "layers", &v))
                m = MEDIA_IMAGE;
        return m;
}

static int bad(struct error *e, const char *why) { return error_say(e, -EBADMSG, "the registry's manifest is not valid: %s", why); }

static int parse_digest(const struct json *v, char ret[static IMAGE_REF_DIGEST_LEN + 1]) {
        if (v->type != JSON_STRING || v->n != IMAGE_REF_DIGEST_LEN + 2 || !image_digest_ok(v->p + 1, IMAGE_REF_DIGEST_LEN))
                return -EBADMSG;
        memcpy(ret, v->p + 1, IMAGE_REF_DIGEST_LEN);
        ret[IMAGE_REF_DIGEST_LEN] = 0;
        return 0;
}

static int parse_blob(const struct json *v, struct blob_ref *ret, struct error *e) {
        struct json digest, size;
        int64_t n;
        if (!json_get(v, "digest", &digest) || parse_digest(&digest, ret->digest) < 0)
                return bad(e, "a descriptor without a sha256 digest");
        if (!json_get(v, "size", &size) || json_int(&size, &n) < 0 || n < 0)
                return bad(e, "a descriptor without a size");
        ret->size = (uint64_t)n;
        return 0;
}

static int layer_type(const struct json *layer, enum layer_media *ret, struct error *e) {
        struct json v, urls;
        if (!json_get(layer, "mediaType", &v) || v.type != JSON_STRING)
                return bad(e, "a layer without a media type");
        if (json_get(layer, "urls", &urls) && json_count(&urls) > 0)
                return error_say(e, -EOPNOTSUPP, "a layer of the image lies elsewhere (a foreign layer)");
        for (size_t i = 0; i < ARRAY_SIZE(layer_types); i++)
                if (json_string_is(&v, layer_types[i].name)) {
                        *ret = layer_types[i].media;
                        return 0;
                }
        return error_say(e, -EOPNOTSUPP, "a layer of the image has an unknown type: %.*s", (int)MIN2(v.n, 100u), v.p);
}

static int parse_layers(const struct json *doc, struct manifest *m, struct error *e) {
        struct json layers, item;
        uint64_t total = 0;
        if (!json_get(doc, "layers", &layers) || layers.type != JSON_ARRAY)
                return bad(e, "no layers");
        size_t n = json_count(&layers);
        if (n > MANIFEST_LAYERS_MAX)
                return error_say(e, -E2BIG, "the image has %zu layers, more than %u", n, MANIFEST_LAYERS_MAX);
        m->layers = calloc(n ? n : 1, sizeof *m->layers);
        if (!m->layers)
                return error_set(e, -ENOMEM, "manifest");
        for (struct json_iter it = json_iter(&layers); json_next_item(&it, &item); m->n_layers++) {
                struct blob_ref *l = &m->layers[m->n_layers];
                int r = parse_blob(&item, l, e);
                r = r ? r : layer_type(&item, &l->media, e);
                if (r < 0)
                        return r;
                if (l->size > IMAGE_BYTES_MAX || (total += l->size) > IMAGE_BYTES_MAX)
                        return error_say(e, -E2BIG, "the image's layers are larger than %llu bytes", IMAGE_BYTES_MAX);
        }
        return 0;
}

static int parse_image(const struct json *doc, struct manifest *m, struct error *e) {
        struct json config, type;
        m->kind = MANIFEST_IMAGE;
        if (!json_get(doc, "config", &config))
                return bad(e, "no configuration");
        int r = parse_blob(&config, &m->config, e);
        if (r == 0 && json_get(&config, "mediaType", &type) && !json_string_is(&type, OCI "config.v1+json") &&
            !json_string_is(&type, DOCKER "container.image.v1+json"))
                return error_say(e, -EOPNOTSUPP, "not the manifest of an image but of something else: %.*s", (int)MIN2(type.n, 100u), type.p);
        if (r == 0 && m->config.size > CONFIG_BYTES_MAX)
                return error_say(e, -E2BIG, "the image's configuration is larger than %u bytes", CONFIG_BYTES_MAX);
        return r ? r : parse_layers(doc, m, e);
}

static bool entry_fits(const struct json *entry, const char *architecture) {
        struct json platform, v;
        if (!json_get(entry, "platform", &platform))
                return false;
        return json_get(&platform, "os", &v) && json_string_is(&v, "linux") && json_get(&platform, "architecture", &v) && json_string_is(&v, architecture);
}

static int parse_index(const struct json *doc, const char *architecture, struct manifest *m, struct error *e) {
        struct json entries, item;
        m->kind = MANIFEST_INDEX;
        if (!json_get(doc, "manifests", &entries) || entries.type != JSON_ARRAY)
                return bad(e, "an index without manifests");
        size_t n = json_count(&entries);
        if (n > INDEX_ENTRIES_MAX)
                return error_say(e, -E2BIG, "the image's index has %zu entries, more than %u", n, INDEX_ENTRIES_MAX);
        for (struct json_iter it = json_iter(&entries); json_next_item(&it, &item);) {
                struct json platform;
                /* An index of one entry that names no platform is taken at its word; the configuration says what it is. */
                if (!entry_fits(&item, architecture) && (n != 1 || json_get(&item, "platform", &platform)))
                        continue;
                int r = parse_blob(&item, &m->chosen, e);
                if (r == 0 && m->chosen.size > MANIFEST_BYTES_MAX)
                        return error_say(e, -E2BIG, "the image's manifest is larger than %u bytes", MANIFEST_BYTES_MAX);
                return r;
        }
        return error_say(e, -ENOENT, "the image has nothing for linux/%s", architecture);
}

int manifest_parse(const char *p, size_t n, const char *content_type, const char *architecture, struct manifest *ret, struct error *e) {
        struct manifest m = { 0 };
        struct error why;
        struct json doc;
        if (n > MANIFEST_BYTES_MAX)
                return error_say(e, -E2BIG, "the image's manifest is larger than %u bytes", MANIFEST_BYTES_MAX);
        int r = json_parse(p, n, &doc, &why);
        if (r < 0 || doc.type != JSON_OBJECT)
                return bad(e, r < 0 ? why.text : "not an object");
        switch (media_of_document(&doc, content_type)) {
        case MEDIA_IMAGE: r = parse_image(&doc, &m, e); break;
        case MEDIA_INDEX: r = parse_index(&doc, architecture, &m, e); break;
        case MEDIA_OLD: r = error_say(e, -EOPNOTSUPP, "the registry speaks of the image in the old format (schema 1), which cannot be verified"); break;
        case MEDIA_UNKNOWN: r = bad(e, "neither a manifest nor an index"); break;
        }
        if (r < 0) {
                manifest_release(&m);
                return r;
        }
        *ret = m;
        return 0;
}

void manifest_release(struct manifest *m) {
        free(m->layers);
        *m = (struct manifest){ 0 };
}

int config_diff_ids(const char *p, size_t len, const char *architecture, size_t n, char (*ret)[IMAGE_REF_DIGEST_LEN + 1], struct error *e) {
        struct json doc, rootfs, ids, v;
        struct error why;
        size_t i = 0;
        int r = json_parse(p, len, &doc, &why);
        if (r < 0 || doc.type != JSON_OBJECT)
                return error_say(e, -EBADMSG, "the image's configuration is not valid: %s", r < 0 ? why.text : "not an object");
        if ((json_get(&doc, "os", &v) && !json_string_is(&v, "linux")) || (json_get(&doc, "architecture", &v) && !json_string_is(&v, architecture)))
                return error_say(e, -ENOENT, "the image is not for linux/%s", architecture);
        if (!json_get(&doc, "rootfs", &rootfs) || !json_get(&rootfs, "diff_ids", &ids) || ids.type != JSON_ARRAY || json_count(&ids) != n)
                return error_say(e, -EBADMSG, "the image's configuration does not name its %zu layers", n);
        for (struct json_iter it = json_iter(&ids); json_next_item(&it, &v); i++)
                if (parse_digest(&v, ret[i]) < 0)
                        return error_say(e, -EBADMSG, "the image's configuration names a layer without a sha256 digest");
        return 0;
}
