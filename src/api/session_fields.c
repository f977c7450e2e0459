#include <string.h>

#include "api/fields.h"
#include "api/session_fields.h"
#include "api/v1_internal.h"
#include "base/fields_forms.h"
#include "base/hash.h"
#include "base/strv.h"
#include "build/dockerfile.h"
#include "build/recipe.h"
#include "sandbox/fields_network.h"
#include "sandbox/limit_fields.h"

/* ---- parsers ------------------------------------------------------------------------------------------------------------------- */

static int parse_labels(const struct field *f, const struct json *v, void *target, struct error *e) {
        struct session_spec *s = target;
        char **labels;
        int r = field_labels(f, v, &labels, e);
        if (r < 0)
                return r;
        strv_free(s->labels);
        s->labels = labels;
        const char *tenant = labels_get(labels, "tenant");
        char *copy = strdup(tenant ? tenant : "");
        if (!copy)
                return error_set(e, -ENOMEM, "decode request");
        free(s->tenant);
        s->tenant = copy;
        return 0;
}

static int parse_network(const struct field *f, const struct json *v, void *target, struct error *e) {
        struct session_spec *s = target;
        s->allow = egress_rules_unref(s->allow);
        return field_network(f, v, &s->network, &s->allow, e);
}

static int parse_caps(const struct field *f, const struct json *v, void *target, struct error *e) {
        struct session_spec *s = target;
        struct field list = *f;
        _cleanup_strv_ char **names = NULL;
        list.kind = FIELD_LIST;
        list.at = 0;
        list.max = 64;
        int r = fields_decode_found(&list, 1, v, 0, &names, e);
        uint64_t caps = 0;
        for (char **n = names; r == 0 && n && *n; n++) {
                uint64_t bits;
                if (sandbox_cap_parse(*n, &bits) < 0)
                        return field_fault(f, e, "'%.64s' is not a capability", *n);
                caps |= bits;
        }
        if (r == 0)
                s->cap_drop = caps;
        return r;
}

/* ---- start ----------------------------------------------------------------------------------------------------------------------- */

#define AT(member) .at = offsetof(struct session_start, member)
#define TEXT(name_, member, limit) .name = name_, .kind = FIELD_STRING, AT(member), .max = limit
#define SECONDS(name_, member) .name = name_, .kind = FIELD_NUMBER, AT(member), .min = 0, .max = SESSION_TIME_MAX_S, .scale = 1000
#define CUSTOM(name_, parse_, type_) .name = name_, .kind = FIELD_CUSTOM, .parse = parse_, .type = type_

static const struct field limit_fields[] = { LIMIT_FIELDS(offsetof(struct session_start, spec.limits)) };

/* In both dialects. */
#define COMMON_FIELDS \
        { TEXT("image", spec.image, SESSION_IMAGE_MAX), .given_at = offsetof(struct session_start, image_given), .doc = "`host`, a directory that is a root file system, or an image of the store" }, \
        { CUSTOM("env", parse_field_env, "object of strings"), AT(spec.env), .def = "empty", .doc = "added to the image's environment" }, \
        { CUSTOM("cap_drop", parse_caps, "list of strings"), .def = "empty", .doc = "capabilities to take away, `ALL` for all" }, \
        { TEXT("startup_command", spec.startup_command, PROCESS_TEXT_MAX), .doc = "started in the background when the session is ready; best effort" }, \
        { TEXT("workdir", spec.workdir, SESSION_PATH_MAX), .def = "the image's", .doc = "where commands run that say nothing" }, \
        { CUSTOM("user", parse_field_user, "integer, or `UID:GID`"), AT(spec.uid), .with_at = offsetof(struct session_start, spec.gid), .given_at = offsetof(struct session_start, spec.user_given), .def = "the image's", .doc = "who runs commands that say nothing" }, \
        { CUSTOM("network", parse_network, FIELD_NETWORK_TYPE), .given_at = offsetof(struct session_start, network_given), .def = "the operator's", .doc = "`open` is the public network through NAT, `allow` what the rules name" }, \
        { .name = "limits", .kind = FIELD_OBJECT, .sub = limit_fields, .n_sub = ARRAY_SIZE(limit_fields), .doc = "of the whole sandbox; `wall_s` has no default here" }, \
        { CUSTOM("labels", parse_labels, "object of strings"), .def = "empty", .doc = "for lists; `tenant` separates idempotency keys" }, \
        { SECONDS("ttl_s", spec.ttl_ms), .def = "the operator's", .doc = "life in all; 0 = no end" }, \
        { SECONDS("idle_timeout_s", spec.idle_ms), .def = "the operator's", .doc = "life after the end of the last use; 0 = no end" }, \
        { SECONDS("owner_ttl_s", spec.owner_ttl_ms), .def = "0", .doc = "without a heartbeat for this long it is removed; 0 = no lease" }, \
        { SECONDS("pull_timeout", spec.pull_timeout_ms), .def = "1800", .doc = "for getting the image" }, \
        { CUSTOM("idempotency_key", parse_idempotency_key, "string"), AT(spec.idempotency_key), .doc = "also as the header `Idempotency-Key`" }

