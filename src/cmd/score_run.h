/* The two ways in which `brig score` gets its record: from a daemon, or from the engine inside this process. Both take a request
 * body and append the record, JSON, to *ret.
 *
 * 0; -EINTR: interrupted, the task was cancelled; -EINVAL: the request was refused (a fault of usage, the text says which);
 * anything else: our fault. */
#pragma once
#include <stdbool.h>

#include "cmd/client.h"

#define SCORE_RECORD_MAX (512u << 20)

struct score_run {
        const char *request; size_t request_len;
        const char *local_repo;            /* a directory of this machine that must be allowed; NULL: an address */
        bool progress;                     /* tell on standard error how it goes */
};

/* SIGINT and SIGTERM end what is under way with -EINTR. Once, before score_remote; of several threads any. */
void score_interruptible(void);
bool score_interrupted(void);
int score_remote(struct client *c, const struct score_run *run, struct buf *ret, struct error *e);
/* Needs root. Uses BRIG_HOME, else SCORE_HOME. Gives up every privilege of this process. */
int score_local(const struct score_run *run, struct buf *ret, struct error *e);
#define SCORE_HOME "/var/lib/brig-score"

/* One line that is written over; nothing unless run->progress. */
void progress_show(const struct score_run *run, const char *state, uint64_t since_ms);
void progress_clear(const struct score_run *run);
