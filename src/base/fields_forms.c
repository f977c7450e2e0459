#include <ctype.h>
#include <string.h>

#include "base/base64.h"
#include "base/fields_forms.h"
#include "base/strv.h"

/* ---- env ----------------------------------------------------------------------------------------------------------- */

static bool env_name_is_sane(const char *s, size_t n) {
        if (n == 0 || n > 256 || isdigit((unsigned char)s[0]))
                return false;
        for (size_t i = 0; i < n; i++)
                if (!isalnum((unsigned char)s[i]) && !strchr("_.-", s[i]))
                        return false;
        return true;
}

static int env_entry(const struct field *f, const struct json *key, const struct json *value, struct buf *b, struct error *e) {
        _cleanup_free_ char *name = NULL, *text = NULL;
        size_t name_len, text_len;
        int r = field_string(f, key, 256, &name, &name_len, e);
        if (r < 0)
                return r;
        if (!env_name_is_sane(name, name_len))
                return field_fault(f, e, "'%.64s' is not the name of a variable", name);
        if (value->type != JSON_STRING)
                return field_fault(f, e, "the value of '%.64s' is %s, not a string", name, json_type_to_string(value->type));
        r = field_string(f, value, FIELD_ENV_VALUE_MAX, &text, &text_len, e);
        if (r == 0)
                r = buf_printf(b, "%s=%s", name, text);
        return r;
}

/* The same name twice: the last one counts. Lists are short enough for a search. */
static int put_entry(char ***list, size_t *n, char *entry) {
        if (!entry)
                return -ENOMEM;
        size_t len = strcspn(entry, "=") + 1;
        for (size_t i = 0; i < *n; i++)
                if (strncmp((*list)[i], entry, len) == 0) {
                        free((*list)[i]);
                        (*list)[i] = entry;
                        return 0;
                }
        return strv_append_take(list, n, entry);
}

int field_env(const struct field *f, const struct json *v, char ***ret, struct error *e) {
        _cleanup_strv_ char **env = NULL;
        struct json key, value;
        size_t n = 0, total = 0;
        if (v->type != JSON_OBJECT)
                return field_fault(f, e, "expected an object of strings, not %s", json_type_to_string(v->type));
        int r = strv_ensure(&env);
        for (struct json_iter it = json_iter(v); r == 0 && json_next_member(&it, &key, &value);) {
                _cleanup_buf_ struct buf b = BUF_INIT(FIELD_ENV_VALUE_MAX + 512);
                r = env_entry(f, &key, &value, &b, e);
                if (r < 0)
                        return r;
                total += b.len;
                if (n >= FIELD_ENV_MAX || total > FIELD_ENV_TOTAL_MAX)
                        return field_fault(f, e, "more than %u variables or %u bytes", FIELD_ENV_MAX, FIELD_ENV_TOTAL_MAX);
                r = put_entry(&env, &n, buf_steal(&b));
        }
        if (r < 0)
                return error_set(e, r, "decode %s", f->name);
        strv_sort(env);
        *ret = TAKE_PTR(env);
        return 0;
}

int parse_field_env(const struct field *f, const struct json *v, void *target, struct error *e) {
        char ***at = (char ***)((char *)target + f->at), **env;
        int r = field_env(f, v, &env, e);
        if (r < 0)
                return r;
        strv_free(*at);
        *at = env;
        return 0;
}

/* ---- user ---------------------------------------------------------------------------------------------------------- */

static bool user_from_text(const char *s, uint32_t *ret_uid, uint32_t *ret_gid) {
        uint32_t ids[2] = { 0, 0 };
        size_t n = 0;
        for (;; s++) {
                size_t digits = strspn(s, "0123456789");
                if (n == 2 || digits == 0 || digits > 5)
                        return false;
                for (; digits; digits--, s++)
                        ids[n] = ids[n] * 10 + (uint32_t)(*s - '0');
                if (ids[n++] > FIELD_USER_MAX)
                        return false;
                if (*s != ':')
                        break;
        }
        if (*s)
                return false;
        *ret_uid = ids[0];
        *ret_gid = n == 2 ? ids[1] : ids[0];
        return true;
}

int field_user(const struct field *f, const struct json *v, uint32_t *ret_uid, uint32_t *ret_gid, struct error *e) {
        _cleanup_free_ char *text = NULL;
        int64_t id;
        if (v->type == JSON_NUMBER) {
                if (json_int(v, &id) < 0 || id < 0 || id > FIELD_USER_MAX)
                        return field_fault(f, e, "must be between 0 and %d", FIELD_USER_MAX);
                *ret_uid = *ret_gid = (uint32_t)id;
                return 0;
        }
        int r = field_string(f, v, 64, &text, NULL, e);
        if (r < 0)
                return r;
        if (strcmp(text, "root") == 0 || text[0] == 0)
                *ret_uid = *ret_gid = 0;
        else if (!user_from_text(text, ret_uid, ret_gid))
                return field_fault(f, e, "expected UID or UID:GID, each at most %d", FIELD_USER_MAX);
        return 0;
}

