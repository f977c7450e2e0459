#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/strv.h"
#include "score/control.h"
#include "score/record.h"

/* One record and request a test: by default a run that exited 0 after patches that applied. */
struct fixture { struct score_record r; struct score_request q; };

static int setup(void **state) {
        struct fixture *f = calloc(1, sizeof *f);
        score_record_init(&f->r);
        f->r.ran = f->r.patch_applied = f->r.test_patch_applied = true;
        f->r.exit_code = 0;
        f->r.channel = CHANNEL_PRIVATE;
        f->q.patch_len = f->q.test_patch_len = 1;
        *state = f;
        return 0;
}

static int teardown(void **state) {
        struct fixture *f = *state;
        score_record_release(&f->r);
        score_request_release(&f->q);
        free(f);
        return 0;
}

static void report(struct fixture *f, const char *id, enum test_status st) {
        assert_int_equal(test_results_put(&f->r.tests, id, st), 0);
}
static void expect_f2p(struct fixture *f, const char *id) { assert_int_equal(strv_push(&f->q.fail_to_pass, id), 0); }
static void expect_p2p(struct fixture *f, const char *id) { assert_int_equal(strv_push(&f->q.pass_to_pass, id), 0); }

static void check(struct fixture *f, enum outcome want) {
        assert_int_equal(score_verdict(&f->r, &f->q), 0);
        assert_string_equal(outcome_to_string(f->r.outcome), outcome_to_string(want));
        assert_int_equal(score_resolved(&f->r), want == OUTCOME_RESOLVED);
}

static void all_expected_pass_resolves(void **state) {
        struct fixture *f = *state;
        expect_f2p(f, "a"); expect_p2p(f, "b");
        report(f, "a", TEST_PASSED); report(f, "b", TEST_PASSED); report(f, "other", TEST_FAILED);
        f->r.exit_code = 1;   /* a test that nobody asked for decides nothing */
        check(f, OUTCOME_RESOLVED);
        assert_string_equal(f->r.f2p_success[0], "a");
        assert_null(f->r.f2p_failure[0]);
        assert_string_equal(f->r.p2p_success[0], "b");
        assert_null(f->r.unverified);
}

static void f2p_accepts_only_passes(void **state) {
        static const enum test_status bad[] = { TEST_FAILED, TEST_ERROR, TEST_SKIPPED, TEST_XFAILED, TEST_MISSING };
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
                struct fixture *f;
                setup((void **)&f);
                expect_f2p(f, "a"); expect_f2p(f, "b");
                report(f, "a", TEST_PASSED); report(f, "b", bad[i]);
                check(f, OUTCOME_UNRESOLVED);
                assert_string_equal(f->r.f2p_failure[0], "b");
                teardown((void **)&f);
        }
}

static void xpass_is_a_pass(void **state) {
        struct fixture *f = *state;
        expect_f2p(f, "a"); expect_p2p(f, "b");
        report(f, "a", TEST_XPASSED); report(f, "b", TEST_XPASSED);
        check(f, OUTCOME_RESOLVED);
}

static void p2p_tolerates_skips_and_says_so(void **state) {
        struct fixture *f = *state;
        expect_f2p(f, "a"); expect_p2p(f, "b"); expect_p2p(f, "c");
        report(f, "a", TEST_PASSED); report(f, "b", TEST_SKIPPED); report(f, "c", TEST_XFAILED);
        check(f, OUTCOME_RESOLVED);
        assert_string_equal(f->r.unverified[0], "b");
        assert_string_equal(f->r.unverified[1], "c");
        assert_null(f->r.unverified[2]);
}

static void p2p_missing_or_broken_fails(void **state) {
        static const enum test_status bad[] = { TEST_FAILED, TEST_ERROR, TEST_MISSING };
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
                struct fixture *f;
                setup((void **)&f);
                expect_p2p(f, "a"); expect_p2p(f, "b");
                report(f, "a", TEST_PASSED);
                if (bad[i] != TEST_MISSING)
                        report(f, "b", bad[i]);
                check(f, OUTCOME_UNRESOLVED);
                assert_string_equal(f->r.p2p_failure[0], "b");
                assert_int_equal(test_results_get(&f->r.tests, "b"), bad[i]);
                assert_int_equal(f->r.tests.n, 2);   /* a missing one is listed */
                teardown((void **)&f);
        }
}

static void one_report_of_two_that_fails_fails(void **state) {
        struct fixture *f = *state;
        expect_f2p(f, "a");
        report(f, "a", TEST_PASSED); report(f, "a", TEST_ERROR);
        check(f, OUTCOME_UNRESOLVED);
}

