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
#include "sandbox/results_wire.h"
#include "score/recheck.h"
#include "score/task_internal.h"

/* ---- fakes ------------------------------------------------------------------------------------------------------------- */

struct sandbox { int alive; };
struct sandbox_exec { int n; };
struct tree_ticket { int n; };
struct image_acquisition { int n; };
struct image_chain { const char *base; const char *ids[3]; };

static struct fake {
        image_acquired acquired; void *acquire_user; bool acquire_cancelled; int leases; uint64_t pull_timeout_ms;
        char *layers[4]; char *image, *env; uint32_t uid;
        tree_done tree_done; void *tree_user; bool tree_cancelled, tree_released, of_image;
        struct sandbox box; const struct sandbox_callbacks *cb; void *box_user; bool destroyed; size_t n_files; int create_error;
        apply_done apply_done; void *apply_user;
        void (*exited)(struct sandbox_exec *, const struct exec_end *, void *); void *exec_user; char *exec_argv[4]; int n_execs;
        struct output_capture *out, *err;
        char *cwd, *view, *view_output; bool view_read_only, helper;
        char plan[4096]; int events;
        void (*killed)(struct sandbox *, void *); void *kill_user;
        int n_rechecks, recheck_error;
        int done; enum outcome outcome; char error_code[64]; char *json;
} f;

static struct tree_ticket ticket;
static struct sandbox_exec exec;
static const char *const layers[] = {"layer", NULL};
static struct tree tree = {.commit = "abc", .image_digest = "d", .tree_hash = "t", .layers = layers};

static struct image_chain chain = {.base = IMAGE_SCRATCH, .ids = {"below", "above", NULL}};
static const struct image_config plain;
static const struct image_user nobody = {.uid = 0};
static struct image_acquisition acquisition;

int image_acquire(struct image_store *st, const char *ref, const struct image_acquire_options *o, image_acquired done, void *user,
                  struct image_acquisition **ret, struct error *e) {
        f.acquired = done;
        f.acquire_user = user;
        f.pull_timeout_ms = o->pull_timeout_ms;
        *ret = &acquisition;
        return 0;
}
void image_acquire_cancel(struct image_acquisition *a) { f.acquire_cancelled = true; }
void image_lease_release(struct image_lease *l) { f.leases -= l != NULL; }
struct image_chain *image_chain_ref(struct image_chain *c) { return c; }
struct image_chain *image_chain_unref(struct image_chain *c) { return NULL; }
const char *image_chain_image(const struct image_chain *c) { return c->base; }
const char *const *image_chain_layers(const struct image_chain *c) { return c->ids; }
size_t image_chain_count(const struct image_chain *c) { return 2; }

