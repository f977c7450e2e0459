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

int engine_start(uv_loop_t *loop, const struct engine_config *cfg, struct engine **ret, struct error *e);
/* Refuses new work, cancels nothing that runs for `grace_ms`, then kills; `done` when nothing is owned. */
void engine_drain(struct engine *en, uint64_t grace_ms, void (*done)(void *user), void *user);
void engine_free(struct engine *en);

/* What requests get where they say nothing: the operator's settings. Constant for the life of the engine. */
const struct score_defaults *engine_defaults(const struct engine *en);
/* May this repository be used at all? 0, or -EINVAL with the wire's text: "Invalid value for 'repo_url': ...". */
int engine_check_source(struct engine *en, const char *repo_url, const char *commit, struct error *e);

/* Accepts a validated request body (canonical JSON); `done` once it is on disk.
 * r: 0 accepted (ret id), -EEXIST same key and same body (id of the first), -EBUSY key with another body, -EAGAIN queue full,
 * -ENOSPC disk low or full, -ESHUTDOWN draining, -EFBIG, -EIO. `done` may run from inside the call. The call itself fails only
 * with -ENOMEM, and then `done` does not run. */
typedef void (*engine_submitted)(int r, const char *id, void *user);
struct engine_submission { const char *body; size_t body_len; const char *tenant; int priority; const char *idempotency_key; };
int engine_submit(struct engine *en, const struct engine_submission *s, engine_submitted done, void *user);

int engine_task_status(struct engine *en, const char *id, enum task_status *ret);     /* -ENOENT */
int engine_task_record(struct engine *en, const char *id, struct buf *ret);           /* JSON; -EAGAIN while not finished */
/* Runs `done` once when the task ends, or after wait_ms (r = -ETIME), or if deleted (-ENOENT). Returns a handle to cancel. */
struct engine_wait;
struct engine_wait *engine_task_wait(struct engine *en, const char *id, uint64_t wait_ms, void (*done)(int r, void *user), void *user);
void engine_wait_cancel(struct engine_wait *w);
/* Cancels if queued or running, forgets the record; `done(0)` once nothing of it is left. */
int engine_task_delete(struct engine *en, const char *id, void (*done)(int r, void *user), void *user);
/* A stream's log of a task that this engine knows, opened for reading, or -ENOENT. It may still be growing. */
enum task_stream { TASK_STDOUT, TASK_STDERR, TASK_STREAM_MAX };
int engine_task_log(struct engine *en, const char *id, enum task_stream stream);
