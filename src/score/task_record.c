/* What a task's phases found, as the record's facts. */
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/json.h"
#include "score/edited_tests.h"
#include "score/lint.h"
#include "score/task_internal.h"

static int copy(char **at, const char *s) {
        if (!s)
                return 0;
        free(*at);
        *at = strdup(s);
        return *at ? 0 : -ENOMEM;
}

/* Of what the command finds beside the image: the tree, the harness, or both. */
static int record_tree_hash(struct score_task *t) {
        const char *tree = t->tree ? t->tree->tree_hash : NULL, *harness = t->req.harness_hash;
        char hash[SHA256_HEX];
        struct sha256 h;
        if (!tree || !harness[0])
                return copy(&t->rec.tree_hash, tree ? tree : harness[0] ? harness : NULL);
        int r = sha256_init(&h);
        if (r < 0)
                return r;
        sha256_update_str(&h, tree);
        sha256_update_str(&h, harness);
        sha256_finish(&h, hash);
        return copy(&t->rec.tree_hash, hash);
}

int task_record_tree(struct score_task *t) {
        struct score_record *rec = &t->rec;
        int r = t->tree && t->tree->commit[0] ? copy(&rec->base_commit, t->tree->commit) : 0;
        if (r == 0)
                r = record_tree_hash(t);
        if (r == 0)
                r = copy(&rec->image_digest, t->lease->digest);
        if (r == 0)
                rec->argv = run_argv(&t->command);
        if (r == 0)
                rec->env = run_environment(&t->req, &t->command);
        return r < 0 || !rec->argv || !rec->env ? -ENOMEM : 0;
}

static int take_findings(struct findings *to, const struct findings *from) {
        int r = 0;
        for (size_t i = 0; r == 0 && i < from->n; i++)
                r = findings_add(to, INTEGRITY_CLEAN, from->items[i].kind, from->items[i].path, from->items[i].detail);
        to->verdict = MAX2(to->verdict, from->verdict);
        return r;
}

int task_record_apply(struct score_task *t) {
        struct score_record *rec = &t->rec;
        const struct apply_result *a = &t->apply;
        rec->patch_applied = a->patch_applied || t->req.patch_len == 0;
        rec->test_patch_applied = a->test_patch_applied || t->req.test_patch_len == 0;
        rec->rung = a->rung;
        int r = take_findings(&rec->findings, &a->findings);
        if (r == 0)
                r = edited_tests_find(&t->req, t->command.framework, a, &rec->findings);
        if (r == 0)
                r = edited_command_find(&t->req, a, &rec->findings);
        for (char **p = a->restored; r == 0 && p && *p; p++)
                r = strv_push(&rec->restored, *p);
        if (rec->restored)
                strv_sort(rec->restored);
        if (r == 0 && !rec->test_patch_applied)
                r = copy(&rec->error_message, a->test_patch_reason);
        else if (r == 0 && !rec->patch_applied)
                r = copy(&rec->error_message, a->patch_reason);
        if (r == 0 && t->req.capture_diff && a->diff) {
                rec->patch_diff = strndup(a->diff, a->diff_len);
                rec->diff_captured = true;
                r = rec->patch_diff ? 0 : -ENOMEM;
        }
        return r;
}

/* ---- tests --------------------------------------------------------------------------------------------------------------- */

/* The ids that the verdict asks for, in one list; the strings stay the request's. */
static const char **expected_ids(const struct score_request *q) {
        size_t a = strv_len((const char *const *)q->fail_to_pass), b = strv_len((const char *const *)q->pass_to_pass);
        const char **v = calloc(a + b + 1, sizeof(*v));
        for (size_t i = 0; v && i < a; i++)
                v[i] = q->fail_to_pass[i];
        for (size_t i = 0; v && i < b; i++)
                v[a + i] = q->pass_to_pass[i];
        return v;
}

/* Base's own configuration makes a file of the tree a plugin, and the patch changed that file. It may be what the patch is for. */
static int find_changed_plugins(struct score_task *t, const struct report *report) {
        const char *const *touched = (const char *const *)t->apply.touched, *const *restored = (const char *const *)t->apply.restored;
        int r = 0;
        for (char **p = report->plugins; r == 0 && p && *p; p++)
                if (strv_contains(touched, *p) && !strv_contains(restored, *p))
                        r = findings_add(&t->rec.findings, INTEGRITY_SUSPECT, "plugin_changed", *p, "the test runner has plugins, tests or fixtures from it; left as patched");
        return r;
}

static int from_report(struct score_task *t, struct report *report) {
        struct report_exit x = {.killed = t->test_killed, .status = t->test_status};
        const char **ids = expected_ids(&t->req);
        if (!ids)
                return -ENOMEM;
        t->rec.channel = CHANNEL_PRIVATE;
        t->rec.framework = t->command.framework->name;
        int r = report_finish(report, &x, t->command.framework, ids, &t->rec.tests, &t->rec.findings, &t->rec.incomplete);
        free(ids);
        t->rec.left_early = report_left_early(report);
        return r == 0 ? find_changed_plugins(t, report) : r;
}

