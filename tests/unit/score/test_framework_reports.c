#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fs.h"
#include "score/framework.h"

#define CORPUS SOURCE_ROOT "/tests/fuzz/corpus/frameworks/"

/* What the tool wrote: without the line that names framework and kind. */
static void load(const char *name, struct buf *b) {
        char path[512];
        snprintf(path, sizeof(path), CORPUS "%s", name);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        assert_true(fd >= 0);
        assert_int_equal(fs_read_fd(fd, b), 0);
        close(fd);
}

static int read_named(const char *name, const struct test_results *wanted, struct test_results *ret, bool *ret_structured) {
        _cleanup_buf_ struct buf b = BUF_INIT(1 << 20);
        load(name, &b);
        char *end = strchr(b.data, '\n'), *blank = strchr(b.data, ' ');
        *end = *blank = 0;
        const struct framework *f = framework_by_name(b.data);
        struct sink s = {.tests = ret, .wanted = wanted, .tree = "/testbed"};
        size_t n = b.len - (size_t)(end + 1 - b.data);
        assert_non_null(f);
        if (blank[1] == 'r')
                return f->report(end + 1, n, &s);
        char *clean = framework_clean(end + 1, n);
        int r = f->parse(clean, &s);
        free(clean);
        if (ret_structured)
                *ret_structured = s.structured;
        return r;
}

/* "id=status" joined by newlines. */
static void expect(const char *name, const char *want) {
        struct test_results t = {0};
        char out[4096] = "";
        size_t at = 0;
        assert_int_equal(read_named(name, NULL, &t, NULL), 0);
        for (size_t i = 0; i < t.n; i++)
                at += (size_t)snprintf(out + at, sizeof(out) - at, "%s=%s\n", t.items[i].id, test_status_to_string(t.items[i].status));
        assert_string_equal(out, want);
        test_results_release(&t);
}

static void expect_refused(const char *name) {
        struct test_results t = {0};
        assert_int_equal(read_named(name, NULL, &t, NULL), -EBADMSG);
        test_results_release(&t);
}

static void expect_under(const char *name, const char *id, enum test_status st) {
        struct test_results t = {0}, wanted = {0};
        assert_int_equal(test_results_put(&wanted, id, TEST_PASSED), 0);
        assert_int_equal(read_named(name, &wanted, &t, NULL), 0);
        if (test_results_get(&t, id) != st)
                fail_msg("%s: %s is %s", name, id, test_status_to_string(test_results_get(&t, id)));
        test_results_release(&t);
        test_results_release(&wanted);
}

static void node_is_read_by_report_and_text(void **state) {
        static const char *const want = "outer # one > inner > adds [1, 2]=passed\nouter # one > inner > fails ünïcode=failed\nouter # one > later=skipped\n"
                "outer # one > someday=xfailed\n%stop > level \"q\"=passed\ngreen > works=passed\n";
        char report[1024], text[1024];
        snprintf(report, sizeof(report), want, "outer # one=failed\n");
        snprintf(text, sizeof(text), want, "");
        expect("node-report", report);
        expect("node-text", text);
        expect("node-text-18", text);           /* closes a group with its opening mark */
        size_t n = strlen(report);              /* it names a file that failed, too */
        snprintf(report + n, sizeof(report) - n, "a.test.js=failed\n");
        expect("node-report-18", report);
}

#define JEST(sep, file) \
        file "outer [1, 2]" sep "inner" sep "adds ü \"q\"=passed\n" file "outer [1, 2]" sep "inner" sep "fails=failed\n" file "outer [1, 2]" sep "later=skipped\n" \
        file "outer [1, 2]" sep "someday=skipped\n" file "outer [1, 2]" sep "param 1 (2)=passed\n" file "top=passed\n"

static void jest_is_read_by_report_and_text(void **state) {
        expect("jest-report", "a.test.mjs=error\n" JEST(" ", "") "broken.test.mjs=error\nj/broken.test.js=error\n");
        expect("jest-text", "v/a.test.mjs=error\ntop=passed\nouter [1, 2] param 1 (2)=passed\nouter [1, 2] later=skipped\nouter [1, 2] someday=skipped\n"
               "outer [1, 2] inner adds ü \"q\"=passed\nouter [1, 2] inner fails=failed\nv/broken.test.mjs=error\nj/broken.test.js=error\n");
}

