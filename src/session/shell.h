/* Persistent shells of a session: one bash each, in which commands run one after the other, so that directory, variables, functions,
 * aliases and options stay.
 *
 * Theory of operation. The bash runs a loop of ours (shell.c). It hears of a command by a line on a pipe, reads it whole from a memory
 * file, evaluates it with the streams of the command alone, and says status and directory on a pipe of its own, which commands do
 * not inherit: nothing is ever looked for in what a command prints, and what it prints is carried as it is. What was written when the
 * status comes is the command's output.
 *
 * After each command, and when it exits, the shell writes its state as shell text into a second memory file, which we keep and never
 * read. When the process is gone, by `exit`, by `exec`, by a signal or by a timeout (which kills it and what it started), the next command
 * starts another, which reads that text first. So `exit 3` is a command that ends with 3; after a kill the state is that of the last
 * command that ended. Aliases and functions may have any name, also a built-in's; a function `builtin` is taken
 * away when its command has ended, and what was disabled is enabled; a shell in which that does not help ends and says so. A command that the process had not
 * read when it ended has not run, and is given to the next one.
 *
 * An open shell does not keep its session from being idle; a command in it does. Loop thread only. */
#pragma once
#include "sandbox/capture.h"
#include "session/session.h"

#define SHELLS_MAX 16                      /* of one session */

struct shell;

struct shell_spec {                        /* read during the call */
        const char *const *env;            /* over the session's; may be NULL */
        const char *cwd;                   /* NULL: the session's */
        bool user_given;
        uint32_t uid, gid;
};
/* -ENOENT, -EAGAIN, -ESHUTDOWN as session_use_begin; -EUSERS SHELLS_MAX; -errno. */
int shell_open(struct sessions *ss, const char *session, const struct shell_spec *spec, struct shell **ret, struct error *e);

struct shell_end {
        int exit_code;                     /* 124 for a timeout */
        bool timed_out, restarted;         /* restarted: the process is gone, the next command has a new one */
        bool session_ended;
        const struct output_capture *out, *err;
        const char *cwd;                   /* where the shell stands now; NULL: not known */
        uint64_t wall_ms;
};
typedef void (*shell_done)(const struct shell_end *end, void *user);
/* `done` once, from the loop. -EBUSY: a command runs in it; -E2BIG; -ESHUTDOWN; -errno. */
int shell_run(struct shell *sh, const char *command, size_t n, uint64_t timeout_ms, uint64_t output_limit, shell_done done, void *user, struct error *e);
void shell_abandon(struct shell *sh);      /* nobody waits for the command any more: it is killed */

struct shell_view { unsigned id; bool busy; const char *cwd; uint64_t commands; int64_t created_ms; };
struct shell *shell_find(struct sessions *ss, const char *session, unsigned id);
void shell_view(const struct shell *sh, struct shell_view *ret);
int shells_list(struct sessions *ss, const char *session, int (*each)(const struct shell_view *v, void *user), void *user);
void shell_close(struct shell *sh);        /* kills it and what it started, forgets it */
