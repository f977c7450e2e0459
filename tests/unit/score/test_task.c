/* The state machine of a task over fakes of what it drives: tree store, sandbox, patch. The loop, the event channel and the record
 * are real. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>

#include "base/json.h"
#include "score/task_internal.h"

/* ---- fakes ------------------------------------------------------------------------------------------------------------- */

struct sandbox { int alive; };
struct sandbox_exec { int n; };
struct tree_ticket { int n; };

static struct fake {
        tree_done tree_done; void *tree_user; bool tree_cancelled, tree_released, of_image;
        struct sandbox box; const struct sandbox_callbacks *cb; void *box_user; bool destroyed; size_t n_files; int create_error;
        apply_done apply_done; void *apply_user;
        void (*exited)(struct sandbox_exec *, const struct exec_end *, void *); void *exec_user; char *exec_argv[4]; int n_execs;
        struct output_capture *out, *err;
        char plan[4096]; int events;
        void (*killed)(struct sandbox *, void *); void *kill_user;
        int done; enum outcome outcome; char error_code[64]; char *json;
} f;

static struct tree_ticket ticket;
static struct sandbox_exec exec;
static const char *const layers[] = {"layer", NULL};
static struct tree tree = {.commit = "abc", .image_digest = "d", .tree_hash = "t", .layers = layers};

int tree_acquire(struct tree_store *ts, const struct tree_request *req, tree_done done, void *user, struct tree_ticket **ret, struct error *e) {
        f.tree_done = done;
        f.tree_user = user;
        *ret = &ticket;
        return 0;
}
static const char *const failures[] = {"", "", "commit_not_found", "image_not_found", "", "", "", ""};
STRING_TABLE(tree_failure, failures, TREE_FAILURE_MAX)
int tree_of_image(struct tree_store *ts, const char *image, const char *repo_path, struct tree **ret, struct error *e) {
        static const char *const none[] = {NULL};
        static struct tree whole = {.image_digest = "d1", .tree_hash = "d2", .layers = none};
        f.of_image = true;
        if (strcmp(image, "/absent") == 0)
                return error_say(e, -ENOENT, "image %s: no such image", image);
        *ret = &whole;
        return 0;
}
void tree_cancel(struct tree_ticket *t) { f.tree_cancelled = true; }
void tree_release(struct tree_store *ts, struct tree *t) { f.tree_released = true; }
int sandbox_create(struct spawner *sp, const struct sandbox_spec *spec, const struct sandbox_callbacks *cb, void *user, struct sandbox **ret, struct error *e) {
        if (f.create_error)
                return error_set(e, f.create_error, "create");
        f.cb = cb;
        f.box_user = user;
        f.n_files = spec->n_files;
        *ret = &f.box;
        return 0;
}
struct egress_net *sandbox_egress(struct sandbox *s) { return NULL; }
void sandbox_destroy(struct sandbox *s) { f.destroyed = true; }
int sandbox_kill_all(struct sandbox *s, void (*done)(struct sandbox *s, void *user), void *user) {
        f.killed = done;
        f.kill_user = user;
        return 0;
}
int sandbox_exec(struct sandbox *s, const struct exec_spec *x, void (*exited)(struct sandbox_exec *x, const struct exec_end *end, void *user), void *user,
                 struct sandbox_exec **ret, struct error *e) {
        f.exited = exited;
        f.exec_user = user;
        f.out = x->out;
        f.err = x->err;
        f.n_execs++;
        for (int i = 0; i < 3 && x->argv[i]; i++)
                snprintf(f.exec_argv[i] = realloc(f.exec_argv[i], 256), 256, "%s", x->argv[i]);
        for (size_t i = 0; i < x->n_fds; i++) {
                if (x->fds[i].target == RUN_EVENTS_FD)
                        f.events = dup(x->fds[i].fd);
                else
                        assert_true(pread(x->fds[i].fd, f.plan, sizeof(f.plan) - 1, 0) > 0);
        }
        *ret = &exec;
        return 0;
}
int score_apply(const struct apply_spec *spec, apply_done done, void *user, struct error *e) {
        f.apply_done = done;
        f.apply_user = user;
        return 0;
}
void apply_result_release(struct apply_result *r) {
        free(r->patch_reason);
        free(r->test_patch_reason);
        findings_release(&r->findings);
}