static void vitest_is_read_by_report_and_text(void **state) {
        expect("vitest-report", JEST(" > ", "a.test.mjs > ") "broken.test.mjs=error\n");
        expect("vitest-text", JEST(" > ", "a.test.mjs > ") "broken.test.mjs=error\n");
}

static void mocha_is_read_by_report_and_text(void **state) {
        static const char *const hook = "outer [1, 2] hooked \"before each\" hook for \"never\"=failed\n";
        char report[1024], text[1024];
        snprintf(report, sizeof(report), "top=passed\nouter [1, 2] param 1 (2)=passed\nouter [1, 2] inner adds ü \"q\"=passed\nouter [1, 2] later=skipped\n"
                 "outer [1, 2] inner fails=failed\n%s", hook);
        snprintf(text, sizeof(text), "top=passed\nouter [1, 2] later=skipped\nouter [1, 2] param 1 (2)=passed\nouter [1, 2] inner adds ü \"q\"=passed\n"
                 "outer [1, 2] inner fails=failed\n%s", hook);
        expect("mocha-report", report);
        expect("mocha-text", text);
}

static void go_is_read_by_json_and_text(void **state) {
        expect("go-text-json", "TestOk=passed\nTestSub=failed\nTestSub/a_b_(x)=passed\nTestSub/ü=failed\nTestSkip=skipped\nTestPanic=failed\n");
        expect("go-text", "TestOk=passed\nTestSub=failed\nTestSub/a_b_(x)=passed\nTestSub/ü=failed\nTestSkip=skipped\nTestPanic=failed\n");
        expect_under("go-text-json", "example.com/m/sub TestPanic", TEST_FAILED);
}

static void cargo_is_read_with_prints_between(void **state) {
        expect("cargo-text", "tests::later=skipped\ntests::ok=passed\ntests::panics=passed\ntests::prints=passed\ntests::bad=failed\nsrc/lib.rs - f (line 1)=passed\n");
        expect("cargo-text-nocapture", "tests::bad=failed\ntests::later=skipped\ntests::ok=passed\ntests::panics=passed\ntests::prints=passed\n");
}

static void ctest_is_read_by_report_and_text(void **state) {
        static const char *const want = "good one=passed\nbad=failed\nskip=skipped\noff=skipped\nnowhere=error\nsegv=failed\nslow=failed\nfx=failed\nneeds=error\n";
        expect("ctest-report", want);
        expect("ctest-text", want);
}

static void gtest_is_read_by_report_and_text(void **state) {
        expect("gtest-report", "Plain.Works=passed\nPlain.Fails=failed\nPlain.DISABLED_Off=skipped\nPlain.Skips=skipped\nAll/P.Takes/0=passed\nAll/P.Takes/1=failed\n");
        expect("gtest-text", "Plain.Works=passed\nPlain.Fails=failed\nPlain.Skips=skipped\nAll/P.Takes/0=passed\nAll/P.Takes/1=failed\n");
}

static void maven_is_read_by_report_and_text(void **state) {
        expect("maven-report", "p.ATest.ok=passed\np.ATest.bad=failed\np.ATest.off=skipped\np.ATest.boom=error\n"
               "p.ATest.takes(String)[1]=passed\np.ATest.takes(String)[2]=passed\np.ATest$In.deep=passed\n");
        expect("maven-text", "p.ATest.bad=failed\np.ATest.boom=error\n");
        expect("maven-text-gradle", "p.ATest.ok=passed\np.ATest.bad=failed\np.Old.bad=failed\n");
}

static void django_is_read_with_docstrings_prints_and_subtests(void **state) {
        expect_under("django-text", "Says what (it) does ... ok.", TEST_PASSED);
        static const struct { const char *id; enum test_status st; } table[] = {
                {"test_bad (app.tests.T.test_bad)", TEST_FAILED}, {"test_doc (app.tests.T.test_doc)", TEST_PASSED}, {"test_error (app.tests.T.test_error)", TEST_ERROR},
                {"test_ok (app.tests.T.test_ok)", TEST_PASSED}, {"test_skip (app.tests.T.test_skip)", TEST_SKIPPED}, {"test_sub (app.tests.T.test_sub)", TEST_FAILED},
                {"test_xfail (app.tests.T.test_xfail)", TEST_XFAILED},
        };
        for (size_t i = 0; i < ARRAY_SIZE(table); i++)
                expect_under("django-text", table[i].id, table[i].st);
}

