/* A run of the test command: see run.h.
 *
 * The event channel is a pipe. Its reading end is on the loop, so a run with many tests never fills it; what is left in it when
 * the first process ends is taken at once, and then it is closed: what a process left behind writes later counts for nothing. */
#include "score/run.h"

#include <fcntl.h>
#include <signal.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/json.h"
#include "score/text.h"

struct run {
        uv_pipe_t pipe;
        bool pipe_open;                 /* the handle exists: memory is freed by its close callback */
        bool launched, finished, freed;
        int failed;                     /* -ENOMEM while reading */
        struct report report;
        run_done done;
        void *user;
        char chunk[64 * 1024];
};

/* ---- files ------------------------------------------------------------------------------------------------------- */

#define EMBEDDED(name) extern const unsigned char name[], name##_end[]
EMBEDDED(launcher_py);
EMBEDDED(channel_py);
EMBEDDED(reporter_pytest_py);
EMBEDDED(reporter_unittest_py);
EMBEDDED(base_config_py);
EMBEDDED(launch_sh);

#define COLLECT_FILE "collect"

static int add_file(struct run_files *f, const char *name, const void *p, size_t n) {
        ASSERT(f->n < RUN_FILES_MAX);
        int fd = fs_memfd(name, p, n);
        if (fd < 0)
                return fd;
        f->at[f->n++] = (struct sandbox_file){.name = name, .fd = fd, .mode = 0444};
        return 0;
}

static const char *verbatim_text(const struct command *c) { return c->run_text ? c->run_text : c->text; }

/* Runs the command, then gathers its reports; its status stays the command's. What it says of that is nobody's. */
static int add_collect(struct run_files *f, const char *collect) {
        _cleanup_free_ char *s = NULL;
        if (asprintf(&s, ": >" FRAMEWORK_STARTED "\nsh " RUN_DIRECTORY "/command\nstatus=$?\n{ %s; } 2>/dev/null\nexit $status\n", collect) < 0) {
                s = NULL;
                return -ENOMEM;
        }
        return add_file(f, COLLECT_FILE, s, strlen(s));
}

int run_files_make(const struct command *c, struct run_files *ret, struct error *e) {
        struct run_files f = {0};
        const struct { const char *name; const unsigned char *p, *end; bool wanted; } all[] = {
                {"launcher.py", launcher_py, launcher_py_end, true},
                {"channel.py", channel_py, channel_py_end, true},
                {"reporter_pytest.py", reporter_pytest_py, reporter_pytest_py_end, c->framework == &framework_pytest},
                {"reporter_unittest.py", reporter_unittest_py, reporter_unittest_py_end, c->framework == &framework_unittest},
                {"base_config.py", base_config_py, base_config_py_end, c->framework == &framework_pytest},
                {"launch.sh", launch_sh, launch_sh_end, c->console},
        };
        int r = 0;
        if (c->kind == COMMAND_VERBATIM) {
                const char *text = verbatim_text(c);
                r = add_file(&f, "command", text, strlen(text));
                if (r == 0 && c->reports && c->framework->collect)
                        r = add_collect(&f, c->framework->collect);
        } else
                for (size_t i = 0; r == 0 && command_has_reporter(c) && i < ARRAY_SIZE(all); i++)
                        if (all[i].wanted)
                                r = add_file(&f, all[i].name, all[i].p, (size_t)(all[i].end - all[i].p));
        if (r < 0) {
                run_files_release(&f);
                return error_set(e, r, "files for the test command");
        }
        *ret = f;
        return 0;
}

void run_files_release(struct run_files *f) {
        for (size_t i = 0; i < f->n; i++)
                fd_close(f->at[i].fd);
        f->n = 0;
}

/* ---- words and environment ----------------------------------------------------------------------------------------- */

static int push_all(char ***v, const char *const *words) {
        int r = 0;
        for (; r == 0 && *words; words++)
                r = strv_push(v, *words);
        return r;
}

