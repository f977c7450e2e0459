/* /v1/openapi.json and docs/api.md, from the table of routes and the tables of fields. */
#include <string.h>

#include "api/v1_internal.h"

#define OPENAPI_MAX (1u << 20)

/* ---- JSON schema of a field ------------------------------------------------------------------------------------------------------- */

static void put_type(struct json_writer *w, const char *type) { json_field_text(w, "type", type); }

static void put_fields(struct json_writer *w, const struct field *rows, size_t n);

/* A row that parses itself says its form in `type`, in words. */
static void put_custom(struct json_writer *w, const struct field *f) {
        const char *t = f->type ? f->type : "";
        if (strncmp(t, "object", 6) == 0)
                put_type(w, "object");
        else if (strncmp(t, "list", 4) == 0)
                put_type(w, "array");
        else if (strcmp(t, "string") == 0)
                put_type(w, "string");
        else if (strcmp(t, "integer") == 0)
                put_type(w, "integer");
}

static void put_schema(struct json_writer *w, const struct field *f) {
        json_begin_object(w);
        switch (f->kind) {
        case FIELD_STRING: case FIELD_BYTES:
                put_type(w, "string");
                json_field_int(w, "maxLength", f->max);
                break;
        case FIELD_INT: case FIELD_SIGNED: case FIELD_NUMBER:
                put_type(w, f->kind == FIELD_NUMBER ? "number" : "integer");
                json_field_int(w, "minimum", f->min);
                json_field_int(w, "maximum", f->max);
                break;
        case FIELD_BOOL:
                put_type(w, "boolean");
                break;
        case FIELD_LIST:
                put_type(w, "array");
                json_put_key(w, "items");
                json_begin_object(w);
                put_type(w, "string");
                json_end_object(w);
                json_field_int(w, "maxItems", f->max);
                break;
        case FIELD_ENUM:
                json_put_key(w, "enum");
                json_begin_array(w);
                for (size_t i = 0; i < f->n_names; i++)
                        json_put_text(w, f->names[i]);
                json_end_array(w);
                break;
        case FIELD_OBJECT:
                put_fields(w, f->sub, f->n_sub);
                break;
        case FIELD_CUSTOM:
                put_custom(w, f);
                break;
        case FIELD_KIND_MAX:
                break;
        }
        _cleanup_buf_ struct buf text = BUF_INIT(2048);
        (void)buf_printf(&text, "%s%s%s%s%s", f->doc ? f->doc : "", f->kind == FIELD_CUSTOM && f->type ? " (" : "", f->kind == FIELD_CUSTOM && f->type ? f->type : "",
                         f->kind == FIELD_CUSTOM && f->type ? ")" : "", f->def ? "; default: " : "");
        if (f->def)
                (void)buf_adds(&text, f->def);
        json_field_string(w, "description", buf_str(&text), text.len);
        json_end_object(w);
}

static void put_fields(struct json_writer *w, const struct field *rows, size_t n) {
        put_type(w, "object");
        json_put_key(w, "properties");
        json_begin_object(w);
        for (size_t i = 0; i < n; i++) {
                json_put_key(w, rows[i].name);
                put_schema(w, &rows[i]);
        }
        json_end_object(w);
}

/* ---- operations --------------------------------------------------------------------------------------------------------------------- */

static void put_parameter(struct json_writer *w, const char *name, const char *in, const char *type, const char *doc) {
        json_begin_object(w);
        json_field_text(w, "name", name);
        json_field_text(w, "in", in);
        json_field_bool(w, "required", strcmp(in, "path") == 0);
        json_put_key(w, "schema");
        json_begin_object(w);
        put_type(w, type);
        json_end_object(w);
        if (doc)
                json_field_text(w, "description", doc);
        json_end_object(w);
}

static void put_parameters(struct json_writer *w, const struct v1_route *t) {
        json_put_key(w, "parameters");
        json_begin_array(w);
        for (const char *p = t->path; (p = strchr(p, '{'));) {
                char name[64];
                size_t n = strcspn(++p, "}");
                snprintf(name, sizeof name, "%.*s", (int)MIN2(n, sizeof name - 1), p);
                put_parameter(w, name, "path", "string", NULL);
        }
        for (size_t i = 0; i < t->n_query; i++)
                put_parameter(w, t->query[i].name, "query", t->query[i].type, t->query[i].doc);
        json_end_array(w);
}

static void put_content(struct json_writer *w, const char *media) {
        json_put_key(w, "content");
        json_begin_object(w);
        json_put_key(w, media);
        json_begin_object(w);
        json_put_key(w, "schema");
        json_begin_object(w);
}

static void end_content(struct json_writer *w) {
        for (int i = 0; i < 3; i++)
                json_end_object(w);
}

