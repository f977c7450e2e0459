/* Phases of a task once the tree is ready: the tests, the killing of what they left, the linter. */
#include "score/apply_wire.h"
#include "score/recheck.h"
#include "score/task_internal.h"

static void after_tests(struct score_task *t);
static void ask_collection(struct score_task *t);


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
        if (t->collection_ready && !t->ending)
                ask_collection(t);
        if (t->ending)
                task_check_end(t);
        else if (r < 0 || end->sandbox_ended) {
                if (t->seal_fd >= 0 && !end->timed_out && task_record_recheck(t, -ESHUTDOWN, NULL, &(struct error){ .text = "the sandbox ended with the tests" }) < 0)
                        task_set_error(t, "internal", "no memory for the findings");
                task_end(t);
        } else
                after_tests(t);
}

/* ---- the list to check against ------------------------------------------------------------------------------------------ */

static int check_lists(struct score_task *t, const struct report *report, const struct report *own) {
        int r = report_check_collection(report, own, &t->rec.findings);
        char **const lists[] = {t->req.fail_to_pass, t->req.pass_to_pass};
        bool ids = false;
        for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
                ids |= lists[i] && *lists[i];
                if (r == 0)
                        r = report_check_cut_off(report, own, t->command.framework, (const char *const *)lists[i], &t->rec.findings);
        }
        return r < 0 || ids ? r : report_check_complete(report, own, &t->rec.findings);
}

static void on_collection(const struct report *own, void *user) {
        struct score_task *t = user;
        struct report *report = t->run ? run_report(t->run) : NULL;
        t->collection = NULL;
        if (own && report && !t->testing && check_lists(t, report, own) < 0)
                task_set_error(t, "internal", "no memory for the findings");
        else if (own && report && t->testing) {
                /* The tests still run: looked up again, now without a wait, when they have ended. */
                t->collection_ready = true;
        }
        task_check_end(t);
}

/* Where an agent's code runs, our own list of the tests is made beside it. Failing to is no fault of the task. */
static void ask_collection(struct score_task *t) {
        struct collection_request q = {.id = t->id, .tree = t->tree, .image = image_chain_image(t->lease->chain), .layers = t->layers, .request = &t->req, .command = &t->command};
        if (!t->env.collections || !command_has_reporter(&t->command) || t->req.patch_len == 0)
                return;
        if (collection_get(t->env.collections, &q, on_collection, t, &t->collection) < 0)
                t->collection = NULL;
}

void task_test(struct score_task *t) {
        struct error e = {0};
        const struct exec_view view = {
                .target = t->req.harness_mount, .pack_fd = t->req.harness ? t->req.harness->fd : -1, .read_only = true, .output = t->req.output_mount,
        };
        struct run_spec spec = {
                .cwd = t->command.kind == COMMAND_ENTRY ? task_workdir(t) : NULL, .view = t->req.mode == MODE_IMAGE ? &view : NULL,
                .loop = t->env.loop, .sandbox = t->sandbox, .command = &t->command, .request = &t->req, .apply = &t->apply,
                .timeout_ms = t->req.timeout_ms, .out = &t->out, .err = t->merged ? &t->out : &t->err,
        };
        t->state = STATE_TEST;
        t->testing = true;
        if (run_start(&spec, on_tested, t, &t->run, &e) < 0) {
                t->testing = false;
                task_set_error(t, e.code == -ENOSPC ? "disk_full" : "internal", e.text);
                task_end(t);
                return;
        }
        ask_collection(t);
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
        _cleanup_strv_ char **env = run_environment(&t->req, NULL);
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

/* The linter never changes the status: if it cannot be started there is no count. */
static void lint(struct score_task *t) {
        t->linting = true;
        if (start_lint(t) < 0) {
                t->linting = false;
                task_end(t);
        }
}

void task_after_results(struct score_task *t) {
        if (t->req.lint_command[0])
                lint(t);
        else
                task_end(t);
}

/* ---- a look at what is left --------------------------------------------------------------------------------------------- */

void task_after_report(struct score_task *t) {
        if (t->req.result_files)
                task_results(t);
        else
                task_after_results(t);
}

static void after_recheck(struct score_task *t) {
        if (t->command.reports)
                task_report(t);
        else
                task_after_report(t);
}

static void on_rechecked(int r, const struct findings *f, const struct error *e, void *user) {
        struct score_task *t = user;
        t->rechecking = false;
        if (task_record_recheck(t, r, f, e) < 0)
                task_set_error(t, "internal", "no memory for the findings");
        if (t->ending)
                task_check_end(t);
        else
                after_recheck(t);
}

/* Only the init is left: nobody writes any more. */
static void on_killed(struct sandbox *s, void *user) {
        struct score_task *t = user;
        struct error e = {0};
        if (t->ending)
                return;
        if (t->seal_fd < 0) {
                after_recheck(t);
                return;
        }
        t->state = STATE_RECHECK;
        t->rechecking = true;
        const char *rule = command_has_reporter(&t->command) ? RECHECK_LAUNCHED : run_leaves_no_bytecode(&t->req, &t->command) ? RECHECK_NO_BYTECODE : NULL;
        int r = recheck_start(s, t->seal_fd, t->watch_fd, rule, on_rechecked, t, &e);
        if (r < 0)
                on_rechecked(r, NULL, &e, t);
}

static void after_tests(struct score_task *t) {
        t->state = STATE_KILL;
        bool nothing = t->seal_fd < 0 && !t->req.lint_command[0] && !t->req.result_files && !t->command.reports;       /* destroying kills everything as well */
        int r = nothing ? 0 : sandbox_kill_all(t->sandbox, on_killed, t);
        if (r < 0 && t->seal_fd >= 0 && task_record_recheck(t, r, NULL, &(struct error){ .text = "the sandbox was gone" }) < 0)
                task_set_error(t, "internal", "no memory for the findings");
        if (nothing || r < 0)
                task_end(t);
}
