/* What requests say about pulls and builds: POST /v1/images/pull and /build, and the executor's sessions with `mode: "build"`. */
#pragma once
#include "base/fields.h"
#include "build/build.h"

#define BUILD_FILES_MAX 10000u
#define BUILD_FILES_BYTES_MAX (64u << 20)      /* of a context that comes as names and contents; a bigger one comes as an archive */

struct build_body {
        char *dockerfile, *path, *target;      /* NULL: not given */
        size_t dockerfile_len;
        struct build_file *files; size_t n_files;      /* owned: names and data */
        bool files_given;
        char **args;                           /* "NAME=value" */
        char **names;                          /* normal */
        int network;                           /* 0 open, 1 none */
        uint64_t timeout_ms;
        bool no_cache, stream;
};
void build_body_release(struct build_body *b);
/* -EINVAL, -ENOMEM. `has_archive`: the context comes beside it. */
int build_body_decode(const struct json *object, bool has_archive, struct build_body *ret, struct error *e);

/* For the parse() of a row of another table. */
int parse_build_context(const struct field *f, const struct json *v, struct build_body *b, struct error *e);
/* Makes the context (an unnamed file; -1 without one) and fills what build_start takes; borrows from the body. */
int build_body_spec(struct builder *owner, const struct build_body *b, struct build_spec *ret, int *ret_context, struct error *e);

struct pull_body { char *name, *username, *password; uint64_t timeout_ms; bool stream; };
void pull_body_release(struct pull_body *b);   /* wipes the password */
int pull_body_decode(const struct json *object, struct pull_body *ret, struct error *e);
