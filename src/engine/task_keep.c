/* What outlives a run: recovery of what the last daemon left, retention of records, the memory of recent statuses. */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/strv.h"
#include "store/rundir.h"
#include "engine/tasks_internal.h"

#define EXPIRE_MAX 10000           /* tasks in one round */

/* ---- recovery ------------------------------------------------------------------------------------------------------------ */

struct recovery { struct tasks *ts; size_t again, interrupted; };

static int recover_row(const struct ledger_row *row, void *user) {
        struct recovery *rec = user;
        struct tasks *ts = rec->ts;
        if (strcmp(row->kind, TASK_KIND) != 0)
                return 0;
        struct task *t = task_new(ts, row->id);
        if (!t)
                return -ENOMEM;
        ASSERT(map_add(&ts->map, &t->node) == 0);
        t->attempts = row->attempts;
        int64_t age = wall_ms() - row->created_ms;
        t->queued_ms = age > 0 ? (uint64_t)age : 0;
        if (row->state == JOB_RUNNING && row->attempts >= TASK_ATTEMPTS_MAX) {
                rec->interrupted++;
                task_fault(t, "interrupted", "the daemon stopped twice while this task ran");
                return 0;
        }
        rec->again++;
        return queue_push(ts->queue, t->id, row->tenant, row->priority);
}

/* A run directory without a task is what a crash between the two deletions left. */
static int stray(const char *id, void *user) {
        struct tasks *ts = ((void **)user)[0];
        char ***list = ((void **)user)[1];
        struct ledger_row row;
        int r = ledger_get(ts->cfg.ledger, id, &row);
        if (r == 0)
                ledger_row_release(&row);
        return r == -ENOENT ? strv_push(list, id) : r;
}

static void strays_gone(int r, void *user) { }

static int remove_strays(struct tasks *ts) {
        _cleanup_strv_ char **list = NULL;
        int r = rundir_each(ts->cfg.runs_dirfd, stray, (void *[]){ ts, &list });
        if (r < 0 || !list)
                return r;
        return rundir_remove(ts->cfg.loop, ts->cfg.runs_dirfd, (const char *const *)list, strv_len((const char *const *)list), strays_gone, NULL);
}

int tasks_recover(struct tasks *ts, struct error *e) {
        struct recovery rec = { .ts = ts };
        int r = ledger_each_open(ts->cfg.ledger, recover_row, &rec);
        if (r < 0)
                return error_set(e, r, "recover the tasks of the last start");
        r = remove_strays(ts);
        if (r < 0)
                return error_set(e, r, "look through the run directories");
        if (rec.again + rec.interrupted > 0) {
                char again[24], interrupted[24];
                snprintf(again, sizeof again, "%zu", rec.again);
                snprintf(interrupted, sizeof interrupted, "%zu", rec.interrupted);
                log_event(LOG_INFO, "tasks.recovered", "queued", again, "interrupted", interrupted, NULL);
        }
        return 0;
}

/* ---- retention -------------------------------------------------------------------------------------------------------------- */

struct round { struct tasks *ts; char **ids; size_t n; int64_t before_ms; };

static void round_free(struct round *k) {
        k->ts->keeping = false;
        strv_free(k->ids);
        free(k);
}

static void expired(int r, void *user) {
        struct round *k = user;
        struct tasks *ts = k->ts;
        tasks_recent_forget(ts, NULL);
        if (r < 0)
                log_event(LOG_WARN, "tasks.expire_failed", "error", strerrordesc_np(-r), NULL);
        bool more = k->n == EXPIRE_MAX;
        round_free(k);
        if (more && !ts->draining)
                tasks_expire(ts);
        tasks_check_drained(ts);
}

static void rundirs_gone(int r, void *user) {
        struct round *k = user;
        if (ledger_expire(k->ts->cfg.ledger, k->before_ms, expired, k) < 0)
                expired(-ENOMEM, k);
}

/* The directories of a round go before its rows: the other way round a crash would leave directories that nobody knows. */
static int collect(const struct ledger_row *row, void *user) {
        struct round *k = user;
        if (k->n == EXPIRE_MAX) {
                k->before_ms = row->ended_ms;
                return 1;
        }
        return strv_append_take(&k->ids, &k->n, strdup(row->id));
}

static void collect_round(int r, void *user) {
        struct round *k = user;
        struct tasks *ts = k->ts;
        if (r >= 0)
                r = ledger_each_ended(ts->cfg.ledger, k->before_ms, collect, k);
        if (r >= 0 && k->n > 0)
                r = rundir_remove(ts->cfg.loop, ts->cfg.runs_dirfd, (const char *const *)k->ids, k->n, rundirs_gone, k);
        else if (r >= 0)
                rundirs_gone(0, k);    /* keys of deleted tasks may still be over their time */
        if (r < 0) {
                round_free(k);
                tasks_check_drained(ts);
        }
}

