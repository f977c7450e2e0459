/* From facts to a verdict. Everything here is a pure function of the record's facts, of the ids that the request expects, and of what is known of the
 * instance without the agent's patch (score/control.h) where that is of the same tree and image. */
#include <string.h>

#include "base/strv.h"
#include "score/control.h"
#include "score/record.h"

static const char *const outcome_names[] = {
        "cancelled", "infra_error", "test_patch_rejected", "timeout", "patch_rejected", "resolved",
        "oom", "disk_limit", "pids_limit", "output_limit", "no_tests_collected", "unresolved",
};
STRING_TABLE(outcome, outcome_names, OUTCOME_MAX)

bool outcome_is_failure(enum outcome o) {
        return o <= OUTCOME_TIMEOUT;
}

static bool is_pass(enum test_status st) {
        return st == TEST_PASSED || st == TEST_XPASSED;   /* strict xpass is reported as failed by its framework */
}

/* ---- ids that the data set cut off in the middle of a bracket: "test_a.py::test[x-" ------------------------------- */

/* Entries sorted by id, made on first need: a prefix is then one range. */
struct by_prefix { const struct test_result **at; size_t n; bool made; };

static bool is_cut_off(const char *id) {
        const char *open = strrchr(id, '[');
        return open && !strchr(open, ']');
}

static int by_id(const void *a, const void *b) {
        return strcmp((*(const struct test_result *const *)a)->id, (*(const struct test_result *const *)b)->id);
}

static int by_prefix_make(struct by_prefix *x, const struct test_results *t) {
        if (x->made)
                return 0;
        x->at = malloc(MAX2(t->n, (size_t)1) * sizeof *x->at);
        if (!x->at)
                return -ENOMEM;
        for (size_t i = 0; i < t->n; i++)
                if (t->items[i].status != TEST_MISSING)
                        x->at[x->n++] = &t->items[i];
        qsort(x->at, x->n, sizeof *x->at, by_id);
        x->made = true;
        return 0;
}

/* The status of a cut-off id: passed if there are candidates and all passed, else that of the first that did not. */
static enum test_status by_prefix_status(const struct by_prefix *x, const char *id) {
        size_t len = strlen(id), low = 0, high = x->n;
        while (low < high) {
                size_t mid = low + (high - low) / 2;
                if (strncmp(x->at[mid]->id, id, len) < 0)
                        low = mid + 1;
                else
                        high = mid;
        }
        enum test_status found = TEST_MISSING;
        for (; low < x->n && strncmp(x->at[low]->id, id, len) == 0; low++) {
                if (!is_pass(x->at[low]->status))
                        return x->at[low]->status;
                found = TEST_PASSED;
        }
        return found;
}

/* The same where the gold run says which ids there are: all of them agree in it, and each is looked up in this one. */
static enum test_status by_gold_status(const struct by_prefix *gold, const struct test_results *now, const char *id) {
        size_t len = strlen(id);
        enum test_status found = TEST_MISSING;
        for (size_t i = 0; i < gold->n; i++) {
                if (strncmp(gold->at[i]->id, id, len) != 0)
                        continue;
                enum test_status st = test_results_get(now, gold->at[i]->id);
                if (!is_pass(gold->at[i]->status) || !is_pass(st))
                        return is_pass(st) ? TEST_FAILED : st;
                found = TEST_PASSED;
        }
        return found;
}

/* ---- expectations ------------------------------------------------------------------------------------------------- */

struct lookup { struct score_record *r; const struct control *control; struct by_prefix prefix; };

static int expected_status(struct lookup *l, const char *id, enum test_status *ret) {
        enum test_status st = test_results_get(&l->r->tests, id);
        if (st == TEST_MISSING && is_cut_off(id)) {
                int r = by_prefix_make(&l->prefix, l->control ? &l->control->gold : &l->r->tests);
                if (r < 0)
                        return r;
                st = l->control ? by_gold_status(&l->prefix, &l->r->tests, id) : by_prefix_status(&l->prefix, id);
                /* Only a unanimous pass matches by prefix; a tolerated skip needs the exact id. */
                if (!is_pass(st) && st != TEST_MISSING)
                        st = TEST_FAILED;
        }
        *ret = st;
        return 0;
}

