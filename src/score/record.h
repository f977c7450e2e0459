/* What a task came to: every field of the result record, and its JSON. Outcome precedence and status mapping are the
 * contract's. The record owns its strings.
 *
 *     facts (task.c, report, apply) ──score_verdict──> outcome, lists ──score_evidence──> hash ──score_record_encode──> JSON
 *
 * No threads of its own; a record belongs to one at a time. */
#pragma once
#include <stdbool.h>

#include "base/buf.h"
#include "score/request.h"

enum outcome {   /* in the order of precedence: the first that holds wins */
        OUTCOME_CANCELLED, OUTCOME_INFRA_ERROR, OUTCOME_TEST_PATCH_REJECTED, OUTCOME_TIMEOUT, OUTCOME_PATCH_REJECTED, OUTCOME_RESOLVED,
        OUTCOME_OOM, OUTCOME_DISK_LIMIT, OUTCOME_PIDS_LIMIT, OUTCOME_OUTPUT_LIMIT, OUTCOME_NO_TESTS_COLLECTED, OUTCOME_UNRESOLVED, OUTCOME_MAX,
};
STRING_TABLE_DECLARE(outcome);
/* status "completed" and the real exit code, or "failed" and -1? */
bool outcome_is_failure(enum outcome o);
enum test_status { TEST_PASSED, TEST_FAILED, TEST_ERROR, TEST_SKIPPED, TEST_XFAILED, TEST_XPASSED, TEST_MISSING, TEST_STATUS_MAX };
STRING_TABLE_DECLARE(test_status);
enum report_channel { CHANNEL_PRIVATE, CHANNEL_REPORT, CHANNEL_TEXT, CHANNEL_EXIT, CHANNEL_MAX };
STRING_TABLE_DECLARE(report_channel);
enum integrity { INTEGRITY_CLEAN, INTEGRITY_SUSPECT, INTEGRITY_VIOLATED, INTEGRITY_MAX };
STRING_TABLE_DECLARE(integrity);

#define TEST_RESULTS_MAX 200000u   /* ids of one run; beyond it test_results_put says -ENOSPC */
#define FINDINGS_MAX 100u          /* kept; more only raise the verdict */
#define FINDING_TEXT_MAX 1024u     /* bytes of kind, path and detail, cut */

#define NETWORK_RECORD_MAX (512u * 1024)   /* bytes of it: 256 rules and 128 denials */

struct test_result { char *id; enum test_status status; };

/* Ordered map id -> status. The same id twice: any non-pass wins (test_results_put), a report replaces "missing". */
struct test_results { struct test_result *items; size_t n, alloc; void *index; /* hash of ids, private to results.c */ };
int test_results_put(struct test_results *t, const char *id, enum test_status st);   /* -ENOSPC, -ENOMEM */
enum test_status test_results_get(const struct test_results *t, const char *id);   /* TEST_MISSING when absent */
size_t test_results_count(const struct test_results *t, enum test_status st);
void test_results_release(struct test_results *t);

struct finding { char *kind, *path, *detail; };
struct findings { struct finding *items; size_t n, alloc; enum integrity verdict; /* the worst so far */ };
/* Adds one; limits: FINDINGS_MAX entries, long text cut. path and detail may be NULL. */
int findings_add(struct findings *f, enum integrity weight, const char *kind, const char *path, const char *detail);
void findings_release(struct findings *f);

struct score_record {
        /* echo */
        enum task_mode mode;
        bool has_tree;                         /* false: image mode without a tree: there was nothing to patch */
        char *repo_url, *base_commit /* resolved */, *test_command, *image /* NULL unless asked for */;
        uint64_t timeout_ms;
        /* what happened: facts */
        bool cancelled;
        char *error_code;                      /* infra_error only: code of the wire */
        char *error_message;                   /* why it came to this outcome, for a person (also patch_rejected and the other failures); NULL = nothing to say */
        int exit_code;                         /* of the test command; 128+n for a signal */
        bool ran;                              /* the test command ran to an exit status */
        bool timed_out;
        char *stdout_text, *stderr_text; size_t stdout_len, stderr_len;   /* bounded, bytes as they came; NULL = empty */
        bool patch_applied, test_patch_applied;
        enum patch_rung rung;
        char **restored;                       /* paths, sorted, NULL-terminated; may be NULL */
        struct test_results tests;
        enum report_channel channel;
        const char *framework;                 /* name of the framework whose outcomes these are; NULL: none is known */
        const char *route;                     /* of CHANNEL_REPORT: how the framework was asked for them; NULL otherwise */
        bool said_passed;                      /* of a text without names of tests: its last line says that some ran and none failed */
        bool left_early;                       /* the runner had tests and ran none, or left before it had looked for any */
        bool incomplete;                       /* the runner's own end was not seen (no end record): never resolved */
        struct findings findings;
        bool limits_hit[LIMIT_KIND_MAX];
        int lint_errors; bool lint_ran; char *lint_output;   /* errors < 0 = null */
        char *result_files; size_t result_files_len;       /* JSON; NULL: none was asked for */
        char *patch_diff; bool diff_captured;
        double patch_similarity;               /* < 0 = null */
        struct sandbox_usage usage;
        char *network;                         /* JSON: rules, counters, what was denied; NULL unless the network was `allow` */
        uint64_t queued_ms, prepare_ms, apply_ms, test_ms, report_ms, execution_ms;
        bool cached;                           /* answered from an earlier verdict; a tree that was ready does not count */
        /* what was run: with the facts above, what the evidence covers */
        char *tree_hash, *image_digest;        /* NULL when it did not come to that */
        char **argv, **env;                    /* as run */
        /* filled by score_verdict */
        enum outcome outcome;
        char **f2p_success, **f2p_failure, **p2p_success, **p2p_failure, **unverified;   /* NULL when not asked for */
        bool controlled;                       /* by the rules for an instance of which a control run is known */
        bool has_expectations;                 /* fail_to_pass or pass_to_pass was given, and not empty */
        /* filled by score_evidence */
        char evidence[65];
};
void score_record_init(struct score_record *r);
void score_record_release(struct score_record *r);
/* Copies what the record repeats of the request: repo_url without credentials, base_commit as asked for (task.c puts the
 * resolved one there later), test_command, image, timeout. */
int score_record_echo(struct score_record *r, const struct score_request *q);
/* Fills outcome and the lists from the facts: the scoring rules, with q->facts where they fit. Ids that were expected and not
 * reported are added to `tests` as missing. 0 or -ENOMEM (the outcome is then OUTCOME_INFRA_ERROR, error_code "internal"). */
int score_verdict(struct score_record *r, const struct score_request *q);
bool score_resolved(const struct score_record *r);
/* SHA-256 over the RFC 8785 form of the evidence object, into r->evidence. After score_verdict. */
int score_evidence(struct score_record *r);
/* The bytes that are hashed, appended to ret: for `brig score --replay` and tests. */
int score_evidence_text(const struct score_record *r, struct buf *ret);
/* The wire's result object for task `id`, appended to ret. log_url may be NULL. */
int score_record_encode(const struct score_record *r, const char *id, const char *log_url, struct buf *ret);