int parse_field_user(const struct field *f, const struct json *v, void *target, struct error *e) {
        return field_user(f, v, (uint32_t *)((char *)target + f->at), (uint32_t *)((char *)target + f->with_at), e);
}

/* ---- content ------------------------------------------------------------------------------------------------------- */

int field_content(const struct json *v, struct buf *ret) {
        struct json coded;
        if (v->type == JSON_STRING)
                return json_string(v, ret);
        if (v->type != JSON_OBJECT || !json_get(v, "b64", &coded) || coded.type != JSON_STRING)
                return -EBADMSG;
        _cleanup_buf_ struct buf text = BUF_INIT(ret->limit / 3 * 4 + 4);
        int r = json_string(&coded, &text);
        return r < 0 ? r : base64_decode(buf_str(&text), text.len, ret);
}

/* ---- labels ---------------------------------------------------------------------------------------------------------- */

int field_labels(const struct field *f, const struct json *v, char ***ret, struct error *e) {
        _cleanup_strv_ char **labels = NULL;
        struct json key, value;
        size_t n = 0;
        if (v->type != JSON_OBJECT)
                return field_fault(f, e, "expected an object of strings, not %s", json_type_to_string(v->type));
        int r = strv_ensure(&labels);
        for (struct json_iter it = json_iter(v); r == 0 && json_next_member(&it, &key, &value);) {
                _cleanup_free_ char *name = NULL, *text = NULL;
                if (n >= FIELD_LABELS_MAX)
                        return field_fault(f, e, "more than %d labels", FIELD_LABELS_MAX);
                r = field_string(f, &key, FIELD_LABEL_TEXT_MAX, &name, NULL, e);
                if (r == 0)
                        r = field_string(f, &value, FIELD_LABEL_TEXT_MAX, &text, NULL, e);
                if (r < 0)
                        return r;
                if (!name[0] || strchr(name, '='))
                        return field_fault(f, e, "'%.64s' is not the name of a label: it must not be empty or hold '='", name);
                char *entry;
                r = asprintf(&entry, "%s=%s", name, text) < 0 ? -ENOMEM : put_entry(&labels, &n, entry);
        }
        if (r < 0)
                return error_set(e, r, "decode %s", f->name);
        strv_sort(labels);
        *ret = TAKE_PTR(labels);
        return 0;
}

const char *labels_get(char *const *labels, const char *name) {
        size_t len = strlen(name);
        for (; labels && *labels; labels++)
                if (strncmp(*labels, name, len) == 0 && (*labels)[len] == '=')
                        return *labels + len + 1;
        return NULL;
}

/* ---- modes -------------------------------------------------------------------------------------------------------------------------- */

static int put_char(struct buf *b, unsigned char c, char quote) {
        switch (c) {
        case '\n': return buf_adds(b, "\\n");
        case '\r': return buf_adds(b, "\\r");
        case '\t': return buf_adds(b, "\\t");
        case '\\': return buf_adds(b, "\\\\");
        default:
                if (c == (unsigned char)quote)
                        return buf_printf(b, "\\%c", c);
                return c < ' ' || c == 0x7f ? buf_printf(b, "\\x%02x", c) : buf_addc(b, (char)c);
        }
}

/* What Python's repr() says of a string. */
static int python_repr(const char *s, size_t n, struct buf *ret) {
        char quote = memchr(s, '\'', n) && !memchr(s, '"', n) ? '"' : '\'';
        int r = buf_addc(ret, quote);
        for (size_t i = 0; r == 0 && i < n; i++)
                r = put_char(ret, (unsigned char)s[i], quote);
        return r < 0 ? r : buf_addc(ret, quote);
}

int field_mode(const struct json *v, const char *const *names, size_t n, int *ret, struct error *e) {
        _cleanup_buf_ struct buf shown = BUF_INIT(400), text = BUF_INIT(200);
        if (v->type != JSON_STRING)
                return error_say(e, -EINVAL, "Invalid value for 'mode': expected a string, not %s", json_type_to_string(v->type));
        for (size_t i = 0; i < n; i++)
                if (json_string_is(v, names[i])) {
                        *ret = (int)i;
                        return 0;
                }
        if (json_string(v, &text) < 0)
                buf_reset(&text);      /* too long to repeat */
        if (python_repr(buf_str(&text), text.len, &shown) < 0)
                return error_say(e, -EINVAL, "Invalid value for 'mode': no such mode");
        return error_say(e, -EINVAL, "Unsupported mode: %s", buf_str(&shown));
}