char **run_argv(const struct command *c) {
        char **v = NULL;
        int r;
        if (c->kind == COMMAND_VERBATIM)
                r = push_all(&v, (const char *const[]){"sh", verbatim_text(c), NULL});
        else
                r = push_all(&v, (const char *const *)c->argv);
        return r < 0 ? strv_free(v) : v;
}

/* What the kernel is given: the interpreter without `site`, our launcher, the numbers of its descriptors. */
static char **exec_argv(const struct command *c) {
        char **v = NULL;
        int r = 0;
        if (c->kind == COMMAND_VERBATIM)
                r = push_all(&v, (const char *const[]){"sh", c->reports && c->framework->collect ? RUN_DIRECTORY "/" COLLECT_FILE : RUN_DIRECTORY "/command", NULL});
        else if (c->kind == COMMAND_ENTRY)
                r = push_all(&v, (const char *const *)c->argv);
        else if (c->console)
                r = push_all(&v, (const char *const[]){"sh", RUN_DIRECTORY "/launch.sh", c->argv[0], "3", "4", NULL});
        else {
                /* Up to "-m", which stands alone before the runner's name or holds it. */
                size_t options = strncmp(c->argv[c->runner_at], "-m", 2) == 0 ? c->runner_at : c->runner_at - 1;
                for (size_t i = 0; r == 0 && i < options; i++)
                        r = strv_push(&v, c->argv[i]);
                if (r == 0)
                        r = push_all(&v, (const char *const[]){"-S", RUN_DIRECTORY "/launcher.py", "3", "4", NULL});
        }
        return r < 0 ? strv_free(v) : v;
}

static bool same_key(const char *a, const char *b) {
        size_t n = strcspn(a, "=");
        return strncmp(a, b, n + 1) == 0;
}

static const char *given_value(const struct score_request *q, const char *key) {
        const char *ret = NULL;
        size_t n = strlen(key);
        for (char **k = q->env; k && *k; k++)
                if (strncmp(*k, key, n) == 0 && (*k)[n] == '=')
                        ret = *k + n + 1;
        return ret;
}

/* What a command that runs as a shell's text is given so that its output names the tests; before what the request gives. */
static int push_variable(char ***v, const struct score_request *q, const struct framework *f) {
        const char *given = given_value(q, f->variable) ?: "";
        _cleanup_free_ char *s = NULL;
        bool alone = f->variable_alone && *given;
        if (asprintf(&s, "%s=%s%s%s", f->variable, alone ? "" : f->value, *given && !alone ? " " : "", given) < 0) {
                s = NULL;
                return -ENOMEM;
        }
        return strv_push(v, s);
}

/* The framework that a command of a shell runs, by its text or by the ids that it is to be judged by: `make test` names none. */
static const struct framework *framework_inside(const struct score_request *q, const struct command *c) {
        if (!c || c->kind != COMMAND_VERBATIM)
                return NULL;
        const struct framework *f = c->framework;
        char **const lists[] = {q->fail_to_pass, q->pass_to_pass};
        for (size_t i = 0; !f && i < ARRAY_SIZE(lists); i++)
                if (lists[i] && *lists[i])
                        f = framework_of_ids((const char *const *)lists[i]);
        return f;
}

/* Python, told by it, leaves no compiled code in the tree; what lies there after the run was put there. */
#define NO_BYTECODE "PYTHONDONTWRITEBYTECODE"

#define WORD_END " \t\n;|&"

/* Is there one among these options that makes Python heed no variable: `-I`, `-bE`? Those with a value end a cluster, `-m` ends them all. */
static bool has_isolation(const char *p) {
        for (p += strspn(p, " \t"); *p == '-' && p[1] != '-'; p += strspn(p, " \t")) {
                size_t n = strcspn(p, "IEmcWX" WORD_END);
                if (p[n] == 'I' || p[n] == 'E')
                        return true;
                if (p[n] == 'm' || p[n] == 'c')
                        return false;
                p += n + strcspn(p + n, WORD_END);
        }
        return false;
}