static int parse_start_context(const struct field *f, const struct json *v, void *target, struct error *e) {
        return parse_build_context(f, v, &((struct session_start *)target)->recipe, e);
}

static const struct field executor_start_fields[] = {
        COMMON_FIELDS,
        { .name = "block_network", .kind = FIELD_BOOL, AT(block_network), .given_at = offsetof(struct session_start, block_given), .def = "false", .doc = "true: `network` is `none`" },
        { SECONDS("build_timeout", build_timeout_ms), .def = "1800", .doc = "for building the image" },
        { .name = "dockerfile", .kind = FIELD_BYTES, AT(recipe.dockerfile), .with_at = offsetof(struct session_start, recipe.dockerfile_len), .max = DOCKERFILE_BYTES_MAX, .doc = "with `mode` `build`: what the image is made from" },
        { CUSTOM("build_context", parse_start_context, "object: name → text or `{\"b64\"}`"), .def = "empty", .doc = "files that COPY and ADD find" },
        { CUSTOM("build_args", parse_field_env, "object of strings"), AT(recipe.args), .def = "empty", .doc = "values of ARG" },
};
static const struct field v1_start_fields[] = { COMMON_FIELDS };
struct v1_body executor_start_body(void) { return (struct v1_body){ executor_start_fields, ARRAY_SIZE(executor_start_fields) }; }
struct v1_body v1_create_body(void) { return (struct v1_body){ v1_start_fields, ARRAY_SIZE(v1_start_fields) }; }

void session_start_release(struct session_start *q) {
        build_body_release(&q->recipe);
        session_spec_release(&q->spec);
}

static int hash_sink(const void *p, size_t n, void *user) {
        sha256_update(user, p, n);
        return 0;
}

static int hash_body(const struct json *object, char ret[static 65], struct error *e) {
        struct sha256 h;
        int r = sha256_init(&h);
        if (r < 0)
                return error_set(e, r, "decode request");
        r = json_canonical(object, hash_sink, &h);
        if (r < 0) {
                sha256_release(&h);
                return r == -ENOMEM ? error_set(e, r, "decode request") : error_say(e, -EINVAL, "Request body must be valid JSON");
        }
        sha256_finish(&h, ret);
        return 0;
}

static int check_workdir(const struct session_spec *s, struct error *e) {
        if (s->workdir && s->workdir[0] && s->workdir[0] != '/')
                return error_say(e, -EINVAL, "Invalid value for 'workdir': must be an absolute path");
        return 0;
}

/* An empty text means what absence means. */
static void drop_empty(char **text) {
        if (*text && !(*text)[0]) {
                free(*text);
                *text = NULL;
        }
}

static int decode_start(const struct sessions *ss, struct field_table t, const struct json *object, const char *header_key, struct session_start *q, struct error *e) {
        *q = (struct session_start){ .build_timeout_ms = BUILD_TIMEOUT_DEFAULT_MS };
        int r = session_spec_init(ss, &q->spec);
        if (r < 0)
                return error_set(e, r, "decode request");
        r = fields_decode(t.rows, t.n, object, 0, q, e);
        if (r == 0)
                r = take_header_key(&q->spec.idempotency_key, header_key, e);
        if (r == 0 && q->spec.idempotency_key)
                r = hash_body(object, q->spec.hash, e);
        if (r == 0)
                r = check_workdir(&q->spec, e);
        drop_empty(&q->spec.workdir);
        drop_empty(&q->spec.startup_command);
        if (r < 0)
                session_start_release(q);
        return r;
}

