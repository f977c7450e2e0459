#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "score/report.h"

#define NONCE "0123456789abcdef0123456789abcdef"
#define E(n, rest) "{\"k\":\"" NONCE "\",\"n\":" #n "," rest "}\n"
#define HEAD E(0, "\"e\":\"start\",\"framework\":\"pytest\",\"version\":\"7\",\"tree\":[]") \
             E(1, "\"e\":\"ids\",\"ids\":[\"a.py::x\",\"a.py::y[a b]\"]") E(2, "\"e\":\"collected\",\"count\":2")
#define BODY E(3, "\"e\":\"run\",\"i\":0") E(4, "\"e\":\"test\",\"i\":0,\"p\":\"spcptp\",\"d\":1") \
             E(5, "\"e\":\"run\",\"i\":1") E(6, "\"e\":\"test\",\"i\":1,\"p\":\"spcptp\",\"d\":1")
#define END E(7, "\"e\":\"end\",\"x\":0,\"tests\":2,\"bad\":0")

/* "id=status;... | finding ... | verdict[ incomplete]" */
static const char *judge(const char *events, int status, bool killed, const struct framework *f, const char *const *ids) {
        static char out[4096];
        struct report r;
        struct test_results tests = {0};
        struct findings findings = {0};
        bool incomplete;
        size_t at = 0;
        report_init(&r, NONCE);
        for (const char *p = events; *p; p++)          /* byte by byte: lines are joined */
                assert_int_equal(report_feed(&r, p, 1), 0);
        struct report_exit x = {.killed = killed, .status = status};
        assert_int_equal(report_finish(&r, &x, f, ids, &tests, &findings, &incomplete), 0);
        for (size_t i = 0; i < tests.n; i++)
                at += (size_t)snprintf(out + at, sizeof(out) - at, "%s=%s;", tests.items[i].id, test_status_to_string(tests.items[i].status));
        at += (size_t)snprintf(out + at, sizeof(out) - at, " |");
        for (size_t i = 0; i < findings.n; i++)
                at += (size_t)snprintf(out + at, sizeof(out) - at, " %s", findings.items[i].kind);
        snprintf(out + at, sizeof(out) - at, " | %s%s", integrity_to_string(findings.verdict), incomplete ? " incomplete" : "");
        test_results_release(&tests);
        findings_release(&findings);
        report_release(&r);
        return out;
}
static const char *pytest(const char *events, int status) { return judge(events, status, false, &framework_pytest, NULL); }
#define EXITED(n) ((n) << 8)

static void a_whole_run_is_clean(void **state) {
        assert_string_equal(pytest(HEAD BODY END, 0), "a.py::x=passed;a.py::y[a b]=passed; | | clean");
}

static void phases_become_a_status(void **state) {
        static const struct { const char *phases, *status; } table[] = {
                {"spcptp", "passed"}, {"spcftp", "failed"}, {"sstp", "skipped"}, {"spcxtp", "xfailed"}, {"spcXtp", "xpassed"}, {"sftp", "error"},
                {"spcptf", "error"}, {"spcste", "error"}, {"cp", "passed"}, {"ce", "error"}, {"cfcp", "failed"}, {"sptp", "error"}, {"", "error"},
        };
        for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
                char events[1024], want[64];
                snprintf(events, sizeof(events), HEAD "{\"k\":\"" NONCE "\",\"n\":3,\"e\":\"test\",\"i\":0,\"p\":\"%s\"}\n", table[i].phases);
                snprintf(want, sizeof(want), "a.py::x=%s;", table[i].status);
                const char *got = judge(events, 9, true, &framework_pytest, NULL);
                assert_memory_equal(got, want, strlen(want));
        }
}

static void leaving_without_an_end_is_found(void **state) {
        assert_string_equal(pytest(HEAD BODY, 0), "a.py::x=passed;a.py::y[a b]=passed; | no_end_record | violated incomplete");
        assert_string_equal(pytest(HEAD, 11), " | no_end_record | suspect incomplete");
        assert_string_equal(pytest("", 0), " | no_end_record | violated incomplete");
}

static void a_run_that_we_ended_keeps_what_was_finished(void **state) {
        assert_string_equal(judge(HEAD E(3, "\"e\":\"test\",\"i\":0,\"p\":\"spcptp\""), 9, true, &framework_pytest, NULL),
                            "a.py::x=passed; | | clean incomplete");
}

