/* Shared by tasks.c (surface), task_run.c (from the queue to the record), task_control.c (runs without the agent's patch), task_wait.c and task_keep.c (recovery, retention). */
#pragma once
#include "base/map.h"
#include "engine/tasks.h"
#include "fleet/queue.h"
#include "score/control.h"

#define TASK_KIND "task"
#define TASK_DECODE_INLINE_MAX (256u << 10)    /* bytes of a stored body that is decoded on the loop's thread; a longer one in the pool */
#define RECENT_MAX 1024            /* statuses of finished tasks kept in memory, so that polling them costs no read */

enum phase { PHASE_QUEUED, PHASE_STARTING, PHASE_RUNNING, PHASE_RECORDING, PHASE_REQUEUEING, PHASE_REMOVING };

struct removal_call { struct removal_call *next; void (*done)(int r, void *user); void *user; };

struct task {
        struct map_node node;
        struct tasks *ts;
        struct engine_wait *waits;
        struct removal_call *removals;     /* who asked for its deletion */
        struct score_task *run;            /* PHASE_RUNNING */
        enum control_step step;            /* what of it runs */
        struct known *known;               /* of its instance: being made, waited for, or held (task_control.c) */
        struct task *next_waiter;
        char *secret_url;                  /* what its stored body lacks; wiped when the task ends */
        char *record;                      /* PHASE_RECORDING: what is being written, for a second try */
        size_t record_len;
        uint64_t queued_ms;
        int log_dirfd;
        int attempts;
        enum outcome outcome;
        enum phase phase;
        bool placed;                       /* has a place in the running set */
        bool deleting, requeue;
        bool orphan;                       /* its run was lost with the spawner, and may still call back */
        bool writing;                      /* a write of the record is under way */
        bool shrunk;                       /* the record has been replaced by a small one that says disk_full */
        char id[37];
};

struct recent { char id[37]; unsigned char status; };

struct tasks {
        struct tasks_config cfg;
        struct map map;
        struct queue *queue;
        struct map_node *orphans;          /* recorded, out of the map, kept for a run that may still call back */
        size_t decoding;                   /* bodies of tasks that start */
        size_t admitting;                  /* submissions on their way to disk */
        size_t busy;                       /* tasks in any phase but QUEUED */
        bool started, draining, low, lost;
        bool relieving;                    /* logs are being removed to make room */
        bool keeping;                      /* an expiry is under way */
        void (*drained)(void *user);
        void *drained_user;
        uv_timer_t grace, keep, watch;     /* end of the drain's grace; retention; disk space and unwritten records */
        int open_handles;
        unsigned char secret_key[32];      /* of this start, never written: see hash_request */
        char secret_epoch[9];
        struct recent recent[RECENT_MAX];
        struct map known;                  /* instances of which a control run is known, or under way */
        uint64_t known_uses;
};

struct task *task_new(struct tasks *ts, const char *id);       /* not in the map yet */
struct task *task_find(struct tasks *ts, const char *id);
void task_phase(struct task *t, enum phase phase);
void task_free(struct task *t);                                /* out of the map */
void task_orphan(struct task *t);                              /* the same, but the object stays */
void task_place_free(struct task *t);
void tasks_regulate(struct tasks *ts);                         /* pauses or resumes the queue */
void tasks_check_drained(struct tasks *ts);

/* task_run.c */
void task_start_cb(const char *id, uint64_t queued_ms, void *user);    /* the queue's */
void task_begin(struct task *t);           /* reads its request, and runs what `step` says */
bool task_may_go_on(struct task *t);       /* the task that is starting; if not, it is on its way elsewhere */
/* Takes the request over, also on failure. */
int task_start_run(struct task *t, struct score_request *req, score_done done, const char **ret_code, struct error *e);
void task_scored(struct score_record *rec, void *user);    /* the end of its run */
void task_requeue(struct task *t);
void task_fault(struct task *t, const char *code, const char *message);
void task_remove(struct task *t);
void task_write_record(struct task *t);

/* task_control.c */
int tasks_known_init(struct tasks *ts);
void tasks_known_free(struct tasks *ts);
/* As task_start_run, of a request with control runs, or one of them. */
int task_control(struct task *t, struct score_request *req, const char *key, const char **ret_code, struct error *e);
/* It goes elsewhere: out of the queue of those who wait, or what it makes is left to the next of them. True: it waited, and nobody will call for it. */
bool task_control_leave(struct task *t);

/* task_wait.c */
void task_notify(struct task *t, int r);

/* task_keep.c */
void tasks_relieve(struct tasks *ts);      /* makes room if the disk is short: old logs first, then what can be made again */
int tasks_recover(struct tasks *ts, struct error *e);
void tasks_recent_put(struct tasks *ts, const char *id, enum task_status st);
bool tasks_recent_get(const struct tasks *ts, const char *id, enum task_status *ret);
void tasks_recent_forget(struct tasks *ts, const char *id);    /* NULL: all */
