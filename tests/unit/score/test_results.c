#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "score/record.h"

static void absent_id_is_missing(void **state) {
        struct test_results t = { 0 };
        assert_int_equal(test_results_get(&t, "a"), TEST_MISSING);
        assert_int_equal(test_results_put(&t, "b", TEST_PASSED), 0);
        assert_int_equal(test_results_get(&t, "a"), TEST_MISSING);
        test_results_release(&t);
}

static void order_is_kept_over_many(void **state) {
        struct test_results t = { 0 };
        char id[32];
        for (int i = 0; i < 5000; i++) {
                snprintf(id, sizeof id, "t::%d", i * 7919 % 5003);
                assert_int_equal(test_results_put(&t, id, i % 2 ? TEST_PASSED : TEST_FAILED), 0);
        }
        assert_int_equal(t.n, 5000);
        for (int i = 0; i < 5000; i++) {
                snprintf(id, sizeof id, "t::%d", i * 7919 % 5003);
                assert_string_equal(t.items[i].id, id);
                assert_int_equal(test_results_get(&t, id), i % 2 ? TEST_PASSED : TEST_FAILED);
        }
        assert_int_equal(test_results_count(&t, TEST_PASSED), 2500);
        test_results_release(&t);
}

static enum test_status merged(enum test_status a, enum test_status b) {
        struct test_results t = { 0 };
        assert_int_equal(test_results_put(&t, "x", a), 0);
        assert_int_equal(test_results_put(&t, "x", b), 0);
        assert_int_equal(t.n, 1);
        enum test_status got = test_results_get(&t, "x");
        test_results_release(&t);
        return got;
}

static void of_two_reports_the_non_pass_wins(void **state) {
        static const enum test_status bad[] = { TEST_FAILED, TEST_ERROR, TEST_SKIPPED, TEST_XFAILED };
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
                assert_int_equal(merged(TEST_PASSED, bad[i]), bad[i]);
                assert_int_equal(merged(bad[i], TEST_PASSED), bad[i]);
                assert_int_equal(merged(bad[i], TEST_XPASSED), bad[i]);
        }
        assert_int_equal(merged(TEST_SKIPPED, TEST_FAILED), TEST_FAILED);
        assert_int_equal(merged(TEST_PASSED, TEST_PASSED), TEST_PASSED);
}

static void a_report_replaces_missing(void **state) {
        assert_int_equal(merged(TEST_MISSING, TEST_PASSED), TEST_PASSED);
        assert_int_equal(merged(TEST_PASSED, TEST_MISSING), TEST_PASSED);
        assert_int_equal(merged(TEST_MISSING, TEST_FAILED), TEST_FAILED);
}

static void full_map_says_so(void **state) {
        struct test_results t = { 0 };
        char id[32];
        for (unsigned i = 0; i < TEST_RESULTS_MAX; i++) {
                snprintf(id, sizeof id, "%u", i);
                assert_int_equal(test_results_put(&t, id, TEST_PASSED), 0);
        }
        assert_int_equal(test_results_put(&t, "one more", TEST_PASSED), -ENOSPC);
        assert_int_equal(test_results_get(&t, "one more"), TEST_MISSING);
        assert_int_equal(test_results_put(&t, "17", TEST_FAILED), 0);
        test_results_release(&t);
}

static void flood_of_findings_keeps_the_worst(void **state) {
        struct findings f = { 0 };
        for (unsigned i = 0; i < FINDINGS_MAX + 50; i++)
                assert_int_equal(findings_add(&f, INTEGRITY_SUSPECT, "k", "p", NULL), 0);
        assert_int_equal(f.n, FINDINGS_MAX);
        assert_int_equal(f.verdict, INTEGRITY_SUSPECT);
        assert_int_equal(findings_add(&f, INTEGRITY_VIOLATED, "k", NULL, "d"), 0);
        assert_int_equal(f.verdict, INTEGRITY_VIOLATED);
        assert_int_equal(findings_add(&f, INTEGRITY_CLEAN, "k", NULL, "d"), 0);
        assert_int_equal(f.verdict, INTEGRITY_VIOLATED);
        findings_release(&f);
        assert_int_equal(f.n, 0);
}

static void long_text_of_a_finding_is_cut(void **state) {
        struct findings f = { 0 };
        char text[5000];
        memset(text, 'x', sizeof text - 1);
        text[sizeof text - 1] = 0;
        assert_int_equal(findings_add(&f, INTEGRITY_CLEAN, "kind", text, NULL), 0);
        assert_int_equal(strlen(f.items[0].path), FINDING_TEXT_MAX);
        assert_null(f.items[0].detail);
        findings_release(&f);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(absent_id_is_missing),
                cmocka_unit_test(order_is_kept_over_many),
                cmocka_unit_test(of_two_reports_the_non_pass_wins),
                cmocka_unit_test(a_report_replaces_missing),
                cmocka_unit_test(full_map_says_so),
                cmocka_unit_test(flood_of_findings_keeps_the_worst),
                cmocka_unit_test(long_text_of_a_finding_is_cut),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