static void what_does_not_fit_together_is_found(void **state) {
        static const struct { const char *events; int status; const char *finding; } table[] = {
                {HEAD BODY END "{\"k\":\"00000000000000000000000000000000\",\"n\":8,\"e\":\"end\"}\n", 0, "forged_event | violated"},
                {HEAD BODY END "garbage\n", 0, "forged_event | violated"},
                {HEAD BODY END "{\"n\":8,\"e\":\"run\"}\n", 0, "forged_event | violated"},
                {HEAD BODY END "\n", 0, "forged_event | violated"},
                {HEAD BODY E(6, "\"e\":\"test\",\"i\":1,\"p\":\"spcptp\"") END, 0, "sequence_repeat | violated"},
                {HEAD BODY E(8, "\"e\":\"end\",\"x\":0,\"tests\":2,\"bad\":0"), 0, "sequence_gap | suspect"},
                {HEAD BODY END E(8, "\"e\":\"test\",\"i\":0,\"p\":\"spcptp\""), 0, "event_after_end | violated"},
                {HEAD BODY END E(8, "\"e\":\"end\",\"x\":0,\"tests\":2,\"bad\":0"), 0, "event_after_end | violated"},
                {E(0, "\"e\":\"test\",\"i\":0,\"p\":\"spcptp\"") E(1, "\"e\":\"end\",\"x\":0,\"tests\":0,\"bad\":0"), 0, "event_order | violated"},
                {HEAD E(3, "\"e\":\"ids\",\"ids\":[\"late\"]") E(4, "\"e\":\"end\",\"x\":5,\"tests\":0,\"bad\":0"), EXITED(5), "event_order | violated"},
                {HEAD E(3, "\"e\":\"test\",\"i\":2,\"p\":\"spcptp\"") E(4, "\"e\":\"end\",\"x\":0,\"tests\":0,\"bad\":0"), 0, "unknown_test | violated"},
                {HEAD E(3, "\"e\":\"test\",\"i\":-1,\"p\":\"spcptp\"") E(4, "\"e\":\"end\",\"x\":0,\"tests\":0,\"bad\":0"), 0, "unknown_test | violated"},
                {HEAD BODY E(7, "\"e\":\"end\",\"x\":0,\"tests\":3,\"bad\":0"), 0, "count_mismatch | violated"},
                {HEAD BODY E(7, "\"e\":\"nothing\"") E(8, "\"e\":\"end\",\"x\":0,\"tests\":2,\"bad\":0"), 0, "forged_event | violated"},
                {HEAD BODY END, EXITED(1), "exit_status_mismatch | violated"},
                {HEAD BODY E(7, "\"e\":\"end\",\"x\":1,\"tests\":2,\"bad\":0"), EXITED(1), "exit_status_mismatch | suspect"},
                {HEAD BODY E(7, "\"e\":\"end\",\"x\":5,\"tests\":2,\"bad\":0"), EXITED(5), "exit_status_mismatch | suspect"},
                {HEAD BODY E(7, "\"e\":\"other\",\"id\":\"z\",\"p\":\"cp\"") E(8, "\"e\":\"end\",\"x\":0,\"tests\":2,\"bad\":0"), 0, "not_collected | suspect"},
        };
        for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
                const char *got = pytest(table[i].events, table[i].status);
                if (!strstr(got, table[i].finding))
                        fail_msg("row %zu: %s instead of %s", i, got, table[i].finding);
        }
}

static void an_outcome_that_came_twice_keeps_the_graver(void **state) {
        assert_string_equal(judge(HEAD E(3, "\"e\":\"test\",\"i\":0,\"p\":\"spcftp\"") E(4, "\"e\":\"test\",\"i\":0,\"p\":\"spcptp\""), 9, true,
                                  &framework_pytest, NULL), "a.py::x=failed; | | clean incomplete");
}

static void a_failure_of_a_test_that_was_not_listed_counts(void **state) {
        const char *got = pytest(HEAD BODY E(7, "\"e\":\"other\",\"id\":\"z\",\"p\":\"cf\"") E(8, "\"e\":\"end\",\"x\":1,\"tests\":2,\"bad\":0"), EXITED(1));
        assert_string_equal(got, "a.py::x=passed;a.py::y[a b]=passed;z=failed; | | clean");
}

