#include <string.h>

#include "base/strv.h"
#include "rlm/contract.h"

/* ---- names ------------------------------------------------------------------------------------------------------------------------ */

bool contract_name_reserved(const char *name) {
        static const char *const reserved[] = { "llm_query", "llm_query_batched", "SUBMIT", "print" };
        for (size_t i = 0; i < ARRAY_SIZE(reserved); i++)
                if (strcmp(name, reserved[i]) == 0)
                        return true;
        return false;
}

static bool keyword(const char *s, size_t n) {
        static const char *const words[] = {
                "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del", "elif", "else", "except", "finally",
                "for", "from", "global", "if", "import", "in", "is", "lambda", "nonlocal", "not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
        };
        for (size_t i = 0; i < ARRAY_SIZE(words); i++)
                if (strlen(words[i]) == n && memcmp(words[i], s, n) == 0)
                        return true;
        return false;
}

bool contract_name_ok(const char *name, size_t n) {
        if (n == 0 || n > CONTRACT_NAME_MAX || (name[0] >= '0' && name[0] <= '9') || keyword(name, n))
                return false;
        for (size_t i = 0; i < n; i++) {
                char c = name[i];
                if (c != '_' && !(c >= '0' && c <= '9') && !((c | 0x20) >= 'a' && (c | 0x20) <= 'z'))
                        return false;
        }
        return true;
}

/* A name of tool or output number i, not among those before. */
static int take_name(const struct json *v, const char *what, size_t i, char **ret, struct error *e) {
        _cleanup_buf_ struct buf b = BUF_INIT(CONTRACT_NAME_MAX);
        int r = json_string(v, &b);
        if (r == -ENOMEM)
                return error_set(e, r, "read a name");
        if (r < 0 || !contract_name_ok(buf_str(&b), b.len))
                return error_say(e, -EINVAL, "%s[%zu]: the name must be a Python identifier of at most %u ASCII characters", what, i, CONTRACT_NAME_MAX);
        if (contract_name_reserved(buf_str(&b)))
                return error_say(e, -EINVAL, "%s[%zu]: the name '%s' is reserved", what, i, buf_str(&b));
        *ret = buf_steal(&b);
        return *ret ? 0 : error_set(e, -ENOMEM, "read a name");
}

/* ---- tools ------------------------------------------------------------------------------------------------------------------------- */

void tools_release(struct tools *t) {
        t->names = strv_free(t->names);
        t->n = 0;
}

int tools_parse(const struct json *v, struct tools *ret, struct error *e) {
        struct tools t = { 0 };
        struct json one, name, schema;
        int r = 0;
        if (!v || v->type == JSON_NULL) {
                *ret = t;
                return 0;
        }
        if (v->type != JSON_ARRAY)
                return error_say(e, -EINVAL, "tools: expected an array");
        for (struct json_iter it = json_iter(v); r == 0 && json_next_item(&it, &one);) {
                char *text = NULL;
                if (t.n == TOOLS_MAX)
                        r = error_say(e, -EINVAL, "tools: more than %u", TOOLS_MAX);
                else if (one.type != JSON_OBJECT || !json_get(&one, "name", &name))
                        r = error_say(e, -EINVAL, "tools[%zu]: expected an object with a name", t.n);
                else if (json_get(&one, "parameters", &schema) && schema.type != JSON_OBJECT && schema.type != JSON_NULL)
                        r = error_say(e, -EINVAL, "tools[%zu]: parameters must be a JSON schema", t.n);
                else
                        r = take_name(&name, "tools", t.n, &text, e);
                if (r == 0 && strv_contains((const char *const *)t.names, text)) {
                        r = error_say(e, -EINVAL, "tools[%zu]: there is a tool '%s' already", t.n, text);
                        free(text);
                } else if (r == 0 && strv_append_take(&t.names, &t.n, text) < 0)
                        r = error_set(e, -ENOMEM, "read the tools");
        }
        if (r < 0)
                tools_release(&t);
        else
                *ret = t;
        return r;
}

bool tools_have(const struct tools *t, const struct json *name) {
        for (size_t i = 0; i < t->n; i++)
                if (json_string_is(name, t->names[i]))
                        return true;
        return false;
}

/* ---- types ------------------------------------------------------------------------------------------------------------------------- */

static const char *const output_type_names[] = { "any", "str", "int", "float", "bool", "list", "dict" };
STRING_TABLE(output_type, output_type_names, OUTPUT_TYPE_MAX)

