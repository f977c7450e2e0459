#include "api/build_fields.h"
#include "api/v1_internal.h"

#include <string.h>

#include "base/fields_forms.h"
#include "base/redact.h"
#include "base/strv.h"
#include "build/dockerfile.h"
#include "registry/access.h"

#define AT(member) .at = offsetof(struct build_body, member)
#define NAMES_MAX 64
#define TIMEOUT_MAX_S 604800

void build_body_release(struct build_body *b) {
        free(b->dockerfile);
        free(b->path);
        free(b->target);
        for (size_t i = 0; i < b->n_files; i++) {
                free((char *)(uintptr_t)b->files[i].name);
                free((char *)(uintptr_t)b->files[i].data);
        }
        free(b->files);
        strv_free(b->args);
        strv_free(b->names);
        *b = (struct build_body){ 0 };
}

/* ---- the context ---- */

static int add_file(const struct field *f, const struct json *key, const struct json *value, size_t *left, struct build_body *b, struct error *e) {
        struct buf bytes = BUF_INIT(*left);
        char *name = NULL;
        int r = field_string(f, key, 4000, &name, NULL, e);
        if (r < 0)
                return r;
        r = field_content(value, &bytes);
        if (r < 0) {
                r = r == -ENOSPC ? field_fault(f, e, "more than %u bytes; send an archive", BUILD_FILES_BYTES_MAX) :
                    r == -ENOMEM ? error_set(e, r, "decode request") : field_fault(f, e, "'%.200s' must be a string or {\"b64\": string}", name);
                buf_release(&bytes);
                free(name);
                return r;
        }
        *left -= bytes.len;
        struct build_file *file = &b->files[b->n_files++];
        *file = (struct build_file){ .name = name, .len = bytes.len };
        file->data = buf_steal(&bytes);
        return file->data ? 0 : error_set(e, -ENOMEM, "decode request");
}

int parse_build_context(const struct field *f, const struct json *v, struct build_body *b, struct error *e) {
        struct json key, value;
        size_t left = BUILD_FILES_BYTES_MAX, n = json_count(v);
        int r = 0;
        if (v->type != JSON_OBJECT)
                return field_fault(f, e, "expected an object of files, not %s", json_type_to_string(v->type));
        if (n > BUILD_FILES_MAX)
                return field_fault(f, e, "more than %u files; send an archive", BUILD_FILES_MAX);
        b->files = calloc(n ? n : 1, sizeof *b->files);
        if (!b->files)
                return error_set(e, -ENOMEM, "decode request");
        for (struct json_iter it = json_iter(v); r == 0 && json_next_member(&it, &key, &value);)
                r = add_file(f, &key, &value, &left, b, e);
        b->files_given = r == 0;
        return r;
}

static int parse_context(const struct field *f, const struct json *v, void *target, struct error *e) { return parse_build_context(f, v, target, e); }

/* ---- builds ---- */

static const char *const networks[] = { "open", "none" };

static const struct field build_fields[] = {
        { .name = "dockerfile", .kind = FIELD_BYTES, AT(dockerfile), .with_at = offsetof(struct build_body, dockerfile_len), .max = DOCKERFILE_BYTES_MAX, .doc = "the Dockerfile's text; by default the file `path` of the context" },
        { .name = "path", .kind = FIELD_STRING, AT(path), .max = 4000, .def = "`Dockerfile`", .doc = "the Dockerfile in the context, where its text is not given" },
        { .name = "build_context", .kind = FIELD_CUSTOM, .parse = parse_context, .type = "object: name → text or `{\"b64\"}`", .doc = "files that COPY and ADD find; at most 10,000 and 64 MiB. A bigger context is sent as an archive" },
        { .name = "build_args", .kind = FIELD_CUSTOM, .parse = parse_field_env, AT(args), .type = "object of strings", .def = "empty", .doc = "values of ARG" },
        { .name = "target", .kind = FIELD_STRING, AT(target), .max = 128, .def = "the last", .doc = "the stage that is wanted" },
        { .name = "names", .kind = FIELD_LIST, AT(names), .max = NAMES_MAX, .def = "empty", .doc = "names that the image gets" },
        { .name = "network", .kind = FIELD_ENUM, AT(network), .names = networks, .n_names = ARRAY_SIZE(networks), .def = "`open`", .doc = "of RUN" },
        { .name = "timeout", .kind = FIELD_NUMBER, AT(timeout_ms), .min = 1, .max = TIMEOUT_MAX_S, .scale = 1000, .def = "1800", .doc = "seconds for the whole build" },
        { .name = "no_cache", .kind = FIELD_BOOL, AT(no_cache), .def = "false", .doc = "run every RUN again" },
        { .name = "stream", .kind = FIELD_BOOL, AT(stream), .def = "false", .doc = "answer with server-sent events: `step`, `cached`, `output`, `pull`, then `image` or `error`" },
};
struct v1_body v1_build_body(void) { return (struct v1_body){ build_fields, ARRAY_SIZE(build_fields) }; }

