/* Access to a validated text by spans. Everything here relies on json_parse() having accepted the bytes; the end is still checked
 * at every step, so that a span made by mistake reads nothing outside. */
#include "base/json.h"
#include "base/utf8.h"

static const char *const type_names[] = { "null", "boolean", "number", "string", "array", "object" };

const char *json_type_to_string(int t) {
        return t >= 0 && t < (int)ARRAY_SIZE(type_names) ? type_names[t] : NULL;
}

static const char *skip_space(const char *p, const char *end) {
        while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t'))
                p++;
        return p;
}

/* p at the opening quote; returns behind the closing one. */
static const char *skip_string(const char *p, const char *end) {
        for (const char *from = p + 1; from < end;) {
                const char *quote = memchr(from, '"', (size_t)(end - from));
                if (!quote)
                        break;
                size_t slashes = 0;
                while (quote - slashes > from && quote[-1 - (ptrdiff_t)slashes] == '\\')
                        slashes++;
                /* `from` is never in the middle of an escape, so the run of backslashes is whole. */
                if (slashes % 2 == 0)
                        return quote + 1;
                from = quote + 1;
        }
        return end;
}

static const char *skip_value(const char *p, const char *end) {
        size_t depth = 0;
        do {
                if (p >= end)
                        return end;
                if (*p == '"') {
                        p = skip_string(p, end);
                        continue;
                }
                if (*p == '{' || *p == '[')
                        depth++;
                else if (*p == '}' || *p == ']')
                        depth--;
                else if (depth == 0) {
                        while (p < end && !memchr(",]} \n\r\t", *p, 7))
                                p++;
                        return p;
                }
                p++;
        } while (depth > 0);
        return p;
}

static enum json_type type_of(char c) {
        switch (c) {
        case '"': return JSON_STRING;
        case '{': return JSON_OBJECT;
        case '[': return JSON_ARRAY;
        case 't':
        case 'f': return JSON_BOOL;
        case 'n': return JSON_NULL;
        default: return JSON_NUMBER;
        }
}

struct json_iter json_iter(const struct json *v) {
        if (v->type != JSON_ARRAY && v->type != JSON_OBJECT)
                return (struct json_iter){ NULL, NULL };
        return (struct json_iter){ v->p + 1, v->p + v->n - 1 };
}

/* The next value; the comma behind it is consumed. */
static bool next_value(struct json_iter *it, struct json *ret) {
        const char *p = skip_space(it->p, it->end);
        if (p >= it->end)
                return false;
        const char *last = skip_value(p, it->end);
        *ret = (struct json){ .type = type_of(*p), .p = p, .n = (size_t)(last - p) };
        p = skip_space(last, it->end);
        it->p = p < it->end && (*p == ',' || *p == ':') ? p + 1 : p;
        return true;
}

bool json_next_item(struct json_iter *it, struct json *ret) {
        return it->p && next_value(it, ret);
}

bool json_next_member(struct json_iter *it, struct json *ret_key, struct json *ret_value) {
        struct json key, value;
        if (!it->p || !next_value(it, &key) || !next_value(it, &value))
                return false;
        *ret_key = key;
        *ret_value = value;
        return true;
}

bool json_get(const struct json *object, const char *key, struct json *ret) {
        struct json k, v;
        bool found = false;
        if (object->type != JSON_OBJECT)
                return false;
        for (struct json_iter it = json_iter(object); json_next_member(&it, &k, &v);)
                if (json_string_is(&k, key)) {
                        *ret = v;
                        found = true;
                }
        return found;
}

size_t json_count(const struct json *v) {
        struct json k, item;
        size_t n = 0;
        struct json_iter it = json_iter(v);
        while (v->type == JSON_OBJECT ? json_next_member(&it, &k, &item) : json_next_item(&it, &item))
                n++;
        return n;
}

static uint32_t hex4(const char *p) {
        uint32_t v = 0;
        for (int i = 0; i < 4; i++) {
                char c = p[i];
                v = v << 4 | (uint32_t)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
        }
        return v;
}

