/* See shell.h. */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/strv.h"
#include "session/session_internal.h"
#include "session/shell.h"

/* Descriptors in the shell; bash's own begin at 10 and it likes 255. */
#define COMMAND_FD 201
#define STATE_FD 202
#define STATUS_FD 205
#define STATUS_MAX 8192                /* bytes of a status line: a number and a directory */
#define SHELL_BEGUN "begun"            /* said when a command has been read and before it runs */
#define SHELL_BROKEN "the command left no working builtins; the shell has ended, the next one has the state from before"

/* 200 hears, 203 and 204 are the real streams; ours are nowhere, so that `set -x` traces the command and not the loop. What of ours may
 * fail stands where `set -e` does not look; eval must not, or `set -e` would mean nothing to the command. The state is restored outside any
 * function, or its variables would be local.
 *
 * All rests on `builtin` and on what is called through it. Whether eval and printf are what they were is looked at after each command: code that eval runs
 * knows if it runs in a function. (A loop that ends since it cannot read is started again by who sent the command: shell.h.) A function `builtin` is taken away, in POSIX mode, where `unset` is found before any function (what that mode leaves behind is
 * put back), and what was disabled is enabled; where that does not help (the function is readonly) the shell ends, by a word of the language alone. No
 * state is written by what does not work. */
#define PROBE "__brig_ok=; builtin eval '__brig_ok=${FUNCNAME-}=' && builtin printf -v __brig_command %s x || __brig_ok="
static const char driver[] =
        "exec 200<&0 203>&1 204>&2 </dev/null >/dev/null 2>&1\n"
        "shopt -s expand_aliases\n"
        "__brig_save() { __brig_ok=; builtin eval '__brig_ok=${FUNCNAME-}' || __brig_ok=; case ${__brig_dead-}$__brig_ok in __brig_save) ;; *) return;; esac; { builtin declare -p; builtin declare -f; builtin alias -p; builtin shopt -p; builtin set +o;"
        " builtin printf 'builtin cd -- %q\\n' \"$PWD\"; } >/proc/self/fd/202; } 2>/dev/null\n"
        "trap __brig_save EXIT\n"
        "[ -s /proc/self/fd/202 ] && . /proc/self/fd/202 || :\n"
        "while IFS= builtin read -r -u 200 __brig_go; do\n"
        "  builtin printf '" SHELL_BEGUN "\\0' >&205 || :\n"
        "  IFS= builtin read -r -d '' __brig_command </proc/self/fd/201 || :\n"
        "  builtin eval \"$__brig_command\" </dev/null >&203 2>&204 200<&- 201<&- 203>&- 204>&- 205>&-\n"
        "  __brig_status=$?\n"
        "  " PROBE "\n"
        "  case $__brig_ok in =) ;; *)\n"
        "    POSIXLY_CORRECT=y; unset -f builtin; unset POSIXLY_CORRECT\n"
        "    enable builtin alias cd declare eval printf read set shopt\n"
        "    builtin shopt -s expand_aliases; builtin shopt -u inherit_errexit\n"
        "    " PROBE "\n"
        "    case $__brig_ok in =) ;; *) __brig_dead=1; { __brig_ok=${__brig_none:?" SHELL_BROKEN "}; } 2>&204;; esac;;\n"
        "  esac\n"
        "  __brig_save || :\n"
        "  builtin printf '%s\\0%s\\0' \"$__brig_status\" \"$PWD\" >&205 || :\n"
        "done\n";

struct shell {
        struct shell *next, **at;              /* in the session's list */
        struct sessions *ss;
        struct session *session;
        struct session_use use;                /* passive: from open to close */
        struct session_use command_use;        /* while a command runs */
        struct sandbox_exec *exec;             /* NULL: no process */
        uv_poll_t *poll;                       /* of status_fd, while there is a process; its own memory: the next one may come before it is closed */
        uv_timer_t timer;
        int command_fd, state_fd, status_fd;
        char **env;
        char *cwd;                             /* where it stands */
        uint32_t uid, gid;
        struct output_capture out, err;        /* of the command, and of what wrote since the one before */
        struct buf status;
        shell_done done;
        void *user;
        uint64_t started_at, commands;
        int64_t created_ms;
        unsigned id, handles;
        bool busy, timed_out, closed;
        bool begun;                            /* the present command was read */
        bool again;                            /* and was handed over a second time: the process had ended by itself before it read it */
};

/* ---- the object ------------------------------------------------------------------------------------------------------------------- */

static void dispose(struct shell *sh) {
        capture_release(&sh->out);
        capture_release(&sh->err);
        buf_release(&sh->status);
        strv_free(sh->env);
        free(sh->cwd);
        fd_close(sh->command_fd);
        fd_close(sh->state_fd);
        fd_close(sh->status_fd);
        free(sh);
}

