/* The engine: what `brig serve` is without HTTP. Start and recovery, the queue wired to scoring, drain. `brig score` runs
 * the same engine in-process. Loop thread only. */
#pragma once
#include <uv.h>

#include "base/buf.h"
#include "base/error.h"

struct engine;
struct engine_config;      /* engine/settings.h: the one table */

enum task_status { TASK_PENDING, TASK_RUNNING, TASK_COMPLETED, TASK_FAILED, TASK_STATUS_MAX };
STRING_TABLE_DECLARE(task_status);     /* the wire's: "pending"... */
#define TASK_LOG_URL "/task/%s/log"    /* log_url of a record: the executor surface serves it */

struct score_defaults;     /* score/request.h */

/* Takes the home's lock, starts the spawner, drops every privilege for good, opens the ledger and recovers what the last
 * daemon left. Must be called as root and before the process has threads. `cfg` (checked) must outlive the engine. */
int engine_start(uv_loop_t *loop, const struct engine_config *cfg, struct engine **ret, struct error *e);
/* The port that the daemon listens on: sandboxes never get there. 0 = none. */
void engine_set_own_port(struct engine *en, uint16_t port);
/* `fatal` runs once when the engine cannot go on: the spawner died (what ran has been recorded as interrupted by then), or the
 * ledger cannot be written. The process must end, without a drain, and not with status 0. */
void engine_on_fatal(struct engine *en, void (*fatal)(const char *why, void *user), void *user);
/* Refuses new work (-ESHUTDOWN), cancels nothing that runs for `grace_ms`; what still runs then is stopped and runs again after
 * the next start. `done` when no sandbox is left and all is on disk. */
void engine_drain(struct engine *en, uint64_t grace_ms, void (*done)(void *user), void *user);
void engine_free(struct engine *en);       /* after a drain, or a fatal end; the loop must run once more to free the handles */

struct engine_stats { size_t queued, running, slots /* that may run at once */, sessions; bool draining, disk_low; };
void engine_stats(struct engine *en, struct engine_stats *ret);

struct image_store;
/* What pulls and builds images; NULL on the way down. */
struct puller;
struct builder;
struct puller *engine_puller(struct engine *en);
struct builder *engine_builder(struct engine *en);
struct image_store *engine_images(struct engine *en);       /* NULL on the way down */
/* What requests get where they say nothing: the operator's settings. Constant for the life of the engine. */
const struct score_defaults *engine_defaults(const struct engine *en);
/* May this repository be used at all? 0, or -EINVAL with a text that begins with the field: "repo_url: ...". */
int engine_check_source(struct engine *en, const char *repo_url, const char *commit, struct error *e);

/* Accepts a validated request body (canonical JSON); `done` once it is on disk.
 * r: 0 accepted (ret id), -EEXIST same key and same body (id of the first), -EBUSY key with another body, -EAGAIN queue full,
 * -ENOSPC disk low or full, -ESHUTDOWN draining, -EFBIG, -EIO. `done` may run from inside the call. The call itself fails only
 * with -ENOMEM, and then `done` does not run. */
typedef void (*engine_submitted)(int r, const char *id, void *user);
struct engine_submission {
        const char *body; size_t body_len;     /* stored: without credentials, see score_request_hide. Not copied: it must stay until `done` */
        const char *body_hash;                 /* SHA-256 of it, hex; NULL: not known yet */
        const char *secret_url;                /* what it took out of the body; kept in memory only. NULL without */
        const char *tenant;
        int priority;
        const char *idempotency_key;
};
int engine_submit(struct engine *en, const struct engine_submission *s, engine_submitted done, void *user);

int engine_task_status(struct engine *en, const char *id, enum task_status *ret);     /* -ENOENT */
int engine_task_record(struct engine *en, const char *id, struct buf *ret);           /* JSON; -EAGAIN while not finished */
/* Runs `done` once when the task ends, or after wait_ms (r = -ETIME), or if deleted (-ENOENT). Returns a handle to cancel. */
struct engine_wait;
struct engine_wait *engine_task_wait(struct engine *en, const char *id, uint64_t wait_ms, void (*done)(int r, void *user), void *user);
void engine_wait_cancel(struct engine_wait *w);
/* Cancels if queued or running, forgets the record; `done(0)` once nothing of it is left. */
int engine_task_delete(struct engine *en, const char *id, void (*done)(int r, void *user), void *user);
/* The sessions; NULL on the way down, when they are gone. */
struct sessions;
struct sessions *engine_sessions(struct engine *en);
/* The RLM runtime; NULL likewise. */
struct rlm;
struct rlm *engine_rlm(struct engine *en);
/* A stream's log of a task that this engine knows, opened for reading, or -ENOENT. It may still be growing. */
enum task_stream { TASK_STDOUT, TASK_STDERR, TASK_STREAM_MAX };
int engine_task_log(struct engine *en, const char *id, enum task_stream stream);