static int check_mode(const struct json *object, bool *ret_build, struct error *e) {
        static const char *const modes[] = { "image", "build" };
        struct json v;
        int mode = 0;
        int r = json_get(object, "mode", &v) && v.type != JSON_NULL ? field_mode(&v, modes, ARRAY_SIZE(modes), &mode, e) : 0;
        *ret_build = mode == 1;
        return r;
}

static bool is_absent(const struct json *object, const char *name) {
        struct json v;
        return !json_get(object, name, &v) || v.type == JSON_NULL || json_string_is(&v, "");
}

/* The build begins when the session asks for its image. */
static int add_recipe(struct builder *builder, struct session_start *q, struct error *e) {
        char name[IMAGE_NAME_MAX + 1];
        struct build_spec spec;
        int context;
        q->recipe.timeout_ms = q->build_timeout_ms;
        int r = build_body_spec(builder, &q->recipe, &spec, &context, e);
        if (r < 0)
                return r;
        r = recipe_add(builder, &spec, name, e);
        fd_close(context);
        char *copy = r == 0 ? strdup(name) : NULL;
        if (r == 0 && !copy)
                return error_set(e, -ENOMEM, "decode request");
        if (copy) {
                free(q->spec.image);
                q->spec.image = copy;
                q->spec.pull_timeout_ms = q->build_timeout_ms;
        }
        return r;
}

int session_start_decode(const struct sessions *ss, struct builder *builder, const struct json *object, const char *header_key, struct session_start *ret, struct error *e) {
        bool build;
        struct session_start q;
        int r = check_mode(object, &build, e);
        if (r < 0)
                return r;
        const char *required = build ? "dockerfile" : "image";
        if (is_absent(object, required))
                return error_say(e, -EINVAL, "Missing required fields: ['%s']", required);
        if (build && !builder)
                return error_say(e, -ESHUTDOWN, "the builder is closed");
        r = decode_start(ss, (struct field_table){ executor_start_fields, ARRAY_SIZE(executor_start_fields) }, object, header_key, &q, e);
        if (r < 0)
                return r;
        if (!q.network_given && q.block_given)
                q.spec.network = q.block_network ? NETWORK_NONE : NETWORK_OPEN;
        q.build = build;
        r = build ? add_recipe(builder, &q, e) : 0;
        if (r < 0) {
                session_start_release(&q);
                return r;
        }
        *ret = q;
        return 0;
}

int v1_start_decode(const struct sessions *ss, const struct json *object, const char *header_key, struct session_start *ret, struct error *e) {
        return decode_start(ss, (struct field_table){ v1_start_fields, ARRAY_SIZE(v1_start_fields) }, object, header_key, ret, e);
}

/* ---- exec ------------------------------------------------------------------------------------------------------------------------ */

#undef AT
#define AT(member) .at = offsetof(struct exec_body, member)

int parse_output_limit(const struct field *f, const struct json *v, void *target, struct error *e) {
        int64_t n;
        int r = json_int_loose(v, &n);
        if (r == -EINVAL)
                return field_fault(f, e, "expected an integer");
        *(uint64_t *)((char *)target + f->at) = r < 0 ? PROCESS_OUTPUT_MAX : n > 0 ? MIN2((uint64_t)n, (uint64_t)PROCESS_OUTPUT_MAX) : 0;
        return 0;
}

int parse_encoding(const struct field *f, const struct json *v, void *target, struct error *e) {
        bool base64 = json_string_is(v, "base64");
        if (!base64 && !json_string_is(v, "utf8"))
                return field_fault(f, e, "must be one of utf8, base64");
        *(bool *)((char *)target + f->at) = base64;
        return 0;
}

static const struct field executor_exec_fields[] = {
        { .name = "command", .kind = FIELD_STRING, AT(command), .max = PROCESS_TEXT_MAX, .doc = "run by `/bin/bash -lc`" },
        { .name = "timeout", .kind = FIELD_NUMBER, AT(timeout_ms), .given_at = offsetof(struct exec_body, timeout_given), .min = 0, .max = PROCESS_TIMEOUT_MAX_S, .scale = 1000, .def = "60", .doc = "seconds from the start of the process; 0 = none" },
        { .name = "cwd", .kind = FIELD_STRING, AT(cwd), .max = SESSION_PATH_MAX, .def = "the session's", .doc = "working directory" },
        { .name = "output_limit", .kind = FIELD_CUSTOM, .parse = parse_output_limit, AT(output_limit), .type = "integer", .def = "65536", .doc = "bytes of each stream kept; 0 or less: the operator's" },
};

