/* What `brig score` was asked: its flags, and the record and prediction that they name, as one request body. */
#pragma once
#include <stdbool.h>

#include "base/json.h"
#include "cmd/command.h"

#define SCORE_FILE_MAX (256u << 20)      /* bytes of a patch, an instance file, a predictions file */

struct score_options {
        char *repo, *commit;
        struct buf patch, test_patch, gold_patch;
        bool has_patch, has_test_patch, has_gold_patch;
        char **fail_to_pass, **pass_to_pass;       /* NULL: not given */
        char **env, **protect, **allow_config, **allow;
        char *command, *framework, *image, *tree, *repo_path, *setup_command, *lint, *network, *patch_mode, *run, *timeout, *control;
        char *instance, *prediction, *instance_id;
        char *url;                                 /* of a daemon; NULL: find one */
        char *save, *replay;                       /* files of kept verdicts (score_replay.h) */
        bool diff, json, quiet;
};

void score_options_init(struct score_options *o);
void score_options_release(struct score_options *o);
/* The flags, for a struct score_options: what is scored, and (of any number of patches) how. */
#define SCORE_ROWS 16
extern const struct option_row score_rows[SCORE_ROWS];
#define SCORE_RUN_ROWS 16
extern const struct option_row score_run_rows[SCORE_RUN_ROWS];
/* Once they are read. -EINVAL: a fault of usage, with a text; -EIO and others: a file could not be read. Reads the
 * instance and the prediction (score_instance.c); what a flag says wins over what they say. */
int score_options_check(struct score_options *o, struct error *e);
/* The body of POST /task/submit. */
int score_options_request(const struct score_options *o, struct buf *ret, struct error *e);

/* score_instance.c: a record of the SWE-bench family, and a prediction for it. Fill what no flag has said. */
int score_instance_load(struct score_options *o, struct error *e);
/* The same from one record in memory, and the parts of it. What is set already stays. */
int score_record_fill(struct score_options *o, const struct json *record, struct error *e);
int score_record_repo(const struct json *record, char **ret, struct error *e);     /* "owner/name" or an address; *ret stays where there is none */
bool score_record_gold(const struct json *record, struct json *ret);
bool score_prediction_patch(const struct json *prediction, struct json *ret);
int score_patch_fill(struct score_options *o, const struct json *patch, struct error *e);     /* a string, or null */
/* What of `from` says how patches are scored (score_run_rows). */
int score_options_inherit(struct score_options *o, const struct score_options *from);
/* A list of ids: a JSON list, a string that holds one, or a string that holds Python's repr of one. */
int score_ids_parse(const struct json *v, char ***ret, struct error *e);
/* Appends the whole file to b; "-" is standard input. */
int score_read_file(const char *path, struct buf *b, struct error *e);
