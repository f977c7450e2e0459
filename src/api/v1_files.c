/* /v1/sessions/{id}/files/...: operations that have an answer. The bytes of files are v1_content.c's. */
#include <string.h>

#include "api/v1_files.h"
#include "base/base64.h"

#define LIST_DEFAULT 1000
#define LIST_MAX 10000

static struct files_work *begin(struct http_request *r, void *user, const char *operation) {
        struct files_work *w = files_work_new(r, user, 200);
        if (w) {
                files_arg(w, "files");
                files_arg(w, operation);
        }
        return w;
}

/* The path comes last, behind the options. */
static void finish(struct files_work *w, const char *absent) {
        files_arg(w, "--");
        if (files_query_path(w, absent, ""))
                files_work_ask(w);
}

void v1_get_file_stat(struct http_request *r, void *user) {
        struct files_work *w = begin(r, user, "stat");
        if (w && files_query_flag(w, "follow", "follow"))
                finish(w, NULL);
}

void v1_list_files(struct http_request *r, void *user) {
        struct files_work *w = begin(r, user, "list");
        const char *after = http_query(r, "after");
        if (!w || !files_query_number(w, "depth", 0, 256, "depth") || !files_query_number(w, "limit", LIST_DEFAULT, LIST_MAX, "limit"))
                return;
        if (after)
                files_argf(w, "after=%s", after);
        finish(w, ".");
}

void v1_search_files(struct http_request *r, void *user) {
        struct files_work *w = begin(r, user, "search");
        const char *name = http_query(r, "name"), *text = http_query(r, "text");
        if (!w || !files_query_flag(w, "regex", "regex") || !files_query_flag(w, "ignore_case", "ignore-case") ||
            !files_query_number(w, "limit", LIST_DEFAULT, LIST_MAX, "limit"))
                return;
        if (name)
                files_argf(w, "name=%s", name);
        if (text && *text)
                files_argf(w, "text=%s", text);
        finish(w, ".");
}

void v1_delete_file(struct http_request *r, void *user) {
        struct files_work *w = begin(r, user, "delete");
        if (w && files_query_flag(w, "recursive", "recursive"))
                finish(w, NULL);
}

/* ---- with a body --------------------------------------------------------------------------------------------------------------- */

struct file_body {
        char *path, *to;
        bool parents, replace, mode_given, uid_given, gid_given;
        uint64_t mode, uid, gid;
};

static void file_body_release(struct file_body *b) {
        free(b->path);
        free(b->to);
}

/* Bytes that are no UTF-8 come as base64, under the name with _b64. */
static int parse_path(const struct field *f, const struct json *v, void *target, struct error *e) {
        char **at = (char **)((char *)target + f->at);
        char *text;
        int r = field_string(f, v, 2 * FILES_PATH_MAX, &text, NULL, e);
        if (r < 0)
                return r;
        size_t n = strlen(f->name);
        if (n > 4 && strcmp(f->name + n - 4, "_b64") == 0) {
                _cleanup_buf_ struct buf b = BUF_INIT(2 * FILES_PATH_MAX);
                r = base64_decode(text, strlen(text), &b);
                free(text);
                if (r < 0 || memchr(buf_str(&b), 0, b.len))
                        return field_fault(f, e, "not the base64 of a path");
                text = strdup(buf_str(&b));
                if (!text)
                        return error_set(e, -ENOMEM, "decode the request");
        }
        free(*at);
        *at = text;
        return 0;
}

static int parse_mode(const struct field *f, const struct json *v, void *target, struct error *e) {
        struct file_body *b = target;
        char *text;
        int r = field_string(f, v, 5, &text, NULL, e);
        if (r < 0)
                return r;
        bool good = *text && strspn(text, "01234567") == strlen(text);
        b->mode = good ? strtoul(text, NULL, 8) : UINT64_MAX;
        free(text);
        b->mode_given = true;
        return b->mode <= 07777 ? 0 : field_fault(f, e, "expected octal digits such as \"0644\"");
}

