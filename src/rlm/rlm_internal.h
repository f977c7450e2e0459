/* Between the files of this layer. */
#pragma once
#include "base/clock.h"
#include "rlm/action_clock.h"
#include "rlm/admission.h"
#include "rlm/child_quota.h"
#include "rlm/contract.h"
#include "rlm/rlm.h"
#include "rlm/transcript.h"
#include "rlm/warm.h"

struct waiter { struct waiter *next; void (*done)(void *user); void (*fenced)(uint64_t generation, void *user); void *user; };

struct rlm {
        struct rlm_config cfg;
        const struct rlm_face *face; void *face_user;
        struct admission admission;
        struct map sessions;
        struct rlm_root *roots;            /* all that are not gone yet */
        size_t n_turns, n_roots, n_child_roots, open_handles;
        struct warm *warm;                 /* sandboxes for roots */
        uv_timer_t unwanted;               /* when no root was wanted for long */
        uv_timer_t soon;                   /* sessions that go on from the loop */
        struct rlm_session *later;
        bool draining, ending_roots, warm_stopped, freed;
        struct waiter *drained;
};

enum root_state { ROOT_WAITING /* for a slot */, ROOT_MAKING, ROOT_READY, ROOT_ENDING };

struct rlm_root {
        struct rlm_root *next, **at;
        struct rlm *m;
        struct rlm_session *session;       /* NULL: the session is gone, or does without it */
        struct rlm_turn *turn;             /* whose process it runs or last ran, until that is confirmed dead */
        enum root_state state;
        struct ticket ticket;
        struct warm_box *box;              /* NULL: not made yet, or gone */
        void *face;
        uv_timer_t idle;
        bool tainted, closed, child;
        bool out_of_memory;                /* that limit fired */
        struct error error;                /* why it could not be made */
        char id[RLM_ID_SIZE + 8];
};

struct rlm_session {
        struct map_node node;
        struct rlm *m;
        uint64_t generation;
        unsigned raising;                  /* generations on their way to disk */
        struct rlm_root *root;             /* the one that turns use; NULL while there is none that is good */
        unsigned n_roots;                  /* all of it that are not gone */
        struct rlm_turn *turn;
        struct waiter *settled;            /* who waits until nothing is on its way to disk and no root is left that should go */
        unsigned made_roots;
        struct rlm_session *next_later;
        bool later, inserting, deleting, row_going;
        /* A child: the turn it was made for, that turn's session, the next of the turn's children. */
        struct rlm_turn *parent;
        struct rlm_session *owner, *next_child, **at_child;
        bool started;                      /* its turn has begun once */
        unsigned n_children;               /* that are not gone, of all its turns */
        struct waiter *deleted;
        rlm_created created; void *created_user;
        char id[RLM_ID_SIZE];
        char workspace[RLM_WORKSPACE_MAX + 1];
};

enum turn_state { TURN_WAITING, TURN_BEGINNING, TURN_OPEN, TURN_ENDED /* by itself; waits to be forgotten */, TURN_ENDING };

struct rlm_begin { struct rlm_begin *next, **at; struct rlm_turn *turn; rlm_begun done; void *user; };

enum action_phase { ACTION_NONE, ACTION_RUNNING, ACTION_INTERRUPTED, ACTION_KILLED, ACTION_ANSWERING /* its usage is being asked for */ };

struct rlm_turn {
        struct rlm_session *session;       /* NULL once it is fenced off */
        struct rlm *m;
        struct rlm_root *root;             /* while its process lives there */
        struct turn_process *process;
        enum turn_state state;
        uint64_t generation;
        struct tools tools;
        struct outputs outputs;
        struct buf setup;                  /* until it begins */
        struct leases leases;
        struct child_quota quota;
        struct rlm_session *children;
        struct rlm_begin *begins;
        struct rlm_poll *polls; unsigned n_polls;
        struct rlm_subscriber *subscribers; unsigned n_subscribers;
        struct waiter *ends;
        char *key, hash[65];
        uv_timer_t timer;                  /* the acquisition's end; the action's time */
        /* the action */
        enum action_phase phase;
        uint64_t action;                   /* number of the last one */
        uint64_t started_ms;
        struct action_clock clock;
        struct transcript out[2];
        struct buf final, answer;          /* answer: all but its end, while ANSWERING */
        const struct rlm_result *result;   /* within rlm_settle */
        bool has_final, timed_out;
        unsigned calls_before, prompts_before;
        int64_t cpu_before_us;
        rlm_executed executed; void *executed_user;
        unsigned hold;                     /* callers that go on with it after they have told somebody */
        bool forgotten, closed;
        char id[RLM_TURN_ID_SIZE], secret[RLM_SECRET_SIZE];
};

/* session.c */
void rlm_session_settle(struct rlm_session *s);            /* something of it has come to its end; may free it */
void rlm_session_later(struct rlm_session *s);             /* its turn goes on from the loop */
void rlm_session_raise(struct rlm_session *s);             /* its generation, in memory and on disk */
void rlm_check_drained(struct rlm *m);                     /* and what comes next on the way there */
struct rlm_session *rlm_session_new(struct rlm *m, const char *id, const char *workspace, uint64_t generation);
int waiter_add(struct waiter **list, void (*done)(void *user), void (*fenced)(uint64_t generation, void *user), void *user);
void waiters_run(struct waiter **list, uint64_t generation);
/* root.c */
int roots_open(struct rlm *m);                         /* the pool */
void roots_wanted(struct rlm *m);                      /* somebody is likely to ask for one: some are made ahead from now on */
void root_stop_idle(struct ticket *t);
int root_request(struct rlm_session *s, struct error *e);      /* session->root, made when there is a slot */
void root_end(struct rlm_root *r);                     /* destroyed; its session does without it from now on */
void root_settle(struct rlm_root *r);                  /* its turn's process is dead: keep it, or end it */
/* turn.c */
void turn_admitted(struct rlm_turn *t);                /* it has its slot: what it waits for now has bounds of its own */
void turn_step(struct rlm_turn *t);                    /* what it waits for may be there */
void turn_root_failed(struct rlm_turn *t, enum rlm_fault f, const struct error *e);
void turn_fence(struct rlm_turn *t);                   /* no authority any more, and no root */
void turn_forget(struct rlm_turn *t);                  /* in no session; freed when its process is dead */
void turn_child_gone(struct rlm_turn *t);
/* child.c */
void children_end(struct rlm_turn *t);                 /* deletes them, and lets no more come */
void child_unlink(struct rlm_session *c);              /* it is gone: its turn and session hear of it */
/* action.c */
void action_timer(struct rlm_turn *t);                 /* its timer has come, or its clock has changed */
void action_rearm(struct rlm_turn *t);
void action_output(struct turn_process *p, int stream, const char *b, size_t n, void *user);
int action_submit(struct turn_process *p, uint64_t action, const char *outputs, size_t n, struct error *why, void *user);
void action_done(struct turn_process *p, uint64_t action, const struct turn_reply *reply, void *user);
void action_ended(struct rlm_turn *t, const struct turn_end *end);     /* the process is dead: answers what still waits */
void action_cancelled(struct rlm_turn *t);
/* calls.c */
int calls_open(struct rlm_turn *t);
void calls_close(struct rlm_turn *t);                  /* everybody is told; nothing is taken any more */
void calls_release(struct rlm_turn *t);
void calls_changed(struct rlm_turn *t);                /* the number of pending calls may have changed: the clock hears of it */
void turn_event(struct rlm_turn *t, const char *event, const char *data, size_t n);