static void cut_off_id_matches_by_prefix(void **state) {
        struct fixture *f = *state;
        expect_f2p(f, "t.py::test[a b-"); expect_p2p(f, "t.py::test[c");
        report(f, "t.py::test[a b-1]", TEST_PASSED); report(f, "t.py::test[a b-2]", TEST_PASSED);
        report(f, "t.py::test[c]", TEST_PASSED); report(f, "t.py::test[d]", TEST_FAILED);
        check(f, OUTCOME_RESOLVED);
        assert_string_equal(f->r.f2p_success[0], "t.py::test[a b-");
}

static void cut_off_id_needs_all_candidates(void **state) {
        static const enum test_status bad[] = { TEST_FAILED, TEST_ERROR, TEST_SKIPPED, TEST_XFAILED };
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
                struct fixture *f;
                setup((void **)&f);
                expect_p2p(f, "t[a-");
                report(f, "t[a-1]", TEST_PASSED); report(f, "t[a-2]", bad[i]); report(f, "t[a-3]", TEST_PASSED);
                check(f, OUTCOME_UNRESOLVED);
                teardown((void **)&f);
        }
}

static void cut_off_id_without_candidates_fails(void **state) {
        struct fixture *f = *state;
        expect_f2p(f, "t[a-");
        report(f, "t[b-1]", TEST_PASSED);
        check(f, OUTCOME_UNRESOLVED);
}

static void whole_id_never_matches_by_prefix(void **state) {
        struct fixture *f = *state;
        expect_f2p(f, "test_a"); expect_f2p(f, "t[x]");
        report(f, "test_ab", TEST_PASSED); report(f, "t[x][y]", TEST_PASSED);
        check(f, OUTCOME_UNRESOLVED);
        assert_string_equal(f->r.f2p_failure[0], "test_a");
        assert_string_equal(f->r.f2p_failure[1], "t[x]");
}

static void tolerated_tests_alone_resolve_nothing(void **state) {
        struct fixture *f = *state;
        expect_p2p(f, "a");
        report(f, "a", TEST_SKIPPED);
        check(f, OUTCOME_UNRESOLVED);
        assert_string_equal(f->r.unverified[0], "a");
}

static void without_ids_the_framework_decides(void **state) {
        struct fixture *f = *state;
        report(f, "a", TEST_PASSED); report(f, "b", TEST_SKIPPED);
        check(f, OUTCOME_RESOLVED);
        assert_false(f->r.has_expectations);
}

static void without_ids_what_was_skipped_has_not_passed(void **state) {
        struct fixture *f = *state;
        report(f, "a", TEST_SKIPPED); report(f, "b", TEST_XFAILED);
        check(f, OUTCOME_UNRESOLVED);
        assert_string_equal(f->r.unverified[0], "a");
        assert_string_equal(f->r.unverified[1], "b");
        report(f, "c", TEST_PASSED);
        check(f, OUTCOME_RESOLVED);
        assert_int_equal(strv_len((const char *const *)f->r.unverified), 2);
}

static void framework_with_exit_status_is_unresolved(void **state) {
        struct fixture *f = *state;
        report(f, "a", TEST_PASSED);
        f->r.exit_code = 1;
        check(f, OUTCOME_UNRESOLVED);
}

static void framework_with_a_failure_is_unresolved(void **state) {
        struct fixture *f = *state;
        report(f, "a", TEST_PASSED); report(f, "b", TEST_ERROR);
        check(f, OUTCOME_UNRESOLVED);
}

static void nothing_ran_is_no_tests_collected(void **state) {
        struct fixture *f = *state;
        check(f, OUTCOME_NO_TESTS_COLLECTED);
}

static void a_runner_that_left_early_is_unresolved(void **state) {
        struct fixture *f = *state;
        f->r.left_early = true;
        check(f, OUTCOME_UNRESOLVED);
        report(f, "a", TEST_MISSING);
        check(f, OUTCOME_UNRESOLVED);
}

static void only_missing_ids_is_no_tests_collected(void **state) {
        struct fixture *f = *state;
        expect_f2p(f, "a");
        check(f, OUTCOME_NO_TESTS_COLLECTED);
        assert_int_equal(f->r.tests.items[0].status, TEST_MISSING);
}

static void exit_channel_is_the_status_alone(void **state) {
        struct fixture *f = *state;
        f->r.channel = CHANNEL_EXIT;
        check(f, OUTCOME_RESOLVED);
        f->r.exit_code = 2;
        check(f, OUTCOME_UNRESOLVED);
}

