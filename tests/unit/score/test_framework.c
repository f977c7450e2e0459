#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "score/framework.h"

/* "id=status" joined by newlines. */
static void expect(const struct framework *f, const char *text, const char *want) {
        struct test_results t = {0};
        char out[2048] = "";
        size_t at = 0;
        assert_int_equal(f->parse(text, &(struct sink){.tests = &t}), 0);
        for (size_t i = 0; i < t.n; i++)
                at += (size_t)snprintf(out + at, sizeof(out) - at, "%s=%s\n", t.items[i].id, test_status_to_string(t.items[i].status));
        assert_string_equal(out, want);
        test_results_release(&t);
}

static void pytest_verbose_lines_and_summary_are_read(void **state) {
        expect(&framework_pytest,
               "conftest says tests/a.py::forged PASSED [100%]\n"
               "============ test session starts ============\n"
               "tests/a.py::test_ok PASSED                 [ 20%]\n"
               "tests/a.py::test_p[a b - c] FAILED         [ 40%]\n"
               "tests/a.py::test_s SKIPPED (no network)    [ 60%]\n"
               "tests/a.py::test_xf XFAIL                  [ 80%]\n"
               "tests/a.py::test_prints this PASSED and that\n"
               "================= FAILURES ==================\n"
               "tests/a.py::forged PASSED                  [100%]\n"
               "PASSED tests/a.py::forged\n"
               "========== short test summary info ==========\n"
               "PASSED tests/a.py::test_ok\n"
               "FAILED tests/a.py::test_p[a b - c] - assert 1 == 2\n"
               "SKIPPED [1] tests/a.py:3: no network\n"
               "ERROR tests/b.py - ImportError: x\n"
               "===== 1 failed, 1 passed in 0.01s ======\n",
               "tests/a.py::test_ok=passed\ntests/a.py::test_p[a b - c]=failed\ntests/a.py::test_s=skipped\n"
               "tests/a.py::test_xf=xfailed\ntests/b.py=error\n");
}

static void any_non_pass_of_the_same_id_wins(void **state) {
        expect(&framework_pytest,
               "=== test session starts ===\na.py::t PASSED\na.py::t ERROR\n=== short test summary info ===\nPASSED a.py::t\n", "a.py::t=error\n");
}

static void unittest_outcomes_are_read_with_docstrings_and_prints_between(void **state) {
        expect(&framework_unittest,
               "test_a (m.C) ... ok\n"
               "test_b (m.C) ... printed\nok\n"
               "test_c (m.C)\nSays what it does. ... FAIL\n"
               "test_d (m.C) ... skipped 'why ... ok'\n"
               "test_e (m.C) ... expected failure\n"
               "test_f (m.C) ... unexpected success\n"
               "test_g (m.C) ... \nERROR\n"
               "======\nFAIL: test_s (m.C) (i=1)\n------\n"
               "ERROR: setUpClass (m.D)\n",
               "test_a (m.C)=passed\ntest_b (m.C)=passed\nSays what it does.=failed\ntest_c (m.C)=failed\n"
               "test_d (m.C)=skipped\ntest_e (m.C)=xfailed\ntest_f (m.C)=failed\ntest_g (m.C)=error\ntest_s (m.C)=failed\nsetUpClass (m.D)=error\n");
}

static void unittest_ids_have_one_canonical_form(void **state) {
        static const struct { const char *id, *form; } table[] = {
                {"test_x (pkg.mod.C)", "pkg.mod.C.test_x"}, {"test_x (pkg.mod.C.test_x)", "pkg.mod.C.test_x"},
                {"pkg.mod.C.test_x", "pkg.mod.C.test_x"}, {"Says what (it) does.", "Says what (it) does."},
        };
        for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
                char *s = framework_canonical(&framework_unittest, table[i].id);
                assert_string_equal(s, table[i].form);
                free(s);
        }
}

static void go_text_and_json_are_read(void **state) {
        expect(&framework_go, "=== RUN   TestA\n--- PASS: TestA (0.00s)\n    --- FAIL: TestA/sub_(x) (0.00s)\n--- SKIP: TestB (0.00s)\nPASS\n",
               "TestA=passed\nTestA/sub_(x)=failed\nTestB=skipped\n");
        expect(&framework_go, "{\"Action\":\"run\",\"Test\":\"T\"}\n{\"Action\":\"output\",\"Test\":\"T\",\"Output\":\"--- FAIL: U (0s)\\n\"}\n"
               "{\"Action\":\"pass\",\"Test\":\"T\"}\n{\"Action\":\"pass\",\"Package\":\"p\"}\n{\"broken\n", "T=passed\n");
}

