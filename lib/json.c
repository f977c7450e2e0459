#include "internal.h"

int parse_object(const char *p, size_t n, const char *what, enum brig_code code, struct json *ret, struct brig_error *e) {
        struct error why;
        struct json v;
        if (json_parse(p, n, &v, &why) < 0)
                return fail(e, code, "%s is not JSON: %s", what, why.text);
        if (v.type != JSON_OBJECT)
                return fail(e, code, "%s is not an object", what);
        *ret = v;
        return 0;
}

int expect(const struct answer *a, int status, const char *what, struct json *ret, struct brig_error *e) {
        if (a->status != status) {
                int r = fail(e, BRIG_ERR_STATUS, "%s: HTTP %d: %.*s", what, a->status, (int)MIN2(a->body.len, QUOTED_MAX), buf_str(&a->body));
                if (e) {
                        e->http_status = a->status;
                        e->retry_after = a->retry_after;
                }
                return r;
        }
        return parse_object(buf_str(&a->body), a->body.len, what, BRIG_ERR_ANSWER, ret, e);
}

int member_text(const struct json *object, const char *name, char **ret, struct brig_error *e) {
        struct json v;
        _cleanup_buf_ struct buf b = BUF_INIT(ANSWER_MAX);
        if (json_get(object, name, &v) && v.type == JSON_STRING && json_string(&v, &b) < 0)
                return fail_memory(e);
        for (size_t i = 0; i < b.len; i++)
                if (!b.data[i])
                        b.data[i] = '?';
        char *s = buf_steal(&b);
        if (!s)
                return fail_memory(e);
        *ret = s;
        return 0;
}

int member_id(const struct json *object, const char *name, const char *what, char **ret, struct brig_error *e) {
        char *s;
        int r = member_text(object, name, &s, e);
        if (r < 0)
                return r;
        if (check_id(s, NULL) < 0) {
                free(s);
                return fail(e, BRIG_ERR_ANSWER, "%s: the answer has no %s", what, name);
        }
        *ret = s;
        return 0;
}

int64_t member_int(const struct json *object, const char *name, int64_t absent) {
        struct json v;
        int64_t n;
        return json_get(object, name, &v) && json_int_loose(&v, &n) == 0 ? n : absent;
}

double member_number(const struct json *object, const char *name, double absent) {
        struct json v;
        double d;
        return json_get(object, name, &v) && json_double(&v, &d) == 0 ? d : absent;
}

bool member_bool(const struct json *object, const char *name) {
        struct json v;
        bool b = false;
        return json_get(object, name, &v) && json_bool(&v, &b) == 0 && b;
}

int check_id(const char *id, struct brig_error *e) {
        size_t n = id ? strspn(id, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz._-") : 0;
        if (n == 0 || id[n] || n > 255)
                return fail(e, BRIG_ERR_ARGUMENT, "not an id: '%.100s'", id ? id : "");
        return 0;
}