static bool isolates_python(const char *text) {
        for (const char *p = text; (p = strstr(p, "python")); ) {
                p += strcspn(p, WORD_END);
                if (has_isolation(p))
                        return true;
        }
        return false;
}

bool run_leaves_no_bytecode(const struct score_request *q, const struct command *c) {
        static const char *const others[] = {NO_BYTECODE, "tox", "compileall", "py_compile", "sudo", "su"};
        const struct framework *f = framework_inside(q, c);
        const char *given = given_value(q, NO_BYTECODE);
        if (!f || !f->python || (given && !*given) || strstr(c->text, "env -") || isolates_python(c->text))
                return false;
        for (size_t i = 0; i < ARRAY_SIZE(others); i++)
                if (text_has_word(c->text, others[i]))
                        return false;
        return true;
}

char **run_environment(const struct score_request *q, const struct command *c) {
        const struct framework *inside = framework_inside(q, c), *f = inside && inside->variable ? inside : NULL;
        bool root = q->uid == 0;
        const char *const clean[] = {
                "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", root ? "HOME=/root" : "HOME=/tmp", root ? "USER=root" : "USER=user",
                "LANG=C.UTF-8", "TZ=UTC",
        };
        char **v = NULL;
        int r = 0;
        for (size_t i = 0; r == 0 && i < ARRAY_SIZE(clean); i++) {
                bool given = false;
                for (char **k = q->env; k && *k; k++)
                        given |= same_key(clean[i], *k);
                if (!given)
                        r = strv_push(&v, clean[i]);
        }
        for (char **k = q->env; r == 0 && k && *k; k++)
                if (!f || strncmp(*k, f->variable, strlen(f->variable)) != 0 || (*k)[strlen(f->variable)] != '=')
                        r = strv_push(&v, *k);
        if (r == 0 && f)
                r = push_variable(&v, q, f);
        if (r == 0 && inside && inside->python && !given_value(q, NO_BYTECODE))
                r = strv_push(&v, NO_BYTECODE "=1");
        if (r < 0)
                return strv_free(v);
        strv_sort(v);
        return v;
}

/* Variables that would let code of the tree run, or be found, before the launcher has the runner: it sets them itself, later. */
static bool is_held_back(const char *assignment) {
        static const char *const keys[] = {"PYTHONPATH=", "PYTHONSTARTUP=", "PYTHONINSPECT="};
        for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
                if (strncmp(assignment, keys[i], strlen(keys[i])) == 0)
                        return true;
        return false;
}

/* Takes them out of `env`. */
static void hold_back(char **env) {
        size_t kept = 0;
        for (size_t i = 0; env[i]; i++) {
                if (is_held_back(env[i]))
                        free(env[i]);
                else
                        env[kept++] = env[i];
        }
        env[kept] = NULL;
}

/* ---- the plan ------------------------------------------------------------------------------------------------------ */

static void put_environment(struct json_writer *w, char *const *env) {
        json_put_key(w, "environment");
        json_begin_object(w);
        for (; env && *env; env++) {
                const char *eq = strchr(*env, '=');
                char key[32];
                if (!eq || !is_held_back(*env))
                        continue;
                snprintf(key, sizeof(key), "%.*s", (int)(eq - *env), *env);
                json_field_text(w, key, eq + 1);
        }
        json_end_object(w);
}

static void put_redirects(struct json_writer *w, const struct command *c) {
        static const char *const ops[] = {[REDIRECT_READ] = "<", [REDIRECT_WRITE] = ">", [REDIRECT_APPEND] = ">>", [REDIRECT_DUP] = ">&"};
        json_put_key(w, "redirects");
        json_begin_array(w);
        for (size_t i = 0; i < c->n_redirects; i++) {
                json_begin_array(w);
                json_put_int(w, c->redirects[i].fd);
                json_put_text(w, ops[c->redirects[i].op]);
                json_put_text(w, c->redirects[i].target);
                json_end_array(w);
        }
        json_end_array(w);
}