/* Decodes one escape at p (a backslash) into out; returns the bytes consumed. */
static size_t decode_escape(const char *p, const char *end, char out[static 4], size_t *ret_n) {
        static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
        *ret_n = 1;
        if (p[1] != 'u') {
                const char *at = strchr(from, p[1]);
                out[0] = at ? to[at - from] : '?';
                return 2;
        }
        uint32_t cp = hex4(p + 2);
        size_t used = 6;
        if (cp >= 0xd800 && cp <= 0xdbff && end - p >= 12 && p[6] == '\\' && p[7] == 'u') {
                uint32_t low = hex4(p + 8);
                if (low >= 0xdc00 && low <= 0xdfff) {
                        cp = 0x10000 + ((cp - 0xd800) << 10) + (low - 0xdc00);
                        used = 12;
                }
        }
        *ret_n = utf8_encode(cp, out);
        return used;
}

int json_string(const struct json *v, struct buf *b) {
        if (v->type != JSON_STRING)
                return -EINVAL;
        size_t kept = b->len;
        const char *p = v->p + 1, *end = v->p + v->n - 1;
        int r = buf_reserve(b, 0);
        while (r == 0 && p < end) {
                const char *slash = memchr(p, '\\', (size_t)(end - p));
                r = buf_add(b, p, (size_t)((slash ? slash : end) - p));
                if (r < 0 || !slash)
                        break;
                char out[4];
                size_t n;
                p = slash + decode_escape(slash, end, out, &n);
                r = buf_add(b, out, n);
        }
        if (r < 0 && b->data) {
                b->len = kept;
                b->data[kept] = 0;
        }
        return r;
}

bool json_string_is(const struct json *v, const char *s) {
        if (v->type != JSON_STRING)
                return false;
        const char *p = v->p + 1, *end = v->p + v->n - 1;
        size_t left = strlen(s);
        while (p < end) {
                char out[4];
                size_t n = 1, used = 1;
                if (*p == '\\')
                        used = decode_escape(p, end, out, &n);
                else
                        out[0] = *p;
                if (n > left || memcmp(out, s, n) != 0)
                        return false;
                p += used;
                s += n;
                left -= n;
        }
        return left == 0;
}

size_t json_string_max(const struct json *v) {
        return v->type == JSON_STRING ? v->n - 2 : 0;
}

int json_bool(const struct json *v, bool *ret) {
        if (v->type != JSON_BOOL)
                return -EINVAL;
        *ret = v->p[0] == 't';
        return 0;
}

int json_double(const struct json *v, double *ret) {
        char text[JSON_NUMBER_MAX + 1];
        if (v->type != JSON_NUMBER || v->n >= sizeof text)
                return -EINVAL;
        memcpy(text, v->p, v->n);
        text[v->n] = 0;
        double d = strtod(text, NULL);
        if (d - d != 0)
                return -ERANGE;
        *ret = d;
        return 0;
}

static int decimal(const char *p, size_t n, int64_t *ret) {
        char text[24];
        size_t first = n > 0 && p[0] == '-';
        if (n == first)
                return -EINVAL;
        for (size_t i = first; i < n; i++)
                if (p[i] < '0' || p[i] > '9')
                        return -EINVAL;
        if (n >= sizeof text)
                return -ERANGE;
        memcpy(text, p, n);
        text[n] = 0;
        errno = 0;
        long long v = strtoll(text, NULL, 10);
        if (errno)
                return -ERANGE;
        *ret = v;
        return 0;
}

int json_int(const struct json *v, int64_t *ret) {
        if (v->type != JSON_NUMBER)
                return -EINVAL;
        if (decimal(v->p, v->n, ret) == 0)
                return 0;
        double d;
        int r = json_double(v, &d);
        if (r < 0)
                return r;
        if (d < -9223372036854775808.0 || d >= 9223372036854775808.0)
                return -ERANGE;
        if ((double)(int64_t)d != d)
                return -EINVAL;
        *ret = (int64_t)d;
        return 0;
}

int json_int_loose(const struct json *v, int64_t *ret) {
        if (v->type == JSON_STRING)
                return decimal(v->p + 1, v->n - 2, ret);
        return json_int(v, ret);
}