static void ids_in_files_that_broke_are_errors_and_in_skipped_ones_skipped(void **state) {
        static const char *const ids[] = {"b.py::z", "c.py::z", "d.py::z", NULL};
        const char *events = HEAD BODY E(7, "\"e\":\"broken\",\"path\":\"b.py\",\"text\":\"ImportError\"")
                E(8, "\"e\":\"skipped\",\"path\":\"c.py\",\"text\":\"\"") E(9, "\"e\":\"end\",\"x\":2,\"tests\":2,\"bad\":0");
        assert_string_equal(judge(events, EXITED(2), false, &framework_pytest, ids),
                            "a.py::x=passed;a.py::y[a b]=passed;b.py=error;b.py::z=error;c.py::z=skipped; | | clean");
}

static void what_the_command_names_in_vain_is_missing(void **state) {
        const char *events = HEAD E(3, "\"e\":\"missing\",\"ids\":[\"a.py::gone\",\"b.py::t\",\"c.py::t\"]") E(4, "\"e\":\"broken\",\"path\":\"b.py\",\"text\":\"x\"")
                E(5, "\"e\":\"skipped\",\"path\":\"c.py\",\"text\":\"x\"") E(6, "\"e\":\"end\",\"x\":1,\"tests\":0,\"bad\":0");
        assert_string_equal(judge(events, 1 << 8, false, &framework_pytest, NULL),
                            "b.py=error;a.py::x=missing;a.py::y[a b]=missing;a.py::gone=missing;b.py::t=error;c.py::t=skipped; | | clean");
        const char *odd = E(0, "\"e\":\"missing\",\"ids\":[\"a.py::gone\"]");
        assert_string_equal(judge(odd, 0, true, &framework_pytest, NULL), " | event_order | violated incomplete");
}

static bool left_early(const char *events) {
        struct report r;
        report_init(&r, NONCE);
        assert_int_equal(report_feed(&r, events, strlen(events)), 0);
        bool early = report_left_early(&r);
        report_release(&r);
        return early;
}

static void who_leaves_before_any_test_left_early(void **state) {
        static const char start[] = E(0, "\"e\":\"start\",\"framework\":\"pytest\",\"version\":\"7\",\"tree\":[]");
        char text[1024];
        assert_false(left_early(""));                                          /* the runner never came to life */
        assert_true(left_early(start));                                        /* gone while it looked for tests */
        assert_true(left_early(HEAD));                                         /* gone before the first one */
        assert_true(left_early(HEAD E(3, "\"e\":\"end\",\"x\":0,\"tests\":0,\"bad\":0")));
        snprintf(text, sizeof text, "%s%s", start, E(1, "\"e\":\"end\",\"x\":0,\"tests\":0,\"bad\":0"));
        assert_true(left_early(text));
        snprintf(text, sizeof text, "%s%s", start, E(1, "\"e\":\"end\",\"x\":4,\"tests\":0,\"bad\":0"));
        assert_false(left_early(text));                                        /* a wrong option */
        snprintf(text, sizeof text, "%s%s%s", start, E(1, "\"e\":\"collected\",\"count\":0"), E(2, "\"e\":\"end\",\"x\":5,\"tests\":0,\"bad\":0"));
        assert_false(left_early(text));                                        /* there are none */
}

static void outcomes_carry_the_spelling_that_was_asked_for(void **state) {
        static const char *const ids[] = {"x (m.C)", "m.C.x", "y (m.C.y)", NULL};
        const char *events = E(0, "\"e\":\"start\"") E(1, "\"e\":\"ids\",\"ids\":[\"m.C.x\",\"m.C.y\",\"m.C.z\"]") E(2, "\"e\":\"collected\",\"count\":3")
                E(3, "\"e\":\"test\",\"i\":0,\"p\":\"cp\"") E(4, "\"e\":\"test\",\"i\":1,\"p\":\"cs\"") E(5, "\"e\":\"test\",\"i\":2,\"p\":\"cp\"")
                E(6, "\"e\":\"end\",\"x\":0,\"tests\":3,\"bad\":0");
        const char *got = judge(events, 0, false, &framework_unittest, ids);
        assert_non_null(strstr(got, "x (m.C)=passed;"));
        assert_non_null(strstr(got, "m.C.x=passed;"));
        assert_non_null(strstr(got, "y (m.C.y)=skipped;m.C.z=passed; | | clean"));
}