/* Ids of a command that we built: each once, in order. */
static int put_ids(struct json_writer *w, const struct run_spec *s) {
        struct test_results seen = {0};
        char *const *const lists[] = {s->request->fail_to_pass, s->request->pass_to_pass};
        int r = 0;
        json_put_key(w, "ids");
        json_begin_array(w);
        for (size_t k = 0; s->command->kind == COMMAND_BUILT && k < ARRAY_SIZE(lists); k++)
                for (char *const *id = lists[k]; r == 0 && id && *id; id++) {
                        if (test_results_get(&seen, *id) != TEST_MISSING)
                                continue;
                        json_put_text(w, *id);
                        r = test_results_put(&seen, *id, TEST_PASSED);
                        r = r == -ENOSPC ? 0 : r;
                }
        json_end_array(w);
        test_results_release(&seen);
        return r;
}

static void put_applied(struct json_writer *w, const struct apply_result *a) {
        json_put_key(w, "base_config");
        json_begin_array(w);
        for (size_t i = 0; a && i < a->n_base_config; i++) {
                json_begin_array(w);
                json_put_text(w, a->base_config[i].path);
                if (a->base_config[i].data)
                        json_put_string(w, a->base_config[i].data, a->base_config[i].len);
                else
                        json_put_null(w);
                json_end_array(w);
        }
        json_end_array(w);
        json_put_key(w, "distrust");            /* modules that the patch made: they must not stand for the runner's */
        json_begin_array(w);
        for (char **p = a ? a->new_modules : NULL; p && *p; p++)
                json_put_text(w, *p);
        json_end_array(w);
}

static int make_plan(const struct run_spec *s, const char *nonce) {
        const struct command *c = s->command;
        _cleanup_buf_ struct buf b = BUF_INIT(RUN_PLAN_MAX);
        struct json_writer w = JSON_WRITER(&b);
        json_begin_object(&w);
        json_field_text(&w, "nonce", nonce);
        json_field_text(&w, "framework", c->framework->name);
        json_field_text(&w, "mode", s->collect ? "collect" : "run");
        json_field_text(&w, "run", run_mode_to_string(s->request->run));
        json_field_text(&w, "tree", s->request->repo_path);
        json_field_bool(&w, "console", c->console);
        json_put_key(&w, "args");
        json_put_texts(&w, c->argv + c->runner_at + 1);
        put_environment(&w, s->request->env);
        put_redirects(&w, c);
        put_applied(&w, s->apply);
        int r = put_ids(&w, s);
        json_end_object(&w);
        if (r == 0)
                r = json_finish(&w);
        return r < 0 ? r : fs_memfd("plan", b.data, b.len);
}

/* ---- the channel --------------------------------------------------------------------------------------------------- */

static void on_alloc(uv_handle_t *h, size_t size, uv_buf_t *ret) {
        struct run *r = h->data;
        *ret = uv_buf_init(r->chunk, sizeof(r->chunk));
}

static void feed(struct run *r, const void *p, size_t n) {
        int q = report_feed(&r->report, p, n);
        if (q < 0 && !r->failed)
                r->failed = q;
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *b) {
        struct run *r = s->data;
        if (n > 0)
                feed(r, b->base, (size_t)n);
        else if (n < 0)
                uv_read_stop(s);
}

static void run_dispose(struct run *r) {
        report_release(&r->report);
        free(r);
}

static void on_closed(uv_handle_t *h) {
        struct run *r = h->data;
        r->pipe_open = false;
        if (r->freed)
                run_dispose(r);
}

/* The first process has ended: takes what it had written, then closes. */
static void drain(struct run *r) {
        uv_os_fd_t fd;
        if (!r->launched || uv_is_closing((uv_handle_t *)&r->pipe))
                return;
        uv_read_stop((uv_stream_t *)&r->pipe);
        if (uv_fileno((uv_handle_t *)&r->pipe, &fd) == 0)
                for (size_t taken = 0; taken < RUN_DRAIN_MAX;) {
                        ssize_t n = read(fd, r->chunk, sizeof(r->chunk));
                        if (n <= 0 && !(n < 0 && errno == EINTR))
                                break;
                        if (n > 0) {
                                feed(r, r->chunk, (size_t)n);
                                taken += (size_t)n;
                        }
                }
        uv_close((uv_handle_t *)&r->pipe, on_closed);
}

