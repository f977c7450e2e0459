/* Between the files of `brig eval`: a benchmark's records and somebody's predictions become verdicts, a report and a page.
 *
 *     plan ──> run ──> report, page
 *      │        │
 *      └─ store ┘      one file for each verdict, so that a run that was broken off goes on where it stopped
 *
 * eval_plan.c   which instances there are, and the request of each
 * eval_store.c  the output directory
 * eval_run.c    threads that ask the endpoints
 * eval_report.c the official report, and the summary
 * eval_page.c   the page */
#pragma once
#include "base/hash.h"
#include "cmd/records.h"
#include "cmd/score_options.h"

#define EVAL_JOBS_MAX 1024
#define EVAL_PROBLEMS_MAX 10000            /* kept for the page; all are printed */

struct eval_options {
        struct score_options how;          /* first: score_run_rows write into it */
        char *dataset, *predictions, *repos, *images, *jobs, *endpoints, *output;
        char **only;
        bool quiet, json;
};

enum eval_state {
        EVAL_TO_RUN,
        EVAL_HAS_RECORD,                   /* from now or from before */
        EVAL_EMPTY,                        /* the prediction is empty or null */
        EVAL_WITHOUT,                      /* no prediction */
        EVAL_UNUSABLE,                     /* the record or the prediction cannot be used: a problem says why */
        EVAL_FAILED,                       /* no verdict: the endpoints refused it, or none answered */
};

struct eval_item {
        const struct record *instance, *prediction;        /* prediction NULL: gold, or there is none */
        enum eval_state state;
        char request[SHA256_HEX];                          /* hash of what is asked */
        unsigned attempt;                                  /* how often it was our fault before */
        bool before;                                       /* the record was there */
        char outcome[40];                                  /* of the record */
        uint64_t test_ms, total_ms;
        char *why;                                         /* EVAL_UNUSABLE, EVAL_FAILED */
};

struct eval {
        struct eval_options *o;
        struct records dataset, predictions;
        bool gold;
        char model[RECORD_ID_MAX + 1];                     /* of the first prediction that names one */
        struct eval_item *items; size_t n;
        char **problems; size_t n_problems;
        int dir, records, lock;                            /* descriptors of the output directory, -1 */
        char nonce[33];                                    /* of the output directory */
        uint64_t wall_ms;
};

/* eval_plan.c. -EINVAL: a fault of usage. */
int eval_plan(struct eval *ev, struct error *e);
/* The body of a submission. -EINVAL: the record cannot be used, e says why. */
int eval_request(const struct eval *ev, const struct eval_item *it, struct buf *ret, struct error *e);
void eval_problem(struct eval *ev, const char *path, size_t line, const char *text);

/* eval_store.c */
int eval_store_open(struct eval *ev, struct error *e);             /* makes the directory; -EBUSY: another run is in it */
/* Fills outcome, times and attempt of an item from the record that is there for this request. False: there is none. */
bool eval_store_find(struct eval *ev, struct eval_item *it);
/* Whole or not at all, and on disk when it returns. Any thread. */
int eval_store_save(const struct eval *ev, struct eval_item *it, const struct buf *request, const struct buf *record, struct error *e);
/* The record; *ret lies in *file. */
int eval_store_load(const struct eval *ev, const struct eval_item *it, struct buf *file, struct json *ret);
void eval_store_renew(struct eval *ev);                             /* another nonce */
void eval_store_close(struct eval *ev);

/* eval_run.c: runs every EVAL_TO_RUN. -EINTR, or why nothing could be begun. */
int eval_run(struct eval *ev, struct error *e);

/* eval_report.c, eval_page.c: "report.json", "report.html". */
struct eval_counts { size_t total, submitted, completed, resolved, unresolved, empty, error, incomplete; };
void eval_count(const struct eval *ev, struct eval_counts *ret);
bool eval_is_completed(const struct eval_item *it);                /* the tests were run, or could not be because of the patch */
int eval_report_write(const struct eval *ev, struct error *e);
int eval_page_write(const struct eval *ev, struct error *e);
