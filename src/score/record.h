/* What a task came to: every field of the result record, and its JSON. Outcome precedence and status mapping are the
 * contract's. The record owns its strings. */
#pragma once
#include <stdbool.h>

#include "base/buf.h"
#include "score/request.h"

enum outcome {   /* in the order of precedence: the first that holds wins */
        OUTCOME_CANCELLED, OUTCOME_INFRA_ERROR, OUTCOME_TEST_PATCH_REJECTED, OUTCOME_TIMEOUT, OUTCOME_PATCH_REJECTED, OUTCOME_RESOLVED,
        OUTCOME_OOM, OUTCOME_DISK_LIMIT, OUTCOME_PIDS_LIMIT, OUTCOME_OUTPUT_LIMIT, OUTCOME_NO_TESTS_COLLECTED, OUTCOME_UNRESOLVED, OUTCOME_MAX,
};
STRING_TABLE_DECLARE(outcome);
enum test_status { TEST_PASSED, TEST_FAILED, TEST_ERROR, TEST_SKIPPED, TEST_XFAILED, TEST_XPASSED, TEST_MISSING, TEST_STATUS_MAX };
STRING_TABLE_DECLARE(test_status);
enum report_channel { CHANNEL_PRIVATE, CHANNEL_TEXT, CHANNEL_EXIT, CHANNEL_MAX };
STRING_TABLE_DECLARE(report_channel);
enum integrity { INTEGRITY_CLEAN, INTEGRITY_SUSPECT, INTEGRITY_VIOLATED, INTEGRITY_MAX };
STRING_TABLE_DECLARE(integrity);
enum patch_rung { RUNG_NONE, RUNG_STRICT, RUNG_RECOUNT, RUNG_WHITESPACE, RUNG_THREE_WAY, RUNG_FUZZY, RUNG_MAX };
STRING_TABLE_DECLARE(patch_rung);

struct test_result { char *id; enum test_status status; };

/* Ordered map id -> status. The same id twice: any non-pass wins (test_results_put). */
struct test_results { struct test_result *items; size_t n, alloc; void *index; /* hash of ids, private to results.c */ };
int test_results_put(struct test_results *t, const char *id, enum test_status st);
enum test_status test_results_get(const struct test_results *t, const char *id);   /* TEST_MISSING when absent */
void test_results_release(struct test_results *t);

struct finding { char *kind, *path, *detail; };
struct findings { struct finding *items; size_t n, alloc; enum integrity verdict; /* the worst so far */ };
/* Adds one; limits: FINDINGS_MAX entries, long text cut. path and detail may be NULL. */
int findings_add(struct findings *f, enum integrity weight, const char *kind, const char *path, const char *detail);
void findings_release(struct findings *f);

struct score_record {
        /* echo */
        char *repo_url, *base_commit /* resolved */, *test_command; uint64_t timeout_ms;
        /* what happened */
        enum outcome outcome;
        char *error_code, *error_message;      /* infra_error, cancelled, test_patch_rejected: else NULL */
        int exit_code;                         /* 128+n for a signal; -1 where the contract says so */
        bool ran;                              /* the test command ran to an exit status */
        bool timed_out;
        char *stdout_text, *stderr_text; size_t stdout_len, stderr_len;   /* bounded, bytes as they came */
        bool patch_applied, test_patch_applied;
        enum patch_rung rung;
        char **restored;                       /* paths, sorted, NULL-terminated */
        struct test_results tests;
        enum report_channel channel;
        bool incomplete;                       /* the runner's own end was not seen (no end record): never resolved */
        char **f2p_success, **f2p_failure, **p2p_success, **p2p_failure, **unverified;   /* NULL when not asked for */
        bool has_expectations;                 /* fail_to_pass or pass_to_pass was given */
        struct findings findings;
        bool limits_hit[LIMIT_KIND_MAX];
        int lint_errors; bool lint_ran; char *lint_output;
        char *patch_diff; bool diff_captured;
        double patch_similarity;               /* < 0 = null */
        struct sandbox_usage usage;
        uint64_t queued_ms, prepare_ms, apply_ms, test_ms, report_ms, execution_ms;
        bool cached;
        /* evidence */
        char *tree_hash, *image_digest;
        char **argv, **env;                    /* as run */
        char evidence[65];
};
void score_record_init(struct score_record *r);
void score_record_release(struct score_record *r);
/* Fills outcome, resolved-related lists, precedence (scoring rules without control records), from the facts above. */
void score_verdict(struct score_record *r, const struct score_request *q);
bool score_resolved(const struct score_record *r);
/* SHA-256 over the RFC 8785 form of the evidence object, into r->evidence. */
int score_evidence(struct score_record *r);
/* The wire's result object for task `id`. */
int score_record_encode(const struct score_record *r, const char *id, const char *log_url, struct buf *ret);
