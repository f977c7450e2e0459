#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/json.h"
#include "base/strv.h"
#include "score/record.h"

/* The record of a typical resolved run, encoded once a test. */
struct fixture { struct score_record r; struct buf text; struct json doc; };

static int setup(void **state) {
        struct fixture *f = calloc(1, sizeof *f);
        score_record_init(&f->r);
        buf_init(&f->text, 64 << 20);
        f->r.ran = f->r.patch_applied = f->r.test_patch_applied = true;
        f->r.exit_code = 0;
        f->r.outcome = OUTCOME_RESOLVED;
        f->r.channel = CHANNEL_PRIVATE;
        f->r.rung = RUNG_STRICT;
        f->r.timeout_ms = 300000;
        f->r.repo_url = strdup("file:///r");
        *state = f;
        return 0;
}

static int teardown(void **state) {
        struct fixture *f = *state;
        score_record_release(&f->r);
        buf_release(&f->text);
        free(f);
        return 0;
}

static void encode(struct fixture *f) {
        buf_reset(&f->text);
        assert_int_equal(score_record_encode(&f->r, "some-id", "/task/some-id/log", &f->text), 0);
        assert_int_equal(json_parse(f->text.data, f->text.len, &f->doc, NULL), 0);
}

/* The raw JSON of a top-level field. */
static void check(struct fixture *f, const char *key, const char *want) {
        struct json v;
        assert_true(json_get(&f->doc, key, &v));
        if (v.n != strlen(want) || memcmp(v.p, want, v.n) != 0)
                fail_msg("%s is %.*s, not %s", key, (int)v.n, v.p, want);
}

static void every_key_is_there(void **state) {
        static const char *const keys[] = {
                "task_id", "status", "mode", "repo_url", "base_commit", "test_command", "image", "timeout", "exit_code", "stdout", "stderr",
                "tests_passed", "tests_failed", "lint_errors", "lint_output", "patch_diff", "patch_similarity", "execution_time",
                "patch_applied", "test_patch_applied", "result_files", "outcome", "limits_hit", "integrity", "error", "reason", "resolved", "timed_out",
                "tests", "fail_to_pass", "pass_to_pass", "unverified", "flaky", "cached", "patch_rung", "restored", "framework", "report_route", "report_channel", "usage",
                "timing", "log_url", "evidence", "provenance",
        };
        struct fixture *f = *state;
        score_record_release(&f->r);   /* even of a record about which nothing is known */
        encode(f);
        for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
                struct json v;
                if (!json_get(&f->doc, keys[i], &v))
                        fail_msg("no %s", keys[i]);
        }
        assert_int_equal(json_count(&f->doc), ARRAY_SIZE(keys));
}

static void what_does_not_apply_is_null(void **state) {
        static const char *const nulls[] = {
                "image", "lint_errors", "lint_output", "patch_diff", "patch_similarity", "result_files", "error", "reason", "fail_to_pass", "pass_to_pass",
                "evidence",
        };
        struct fixture *f = *state;
        encode(f);
        for (size_t i = 0; i < ARRAY_SIZE(nulls); i++)
                check(f, nulls[i], "null");
        check(f, "usage", "{\"wall_ms\":null,\"cpu_ms\":null,\"memory_peak_bytes\":null,\"pids_peak\":null,\"disk_bytes\":null,\"network\":null}");
        check(f, "limits_hit", "[]");
        check(f, "unverified", "[]");
        check(f, "restored", "[]");
        check(f, "tests", "{}");
}

static void completed_keeps_the_exit_status(void **state) {
        struct fixture *f = *state;
        f->r.outcome = OUTCOME_OOM;
        f->r.exit_code = 137;
        f->r.stderr_text = strdup("killed"); f->r.stderr_len = 6;
        f->r.limits_hit[LIMIT_MEMORY] = f->r.limits_hit[LIMIT_OUTPUT] = true;
        encode(f);
        check(f, "status", "\"completed\"");
        check(f, "exit_code", "137");
        check(f, "stderr", "\"killed\"");
        check(f, "limits_hit", "[\"oom\",\"output_limit\"]");
        check(f, "resolved", "false");
}

static void failed_is_minus_one_with_the_reason(void **state) {
        struct fixture *f = *state;
        f->r.outcome = OUTCOME_TIMEOUT;
        f->r.timed_out = true;
        f->r.exit_code = 137;
        f->r.stderr_text = strdup("warn"); f->r.stderr_len = 4;
        encode(f);
        check(f, "status", "\"failed\"");
        check(f, "exit_code", "-1");
        check(f, "stderr", "\"warn\\nTimed out after 300 s\"");
        check(f, "error", "null");
        check(f, "timed_out", "true");
        f->r.timed_out = false;            /* it was not test_command's own time */
        f->r.limits_hit[LIMIT_WALL] = true;
        encode(f);
        check(f, "stderr", "\"warn\\nThe sandbox's time (limits.wall_s) is over\"");
        check(f, "timed_out", "true");
}