/* ---- driving ------------------------------------------------------------------------------------------------------------ */

static uv_loop_t loop;
static struct score_task *task;

static void on_done(struct score_record *rec, void *user) {
        struct buf b = BUF_INIT(1 << 20);
        f.done++;
        f.outcome = rec->outcome;
        snprintf(f.error_code, sizeof(f.error_code), "%s", rec->error_code ? rec->error_code : "");
        assert_int_equal(score_record_encode(rec, "id", NULL, &b), 0);
        f.json = buf_steal(&b);
}

static void spin(void) { while (uv_run(&loop, UV_RUN_NOWAIT)) if (!uv_loop_alive(&loop) || f.done == 0) break; }

static void begin(const char *extra) {
        char body[2048];
        struct score_defaults d;
        struct score_request req;
        struct error e = {0};
        struct score_env env = {.loop = &loop, .record_output_max = 4096};
        free(f.json);
        for (int i = 0; i < 4; i++)
                free(f.exec_argv[i]);
        f = (struct fake){.events = -1};
        score_defaults_init(&d);
        snprintf(body, sizeof(body), "{\"repo_url\":\"file:///r\",\"patch\":\"p\",\"test_patch\":\"t\",%s}", extra);
        if (score_request_from_json(body, strlen(body), 0, &d, &req, &e) < 0)
                fail_msg("%s", e.text);
        if (score_task_start(&env, "id", &req, -1, on_done, NULL, &task, &e) < 0)
                fail_msg("%s", e.text);
}

static void tree_ready(void) { f.tree_done(&tree, TREE_OK, NULL, f.tree_user); }
static void box_ready(void) { f.cb->ready(&f.box, f.box_user); }
static void applied(bool patch, bool test_patch) {
        struct apply_result r = {.patch_applied = patch, .test_patch_applied = test_patch, .rung = RUNG_STRICT};
        f.apply_done(0, &r, &(struct error){0}, f.apply_user);
}
static void say(const char *text) { capture_feed(f.out, text, strlen(text)); }
static void tests_ended(int status) {
        struct exec_end end = {.started = true, .status = status};
        f.exited(&exec, &end, f.exec_user);
}
static void box_gone(void) {
        struct sandbox_end end = {.usage = {.wall_ms = 5}};
        f.cb->gone(&f.box, &end, f.box_user);
        for (int i = 0; i < 10; i++)
                uv_run(&loop, UV_RUN_NOWAIT);
}
#define EXITED(n) ((n) << 8)
#define TEXT "\"test_command\":\"go test ./...\""

static void a_task_ends_once_and_only_when_the_sandbox_is_gone(void **state) {
        begin(TEXT);
        tree_ready();
        assert_int_equal(f.n_files, 1);
        box_ready();
        applied(true, true);
        assert_string_equal(f.exec_argv[1], "/run/brig/command");
        say("--- PASS: TestX (0.00s)\n");
        tests_ended(0);
        assert_true(f.destroyed);
        spin();
        assert_int_equal(f.done, 0);
        box_gone();
        assert_int_equal(f.done, 1);
        assert_int_equal(f.outcome, OUTCOME_RESOLVED);
        assert_true(f.tree_released);
        assert_non_null(strstr(f.json, "\"TestX\":\"passed\""));
        assert_non_null(strstr(f.json, "\"report_channel\":\"text\""));
}

