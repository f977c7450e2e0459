/* Admission: which queued job runs next. Bounded running set; highest priority first; within a priority fair share by tenant
 * (the tenant with the fewest running, then the one served longest ago); within a tenant FIFO. Memory per queued job is its id
 * and a few words: bodies stay in the ledger. Knows nothing of what a job is: it calls `start`, and is told `queue_finished`.
 *
 * `start` is called from inside push, finished, and pause(false), as soon as there is a place; it may itself call any function
 * of the queue but queue_free. Loop thread only. */
#pragma once
#include <stdbool.h>

#include "base/error.h"

struct queue;
struct queue_limits { size_t max_running; size_t max_queued; /* 100,000 */ };

#define QUEUE_ID_MAX 36            /* bytes of an id */
#define QUEUE_PRIORITY_MAX 1000    /* priorities beyond ±1000 count as ±1000 */

struct queue *queue_new(const struct queue_limits *limits, void (*start)(const char *id, uint64_t queued_ms, void *user), void *user);
void queue_free(struct queue *q);
/* -EAGAIN full, -EEXIST queued or running already, -EINVAL id too long, -ENOMEM. */
int queue_push(struct queue *q, const char *id, const char *tenant, int priority);
int queue_remove(struct queue *q, const char *id);      /* a queued one; -ENOENT */
void queue_finished(struct queue *q, const char *id);   /* a running one: frees its place */
void queue_pause(struct queue *q, bool paused);         /* starts nothing while paused (drain, disk low) */
bool queue_full(const struct queue *q);
size_t queue_depth(const struct queue *q);
size_t queue_running(const struct queue *q);
size_t queue_entry_bytes(void);                         /* memory of one queued job, id included */