static void sympy_is_read_with_reasons_and_prints_between(void **state) {
        expect("sympy-text", "test_ok=passed\ntest_bad=failed\ntest_boom=error\ntest_known=xfailed\ntest_knownpass=xpassed\ntest_skips=skipped\ntest_skipped=skipped\n"
               "test_prints=passed\ntest_other=passed\n");
        expect_under("sympy-text", "sympy/core/tests/test_fine.py:test_bad", TEST_FAILED);
}

static void prove_names_files_where_it_is_not_asked_for_more(void **state) {
        expect("tap-text-prove", "t/a.t=passed\nt/c.t=skipped\nt/d.t=failed\n");
}

static void tests_go_under_the_spelling_that_is_asked_for(void **state) {
        static const struct { const char *name, *id; enum test_status st; } table[] = {
                {"jest-report", "adds ü \"q\"", TEST_PASSED}, {"jest-report", "outer [1, 2] > inner > fails", TEST_FAILED}, {"jest-report", "outer [1, 2] inner fails", TEST_FAILED},
                {"vitest-report", "a.test.mjs | outer [1, 2] later", TEST_SKIPPED}, {"vitest-text", "outer [1, 2] > inner > fails", TEST_FAILED},
                {"mocha-report", "fails", TEST_FAILED}, {"mocha-report", "m/a.js | top", TEST_PASSED}, {"node-report", "inner > fails ünïcode", TEST_MISSING}, {"node-report", "fails ünïcode", TEST_FAILED},
                {"maven-report", "p.ATest#ok", TEST_PASSED}, {"maven-report", "ATest.ok", TEST_PASSED}, {"maven-report", "boom(p.ATest)", TEST_ERROR}, {"maven-report", "p.ATest:bad", TEST_FAILED},
                {"gtest-report", "Takes/1", TEST_FAILED},
        };
        for (size_t i = 0; i < ARRAY_SIZE(table); i++)
                expect_under(table[i].name, table[i].id, table[i].st);
}

static void reports_that_are_none_are_refused(void **state) {
        expect_refused("maven-report-doctype");
        expect_refused("maven-report-cut");
        struct test_results t = {0};
        assert_int_equal(read_named("maven-report-deep", NULL, &t, NULL), -EBADMSG);
        for (size_t i = 0; framework_at(i); i++)
                if (framework_at(i)->report)
                        assert_int_equal(framework_at(i)->report("{}", 2, &(struct sink){.tests = &t}), -EBADMSG);
        assert_int_equal(t.n, 0);
}

static void entities_of_xml_are_decoded_and_nothing_else(void **state) {
        expect("maven-report-entities", "<.a\xf4\x8f\xbf\xbf\xef\xbf\xbd&bogus;&#99999999999;=xfailed\n");
}

static void structured_output_is_told_from_text(void **state) {
        static const struct { const char *name; bool structured; } table[] = {{"go-text-json", true}, {"go-text", false}, {"tap-text", true}, {"tap-text-prove", false}, {"cargo-text", false}};
        for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
                struct test_results t = {0};
                bool structured;
                assert_int_equal(read_named(table[i].name, NULL, &t, &structured), 0);
                assert_int_equal(structured, table[i].structured);
                test_results_release(&t);
        }
}

static void outcomes_of_a_run_have_a_limit(void **state) {
        struct test_results t = {0};
        struct sink s = {.tests = &t, .n_puts = SINK_PUTS_MAX - 1};
        assert_int_equal(framework_cargo.parse("test a ... ok\n", &s), 0);
        assert_int_equal(framework_cargo.parse("test a ... FAILED\n", &s), -ENOSPC);
        assert_int_equal(test_results_get(&t, "a"), TEST_PASSED);
        test_results_release(&t);
}

static void a_long_name_is_cut(void **state) {
        struct test_results t = {0};
        char text[3 * SINK_NAME_MAX];
        memset(text, 'x', sizeof(text) - 1);
        text[sizeof(text) - 1] = 0;
        struct test_name name = {.title = text};
        assert_int_equal(sink_put_name(&(struct sink){.tests = &t}, &name, NAME_FULL, TEST_PASSED), 0);
        assert_int_equal(strlen(t.items[0].id), SINK_NAME_MAX - 1);
        test_results_release(&t);
}

