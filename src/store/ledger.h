/* The ledger: SQLite (WAL) behind one writer thread with group commit. What a client was told was accepted or finished is
 * on disk first (synchronous=FULL). Reads of one row happen on the loop's thread through a read-only connection; they are
 * small and indexed.
 *
 * A full disk. A ballast file keeps `ballast_bytes` back. Below the low-water mark, or while the ballast is spent,
 * ledger_disk_low() is true and nothing should be admitted. When a write fails for want of space, new jobs of that batch are
 * refused with -ENOSPC; for everything else (what runs must be recorded) the ballast is freed and the write tried again. The
 * ballast is made again when there is room for it above the mark.
 *
 * Threads: calls and callbacks on the loop's thread; the writer thread is private. Ownership: strings are copied, but for a body that stays.
 * Errors, all as `r` of `done`: -ENOSPC the disk is full, -EIO, -ENOMEM, -EFBIG a body or record over what SQLite holds
 * (1,000,000,000 bytes), and those named below. A call itself fails only with -ENOMEM or -EAGAIN (LEDGER_PENDING_MAX);
 * then `done` does not run. */
#pragma once
#include <stdbool.h>
#include <uv.h>

#include "base/buf.h"
#include "base/error.h"

struct ledger;

#define LEDGER_PENDING_MAX (256u << 20)    /* bytes of bodies on their way to disk, beyond which inserts are put off */

struct ledger_config {
        const char *home;              /* BRIG_HOME: brig.db and ballast lie there */
        uint64_t low_water_bytes;      /* of free space */
        uint64_t ballast_bytes;        /* 64 MiB; 0 = none */
};

/* Rows are opaque jobs to the ledger and the queue: `kind` names who runs them ("task"). */
struct ledger_job {
        const char *id;                /* uuid */
        const char *kind;
        const char *tenant;            /* labels.tenant, "" without */
        int priority;
        const char *body; size_t body_len;   /* request, JSON */
        bool body_stays;               /* until `done`: it is not copied */
        const char *idempotency_key;   /* NULL without */
        const char *body_hash;         /* 64 hex, of the canonical request: tells a repeat from a conflict; NULL without a key */
        int64_t created_ms;            /* wall */
};

enum job_state { JOB_QUEUED, JOB_RUNNING, JOB_FINISHED, JOB_STATE_MAX };
STRING_TABLE_DECLARE(job_state);

typedef void (*ledger_done)(int r, void *user);    /* r: 0 or -errno; once committed */

int ledger_open(uv_loop_t *loop, const struct ledger_config *cfg, struct ledger **ret, struct error *e);
/* Returns after every accepted write is on disk and its `done` has run; the loop must run once more to free the handles. */
void ledger_close(struct ledger *l);

/* All n or none. done(-EEXIST): an idempotency key is known, look it up with ledger_find_key. */
int ledger_insert(struct ledger *l, const struct ledger_job *jobs, size_t n, ledger_done done, void *user);
/* The rest: done(-ENOENT) when there is no such job, or it has finished (set_running, requeue, finish). `done` may be NULL. */
int ledger_set_running(struct ledger *l, const char *id, ledger_done done, void *user);      /* counts an attempt */
int ledger_requeue(struct ledger *l, const char *id, ledger_done done, void *user);          /* takes the attempt back */
/* The record takes the body's place: a finished job has no body any more. */
int ledger_finish(struct ledger *l, const char *id, const char *outcome, const char *record, size_t record_len, ledger_done done, void *user);
/* Another body for a job that has not finished. */
int ledger_set_body(struct ledger *l, const char *id, const char *body, size_t body_len, ledger_done done, void *user);
int ledger_delete(struct ledger *l, const char *id, ledger_done done, void *user);           /* the key stays for the retention time */
/* Forgets what ended before, and keys whose object was deleted before. done(r >= 0): so many jobs went. */
int ledger_expire(struct ledger *l, int64_t ended_before_ms, ledger_done done, void *user);

struct ledger_row { uint64_t seq; char *id, *kind, *tenant, *outcome; int priority, attempts; enum job_state state; int64_t created_ms, ended_ms; };
void ledger_row_release(struct ledger_row *r);
int ledger_get(struct ledger *l, const char *id, struct ledger_row *ret);                    /* -ENOENT */
/* The row with its body, or with its record once it has finished, both of one moment, while two calls may see two; of the text at most the first
 * `max` bytes, and it costs these, however long it is. -ENOENT. */
int ledger_get_text(struct ledger *l, const char *id, size_t max, struct ledger_row *ret, struct buf *ret_text);
int ledger_get_body(struct ledger *l, const char *id, struct buf *ret);                      /* -ENOENT, also when it has finished */
int ledger_get_record(struct ledger *l, const char *id, struct buf *ret);                    /* -ENOENT, -EAGAIN not finished */
/* -ENOENT; else id and body_hash of the object that owns the key. */
int ledger_find_key(struct ledger *l, const char *kind, const char *tenant, const char *key, char ret_id[static 37], char ret_hash[static 65]);
/* Every job that has not finished, in order of creation, for start-up recovery. Stops at the first row() != 0 and returns it. */
int ledger_each_open(struct ledger *l, int (*row)(const struct ledger_row *r, void *user), void *user);
/* The same for jobs that ended before, oldest first. */
int ledger_each_ended(struct ledger *l, int64_t ended_before_ms, int (*row)(const struct ledger_row *r, void *user), void *user);
/* Every job of a kind other than "task" (those are too many to have an index), ended ones too, in order of creation from the one after `after_seq` on; the same. */
int ledger_each_kind(struct ledger *l, const char *kind, uint64_t after_seq, int (*row)(const struct ledger_row *r, void *user), void *user);
/* Bytes that lack to twice the low-water mark: what can go should go now, before anything has to be refused. */
uint64_t ledger_disk_lacks(const struct ledger *l);
bool ledger_disk_low(struct ledger *l);            /* admit nothing */
void ledger_tend(struct ledger *l);                /* makes a spent ballast again if there is room; also runs by itself every 2 s */

struct ledger_stats { uint64_t commits, writes, ballast_freed; };
void ledger_stats(struct ledger *l, struct ledger_stats *ret);
