/* Commands of sessions: see process.h. What a background command has beyond this is in process_background.c.
 *
 *     process_start ──> WAITING (execs_max is reached) ──> RUNNING ──main process ended──> done ──> freed, or EXITED if in the background
 *
 * A process holds its session in use from process_start to its end. */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "base/fs.h"
#include "base/strv.h"
#include "session/process_internal.h"

static const char *const process_state_names[] = { "waiting", "running", "exited" };
STRING_TABLE(process_state, process_state_names, PROCESS_STATE_MAX)

#define BASH "/bin/bash"
#define EXIT_NOT_FOUND 127
#define EXIT_NOT_EXECUTABLE 126

/* ---- the object ---------------------------------------------------------------------------------------------------------------- */

static void link_to_session(struct process *p, struct session *s) {
        p->next = s->processes;
        p->at = &s->processes;
        if (p->next)
                p->next->at = &p->next;
        s->processes = p;
        s->n_processes++;
        s->n_background += p->id > 0;
}

void process_unlink(struct process *p) {
        if (!p->at)
                return;
        *p->at = p->next;
        if (p->next)
                p->next->at = p->at;
        p->at = NULL;
        p->session->n_processes--;
        p->session->n_background -= p->id > 0;
        p->session->n_exited -= p->state == PROCESS_EXITED;
        if (p->session->startup == p)
                p->session->startup = NULL;
}

static void dispose(struct process *p) {
        capture_release(&p->out);
        capture_release(&p->err);
        strv_free(p->argv);
        strv_free(p->env);
        free(p->cwd);
        free(p->text);
        fd_close(p->stdin_fd);
        free(p);
}

static void on_notice_closed(uv_handle_t *h) { dispose(h->data); }

/* Out of its session already. */
void process_dispose(struct process *p) {
        process_lose_followers(p);
        if (p->notice_made)
                uv_close((uv_handle_t *)&p->notice, on_notice_closed);
        else
                dispose(p);
}

/* ---- output ---------------------------------------------------------------------------------------------------------------------- */

static void on_output(struct sandbox_exec *x, int stream, const void *bytes, size_t n, void *user) {
        struct process *p = user;
        if (p->bytes)
                p->bytes(p->merge ? 1 : stream, bytes, n, p->bytes_user);
        process_notify(p);
}

void process_on_bytes(struct process *p, void (*bytes)(int stream, const char *p, size_t n, void *user), void *user) {
        p->bytes = bytes;
        p->bytes_user = user;
}

void process_hold(struct process *p, bool hold) {
        if (p->exec)
                exec_hold(p->exec, hold);
}

/* ---- the end ----------------------------------------------------------------------------------------------------------------------- */

int process_exit_code(const struct exec_end *end) {
        if (end->timed_out)
                return PROCESS_TIMEOUT_EXIT;
        if (!end->started)
                return end->error.code == -ENOENT ? EXIT_NOT_FOUND : end->sandbox_ended ? 128 + SIGKILL : EXIT_NOT_EXECUTABLE;
        return WIFEXITED(end->status) ? WEXITSTATUS(end->status) : 128 + WTERMSIG(end->status);
}

/* The sandbox remembers that its memory was gone once; who was not killed was not the one. */
bool process_was_oom(const struct exec_end *end) {
        bool killed = end->started && ((WIFSIGNALED(end->status) && WTERMSIG(end->status) == SIGKILL) || (WIFEXITED(end->status) && WEXITSTATUS(end->status) == 128 + SIGKILL));
        return end->sandbox_ended && killed && !end->timed_out;
}

/* What a shell would say of it. */
static void say_not_started(struct process *p, const struct exec_end *end) {
        char text[ERROR_TEXT_MAX + 64];
        const char *what = p->argv && p->argv[0] ? p->argv[0] : "";
        int n = snprintf(text, sizeof text, "brig: %.200s: %s\n", what, end->error.text);
        n = MIN2(n, (int)sizeof text - 1);
        capture_feed(p->merge ? &p->out : &p->err, text, (size_t)n);
        if (p->bytes)
                p->bytes(p->merge ? 1 : 2, text, (size_t)n, p->bytes_user);
}

