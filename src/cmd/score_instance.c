/* Records and predictions as their authors write them: one JSON object, a list, an object keyed by id, or JSON lines; names in
 * capitals or not; lists of ids as lists, as JSON in a string, or as Python's repr in a string. */
#include <string.h>

#include "base/strv.h"
#include "base/utf8.h"
#include "cmd/score_options.h"

/* ---- Python's repr of a list of strings ------------------------------------------------------------------------------------- */

static const char *skip_space(const char *p) {
        return p + strspn(p, " \t\r\n");
}

static int hex_escape(const char **p, size_t digits, struct buf *b) {
        char hex[9] = "", out[4];
        if (strspn(*p, "0123456789abcdefABCDEF") < digits)
                return -EBADMSG;
        memcpy(hex, *p, digits);
        *p += digits;
        uint32_t cp = (uint32_t)strtoul(hex, NULL, 16);
        return cp == 0 ? -EBADMSG : buf_add(b, out, utf8_encode(cp, out));
}

static int python_escape(const char **p, struct buf *b) {
        static const char from[] = "\\'\"ntrabfv0", to[] = "\\'\"\n\t\r\a\b\f\v\0";
        char c = *(*p)++;
        if (c == 'x')
                return hex_escape(p, 2, b);
        if (c == 'u')
                return hex_escape(p, 4, b);
        if (c == 'U')
                return hex_escape(p, 8, b);
        const char *at = c ? strchr(from, c) : NULL;
        if (!at || c == '0')           /* an id holds no NUL */
                return -EBADMSG;
        return buf_addc(b, to[at - from]);
}

static int python_string(const char **p, struct buf *b) {
        char quote = *(*p)++;
        while (**p != quote) {
                char c = **p;
                if (!c)
                        return -EBADMSG;
                ++*p;
                int r = c == '\\' ? python_escape(p, b) : buf_addc(b, c);
                if (r < 0)
                        return r;
        }
        ++*p;
        return 0;
}

static int python_list(const char *p, char ***ret) {
        _cleanup_strv_ char **list = NULL;
        size_t n = 0;
        if (strv_ensure(&list) < 0)
                return -ENOMEM;
        p = skip_space(p);
        char close = *p == '[' ? ']' : *p == '(' ? ')' : 0;
        if (!close)
                return -EBADMSG;
        for (p = skip_space(p + 1); *p != close;) {
                _cleanup_buf_ struct buf b = BUF_INIT(SCORE_FILE_MAX);
                if (*p != '\'' && *p != '"')
                        return -EBADMSG;
                int r = python_string(&p, &b);
                if (r == 0)
                        r = strv_append_take(&list, &n, buf_steal(&b));
                if (r < 0)
                        return r;
                p = skip_space(p);
                if (*p == ',')
                        p = skip_space(p + 1);
                else if (*p != close)
                        return -EBADMSG;
        }
        if (*skip_space(p + 1))
                return -EBADMSG;
        *ret = TAKE_PTR(list);
        return 0;
}

/* ---- lists of ids -------------------------------------------------------------------------------------------------------------- */

static int json_list(const struct json *v, char ***ret) {
        _cleanup_strv_ char **list = NULL;
        size_t n = 0;
        struct json item;
        if (strv_ensure(&list) < 0)
                return -ENOMEM;
        for (struct json_iter it = json_iter(v); json_next_item(&it, &item);) {
                _cleanup_buf_ struct buf b = BUF_INIT(SCORE_FILE_MAX);
                int r = json_string(&item, &b);
                if (r == 0 && memchr(buf_str(&b), 0, b.len))
                        r = -EBADMSG;  /* an id holds no NUL */
                if (r == 0)
                        r = strv_append_take(&list, &n, buf_steal(&b));
                if (r < 0)
                        return r;
        }
        *ret = TAKE_PTR(list);
        return 0;
}

int score_ids_parse(const struct json *v, char ***ret, struct error *e) {
        int r = -EBADMSG;
        if (v->type == JSON_ARRAY)
                r = json_list(v, ret);
        else if (v->type == JSON_STRING) {
                _cleanup_buf_ struct buf b = BUF_INIT(SCORE_FILE_MAX);
                struct json inner;
                r = json_string(v, &b);
                if (r == 0 && json_parse(buf_str(&b), b.len, &inner, NULL) == 0 && inner.type == JSON_ARRAY)
                        r = json_list(&inner, ret);
                else if (r == 0)
                        r = memchr(buf_str(&b), 0, b.len) ? -EBADMSG : python_list(buf_str(&b), ret);
        }
        if (r == -ENOMEM || r == -ENOSPC)
                return error_set(e, r, "read a list of ids");
        return r < 0 ? error_say(e, -EINVAL, "a list of ids is neither a list, nor JSON, nor Python's repr of one") : 0;
}