static void an_unknown_command_is_judged_by_its_status(void **state) {
        for (int status = 0; status < 2; status++) {
                begin("\"test_command\":\"cargo build 2>&1\"");
                tree_ready();
                box_ready();
                applied(true, true);
                tests_ended(EXITED(status));
                box_gone();
                assert_int_equal(f.outcome, status ? OUTCOME_UNRESOLVED : OUTCOME_RESOLVED);
                assert_non_null(strstr(f.json, "\"report_channel\":\"exit\""));
        }
}

static void cancelling_in_any_state_ends_in_cancelled(void **state) {
        for (int at = 0; at < 5; at++) {
                begin(TEXT ",\"lint_command\":\"ruff\"");
                if (at > 0)
                        tree_ready();
                if (at > 1)
                        box_ready();
                if (at > 2)
                        applied(true, true);
                if (at > 3)
                        tests_ended(0);
                score_task_cancel(task);
                assert_int_equal(f.done, 0);
                if (at == 0)
                        assert_true(f.tree_cancelled);
                else
                        assert_true(f.destroyed);
                if (at == 2)
                        f.apply_done(-ECANCELED, &(struct apply_result){0}, &(struct error){.code = -ECANCELED}, f.apply_user);
                if (at == 3)
                        f.exited(&exec, &(struct exec_end){.started = true, .status = 9, .sandbox_ended = true}, f.exec_user);
                if (at > 0)
                        box_gone();
                for (int i = 0; i < 10; i++)
                        uv_run(&loop, UV_RUN_NOWAIT);
                assert_int_equal(f.done, 1);
                assert_int_equal(f.outcome, OUTCOME_CANCELLED);
        }
}

static void a_tree_that_cannot_be_made_is_an_infra_error_with_its_code(void **state) {
        begin(TEXT);
        f.tree_done(NULL, TREE_COMMIT_NOT_FOUND, &(struct error){.code = -ENOENT, .text = "no such commit"}, f.tree_user);
        for (int i = 0; i < 10; i++)
                uv_run(&loop, UV_RUN_NOWAIT);
        assert_int_equal(f.outcome, OUTCOME_INFRA_ERROR);
        assert_string_equal(f.error_code, "commit_not_found");
}

static void a_sandbox_that_fails_is_an_infra_error(void **state) {
        begin(TEXT);
        tree_ready();
        f.cb->failed(&f.box, "mount", &(struct error){.code = -EPERM, .text = "not permitted"}, f.box_user);
        box_gone();
        assert_int_equal(f.outcome, OUTCOME_INFRA_ERROR);
        assert_string_equal(f.error_code, "internal");
        begin(TEXT);
        f.create_error = -ENOSPC;
        tree_ready();
        for (int i = 0; i < 10; i++)
                uv_run(&loop, UV_RUN_NOWAIT);
        assert_string_equal(f.error_code, "disk_full");
        assert_true(f.tree_released);
}

static void a_tree_of_the_image_is_not_made(void **state) {
        begin(TEXT ",\"tree\":\"image\",\"image\":\"/there\"");
        assert_true(f.of_image);
        assert_null(f.tree_done);
        box_ready();
        applied(true, true);
        say("ok  \tx\t0.1s\n");
        tests_ended(EXITED(0));
        box_gone();
        assert_int_equal(f.done, 1);
        assert_true(f.tree_released);
        assert_non_null(strstr(f.json, "\"base_commit\":null"));
        assert_non_null(strstr(f.json, "\"tree_hash\":\"d2\""));
}

static void an_image_that_is_not_there_ends_the_task(void **state) {
        begin(TEXT ",\"tree\":\"image\",\"image\":\"/absent\"");
        for (int i = 0; i < 10; i++)
                uv_run(&loop, UV_RUN_NOWAIT);
        assert_int_equal(f.done, 1);
        assert_string_equal(f.error_code, "image_not_found");
        assert_null(f.cb);
}

static void a_path_that_the_image_lacks_is_a_broken_environment(void **state) {
        begin(TEXT ",\"tree\":\"image\",\"image\":\"/there\"");
        box_ready();
        f.apply_done(APPLY_NO_TREE, NULL, &(struct error){.code = APPLY_NO_TREE, .text = "open the tree at /testbed"}, f.apply_user);
        box_gone();
        assert_string_equal(f.error_code, "environment_broken");
        assert_non_null(strstr(f.json, "open the tree at /testbed"));
}