static int normalize(char **names, struct error *e) {
        for (; names && *names; names++) {
                char normal[IMAGE_NAME_MAX + 1];
                int r = image_name_given(*names, normal, e);
                if (r < 0)
                        return error_prefix(e, "names");
                char *copy = strdup(normal);
                if (!copy)
                        return error_set(e, -ENOMEM, "decode request");
                free(*names);
                *names = copy;
        }
        return 0;
}

int build_body_decode(const struct json *object, bool has_archive, struct build_body *ret, struct error *e) {
        struct build_body b = { 0 };
        int r = fields_decode(build_fields, ARRAY_SIZE(build_fields), object, 0, &b, e);
        if (r == 0 && has_archive && b.files_given)
                r = error_say(e, -EINVAL, "Invalid value for 'build_context': the context comes as an archive");
        if (r == 0 && !b.dockerfile && !has_archive && !b.files_given)
                r = error_say(e, -EINVAL, "Missing required fields: ['dockerfile']");
        r = r ? r : normalize(b.names, e);
        if (r < 0)
                build_body_release(&b);
        else
                *ret = b;
        return r;
}

int build_body_spec(struct builder *owner, const struct build_body *b, struct build_spec *ret, int *ret_context, struct error *e) {
        int fd = -1;
        if (b->files_given) {
                int r = build_context_make(owner, b->files, b->n_files, &fd, e);
                if (r < 0)
                        return r;
        }
        *ret = (struct build_spec){ .dockerfile = b->dockerfile, .dockerfile_len = b->dockerfile_len, .path = b->path, .context = fd, .args = (const char *const *)b->args,
                                    .target = b->target, .names = (const char *const *)b->names, .network = b->network ? NETWORK_NONE : NETWORK_OPEN,
                                    .timeout_ms = b->timeout_ms, .no_cache = b->no_cache };
        *ret_context = fd;
        return 0;
}

/* ---- pulls ---- */

#undef AT
#define AT(member) .at = offsetof(struct pull_body, member)

static const struct field auth_fields[] = {
        { .name = "username", .kind = FIELD_STRING, AT(username), .max = ACCESS_SECRET_MAX, .doc = "who asks" },
        { .name = "password", .kind = FIELD_STRING, AT(password), .max = ACCESS_SECRET_MAX, .doc = "or a token; never logged, never written" },
};
static const struct field pull_fields[] = {
        { .name = "name", .kind = FIELD_STRING, AT(name), .max = IMAGE_REF_MAX, .doc = "`[HOST[:PORT]/]PATH[:TAG][@sha256:DIGEST]`" },
        { .name = "auth", .kind = FIELD_OBJECT, .sub = auth_fields, .n_sub = ARRAY_SIZE(auth_fields), .def = "the operator's", .doc = "credentials for the registry" },
        { .name = "timeout", .kind = FIELD_NUMBER, AT(timeout_ms), .min = 1, .max = TIMEOUT_MAX_S, .scale = 1000, .def = "the operator's", .doc = "seconds" },
        { .name = "stream", .kind = FIELD_BOOL, AT(stream), .def = "false", .doc = "answer with server-sent events: `progress`, then `image` or `error`" },
};
struct v1_body v1_pull_body(void) { return (struct v1_body){ pull_fields, ARRAY_SIZE(pull_fields) }; }

void pull_body_release(struct pull_body *b) {
        free(b->name);
        secret_free(b->username);
        secret_free(b->password);
        *b = (struct pull_body){ 0 };
}

int pull_body_decode(const struct json *object, struct pull_body *ret, struct error *e) {
        struct pull_body b = { 0 };
        int r = fields_decode(pull_fields, ARRAY_SIZE(pull_fields), object, 0, &b, e);
        if (r == 0 && (!b.name || !b.name[0]))
                r = error_say(e, -EINVAL, "Missing required fields: ['name']");
        if (r == 0 && b.password && !b.username)
                r = error_say(e, -EINVAL, "Invalid value for 'auth': a password without a username");
        if (r < 0)
                pull_body_release(&b);
        else
                *ret = b;
        return r;
}