static int parse_input(const struct field *f, const struct json *v, void *target, struct error *e) {
        struct exec_body *b = target;
        _cleanup_buf_ struct buf bytes = BUF_INIT(PROCESS_STDIN_MAX);
        int r = field_content(v, &bytes);
        switch (r) {
        case 0: break;
        case -EBADMSG: return field_fault(f, e, "expected a string or {\"b64\": string}");
        case -ENOSPC: return field_fault(f, e, "longer than %u bytes", PROCESS_STDIN_MAX);
        case -EINVAL: return field_fault(f, e, "not base64");
        default: return error_set(e, r, "decode %s", f->name);
        }
        free(b->input);
        b->input_len = bytes.len;
        b->input = buf_steal(&bytes);
        return b->input ? 0 : error_set(e, -ENOMEM, "decode %s", f->name);
}

static const struct field v1_exec_fields[] = {
        { .name = "argv", .kind = FIELD_LIST, AT(argv), .max = PROCESS_ARGS_MAX, .doc = "the program and its arguments, without a shell; this or `command`" },
        { .name = "command", .kind = FIELD_STRING, AT(command), .max = PROCESS_TEXT_MAX, .doc = "run by `/bin/bash -c`" },
        { .name = "login", .kind = FIELD_BOOL, AT(login), .def = "false", .doc = "`/bin/bash -lc`: profiles are read" },
        { .name = "env", .kind = FIELD_CUSTOM, .parse = parse_field_env, AT(env), .type = "object of strings", .def = "empty", .doc = "over the session's" },
        { .name = "cwd", .kind = FIELD_STRING, AT(cwd), .max = SESSION_PATH_MAX, .def = "the session's", .doc = "working directory" },
        { .name = "user", .kind = FIELD_CUSTOM, .parse = parse_field_user, AT(uid), .with_at = offsetof(struct exec_body, gid), .given_at = offsetof(struct exec_body, user_given), .type = "integer, or `UID:GID`", .def = "the session's", .doc = "who runs it" },
        { .name = "stdin", .kind = FIELD_CUSTOM, .parse = parse_input, .type = "string, or `{\"b64\"}`", .def = "empty", .doc = "standard input as a whole" },
        { .name = "keep_input", .kind = FIELD_BOOL, AT(keep_input), .def = "false", .doc = "in the background, or with `stream`: standard input stays open for more" },
        { .name = "merge_stderr", .kind = FIELD_BOOL, AT(merge), .def = "false", .doc = "standard error goes where standard output goes" },
        { .name = "timeout_s", .kind = FIELD_NUMBER, AT(timeout_ms), .given_at = offsetof(struct exec_body, timeout_given), .min = 0, .max = PROCESS_TIMEOUT_MAX_S, .scale = 1000, .def = "60; in the background none", .doc = "from the start of the process; 0 = none" },
        { .name = "output_limit", .kind = FIELD_CUSTOM, .parse = parse_output_limit, AT(output_limit), .type = "integer", .def = "65536", .doc = "bytes of each stream in the answer; 0 or less: the operator's" },
        { .name = "stream", .kind = FIELD_BOOL, AT(stream), .def = "false", .doc = "exec only: the answer is server-sent events, see terminals.md" },
        { .name = "encoding", .kind = FIELD_CUSTOM, .parse = parse_encoding, AT(base64), .type = "string", .def = "`utf8`", .doc = "`base64`: output as it is; else bytes that are not UTF-8 are replaced" },
};
struct v1_body v1_exec_body(void) { return (struct v1_body){ v1_exec_fields, ARRAY_SIZE(v1_exec_fields) }; }

/* ---- terminals ---- */

#undef AT
#define AT(member) .at = offsetof(struct terminal_body, member)

