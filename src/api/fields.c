#include <string.h>

#include "api/fields.h"
#include "base/utf8.h"

#define AT(member) .at = offsetof(struct envelope, member)

void envelope_release(struct envelope *v) {
        if (!v)
                return;
        free(v->tenant);
        free(v->idempotency_key);
        *v = (struct envelope){ 0 };
}

static int parse_labels(const struct field *f, const struct json *v, void *target, struct error *e) {
        struct envelope *env = target;
        struct json key, value;
        size_t n = 0;
        if (v->type != JSON_OBJECT)
                return field_fault(f, e, "expected an object of strings, not %s", json_type_to_string(v->type));
        for (struct json_iter it = json_iter(v); json_next_member(&it, &key, &value);) {
                _cleanup_free_ char *name = NULL, *text = NULL;
                if (++n > LABELS_MAX)
                        return field_fault(f, e, "more than %d labels", LABELS_MAX);
                int r = field_string(f, &key, LABEL_TEXT_MAX, &name, NULL, e);
                if (r == 0)
                        r = field_string(f, &value, LABEL_TEXT_MAX, &text, NULL, e);
                if (r < 0)
                        return r;
                if (strcmp(name, "tenant") == 0) {
                        free(env->tenant);
                        env->tenant = TAKE_PTR(text);
                }
        }
        return 0;
}

int parse_idempotency_key(const struct field *f, const struct json *v, void *target, struct error *e) {
        char **at = (char **)((char *)target + f->at), *key;
        int r = field_string(f, v, IDEMPOTENCY_KEY_MAX, &key, NULL, e);
        if (r < 0)
                return r;
        if (!key[0]) {
                free(key);
                return field_fault(f, e, "must not be empty");
        }
        free(*at);
        *at = key;
        return 0;
}

static const struct field envelope_fields[] = {
        { .name = "priority", .kind = FIELD_SIGNED, AT(priority), .min = -TASK_PRIORITY_MAX, .max = TASK_PRIORITY_MAX, .def = "0", .doc = "higher runs earlier" },
        { .name = "labels", .kind = FIELD_CUSTOM, .parse = parse_labels, .type = "object of strings", .doc = "`tenant` is what the queue is fair between" },
        { .name = "idempotency_key", .kind = FIELD_CUSTOM, .parse = parse_idempotency_key, AT(idempotency_key), .type = "string", .doc = "also as the header `Idempotency-Key`" },
};

const struct field *envelope_table(size_t *ret_n) {
        *ret_n = ARRAY_SIZE(envelope_fields);
        return envelope_fields;
}

int take_header_key(char **key, const char *header_key, struct error *e) {
        if (!header_key || (*key && strcmp(*key, header_key) == 0))
                return 0;
        if (*key)
                return error_say(e, -EINVAL, "Invalid value for 'idempotency_key': the field and the header Idempotency-Key differ");
        if (!header_key[0] || strlen(header_key) > IDEMPOTENCY_KEY_MAX || !utf8_valid(header_key, strlen(header_key)))
                return error_say(e, -EINVAL, "Invalid value for 'Idempotency-Key': expected 1 to %u bytes of UTF-8", IDEMPOTENCY_KEY_MAX);
        *key = strdup(header_key);
        return *key ? 0 : error_set(e, -ENOMEM, "decode request");
}

int envelope_decode(const struct json *object, const char *header_key, struct envelope *ret, struct error *e) {
        struct envelope v = { .tenant = strdup("") };
        int r = v.tenant ? fields_decode(envelope_fields, ARRAY_SIZE(envelope_fields), object, 0, &v, e) : error_set(e, -ENOMEM, "decode request");
        if (r == 0)
                r = take_header_key(&v.idempotency_key, header_key, e);
        if (r < 0) {
                envelope_release(&v);
                return r;
        }
        *ret = v;
        return 0;
}