static int base_type(const char *s, enum output_type *ret) {
        static const struct { const char *name; enum output_type type; } more[] = {
                { "string", OUTPUT_STR }, { "integer", OUTPUT_INT }, { "number", OUTPUT_FLOAT }, { "boolean", OUTPUT_BOOL }, { "array", OUTPUT_LIST },
                { "object", OUTPUT_DICT }, { "Any", OUTPUT_ANY }, { "List", OUTPUT_LIST }, { "Dict", OUTPUT_DICT },
        };
        int t = output_type_from_string(s);
        for (size_t i = 0; t < 0 && i < ARRAY_SIZE(more); i++)
                if (strcmp(more[i].name, s) == 0)
                        t = (int)more[i].type;
        if (t < 0)
                return -EINVAL;
        *ret = (enum output_type)t;
        return 0;
}

/* "int", "list[str]", "dict[str, float]", "Optional[int]", "str | None". Cuts `s` up. */
static int parse_type(char *s, struct output *o) {
        size_t n = strlen(s);
        if (n > 7 && strcmp(s + n - 7, " | None") == 0) {
                o->nullable = true;
                n -= 7;
                s[n] = 0;
        }
        if (strncmp(s, "Optional[", 9) == 0 && s[n - 1] == ']') {
                o->nullable = true;
                s[n - 1] = 0;
                s += 9;
        }
        char *item = strchr(s, '[');
        o->item = OUTPUT_ANY;
        if (item) {
                n = strlen(s);
                if (s[n - 1] != ']')
                        return -EINVAL;
                s[n - 1] = 0;
                *item++ = 0;
        }
        int r = base_type(s, &o->type);
        if (r < 0 || !item)
                return r;
        if (o->type != OUTPUT_LIST && o->type != OUTPUT_DICT)
                return -EINVAL;
        if (o->type == OUTPUT_DICT) {
                char *comma = strchr(item, ',');
                if (!comma || strncmp(item, "str", 3) != 0 || comma != item + 3)
                        return -EINVAL;
                item = comma + 1 + strspn(comma + 1, " ");
        }
        return base_type(item, &o->item);
}

static bool type_fits(enum output_type t, const struct json *v) {
        int64_t n;
        switch (t) {
        case OUTPUT_STR: return v->type == JSON_STRING;
        /* Python's int has no bound; a number that is written without point or exponent is one. */
        case OUTPUT_INT: return v->type == JSON_NUMBER && (json_int(v, &n) == 0 || (!memchr(v->p, '.', v->n) && !memchr(v->p, 'e', v->n) && !memchr(v->p, 'E', v->n)));
        case OUTPUT_FLOAT: return v->type == JSON_NUMBER;
        case OUTPUT_BOOL: return v->type == JSON_BOOL;
        case OUTPUT_LIST: return v->type == JSON_ARRAY;
        case OUTPUT_DICT: return v->type == JSON_OBJECT;
        default: return true;
        }
}

static int check_value(const struct output *o, const struct json *v, struct error *e) {
        struct json one, key;
        if (v->type == JSON_NULL && (o->nullable || o->type == OUTPUT_ANY))
                return 0;
        if (!type_fits(o->type, v))
                return error_say(e, -EINVAL, "SUBMIT: %s must be %s, not %s", o->name, output_type_to_string((int)o->type), json_type_to_string((int)v->type));
        if (o->item == OUTPUT_ANY)
                return 0;
        struct json_iter it = json_iter(v);
        while (o->type == OUTPUT_LIST ? json_next_item(&it, &one) : json_next_member(&it, &key, &one))
                if (!type_fits(o->item, &one))
                        return error_say(e, -EINVAL, "SUBMIT: every item of %s must be %s, one is %s", o->name, output_type_to_string((int)o->item),
                                         json_type_to_string((int)one.type));
        return 0;
}

/* ---- outputs ----------------------------------------------------------------------------------------------------------------------- */

void outputs_release(struct outputs *o) {
        for (size_t i = 0; i < o->n; i++) {
                free(o->list[i].name);
                free(o->list[i].def);
        }
        free(o->list);
        *o = (struct outputs){ 0 };
}

static const struct output *find(const struct outputs *o, const struct json *name) {
        for (size_t i = 0; i < o->n; i++)
                if (json_string_is(name, o->list[i].name))
                        return &o->list[i];
        return NULL;
}

static int take_type(const struct json *v, struct output *o, struct error *e) {
        _cleanup_buf_ struct buf b = BUF_INIT(128);
        if (json_string(v, &b) < 0 || memchr(buf_str(&b), 0, b.len) || b.len == 0)
                return error_say(e, -EINVAL, "outputs: the type of '%s' must be a short text", o->name);
        _cleanup_free_ char *copy = strdup(buf_str(&b));
        if (!copy)
                return error_set(e, -ENOMEM, "read the outputs");
        if (parse_type(copy, o) < 0)
                return error_say(e, -EINVAL, "outputs: type '%s' of '%s' is not known: any, str, int, float, bool, list, dict, list[T], dict[str, T], Optional[T]", buf_str(&b), o->name);
        return 0;
}

