/* A scoring request, decoded and checked: what one patch, one tree and one command are. Field names are the wire's
 * (task executor protocol). Strings are owned by the request; absent text is "", absent lists are NULL. */
#pragma once
#include "sandbox/sandbox.h"

enum patch_mode { PATCH_REPAIR, PATCH_STRICT, PATCH_LADDER, PATCH_MODE_MAX };
STRING_TABLE_DECLARE(patch_mode);
enum run_mode { RUN_IDS, RUN_FILES, RUN_MODE_MAX };
STRING_TABLE_DECLARE(run_mode);

struct score_request {
        char *repo_url, *base_commit;      /* "HEAD" */
        char *test_command;                /* "" only when ids or a framework are given */
        char *patch; size_t patch_len;     /* bytes as sent: may hold anything but NUL */
        char *test_patch; size_t test_patch_len;
        char *reference_patch; size_t reference_patch_len;
        uint64_t timeout_ms;               /* 300 s, for test_command */
        char *lint_command;
        bool capture_diff;
        char **fail_to_pass, **pass_to_pass;   /* NULL-terminated lists; NULL = not given */
        char *test_framework;              /* "pytest", "unittest", or "" = detect */
        enum run_mode run;
        char *image;                       /* IMAGE_HOST or a directory */
        bool image_given;                  /* the client named it: the record repeats it */
        char *repo_path;                   /* "/testbed" */
        char *setup_command;
        enum sandbox_network setup_network;    /* open */
        uint64_t setup_timeout_ms;         /* 1800 s */
        char **env;                        /* "K=V", sorted, NULL-terminated */
        uint32_t uid, gid;
        enum sandbox_network network;      /* while tests run: BRIG_TASK_NETWORK, none */
        struct sandbox_limits limits;
        enum patch_mode patch_mode;
        char **protect, **allow_config;    /* paths relative to the tree */
};
void score_request_release(struct score_request *r);
