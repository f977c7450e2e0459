/* Between process.c and process_background.c. */
#pragma once
#include "session/session_internal.h"

#define PROCESS_SHOWN_MAX 1024             /* bytes of a command that a view shows */

struct process_input;

struct process {
        struct process *next, **at;        /* in the session's list */
        struct process *wait_next, **wait_at;      /* PROCESS_WAITING; wait_at NULL: not there */
        struct sessions *ss;
        struct session *session;
        struct session_use use;            /* until it has ended */
        struct sandbox_exec *exec;         /* while it runs */
        struct output_capture out, err;
        char **argv, **env;
        char *cwd;
        char *text;                        /* background: what a view shows */
        uint32_t uid, gid;
        uint64_t timeout_ms;
        int64_t started_ms, ended_ms;      /* wall */
        int stdin_fd;
        process_done done;
        void *user;
        void (*bytes)(int stream, const char *p, size_t n, void *user);
        void *bytes_user;
        struct process_follower *followers, *to_tell;      /* to_tell: the next one, while all are told */
        size_t n_followers;
        uv_idle_t notice;                  /* of its followers */
        struct process_input *input;       /* what its standard input has not taken yet */
        struct process_end end;            /* EXITED */
        enum process_state state;
        unsigned id;                       /* background: 1..; else 0 */
        unsigned input_id;                 /* keep_input: id, or a number of its own */
        bool merge, counted, notice_made, forgotten, keep_input;
};

void process_unlink(struct process *p);
void process_unwait(struct process *p);
void process_dispose(struct process *p);
/* process_background.c */
int process_open_logs(struct process *p);
int process_take_place(struct process *p, const struct process_spec *spec, struct error *e);   /* an id, and room for one more */
void process_notify(struct process *p);            /* there is more output, or an end */
void process_lose_followers(struct process *p);    /* it has ended and goes */
void process_input_go_on(struct sandbox_exec *x, void *process);
void process_input_end(struct process *p, int r);  /* whoever writes hears r */