/* A task that has just ended has the time of its end from the writer, but is not seen before its commit: it would be missed here and
 * expired there, and its directory stay. So a write that changes nothing goes first. */
void tasks_expire(struct tasks *ts) {
        if (ts->keeping)
                return;
        struct round *k = calloc(1, sizeof *k);
        if (!k)
                return;                /* the next round will */
        *k = (struct round){ .ts = ts, .before_ms = wall_ms() - (int64_t)ts->cfg.max_age_ms };
        ts->keeping = true;
        if (ledger_expire(ts->cfg.ledger, INT64_MIN, collect_round, k) < 0)
                round_free(k);
}

/* ---- a disk that is nearly full ------------------------------------------------------------------------------------------------- */

#define RELIEF_MAX 256             /* logs removed in one round */
#define RELIEF_SEEN_MAX 8192       /* run directories looked at in one round */

struct finished_log { int64_t ended_ms; char id[37]; };
struct relief { struct tasks *ts; struct finished_log *logs; size_t n; };

static int find_finished(const char *id, void *user) {
        struct relief *rel = user;
        struct ledger_row row;
        if (task_find(rel->ts, id) || ledger_get(rel->ts->cfg.ledger, id, &row) < 0)
                return 0;              /* it has not ended, or is being removed */
        if (row.state == JOB_FINISHED) {
                struct finished_log *l = &rel->logs[rel->n++];
                l->ended_ms = row.ended_ms;
                snprintf(l->id, sizeof l->id, "%s", id);
        }
        ledger_row_release(&row);
        return rel->n == RELIEF_SEEN_MAX;
}

static int by_end(const void *a, const void *b) {
        const struct finished_log *x = a, *y = b;
        return (x->ended_ms > y->ended_ms) - (x->ended_ms < y->ended_ms);
}

static void relieved(int r, void *user) {
        struct tasks *ts = user;
        ts->relieving = false;
        tasks_check_drained(ts);
}

/* The oldest logs; the records stay. How many. */
static size_t remove_logs(struct tasks *ts) {
        struct relief rel = { .ts = ts, .logs = calloc(RELIEF_SEEN_MAX, sizeof *rel.logs) };
        const char *ids[RELIEF_MAX];
        if (!rel.logs)
                return 0;
        (void)rundir_each(ts->cfg.runs_dirfd, find_finished, &rel);
        qsort(rel.logs, rel.n, sizeof *rel.logs, by_end);
        size_t n = MIN2(rel.n, (size_t)RELIEF_MAX);
        for (size_t i = 0; i < n; i++)
                ids[i] = rel.logs[i].id;
        if (n > 0) {
                ts->relieving = rundir_remove(ts->cfg.loop, ts->cfg.runs_dirfd, ids, n, relieved, ts) == 0;
                char count[24];
                snprintf(count, sizeof count, "%zu", n);
                log_event(LOG_WARN, "disk.logs_removed", "tasks", count, NULL);
        }
        free(rel.logs);
        return n;
}

void tasks_relieve(struct tasks *ts) {
        uint64_t lacks = ts->draining || ts->lost || ts->relieving ? 0 : ledger_disk_lacks(ts->cfg.ledger);
        if (lacks > 0 && remove_logs(ts) == 0 && ts->cfg.shed)
                (void)ts->cfg.shed(lacks, ts->cfg.user);
}

/* ---- recent statuses ----------------------------------------------------------------------------------------------------------- */

static struct recent *slot(const struct tasks *ts, const char *id) {
        char head[9] = "";
        memccpy(head, id, 0, 8);
        return (struct recent *)&ts->recent[strtoul(head, NULL, 16) % RECENT_MAX];
}

void tasks_recent_put(struct tasks *ts, const char *id, enum task_status st) {
        struct recent *r = slot(ts, id);
        snprintf(r->id, sizeof r->id, "%s", id);
        r->status = (unsigned char)st;
}

bool tasks_recent_get(const struct tasks *ts, const char *id, enum task_status *ret) {
        const struct recent *r = slot(ts, id);
        if (strcmp(r->id, id) != 0)
                return false;
        *ret = (enum task_status)r->status;
        return true;
}

void tasks_recent_forget(struct tasks *ts, const char *id) {
        if (!id)
                memset(ts->recent, 0, sizeof ts->recent);
        else if (strcmp(slot(ts, id)->id, id) == 0)
                slot(ts, id)->id[0] = 0;
}