static void a_rejected_patch_still_runs_the_tests(void **state) {
        begin(TEXT);
        tree_ready();
        box_ready();
        applied(false, true);
        say("--- PASS: TestX (0.00s)\n");
        tests_ended(0);
        box_gone();
        assert_int_equal(f.outcome, OUTCOME_PATCH_REJECTED);
}

static void a_rejected_test_patch_runs_nothing(void **state) {
        begin(TEXT);
        tree_ready();
        box_ready();
        applied(true, false);
        assert_int_equal(f.n_execs, 0);
        box_gone();
        assert_int_equal(f.outcome, OUTCOME_TEST_PATCH_REJECTED);
}

static void what_finished_before_a_timeout_is_kept(void **state) {
        begin(TEXT);
        tree_ready();
        box_ready();
        applied(true, true);
        say("--- PASS: TestX (0.00s)\n");
        f.exited(&exec, &(struct exec_end){.started = true, .status = 9, .timed_out = true}, f.exec_user);
        box_gone();
        assert_int_equal(f.outcome, OUTCOME_TIMEOUT);
        assert_non_null(strstr(f.json, "\"TestX\":\"passed\""));
        assert_non_null(strstr(f.json, "\"exit_code\":-1"));
}

static void a_limit_between_two_commands_ends_the_task(void **state) {
        begin(TEXT ",\"lint_command\":\"ruff\"");
        tree_ready();
        box_ready();
        applied(true, true);
        tests_ended(EXITED(1));
        f.cb->limit(&f.box, LIMIT_MEMORY, f.box_user);
        assert_true(f.destroyed);
        box_gone();
        assert_int_equal(f.outcome, OUTCOME_OOM);
}

static void the_linter_runs_after_the_kill_and_changes_nothing(void **state) {
        begin(TEXT ",\"lint_command\":\"flake8\"");
        tree_ready();
        box_ready();
        applied(true, true);
        say("--- PASS: TestX (0.00s)\n");
        tests_ended(0);
        assert_false(f.destroyed);
        assert_int_equal(f.n_execs, 1);
        f.killed(&f.box, f.kill_user);
        assert_int_equal(f.n_execs, 2);
        say("a.py:1:1: E501\n");
        tests_ended(EXITED(1));
        box_gone();
        assert_int_equal(f.outcome, OUTCOME_RESOLVED);
        assert_non_null(strstr(f.json, "\"lint_errors\":1"));
}

static void a_program_that_cannot_be_started_belongs_to_the_sandbox(void **state) {
        begin("\"test_command\":\"python3 -m pytest\"");
        tree_ready();
        box_ready();
        applied(true, true);
        f.exited(&exec, &(struct exec_end){.error = {.code = -ENOENT, .text = "python3: No such file or directory"}}, f.exec_user);
        box_gone();
        assert_int_equal(f.outcome, OUTCOME_NO_TESTS_COLLECTED);
        assert_non_null(strstr(f.json, "\"exit_code\":127"));
        assert_non_null(strstr(f.json, "python3: No such file"));
}

/* One event with the plan's nonce. */
static void event(int n, const char *rest) {
        struct json plan, nonce;
        char line[512];
        assert_int_equal(json_parse(f.plan, strlen(f.plan), &plan, NULL), 0);
        assert_true(json_get(&plan, "nonce", &nonce));
        int len = snprintf(line, sizeof(line), "{\"k\":%.*s,\"n\":%d,%s}\n", (int)nonce.n, nonce.p, n, rest);
        assert_int_equal(write(f.events, line, (size_t)len), len);
}

