/* One scoring task: see task.h for the states. Each state waits for one callback; `task_end` may be called in any of them, and the
 * flags of what is owed (applying, testing, ...) keep the object alive until the last callback has come and the sandbox is confirmed
 * gone. A fault of ours becomes an infra_error; after the agent's patch has applied, what happens inside the sandbox is a result.
 */
#include "score/task_internal.h"

#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/mman.h>

#include "score/edited_tests.h"
#include "score/similarity.h"

uint64_t task_lap(struct score_task *t) {
        uint64_t now = now_ns(), ms = (now - t->phase_ns) / NS_PER_MS;
        t->phase_ns = now;
        return ms;
}

void task_set_error(struct score_task *t, const char *code, const char *message) {
        if (t->rec.error_code)
                return;
        t->rec.error_code = strdup(code);
        free(t->rec.error_message);
        t->rec.error_message = strdup(message);
}

static void task_set_failure(struct score_task *t, const struct error *e) {
        task_set_error(t, e->code == -ENOSPC ? "disk_full" : "internal", e->text);
}

/* ---- the end -------------------------------------------------------------------------------------------------------- */

static void task_free(struct score_task *t) {
        if (t->captures) {
                capture_release(&t->out);
                capture_release(&t->err);
        }
        if (t->lint_capture)
                capture_release(&t->lint);
        if (t->results_capture)
                capture_release(&t->results);
        buf_release(&t->results_json);
        if (t->has_report_capture)
                capture_release(&t->report_capture);
        test_results_release(&t->report_tests);
        run_free(t->run);
        run_files_release(&t->files);
        command_release(&t->command);
        apply_result_release(&t->apply);
        fd_close(t->seal_fd);
        fd_close(t->watch_fd);
        score_record_release(&t->rec);
        score_request_release(&t->req);
        free(t->layers);
        free(t->id);
        free(t);
}

static void on_last(uv_handle_t *h) {
        struct score_task *t = h->data;
        int r = t->captures ? task_record_output(t) : 0;
        if (r == 0)
                r = task_no_results(t);
        if (r < 0)
                task_set_error(t, "internal", "no memory for the record");
        t->rec.execution_ms = (now_ns() - t->started_ns) / NS_PER_MS;
        t->rec.report_ms = t->report_ns ? (now_ns() - t->report_ns) / NS_PER_MS : 0;
        score_verdict(&t->rec, &t->req);
        if (score_evidence(&t->rec) < 0)
                t->rec.evidence[0] = 0;
        t->done(&t->rec, t->user);
        task_free(t);
}

void task_check_end(struct score_task *t) {
        if (!t->ending || t->sandbox || t->acquiring || t->ticket || t->applying || t->testing || t->rechecking || t->reading || t->encoding || t->linting || t->comparing || t->collection || t->state == STATE_DONE)
                return;
        t->state = STATE_DONE;
        if (t->tree)
                tree_release(t->env.trees, t->tree);
        t->tree = NULL;
        image_lease_release(TAKE_PTR(t->lease));
        uv_close((uv_handle_t *)&t->last, on_last);    /* from the loop, never from inside the caller's call */
}

void task_end(struct score_task *t) {
        if (!t->ending) {
                t->ending = true;
                if (t->state <= STATE_SANDBOX)
                        t->rec.prepare_ms = task_lap(t);
                t->state = STATE_DESTROY;
                if (t->acquiring)
                        image_acquire_cancel(TAKE_PTR(t->acquiring));
                if (t->ticket)
                        tree_cancel(TAKE_PTR(t->ticket));
                if (t->sandbox)
                        sandbox_destroy(t->sandbox);
                /* The list is worth waiting for only where something may have passed. */
                if (t->collection && (t->rec.cancelled || t->rec.error_code || !t->run || t->rec.timed_out))
                        collection_cancel(t->collection);
        }
        task_check_end(t);
}

void score_task_cancel(struct score_task *t) {
        if (t->state == STATE_DONE)
                return;
        t->rec.cancelled = true;
        task_end(t);
}