static const struct field terminal_fields[] = {
        { .name = "argv", .kind = FIELD_LIST, AT(exec.argv), .max = PROCESS_ARGS_MAX, .def = "a login shell", .doc = "the program and its arguments" },
        { .name = "env", .kind = FIELD_CUSTOM, .parse = parse_field_env, AT(exec.env), .type = "object of strings", .def = "TERM", .doc = "over the session's" },
        { .name = "cwd", .kind = FIELD_STRING, AT(exec.cwd), .max = SESSION_PATH_MAX, .def = "the session's", .doc = "working directory" },
        { .name = "user", .kind = FIELD_CUSTOM, .parse = parse_field_user, AT(exec.uid), .with_at = offsetof(struct terminal_body, exec.gid), .given_at = offsetof(struct terminal_body, exec.user_given), .type = "integer, or `UID:GID`", .def = "the session's", .doc = "who runs it" },
        { .name = "rows", .kind = FIELD_INT, AT(rows), .min = 1, .max = TERMINAL_SIZE_MAX, .def = "24", .doc = "its size" },
        { .name = "cols", .kind = FIELD_INT, AT(cols), .min = 1, .max = TERMINAL_SIZE_MAX, .def = "80", .doc = "" },
};
struct v1_body v1_terminal_body(void) { return (struct v1_body){ terminal_fields, ARRAY_SIZE(terminal_fields) }; }

static int check_argv(char *const *argv, struct error *e) {
        if (argv && (!argv[0] || !argv[0][0]))
                return error_say(e, -EINVAL, "Invalid value for 'argv': the first item names the program");
        for (; argv && *argv; argv++)
                if (strlen(*argv) > PROCESS_TEXT_MAX)
                        return error_say(e, -EINVAL, "Invalid value for 'argv': an item is longer than %u bytes", PROCESS_TEXT_MAX);
        return 0;
}

int v1_terminal_decode(const struct json *object, struct terminal_body *ret, struct error *e) {
        struct terminal_body b = { .rows = 24, .cols = 80 };
        int r = fields_decode(terminal_fields, ARRAY_SIZE(terminal_fields), object, 0, &b, e);
        if (r == 0)
                r = check_argv(b.exec.argv, e);
        if (r < 0)
                exec_body_release(&b.exec);
        else
                *ret = b;
        return r;
}

static int check_words(const struct exec_body *b, struct error *e) {
        if (!b->argv == !b->command)
                return error_say(e, -EINVAL, "Exactly one of 'argv' and 'command' must be given");
        int r = check_argv(b->argv, e);
        if (r < 0)
                return r;
        if (b->login && b->argv)
                return error_say(e, -EINVAL, "Invalid value for 'login': there is no shell with 'argv'");
        if (b->input && b->keep_input)
                return error_say(e, -EINVAL, "Invalid value for 'keep_input': 'stdin' is all of the input");
        return 0;
}

int v1_exec_decode(const struct sessions *ss, const struct json *object, struct exec_body *ret, struct error *e) {
        struct exec_body b = { .timeout_ms = sessions_settings(ss)->exec_timeout_ms };
        int r = fields_decode(v1_exec_fields, ARRAY_SIZE(v1_exec_fields), object, 0, &b, e);
        if (r == 0)
                r = check_words(&b, e);
        if (r < 0)
                exec_body_release(&b);
        else
                *ret = b;
        return r;
}

struct v1_body executor_exec_body(void) { return (struct v1_body){ executor_exec_fields, ARRAY_SIZE(executor_exec_fields) }; }

void exec_body_release(struct exec_body *b) {
        free(b->command);
        strv_free(b->argv);
        strv_free(b->env);
        free(b->cwd);
        free(b->input);
        *b = (struct exec_body){ 0 };
}

int exec_body_decode(const struct sessions *ss, const struct json *object, struct exec_body *ret, struct error *e) {
        struct exec_body b = { .timeout_ms = sessions_settings(ss)->exec_timeout_ms };
        int r = fields_decode(executor_exec_fields, ARRAY_SIZE(executor_exec_fields), object, 0, &b, e);
        if (r == 0 && !b.command && !(b.command = strdup("")))
                r = error_set(e, -ENOMEM, "decode request");
        if (r < 0)
                exec_body_release(&b);
        else
                *ret = b;
        return r;
}

void exec_body_spec(const struct exec_body *b, struct process_spec *ret) {
        *ret = (struct process_spec){
                .shell = b->command, .argv = (const char *const *)b->argv, .env = (const char *const *)b->env, .cwd = b->cwd, .user_given = b->user_given,
                .uid = b->uid, .gid = b->gid, .timeout_ms = b->timeout_ms, .output_limit = b->output_limit,
                .input = b->input, .input_len = b->input_len, .background = b->background, .login = b->login, .keep_input = b->keep_input, .merge = b->merge,
        };
}
