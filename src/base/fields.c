#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "base/fields.h"
#include "base/strv.h"

PRINTF_LIKE(5, 0) static int fault_v(const struct field *f, struct error *e, int code, const char *what, const char *fmt, va_list ap) {
        char why[ERROR_TEXT_MAX];
        vsnprintf(why, sizeof why, fmt, ap);
        return error_say(e, code, "%s '%s': %s", what, f->name, why);
}

int field_fault(const struct field *f, struct error *e, const char *fmt, ...) {
        va_list ap;
        va_start(ap, fmt);
        int r = fault_v(f, e, -EINVAL, "Invalid value for", fmt, ap);
        va_end(ap);
        return r;
}

int field_unsupported(const struct field *f, struct error *e, const char *fmt, ...) {
        va_list ap;
        va_start(ap, fmt);
        int r = fault_v(f, e, -EOPNOTSUPP, "Unsupported value for", fmt, ap);
        va_end(ap);
        return r;
}

static int wrong_type(const struct field *f, const struct json *v, const char *want, struct error *e) {
        return field_fault(f, e, "expected %s, not %s", want, json_type_to_string(v->type));
}

void fields_collect(const struct field *table, size_t n, const struct json *object, struct json *ret) {
        struct json key, value;
        bool by_alias[FIELDS_MAX] = { false };
        ASSERT(n <= FIELDS_MAX);
        for (size_t i = 0; i < n; i++)
                ret[i] = (struct json){ .type = JSON_NULL };
        for (struct json_iter it = json_iter(object); json_next_member(&it, &key, &value);)
                for (size_t i = 0; i < n; i++) {
                        bool alias = table[i].alias && json_string_is(&key, table[i].alias);
                        if (!alias && !json_string_is(&key, table[i].name))
                                continue;
                        if (alias && ret[i].type != JSON_NULL && !by_alias[i])
                                break;
                        ret[i] = value;
                        by_alias[i] = alias;
                        break;
                }
}

/* Does the string hold an escaped NUL? A raw one is not valid JSON. */
static bool holds_nul(const struct json *v) {
        const char *p = v->p, *end = v->p + v->n;
        while ((p = memchr(p, '\\', (size_t)(end - p)))) {
                if (end - p >= 6 && memcmp(p, "\\u0000", 6) == 0)
                        return true;
                p += 2;
        }
        return false;
}

static int check_string(const struct field *f, const struct json *v, size_t max, struct error *e) {
        if (v->type != JSON_STRING)
                return wrong_type(f, v, "a string", e);
        if (holds_nul(v))
                return field_fault(f, e, "must not contain NUL");
        /* Escapes only shrink: the bound is exact where there are none, and six times too big at worst. */
        if (json_string_max(v) > max * 6)
                return field_fault(f, e, "longer than %zu bytes", max);
        return 0;
}

int field_string(const struct field *f, const struct json *v, size_t max, char **ret, size_t *ret_len, struct error *e) {
        int r = check_string(f, v, max, e);
        if (r < 0)
                return r;
        _cleanup_buf_ struct buf b = BUF_INIT(max);
        r = json_string(v, &b);
        if (r == -ENOSPC)
                return field_fault(f, e, "longer than %zu bytes", max);
        if (r < 0)
                return error_set(e, r, "decode %s", f->name);
        size_t len = b.len;
        char *s = buf_steal(&b);
        if (!s)
                return error_set(e, -ENOMEM, "decode %s", f->name);
        *ret = s;
        if (ret_len)
                *ret_len = len;
        return 0;
}

static int decode_bytes(const struct field *f, const struct json *v, unsigned flags, char *target, struct error *e) {
        char **text = (char **)(target + f->at);
        size_t *len = f->kind == FIELD_BYTES ? (size_t *)(target + f->with_at) : NULL;
        if (len && (flags & FIELDS_CHECK) && json_string_max(v) <= (size_t)f->max) {
                *len = json_string_max(v);
                return check_string(f, v, (size_t)f->max, e);
        }
        char *s;
        int r = field_string(f, v, (size_t)f->max, &s, len, e);
        if (r < 0)
                return r;
        free(*text);
        *text = s;
        return 0;
}