static void on_handle_closed(uv_handle_t *h) {
        struct shell *sh = h->data;
        if (--sh->handles == 0 && sh->closed && !sh->exec)
                dispose(sh);
}

static void on_poll_closed(uv_handle_t *h) {
        on_handle_closed(h);
        free(h);
}

static void stop_polling(struct shell *sh) {
        uv_poll_t *poll = TAKE_PTR(sh->poll);
        if (poll)
                uv_close((uv_handle_t *)poll, on_poll_closed);
}

static int start_polling(struct shell *sh, uv_poll_cb on_readable) {
        uv_poll_t *poll = malloc(sizeof *poll);
        int r = poll ? uv_poll_init(sh->ss->cfg.loop, poll, sh->status_fd) : -ENOMEM;
        if (r < 0) {
                free(poll);
                return r;
        }
        poll->data = sh;
        sh->poll = poll;
        sh->handles++;
        return uv_poll_start(poll, UV_READABLE, on_readable);
}

/* Out of its session; freed when process and handles are gone. */
static void release(struct shell *sh) {
        if (!sh->at)
                return;
        *sh->at = sh->next;
        if (sh->next)
                sh->next->at = sh->at;
        sh->at = NULL;
        sh->closed = true;
        session_use_end(&sh->use);
        uv_close((uv_handle_t *)&sh->timer, on_handle_closed);
}

static void reset_captures(struct shell *sh, uint64_t limit) {
        size_t keep = (size_t)MIN2(limit ? limit : sh->ss->cfg.output_max, (uint64_t)PROCESS_OUTPUT_MAX);
        capture_release(&sh->out);
        capture_release(&sh->err);
        capture_init(&sh->out, keep - keep / 2, keep / 2, UINT64_MAX, -1);
        capture_init(&sh->err, keep - keep / 2, keep / 2, UINT64_MAX, -1);
}

/* ---- the end of a command ----------------------------------------------------------------------------------------------------------- */

static void end_command(struct shell *sh, int exit_code, bool gone) {
        struct shell_end end = {
                .exit_code = exit_code, .timed_out = sh->timed_out, .restarted = gone, .session_ended = sh->session->ending, .out = &sh->out, .err = &sh->err,
                .cwd = sh->cwd, .wall_ms = now_ms() - sh->started_at,
        };
        shell_done done = sh->done;
        if (!sh->busy)
                return;
        sh->busy = false;
        sh->done = NULL;
        uv_timer_stop(&sh->timer);
        if (done)
                done(&end, sh->user);
        reset_captures(sh, 0);
        session_use_end(&sh->command_use);
}

static int take_status(struct shell *sh) {
        if (!sh->begun && sh->status.len >= sizeof SHELL_BEGUN && memcmp(sh->status.data, SHELL_BEGUN, sizeof SHELL_BEGUN) == 0) {
                sh->begun = true;
                buf_consume(&sh->status, sizeof SHELL_BEGUN);
        }
        const char *p = sh->status.data, *nul = memchr(p, 0, sh->status.len), *end = nul ? memchr(nul + 1, 0, sh->status.len - (size_t)(nul + 1 - p)) : NULL;
        if (!end)
                return sh->status.len < STATUS_MAX ? -EAGAIN : -EBADMSG;
        char *tail, *cwd;
        long code = strtol(p, &tail, 10);
        if (tail != nul || tail == p || code < 0 || code > 255)
                return -EBADMSG;
        cwd = strdup(nul + 1);
        if (!cwd)
                return -ENOMEM;
        free(sh->cwd);
        sh->cwd = cwd;
        buf_consume(&sh->status, (size_t)(end + 1 - p));
        return (int)code;
}

static void on_status(uv_poll_t *h, int status, int events) {
        struct shell *sh = h->data;
        char space[1024];
        ssize_t n = read(sh->status_fd, space, sizeof space);
        if (n <= 0) {
                if (!(n < 0 && (errno == EAGAIN || errno == EINTR)))
                        uv_poll_stop(h);       /* its process is about to end */
                return;
        }
        int r = buf_add(&sh->status, space, (size_t)n);
        if (r == 0 && sh->busy)
                r = take_status(sh);
        if (r >= 0 && sh->busy) {
                exec_drain(sh->exec);
                end_command(sh, r, false);
        } else if (r != -EAGAIN && sh->exec)
                exec_kill(sh->exec);           /* nonsense: it is not our loop any more */
}

static int spawn(struct shell *sh, struct error *e);

/* What was on its way when the process went. */
static void read_rest(struct shell *sh) {
        char space[1024];
        ssize_t n;
        while (sh->status_fd >= 0 && (n = read(sh->status_fd, space, sizeof space)) > 0)
                if (buf_add(&sh->status, space, (size_t)n) < 0)
                        break;
        (void)take_status(sh);
}