static void a_rejected_patch_says_why(void **state) {
        struct fixture *f = *state;
        f->r.outcome = OUTCOME_PATCH_REJECTED;
        f->r.error_message = strdup("a.py: hunk 1 does not apply");
        encode(f);
        check(f, "status", "\"completed\"");
        check(f, "reason", "\"a.py: hunk 1 does not apply\"");
        check(f, "stderr", "\"\"");
        check(f, "error", "null");
}

static void infra_error_has_code_and_message(void **state) {
        struct fixture *f = *state;
        f->r.outcome = OUTCOME_INFRA_ERROR;
        f->r.error_code = strdup("commit_not_found");
        f->r.error_message = strdup("no commit abc");
        encode(f);
        check(f, "error", "{\"code\":\"commit_not_found\",\"message\":\"no commit abc\"}");
        check(f, "stderr", "\"no commit abc\"");
        check(f, "status", "\"failed\"");
}

static void counts_are_of_outcomes(void **state) {
        struct fixture *f = *state;
        static const enum test_status st[] = { TEST_PASSED, TEST_PASSED, TEST_XPASSED, TEST_FAILED, TEST_ERROR, TEST_SKIPPED, TEST_XFAILED, TEST_MISSING };
        for (size_t i = 0; i < ARRAY_SIZE(st); i++)
                test_results_put(&f->r.tests, (char[]){ (char)('a' + i), 0 }, st[i]);
        encode(f);
        check(f, "tests_passed", "2");
        check(f, "tests_failed", "2");
        check(f, "tests", "{\"a\":\"passed\",\"b\":\"passed\",\"c\":\"xpassed\",\"d\":\"failed\",\"e\":\"error\",\"f\":\"skipped\",\"g\":\"xfailed\",\"h\":\"missing\"}");
}

static void bytes_that_are_not_utf8_are_carried(void **state) {
        struct fixture *f = *state;
        f->r.stdout_text = malloc(5);
        memcpy(f->r.stdout_text, "a\xff\0b\n", 5);
        f->r.stdout_len = 5;
        encode(f);
        check(f, "stdout", "\"a\xef\xbf\xbd\\u0000b\\n\"");
}

static void expectations_and_findings_are_spelled_out(void **state) {
        struct fixture *f = *state;
        strv_push(&f->r.f2p_success, "a"); strv_ensure(&f->r.f2p_failure);
        strv_ensure(&f->r.p2p_success); strv_push(&f->r.p2p_failure, "b");
        findings_add(&f->r.findings, INTEGRITY_SUSPECT, "test_file_edited", "t.py", NULL);
        encode(f);
        check(f, "fail_to_pass", "{\"success\":[\"a\"],\"failure\":[]}");
        check(f, "pass_to_pass", "{\"success\":[],\"failure\":[\"b\"]}");
        check(f, "integrity", "{\"verdict\":\"suspect\",\"findings\":[{\"kind\":\"test_file_edited\",\"path\":\"t.py\",\"detail\":null}]}");
}

static void numbers_are_rounded_as_the_wire_says(void **state) {
        struct fixture *f = *state;
        f->r.patch_similarity = 2.0 / 3;
        f->r.execution_ms = 1234;
        f->r.timeout_ms = 1500;
        f->r.lint_ran = true; f->r.lint_errors = 3;
        encode(f);
        check(f, "patch_similarity", "0.6667");
        check(f, "execution_time", "1.234");
        check(f, "timeout", "1.5");
        check(f, "lint_errors", "3");
        f->r.lint_errors = -1;
        encode(f);
        check(f, "lint_errors", "null");
        check(f, "lint_output", "\"\"");
}

static void over_the_limit_is_an_error(void **state) {
        struct fixture *f = *state;
        struct buf small = BUF_INIT(100);
        assert_int_equal(score_record_encode(&f->r, "id", NULL, &small), -ENOSPC);
        buf_release(&small);
}

static void echo_hides_credentials(void **state) {
        struct fixture *f = *state;
        char url[] = "https://u:secret@example.com/r", commit[] = "HEAD", cmd[] = "true", image[] = "/images/x";
        struct score_request q = { .repo_url = url, .base_commit = commit, .test_command = cmd, .image = image, .timeout_ms = 7000 };
        assert_int_equal(score_record_echo(&f->r, &q), 0);
        encode(f);
        check(f, "repo_url", "\"https://***@example.com/r\"");
        check(f, "base_commit", "\"HEAD\"");
        check(f, "timeout", "7");
        check(f, "image", "null");
        q.image_given = true;
        assert_int_equal(score_record_echo(&f->r, &q), 0);
        encode(f);
        check(f, "image", "\"/images/x\"");
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
        const struct CMUnitTest tests[] = {
                T(every_key_is_there), T(what_does_not_apply_is_null), T(completed_keeps_the_exit_status), T(failed_is_minus_one_with_the_reason),
                T(infra_error_has_code_and_message), T(a_rejected_patch_says_why), T(counts_are_of_outcomes), T(bytes_that_are_not_utf8_are_carried),
                T(expectations_and_findings_are_spelled_out), T(numbers_are_rounded_as_the_wire_says), T(over_the_limit_is_an_error),
                T(echo_hides_credentials),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