static void finish(struct process *p, const struct exec_end *end) {
        struct sessions *ss = p->ss;
        struct session *s = p->session;
        bool over = s->ending || !session_sandbox(s);
        p->exec = NULL;
        p->state = PROCESS_EXITED;
        if (!end->started && !over)
                say_not_started(p, end);
        p->end = (struct process_end){
                .exit_code = process_exit_code(end), .timed_out = end->timed_out, .output_limit = end->output_limit, .session_ended = over,
                .oom = !over && process_was_oom(end), .out = &p->out, .err = p->merge ? &p->out : &p->err, .exec = end,
        };
        p->ended_ms = wall_ms();
        if (p->counted) {
                p->counted = false;
                ss->inflight--;
        }
        process_input_end(p, -EPIPE);
        if (p->done)
                p->done(&p->end, p->user);
        p->end.exec = NULL;
        if (p->id > 0 && !s->closed && !p->forgotten) {
                s->n_exited++;
                process_notify(p);
                session_use_end(&p->use);
        } else {
                p->state = PROCESS_RUNNING;    /* as process_unlink counts */
                process_unlink(p);
                session_use_end(&p->use);
                process_dispose(p);
        }
        processes_admit(ss);
}

static void on_exited(struct sandbox_exec *x, const struct exec_end *end, void *user) { finish(user, end); }

/* It never ran, and will not. Not from inside process_start: callers are told from the loop. */
static void finish_unstarted(struct process *p, int code, const char *why) {
        struct exec_end end = { .status = SIGKILL };
        error_say(&end.error, code, "%s", why);
        finish(p, &end);
}

/* ---- start ------------------------------------------------------------------------------------------------------------------------- */

static int run(struct process *p, struct error *e) {
        struct session *s = p->session;
        struct sandbox *sb = session_sandbox(s);
        struct exec_spec x = {
                .argv = (const char *const *)p->argv, .env = (const char *const *)p->env, .cwd = p->cwd, .uid = p->uid, .gid = p->gid, .stdin_fd = p->stdin_fd,
                .stdin_pipe = p->keep_input, .out = &p->out, .err = p->merge ? &p->out : &p->err, .output = on_output, .writable = process_input_go_on,
                .output_bytes = p->id > 0 ? PROCESS_LOG_MAX : UINT64_MAX, .timeout_ms = p->timeout_ms,
        };
        if (!sb)
                return error_say(e, -ESHUTDOWN, "the session has ended");
        int r = sandbox_exec(sb, &x, on_exited, p, &p->exec, e);
        if (r == -ENOSPC)
                return error_say(e, -E2BIG, "the command and its environment are too long");
        if (r < 0)
                return r;
        p->state = PROCESS_RUNNING;
        p->started_ms = wall_ms();
        p->stdin_fd = fd_close(p->stdin_fd);
        strv_free(p->env);                     /* used up; argv stays for what a failure says */
        p->env = NULL;
        if (p->input)                          /* it came while the command waited */
                process_input_go_on(p->exec, p);
        return 0;
}

void processes_admit(struct sessions *ss) {
        while (ss->waiting && (ss->cfg.execs_max == 0 || ss->inflight < ss->cfg.execs_max)) {
                struct process *p = ss->waiting;
                struct error e;
                process_unwait(p);
                p->counted = true;
                ss->inflight++;
                if (run(p, &e) < 0)
                        finish_unstarted(p, e.code, e.text);
        }
        finishes_admit(ss);
}

static void wait_for_room(struct process *p) {
        struct sessions *ss = p->ss;
        p->wait_next = NULL;
        p->wait_at = ss->waiting_last;
        *ss->waiting_last = p;
        ss->waiting_last = &p->wait_next;
        ss->n_waiting++;
}

void process_unwait(struct process *p) {
        if (!p->wait_at)
                return;
        *p->wait_at = p->wait_next;
        if (p->wait_next)
                p->wait_next->wait_at = p->wait_at;
        else
                p->ss->waiting_last = p->wait_at;
        p->wait_at = NULL;
        p->ss->n_waiting--;
}

static void on_session_ends(struct session_use *u) {
        struct process *p = container_of(u, struct process, use);
        if (p->state == PROCESS_WAITING) {
                process_unwait(p);
                finish_unstarted(p, -ESHUTDOWN, "the session has ended");
        }                              /* else its exec ends with the sandbox */
}

static int make_argv(struct process *p, const struct process_spec *spec) {
        const char *const shell[] = { BASH, spec->login ? "-lc" : "-c", spec->shell, NULL };
        int r = 0;
        for (const char *const *w = spec->shell ? shell : spec->argv; r == 0 && *w; w++)
                r = strv_push(&p->argv, *w);
        return r;
}