/* ---- apply ----------------------------------------------------------------------------------------------------------- */

static void compare(uv_work_t *w) {
        struct score_task *t = w->data;
        t->similarity = patch_similarity(t->apply.diff ? t->apply.diff : "", t->apply.diff_len, t->req.reference_patch, t->req.reference_patch_len);
}

static void compared(uv_work_t *w, int status) {
        struct score_task *t = w->data;
        t->comparing = false;
        t->rec.patch_similarity = status == 0 ? t->similarity : SIMILARITY_NONE;
        task_check_end(t);
}

static void start_comparing(struct score_task *t) {
        if (t->req.reference_patch_len == 0 || t->apply.diff_truncated)
                return;
        t->work.data = t;
        t->comparing = uv_queue_work(t->env.loop, &t->work, compare, compared) == 0;
}

static void on_applied(int r, struct apply_result *res, const struct error *e, void *user) {
        struct score_task *t = user;
        t->applying = false;
        t->rec.apply_ms = task_lap(t);
        if (r >= 0) {
                t->apply = *res;
                *res = (struct apply_result){0};
                t->applied = true;
                r = task_record_apply(t);
        }
        if (t->ending) {
                task_check_end(t);
                return;
        }
        if (r < 0)
                task_set_error(t, r == -ENOSPC ? "disk_full" : r == APPLY_NO_TREE ? "environment_broken" : "internal",
                               e && e->code < 0 ? e->text : "the patch could not be applied");
        else
                start_comparing(t);
        if (r < 0 || !t->rec.test_patch_applied)
                task_end(t);
        else
                task_test(t);
}

/* What the request protects, and the configuration that its command names. The strings stay theirs. */
static const char **protected_paths(const struct score_task *t) {
        size_t n = strv_len((const char *const *)t->req.protect);
        const char **v = calloc(n + 2, sizeof(*v));
        if (!v)
                return NULL;
        for (size_t i = 0; i < n; i++)
                v[i] = t->req.protect[i];
        v[n] = command_config(&t->command);
        return v;
}

/* Where no agent's code runs, nothing has to be looked at again. Without a watch (there is a limit to them) the rest is looked at. */
static int open_seal(struct score_task *t) {
        if (t->req.patch_len == 0)
                return 0;
        t->seal_fd = memfd_create("seal", MFD_CLOEXEC);
        t->watch_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
        return t->seal_fd < 0 ? -errno : 0;
}

static void start_apply(struct score_task *t) {
        const struct score_request *q = &t->req;
        _cleanup_free_ const char **protect = protected_paths(t);
        _cleanup_strv_ char **named = NULL;
        int r = open_seal(t);
        if (r == 0 && t->seal_fd >= 0)
                r = named_tests(q, &named);
        struct apply_spec spec = {
                .sandbox = t->sandbox, .repo_path = q->repo_path, .patch = q->patch, .patch_len = q->patch_len, .test_patch = q->test_patch,
                .test_patch_len = q->test_patch_len, .mode = q->patch_mode, .protect = protect,
                .allow_config = (const char *const *)q->allow_config, .capture_diff = q->capture_diff || q->reference_patch_len > 0,
                .diff_max = DIFF_MAX, 
                .command = t->command.kind == COMMAND_VERBATIM ? t->command.text : NULL, .named = (const char *const *)named, .seal_fd = t->seal_fd, .watch_fd = t->watch_fd, .memory_bytes = q->limits.memory_bytes,
        };
        struct error e = {0};
        t->state = STATE_APPLY;
        t->applying = true;
        if (!protect || r < 0)
                error_set(&e, r < 0 ? r : -ENOMEM, "apply");
        if (!protect || r < 0 || score_apply(&spec, on_applied, t, &e) < 0) {
                t->applying = false;
                task_set_failure(t, &e);
                task_end(t);
        }
}

/* ---- sandbox --------------------------------------------------------------------------------------------------------- */

static void on_ready(struct sandbox *s, void *user) {
        struct score_task *t = user;
        if (t->ending)
                return;
        t->rec.prepare_ms = task_lap(t);
        if (t->req.tree == SOURCE_NONE)
                task_test(t);
        else
                start_apply(t);
}

