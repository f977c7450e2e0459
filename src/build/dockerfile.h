/* A Dockerfile's text as a list of instructions, each with the line it begins at. Pure, any thread; any bytes may come.
 *
 * Understood: parser directives (`escape`; `syntax` and `check` are read over), comments, blank and comment lines within a continued
 * instruction, continuation by the escape character, here-documents (RUN, COPY, ADD), flags (--name=value), the JSON form, and the shell
 * form. Nothing is expanded here: words keep their quotes and variables until build/expand.h takes them.
 * What Brig does not do is an error that says so and names the line: ADD of a URL or a git address, RUN --mount and --security, ONBUILD,
 * HEALTHCHECK but NONE, other platforms. Lines and bytes are bounded. */
#pragma once
#include <stdbool.h>

#include "base/error.h"

#define DOCKERFILE_BYTES_MAX (1u << 20)
#define DOCKERFILE_INSTRUCTIONS_MAX 1000u
#define DOCKERFILE_WORDS_MAX 1024u         /* of one instruction */
#define DOCKERFILE_HEREDOCS_MAX 16u        /* of one instruction */
#define DOCKERFILE_STAGES_MAX 64u
#define DOCKERFILE_FLAGS_MAX 8u

enum instruction_kind {
        INSTRUCTION_FROM, INSTRUCTION_ARG, INSTRUCTION_RUN, INSTRUCTION_COPY, INSTRUCTION_ADD, INSTRUCTION_ENV, INSTRUCTION_WORKDIR, INSTRUCTION_USER,
        INSTRUCTION_SHELL, INSTRUCTION_LABEL, INSTRUCTION_CMD, INSTRUCTION_ENTRYPOINT, INSTRUCTION_EXPOSE, INSTRUCTION_STOPSIGNAL, INSTRUCTION_VOLUME,
        INSTRUCTION_HEALTHCHECK, INSTRUCTION_MAINTAINER, INSTRUCTION_ONBUILD, INSTRUCTION_KIND_MAX,
};
STRING_TABLE_DECLARE(instruction_kind);    /* "FROM", ... */

struct heredoc {
        char *name;                /* the word that ends it, which is also the file's name in COPY */
        char *text; size_t len;    /* lines, each with its newline; leading tabs are gone where "<<-" was written */
        bool expand;               /* the word was not quoted */
};

struct instruction {
        enum instruction_kind kind;
        unsigned line;             /* from 1 */
        char **flags;              /* "--from=x", as written; NULL without */
        bool json;                 /* words are the items of a JSON list, decoded: nothing in them is expanded by quotes */
        char **words;              /* otherwise: as written, with quotes. Never NULL */
        char *rest;                /* behind keyword and flags, continued lines joined; of RUN in shell form what the shell gets */
        struct heredoc *heredocs; size_t n_heredocs;
};

struct dockerfile {
        struct instruction *instructions; size_t n;
        char escape;               /* '\\' or '`' */
};

/* -EINVAL, "dockerfile line N: ..."; -E2BIG for the limits; -ENOMEM. */
int dockerfile_parse(const char *p, size_t n, struct dockerfile *ret, struct error *e);
void dockerfile_release(struct dockerfile *d);
/* The value of a flag, NULL when it is not there: instruction_flag(i, "from"). */
const char *instruction_flag(const struct instruction *i, const char *name);
/* Sets e to "dockerfile line N: ..."; returns -EINVAL. */
int instruction_fault(const struct instruction *i, struct error *e, const char *fmt, ...) PRINTF_LIKE(3, 4);
