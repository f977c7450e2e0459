/* What a task came to: every field of the result record, and its JSON. Outcome precedence and status mapping are the
 * contract's. The record owns its strings. */
#pragma once
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