static void image_is_out_of_reach(struct score_task *t, const struct error *e) {
        char text[ERROR_TEXT_MAX + 64];
        if (e->code == -EPERM)
                snprintf(text, sizeof(text), "image %s: not below a directory of the setting image.roots", t->req.image);
        else
                snprintf(text, sizeof(text), "image %s: %s", t->req.image, e->text);
        task_set_error(t, "image_not_found", text);
}

static void on_failed(struct sandbox *s, const char *step, const struct error *e, void *user) {
        struct score_task *t = user;
        char text[ERROR_TEXT_MAX + 64];
        snprintf(text, sizeof(text), "sandbox: %s: %s", step, e->text);
        if (!t->ending && strcmp(step, SANDBOX_STEP_IMAGE) == 0)
                image_is_out_of_reach(t, e);
        else if (!t->ending)
                task_set_error(t, e->code == -ENOSPC ? "disk_full" : "internal", text);
        task_end(t);
}

/* A limit that ends the sandbox's work: the exec that runs will say so; between execs there is nobody else to act. */
static void on_limit(struct sandbox *s, enum limit_kind kind, void *user) {
        struct score_task *t = user;
        t->rec.limits_hit[kind] = true;
        t->test_killed = true;
        if (!t->ending && !t->testing && !t->rechecking && !t->reading && !t->encoding && !t->linting && !t->applying)
                task_end(t);
}

static void on_gone(struct sandbox *s, const struct sandbox_end *end, void *user) {
        struct score_task *t = user;
        t->sandbox = NULL;
        t->rec.usage = end->usage;
        task_record_network(t, s);
        for (int i = 0; i < LIMIT_KIND_MAX; i++)
                t->rec.limits_hit[i] |= end->hit[i];
        t->ending = true;
        task_check_end(t);
}

static const struct sandbox_callbacks callbacks = {.ready = on_ready, .failed = on_failed, .limit = on_limit, .gone = on_gone};

/* What a run writes goes to memory while the machine could hold all of it, else to a disk image. */
static enum sandbox_upper upper_for(const struct sandbox_limits *l) {
        uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
        return l->disk_bytes <= memory / 2 ? UPPER_TMPFS : UPPER_DISK;
}

static int start_sandbox(struct score_task *t, struct error *e) {
        struct sandbox_spec spec = {
                .id = t->id, .profile = PROFILE_SCORE, .image = image_chain_image(t->lease->chain), .layers = t->layers, .upper = upper_for(&t->req.limits),
                .network = t->req.network, .allow = t->req.allow, .limits = t->req.limits, .files = t->files.at, .n_files = t->files.n,
        };
        t->state = STATE_SANDBOX;
        return sandbox_create(t->env.spawner, &spec, &callbacks, t, &t->sandbox, e);
}

/* ---- tree ------------------------------------------------------------------------------------------------------------ */

/* All that the sandbox stands on is there. */
static int stand(struct score_task *t, struct error *e) {
        int r = task_layers(t);
        if (r == 0)
                r = task_record_tree(t);
        if (r < 0)
                return error_set(e, r, "record of the tree");
        r = run_files_make(&t->command, &t->files, e);
        return r < 0 ? r : start_sandbox(t, e);
}

static void on_tree(struct tree *tree, enum tree_failure failure, const struct error *e, void *user) {
        struct score_task *t = user;
        struct error mine = {0};
        t->ticket = NULL;
        if (!tree) {
                task_set_error(t, tree_failure_to_string(failure), e ? e->text : "");
                task_end(t);
                return;
        }
        t->tree = tree;
        if (stand(t, &mine) < 0) {
                task_set_failure(t, &mine);
                task_end(t);
        }
}

/* Nothing is prepared: the sandbox stands on the image alone. Whether repo_path is there is for the helper to see. */
static int image_tree(struct score_task *t, struct error *e) {
        struct tree *tree;
        int r = tree_of_image(t->env.trees, t->lease->digest, t->req.repo_path, &tree);
        if (r < 0)
                return error_set(e, r, "tree of image %s", t->req.image);
        on_tree(tree, TREE_OK, NULL, t);
        return 0;
}

