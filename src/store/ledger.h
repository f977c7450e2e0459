/* The ledger: SQLite (WAL) behind one writer thread with group commit. What a client was told was accepted or finished is
 * on disk first (synchronous=FULL). Reads of one row happen on the loop's thread through a read-only connection; they are
 * small and indexed.
 *
 * Threads: calls and callbacks on the loop's thread; the writer thread is private. Ownership: strings are copied.
 * Errors: -ENOSPC when the disk is full (the ballast has been freed and the write tried again), -EIO, -ENOMEM. */
#pragma once
#include <stdbool.h>
#include <uv.h>

#include "base/buf.h"
#include "base/error.h"

struct ledger;

/* Rows are opaque jobs to the ledger and the queue: `kind` names who runs them ("task"). */
struct ledger_job {
        const char *id;                /* uuid */
        const char *kind;
        const char *tenant;            /* labels.tenant, "" without */
        int priority;
        const char *body; size_t body_len;   /* request, JSON */
        const char *idempotency_key;   /* NULL without */
        const char *body_hash;         /* 64 hex, of the canonical request: tells a repeat from a conflict */
        int64_t created_ms;            /* wall */
};

enum job_state { JOB_QUEUED, JOB_RUNNING, JOB_FINISHED, JOB_STATE_MAX };
STRING_TABLE_DECLARE(job_state);

typedef void (*ledger_done)(int r, void *user);    /* r: 0 or -errno; once committed */

int ledger_open(uv_loop_t *loop, const char *home, struct ledger **ret, struct error *e);
void ledger_close(struct ledger *l);               /* after every accepted write is on disk */

/* done(0) new; done(-EEXIST): the idempotency key is known, look it up with ledger_find_key. */
int ledger_insert(struct ledger *l, const struct ledger_job *jobs, size_t n, ledger_done done, void *user);
int ledger_set_running(struct ledger *l, const char *id, ledger_done done, void *user);      /* counts an attempt */
int ledger_finish(struct ledger *l, const char *id, const char *outcome, const char *record, size_t record_len, ledger_done done, void *user);
int ledger_delete(struct ledger *l, const char *id, ledger_done done, void *user);           /* the key stays for the retention time */
int ledger_expire(struct ledger *l, int64_t ended_before_ms, ledger_done done, void *user);

struct ledger_row { char *id, *kind, *tenant, *outcome; int priority, attempts; enum job_state state; int64_t created_ms, ended_ms; };
void ledger_row_release(struct ledger_row *r);
int ledger_get(struct ledger *l, const char *id, struct ledger_row *ret);                    /* -ENOENT */
int ledger_get_body(struct ledger *l, const char *id, struct buf *ret);
int ledger_get_record(struct ledger *l, const char *id, struct buf *ret);                    /* -ENOENT, -EAGAIN not finished */
/* -ENOENT; else id and body_hash of the object that owns the key. */
int ledger_find_key(struct ledger *l, const char *kind, const char *tenant, const char *key, char ret_id[static 37], char ret_hash[static 65]);
/* Every row, in order of creation, for start-up recovery. */
int ledger_each(struct ledger *l, int (*row)(const struct ledger_row *r, void *user), void *user);
bool ledger_disk_low(struct ledger *l);            /* below the low-water mark: admit nothing */
const char *ledger_instance(struct ledger *l);     /* instance id, made once per BRIG_HOME */