static void cargo_outcomes_are_read(void **state) {
        expect(&framework_cargo,
               "running 4 tests\ntest a::b ... ok\ntest a::p - should panic ... ok\ntest c ... FAILED\ntest d ... ignored, slow\n"
               "test src/lib.rs - f (line 3) ... ok\ntest result: FAILED. 1 passed\n",
               "a::b=passed\na::p=passed\nc=failed\nd=skipped\nsrc/lib.rs - f (line 3)=passed\n");
}

static void tap_directives_and_depth_are_respected(void **state) {
        expect(&framework_tap,
               "TAP version 13\n1..5\nok 1 - adds # of things\nnot ok 2 - breaks\nok 3 - later # SKIP no net\nnot ok 4 - known # TODO\n"
               "    ok 1 - nested\nok 5\nBail out! no disk\n",
               "adds # of things=passed\nbreaks=failed\nlater=skipped\nknown=xfailed\n5=passed\nBail out!=error\n");
}

static void text_is_cleaned(void **state) {
        static const struct { const char *in, *out; size_t n; } table[] = {
                {"\x1b[32mtests/a.py::t \x1b[1mPASSED\x1b[0m\n", "tests/a.py::t PASSED\n", 0},
                {"\x1b]0;title\x07ok\n", "ok\n", 0},
                {"10%\r20%\rdone\r\nnext", "done\nnext", 0},
                {"a\xff\xc3\xa9\xed\xa0\x80z", "a\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz", 0},
                {"a\0b\x1b", "ab", 4},
        };
        for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
                char *s = framework_clean(table[i].in, table[i].n ? table[i].n : strlen(table[i].in));
                assert_string_equal(s, table[i].out);
                free(s);
        }
}

static void frameworks_are_recognised_by_what_they_print(void **state) {
        assert_ptr_equal(framework_of_output("=== test session starts ===\n"), &framework_pytest);
        assert_ptr_equal(framework_of_output("..\n----\nRan 2 tests in 0.1s\n\nOK\n"), &framework_unittest);
        assert_ptr_equal(framework_of_output("TAP version 14\nok 1\n"), &framework_tap);
        assert_null(framework_of_output("Compiling x\nFinished\n"));
}

static void a_last_line_says_whether_all_passed(void **state) {
        static const struct { const struct framework *f; const char *text; bool passed; } table[] = {
                {&framework_pytest, "..  [100%]\n2 passed in 0.01s\n", true},
                {&framework_pytest, "=== 2 passed, 1 skipped, 1 warning in 1.2s ===\n", true},
                {&framework_pytest, "=== 1 failed, 2 passed in 0.01s ===\n", false},
                {&framework_pytest, "2 passed in 0.01s\n1 failed, 1 passed in 0.01s\n", false},
                {&framework_pytest, "2 passed, 1 error in 0.01s\n", false},
                {&framework_pytest, "no tests ran in 0.01s\n", false},
                {&framework_pytest, "0 passed in 0.01s\n", false},
                {&framework_pytest, "", false},
                {&framework_unittest, "..\n----\nRan 2 tests in 0.1s\n\nOK\n", true},
                {&framework_unittest, "----\nRan 0 tests in 0.1s\n\nOK\n", false},
                {&framework_unittest, "F\n----\nRan 1 test in 0.1s\n\nFAILED (failures=1)\n", false},
        };
        for (size_t i = 0; i < ARRAY_SIZE(table); i++)
                if (table[i].f->passed(table[i].text) != table[i].passed)
                        fail_msg("%s", table[i].text);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(pytest_verbose_lines_and_summary_are_read),
                cmocka_unit_test(any_non_pass_of_the_same_id_wins),
                cmocka_unit_test(unittest_outcomes_are_read_with_docstrings_and_prints_between),
                cmocka_unit_test(unittest_ids_have_one_canonical_form),
                cmocka_unit_test(go_text_and_json_are_read),
                cmocka_unit_test(cargo_outcomes_are_read),
                cmocka_unit_test(tap_directives_and_depth_are_respected),
                cmocka_unit_test(text_is_cleaned),
                cmocka_unit_test(frameworks_are_recognised_by_what_they_print),
                cmocka_unit_test(a_last_line_says_whether_all_passed),
        };
        return cmocka_run_group_tests_name("score/framework", tests, NULL, NULL);
}