#define AT(member) .at = offsetof(struct file_body, member)
#define PATH(name_, member, doc_) \
        { .name = name_, .kind = FIELD_CUSTOM, .parse = parse_path, AT(member), .type = "string", .doc = doc_ }, \
        { .name = name_ "_b64", .kind = FIELD_CUSTOM, .parse = parse_path, AT(member), .type = "string", .doc = "the same in base64, for bytes that are not UTF-8" }
#define MODE { .name = "mode", .kind = FIELD_CUSTOM, .parse = parse_mode, .type = "string", .doc = "octal" }
#define OWNER(name_) { .name = #name_, .kind = FIELD_INT, AT(name_), .given_at = offsetof(struct file_body, name_##_given), .min = 0, .max = 65535, .doc = "inside the sandbox" }
#define FLAG(name_, doc_) { .name = #name_, .kind = FIELD_BOOL, AT(name_), .def = "false", .doc = doc_ }

static const struct field move_fields[] = { PATH("from", path, "what is moved"), PATH("to", to, "its new path"), FLAG(replace, "what is there goes"), FLAG(parents, "missing directories are made") };
static const struct field mkdir_fields[] = { PATH("path", path, "the directory"), MODE, FLAG(parents, "missing directories are made, and one that is there is no fault") };
static const struct field chmod_fields[] = { PATH("path", path, "a file or directory; a link is followed"), MODE, OWNER(uid), OWNER(gid) };
struct v1_body v1_move_body(void) { return (struct v1_body){ move_fields, ARRAY_SIZE(move_fields) }; }
struct v1_body v1_mkdir_body(void) { return (struct v1_body){ mkdir_fields, ARRAY_SIZE(mkdir_fields) }; }
struct v1_body v1_chmod_body(void) { return (struct v1_body){ chmod_fields, ARRAY_SIZE(chmod_fields) }; }

static bool decode(struct http_request *r, struct v1_body table, const char *path_field, bool two, struct file_body *b) {
        struct json object;
        struct error e = { 0 };
        *b = (struct file_body){ 0 };
        if (!v1_body(r, false, &object))
                return false;
        int x = fields_decode(table.rows, table.n, &object, 0, b, &e);
        if (x == 0 && !b->path)
                x = error_say(&e, -EINVAL, "Missing required fields: ['%s']", path_field);
        if (x == 0 && two && !b->to)
                x = error_say(&e, -EINVAL, "Missing required fields: ['to']");
        if (x == 0)
                return true;
        file_body_release(b);
        v1_fault(r, x, e.text, NULL);
        return false;
}

static void start(struct http_request *r, void *user, const char *operation, struct file_body *b, const char *path_field) {
        struct files_work *w = begin(r, user, operation);
        bool owner = b->uid_given || b->gid_given;
        if (w && b->parents)
                files_arg(w, "parents");
        if (w && b->replace)
                files_arg(w, "replace");
        if (w && b->mode_given)
                files_argf(w, "mode=%o", (unsigned)b->mode);
        /* Without the other one of them: -1 leaves it as it is. */
        if (w && owner) {
                files_argf(w, "uid=%u", b->uid_given ? (unsigned)b->uid : UINT32_MAX);
                files_argf(w, "gid=%u", b->gid_given ? (unsigned)b->gid : UINT32_MAX);
        } else if (w && strcmp(operation, "chmod") != 0)
                files_owner_args(w);
        if (w)
                files_arg(w, "--");
        if (w && files_path_arg(w, "", b->path, path_field) && (!b->to || files_path_arg(w, "", b->to, "to")))
                files_work_ask(w);
        file_body_release(b);
}

void v1_post_move(struct http_request *r, void *user) {
        struct file_body b;
        if (decode(r, v1_move_body(), "from", true, &b))
                start(r, user, "move", &b, "from");
}

void v1_post_mkdir(struct http_request *r, void *user) {
        struct file_body b;
        if (decode(r, v1_mkdir_body(), "path", false, &b))
                start(r, user, "mkdir", &b, "path");
}

void v1_post_chmod(struct http_request *r, void *user) {
        struct file_body b;
        if (decode(r, v1_chmod_body(), "path", false, &b))
                start(r, user, "chmod", &b, "path");
}