static void put_body(struct json_writer *w, const struct v1_route *t) {
        if (!t->body && !t->content)
                return;
        json_put_key(w, "requestBody");
        json_begin_object(w);
        put_content(w, t->body ? "application/json" : t->content);
        if (t->body) {
                struct v1_body b = t->body();
                put_fields(w, b.rows, b.n);
        } else
                put_type(w, "string");
        end_content(w);
        json_end_object(w);
}

static void put_operation(struct json_writer *w, const struct v1_route *t) {
        char method[8] = "", status[8];
        for (size_t i = 0; t->method[i] && i < sizeof method - 1; i++)
                method[i] = (char)(t->method[i] | 0x20);
        snprintf(status, sizeof status, "%d", t->status);
        json_put_key(w, method);
        json_begin_object(w);
        json_field_text(w, "operationId", t->id);
        json_field_text(w, "summary", t->doc);
        put_parameters(w, t);
        put_body(w, t);
        json_put_key(w, "responses");
        json_begin_object(w);
        json_put_key(w, status);
        json_begin_object(w);
        json_field_text(w, "description", t->answer);
        json_end_object(w);
        json_put_key(w, "default");
        json_begin_object(w);
        json_field_text(w, "description", "a fault");
        put_content(w, "application/json");
        json_field_text(w, "$ref", "#/components/schemas/Error");
        end_content(w);
        json_end_object(w);
        json_end_object(w);
        json_end_object(w);
}

static void put_error_schema(struct json_writer *w) {
        static const char text[] = "{\"type\":\"object\",\"properties\":{\"error\":{\"type\":\"object\",\"required\":[\"code\",\"message\"],\"properties\":{"
                "\"code\":{\"type\":\"string\"},\"message\":{\"type\":\"string\"},\"hint\":{\"type\":[\"string\",\"null\"]}}}}}";
        json_put_key(w, "components");
        json_begin_object(w);
        json_put_key(w, "schemas");
        json_begin_object(w);
        json_field_raw(w, "Error", text, strlen(text));
        json_end_object(w);
        json_end_object(w);
}

/* The rows of one path stand together in the result, wherever they stand in the table. */
static bool is_first_of_path(const struct v1_route *t, size_t i) {
        for (size_t k = 0; k < i; k++)
                if (strcmp(t[k].path, t[i].path) == 0)
                        return false;
        return true;
}

int v1_openapi(struct buf *ret) {
        size_t n;
        const struct v1_route *t = v1_table(&n);
        struct json_writer w = JSON_WRITER(ret);
        json_begin_object(&w);
        json_field_text(&w, "openapi", "3.1.0");
        json_put_key(&w, "info");
        json_begin_object(&w);
        json_field_text(&w, "title", "Brig");
        json_field_text(&w, "version", BRIG_VERSION);
        json_end_object(&w);
        json_put_key(&w, "paths");
        json_begin_object(&w);
        for (size_t i = 0; i < n; i++) {
                if (!is_first_of_path(t, i))
                        continue;
                json_put_key(&w, t[i].path);
                json_begin_object(&w);
                for (size_t k = i; k < n; k++)
                        if (strcmp(t[k].path, t[i].path) == 0)
                                put_operation(&w, &t[k]);
                json_end_object(&w);
        }
        json_end_object(&w);
        put_error_schema(&w);
        json_end_object(&w);
        return json_finish(&w);
}

void v1_get_openapi(struct http_request *r, void *user) {
        _cleanup_buf_ struct buf b = BUF_INIT(OPENAPI_MAX);
        int x = v1_openapi(&b);
        v1_reply(r, 200, x, &b);
}

/* ---- the page for people ------------------------------------------------------------------------------------------------------------ */

static int document_route(const struct v1_route *t, struct buf *b) {
        int r = buf_printf(b, "\n### `%s %s`\n%s Answers %d: %s.\n", t->method, t->path, t->doc, t->status, t->answer);
        if (r == 0 && t->n_query > 0)
                r = buf_adds(b, "\n| query | type | meaning |\n| - | - | - |\n");
        for (size_t i = 0; r == 0 && i < t->n_query; i++)
                r = buf_printf(b, "| `%s` | %s | %s |\n", t->query[i].name, t->query[i].type, t->query[i].doc);
        if (r == 0 && t->content)
                r = buf_printf(b, "\nThe body is `%s`.\n", t->content);
        if (r == 0 && t->body) {
                struct v1_body body = t->body();
                r = buf_adds(b, "\n| field | type | default | meaning |\n| - | - | - | - |\n");
                if (r == 0)
                        r = fields_document(body.rows, body.n, "", b);
        }
        return r;
}

int v1_document(struct buf *ret) {
        size_t n;
        const struct v1_route *t = v1_table(&n);
        int r = 0;
        for (size_t i = 0; r == 0 && i < n; i++)
                r = document_route(&t[i], ret);
        return r;
}