/* ---- finding the record --------------------------------------------------------------------------------------------------------- */

struct search { const char *id; struct json found; size_t matches; };

static void consider(struct search *s, const struct json *object) {
        struct json id;
        if (object->type != JSON_OBJECT)
                return;
        if (s->id && (!json_get(object, "instance_id", &id) || !json_string_is(&id, s->id)))
                return;
        s->found = *object;
        s->matches++;
}

/* One value that may be the object itself, a list, or an object keyed by id. */
static void search_value(struct search *s, const struct json *v) {
        struct json k, item, id;
        struct json_iter it = json_iter(v);
        if (v->type == JSON_ARRAY) {
                while (json_next_item(&it, &item))
                        consider(s, &item);
        } else if (v->type == JSON_OBJECT && json_get(v, "instance_id", &id)) {
                consider(s, v);
        } else if (v->type == JSON_OBJECT) {
                while (json_next_member(&it, &k, &item))
                        if (!s->id || json_string_is(&k, s->id)) {
                                s->found = item;
                                s->matches++;
                        }
        }
}

static int search_lines(struct search *s, const char *p, size_t n, struct error *e) {
        for (size_t line = 1; n > 0; line++) {
                const char *lf = memchr(p, '\n', n);
                size_t len = lf ? (size_t)(lf - p) : n;
                struct json v;
                struct error why;
                if (len > strspn(p, " \t\r") && len > 0) {
                        if (json_parse(p, len, &v, &why) < 0)
                                return error_say(e, -EINVAL, "line %zu: %s", line, why.text);
                        search_value(s, &v);
                }
                n -= len + (lf ? 1 : 0);
                p += len + (lf ? 1 : 0);
        }
        return 0;
}

static int search_file(struct search *s, const char *path, struct buf *b, const char *what, struct error *e) {
        struct json v;
        struct error why;
        int r = score_read_file(path, b, e);
        if (r < 0)
                return r;
        r = json_parse(buf_str(b), b->len, &v, &why);
        if (r == 0)
                search_value(s, &v);
        else if (search_lines(s, buf_str(b), b->len, NULL) < 0 || s->matches == 0)
                return error_say(e, -EINVAL, "%s: neither JSON nor JSON lines: %s", path, why.text);
        if (s->matches == 0)
                return error_say(e, -EINVAL, "%s: no %s%s%s", path, what, s->id ? " for " : "", s->id ? s->id : "");
        if (s->matches > 1)
                return error_say(e, -EINVAL, "%s: %zu records%s; choose one with --id", path, s->matches, s->id ? " of that id" : "");
        return 0;
}

/* ---- filling the options ---------------------------------------------------------------------------------------------------------- */

static int fill_text(const struct json *record, const char *key, char **at, struct error *e) {
        struct json v;
        _cleanup_buf_ struct buf b = BUF_INIT(1u << 20);
        if (*at || !json_get(record, key, &v) || v.type == JSON_NULL)
                return 0;
        if (json_string(&v, &b) < 0 || memchr(buf_str(&b), 0, b.len))
                return error_say(e, -EINVAL, "'%s' of the record is not a usable string", key);
        *at = buf_steal(&b);
        return *at ? 0 : error_set(e, -ENOMEM, "read the record");
}

static int fill_patch(const struct json *v, struct buf *at, bool *given, struct error *e) {
        if (*given)
                return 0;
        *given = true;
        if (v->type == JSON_NULL)
                return 0;
        int r = json_string(v, at);
        return r == -EINVAL ? error_say(e, r, "a patch of the record is not a string") : r < 0 ? error_set(e, r, "read the record") : 0;
}

/* Multi-SWE-bench has objects instead of lists, keyed by test. */
static int keys(const struct json *v, char ***ret, struct error *e) {
        _cleanup_strv_ char **list = NULL;
        struct json key, value;
        size_t n = 0;
        int r = strv_ensure(&list);
        for (struct json_iter it = json_iter(v); r == 0 && json_next_member(&it, &key, &value);) {
                _cleanup_buf_ struct buf b = BUF_INIT(SCORE_FILE_MAX);
                r = json_string(&key, &b);
                if (r == 0)
                        r = memchr(buf_str(&b), 0, b.len) ? -EINVAL : strv_append_take(&list, &n, buf_steal(&b));
        }
        if (r < 0)
                return error_set(e, r, "read tests keyed by id");
        *ret = TAKE_PTR(list);
        return 0;
}

static int fill_ids(const struct json *record, const char *upper, const char *lower, const char *keyed, char ***at, struct error *e) {
        struct json v;
        if (*at)
                return 0;
        if (json_get(record, keyed, &v) && v.type == JSON_OBJECT)
                return keys(&v, at, e);
        if ((!json_get(record, upper, &v) && !json_get(record, lower, &v)) || v.type == JSON_NULL)
                return 0;
        struct error why;
        int r = score_ids_parse(&v, at, &why);
        return r < 0 ? error_say(e, r, "'%s' of the record: %s", upper, why.text) : 0;
}