static void a_line_over_the_limit_is_dropped_and_the_next_is_read(void **state) {
        struct report r;
        report_init(&r, NONCE);
        assert_int_equal(report_feed(&r, HEAD, strlen(HEAD)), 0);
        static char long_part[REPORT_LINE_MAX];
        memset(long_part, 'x', sizeof(long_part));
        assert_int_equal(report_feed(&r, long_part, sizeof(long_part)), 0);
        assert_int_equal(report_feed(&r, "y\n", 2), 0);
        assert_int_equal(report_feed(&r, BODY, strlen(BODY)), 0);
        assert_non_null(r.faults[FAULT_REPORT_LIMIT]);
        assert_int_equal(r.n_events, 2);
        report_release(&r);
}

static void collect(struct report *r, const char *events) {
        report_init(r, NONCE);
        assert_int_equal(report_feed(r, events, strlen(events)), 0);
}

static void a_pass_that_our_own_collection_does_not_know_is_found(void **state) {
        struct report r, own, broken;
        struct findings f = {0};
        collect(&r, HEAD BODY END);
        collect(&own, E(0, "\"e\":\"start\"") E(1, "\"e\":\"ids\",\"ids\":[\"a.py::x\"]") E(2, "\"e\":\"collected\",\"count\":1")
                E(3, "\"e\":\"end\",\"x\":0,\"tests\":0,\"bad\":0"));
        collect(&broken, E(0, "\"e\":\"start\"") E(1, "\"e\":\"ids\",\"ids\":[\"a.py::x\"]") E(2, "\"e\":\"collected\",\"count\":1")
                E(3, "\"e\":\"broken\",\"path\":\"a.py\"") E(4, "\"e\":\"end\",\"x\":2,\"tests\":0,\"bad\":0"));
        assert_int_equal(report_check_collection(&r, &own, &f), 0);
        assert_int_equal(f.n, 1);
        assert_string_equal(f.items[0].kind, "not_in_own_collection");
        assert_string_equal(f.items[0].detail, "a.py::y[a b]");
        assert_int_equal(report_check_collection(&r, &broken, &f), 0);
        assert_int_equal(f.n, 1);
        findings_release(&f);
        report_release(&r);
        report_release(&own);
        report_release(&broken);
}

static void a_test_that_only_our_own_collection_has_is_found(void **state) {
        struct report r, own;
        struct findings f = {0};
        collect(&r, HEAD BODY END);
        collect(&own, E(0, "\"e\":\"start\"") E(1, "\"e\":\"ids\",\"ids\":[\"a.py::x\",\"a.py::y[other]\"]") E(2, "\"e\":\"collected\",\"count\":2")
                E(3, "\"e\":\"end\",\"x\":0,\"tests\":0,\"bad\":0"));
        assert_int_equal(report_check_complete(&r, &own, &f), 0);
        assert_int_equal(f.n, 0);
        report_release(&own);
        collect(&own, E(0, "\"e\":\"start\"") E(1, "\"e\":\"ids\",\"ids\":[\"a.py::x\",\"a.py::xy\"]") E(2, "\"e\":\"collected\",\"count\":2")
                E(3, "\"e\":\"end\",\"x\":0,\"tests\":0,\"bad\":0"));
        assert_int_equal(report_check_complete(&r, &own, &f), 0);
        assert_int_equal(f.n, 1);
        assert_string_equal(f.items[0].kind, "not_in_run");
        assert_non_null(strstr(f.items[0].detail, "a.py::xy"));
        findings_release(&f);
        report_release(&r);
        report_release(&own);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_whole_run_is_clean),
                cmocka_unit_test(phases_become_a_status),
                cmocka_unit_test(leaving_without_an_end_is_found),
                cmocka_unit_test(a_run_that_we_ended_keeps_what_was_finished),
                cmocka_unit_test(what_does_not_fit_together_is_found),
                cmocka_unit_test(an_outcome_that_came_twice_keeps_the_graver),
                cmocka_unit_test(a_failure_of_a_test_that_was_not_listed_counts),
                cmocka_unit_test(ids_in_files_that_broke_are_errors_and_in_skipped_ones_skipped),
                cmocka_unit_test(what_the_command_names_in_vain_is_missing),
                cmocka_unit_test(who_leaves_before_any_test_left_early),
                cmocka_unit_test(outcomes_carry_the_spelling_that_was_asked_for),
                cmocka_unit_test(a_line_over_the_limit_is_dropped_and_the_next_is_read),
                cmocka_unit_test(a_pass_that_our_own_collection_does_not_know_is_found), cmocka_unit_test(a_test_that_only_our_own_collection_has_is_found),
        };
        return cmocka_run_group_tests_name("score/report", tests, NULL, NULL);
}
