/* The result object of the wire. Keys are the contract's, in its order; what does not apply is null, so that a client finds
 * every key in every record. */
#include <string.h>

#include "base/json.h"
#include "score/record.h"

static void field_present(struct json_writer *w, const char *key, const char *text, bool present) {
        json_put_key(w, key);
        json_put_text(w, present ? text : NULL);
}

static void field_list(struct json_writer *w, const char *key, char *const *list) {
        static char *const none[] = { NULL };
        json_put_key(w, key);
        json_put_texts(w, list ? list : none);
}

static void field_seconds(struct json_writer *w, const char *key, uint64_t ms) {
        json_put_key(w, key);
        if (ms % 1000 == 0)
                json_put_uint(w, ms / 1000);
        else
                json_put_double(w, (double)ms / 1000);
}

/* Why a failed task failed, for a person: the wire has it at the end of stderr. */
static int add_reason(const struct score_record *r, struct buf *b) {
        if (r->error_message)
                return buf_adds(b, r->error_message);
        switch (r->outcome) {
        case OUTCOME_CANCELLED:
                return buf_adds(b, "The task was cancelled");
        case OUTCOME_TEST_PATCH_REJECTED:
                return buf_adds(b, "The test patch does not apply");
        case OUTCOME_TIMEOUT:
                if (!r->timed_out)
                        return buf_adds(b, "The sandbox's time (limits.wall_s) is over");
                return buf_printf(b, "Timed out after %g s", (double)r->timeout_ms / 1000);
        default:
                return buf_adds(b, r->error_code ? r->error_code : "Internal error");
        }
}

static void put_stderr(struct json_writer *w, const struct score_record *r) {
        json_put_key(w, "stderr");
        if (!outcome_is_failure(r->outcome)) {
                json_put_string(w, r->stderr_text ? r->stderr_text : "", r->stderr_len);
                return;
        }
        _cleanup_buf_ struct buf b = BUF_INIT(r->stderr_len + 64 * 1024);
        int x = buf_add(&b, r->stderr_text, r->stderr_len);
        if (x == 0 && b.len > 0 && b.data[b.len - 1] != '\n')
                x = buf_addc(&b, '\n');
        if (x == 0)
                x = add_reason(r, &b);
        if (x < 0 && w->r == 0)
                w->r = x;
        json_put_string(w, buf_str(&b), b.len);
}

static void put_echo(struct json_writer *w, const struct score_record *r, const char *id) {
        json_field_text(w, "task_id", id);
        json_field_text(w, "status", outcome_is_failure(r->outcome) ? "failed" : "completed");
        json_field_text(w, "mode", task_mode_to_string((int)r->mode));
        json_field_text(w, "repo_url", r->repo_url);
        json_field_text(w, "base_commit", r->base_commit);
        json_field_text(w, "test_command", r->test_command);
        json_field_text(w, "image", r->image);
        field_seconds(w, "timeout", r->timeout_ms);
}

static void field_applied(struct json_writer *w, const char *key, const struct score_record *r, bool applied) {
        json_put_key(w, key);
        if (r->has_tree)
                json_put_bool(w, applied);
        else
                json_put_null(w);
}

static void put_core(struct json_writer *w, const struct score_record *r) {
        json_field_int(w, "exit_code", outcome_is_failure(r->outcome) ? -1 : r->exit_code);
        json_field_string(w, "stdout", r->stdout_text ? r->stdout_text : "", r->stdout_len);
        put_stderr(w, r);
        json_field_uint(w, "tests_passed", test_results_count(&r->tests, TEST_PASSED));
        json_field_uint(w, "tests_failed", test_results_count(&r->tests, TEST_FAILED) + test_results_count(&r->tests, TEST_ERROR));
        json_put_key(w, "lint_errors");
        if (r->lint_ran && r->lint_errors >= 0)
                json_put_int(w, r->lint_errors);
        else
                json_put_null(w);
        field_present(w, "lint_output", r->lint_output ? r->lint_output : "", r->lint_ran);
        field_present(w, "patch_diff", r->patch_diff ? r->patch_diff : "", r->diff_captured);
        json_put_key(w, "patch_similarity");
        if (r->patch_similarity < 0)
                json_put_null(w);
        else
                json_put_double(w, (double)(int)(r->patch_similarity * 1e4 + 0.5) / 1e4);
        json_field_double(w, "execution_time", (double)r->execution_ms / 1000);
        field_applied(w, "patch_applied", r, r->patch_applied);
        field_applied(w, "test_patch_applied", r, r->test_patch_applied);
        json_put_key(w, "result_files");
        if (r->result_files)
                json_put_raw(w, r->result_files, r->result_files_len);
        else
                json_put_null(w);
}

static void put_expectation(struct json_writer *w, const char *key, char *const *success, char *const *failure) {
        json_put_key(w, key);
        if (!success) {
                json_put_null(w);
                return;
        }
        json_begin_object(w);
        field_list(w, "success", success);
        field_list(w, "failure", failure);
        json_end_object(w);
}