static void exit_channel_leaves_ids_unverified(void **state) {
        struct fixture *f = *state;
        f->r.channel = CHANNEL_EXIT;
        expect_f2p(f, "a"); expect_p2p(f, "b");
        check(f, OUTCOME_RESOLVED);
        assert_string_equal(f->r.unverified[0], "a");
        assert_string_equal(f->r.unverified[1], "b");
        assert_null(f->r.f2p_failure[0]);
        assert_int_equal(f->r.tests.n, 0);
        f->r.exit_code = 1;
        check(f, OUTCOME_UNRESOLVED);
}

static void empty_lists_are_no_expectation(void **state) {
        struct fixture *f = *state;
        strv_ensure(&f->q.fail_to_pass); strv_ensure(&f->q.pass_to_pass);
        report(f, "a", TEST_PASSED);
        check(f, OUTCOME_RESOLVED);
        assert_false(f->r.has_expectations);
        assert_non_null(f->r.f2p_success);
        assert_null(f->r.f2p_success[0]);
}

/* ---- with control runs ---- */

static struct control *know(struct fixture *f) {
        struct control *c = calloc(1, sizeof *c);
        c->refs = 1;
        c->tree_hash = strdup("t");
        c->image_digest = strdup("i");
        f->r.tree_hash = strdup("t");
        f->r.image_digest = strdup("i");
        f->q.facts = c;
        f->q.control = CONTROL_REQUIRE;
        return c;
}

static void a_skip_is_tolerated_as_at_base(void **state) {
        struct fixture *f = *state;
        struct control *c = know(f);
        expect_f2p(f, "a"); expect_p2p(f, "old");
        report(f, "a", TEST_PASSED); report(f, "old", TEST_SKIPPED);
        test_results_put(&c->base, "old", TEST_SKIPPED);
        check(f, OUTCOME_RESOLVED);
        assert_null(f->r.unverified);
        test_results_put(&c->base, "new", TEST_PASSED);
        expect_p2p(f, "new");
        report(f, "new", TEST_SKIPPED);
        check(f, OUTCOME_UNRESOLVED);
        assert_string_equal(f->r.p2p_failure[0], "new");
}

static void a_cut_off_id_stands_for_what_the_gold_run_had(void **state) {
        struct fixture *f = *state;
        struct control *c = know(f);
        expect_f2p(f, "t[a");
        report(f, "t[a b]", TEST_PASSED);
        test_results_put(&c->gold, "t[a b]", TEST_PASSED);
        check(f, OUTCOME_RESOLVED);
        test_results_put(&c->gold, "t[a c]", TEST_PASSED);
        check(f, OUTCOME_UNRESOLVED);
        report(f, "t[a c]", TEST_PASSED);
        check(f, OUTCOME_RESOLVED);
        test_results_put(&c->gold, "t[a d]", TEST_FAILED);
        report(f, "t[a d]", TEST_PASSED);
        check(f, OUTCOME_UNRESOLVED);
}

static void what_is_known_of_another_tree_counts_for_nothing(void **state) {
        struct fixture *f = *state;
        know(f);
        free(f->r.tree_hash);
        f->r.tree_hash = strdup("moved");
        expect_f2p(f, "a"); expect_p2p(f, "b");
        report(f, "a", TEST_PASSED); report(f, "b", TEST_SKIPPED);
        f->q.control = CONTROL_AUTO;
        check(f, OUTCOME_RESOLVED);
        assert_false(f->r.controlled);
        assert_string_equal(f->r.unverified[0], "b");
        f->q.control = CONTROL_REQUIRE;
        check(f, OUTCOME_INFRA_ERROR);
        assert_string_equal(f->r.error_code, "environment_broken");
}

static void violated_integrity_forces_unresolved(void **state) {
        struct fixture *f = *state;
        expect_f2p(f, "a"); report(f, "a", TEST_PASSED);
        f->r.limits_hit[LIMIT_MEMORY] = true;
        findings_add(&f->r.findings, INTEGRITY_VIOLATED, "forged_report", NULL, NULL);
        check(f, OUTCOME_UNRESOLVED);
}

static void suspect_integrity_changes_nothing(void **state) {
        struct fixture *f = *state;
        expect_f2p(f, "a"); report(f, "a", TEST_PASSED);
        findings_add(&f->r.findings, INTEGRITY_SUSPECT, "x", NULL, NULL);
        check(f, OUTCOME_RESOLVED);
}

static void a_run_that_never_ended_does_not_resolve(void **state) {
        struct fixture *f = *state;
        expect_f2p(f, "a"); report(f, "a", TEST_PASSED);
        f->r.ran = false;
        check(f, OUTCOME_UNRESOLVED);
}

static void a_report_without_its_end_does_not_resolve(void **state) {
        struct fixture *f = *state;
        expect_f2p(f, "a"); report(f, "a", TEST_PASSED);
        f->r.incomplete = true;
        check(f, OUTCOME_UNRESOLVED);
}

