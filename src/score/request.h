/* A scoring request, decoded and checked: what one patch, one tree and one command are. Field names are the wire's
 * (task executor protocol). Strings are owned by the request; absent text is "", absent lists are NULL. */
#pragma once
#include "sandbox/sandbox.h"
#include "sandbox/file_pack.h"
#include "sandbox/results_wire.h"
#include "score/patch_rung.h"

#define REQUEST_TEXT_MAX (128u << 20)      /* bytes of one patch, decoded */
#define REQUEST_COMMAND_MAX (8u << 20)     /* bytes of a command: thousands of ids may stand in it */
#define REQUEST_URL_MAX 4096u
#define REQUEST_REF_MAX 255u               /* base_commit */
#define REQUEST_PATH_MAX 1024u             /* image, repo_path, one protected path */
#define REQUEST_IDS_MAX 50000              /* fail_to_pass, pass_to_pass */
#define REQUEST_PATHS_MAX 1000             /* protect, allow_config */
#define REQUEST_ENTRY_MAX (64u * 1024)     /* bytes of entry_command: one word of a command line */
#define REQUEST_TIMEOUT_MAX_S (7 * 86400)

enum task_mode { MODE_CLONE, MODE_IMAGE, TASK_MODE_MAX };
STRING_TABLE_DECLARE(task_mode);       /* "clone", "image" */

enum tree_source { SOURCE_CLONE, SOURCE_IMAGE, TREE_SOURCE_MAX, SOURCE_NONE = TREE_SOURCE_MAX };
STRING_TABLE_DECLARE(tree_source);     /* "clone", "image" */

enum run_mode { RUN_IDS, RUN_FILES, RUN_MODE_MAX };
STRING_TABLE_DECLARE(run_mode);

enum control_mode { CONTROL_OFF, CONTROL_AUTO, CONTROL_REQUIRE, CONTROL_MODE_MAX };
STRING_TABLE_DECLARE(control_mode);    /* "off", "auto", "require" */

struct control;                        /* score/control.h */

struct score_request {
        enum task_mode mode;
        /* IMAGE: the base is what the image has at repo_path; repo_url may be "", base_commit says nothing. NONE (image mode without `tree`):
         * there is no base, and nothing of the request that needs one: no patch, no ids' command, no linter. */
        enum tree_source tree; bool tree_given;
        char *repo_url, *base_commit;      /* "HEAD" */
        char *test_command;                /* "" only when ids or a framework are given */
        char *patch; size_t patch_len;     /* bytes as sent: may hold anything but NUL */
        char *test_patch; size_t test_patch_len;
        char *reference_patch; size_t reference_patch_len;
        char *gold_patch; size_t gold_patch_len;   /* of control runs; NULL once control_shape has taken it */
        enum control_mode control; bool control_given;     /* else AUTO where there is a gold patch */
        struct control *facts;             /* a reference; NULL: no control run is known */
        uint64_t timeout_ms;               /* 300 s, for test_command */
        char *lint_command;
        bool capture_diff;
        char **fail_to_pass, **pass_to_pass;   /* NULL-terminated lists; NULL = not given */
        char *test_framework;              /* "pytest", "unittest", or "" = detect */
        enum run_mode run;
        char *image;                       /* IMAGE_HOST, a directory, or a reference of the image store */
        uint64_t pull_timeout_ms;          /* for getting it; 0 = the store's */
        bool image_given;                  /* the client named it: the record repeats it */
        char *repo_path;                   /* "/testbed" */
        char *setup_command;
        enum sandbox_network setup_network;    /* open */
        struct egress_rules *setup_allow;  /* NETWORK_ALLOW; else NULL */
        uint64_t setup_timeout_ms;         /* 1800 s */
        char **env;                        /* "K=V", sorted, NULL-terminated */
        uint32_t uid, gid; bool user_given;    /* else the image's USER */
        enum sandbox_network network; bool network_given;      /* while tests run: BRIG_TASK_NETWORK, none */
        struct egress_rules *allow;        /* NETWORK_ALLOW; else NULL */
        struct sandbox_limits limits;
        enum patch_mode patch_mode;
        char **protect, **allow_config;    /* paths relative to the tree */
        /* image mode */
        struct file_pack *harness;         /* sealed: read-only at harness_mount; NULL: no files */
        char harness_hash[65];             /* of their names and contents; "" without */
        char *harness_mount, *output_mount;    /* "/harness", "/out": neither within the other; "" in clone mode */
        char *entry_command;               /* for /bin/bash -c; "" where the tree's tests are run instead, and in clone mode */
        char **result_files;               /* names below output_mount; NULL = none */
        bool block_network, block_given;
};
void score_request_release(struct score_request *r);

struct buf;       /* base/buf.h */
struct json;      /* base/json.h */
struct field;     /* base/fields.h: also FIELDS_CHECK */

/* What the operator decides where the client says nothing. */
struct score_defaults {
        enum sandbox_network network;      /* BRIG_TASK_NETWORK */
        struct sandbox_limits limits;
};
void score_defaults_init(struct score_defaults *d);        /* the contract's */

/* Decodes and checks a body. -EINVAL: a fault, -EOPNOTSUPP: of a later release; the text is the wire's and names the field:
 * "Request body must be valid JSON", "Missing required fields: ['repo_url']", "Invalid value for 'timeout': ...". *ret is
 * filled on success only. Whether the repository's URL may be used at all is the store's to say (tree_url_check).
 *
 * With FIELDS_CHECK in flags nothing big is copied: patches are checked and left out (their length is an upper bound), for a
 * body that is only to be accepted. */
int score_request_from_json(const char *body, size_t n, unsigned flags, const struct score_defaults *d, struct score_request *ret, struct error *e);
/* The same from a value that is already parsed: -EINVAL unless it is an object. */
int score_request_decode(const struct json *object, unsigned flags, const struct score_defaults *d, struct score_request *ret, struct error *e);
/* Credentials are never written. Replaces the user and password of an http(s) repo_url in a canonical body by "***", which is the
 * mark of a body that was hidden, and gives the whole URL (for secret_free); *ret_url is NULL, and the body as it was, when there
 * are none. What was there is wiped. -ENOSPC, -ENOMEM. */
int score_request_hide(struct buf *body, char **ret_url);
bool score_request_is_hidden(const struct score_request *q);
int score_request_unhide(struct score_request *q, const char *url);    /* -ENOMEM */
#define SCORE_BODY_NOT_JSON "Request body must be valid JSON"

/* The table, for documentation. */
const struct field *score_request_table(size_t *ret_n);
