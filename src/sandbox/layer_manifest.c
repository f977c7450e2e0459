#include <inttypes.h>
#include <string.h>

#include "sandbox/layer_manifest.h"

static const char *const layer_kind_names[LAYER_KIND_MAX] = { "tree", "setup", "image" };
STRING_TABLE(layer_kind, layer_kind_names, LAYER_KIND_MAX)

static bool hex_or_empty(const char *s, size_t size) {
        size_t n = strnlen(s, size);
        return n < size && strspn(s, "0123456789abcdef") == n;
}

bool layer_id_valid(const char *id) {
        return id && id[0] && hex_or_empty(id, LAYER_ID_SIZE);
}

bool layer_opaque_valid(const char *path) {
        size_t n = strnlen(path, sizeof ((struct layer_manifest *)0)->opaque);
        if (n == 0)
                return true;
        if (n >= sizeof ((struct layer_manifest *)0)->opaque || path[0] != '/' || path[n - 1] == '/')
                return false;
        for (const char *c = path; *c; c++)
                if ((unsigned char)*c < ' ' || *c == 0x7f)
                        return false;
        for (const char *c = path; c; c = strchr(c + 1, '/')) {
                size_t len = strcspn(c + 1, "/");
                if (len == 0 || len > 255 || (len == 1 && c[1] == '.') || (len == 2 && c[1] == '.' && c[2] == '.'))
                        return false;
        }
        return true;
}

int layer_manifest_check(const struct layer_manifest *m) {
        bool ok = layer_id_valid(m->id) && m->kind >= 0 && m->kind < LAYER_KIND_MAX &&
                  hex_or_empty(m->key, sizeof m->key) && hex_or_empty(m->parent, sizeof m->parent) && hex_or_empty(m->commit, sizeof m->commit) &&
                  hex_or_empty(m->tree_hash, sizeof m->tree_hash) && layer_opaque_valid(m->opaque) &&
                  (m->kind == LAYER_TREE || m->opaque[0] == 0);
        return ok ? 0 : -EINVAL;
}

int layer_manifest_encode(const struct layer_manifest *m, struct buf *b) {
        int r = layer_manifest_check(m);
        if (r < 0)
                return r;
        return buf_printf(b,
                          "brig-layer %d\nid %s\nkind %s\nrange_base %" PRIu32 "\nkey %s\nparent %s\ncommit %s\ntree_hash %s\n"
                          "commit_time %" PRId64 "\nbytes %" PRIu64 "\nmade_ms %" PRId64 "\nopaque %s\n",
                          LAYER_FORMAT, m->id, layer_kind_to_string(m->kind), m->range_base, m->key, m->parent, m->commit, m->tree_hash,
                          m->commit_time, m->bytes, m->made_ms, m->opaque);
}

/* The value of the next line, which must be `key`; cut out in place. NULL when it is another line. */
static char *next_value(char **at, const char *key) {
        size_t n = strlen(key);
        char *line = *at, *end = strchr(line, '\n');
        if (!end || strncmp(line, key, n) != 0 || line[n] != ' ')
                return NULL;
        *end = 0;
        *at = end + 1;
        return line + n + 1;
}

static int next_text(char **at, const char *key, char *ret, size_t size) {
        const char *v = next_value(at, key);
        if (!v || strlen(v) >= size)
                return -EBADMSG;
        memcpy(ret, v, strlen(v) + 1);
        return 0;
}

static int next_number(char **at, const char *key, int64_t lowest, int64_t highest, int64_t *ret) {
        const char *v = next_value(at, key);
        char *end;
        if (!v)
                return -EBADMSG;
        errno = 0;
        long long n = strtoll(v, &end, 10);
        if (errno || end == v || *end || n < lowest || n > highest)
                return -EBADMSG;
        *ret = n;
        return 0;
}

int layer_manifest_parse(const char *text, size_t n, struct layer_manifest *ret) {
        char copy[LAYER_MANIFEST_MAX + 1], kind[16], *at = copy;
        struct layer_manifest m = { .kind = LAYER_TREE };
        int64_t format, base, bytes;
        if (n > LAYER_MANIFEST_MAX || memchr(text, 0, n))
                return -EBADMSG;
        memcpy(copy, text, n);
        copy[n] = 0;
        if (next_number(&at, "brig-layer", LAYER_FORMAT, LAYER_FORMAT, &format) < 0 ||
            next_text(&at, "id", m.id, sizeof m.id) < 0 || next_text(&at, "kind", kind, sizeof kind) < 0 ||
            next_number(&at, "range_base", 0, UINT32_MAX, &base) < 0 ||
            next_text(&at, "key", m.key, sizeof m.key) < 0 || next_text(&at, "parent", m.parent, sizeof m.parent) < 0 ||
            next_text(&at, "commit", m.commit, sizeof m.commit) < 0 ||
            next_text(&at, "tree_hash", m.tree_hash, sizeof m.tree_hash) < 0 ||
            next_number(&at, "commit_time", INT64_MIN, INT64_MAX, &m.commit_time) < 0 ||
            next_number(&at, "bytes", 0, INT64_MAX, &bytes) < 0 ||
            next_number(&at, "made_ms", INT64_MIN, INT64_MAX, &m.made_ms) < 0 ||
            next_text(&at, "opaque", m.opaque, sizeof m.opaque) < 0 || *at)
                return -EBADMSG;
        int k = layer_kind_from_string(kind);
        if (k < 0)
                return -EBADMSG;
        m.kind = (enum layer_kind)k;
        m.range_base = (uint32_t)base;
        m.bytes = (uint64_t)bytes;
        if (layer_manifest_check(&m) < 0)
                return -EBADMSG;
        *ret = m;
        return 0;
}