static void empty_patches_cannot_be_rejected(void **state) {
        struct fixture *f = *state;
        f->q.patch_len = f->q.test_patch_len = 0;
        f->r.patch_applied = f->r.test_patch_applied = false;
        report(f, "a", TEST_PASSED);
        check(f, OUTCOME_RESOLVED);
}

/* Everything holds at once; each condition is then taken away in turn, and the next one in the order must show. */
static void precedence_is_the_contracts(void **state) {
        struct fixture *f = *state;
        f->r.cancelled = true;
        f->r.error_code = strdup("internal");
        f->r.test_patch_applied = f->r.patch_applied = false;
        f->r.timed_out = true;
        for (int i = 0; i < LIMIT_KIND_MAX; i++)
                f->r.limits_hit[i] = true;
        expect_f2p(f, "a");
        check(f, OUTCOME_CANCELLED);
        f->r.cancelled = false;
        check(f, OUTCOME_INFRA_ERROR);
        free(f->r.error_code); f->r.error_code = NULL;
        check(f, OUTCOME_TEST_PATCH_REJECTED);
        f->r.test_patch_applied = true;
        check(f, OUTCOME_TIMEOUT);
        f->r.timed_out = false;
        check(f, OUTCOME_TIMEOUT);   /* the sandbox's own wall limit */
        f->r.limits_hit[LIMIT_WALL] = false;
        check(f, OUTCOME_PATCH_REJECTED);
        f->r.patch_applied = true;
        check(f, OUTCOME_OOM);
        f->r.limits_hit[LIMIT_MEMORY] = false;
        check(f, OUTCOME_DISK_LIMIT);
        f->r.limits_hit[LIMIT_DISK] = false;
        check(f, OUTCOME_PIDS_LIMIT);
        f->r.limits_hit[LIMIT_PIDS] = false;
        check(f, OUTCOME_OUTPUT_LIMIT);
        f->r.limits_hit[LIMIT_OUTPUT] = false;
        check(f, OUTCOME_NO_TESTS_COLLECTED);
}

static void a_limit_that_fired_does_not_undo_a_pass(void **state) {
        struct fixture *f = *state;
        expect_f2p(f, "a"); report(f, "a", TEST_PASSED);
        f->r.limits_hit[LIMIT_MEMORY] = f->r.limits_hit[LIMIT_OUTPUT] = true;
        check(f, OUTCOME_RESOLVED);
}

static void failures_are_the_first_four(void **state) {
        static const enum outcome failed[] = { OUTCOME_CANCELLED, OUTCOME_INFRA_ERROR, OUTCOME_TEST_PATCH_REJECTED, OUTCOME_TIMEOUT };
        for (int o = 0; o < OUTCOME_MAX; o++) {
                bool want = false;
                for (size_t i = 0; i < ARRAY_SIZE(failed); i++)
                        want |= o == (int)failed[i];
                assert_int_equal(outcome_is_failure((enum outcome)o), want);
        }
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
        const struct CMUnitTest tests[] = {
                T(all_expected_pass_resolves), T(f2p_accepts_only_passes), T(xpass_is_a_pass), T(p2p_tolerates_skips_and_says_so),
                T(p2p_missing_or_broken_fails), T(one_report_of_two_that_fails_fails), T(cut_off_id_matches_by_prefix),
                T(cut_off_id_needs_all_candidates), T(cut_off_id_without_candidates_fails), T(whole_id_never_matches_by_prefix),
                T(without_ids_the_framework_decides), T(tolerated_tests_alone_resolve_nothing), T(without_ids_what_was_skipped_has_not_passed),
                T(framework_with_exit_status_is_unresolved), T(framework_with_a_failure_is_unresolved),
                T(nothing_ran_is_no_tests_collected), T(a_runner_that_left_early_is_unresolved), T(only_missing_ids_is_no_tests_collected), T(exit_channel_is_the_status_alone), T(exit_channel_leaves_ids_unverified),
                T(a_skip_is_tolerated_as_at_base), T(a_cut_off_id_stands_for_what_the_gold_run_had), T(what_is_known_of_another_tree_counts_for_nothing),
                T(empty_lists_are_no_expectation), T(violated_integrity_forces_unresolved), T(suspect_integrity_changes_nothing),
                T(a_run_that_never_ended_does_not_resolve), T(a_report_without_its_end_does_not_resolve), T(empty_patches_cannot_be_rejected), T(precedence_is_the_contracts),
                T(a_limit_that_fired_does_not_undo_a_pass), cmocka_unit_test(failures_are_the_first_four),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
