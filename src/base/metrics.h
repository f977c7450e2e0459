/* Numbers about the running process, in one static table (metrics.c), written in Prometheus' text format.
 *
 *     metrics_add(METRIC_TASKS_FINISHED, outcome_to_string(o), 1);
 *     metrics_observe(METRIC_SCORE, ms / 1000.0);
 *     metrics_set(METRIC_TASKS_QUEUED, n);
 *
 * A metric has at most one label; a value of it appears with its first use and is copied. No memory is ever allocated: the value
 * over METRIC_VALUES_MAX, or longer than METRIC_VALUE_MAX - 1 bytes, counts as "other". Loop thread only. */
#pragma once
#include "base/buf.h"

#define METRIC_VALUES_MAX 32
#define METRIC_VALUE_MAX 32

enum metric_id {
        METRIC_TASKS_QUEUED,       /* gauge */
        METRIC_TASKS_RUNNING,      /* gauge */
        METRIC_TASKS_SUBMITTED,    /* counter */
        METRIC_TASKS_FINISHED,     /* counter by outcome */
        METRIC_INFRA_ERRORS,       /* counter by code */
        METRIC_QUEUE_WAIT,         /* histogram, s: accepted to started */
        METRIC_CREATE,             /* histogram, s: a sandbox, asked for to ready */
        METRIC_EXEC,               /* histogram, s: a test command, started to ended */
        METRIC_SCORE,              /* histogram, s: a task, started to record */
        METRIC_HTTP_REQUESTS,      /* counter by status code */
        METRIC_HTTP_CONNECTIONS,   /* gauge */
        METRIC_SESSIONS,           /* gauge */
        METRIC_SESSIONS_STARTED,   /* counter */
        METRIC_SESSIONS_ENDED,     /* counter by state */
        METRIC_RLM_SESSIONS,       /* gauges, of the RLM runtime */
        METRIC_RLM_TURNS,
        METRIC_RLM_SLOTS,
        METRIC_RLM_SLOTS_USED,
        METRIC_RLM_WAITING,
        METRIC_RLM_SANDBOXES,
        METRIC_RLM_ENDING,
        METRIC_MAX,
};

void metrics_set(enum metric_id id, double value);                            /* gauges */
void metrics_add(enum metric_id id, const char *label, uint64_t n);           /* counters; label NULL where there is none */
void metrics_observe(enum metric_id id, double seconds);                      /* histograms; negative counts as 0 */
int metrics_write(struct buf *ret);                                           /* the whole table, and the process' own figures */
void metrics_reset(void);                                                     /* for tests */