/* Without --repo a record's "owner/name" is where the family has its repositories. */
int score_record_repo(const struct json *record, char **ret, struct error *e) {
        _cleanup_free_ char *name = NULL, *org = NULL;
        int r = fill_text(record, "repo", &name, e);
        if (r == 0)
                r = fill_text(record, "org", &org, e);
        if (r < 0 || !name)
                return r;
        if (org && asprintf(ret, "%s/%s", org, name) < 0) {
                *ret = NULL;
                return error_set(e, -ENOMEM, "read the record");
        }
        if (!org)
                *ret = TAKE_PTR(name);
        return 0;
}

static int fill_repo(const struct json *record, struct score_options *o, struct error *e) {
        _cleanup_free_ char *name = NULL;
        if (o->repo || (o->tree && strcmp(o->tree, "image") == 0))
                return 0;
        int r = score_record_repo(record, &name, e);
        if (r < 0 || !name)
                return r;
        bool whole = strstr(name, "://") != NULL;
        if (asprintf(&o->repo, "%s%s%s", whole ? "" : "https://github.com/", name, whole ? "" : ".git") < 0) {
                o->repo = NULL;
                return error_set(e, -ENOMEM, "read the record");
        }
        return 0;
}

static int fill_commit(const struct json *record, struct score_options *o, struct error *e) {
        struct json base;
        if (!o->commit && json_get(record, "base", &base) && base.type == JSON_OBJECT)
                return fill_text(&base, "sha", &o->commit, e);
        return fill_text(record, "base_commit", &o->commit, e);
}

bool score_record_gold(const struct json *record, struct json *ret) { return json_get(record, "patch", ret) || json_get(record, "fix_patch", ret); }

int score_record_fill(struct score_options *o, const struct json *record, struct error *e) {
        struct json test_patch, gold;
        int r = fill_text(record, "instance_id", &o->instance_id, e);
        if (r == 0)
                r = fill_repo(record, o, e);
        if (r == 0)
                r = fill_commit(record, o, e);
        if (r == 0 && json_get(record, "test_patch", &test_patch))
                r = fill_patch(&test_patch, &o->test_patch, &o->has_test_patch, e);
        /* Where nothing is said of control runs a prediction is scored as ever: the record has its own gold patch, and two runs more are not asked for. */
        if (r == 0 && o->control && strcmp(o->control, "off") != 0 && score_record_gold(record, &gold))
                r = fill_patch(&gold, &o->gold_patch, &o->has_gold_patch, e);
        if (r == 0)
                r = fill_ids(record, "FAIL_TO_PASS", "fail_to_pass", "fixed_tests", &o->fail_to_pass, e);
        return r == 0 ? fill_ids(record, "PASS_TO_PASS", "pass_to_pass", "p2p_tests", &o->pass_to_pass, e) : r;
}

/* Keyed by id the value may be the patch itself. */
bool score_prediction_patch(const struct json *prediction, struct json *ret) {
        if (prediction->type != JSON_OBJECT) {
                *ret = *prediction;
                return true;
        }
        return json_get(prediction, "model_patch", ret) || json_get(prediction, "fix_patch", ret);
}

int score_patch_fill(struct score_options *o, const struct json *patch, struct error *e) { return fill_patch(patch, &o->patch, &o->has_patch, e); }

static int fill_prediction(struct score_options *o, const struct json *record, struct error *e) {
        struct json patch;
        if (strcmp(o->prediction, "gold") == 0) {
                if (!score_record_gold(record, &patch))
                        return error_say(e, -EINVAL, "the record has no 'patch' of its own");
                return score_patch_fill(o, &patch, e);
        }
        _cleanup_buf_ struct buf file = BUF_INIT(SCORE_FILE_MAX);
        struct search s = { .id = o->instance_id };
        int r = search_file(&s, o->prediction, &file, "prediction", e);
        if (r < 0)
                return r;
        if (!score_prediction_patch(&s.found, &patch))
                return error_say(e, -EINVAL, "%s: the prediction has no 'model_patch'", o->prediction);
        return score_patch_fill(o, &patch, e);
}

int score_instance_load(struct score_options *o, struct error *e) {
        _cleanup_buf_ struct buf file = BUF_INIT(SCORE_FILE_MAX);
        struct search s = { .id = o->instance_id };
        int r = search_file(&s, o->instance, &file, "record", e);
        if (r == 0 && s.found.type != JSON_OBJECT)
                r = error_say(e, -EINVAL, "%s: the record is not an object", o->instance);
        if (r == 0)
                r = score_record_fill(o, &s.found, e);
        if (r == 0 && o->prediction)
                r = fill_prediction(o, &s.found, e);
        return r;
}
