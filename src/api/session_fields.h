/* What requests about sessions say, decoded by tables (base/fields.h): the executor's dialect and the native one where they agree. */
#pragma once
#include "api/build_fields.h"
#include "base/fields.h"
#include "session/finish.h"
#include "session/process.h"
#include "session/terminal.h"

#define SESSION_IMAGE_MAX 1024u
#define SESSION_PATH_MAX 4096u
#define SESSION_TIME_MAX_S (365 * 86400)
#define SESSION_LIMITS_FAULT "Invalid value for 'limits'"

struct field_table { const struct field *rows; size_t n; };

/* Rows' parse functions, which write at the row's `at`: a uint64_t of bytes, 0 for the operator's; a bool. */
int parse_output_limit(const struct field *f, const struct json *v, void *target, struct error *e);
int parse_encoding(const struct field *f, const struct json *v, void *target, struct error *e);

/* ---- POST /session/start and POST /v1/sessions ---- */

struct session_start {
        struct session_spec spec;      /* first: the parsers' target */
        bool network_given;
        bool block_network, block_given;           /* executor only */
        uint64_t build_timeout_ms;
        bool image_given, build;
        struct build_body recipe;      /* `mode: "build"` */
};
void session_start_release(struct session_start *q);
/* -EINVAL, -EOPNOTSUPP, -ENOMEM; the text is the wire's. `header_key`: the Idempotency-Key header, NULL without. */
int session_start_decode(const struct sessions *ss, struct builder *builder, const struct json *object, const char *header_key, struct session_start *ret, struct error *e);
int v1_start_decode(const struct sessions *ss, const struct json *object, const char *header_key, struct session_start *ret, struct error *e);

/* ---- exec ---- */

struct exec_body {
        char *command;                 /* NULL when argv is given */
        char **argv, **env;
        char *cwd, *input;
        size_t input_len;
        uint64_t output_limit;         /* 0: the operator's */
        uint64_t timeout_ms;
        bool timeout_given, user_given, background, keep_input, merge, login, base64, stream;
        uint32_t uid, gid;
};
void exec_body_release(struct exec_body *b);
int v1_exec_decode(const struct sessions *ss, const struct json *object, struct exec_body *ret, struct error *e);
int exec_body_decode(const struct sessions *ss, const struct json *object, struct exec_body *ret, struct error *e);    /* the executor's */
/* ---- finish ---- */

/* Decodes and packs, any thread: `object` may be big. `agent`: the default of the surface. */
int finish_body_decode(const struct json *object, int agent, struct finish_spec *ret, struct error *e);

void exec_body_spec(const struct exec_body *b, struct process_spec *ret);      /* borrows */

/* ---- POST /v1/sessions/{id}/terminals ---- */

struct terminal_body {
        struct exec_body exec;         /* first: the parsers' target; argv, env, cwd, user */
        uint64_t rows, cols;
};
int v1_terminal_decode(const struct json *object, struct terminal_body *ret, struct error *e);   /* released as its exec */