static int push_copy(char ***v, size_t *n, const char *id) {
        return strv_append_take(v, n, strdup(id));
}

/* Was it so at base too? */
static bool as_at_base(const struct lookup *l, const char *id, enum test_status st) { return test_results_get(&l->control->base, id) == st; }

/* Sorts the ids into success and failure; `tolerate`: skipped and xfailed are let pass where they were so at base, and where nothing says what they were
 * listed as unverified. */
static int judge(struct lookup *l, char **ids, bool tolerate, char ***success, char ***failure) {
        struct score_record *rec = l->r;
        size_t n_success = 0, n_failure = 0, n_unverified = strv_len((const char *const *)rec->unverified);
        int r = strv_ensure(success);
        if (r == 0)
                r = strv_ensure(failure);
        for (; r == 0 && *ids; ids++) {
                enum test_status st;
                r = expected_status(l, *ids, &st);
                if (r < 0)
                        break;
                bool tolerated = tolerate && (st == TEST_SKIPPED || st == TEST_XFAILED) && (!l->control || as_at_base(l, *ids, st));
                if (tolerated && !l->control)
                        r = push_copy(&rec->unverified, &n_unverified, *ids);
                if (r == 0)
                        r = is_pass(st) || tolerated ? push_copy(success, &n_success, *ids) : push_copy(failure, &n_failure, *ids);
        }
        return r;
}

/* Expected ids that nobody reported, into the map; after judging, because the prefix index points into it. */
static int add_missing(struct score_record *rec, char **failed) {
        int r = 0;
        for (; failed && *failed && r == 0; failed++)
                if (test_results_get(&rec->tests, *failed) == TEST_MISSING && !is_cut_off(*failed))
                        r = test_results_put(&rec->tests, *failed, TEST_MISSING);
        return r == -ENOSPC ? 0 : r;   /* a full map stays as it is: the failure lists name the ids */
}

static bool is_given(char **ids) {
        return ids && ids[0];
}

/* Nobody named a test, so no id can be looked up: the exit status is the verdict, and the record says that the ids stand unproved. */
static int leave_unverified(struct score_record *rec, const struct score_request *q) {
        size_t n = 0;
        int r = 0;
        char **const asked[] = { q->fail_to_pass, q->pass_to_pass };
        char ***const success[] = { &rec->f2p_success, &rec->p2p_success }, ***const failure[] = { &rec->f2p_failure, &rec->p2p_failure };
        for (size_t i = 0; i < ARRAY_SIZE(asked); i++) {
                if (!asked[i])
                        continue;
                if (r == 0)
                        r = strv_ensure(success[i]);
                if (r == 0)
                        r = strv_ensure(failure[i]);
                for (char **id = asked[i]; *id && r == 0; id++)
                        r = push_copy(&rec->unverified, &n, *id);
        }
        return r;
}

/* Without ids the framework lets them pass, and code under test can skip: who reads the verdict should see them. */
static int list_tolerated(struct score_record *rec) {
        size_t n = 0;
        int r = 0;
        for (size_t i = 0; r == 0 && i < rec->tests.n; i++)
                if (rec->tests.items[i].status == TEST_SKIPPED || rec->tests.items[i].status == TEST_XFAILED)
                        r = push_copy(&rec->unverified, &n, rec->tests.items[i].id);
        return r;
}

static int judge_expectations(struct score_record *rec, const struct score_request *q) {
        struct lookup l = { .r = rec, .control = control_fits(q->facts, rec) ? q->facts : NULL };
        int r = 0;
        rec->controlled = l.control;
        char ***lists[] = { &rec->f2p_success, &rec->f2p_failure, &rec->p2p_success, &rec->p2p_failure, &rec->unverified };
        for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
                *lists[i] = strv_free(*lists[i]);
        rec->has_expectations = is_given(q->fail_to_pass) || is_given(q->pass_to_pass);
        if (rec->ran && rec->channel == CHANNEL_EXIT)
                return leave_unverified(rec, q);
        if (q->fail_to_pass)
                r = judge(&l, q->fail_to_pass, false, &rec->f2p_success, &rec->f2p_failure);
        if (r == 0 && q->pass_to_pass)
                r = judge(&l, q->pass_to_pass, true, &rec->p2p_success, &rec->p2p_failure);
        free(l.prefix.at);
        if (r == 0 && !rec->has_expectations)
                r = list_tolerated(rec);
        if (r == 0)
                r = add_missing(rec, rec->f2p_failure);
        if (r == 0)
                r = add_missing(rec, rec->p2p_failure);
        return r;
}