/* Appends one stream: all of it from the log file when the memory does not hold it. */
static int stream_text(const struct score_task *t, const struct output_capture *c, const char *name, struct buf *b) {
        if (c->total <= c->head_max + c->tail_max || t->log_dirfd < 0)
                return capture_text(c, b);
        _cleanup_close_ int fd = openat(t->log_dirfd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
                return capture_text(c, b);
        off_t size = lseek(fd, 0, SEEK_END), from = size > (off_t)FRAMEWORK_TEXT_MAX ? size - (off_t)FRAMEWORK_TEXT_MAX : 0;
        if (lseek(fd, from, SEEK_SET) < 0)
                return capture_text(c, b);
        return fs_read_fd(fd, b);
}

static int from_text(struct score_task *t) {
        _cleanup_buf_ struct buf b = BUF_INIT(3 * (size_t)FRAMEWORK_TEXT_MAX);
        int r = stream_text(t, &t->out, "stdout.log", &b);
        if (r == 0)
                r = buf_addc(&b, '\n');
        if (r == 0)
                r = stream_text(t, &t->err, "stderr.log", &b);
        if (r < 0 && r != -EFBIG && r != -ENOSPC)
                return r == -ENOMEM ? r : 0;
        _cleanup_free_ char *text = framework_clean(buf_str(&b), b.len);
        if (!text)
                return -ENOMEM;
        const struct framework *f = t->command.framework ? t->command.framework : framework_of_output(text);
        struct test_results wanted = {0};
        struct sink sink = {.tests = &t->rec.tests, .wanted = &wanted, .tree = t->req.repo_path};
        t->rec.channel = CHANNEL_EXIT;
        if (!f)
                return 0;
        r = task_wanted_ids(&t->req, &wanted);
        if (r == 0)
                r = f->parse(text, &sink);
        test_results_release(&wanted);
        t->rec.framework = f->name;
        t->rec.route = sink.structured ? f->route : NULL;
        t->rec.channel = sink.structured ? CHANNEL_REPORT : CHANNEL_TEXT;
        /* A command that was told to name its tests (run_environment) and named none has run none, whatever its last line says. */
        bool named = t->command.framework && t->command.framework->variable;
        t->rec.said_passed = f->passed && !named && t->rec.tests.n == 0 && f->passed(text);
        return r == -ENOSPC ? findings_add(&t->rec.findings, INTEGRITY_SUSPECT, "report_limit", NULL, "the output names more outcomes than are looked at") : r;
}

static int exit_code(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

int task_record_test(struct score_task *t, const struct exec_end *end) {
        struct score_record *rec = &t->rec;
        rec->timed_out = end->timed_out;
        if (end->timed_out)
                rec->limits_hit[LIMIT_WALL] = true;
        if (end->output_limit)
                rec->limits_hit[LIMIT_OUTPUT] = true;
        t->test_status = end->started ? end->status : (end->error.code == -ENOENT ? 127 : 126) << 8;
        if (!end->started && end->error.code < 0 && !end->sandbox_ended) {
                const char *program = t->command.kind == COMMAND_VERBATIM ? "sh" : t->command.argv[0];
                capture_feed(&t->err, program, strlen(program));
                capture_feed(&t->err, ": ", 2);
                capture_feed(&t->err, end->error.text, strlen(end->error.text));
                capture_feed(&t->err, "\n", 1);
        }
        rec->ran = !end->timed_out && !(t->ending && rec->cancelled);
        rec->exit_code = exit_code(t->test_status);
        struct report *report = run_report(t->run);
        if (report && end->started)
                return from_report(t, report);
        int r = from_text(t);
        /* A shell says 128 + n of what it ran; that it was killed itself is somebody's choice. */
        if (r == 0 && end->started && WIFSIGNALED(end->status) && !t->test_killed)
                r = findings_add(&rec->findings, INTEGRITY_SUSPECT, "no_end_record", NULL, "the command's shell was ended by a signal");
        return r;
}

int task_record_recheck(struct score_task *t, int r, const struct findings *f, const struct error *e) {
        if (r == 0)
                return take_findings(&t->rec.findings, f);
        return findings_add(&t->rec.findings, INTEGRITY_SUSPECT, "not_rechecked", NULL, e->text);
}

int task_record_lint(struct score_task *t, const struct exec_end *end) {
        _cleanup_buf_ struct buf b = BUF_INIT(LINT_OUTPUT_MAX + 4096);
        if (!end->started || end->sandbox_ended)
                return 0;
        int r = capture_text(&t->lint, &b);
        if (r < 0)
                return r;
        t->rec.lint_output = framework_clean(buf_str(&b), b.len);
        if (!t->rec.lint_output)
                return -ENOMEM;
        t->rec.lint_ran = true;
        t->rec.lint_errors = lint_count(t->req.lint_command, end->timed_out || end->output_limit ? SIGKILL : end->status, t->rec.lint_output);
        return 0;
}

static int take_text(const struct output_capture *c, char **ret, size_t *ret_len) {
        struct buf b = BUF_INIT(c->head_max + c->tail_max + 4096);
        int r = capture_text(c, &b);
        if (r < 0) {
                buf_release(&b);
                return r;
        }
        *ret_len = b.len;
        *ret = buf_steal(&b);
        return *ret ? 0 : -ENOMEM;
}

/* What it may reach, what it did, what was refused. Not there: then the record says null. */
void task_record_network(struct score_task *t, struct sandbox *s) {
        const struct egress_net *n = sandbox_egress(s);
        struct buf b = BUF_INIT(NETWORK_RECORD_MAX);
        struct json_writer w = JSON_WRITER(&b);
        if (!n)
                return;
        egress_net_write_json(n, &w);
        if (json_finish(&w) == 0)
                t->rec.network = buf_steal(&b);
        buf_release(&b);
}

int task_record_output(struct score_task *t) {
        int r = take_text(&t->out, &t->rec.stdout_text, &t->rec.stdout_len);
        return r < 0 ? r : take_text(&t->err, &t->rec.stderr_text, &t->rec.stderr_len);
}
