/* What the reporter inside the runner says (src/score/python/channel.py), read and judged by the daemon.
 *
 * The other end is hostile: the process that runs the tests also runs the code under test, and can write here what it likes. So
 * everything has a limit, and what does not fit together becomes a finding: another nonce, numbers that repeat, events out of
 * order or after the end, counts and exit status that disagree. That makes forging noticeable, not impossible.
 *
 *     report_init(&r, nonce);
 *     report_feed(&r, bytes, n) ...            as they come, until the first process has ended
 *     report_finish(&r, &exit, framework, ids, &tests, &findings);
 *     report_release(&r);
 *
 * No threads, no descriptors; -ENOMEM is the only error. */
#pragma once
#include <stdbool.h>

#include "base/buf.h"
#include "score/framework.h"
#include "score/record.h"

#define REPORT_LINE_MAX (512u * 1024)           /* longer: the line is dropped, a finding */
#define REPORT_BYTES_MAX (256u * 1024 * 1024)   /* beyond: the rest is not looked at */
#define REPORT_IDS_MAX 500000
#define REPORT_ID_BYTES_MAX (48u * 1024 * 1024) /* all ids together */
#define REPORT_PLUGINS_MAX 64
#define REPORT_PATHS_MAX 1000                   /* files that could not be collected, or were skipped */
#define REPORT_MISSING_MAX 10000                /* tests that a command names in vain */
#define REPORT_NONCE_LEN 32

struct report_test { char *id; bool began, ended, repeated; enum test_status status; };
struct report_path { char *path; char *text; bool broken; /* else skipped */ };

enum report_fault {     /* each at most once a run, with the first detail */
        FAULT_FORGED_EVENT,             /* not a line of ours: no JSON, no or another nonce, unknown event, wrong fields */
        FAULT_SEQUENCE_REPEAT,          /* a number that was used before */
        FAULT_SEQUENCE_GAP,             /* a number that is missing */
        FAULT_EVENT_ORDER,              /* a test before the list is complete, a second start, an id after that */
        FAULT_EVENT_AFTER_END,
        FAULT_UNKNOWN_TEST,             /* an outcome for a place that the list does not have */
        FAULT_NOT_COLLECTED,            /* a pass for an id that was not collected */
        FAULT_REPORT_LIMIT,
        FAULT_NO_END_RECORD,
        FAULT_COUNT_MISMATCH,           /* the end counts otherwise than we did */
        FAULT_EXIT_STATUS_MISMATCH,     /* the end names another status than the kernel, or one that does not fit the outcomes */
        FAULT_RUNNER_FROM_TREE,         /* the tree is (a part of) the runner */
        FAULT_SHADOWING_MODULE,         /* the patch made a module that stands before an installed one */
        FAULT_FOREIGN_TEST,             /* a test whose id names a class that it is none of */
        FAULT_MAX,
};
STRING_TABLE_DECLARE(report_fault);

struct report {
        char nonce[REPORT_NONCE_LEN + 1];
        struct buf line;
        bool skipping;                  /* inside a line that was too long */
        uint64_t bytes, id_bytes;
        int64_t next_seq;
        bool started, collected, ended, full;
        struct report_test *tests; size_t n_tests, tests_alloc;
        struct report_path *paths; size_t n_paths;
        struct test_results other;      /* non-passes of tests that are not in the list */
        struct test_results missing;    /* tests that the command names and that are not there */
        int64_t n_events, n_bad;        /* `test` events, and those that were no pass */
        int64_t end_status, end_tests, end_bad;
        char *framework, *version, *from_tree;
        char **plugins;                 /* files of the tree that are plugins of the runner; the first REPORT_PLUGINS_MAX */
        char *faults[FAULT_MAX];        /* detail; NULL: did not happen */
};
void report_init(struct report *r, const char nonce[static REPORT_NONCE_LEN + 1]);
void report_release(struct report *r);
int report_feed(struct report *r, const void *p, size_t n);

struct report_exit {
        bool killed;                    /* by us: timeout, limit, cancellation: then a missing end says nothing */
        int status;                     /* as from waitpid */
};
/* Outcomes into `tests`, under the spelling in `ids` (NULL-terminated, may be NULL) where that names the same test; findings;
 * *ret_incomplete: the end record is missing. */
int report_finish(struct report *r, const struct report_exit *x, const struct framework *f, const char *const *ids, struct test_results *tests,
                  struct findings *findings, bool *ret_incomplete);
/* Had the runner tests and ran none, or did it leave, by choice or by a crash, before it had looked for any? Where it did look and found none,
 * and where it refused its own arguments, it did not. */
bool report_left_early(const struct report *r);
/* Checks what passed against the list that a run of its own collected (no agent code): an id that `own` does not have although it
 * collected the file is a finding "not_in_own_collection". */
int report_check_collection(const struct report *r, const struct report *own, struct findings *findings);
/* An id that was cut off stands for all tests that begin with it: that `own` lists one and the run does not is a finding "not_in_run". */
int report_check_cut_off(const struct report *r, const struct report *own, const struct framework *f, const char *const *ids, struct findings *findings);
/* For a run whose verdict is the framework's own: that `own` lists a test and the run does not is a finding "not_in_run". */
int report_check_complete(const struct report *r, const struct report *own, struct findings *findings);
