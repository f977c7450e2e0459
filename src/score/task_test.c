/* Phases of a task once the tree is ready: the tests, the killing of what they left, the linter. */
#include "score/task_internal.h"

static void after_tests(struct score_task *t);

/* ---- tests ------------------------------------------------------------------------------------------------------------ */

static void on_tested(struct run *run, const struct exec_end *end, void *user) {
        struct score_task *t = user;
        t->testing = false;
        t->rec.test_ms = task_lap(t);
        t->report_ns = now_ns();
        t->test_killed |= end->timed_out || end->output_limit || end->sandbox_ended || t->ending;
        int r = task_record_test(t, end);
        if (r < 0)
                task_set_error(t, "internal", "no memory for the outcomes");
        if (t->ending)
                task_check_end(t);
        else if (r < 0 || end->sandbox_ended)
                task_end(t);
        else
                after_tests(t);
}

void task_test(struct score_task *t) {
        struct error e = {0};
        struct run_spec spec = {
                .loop = t->env.loop, .sandbox = t->sandbox, .command = &t->command, .request = &t->req, .apply = &t->apply,
                .timeout_ms = t->req.timeout_ms, .out = &t->out, .err = t->merged ? &t->out : &t->err,
        };
        t->state = STATE_TEST;
        t->testing = true;
        if (run_start(&spec, on_tested, t, &t->run, &e) < 0) {
                t->testing = false;
                task_set_error(t, e.code == -ENOSPC ? "disk_full" : "internal", e.text);
                task_end(t);
        }
}

/* ---- the linter --------------------------------------------------------------------------------------------------------- */

static void on_linted(struct sandbox_exec *x, const struct exec_end *end, void *user) {
        struct score_task *t = user;
        t->linting = false;
        if (task_record_lint(t, end) < 0)
                task_set_error(t, "internal", "no memory for the linter's output");
        task_end(t);
}

static int start_lint(struct score_task *t) {
        struct error e;
        struct sandbox_exec *x;
        _cleanup_strv_ char **env = run_environment(&t->req);
        if (!env || capture_init(&t->lint, LINT_OUTPUT_MAX / 2, LINT_OUTPUT_MAX / 2, t->req.limits.output_bytes, -1) < 0)
                return -ENOMEM;
        t->lint_capture = true;
        const char *const argv[] = {"sh", "-c", t->req.lint_command, NULL};
        struct exec_spec spec = {
                .argv = argv, .env = (const char *const *)env, .cwd = t->req.repo_path, .uid = t->req.uid, .gid = t->req.gid, .stdin_fd = -1,
                .out = &t->lint, .err = &t->lint, .timeout_ms = LINT_TIMEOUT_MS,
        };
        t->state = STATE_LINT;
        return sandbox_exec(t->sandbox, &spec, on_linted, t, &x, &e);
}

/* Only the init is left. The linter never changes the status: if it cannot be started there is no count. */
static void on_killed(struct sandbox *s, void *user) {
        struct score_task *t = user;
        if (t->ending)
                return;
        t->linting = true;
        if (start_lint(t) < 0) {
                t->linting = false;
                task_end(t);
        }
}

static void after_tests(struct score_task *t) {
        t->state = STATE_KILL;
        if (!t->req.lint_command[0] || sandbox_kill_all(t->sandbox, on_killed, t) < 0)
                task_end(t);            /* destroying kills everything as well */
}