/* A process that the command before has broken may end when it looks for the next one: that one has not run. */
static bool begin_again(struct shell *sh, const struct exec_end *end) {
        struct error e;
        if (!sh->busy || sh->begun || sh->again || sh->timed_out || sh->closed || !end->started || sh->session->ending)
                return false;
        sh->again = true;
        if (spawn(sh, &e) < 0)
                return false;
        return exec_write(sh->exec, "\n", 1) >= 0 || sh->exec;
}

static void on_exited(struct sandbox_exec *x, const struct exec_end *end, void *user) {
        struct shell *sh = user;
        char text[ERROR_TEXT_MAX + 32];
        sh->exec = NULL;
        read_rest(sh);
        stop_polling(sh);
        sh->status_fd = fd_close(sh->status_fd);
        if (begin_again(sh, end))
                return;
        if (!end->started && sh->busy) {
                int n = snprintf(text, sizeof text, "brig: /bin/bash: %s\n", end->error.text);
                capture_feed(&sh->err, text, MIN2((size_t)n, sizeof text - 1));
        }
        end_command(sh, sh->timed_out ? PROCESS_TIMEOUT_EXIT : process_exit_code(end), true);
        if (sh->closed && sh->handles == 0)
                dispose(sh);
}

static void on_output(struct sandbox_exec *x, int stream, const void *p, size_t n, void *user) {
        struct shell *sh = user;
        capture_feed(stream == 2 ? &sh->err : &sh->out, p, n);
}

static void on_timeout(uv_timer_t *t) {
        struct shell *sh = t->data;
        sh->timed_out = true;
        if (sh->exec)
                exec_kill(sh->exec);
}

/* ---- the process --------------------------------------------------------------------------------------------------------------------- */

static int spawn(struct shell *sh, struct error *e) {
        int p[2];
        struct stat st;
        struct sandbox *sb = session_sandbox(sh->session);
        if (fstat(sh->state_fd, &st) < 0)
                return error_set(e, -errno, "start a shell");
        if (!sb)
                return error_say(e, -ESHUTDOWN, "the session has ended");
        if (pipe2(p, O_CLOEXEC) < 0)
                return error_set(e, -errno, "start a shell");
        fcntl(p[0], F_SETFL, O_NONBLOCK);
        const struct exec_fd fds[] = { { sh->command_fd, COMMAND_FD }, { sh->state_fd, STATE_FD }, { p[1], STATUS_FD } };
        struct exec_spec x = {
                .argv = (const char *const[]){ "/bin/bash", "-lc", driver, NULL }, .env = (const char *const *)sh->env, .cwd = st.st_size > 0 ? "/" : sh->cwd,     /* the state ends with its directory, which may be gone */
                .uid = sh->uid, .gid = sh->gid, .stdin_fd = -1, .stdin_pipe = true, .output = on_output, .output_bytes = UINT64_MAX,
                .fds = fds, .n_fds = ARRAY_SIZE(fds),
        };
        int r = sandbox_exec(sb, &x, on_exited, sh, &sh->exec, e);
        fd_close(p[1]);
        if (r < 0) {
                fd_close(p[0]);
                return r;
        }
        sh->status_fd = p[0];
        buf_reset(&sh->status);
        if (start_polling(sh, on_status) < 0)
                exec_kill(sh->exec);           /* nobody would hear of its commands' ends */
        return 0;
}

/* The memory file has a new length and content when the shell opens it: it hears of it afterwards. */
static int hand_over(struct shell *sh, const char *command, size_t n) {
        if (ftruncate(sh->command_fd, 0) < 0)
                return -errno;
        for (size_t at = 0; at < n;) {
                ssize_t w = pwrite(sh->command_fd, command + at, n - at, (off_t)at);
                if (w < 0 && errno != EINTR)
                        return -errno;
                at += w > 0 ? (size_t)w : 0;
        }
        return 0;
}

int shell_run(struct shell *sh, const char *command, size_t n, uint64_t timeout_ms, uint64_t output_limit, shell_done done, void *user, struct error *e) {
        if (sh->busy)
                return error_say(e, -EBUSY, "a command runs in this shell");
        if (n > PROCESS_STDIN_MAX)
                return error_say(e, -E2BIG, "the command is too long");
        const char *still = session_stands_still(sh->session);
        if (still)
                return error_say(e, -EBUSY, "%s", still);
        int r = session_use_begin(sh->ss, sh->session->id, &sh->command_use, NULL);
        if (r < 0)
                return error_say(e, r, "the session is not there to be used");
        sh->commands++;
        r = hand_over(sh, command, n);
        if (r < 0)
                error_set(e, r, "hand the command over");
        else if (!sh->exec)
                r = spawn(sh, e);
        if (r == 0 && exec_write(sh->exec, "\n", 1) < 0 && !sh->exec)
                r = error_say(e, -EPIPE, "the shell has ended");
        if (r < 0) {
                session_use_end(&sh->command_use);
                return r;
        }
        if (sh->out.total == 0 && sh->err.total == 0)
                reset_captures(sh, output_limit);
        sh->busy = true;
        sh->timed_out = sh->begun = sh->again = false;
        sh->done = done;
        sh->user = user;
        sh->started_at = now_ms();
        if (timeout_ms > 0)
                uv_timer_start(&sh->timer, on_timeout, timeout_ms, 0);
        return 0;
}