static bool anything_ran(const struct score_record *rec) {
        return rec->said_passed || test_results_count(&rec->tests, TEST_MISSING) < rec->tests.n;
}

static bool anything_passed(const struct score_record *rec) {
        return rec->said_passed || test_results_count(&rec->tests, TEST_PASSED) + test_results_count(&rec->tests, TEST_XPASSED) > 0;
}

/* The framework's own verdict: exit status 0, something passed, nothing failed or was collected and not run. Where no framework is known it is the
 * exit status alone. */
static bool framework_passed(const struct score_record *rec) {
        if (rec->exit_code != 0)
                return false;
        if (rec->channel == CHANNEL_EXIT)
                return true;
        static const enum test_status bad[] = { TEST_FAILED, TEST_ERROR, TEST_MISSING };
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
                if (test_results_count(&rec->tests, bad[i]) > 0)
                        return false;
        return anything_passed(rec);
}

static bool tests_passed(const struct score_record *rec) {
        if (!rec->ran || rec->incomplete)
                return false;
        if (rec->has_expectations && rec->channel != CHANNEL_EXIT)
                return !is_given(rec->f2p_failure) && !is_given(rec->p2p_failure) && anything_passed(rec);
        return framework_passed(rec);
}

static enum outcome decide(const struct score_record *rec, const struct score_request *q) {
        if (rec->cancelled)
                return OUTCOME_CANCELLED;
        if (rec->error_code)
                return OUTCOME_INFRA_ERROR;
        if (!rec->test_patch_applied && q->test_patch_len > 0)
                return OUTCOME_TEST_PATCH_REJECTED;
        if (rec->timed_out || rec->limits_hit[LIMIT_WALL])
                return OUTCOME_TIMEOUT;
        if (!rec->patch_applied && q->patch_len > 0)
                return OUTCOME_PATCH_REJECTED;
        if (rec->findings.verdict == INTEGRITY_VIOLATED)
                return OUTCOME_UNRESOLVED;
        if (tests_passed(rec))
                return OUTCOME_RESOLVED;
        static const struct { enum limit_kind kind; enum outcome outcome; } limits[] = {
                { LIMIT_MEMORY, OUTCOME_OOM }, { LIMIT_DISK, OUTCOME_DISK_LIMIT },
                { LIMIT_PIDS, OUTCOME_PIDS_LIMIT }, { LIMIT_OUTPUT, OUTCOME_OUTPUT_LIMIT },
        };
        for (size_t i = 0; i < ARRAY_SIZE(limits); i++)
                if (rec->limits_hit[limits[i].kind])
                        return limits[i].outcome;
        if (rec->channel != CHANNEL_EXIT && !anything_ran(rec) && !rec->left_early)
                return OUTCOME_NO_TESTS_COLLECTED;
        return OUTCOME_UNRESOLVED;
}

/* What was required and is of another tree or image: there is no verdict. */
static void require_control(struct score_record *rec, const struct score_request *q) {
        if (q->control != CONTROL_REQUIRE || rec->controlled || rec->error_code || !rec->ran)
                return;
        rec->error_code = strdup("environment_broken");
        free(rec->error_message);
        rec->error_message = strdup("control run: the tree or the image is another one by now");
}

int score_verdict(struct score_record *rec, const struct score_request *q) {
        int r = judge_expectations(rec, q);
        require_control(rec, q);
        if (r < 0 && !rec->error_code)
                rec->error_code = strdup("internal");
        rec->outcome = r < 0 && !rec->cancelled ? OUTCOME_INFRA_ERROR : decide(rec, q);
        return r;
}

bool score_resolved(const struct score_record *r) {
        return r->outcome == OUTCOME_RESOLVED;
}
