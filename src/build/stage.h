/* What a stage of a build is at an instruction: the configuration its image would have, and the variables in scope. Pure, loop thread. */
#pragma once
#include "build/dockerfile.h"
#include "store/image_config.h"

#define STAGE_VARIABLES_MAX 1024u          /* of ENV, and of ARG */
#define STAGE_ENV_BYTES_MAX (512u * 1024)  /* of all of them */

struct stage {
        struct image_config config;
        char **args;                       /* ARG that have a value, "NAME=value", in the order of their declaration */
        const char *const *given;          /* build arguments of the request, "NAME=value"; borrowed */
        const struct stage *global;        /* ARGs before the first FROM; NULL in itself */
        char escape;
        bool cmd_given;                    /* by this stage: an ENTRYPOINT takes back one that comes from below */
};

void stage_release(struct stage *s);
/* A word with its variables replaced, owned. Errors name the line. */
int stage_expand(const struct stage *s, const struct instruction *i, const char *word, bool quotes, char **ret, struct error *e);
/* The whole instruction, where it changes only the configuration or the variables: ARG, ENV, LABEL, USER, SHELL, CMD, ENTRYPOINT, EXPOSE,
 * STOPSIGNAL, VOLUME, HEALTHCHECK, MAINTAINER, and the part of WORKDIR that is not a directory. -EINVAL with the line. */
int stage_apply(struct stage *s, const struct instruction *i, struct error *e);
/* The environment of a RUN: defaults, the arguments, then ENV, which wins. NULL: no memory. */
char **stage_environment(const struct stage *s);
/* The argument list of a RUN: the JSON form as it is; the shell form behind SHELL, here-documents included. With a script for it, which must
 * be at STAGE_SCRIPT when it runs: *ret_script (borrowed from the instruction), else NULL. */
#define STAGE_SCRIPT_NAME "heredoc"
#define STAGE_SCRIPT "/run/brig/" STAGE_SCRIPT_NAME
char **stage_command(const struct stage *s, const struct instruction *i, const struct heredoc **ret_script);
/* `path` from the working directory: absolute, without "." and "..", "/" kept at the end where it was. */
int stage_path(const struct stage *s, const struct instruction *i, const char *path, char **ret, struct error *e);
/* Is the argument declared anywhere in the file? For the complaint about those that are not. */
bool dockerfile_declares(const struct dockerfile *d, const char *name, size_t n);
