/* One run of a test command in a sandbox: what is put below /run/brig, the words and the environment, the exec, and the event
 * channel that is read while it runs.
 *
 *     run_files_make(command, &files)                 before the sandbox is created: they are part of its spec
 *     run_start(&spec, done, user, &run, &e)          when the tree is ready
 *     ... done(run, end, user)                        once; everything that came before the first process ended has been read
 *     run_report(run), then run_free(run)
 *
 * The plan (ids, base configuration, nonce) goes to the launcher as a sealed memfd at descriptor RUN_PLAN_FD, so ids never
 * make a command line too long, and the nonce is in no file. Loop thread only. */
#pragma once
#include "sandbox/capture.h"
#include "score/apply.h"
#include "score/command.h"
#include "score/report.h"

#define RUN_DIRECTORY "/run/brig"       /* where a sandbox's files appear */
#define RUN_EVENTS_FD 3
#define RUN_PLAN_FD 4
#define RUN_FILES_MAX 5
#define RUN_PLAN_MAX (64u * 1024 * 1024)
#define RUN_DRAIN_MAX (64u * 1024 * 1024)       /* bytes taken from the channel after the first process ended */

struct run_files { struct sandbox_file at[RUN_FILES_MAX]; size_t n; };
int run_files_make(const struct command *c, struct run_files *ret, struct error *e);
void run_files_release(struct run_files *f);

/* The words that are executed, and the environment that the tests see (sorted "K=V"): for the record. NULL on -ENOMEM. For a VERBATIM
 * command its text stands last, in place of the file that holds it. */
char **run_argv(const struct command *c);
char **run_environment(const struct score_request *q, const struct command *c);
/* A shell's command that runs tests of Python in an environment that tells Python to write no compiled code, as far as its text can be trusted
 * with it: compiled code of a test file that is there afterwards was forged. */
bool run_leaves_no_bytecode(const struct score_request *q, const struct command *c);

struct run_spec {
        uv_loop_t *loop;
        struct sandbox *sandbox;
        const struct command *command;          /* read during the call */
        const struct score_request *request;    /* likewise */
        const struct apply_result *apply;       /* likewise; NULL: nothing was applied by an agent */
        bool collect;                           /* only list the tests (LAUNCHED and BUILT) */
        const char *cwd;                        /* NULL: the tree */
        const struct exec_view *view;           /* NULL: the sandbox's own files */
        uint64_t timeout_ms;
        struct output_capture *out, *err;       /* the caller's; must live until done */
};
struct run;
typedef void (*run_done)(struct run *r, const struct exec_end *end, void *user);
int run_start(const struct run_spec *spec, run_done done, void *user, struct run **ret, struct error *e);
struct report *run_report(struct run *r);       /* NULL when there is no reporter */
/* After done. NULL is fine. */
void run_free(struct run *r);