static int make_cwd(struct process *p, const struct process_spec *spec) {
        const char *base = session_workdir(p->session);
        if (!spec->cwd || !spec->cwd[0])
                p->cwd = strdup(base);
        else if (spec->cwd[0] == '/')
                p->cwd = strdup(spec->cwd);
        else if (asprintf(&p->cwd, "%s/%s", base, spec->cwd) < 0)
                p->cwd = NULL;
        return p->cwd ? 0 : -ENOMEM;
}

static int make_captures(struct process *p, const struct process_spec *spec) {
        uint64_t keep = MIN2(spec->output_limit ? spec->output_limit : p->ss->cfg.output_max, (uint64_t)PROCESS_OUTPUT_MAX);
        size_t tail = (size_t)keep / 2;
        if (spec->background)
                return process_open_logs(p);
        capture_init(&p->out, (size_t)keep - tail, tail, UINT64_MAX, -1);
        capture_init(&p->err, (size_t)keep - tail, tail, UINT64_MAX, -1);
        return 0;
}

static int fill(struct process *p, const struct process_spec *spec) {
        session_user(p->session, &p->uid, &p->gid);
        if (spec->user_given) {
                p->uid = spec->uid;
                p->gid = spec->gid;
        }
        int r = make_argv(p, spec);
        if (r == 0)
                r = make_cwd(p, spec);
        if (r == 0 && !(p->env = session_environment(p->session, p->uid, spec->env)))
                r = -ENOMEM;
        if (r == 0 && spec->input) {
                p->stdin_fd = fs_memfd("input", spec->input, spec->input_len);
                r = p->stdin_fd < 0 ? p->stdin_fd : 0;
        }
        p->keep_input = spec->keep_input;
        if (r == 0)
                r = make_captures(p, spec);
        if (r == 0 && p->keep_input)
                p->input_id = p->id > 0 ? p->id : p->session->next_process++;
        return r;
}

static int begin(struct process *p, const struct process_spec *spec, struct error *e) {
        struct sessions *ss = p->ss;
        bool bounded = ss->cfg.execs_max > 0 && !spec->background;
        if (bounded && (ss->waiting || ss->inflight >= ss->cfg.execs_max)) {
                wait_for_room(p);
                return 0;
        }
        int r = run(p, e);
        if (r == 0 && !spec->background) {
                p->counted = true;
                ss->inflight++;
        }
        return r;
}

int process_start(struct sessions *ss, const char *session, const struct process_spec *spec, process_done done, void *user,
                  struct process **ret, struct error *e) {
        struct process *p = calloc(1, sizeof *p);
        if (!p)
                return error_set(e, -ENOMEM, "start a command");
        *p = (struct process){ .ss = ss, .done = done, .user = user, .merge = spec->merge, .timeout_ms = spec->timeout_ms, .stdin_fd = -1 };
        p->out.log_fd = p->err.log_fd = -1;
        int r = session_use_begin(ss, session, &p->use, on_session_ends);
        if (r < 0) {
                free(p);
                return error_say(e, r, "the session is not there to be used");
        }
        struct session *s = p->session = p->use.session;
        const char *still = session_stands_still(s);
        if (still)
                r = error_say(e, -EBUSY, "%s", still);
        else if (s->n_processes - s->n_exited >= PROCESSES_LIVE_MAX)
                r = error_say(e, -EUSERS, "more than %u commands run in this session", PROCESSES_LIVE_MAX);
        else if (spec->background)
                r = process_take_place(p, spec, e);
        if (r == 0 && (r = fill(p, spec)) < 0)
                error_set(e, r, "start a command");
        if (r == 0) {
                link_to_session(p, s);
                r = begin(p, spec, e);
        }
        if (r < 0) {
                process_unlink(p);
                session_use_end(&p->use);
                process_dispose(p);
                return r;
        }
        if (spec->passive)
                session_use_passive(&p->use);
        if (ret)
                *ret = p;
        return 0;
}

/* ---- from outside ---------------------------------------------------------------------------------------------------------------- */

int process_signal(struct process *p, int sig) { return p->exec ? exec_signal(p->exec, sig) : -ESRCH; }
int process_kill(struct process *p) { return p->exec ? exec_kill(p->exec) : -ESRCH; }

void process_abandon(struct process *p, bool kill) {
        p->done = NULL;
        p->bytes = NULL;
        if (!kill)
                return;
        if (p->exec)
                process_kill(p);
        else if (p->state == PROCESS_WAITING) {
                process_unwait(p);
                finish_unstarted(p, -ECANCELED, "cancelled");
        }
}
