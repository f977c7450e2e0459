/* The life of tasks: accepted on disk, queued, run, recorded, kept, expired; recovery after a crash; drain. Knows of scoring
 * only a table that starts and cancels a run, so that all of it is tested without a sandbox.
 *
 *     submit ──ledger──> QUEUED ──queue──> STARTING ──ledger: running──> RUNNING ──scored──> RECORDING ──ledger──> (finished)
 *        any of these ──delete──> cancelled if it runs ──> REMOVING ──> nothing left
 *        drain: RUNNING ──grace over──> cancelled ──> REQUEUEING ──ledger──> (queued, for the next start)
 *
 * A finished task is a row of the ledger and nothing in memory. Loop thread only. */
#pragma once
#include "engine/engine.h"
#include "score/task.h"
#include "store/ledger.h"

#define TASK_ATTEMPTS_MAX 2        /* a task that was running when the daemon died runs once again */

struct tasks;

struct task_runner {
        int (*start)(void *ctx, const char *id, struct score_request *req, int log_dirfd, score_done done, void *user,
                     struct score_task **ret, struct error *e);      /* takes req over on success */
        void (*cancel)(void *ctx, struct score_task *t);
        void *ctx;
};

struct tasks_config {
        uv_loop_t *loop;
        struct ledger *ledger;
        struct task_runner runner;
        const struct score_defaults *defaults;     /* outlives the tasks */
        size_t running_max, queued_max;
        bool log_urls;                             /* somebody serves TASK_LOG_URL: records name it */
        uint64_t max_age_ms;                       /* of records, from the end */
        int runs_dirfd;                            /* stays the caller's */
        uint64_t (*shed)(uint64_t bytes, void *user);  /* the disk is short: gives up what can be made again; how much. May be NULL */
        void (*fatal)(const char *why, void *user);    /* the ledger cannot be written: the daemon must stop */
        void *user;
};

/* Reads what the last daemon left; nothing runs before tasks_start. */
int tasks_open(const struct tasks_config *cfg, struct tasks **ret, struct error *e);
void tasks_start(struct tasks *ts);
/* As engine_drain. */
void tasks_drain(struct tasks *ts, uint64_t grace_ms, void (*done)(void *user), void *user);
/* Every task that runs is recorded as interrupted (its sandbox is gone); `done` once that is on disk. */
void tasks_lost(struct tasks *ts, void (*done)(void *user), void *user);
void tasks_free(struct tasks *ts);         /* after a drain; the loop must run once more to free the handles */

int tasks_submit(struct tasks *ts, const struct engine_submission *s, engine_submitted done, void *user);
int tasks_status(struct tasks *ts, const char *id, enum task_status *ret);
int tasks_record(struct tasks *ts, const char *id, struct buf *ret);
struct engine_wait *tasks_wait(struct tasks *ts, const char *id, uint64_t wait_ms, void (*done)(int r, void *user), void *user);
int tasks_delete(struct tasks *ts, const char *id, void (*done)(int r, void *user), void *user);
void tasks_expire(struct tasks *ts);       /* what is over its age goes now; also runs by itself */

struct tasks_stats { size_t queued, running; };
void tasks_stats(const struct tasks *ts, struct tasks_stats *ret);
