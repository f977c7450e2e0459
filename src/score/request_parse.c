/* Fields whose form no kind of field table covers. */
#include <ctype.h>
#include <string.h>

#include "base/strv.h"
#include "score/framework.h"
#include "score/patch_name.h"
#include "score/request_parse.h"

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
        r = field_string(f, value, REQUEST_ENV_VALUE_MAX, &text, &text_len, e);
        if (r == 0)
                r = buf_printf(b, "%s=%s", name, text);
        return r;
}

/* The same name twice: the last one counts. The list is short enough (REQUEST_ENV_MAX) for a search. */
static int env_put(char ***env, size_t *n, char *entry) {
        size_t len = strcspn(entry, "=") + 1;
        for (size_t i = 0; i < *n; i++)
                if (strncmp((*env)[i], entry, len) == 0) {
                        free((*env)[i]);
                        (*env)[i] = entry;
                        return 0;
                }
        return strv_append_take(env, n, entry);
}

int parse_env(const struct field *f, const struct json *v, void *target, struct error *e) {
        struct score_request *q = target;
        _cleanup_strv_ char **env = NULL;
        struct json key, value;
        size_t n = 0, total = 0;
        if (v->type != JSON_OBJECT)
                return field_fault(f, e, "expected an object of strings, not %s", json_type_to_string(v->type));
        int r = strv_ensure(&env);
        for (struct json_iter it = json_iter(v); r == 0 && json_next_member(&it, &key, &value);) {
                _cleanup_buf_ struct buf b = BUF_INIT(REQUEST_ENV_VALUE_MAX + 512);
                r = env_entry(f, &key, &value, &b, e);
                if (r < 0)
                        return r;
                total += b.len;
                if (n >= REQUEST_ENV_MAX || total > REQUEST_ENV_TOTAL_MAX)
                        return field_fault(f, e, "more than %u variables or %u bytes", REQUEST_ENV_MAX, REQUEST_ENV_TOTAL_MAX);
                r = env_put(&env, &n, buf_steal(&b));
        }
        if (r < 0)
                return error_set(e, r, "decode env");
        strv_sort(env);
        strv_free(q->env);
        q->env = TAKE_PTR(env);
        return 0;
}

/* ---- user ---------------------------------------------------------------------------------------------------------- */

#define USER_ID_MAX 65535     /* a sandbox owns a range of 65,536 ids */

/* "UID" or "UID:GID", a number alone counts for both. */
static bool user_from_text(const char *s, uint32_t *ret_uid, uint32_t *ret_gid) {
        uint32_t ids[2] = { 0, 0 };
        size_t n = 0;
        for (;; s++) {
                size_t digits = strspn(s, "0123456789");
                if (n == 2 || digits == 0 || digits > 5)
                        return false;
                for (; digits; digits--, s++)
                        ids[n] = ids[n] * 10 + (uint32_t)(*s - '0');
                if (ids[n++] > USER_ID_MAX)
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

int parse_user(const struct field *f, const struct json *v, void *target, struct error *e) {
        struct score_request *q = target;
        _cleanup_free_ char *text = NULL;
        int64_t id;
        if (v->type == JSON_NUMBER) {
                if (json_int(v, &id) < 0 || id < 0 || id > USER_ID_MAX)
                        return field_fault(f, e, "must be between 0 and %d", USER_ID_MAX);
                q->uid = q->gid = (uint32_t)id;
                return 0;
        }
        int r = field_string(f, v, 64, &text, NULL, e);
        if (r < 0)
                return r;
        if (strcmp(text, "root") == 0 || text[0] == 0)
                q->uid = q->gid = 0;
        else if (!user_from_text(text, &q->uid, &q->gid))
                return field_fault(f, e, "expected UID or UID:GID, each at most %d", USER_ID_MAX);
        return 0;
}

/* ---- choices of which a part comes later --------------------------------------------------------------------------- */

int parse_network(const struct field *f, const struct json *v, void *target, struct error *e) {
        enum sandbox_network *at = (enum sandbox_network *)((char *)target + f->at);
        if (v->type == JSON_ARRAY || v->type == JSON_OBJECT)
                return field_unsupported(f, e, "allow-lists need the egress proxy of a later release");
        if (v->type != JSON_STRING)
                return field_fault(f, e, "expected a string, not %s", json_type_to_string(v->type));
        if (json_string_is(v, "none"))
                *at = NETWORK_NONE;
        else if (json_string_is(v, "open") || json_string_is(v, "host"))
                *at = NETWORK_OPEN;   /* the wire's "host" never shares the host's own network */
        else if (json_string_is(v, "allow"))
                return field_unsupported(f, e, "allow-lists need the egress proxy of a later release");
        else
                return field_fault(f, e, "must be one of none, open");
        return 0;
}

int parse_framework(const struct field *f, const struct json *v, void *target, struct error *e) {
        struct score_request *q = target;
        char *text;
        int r = field_string(f, v, 64, &text, NULL, e);
        if (r < 0)
                return r;
        if (text[0] && !framework_by_name(text)) {
                r = field_unsupported(f, e, "no such framework: '%s'", text);
                free(text);
                return r;
        }
        free(q->test_framework);
        q->test_framework = text;
        return 0;
}

int parse_control(const struct field *f, const struct json *v, void *target, struct error *e) {
        if (json_string_is(v, "off"))
                return 0;
        if (json_string_is(v, "auto") || json_string_is(v, "require"))
                return field_unsupported(f, e, "control runs are of a later release");
        return field_fault(f, e, "must be one of off, auto, require");
}

int parse_gold_patch(const struct field *f, const struct json *v, void *target, struct error *e) {
        if (v->type != JSON_STRING)
                return field_fault(f, e, "expected a string, not %s", json_type_to_string(v->type));
        if (json_string_is(v, ""))
                return 0;
        return field_unsupported(f, e, "control runs are of a later release");
}

/* ---- paths in the tree ----------------------------------------------------------------------------------------------- */

/* What a patch could name: the helper checks by the same rule. A trailing slash is fine. */
static const char *tree_path_fault(const char *p) {
        char plain[REQUEST_PATH_MAX + 1];
        size_t n = strlen(p);
        if (n > REQUEST_PATH_MAX)
                return "it is too long";
        memcpy(plain, p, n + 1);
        while (n > 1 && plain[n - 1] == '/')
                plain[--n] = 0;
        return name_refusal(plain);
}

int parse_paths(const struct field *f, const struct json *v, void *target, struct error *e) {
        struct field list = *f;
        char **paths = NULL;
        list.kind = FIELD_LIST;
        list.at = 0;
        int r = fields_decode_found(&list, 1, v, 0, &paths, e);
        for (char **p = paths; r == 0 && *p; p++) {
                const char *why = tree_path_fault(*p);
                if (why)
                        r = field_fault(f, e, "'%.200s' is not a path in the tree: %s", *p, why);
        }
        if (r < 0) {
                strv_free(paths);
                return r;
        }
        char ***at = (char ***)((char *)target + f->at);
        strv_free(*at);
        *at = paths;
        return 0;
}