static int take_default(const struct json *v, struct output *o, struct error *e) {
        struct error why;
        if (check_value(o, v, &why) < 0 && v->type != JSON_NULL)
                return error_say(e, -EINVAL, "outputs: the default of '%s' is not of its type", o->name);
        o->def = strndup(v->p, v->n);
        return o->def ? 0 : error_set(e, -ENOMEM, "read the outputs");
}

/* `spec`: an object, or a text: the type alone. */
static int take_output(struct outputs *o, const struct json *name, const struct json *spec, struct error *e) {
        struct json v;
        if (o->n == OUTPUTS_MAX)
                return error_say(e, -EINVAL, "outputs: more than %u", OUTPUTS_MAX);
        struct output *grown = reallocarray(o->list, o->n + 1, sizeof *grown);
        if (!grown)
                return error_set(e, -ENOMEM, "read the outputs");
        o->list = grown;
        struct output *one = &o->list[o->n];
        *one = (struct output){ .required = true };
        int r = take_name(name, "outputs", o->n, &one->name, e);
        if (r < 0)
                return r;
        bool twice = find(o, name);
        o->n++;
        if (twice)
                return error_say(e, -EINVAL, "outputs: '%s' stands twice", one->name);
        if (spec->type == JSON_STRING)
                return take_type(spec, one, e);
        if (json_get(spec, "type", &v) && v.type != JSON_NULL)
                r = take_type(&v, one, e);
        if (r == 0 && json_get(spec, "default", &v)) {
                one->required = false;
                r = take_default(&v, one, e);
        }
        if (r == 0 && json_get(spec, "required", &v) && v.type != JSON_NULL && json_bool(&v, &one->required) < 0)
                r = error_say(e, -EINVAL, "outputs: required of '%s' must be true or false", one->name);
        return r;
}

int outputs_parse(const struct json *v, struct outputs *ret, struct error *e) {
        struct outputs o = { 0 };
        struct json one, name;
        int r = 0;
        if (!v || v->type == JSON_NULL) {
                *ret = o;
                return 0;
        }
        if (v->type != JSON_ARRAY && v->type != JSON_OBJECT)
                return error_say(e, -EINVAL, "outputs: expected an array, or an object of names and types");
        struct json_iter it = json_iter(v);
        if (v->type == JSON_OBJECT)
                while (r == 0 && json_next_member(&it, &name, &one))
                        r = one.type == JSON_STRING || one.type == JSON_OBJECT ? take_output(&o, &name, &one, e)
                                                                               : error_say(e, -EINVAL, "outputs: expected types or objects");
        else
                while (r == 0 && json_next_item(&it, &one))
                        r = one.type == JSON_OBJECT && json_get(&one, "name", &name) ? take_output(&o, &name, &one, e)
                                                                                     : error_say(e, -EINVAL, "outputs[%zu]: expected an object with a name", o.n);
        if (r < 0)
                outputs_release(&o);
        else
                *ret = o;
        return r;
}

static int check_all(const struct outputs *o, const struct json *given, struct json_writer *w, struct error *e) {
        struct json v, key;
        for (struct json_iter it = json_iter(given); json_next_member(&it, &key, &v);)
                if (!find(o, &key))
                        return error_say(e, -EINVAL, "SUBMIT: there is no output %.*s", (int)MIN2(key.n, (size_t)80), key.p);
        for (size_t i = 0; i < o->n; i++) {
                const struct output *one = &o->list[i];
                bool there = json_get(given, one->name, &v);
                if (!there && one->required && !one->def)
                        return error_say(e, -EINVAL, "SUBMIT: %s is missing", one->name);
                int r = there ? check_value(one, &v, e) : 0;
                if (r < 0)
                        return r;
                if (there)
                        json_field_raw(w, one->name, v.p, v.n);
                else if (one->def)
                        json_field_raw(w, one->name, one->def, strlen(one->def));
        }
        return 0;
}

int outputs_check(const struct outputs *o, const struct json *given, struct buf *ret, struct error *e) {
        struct json_writer w = JSON_WRITER(ret);
        if (given->type != JSON_OBJECT)
                return error_say(e, -EINVAL, "SUBMIT: the outputs must have names");
        if (given->n > SUBMIT_BYTES_MAX)
                return error_say(e, -EFBIG, "SUBMIT: the outputs are %zu bytes, more than %u: submit less, and write the rest to a file", given->n, SUBMIT_BYTES_MAX);
        if (o->n == 0) {
                int r = buf_add(ret, given->p, given->n);
                return r < 0 ? error_set(e, r, "SUBMIT") : 0;
        }
        json_begin_object(&w);
        int r = check_all(o, given, &w, e);
        if (r < 0)
                return r;
        json_end_object(&w);
        r = json_finish(&w);
        return r < 0 ? error_set(e, r, "SUBMIT") : 0;
}
