/* What the files of the interpreter share: interpreter.c (the zygote, and who is forked when), turn_process.c (the life of a turn's
 * process), turn_io.c (its socket and pipes). */
#pragma once
#include "base/hash.h"
#include "rlm/frames.h"
#include "rlm/interpreter.h"

#define BEGIN_MAX (TURN_SETUP_MAX + 16384u)        /* bytes of the order to begin */
#define SPARE_TRIES 3          /* processes that may die before a turn has claimed one, in a row */

enum turn_state {
        TURN_FORKING,          /* the zygote was asked */
        TURN_ADOPTING,         /* it has said who it is: the spawner gives it a group */
        TURN_SPARE,            /* waits for a turn */
        TURN_BEGINNING, TURN_IDLE, TURN_BUSY,
        TURN_ENDING,           /* its group is being killed, or the word of its end is awaited */
};

struct turn_output { uv_poll_t poll; bool polled; int fd, number; struct turn_process *turn; };

struct turn_process {
        struct turn_process *next_in, **at;    /* of the interpreter's */
        struct interpreter *interpreter;       /* NULL: it was freed */
        uv_loop_t *loop;
        uint64_t ref;                          /* the zygote's name for it */
        enum turn_state state;
        bool claimed;                          /* there is a turn: callbacks */
        struct turn_callbacks cb; void *user;
        uint64_t started_ms;

        int control; uv_poll_t poll; bool polled;
        struct frames frames;
        struct buf out; size_t out_at;         /* towards the process, and how much of it is sent */
        struct turn_output output[2];
        bool held;

        int pid; uint32_t uid;                 /* as the kernel said with its first word */
        int pidfd; uv_poll_t death; bool death_polled;
        struct sandbox_adopted *adopted;
        bool adopted_done, empty;              /* the spawner has it; nothing of it is left */
        bool status_known;                     /* the zygote has reaped it */

        struct buf begin;                      /* what it is to be told when it can begin */
        uint64_t action; unsigned submits;
        bool accepted;                         /* a SUBMIT of this action */
        struct buf next; uint64_t next_action; bool next_waits;        /* an execute that waits for `begun` or for an interrupt to have arrived */
        bool interrupting;                     /* the signal is on its way */
        uv_timer_t grace; bool grace_made, graced;

        bool reason_set;
        struct turn_end end;
        void (*counted)(struct turn_process *t, int64_t cpu_us, void *user); void *user_counted;
        unsigned closing; bool finished;
};

struct interpreter {
        struct sandbox *sandbox;
        struct sandbox_exec *exec;             /* NULL: has ended */
        uv_loop_t *loop;
        struct interpreter_callbacks cb; void *user;
        int control; uv_poll_t poll; bool polled;
        uv_timer_t timer; bool timer_made;
        bool ready, warm, lost, freed, ended_exec;
        char version[32];
        char cache[SHA256_HEX];                        /* under which name what it compiles is kept; "" = not */
        struct error error;                    /* why it is lost, once that is known */
        char said[256];                        /* the end of what python wrote to its standard error */
        uint64_t last_ref;
        struct turn_process *processes;        /* list: the turn, the spare, those that are ending */
        struct turn_process *turn, *spare;
        struct turn_process *telling;          /* whose `ended` is being told: it may free us */
        unsigned deaths;                       /* of spares in a row */
        unsigned closing;
};

/* ---- interpreter.c ---- */
int interpreter_fork(struct interpreter *in, struct turn_process *t, const int fds[3]);
void interpreter_gone(struct interpreter *in, struct turn_process *t);         /* it has ended, and is out of everything */
void interpreter_think(struct interpreter *in);        /* is a process to be forked? */
void interpreter_check_lost(struct interpreter *in);   /* after `ended` has been told */

/* ---- turn_process.c ---- */
int turn_new(struct interpreter *in, struct turn_process **ret);       /* asks for a fork */
void turn_forked(struct turn_process *t, int r);
void turn_reaped(struct turn_process *t, int status);
void turn_lost(struct turn_process *t, const struct error *e);         /* sandbox or zygote have ended */
void turn_abandon(struct turn_process *t);             /* the interpreter is freed: no callback any more */
void turn_frame(struct turn_process *t, const struct frame *f);
void turn_fail(struct turn_process *t, enum turn_end_reason reason, int code, const char *text);
void turn_hung_up(struct turn_process *t);             /* its socket has come to its end */
void turn_said_who(struct turn_process *t, int pid, uint32_t uid);     /* the credentials of a first word */

/* ---- turn_io.c ---- */
int turn_io_open(struct turn_process *t, int ret_far[3]);
int turn_io_start(struct turn_process *t);
int turn_io_send(struct turn_process *t);              /* what is in t->out, as far as it goes */
void turn_io_drain(struct turn_process *t);            /* what the pipes hold at this moment */
void turn_io_stop(struct turn_process *t);             /* nothing is read or written any more */
void turn_io_close(struct turn_process *t);            /* handles, by turn_close_handle */
void turn_io_release(struct turn_process *t);
void turn_close_handle(struct turn_process *t, uv_handle_t *h);