static void put_findings(struct json_writer *w, const struct findings *f) {
        json_put_key(w, "integrity");
        json_begin_object(w);
        json_field_text(w, "verdict", integrity_to_string(f->verdict));
        json_put_key(w, "findings");
        json_begin_array(w);
        for (size_t i = 0; i < f->n; i++) {
                json_begin_object(w);
                json_field_text(w, "kind", f->items[i].kind);
                json_field_text(w, "path", f->items[i].path);
                json_field_text(w, "detail", f->items[i].detail);
                json_end_object(w);
        }
        json_end_array(w);
        json_end_object(w);
}

static void put_error(struct json_writer *w, const struct score_record *r) {
        json_put_key(w, "error");
        if (r->outcome != OUTCOME_INFRA_ERROR) {
                json_put_null(w);
                return;
        }
        json_begin_object(w);
        json_field_text(w, "code", r->error_code ? r->error_code : "internal");
        json_field_text(w, "message", r->error_message ? r->error_message : "");
        json_end_object(w);
}

static void put_tests(struct json_writer *w, const struct score_record *r) {
        json_put_key(w, "tests");
        json_begin_object(w);
        for (size_t i = 0; i < r->tests.n; i++)
                json_field_text(w, r->tests.items[i].id, test_status_to_string(r->tests.items[i].status));
        json_end_object(w);
        put_expectation(w, "fail_to_pass", r->f2p_success, r->f2p_failure);
        put_expectation(w, "pass_to_pass", r->p2p_success, r->p2p_failure);
        field_list(w, "unverified", r->unverified);
        field_list(w, "flaky", NULL);
}

static void put_verdict(struct json_writer *w, const struct score_record *r) {
        json_field_text(w, "outcome", outcome_to_string(r->outcome));
        json_field_bool(w, "resolved", score_resolved(r));
        json_field_bool(w, "timed_out", r->outcome == OUTCOME_TIMEOUT || r->timed_out);
        put_error(w, r);
        json_field_text(w, "reason", r->error_message);
        json_put_key(w, "limits_hit");
        json_begin_array(w);
        for (int i = 0; i < LIMIT_KIND_MAX; i++)
                if (r->limits_hit[i])
                        json_put_text(w, limit_kind_to_string(i));
        json_end_array(w);
        put_tests(w, r);
        put_findings(w, &r->findings);
        json_field_bool(w, "cached", r->cached);
        field_present(w, "patch_rung", patch_rung_to_string(r->rung), r->rung != RUNG_NONE);
        field_list(w, "restored", r->restored);
        field_present(w, "framework", r->framework, r->framework && (r->ran || r->timed_out));
        field_present(w, "report_route", r->route, r->route && (r->ran || r->timed_out));
        field_present(w, "report_channel", report_channel_to_string(r->channel), r->ran || r->timed_out);
}

static void field_count(struct json_writer *w, const char *key, int64_t v) {
        json_put_key(w, key);
        if (v < 0)
                json_put_null(w);
        else
                json_put_int(w, v);
}

static void put_measures(struct json_writer *w, const struct score_record *r) {
        json_put_key(w, "usage");
        json_begin_object(w);
        field_count(w, "wall_ms", r->usage.wall_ms);
        field_count(w, "cpu_ms", r->usage.cpu_ms);
        field_count(w, "memory_peak_bytes", r->usage.memory_peak_bytes);
        field_count(w, "pids_peak", r->usage.pids_peak);
        field_count(w, "disk_bytes", r->usage.disk_bytes);
        json_put_key(w, "network");
        if (r->network)
                json_put_raw(w, r->network, strlen(r->network));
        else
                json_put_null(w);
        json_end_object(w);
        json_put_key(w, "timing");
        json_begin_object(w);
        json_field_uint(w, "queued_ms", r->queued_ms);
        json_field_uint(w, "prepare_ms", r->prepare_ms);
        json_field_uint(w, "apply_ms", r->apply_ms);
        json_field_uint(w, "test_ms", r->test_ms);
        json_field_uint(w, "report_ms", r->report_ms);
        json_end_object(w);
}

/* What the evidence's hash covers and the fields above do not say. */
static void put_provenance(struct json_writer *w, const struct score_record *r) {
        json_put_key(w, "provenance");
        json_begin_object(w);
        json_field_text(w, "tree_hash", r->tree_hash);
        json_field_text(w, "image_digest", r->image_digest);
        field_list(w, "argv", r->argv);
        field_list(w, "environment", r->env);
        json_field_bool(w, "controlled", r->controlled);
        json_end_object(w);
        field_present(w, "evidence", r->evidence, r->evidence[0] != 0);
}

int score_record_encode(const struct score_record *r, const char *id, const char *log_url, struct buf *ret) {
        struct json_writer w = JSON_WRITER(ret);
        json_begin_object(&w);
        put_echo(&w, r, id);
        put_core(&w, r);
        put_verdict(&w, r);
        put_measures(&w, r);
        json_field_text(&w, "log_url", log_url);
        put_provenance(&w, r);
        json_end_object(&w);
        return json_finish(&w);
}