static void on_exited(struct sandbox_exec *x, const struct exec_end *end, void *user) {
        struct run *r = user;
        drain(r);
        r->finished = true;
        r->done(r, end, r->user);
}

/* ---- start and end --------------------------------------------------------------------------------------------------- */

static int open_channel(struct run *r, uv_loop_t *loop, int *ret_write_fd) {
        int fds[2];
        if (pipe2(fds, O_CLOEXEC) < 0)
                return -errno;
        int q = uv_pipe_init(loop, &r->pipe, 0);
        if (q == 0) {
                r->pipe.data = r;
                r->pipe_open = true;
                q = uv_pipe_open(&r->pipe, fds[0]);
        }
        if (q == 0) {
                r->launched = true;
                q = uv_read_start((uv_stream_t *)&r->pipe, on_alloc, on_read);
        } else
                fd_close(fds[0]);
        if (q < 0)
                fd_close(fds[1]);
        else
                *ret_write_fd = fds[1];
        return q;
}

static int start_exec(struct run *r, const struct run_spec *s, int plan_fd, int events_fd, struct error *e) {
        _cleanup_strv_ char **argv = exec_argv(s->command), **env = run_environment(s->request, s->command);
        if (!argv || !env)
                return error_set(e, -ENOMEM, "start the test command");
        if (command_has_reporter(s->command))
                hold_back(env);
        const struct exec_fd fds[] = {{events_fd, RUN_EVENTS_FD}, {plan_fd, RUN_PLAN_FD}};
        struct exec_spec x = {
                .argv = (const char *const *)argv, .env = (const char *const *)env, .cwd = s->cwd ? s->cwd : s->request->repo_path,
                .uid = s->request->uid, .gid = s->request->gid, .stdin_fd = -1, .out = s->out, .err = s->err,
                .fds = fds, .n_fds = r->launched ? ARRAY_SIZE(fds) : 0, .timeout_ms = s->timeout_ms, .view = s->view,
        };
        struct sandbox_exec *exec;
        return sandbox_exec(s->sandbox, &x, on_exited, r, &exec, e);
}

int run_start(const struct run_spec *s, run_done done, void *user, struct run **ret, struct error *e) {
        char nonce[REPORT_NONCE_LEN + 1];
        unsigned char random[REPORT_NONCE_LEN / 2];
        _cleanup_close_ int plan_fd = -1, events_fd = -1;
        struct run *r = calloc(1, sizeof(*r));
        if (!r)
                return error_set(e, -ENOMEM, "start the test command");
        r->done = done;
        r->user = user;
        random_bytes(random, sizeof(random));
        hex_encode(random, sizeof(random), nonce);
        report_init(&r->report, nonce);
        int q = 0;
        if (command_has_reporter(s->command)) {
                q = plan_fd = make_plan(s, nonce);
                if (q >= 0)
                        q = open_channel(r, s->loop, &events_fd);
                if (q < 0)
                        error_set(e, q, "plan of the test command");
        }
        if (q >= 0)
                q = start_exec(r, s, plan_fd, events_fd, e);
        if (q < 0) {
                r->finished = true;
                run_free(r);
                return q;
        }
        *ret = r;
        return 0;
}

struct report *run_report(struct run *r) { return r->launched ? &r->report : NULL; }

void run_free(struct run *r) {
        if (!r)
                return;
        ASSERT(r->finished && !r->freed);
        r->freed = true;
        if (!r->pipe_open)
                run_dispose(r);
        else if (!uv_is_closing((uv_handle_t *)&r->pipe))
                uv_close((uv_handle_t *)&r->pipe, on_closed);
}
