/* RFC 8785. Objects are sorted by collecting their members (spans; a key is copied only if it holds escapes), so memory is
 * proportional to the members of the objects on one path, never to the bytes. */
#include "base/json.h"
#include "base/json_internal.h"

struct member {
        struct json key, value;
        char *decoded;          /* owned, if the key holds escapes */
        const char *name;
        size_t name_len, index;
};

struct out { int (*sink)(const void *p, size_t n, void *user); void *user; };

static int canonical(const struct out *o, const struct json *v);

static int emit(const struct out *o, const char *p, size_t n) {
        return n ? o->sink(p, n, o->user) : 0;
}

/* UTF-16 order of UTF-8 bytes: as code points, but that those beyond U+FFFF (four bytes, surrogates in UTF-16) come before
 * U+E000..U+FFFF (lead bytes ee and ef). The first difference of two valid texts is at a lead byte in both or in neither. */
static int rank(unsigned char c) {
        return c >= 0xf0 ? c - 2 : c >= 0xee ? c + 5 : c;
}

static int by_name(const void *a, const void *b) {
        const struct member *x = a, *y = b;
        size_t n = MIN2(x->name_len, y->name_len);
        for (size_t i = 0; i < n; i++)
                if (x->name[i] != y->name[i])
                        return rank((unsigned char)x->name[i]) - rank((unsigned char)y->name[i]);
        if (x->name_len != y->name_len)
                return x->name_len < y->name_len ? -1 : 1;
        return x->index < y->index ? -1 : 1;
}

static bool same_name(const struct member *x, const struct member *y) {
        return x->name_len == y->name_len && memcmp(x->name, y->name, x->name_len) == 0;
}

static int emit_quoted(const struct out *o, const char *p, size_t n) {
        int r = emit(o, "\"", 1);
        while (r == 0 && n > 0) {
                size_t plain = json_quote_len(p, n);
                r = emit(o, p, plain);
                p += plain;
                n -= plain;
                if (r < 0 || n == 0)
                        break;
                char out[8];
                size_t used, m = json_quote_char(p, n, out, &used);
                r = emit(o, out, m);
                p += used;
                n -= used;
        }
        return r < 0 ? r : emit(o, "\"", 1);
}

/* A string value. Without escapes the span is already what the canonical form says. */
static int emit_string(const struct out *o, const struct json *v) {
        if (!memchr(v->p, '\\', v->n))
                return emit(o, v->p, v->n);
        _cleanup_buf_ struct buf b = BUF_INIT(json_string_max(v));
        int r = json_string(v, &b);
        return r < 0 ? r : emit_quoted(o, buf_str(&b), b.len);
}

static int decode_key(struct member *m) {
        m->name = m->key.p + 1;
        m->name_len = m->key.n - 2;
        if (!memchr(m->name, '\\', m->name_len))
                return 0;
        _cleanup_buf_ struct buf b = BUF_INIT(m->name_len);
        int r = json_string(&m->key, &b);
        if (r < 0)
                return r;
        m->name_len = b.len;
        m->decoded = buf_steal(&b);
        m->name = m->decoded;
        return m->decoded ? 0 : -ENOMEM;
}

static int emit_members(const struct out *o, struct member *list, size_t n) {
        int r = emit(o, "{", 1);
        bool first = true;
        for (size_t i = 0; r == 0 && i < n; i++) {
                if (i + 1 < n && same_name(&list[i], &list[i + 1]))
                        continue;       /* the last of the same name wins */
                if (!first)
                        r = emit(o, ",", 1);
                first = false;
                if (r == 0)
                        r = emit_quoted(o, list[i].name, list[i].name_len);
                if (r == 0)
                        r = emit(o, ":", 1);
                if (r == 0)
                        r = canonical(o, &list[i].value);
        }
        return r < 0 ? r : emit(o, "}", 1);
}

static int canonical_object(const struct out *o, const struct json *v) {
        size_t n = json_count(v), i = 0;
        if (n > JSON_MEMBERS_MAX)
                return -E2BIG;
        struct member *list = calloc(n ? n : 1, sizeof *list);
        if (!list)
                return -ENOMEM;
        int r = 0;
        struct json_iter it = json_iter(v);
        while (i < n && r == 0 && json_next_member(&it, &list[i].key, &list[i].value)) {
                list[i].index = i;
                r = decode_key(&list[i++]);
        }
        if (r == 0) {
                qsort(list, i, sizeof *list, by_name);
                r = emit_members(o, list, i);
        }
        while (i-- > 0)
                free(list[i].decoded);
        free(list);
        return r;
}

static int canonical_array(const struct out *o, const struct json *v) {
        struct json item;
        int r = emit(o, "[", 1);
        bool first = true;
        for (struct json_iter it = json_iter(v); r == 0 && json_next_item(&it, &item); first = false) {
                if (!first)
                        r = emit(o, ",", 1);
                if (r == 0)
                        r = canonical(o, &item);
        }
        return r < 0 ? r : emit(o, "]", 1);
}

static int canonical(const struct out *o, const struct json *v) {
        double d;
        char text[JSON_DOUBLE_TEXT];
        int r;
        switch (v->type) {
        case JSON_OBJECT:
                return canonical_object(o, v);
        case JSON_ARRAY:
                return canonical_array(o, v);
        case JSON_STRING:
                return emit_string(o, v);
        case JSON_NUMBER:
                r = json_double(v, &d);
                return r < 0 ? r : emit(o, text, json_format_double(d, text));
        default:
                return emit(o, v->p, v->n);
        }
}

int json_canonical(const struct json *v, int (*sink)(const void *p, size_t n, void *user), void *user) {
        struct out o = { sink, user };
        return canonical(&o, v);
}

static int into_buf(const void *p, size_t n, void *user) {
        return buf_add(user, p, n);
}

int json_canonical_buf(const struct json *v, struct buf *b) {
        return json_canonical(v, into_buf, b);
}
