/* The report that a framework left in FRAMEWORK_REPORT. Nothing runs any more; the helper reads it, links not followed, and it is parsed in the
 * pool. Where it is none, or is not there, the outcomes of the text stay. */
#include "score/task_internal.h"

#include "sandbox/results.h"
#include "score/framework.h"

int task_wanted_ids(const struct score_request *q, struct test_results *ret) {
        char *const *const lists[] = {q->fail_to_pass, q->pass_to_pass};
        int r = 0;
        for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
                for (char *const *id = lists[i]; r == 0 && id && *id; id++)
                        r = test_results_put(ret, *id, TEST_PASSED);
        return r == -ENOSPC ? 0 : r;
}

/* In the pool: touches the capture, the request and what it makes only. */
static void parse(uv_work_t *w) {
        struct score_task *t = container_of(w, struct score_task, report_work);
        struct test_results wanted = {0};
        struct sink sink = {.tests = &t->report_tests, .wanted = &wanted, .tree = t->req.repo_path};
        struct result_head h;
        const char *bytes;
        size_t at = 0;
        int r = -EBADMSG;
        if (results_next(&t->report_capture, &at, &h, &bytes)) {
                if (h.state == RESULT_TOO_BIG)
                        r = -EFBIG;
                else if (h.state == RESULT_FILE && h.bytes > 0 && (r = task_wanted_ids(&t->req, &wanted)) == 0)
                        r = t->command.framework->report(bytes, h.bytes, &sink);
        }
        test_results_release(&wanted);
        t->report_result = r;
}

static int take(struct score_task *t) {
        int r = t->report_result;
        if ((r == 0 || r == -ENOSPC) && t->report_tests.n > 0) {
                test_results_release(&t->rec.tests);
                t->rec.tests = t->report_tests;
                t->report_tests = (struct test_results){0};
                t->rec.channel = CHANNEL_REPORT;
                t->rec.route = t->command.framework->route;
                t->rec.said_passed = false;
        }
        if (r == -EFBIG || r == -ENOSPC)
                return findings_add(&t->rec.findings, INTEGRITY_SUSPECT, "report_limit", NULL, "the framework's report is bigger than what is looked at");
        return r == -ENOMEM ? r : 0;
}

static void parsed(uv_work_t *w, int status) {
        struct score_task *t = container_of(w, struct score_task, report_work);
        t->encoding = false;
        if (take(t) < 0)
                task_set_error(t, "internal", "no memory for the framework's report");
        if (t->ending)
                task_check_end(t);
        else
                task_after_report(t);
}

static void on_read(struct sandbox_exec *x, const struct exec_end *end, void *user) {
        struct score_task *t = user;
        t->reading = false;
        t->encoding = uv_queue_work(t->env.loop, &t->report_work, parse, parsed) == 0;
        if (!t->encoding)
                task_set_error(t, "internal", "no memory for the framework's report");
        if (t->ending)
                task_check_end(t);
        else if (!t->encoding)
                task_end(t);
}

static int start(struct score_task *t, struct error *e) {
        if (capture_init(&t->report_capture, RESULTS_BYTES_MAX, 0, UINT64_MAX, -1) < 0)
                return error_set(e, -ENOMEM, "read the framework's report");
        t->has_report_capture = true;
        struct exec_spec x = {
                .argv = (const char *const[]){"results", "read", FRAMEWORK_REPORT, NULL}, .env = (const char *const[]){NULL}, .stdin_fd = -1,
                .out = &t->report_capture, .helper = true, .in_view = t->req.mode == MODE_IMAGE, .output_bytes = UINT64_MAX, .timeout_ms = RESULTS_TIMEOUT_MS,
        };
        struct sandbox_exec *ret;
        return sandbox_exec(t->sandbox, &x, on_read, t, &ret, e);
}

void task_report(struct score_task *t) {
        struct error e = {0};
        t->state = STATE_REPORT;
        t->reading = true;
        if (start(t, &e) == 0)
                return;
        t->reading = false;
        task_set_error(t, e.code == -ENOSPC ? "disk_full" : "internal", e.text);
        task_end(t);
}