static void launch(void) {
        begin("\"test_command\":\"python3 -B -m pytest -q 'a.py::x[a b]' 2>&1\",\"fail_to_pass\":[\"a.py::x[a b]\"],"
              "\"env\":{\"PYTHONPATH\":\"src\",\"A\":\"1\"}");
        tree_ready();
        box_ready();
        applied(true, true);
        event(0, "\"e\":\"start\"");
        event(1, "\"e\":\"ids\",\"ids\":[\"a.py::x[a b]\"]");
        event(2, "\"e\":\"collected\",\"count\":1");
        uv_run(&loop, UV_RUN_NOWAIT);           /* part of it is read while the tests run */
        event(3, "\"e\":\"test\",\"i\":0,\"p\":\"spcptp\"");
}

static void a_launched_run_reports_over_its_channel(void **state) {
        launch();
        assert_string_equal(f.exec_argv[0], "python3");
        assert_string_equal(f.exec_argv[1], "-B");
        assert_string_equal(f.exec_argv[2], "-S");
        assert_non_null(strstr(f.plan, "\"args\":[\"-q\",\"a.py::x[a b]\"]"));
        assert_non_null(strstr(f.plan, "\"environment\":{\"PYTHONPATH\":\"src\"}"));
        assert_ptr_equal(f.out, f.err);
        event(4, "\"e\":\"end\",\"x\":0,\"tests\":1,\"bad\":0");
        tests_ended(0);
        assert_int_equal(write(f.events, "x", 1), -1);  /* by a process that was left behind: nobody reads it */
        fd_close(f.events);
        box_gone();
        assert_int_equal(f.outcome, OUTCOME_RESOLVED);
        assert_non_null(strstr(f.json, "\"integrity\":{\"verdict\":\"clean\",\"findings\":[]}"));
        assert_non_null(strstr(f.json, "\"argv\":[\"python3\",\"-B\",\"-m\",\"pytest\",\"-q\",\"a.py::x[a b]\"]"));
}

static void a_launched_run_without_an_end_is_never_resolved(void **state) {
        launch();
        tests_ended(0);
        fd_close(f.events);
        box_gone();
        assert_int_equal(f.outcome, OUTCOME_UNRESOLVED);
        assert_non_null(strstr(f.json, "no_end_record"));
}

static int set_up(void **state) {
        signal(SIGPIPE, SIG_IGN);
        return uv_loop_init(&loop);
}
static int tear_down(void **state) {
        free(f.json);
        for (int i = 0; i < 4; i++)
                free(f.exec_argv[i]);
        uv_run(&loop, UV_RUN_DEFAULT);
        return uv_loop_close(&loop);            /* EBUSY: a handle was left */
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_task_ends_once_and_only_when_the_sandbox_is_gone),
                cmocka_unit_test(an_unknown_command_is_judged_by_its_status),
                cmocka_unit_test(cancelling_in_any_state_ends_in_cancelled),
                cmocka_unit_test(a_tree_that_cannot_be_made_is_an_infra_error_with_its_code),
                cmocka_unit_test(a_sandbox_that_fails_is_an_infra_error),
                cmocka_unit_test(a_tree_of_the_image_is_not_made),
                cmocka_unit_test(an_image_that_is_not_there_ends_the_task),
                cmocka_unit_test(a_path_that_the_image_lacks_is_a_broken_environment),
                cmocka_unit_test(a_rejected_patch_still_runs_the_tests),
                cmocka_unit_test(a_rejected_test_patch_runs_nothing),
                cmocka_unit_test(what_finished_before_a_timeout_is_kept),
                cmocka_unit_test(a_limit_between_two_commands_ends_the_task),
                cmocka_unit_test(the_linter_runs_after_the_kill_and_changes_nothing),
                cmocka_unit_test(a_program_that_cannot_be_started_belongs_to_the_sandbox),
                cmocka_unit_test(a_launched_run_reports_over_its_channel),
                cmocka_unit_test(a_launched_run_without_an_end_is_never_resolved),
        };
        return cmocka_run_group_tests_name("score/task", tests, set_up, tear_down);
}
