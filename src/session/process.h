/* Commands of a session: processes in its standing sandbox.
 *
 * A command runs, and ends when its main process does; what it left behind lives on until the session ends, or, where the command
 * timed out, dies with it. Either somebody waits (`done`), or it is a background command: it has a place in the session's list
 * under its own id, its whole output is in two log files, and its end is kept until it is forgotten or the session ends.
 *
 * Loop thread only. Callbacks run from the loop, never from inside the call that starts the work. */
#pragma once
#include "sandbox/capture.h"
#include "session/session.h"

#define PROCESSES_LIVE_MAX 256              /* that run at a time in one session */
#define PROCESSES_KEPT_MAX 64              /* background commands of one session, ended ones included: the oldest ended goes */
#define PROCESS_TEXT_MAX (120u * 1024)     /* bytes of `command`, of one argument; the kernel takes 128 KiB */
#define PROCESS_ARGS_MAX 10000
#define PROCESS_STDIN_MAX (16u << 20)      /* bytes given at once; what is written to a background command has no bound */
#define PROCESS_OUTPUT_MAX (64u << 20)     /* bytes of a stream kept in memory */
#define PROCESS_LOG_MAX (64ull << 20)      /* bytes of a background command's stream on disk; beyond it the command is killed */
#define PROCESS_FOLLOWERS_MAX 32           /* of one background command */
#define PROCESS_TIMEOUT_MAX_S (7 * 86400)
#define PROCESS_TIMEOUT_EXIT 124

struct process;

enum process_state { PROCESS_WAITING, PROCESS_RUNNING, PROCESS_EXITED, PROCESS_STATE_MAX };
STRING_TABLE_DECLARE(process_state);       /* "waiting", "running", "exited" */

struct process_spec {                      /* read during the call */
        const char *shell;                 /* for /bin/bash; exactly one of shell and argv */
        bool login;                        /* -lc instead of -c */
        const char *const *argv;           /* as it is; argv[0] is looked up in PATH */
        const char *const *env;            /* "K=V", over the session's; may be NULL */
        const char *cwd;                   /* NULL: the session's; relative: to that */
        bool user_given;
        uint32_t uid, gid;
        uint64_t timeout_ms;               /* from the start of the process; 0 = none */
        uint64_t output_limit;             /* bytes of a stream kept in memory, half head, half tail; 0 = the server's */
        const char *input; size_t input_len;   /* standard input; NULL = /dev/null */
        bool background;
        bool passive;                      /* background: does not keep the session from being idle */
        bool keep_input;                   /* standard input stays open for process_write */
        bool merge;                        /* standard error goes where standard output goes */
};

struct process_end {
        int exit_code;                     /* 128 + n for a signal, 124 for a timeout, 126 or 127: it could not be executed */
        bool timed_out, output_limit, oom;
        bool session_ended;                /* it was killed with its session */
        const struct output_capture *out, *err;
        const struct exec_end *exec;       /* the kernel's facts */
};
typedef void (*process_done)(const struct process_end *end, void *user);

/* -ENOENT no such session, -EAGAIN not ready, -EBUSY paused, -EUSERS too many commands, -ESHUTDOWN, -ENOMEM, -EINVAL with a text. `done` NULL:
 * nobody waits. The object is gone when `done` returns, unless it is a background command. */
int process_start(struct sessions *ss, const char *session, const struct process_spec *spec, process_done done, void *user,
                  struct process **ret, struct error *e);
/* The waiter is gone: `done` will not run; the command goes on to its end or timeout, or is killed now. */
void process_abandon(struct process *p, bool kill);
/* The number under which process_with_input finds a command with keep_input: of the same row as those of background commands. 0: it has none. */
unsigned process_input_id(const struct process *p);
int process_signal(struct process *p, int sig);            /* to its main process; -ESRCH when it has ended */
int process_kill(struct process *p);                       /* SIGKILL to it and what it started */
/* Every byte as it comes, beside the captures; never after `done`. Set before the loop runs again. */
void process_on_bytes(struct process *p, void (*bytes)(int stream, const char *p, size_t n, void *user), void *user);
void process_hold(struct process *p, bool hold);           /* the program waits with its output: see exec_hold() */

/* ---- background ------------------------------------------------------------------------------------------------------------ */

struct process_view {
        unsigned id;
        enum process_state state;
        const char *text;                  /* the command, or its words joined; cut at 1 KiB */
        int exit_code; bool timed_out, output_limit, oom, session_ended;      /* EXITED */
        bool merged;                       /* standard error is in standard output's log */
        int64_t started_ms, ended_ms;      /* wall */
        uint64_t out_bytes, err_bytes;     /* seen */
};
struct process *process_find(struct sessions *ss, const char *session, unsigned id);   /* NULL: no such session or command */
void process_view(const struct process *p, struct process_view *ret);
int processes_list(struct sessions *ss, const char *session, int (*each)(const struct process_view *v, void *user), void *user);
/* A stream's whole log, opened for reading; it may still grow. What has EXITED has written all of it. */
int process_log(struct process *p, int stream);

/* Whoever wants to hear that there is more in the logs, or that the command has ended. It keeps neither the command nor its session. Lies in
 * the follower's own object. */
struct process_follower {
        void (*more)(struct process_follower *f);      /* at most once a turn of the loop */
        void (*gone)(struct process_follower *f, const struct process_view *end);      /* it has ended and is forgotten: logs that are open stay so */
        struct process *process;                       /* NULL: follows nothing */
        struct process_follower *next, **at;
};
int process_follow(struct process *p, struct process_follower *f);     /* -EUSERS: PROCESS_FOLLOWERS_MAX */
void process_unfollow(struct process_follower *f);                     /* fine on one that follows nothing */
/* The command with that number, in the background or not, whose standard input was kept open; NULL. */
struct process *process_with_input(struct sessions *ss, const char *session, unsigned id);
/* Queues bytes for its standard input; `done(r)` when the pipe has taken them all (r = -EPIPE: it does not read any more). -ENOTCONN: its
 * input was not kept open; -EPIPE: it has ended; -EBUSY: bytes wait already. */
int process_write(struct process *p, const void *bytes, size_t n, bool close_after, void (*done)(int r, void *user), void *user);
/* Kills it if it runs, and forgets it and its logs. */
void process_forget(struct process *p);
