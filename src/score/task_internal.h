/* The inside of a scoring task, shared by its state machine (task.c), its phases (task_test.c) and its record (task_record.c). */
#pragma once
#include "base/clock.h"
#include "score/run.h"
#include "score/task.h"

#define LINT_TIMEOUT_MS (120 * MS_PER_S)
#define LINT_OUTPUT_MAX (256u * 1024)          /* bytes kept of the linter's output: half head, half tail */
#define RESULTS_JSON_MAX (128u << 20)          /* bytes of JSON that the texts of all result files may be */
#define RESULTS_NAMES_MAX (2u << 20)           /* and their names */
#define RESULTS_TIMEOUT_MS (60 * MS_PER_S)
#define DIFF_MAX (8u * 1024 * 1024)            /* bytes of the agent's diff */

enum task_state {
        STATE_IMAGE,            /* it is found, pulled, mounted */
        STATE_TREE,             /* the store prepares, or finds, the tree */
        STATE_SANDBOX,
        STATE_APPLY,
        STATE_TEST,
        STATE_KILL,             /* what the tests left behind is being killed */
        STATE_RECHECK,          /* has anybody written what the verdict rests on? */
        STATE_REPORT,           /* what the framework wrote is read */
        STATE_RESULTS,          /* image mode: what it left in the output mount is read */
        STATE_LINT,
        STATE_DESTROY,
        STATE_DONE,             /* only memory is left to free */
        STATE_MAX,
};

struct score_task {
        struct score_env env;
        char *id;
        struct score_request req;
        int log_dirfd;                          /* the caller's */
        score_done done;
        void *user;

        enum task_state state;
        bool ending;                            /* nothing new is started */
        struct image_acquisition *acquiring;
        struct image_lease *lease;              /* what the sandbox stands on, until the end */
        const char **layers;                    /* the image's and the tree's, bottom first; the strings are theirs */
        struct tree_ticket *ticket;
        struct tree *tree;
        struct sandbox *sandbox;                /* until gone */
        bool applying, testing, rechecking, reading, encoding, linting, comparing;     /* a callback is owed */

        struct command command;
        struct run_files files;
        struct apply_result apply; bool applied;
        int seal_fd, watch_fd;                  /* what applying noted for the look after the run; -1: none */
        struct run *run;
        struct collection_wait *collection;     /* a callback is owed */
        bool collection_ready;                  /* it came while the tests ran */
        struct output_capture out, err, lint, results;
        bool captures, lint_capture, results_capture;      /* they are initialised */
        bool merged;                            /* stderr goes where stdout goes, in the order of writing */
        bool test_killed;                       /* the tests were ended by us or by a limit */
        int test_status;                        /* wait status */

        uv_work_t work;                         /* similarity, in the pool */
        uv_work_t results_work;                 /* the result files as JSON, in the pool */
        struct buf results_json;
        struct output_capture report_capture; bool has_report_capture;
        uv_work_t report_work;                  /* the framework's report, in the pool */
        struct test_results report_tests;
        int report_result;
        double similarity;
        uv_timer_t last;                        /* its close callback is the task's end */

        struct score_record rec;
        uint64_t started_ns, phase_ns, report_ns;
};

/* Milliseconds since the last call, for the record's timing. */
uint64_t task_lap(struct score_task *t);
/* An infra_error, unless one is already known. `code` is the wire's. */
void task_set_error(struct score_task *t, const char *code, const char *message);
/* Destroys the sandbox, if there is one, and ends when nothing is owed any more. */
void task_end(struct score_task *t);
void task_check_end(struct score_task *t);

void task_tree(struct score_task *t);           /* the image is there: STATE_IMAGE -> STATE_TREE */

/* task_image.c */
int task_image(struct score_task *t, struct error *e);     /* on to task_tree, or to task_end */
int task_layers(struct score_task *t);          /* fills t->layers once the tree is there; -ENOMEM */

const char *task_workdir(const struct score_task *t);      /* the image's WORKDIR, or "/" */

/* task_test.c */
void task_test(struct score_task *t);           /* STATE_APPLY -> STATE_TEST and on to task_end */
void task_after_results(struct score_task *t);  /* -> STATE_LINT, or task_end */

/* task_report.c */
void task_report(struct score_task *t);         /* STATE_KILL, STATE_RECHECK -> STATE_REPORT and on to task_after_report */
void task_after_report(struct score_task *t);   /* -> STATE_RESULTS, STATE_LINT or task_end */
/* The ids that the request asks for, as a set. 0 or -ENOMEM. */
int task_wanted_ids(const struct score_request *q, struct test_results *ret);

/* task_results.c */
void task_results(struct score_task *t);        /* STATE_KILL -> STATE_RESULTS and on to task_after_results */
int task_no_results(struct score_task *t);      /* at the end: where none were read, all are null. -ENOMEM */

/* task_record.c: facts into the record. 0 or -ENOMEM. */
int task_record_tree(struct score_task *t);
int task_record_apply(struct score_task *t);
int task_record_test(struct score_task *t, const struct exec_end *end);
int task_record_recheck(struct score_task *t, int r, const struct findings *f, const struct error *e);
int task_record_lint(struct score_task *t, const struct exec_end *end);
int task_record_output(struct score_task *t);
void task_record_network(struct score_task *t, struct sandbox *s);