static int decode_int(const struct field *f, const struct json *v, char *target, struct error *e) {
        int64_t value;
        int r = json_int_loose(v, &value);
        if (r == -EINVAL)
                return v->type == JSON_NUMBER || v->type == JSON_STRING ? field_fault(f, e, "expected an integer") : wrong_type(f, v, "an integer", e);
        if (r < 0 || value < f->min || value > f->max)
                return field_fault(f, e, "must be between %" PRId64 " and %" PRId64, f->min, f->max);
        if (f->kind == FIELD_SIGNED)
                *(int *)(target + f->at) = (int)value;
        else
                *(uint64_t *)(target + f->at) = (uint64_t)value * (f->scale ? f->scale : 1);
        return 0;
}

static int decode_number(const struct field *f, const struct json *v, char *target, struct error *e) {
        double value;
        int64_t whole;
        if (v->type == JSON_STRING && json_int_loose(v, &whole) == 0)
                value = (double)whole;
        else if (v->type != JSON_NUMBER)
                return wrong_type(f, v, "a number", e);
        else if (json_double(v, &value) < 0)
                value = -1;
        if (!(value >= (double)f->min && value <= (double)f->max))
                return field_fault(f, e, "must be between %" PRId64 " and %" PRId64, f->min, f->max);
        uint64_t scaled = (uint64_t)(value * (double)(f->scale ? f->scale : 1) + 0.5);
        *(uint64_t *)(target + f->at) = value > 0 ? MAX2(scaled, (uint64_t)1) : 0;   /* 0 has a meaning of its own: none is rounded to it */
        return 0;
}

static int decode_enum(const struct field *f, const struct json *v, char *target, struct error *e) {
        if (v->type != JSON_STRING)
                return wrong_type(f, v, "a string", e);
        for (size_t i = 0; i < f->n_names; i++)
                if (json_string_is(v, f->names[i])) {
                        *(int *)(target + f->at) = (int)i;
                        return 0;
                }
        struct buf b = BUF_INIT(256);
        for (size_t i = 0; i < f->n_names; i++)
                buf_printf(&b, "%s%s", i ? ", " : "", f->names[i]);
        int r = field_fault(f, e, "must be one of %s", buf_str(&b));
        buf_release(&b);
        return r;
}

static int decode_items(const struct field *f, const struct json *array, char ***ret, struct error *e) {
        size_t n = 0;
        struct json item;
        int r = strv_ensure(ret);
        for (struct json_iter it = json_iter(array); r == 0 && json_next_item(&it, &item);) {
                char *s;
                if (n >= (size_t)f->max)
                        return field_fault(f, e, "more than %" PRId64 " items", f->max);
                if (item.type != JSON_STRING)
                        return field_fault(f, e, "item %zu is %s, not a string", n, json_type_to_string(item.type));
                r = field_string(f, &item, FIELD_ITEM_MAX, &s, NULL, e);
                if (r == 0)
                        r = strv_append_take(ret, &n, s);
        }
        return r == -ENOMEM ? error_set(e, r, "decode %s", f->name) : r;
}

static int decode_list(const struct field *f, const struct json *v, char *target, struct error *e) {
        _cleanup_strv_ char **list = NULL;
        _cleanup_free_ char *text = NULL;
        struct json array = *v;
        size_t len;
        int r;
        if (v->type == JSON_STRING) {
                r = field_string(f, v, FIELD_LIST_TEXT_MAX, &text, &len, e);
                if (r < 0)
                        return r;
                if (json_parse(text, len, &array, NULL) < 0)
                        return field_fault(f, e, "expected a list of strings");
        }
        if (array.type != JSON_ARRAY)
                return wrong_type(f, &array, "a list of strings", e);
        r = decode_items(f, &array, &list, e);
        if (r < 0)
                return r;
        char ***at = (char ***)(target + f->at);
        strv_free(*at);
        *at = TAKE_PTR(list);
        return 0;
}