/* Seconds, where a parser looks at a line again for each of its signs: the limit of the test runner then ends it. */
static void long_lines_are_read_once(void **state) {
        static const char *const signs[] = {" . ", " > ", " # ", " (", " ... ", "--- ", "[  FAILED  ] ", "<<< Time elapsed:", "✓ ", "test_a ", " PASSED "};
        for (size_t i = 0; i < ARRAY_SIZE(signs); i++) {
                _cleanup_buf_ struct buf b = BUF_INIT(2 << 20);
                buf_adds(&b, "1/1 Test #1: ");
                while (b.len < (1 << 20))
                        buf_adds(&b, signs[i]);
                for (size_t k = 0; framework_at(k); k++) {
                        struct test_results t = {0};
                        assert_int_equal(framework_at(k)->parse(buf_str(&b), &(struct sink){.tests = &t}), 0);
                        test_results_release(&t);
                }
        }
}

/* 5,000 tests: the time is told, not judged. */
static void a_report_of_many_tests_is_read_whole(void **state) {
        enum { N = 5000 };
        _cleanup_buf_ struct buf x = BUF_INIT(8 << 20), j = BUF_INIT(8 << 20);
        struct test_results a = {0}, b = {0};
        buf_printf(&x, "<testsuites><testsuite>");
        buf_printf(&j, "{\"testResults\":[{\"name\":\"/testbed/a.js\",\"status\":\"passed\",\"assertionResults\":[");
        for (int i = 0; i < N; i++) {
                buf_printf(&x, "<testcase classname=\"org.example.SomeTest\" name=\"test&lt;%d&gt;\" time=\"0.01\"><system-out><![CDATA[printed]]></system-out></testcase>\n", i);
                buf_printf(&j, "%s{\"ancestorTitles\":[\"outer\",\"inner\"],\"title\":\"test %d\",\"status\":\"passed\",\"failureMessages\":[]}", i ? "," : "", i);
        }
        buf_printf(&x, "</testsuite></testsuites>");
        buf_printf(&j, "]}]}");
        uint64_t t0 = now_ns();
        assert_int_equal(framework_maven.report(x.data, x.len, &(struct sink){.tests = &a, .wanted = &b}), 0);
        uint64_t t1 = now_ns();
        assert_int_equal(framework_jest.report(j.data, j.len, &(struct sink){.tests = &b, .wanted = &a}), 0);
        print_message("5000 tests: xml %.1f ms, json %.1f ms\n", (double)(t1 - t0) / 1e6, (double)(now_ns() - t1) / 1e6);
        assert_int_equal(a.n, N);
        assert_int_equal(b.n, N);
        test_results_release(&a);
        test_results_release(&b);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(node_is_read_by_report_and_text),
                cmocka_unit_test(jest_is_read_by_report_and_text),
                cmocka_unit_test(vitest_is_read_by_report_and_text),
                cmocka_unit_test(mocha_is_read_by_report_and_text),
                cmocka_unit_test(go_is_read_by_json_and_text),
                cmocka_unit_test(cargo_is_read_with_prints_between),
                cmocka_unit_test(ctest_is_read_by_report_and_text),
                cmocka_unit_test(gtest_is_read_by_report_and_text),
                cmocka_unit_test(maven_is_read_by_report_and_text),
                cmocka_unit_test(django_is_read_with_docstrings_prints_and_subtests),
                cmocka_unit_test(sympy_is_read_with_reasons_and_prints_between),
                cmocka_unit_test(prove_names_files_where_it_is_not_asked_for_more),
                cmocka_unit_test(tests_go_under_the_spelling_that_is_asked_for),
                cmocka_unit_test(reports_that_are_none_are_refused),
                cmocka_unit_test(entities_of_xml_are_decoded_and_nothing_else),
                cmocka_unit_test(structured_output_is_told_from_text),
                cmocka_unit_test(outcomes_of_a_run_have_a_limit),
                cmocka_unit_test(a_long_name_is_cut),
                cmocka_unit_test(long_lines_are_read_once),
                cmocka_unit_test(a_report_of_many_tests_is_read_whole),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