int tree_acquire(struct tree_store *ts, const struct tree_request *req, tree_done done, void *user, struct tree_ticket **ret, struct error *e) {
        f.tree_done = done;
        f.tree_user = user;
        *ret = &ticket;
        return 0;
}
static const char *const failures[] = {"", "", "commit_not_found", "image_not_found", "", "", "", ""};
STRING_TABLE(tree_failure, failures, TREE_FAILURE_MAX)
int tree_of_image(struct tree_store *ts, const char *image_digest, const char *repo_path, struct tree **ret) {
        static const char *const none[] = {NULL};
        static struct tree whole = {.image_digest = "d1", .tree_hash = "d2", .layers = none};
        f.of_image = true;
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
        f.image = strdup(spec->image);
        for (size_t i = 0; i < 4 && spec->layers[i]; i++)
                f.layers[i] = strdup(spec->layers[i]);
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
        f.uid = x->uid;
        free(f.cwd);
        free(f.view);
        free(f.view_output);
        f.cwd = x->cwd ? strdup(x->cwd) : NULL;
        f.view = x->view ? strdup(x->view->target) : NULL;
        f.view_output = x->view ? strdup(x->view->output) : NULL;
        f.view_read_only = x->view && x->view->read_only;
        f.helper = x->helper;
        free(f.env);
        f.env = NULL;
        for (size_t i = 0; x->env && x->env[i]; i++) {
                char *all;
                assert_true(asprintf(&all, "%s%s\n", f.env ? f.env : "", x->env[i]) > 0);
                free(f.env);
                f.env = all;
        }
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
int recheck_start(struct sandbox *s, int seal_fd, int watch_fd, const char *rule, recheck_done done, void *user, struct error *e) {
        struct findings found = {0};
        struct error why = {.code = f.recheck_error, .text = "the helper was ended"};
        f.n_rechecks++;
        if (!f.recheck_error)
                assert_int_equal(findings_add(&found, INTEGRITY_SUSPECT, "test_file_changed", "a.py", "written"), 0);
        done(f.recheck_error, &found, &why, user);
        findings_release(&found);
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

static void acquired_as(const struct image_config *config, const struct image_user *user) {
        static struct image_lease lease;
        lease = (struct image_lease){.chain = &chain, .config = config, .digest = "d1", .user = user};
        f.leases++;
        f.acquired(&lease, IMAGE_OK, NULL, f.acquire_user);
}

static void begin_only(const char *extra) {
        char body[2048];
        struct score_defaults d;
        struct score_request req;
        struct error e = {0};
        struct score_env env = {.loop = &loop, .record_output_max = 4096};
        free(f.json);
        for (int i = 0; i < 4; i++) {
                free(f.exec_argv[i]);
                free(f.layers[i]);
        }
        free(f.image);
        free(f.env);
        free(f.cwd);
        free(f.view);
        free(f.view_output);
        f = (struct fake){.events = -1};
        score_defaults_init(&d);
        snprintf(body, sizeof(body), "{\"repo_url\":\"file:///r\",\"patch\":\"p\",\"test_patch\":\"t\",%s}", extra);
        if (score_request_from_json(body, strlen(body), 0, &d, &req, &e) < 0)
                fail_msg("%s", e.text);
        if (score_task_start(&env, "id", &req, -1, on_done, NULL, &task, &e) < 0)
                fail_msg("%s", e.text);
}

static void begin(const char *extra) {
        begin_only(extra);
        acquired_as(&plain, &nobody);
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
static void all_killed(void) { f.killed(&f.box, f.kill_user); }
static void box_gone(void) {
        if (f.killed && !f.destroyed)
                all_killed();
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
        assert_false(f.destroyed);
        all_killed();
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
        for (int at = -1; at < 5; at++) {
                begin_only(TEXT ",\"lint_command\":\"ruff\"");
                if (at >= 0)
                        acquired_as(&plain, &nobody);
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
                if (at < 0)
                        assert_true(f.acquire_cancelled);
                else if (at == 0)
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
                assert_int_equal(f.leases, 0);
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

static void an_image_that_cannot_be_had_ends_the_task_with_a_code(void **state) {
        static const struct { enum image_failure failure; const char *code; } all[] = {
                {IMAGE_NOT_FOUND, "image_not_found"}, {IMAGE_INVALID, "image_not_found"}, {IMAGE_TOO_LARGE, "image_not_found"},
                {IMAGE_UNREACHABLE, "image_not_found"}, {IMAGE_UNAUTHORIZED, "image_not_found"}, {IMAGE_TIMEOUT, "image_not_found"},
                {IMAGE_DISK_FULL, "disk_full"}, {IMAGE_INTERNAL, "internal"},
        };
        for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
                begin_only(TEXT ",\"image\":\"some/thing\",\"pull_timeout\":7");
                assert_int_equal(f.pull_timeout_ms, 7000);
                f.acquired(NULL, all[i].failure, &(struct error){.code = -EIO, .text = "the reason"}, f.acquire_user);
                for (int k = 0; k < 10; k++)
                        uv_run(&loop, UV_RUN_NOWAIT);
                assert_int_equal(f.done, 1);
                assert_int_equal(f.outcome, OUTCOME_INFRA_ERROR);
                assert_string_equal(f.error_code, all[i].code);
                assert_non_null(strstr(f.json, "image some/thing: the reason"));
                assert_null(f.tree_done);
                assert_null(f.cb);
        }
}

static void a_task_stands_on_the_images_layers_and_the_trees(void **state) {
        begin(TEXT ",\"image\":\"stored\"");
        tree_ready();
        assert_string_equal(f.image, IMAGE_SCRATCH);
        const char *const expected[] = {"below", "above", "layer"};
        for (size_t i = 0; i < 3; i++)
                assert_string_equal(f.layers[i], expected[i]);
        assert_null(f.layers[3]);
        box_ready();
        applied(true, true);
        tests_ended(EXITED(1));
        assert_int_equal(f.leases, 1);
        box_gone();
        assert_int_equal(f.leases, 0);
}

/* Runs a task on an image with this configuration up to its command. */
static void run_as(const char *extra, const struct image_config *config, const struct image_user *user) {
        begin_only(extra);
        acquired_as(config, user);
        tree_ready();
        box_ready();
        applied(true, true);
}

static void the_images_user_and_environment_are_the_commands_unless_the_request_says(void **state) {
        char path[] = "PATH=/there", a[] = "A=image", b[] = "B=image", *env[] = {path, a, b, NULL};
        const struct image_config config = {.env = env};
        const struct image_user user = {.uid = 7, .gid = 8, .name = "seven", .home = "/home/seven"};
        run_as(TEXT ",\"env\":{\"B\":\"request\"}", &config, &user);
        assert_int_equal(f.uid, 7);
        assert_string_equal(f.env, "A=image\nB=request\nHOME=/home/seven\nLANG=C.UTF-8\nPATH=/there\nTZ=UTC\nUSER=seven\n");
        tests_ended(0);
        box_gone();
        run_as(TEXT ",\"user\":9", &config, &user);
        assert_int_equal(f.uid, 9);
        assert_non_null(strstr(f.env, "HOME=/tmp\n"));
        tests_ended(0);
        box_gone();
        run_as(TEXT ",\"user\":0", &config, &user);
        assert_int_equal(f.uid, 0);
        assert_non_null(strstr(f.env, "HOME=/root\n"));
        tests_ended(0);
        box_gone();
}

static void a_path_that_the_image_lacks_is_a_broken_environment(void **state) {
        begin(TEXT ",\"tree\":\"image\",\"image\":\"/there\"");
        box_ready();
        f.apply_done(APPLY_NO_TREE, NULL, &(struct error){.code = APPLY_NO_TREE, .text = "open the tree at /testbed"}, f.apply_user);
        box_gone();
        assert_string_equal(f.error_code, "environment_broken");
        assert_non_null(strstr(f.json, "open the tree at /testbed"));
}

/* ---- image mode ----------------------------------------------------------------------------------------------------------- */

static void begin_image_mode(const char *extra, const struct image_config *config) {
        char more[512];
        snprintf(more, sizeof more, "\"mode\":\"image\",\"image\":\"x\"%s%s", *extra ? "," : "", extra);
        begin_only(more);
        acquired_as(config, &nobody);
}

static void result(uint32_t state, const char *bytes) {
        struct result_head h = {.state = state, .bytes = strlen(bytes)};
        capture_feed(f.out, &h, sizeof h);
        capture_feed(f.out, bytes, strlen(bytes));
}

/* Lets the pool, and then the loop, do what they have to. */
static void wait_for_lint_or_end(int n_execs) {
        while (!f.destroyed && f.n_execs < n_execs)
                uv_run(&loop, UV_RUN_ONCE);
}

static void image_mode_runs_its_entry_beside_the_harness(void **state) {
        char dir[] = "/work";
        const struct image_config config = {.workdir = dir};
        begin_image_mode("\"patch\":\"p\",\"entry_command\":\"run it\",\"result_files\":[\"a\",\"b\",\"c\"]", &config);
        assert_null(f.tree_done);
        assert_false(f.of_image);
        assert_null(f.layers[2]);
        assert_int_equal(f.n_files, 0);
        box_ready();
        assert_null(f.apply_done);
        assert_string_equal(f.exec_argv[0], "/bin/bash");
        assert_string_equal(f.exec_argv[1], "-c");
        assert_string_equal(f.exec_argv[2], "run it");
        assert_string_equal(f.cwd, "/work");
        assert_string_equal(f.view, "/harness");
        assert_string_equal(f.view_output, "/out");
        assert_true(f.view_read_only);
        tests_ended(EXITED(3));
        assert_int_equal(f.n_execs, 1);
        f.killed(&f.box, f.kill_user);                 /* only when nobody writes any more */
        assert_int_equal(f.n_execs, 2);
        assert_true(f.helper);
        assert_string_equal(f.exec_argv[2], "/out/a");
        result(RESULT_FILE, "one\n");
        result(RESULT_NONE, "");
        result(RESULT_FILE, "\xff");
        tests_ended(0);
        wait_for_lint_or_end(3);
        box_gone();
        assert_int_equal(f.done, 1);
        assert_int_equal(f.outcome, OUTCOME_UNRESOLVED);
        assert_non_null(strstr(f.json, "\"mode\":\"image\""));
        assert_non_null(strstr(f.json, "\"exit_code\":3"));
        assert_non_null(strstr(f.json, "\"result_files\":{\"a\":\"one\\n\",\"b\":null,\"c\":\"\xef\xbf\xbd\"}"));
        assert_non_null(strstr(f.json, "\"patch_applied\":null,\"test_patch_applied\":null"));
        assert_non_null(strstr(f.json, "\"repo_url\":null,\"base_commit\":null,\"test_command\":null,\"image\":\"x\""));
        assert_int_equal(f.leases, 0);
}

static void the_status_of_the_entry_is_the_verdict(void **state) {
        for (int status = 0; status < 2; status++) {
                begin_image_mode("", &plain);
                box_ready();
                assert_string_equal(f.cwd, "/");
                tests_ended(EXITED(status));
                assert_true(f.destroyed);
                box_gone();
                assert_int_equal(f.outcome, status ? OUTCOME_UNRESOLVED : OUTCOME_RESOLVED);
                assert_non_null(strstr(f.json, "\"result_files\":{}"));
                assert_non_null(strstr(f.json, "\"tree_hash\":null"));
        }
}

static void results_that_nobody_could_read_are_null(void **state) {
        begin_image_mode("\"result_files\":[\"a\"]", &plain);
        box_ready();
        tests_ended(0);
        f.killed(&f.box, f.kill_user);
        result(RESULT_FILE, "one");
        capture_feed(f.out, "cut", 3);
        f.exited(&exec, &(struct exec_end){.started = false, .error = {.code = -ENOENT}}, f.exec_user);
        wait_for_lint_or_end(3);
        box_gone();
        assert_int_equal(f.outcome, OUTCOME_RESOLVED);
        begin_image_mode("\"result_files\":[\"a\"]", &plain);
        f.cb->failed(&f.box, "mount", &(struct error){.code = -EPERM, .text = "not permitted"}, f.box_user);
        box_gone();
        assert_int_equal(f.outcome, OUTCOME_INFRA_ERROR);
        assert_non_null(strstr(f.json, "\"result_files\":{\"a\":null}"));
}

static void cancelling_while_results_are_read_ends_once(void **state) {
        for (int at = 0; at < 3; at++) {
                begin_image_mode("\"result_files\":[\"a\"]", &plain);
                box_ready();
                tests_ended(0);
                if (at > 0)
                        f.killed(&f.box, f.kill_user);
                if (at > 1)
                        tests_ended(0);                /* the pool has it */
                score_task_cancel(task);
                if (at == 1)
                        f.exited(&exec, &(struct exec_end){.started = true, .status = 9, .sandbox_ended = true}, f.exec_user);
                box_gone();
                while (!f.done)
                        uv_run(&loop, UV_RUN_ONCE);
                assert_int_equal(f.done, 1);
                assert_int_equal(f.outcome, OUTCOME_CANCELLED);
                assert_int_equal(f.leases, 0);
        }
}

static void image_mode_with_a_tree_patches_tests_and_lints_it(void **state) {
        begin_image_mode("\"tree\":\"image\",\"test_command\":\"pytest\",\"lint_command\":\"ruff\",\"result_files\":[\"a\"]", &plain);
        assert_true(f.of_image);
        box_ready();
        applied(true, true);
        assert_string_equal(f.exec_argv[1], "/run/brig/launch.sh");
        assert_string_equal(f.cwd, "/testbed");
        assert_string_equal(f.view, "/harness");
        tests_ended(0);
        f.killed(&f.box, f.kill_user);
        assert_true(f.helper);
        result(RESULT_FILE, "x");
        tests_ended(0);
        wait_for_lint_or_end(3);
        assert_int_equal(f.n_execs, 3);
        assert_string_equal(f.exec_argv[2], "ruff");
        tests_ended(0);
        box_gone();
        assert_non_null(strstr(f.json, "\"result_files\":{\"a\":\"x\"}"));
        assert_non_null(strstr(f.json, "\"patch_applied\":true"));
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
        all_killed();
        assert_int_equal(f.n_rechecks, 1);
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

static void what_the_run_wrote_is_looked_at_when_nothing_lives(void **state) {
        for (int fails = 0; fails < 2; fails++) {
                begin(TEXT);
                f.recheck_error = fails ? -EIO : 0;
                tree_ready();
                box_ready();
                applied(true, true);
                say("--- PASS: TestX (0.00s)\n");
                tests_ended(0);
                assert_int_equal(f.n_rechecks, 0);
                box_gone();
                assert_int_equal(f.n_rechecks, 1);
                assert_int_equal(f.outcome, OUTCOME_RESOLVED);
                assert_non_null(strstr(f.json, "\"verdict\":\"suspect\""));
                assert_non_null(strstr(f.json, fails ? "not_rechecked" : "test_file_changed"));
        }
}

static void a_sandbox_that_ends_with_the_tests_is_told(void **state) {
        begin(TEXT);
        tree_ready();
        box_ready();
        applied(true, true);
        say("--- PASS: TestX (0.00s)\n");
        f.exited(&exec, &(struct exec_end){.started = true, .status = 9, .sandbox_ended = true}, f.exec_user);
        box_gone();
        assert_non_null(strstr(f.json, "not_rechecked"));
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
                cmocka_unit_test(an_image_that_cannot_be_had_ends_the_task_with_a_code),
                cmocka_unit_test(image_mode_runs_its_entry_beside_the_harness), cmocka_unit_test(the_status_of_the_entry_is_the_verdict),
                cmocka_unit_test(results_that_nobody_could_read_are_null), cmocka_unit_test(cancelling_while_results_are_read_ends_once),
                cmocka_unit_test(image_mode_with_a_tree_patches_tests_and_lints_it),
                cmocka_unit_test(a_task_stands_on_the_images_layers_and_the_trees),
                cmocka_unit_test(the_images_user_and_environment_are_the_commands_unless_the_request_says),
                cmocka_unit_test(a_path_that_the_image_lacks_is_a_broken_environment),
                cmocka_unit_test(a_rejected_patch_still_runs_the_tests),
                cmocka_unit_test(a_rejected_test_patch_runs_nothing),
                cmocka_unit_test(what_finished_before_a_timeout_is_kept),
                cmocka_unit_test(a_limit_between_two_commands_ends_the_task),
                cmocka_unit_test(the_linter_runs_after_the_kill_and_changes_nothing),
                cmocka_unit_test(a_program_that_cannot_be_started_belongs_to_the_sandbox),
                cmocka_unit_test(a_launched_run_reports_over_its_channel),
                cmocka_unit_test(a_launched_run_without_an_end_is_never_resolved),
                cmocka_unit_test(what_the_run_wrote_is_looked_at_when_nothing_lives),
                cmocka_unit_test(a_sandbox_that_ends_with_the_tests_is_told),
        };
        return cmocka_run_group_tests_name("score/task", tests, set_up, tear_down);
}