static int decode_one(const struct field *f, const struct json *v, unsigned flags, char *target, struct error *e) {
        switch (f->kind) {
        case FIELD_STRING: case FIELD_BYTES:
                return decode_bytes(f, v, flags, target, e);
        case FIELD_INT: case FIELD_SIGNED:
                return decode_int(f, v, target, e);
        case FIELD_NUMBER:
                return decode_number(f, v, target, e);
        case FIELD_BOOL:
                return json_bool(v, (bool *)(target + f->at)) < 0 ? wrong_type(f, v, "a boolean", e) : 0;
        case FIELD_LIST:
                return decode_list(f, v, target, e);
        case FIELD_ENUM:
                return decode_enum(f, v, target, e);
        case FIELD_OBJECT:
                if (v->type != JSON_OBJECT)
                        return wrong_type(f, v, "an object", e);
                return fields_decode(f->sub, f->n_sub, v, flags, target, e);
        case FIELD_CUSTOM:
                return f->parse(f, v, target, e);
        case FIELD_KIND_MAX:
                break;
        }
        ASSERT(!"field kind");
        return -EINVAL;
}

int fields_decode_found(const struct field *table, size_t n, const struct json *found, unsigned flags, void *target, struct error *e) {
        for (size_t i = 0; i < n; i++) {
                if (found[i].type == JSON_NULL)
                        continue;
                int r = decode_one(&table[i], &found[i], flags, target, e);
                if (r < 0)
                        return r;
                if (table[i].given_at)
                        *(bool *)((char *)target + table[i].given_at) = true;
        }
        return 0;
}

int fields_decode(const struct field *table, size_t n, const struct json *object, unsigned flags, void *target, struct error *e) {
        struct json found[FIELDS_MAX];
        fields_collect(table, n, object, found);
        return fields_decode_found(table, n, found, flags, target, e);
}

static const char *kind_names[FIELD_KIND_MAX] = {
        "string", "string", "integer", "integer", "number", "boolean", "list of strings", "one of", "object", "",
};

static int document_type(const struct field *f, struct buf *b) {
        if (f->type)
                return buf_adds(b, f->type);
        int r = buf_adds(b, kind_names[f->kind]);
        if (f->kind == FIELD_INT || f->kind == FIELD_SIGNED || f->kind == FIELD_NUMBER)
                return r < 0 ? r : buf_printf(b, ", %" PRId64 "–%" PRId64, f->min, f->max);
        for (size_t i = 0; r == 0 && f->kind == FIELD_ENUM && i < f->n_names; i++)
                r = buf_printf(b, "%s `%s`", i ? "," : "", f->names[i]);
        return r;
}

int fields_document(const struct field *table, size_t n, const char *prefix, struct buf *ret) {
        for (size_t i = 0; i < n; i++) {
                const struct field *f = &table[i];
                int r = buf_printf(ret, "| `%s%s`", prefix, f->name);
                if (r == 0 && f->alias)
                        r = buf_printf(ret, " (`%s`)", f->alias);
                if (r == 0)
                        r = buf_adds(ret, " | ");
                if (r == 0)
                        r = document_type(f, ret);
                if (r == 0)
                        r = buf_printf(ret, " | %s | %s |\n", f->def ? f->def : "", f->doc ? f->doc : "");
                if (r == 0 && f->kind == FIELD_OBJECT) {
                        char deeper[128];
                        snprintf(deeper, sizeof deeper, "%s%s.", prefix, f->name);
                        r = fields_document(f->sub, f->n_sub, deeper, ret);
                }
                if (r < 0)
                        return r;
        }
        return 0;
}