static int cloned_tree(struct score_task *t, struct error *e) {
        const struct score_request *q = &t->req;
        struct tree_request tr = {
                .repo_url = q->repo_url, .commit = q->base_commit, .image = t->lease->chain, .image_digest = t->lease->digest, .repo_path = q->repo_path, .setup_command = q->setup_command,
                .setup_network = q->setup_network, .setup_allow = q->setup_allow, .setup_env = (const char *const *)q->env, .setup_timeout_ms = q->setup_timeout_ms,
                .uid = q->uid, .gid = q->gid, .limits = q->limits,
        };
        return tree_acquire(t->env.trees, &tr, on_tree, t, &t->ticket, e);
}

void task_tree(struct score_task *t) {
        struct error e = {0};
        t->state = STATE_TREE;
        int r = t->req.tree == SOURCE_NONE ? stand(t, &e) : t->req.tree == SOURCE_IMAGE ? image_tree(t, &e) : cloned_tree(t, &e);
        if (r < 0) {
                /* The request was found good when it came: what can be wrong with it now is that a local repository is not there. */
                if (t->req.tree == SOURCE_CLONE && (r == -ENOENT || r == -EINVAL))
                        task_set_error(t, "repo_unreachable", e.text);
                else
                        task_set_failure(t, &e);
                task_end(t);
        }
}

/* ---- start ------------------------------------------------------------------------------------------------------------ */

static bool merges_streams(const struct command *c) {
        return c->n_redirects == 1 && c->redirects[0].fd == 2 && c->redirects[0].op == REDIRECT_DUP && strcmp(c->redirects[0].target, "1") == 0;
}

static int log_open(int dirfd, const char *name) {
        return dirfd < 0 ? -1 : openat(dirfd, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0640);
}

static int open_captures(struct score_task *t) {
        size_t half = t->env.record_output_max;
        uint64_t disk = t->req.limits.output_bytes;
        int out = log_open(t->log_dirfd, "stdout.log"), err = log_open(t->log_dirfd, "stderr.log");
        int r = capture_init(&t->out, half, half, disk, out);
        if (r < 0) {
                fd_close(out);
                fd_close(err);
                return r;
        }
        r = capture_init(&t->err, half, half, disk, err);
        if (r < 0) {
                fd_close(err);
                capture_release(&t->out);
                return r;
        }
        t->captures = true;
        return 0;
}

int score_task_start(const struct score_env *env, const char *id, struct score_request *req, int log_dirfd, score_done done, void *user,
                     struct score_task **ret, struct error *e) {
        struct score_task *t = calloc(1, sizeof(*t));
        if (!t)
                return error_set(e, -ENOMEM, "start a task");
        *t = (struct score_task){
                .env = *env, .id = strdup(id), .log_dirfd = log_dirfd, .seal_fd = -1, .watch_fd = -1, .done = done, .user = user, .started_ns = now_ns(), .phase_ns = now_ns(),
        };
        score_record_init(&t->rec);
        int r = t->id ? score_record_echo(&t->rec, req) : -ENOMEM;
        if (r < 0)
                error_set(e, r, "start a task");
        if (r == 0)
                r = command_parse(req, &t->command, e);
        if (r == 0) {
                t->merged = merges_streams(&t->command);
                t->req = *req;                          /* given back below if this fails */
                r = open_captures(t);
                if (r < 0)
                        error_set(e, r, "logs of the task");
        }
        if (r == 0) {
                uv_timer_init(env->loop, &t->last);
                t->last.data = t;
                struct error mine;
                if (task_image(t, &mine) < 0) {         /* the handle must be closed by the loop: the task ends by itself, the usual way */
                        task_set_error(t, "internal", mine.text);
                        task_end(t);
                }
        }
        if (r < 0) {
                t->req = (struct score_request){0};
                task_free(t);
                return r;
        }
        *ret = t;
        return 0;
}