void shell_abandon(struct shell *sh) {
        sh->done = NULL;
        if (sh->busy && sh->exec)
                exec_kill(sh->exec);
}

/* ---- open and close ------------------------------------------------------------------------------------------------------------------ */

static void on_session_ends(struct session_use *u) { release(container_of(u, struct shell, use)); }      /* its process ends with the sandbox */

static int fill(struct shell *sh, const struct shell_spec *spec) {
        const char *base = session_workdir(sh->session);
        session_user(sh->session, &sh->uid, &sh->gid);
        if (spec->user_given) {
                sh->uid = spec->uid;
                sh->gid = spec->gid;
        }
        sh->env = session_environment(sh->session, sh->uid, spec->env);
        if (!spec->cwd || !spec->cwd[0] || spec->cwd[0] == '/')
                sh->cwd = strdup(spec->cwd && spec->cwd[0] ? spec->cwd : base);
        else if (asprintf(&sh->cwd, "%s/%s", base, spec->cwd) < 0)
                sh->cwd = NULL;
        sh->command_fd = memfd_create("command", MFD_CLOEXEC);
        sh->state_fd = memfd_create("state", MFD_CLOEXEC);
        if (sh->command_fd < 0 || sh->state_fd < 0)
                return -errno;
        return sh->env && sh->cwd ? 0 : -ENOMEM;
}

int shell_open(struct sessions *ss, const char *session, const struct shell_spec *spec, struct shell **ret, struct error *e) {
        struct session_use use;
        int r = session_use_begin(ss, session, &use, NULL);
        if (r < 0)
                return error_say(e, r, "the session is not there to be used");
        struct session *s = use.session;
        session_use_end(&use);
        size_t n = 0;
        for (struct shell *sh = s->shells; sh; sh = sh->next)
                n++;
        if (n >= SHELLS_MAX)
                return error_say(e, -EUSERS, "%d shells are open in this session", SHELLS_MAX);
        struct shell *sh = calloc(1, sizeof *sh);
        if (!sh)
                return error_set(e, -ENOMEM, "open a shell");
        *sh = (struct shell){ .ss = ss, .session = s, .command_fd = -1, .state_fd = -1, .status_fd = -1, .created_ms = wall_ms() };
        sh->out.log_fd = sh->err.log_fd = -1;
        buf_init(&sh->status, STATUS_MAX + 1024);
        r = fill(sh, spec);
        if (r < 0) {
                dispose(sh);
                return error_set(e, r, "open a shell");
        }
        reset_captures(sh, 0);
        ASSERT(session_use_begin(ss, session, &sh->use, on_session_ends) == 0);
        session_use_passive(&sh->use);
        uv_timer_init(ss->cfg.loop, &sh->timer);
        sh->timer.data = sh;
        sh->handles = 1;
        sh->id = ++s->last_shell;
        sh->next = s->shells;
        sh->at = &s->shells;
        if (sh->next)
                sh->next->at = &sh->next;
        s->shells = sh;
        *ret = sh;
        return 0;
}

void shell_close(struct shell *sh) {
        if (sh->exec)
                exec_kill(sh->exec);
        release(sh);
}

struct shell *shell_find(struct sessions *ss, const char *session, unsigned id) {
        struct session *s = session_find(ss, session);
        for (struct shell *sh = s ? s->shells : NULL; sh; sh = sh->next)
                if (sh->id == id)
                        return sh;
        return NULL;
}

void shell_view(const struct shell *sh, struct shell_view *ret) {
        *ret = (struct shell_view){ .id = sh->id, .busy = sh->busy, .cwd = sh->cwd, .commands = sh->commands, .created_ms = sh->created_ms };
}

int shells_list(struct sessions *ss, const char *session, int (*each)(const struct shell_view *v, void *user), void *user) {
        struct session *s = session_find(ss, session);
        int r = s ? 0 : -ENOENT;
        for (struct shell *sh = s ? s->shells : NULL; sh && r == 0; sh = sh->next) {
                struct shell_view v;
                shell_view(sh, &v);
                r = each(&v, user);
        }
        return r;
}
