/* The writer thread. Whatever has been asked for while the last commit was being synced becomes the next transaction: under
 * load one fsync carries hundreds of writes, alone a write waits for nobody.
 *
 * Each request is a savepoint in the transaction, so that one which fails by itself (a known key, a missing row) harms no
 * other. A failure of the transaction as a whole is taken apart: for want of space see ledger.h; otherwise each request is
 * tried in a transaction of its own, and only those that fail again are told so. */
#include <string.h>

#include "base/clock.h"
#include "store/ledger_internal.h"
#include "store/ledger_schema.h"

#define BATCH_MAX 1000
#define FREE_PAGES_MAX 256         /* a page is 4 KiB */

enum statement {
        S_BEGIN, S_COMMIT, S_ROLLBACK, S_SAVE, S_RELEASE, S_UNDO,
        S_KEY_ADD, S_JOB_ADD, S_BODY_ADD,
        S_RUNNING, S_REQUEUE, S_FINISH, S_RECORD_ADD,
        S_BODY_SET, S_DEL_BLOBS, S_DEL_RECORD, S_DEL_JOB, S_KEY_RELEASE, S_MAX,
};
_Static_assert(S_MAX <= ARRAY_SIZE(((struct ledger *)0)->write), "room for the writer's statements");

static const char *const sql[S_MAX] = {
        [S_BEGIN] = "BEGIN IMMEDIATE", [S_COMMIT] = "COMMIT", [S_ROLLBACK] = "ROLLBACK",
        [S_SAVE] = "SAVEPOINT one", [S_RELEASE] = "RELEASE one", [S_UNDO] = "ROLLBACK TO one",
        [S_KEY_ADD] = "INSERT INTO keys(kind, tenant, key, id, body_hash) VALUES(?1, ?2, ?3, ?4, ?5)",
        [S_JOB_ADD] = "INSERT INTO jobs(id, kind, tenant, priority, state, created_ms) VALUES(?1, ?2, ?3, ?4, 0, ?5)",
        [S_BODY_ADD] = "INSERT INTO bodies(seq, body) VALUES(last_insert_rowid(), ?1)",
        [S_RUNNING] = "UPDATE jobs SET state=1, attempts=attempts+1 WHERE id=?1 AND state<>2",
        [S_REQUEUE] = "UPDATE jobs SET state=0, attempts=max(0, attempts-1) WHERE id=?1 AND state<>2",
        [S_FINISH] = "UPDATE jobs SET state=2, outcome=?2, ended_ms=?3 WHERE id=?1 AND state<>2",
        [S_RECORD_ADD] = "INSERT INTO records(seq, record) SELECT seq, ?2 FROM jobs WHERE id=?1",
        [S_BODY_SET] = "UPDATE bodies SET body=?2 WHERE seq=(SELECT seq FROM jobs WHERE id=?1 AND state<>2)",
        [S_DEL_BLOBS] = "DELETE FROM bodies WHERE seq=(SELECT seq FROM jobs WHERE id=?1)",
        [S_DEL_RECORD] = "DELETE FROM records WHERE seq=(SELECT seq FROM jobs WHERE id=?1)",
        [S_DEL_JOB] = "DELETE FROM jobs WHERE id=?1",
        [S_KEY_RELEASE] = "UPDATE keys SET released_ms=?2 WHERE id=?1",
};

static int prepare(struct ledger *l, enum statement which, sqlite3_stmt **ret) {
        if (!l->write[which]) {
                int rc = sqlite3_prepare_v3(l->writer, sql[which], -1, SQLITE_PREPARE_PERSISTENT, &l->write[which], NULL);
                if (rc != SQLITE_OK)
                        return ledger_errno(l->writer, rc);
        }
        *ret = l->write[which];
        return 0;
}

/* Runs a prepared statement to its end. Returns 1 if it gave a row, 0 if not, -errno. */
static int step(struct ledger *l, sqlite3_stmt *s) {
        int rc = sqlite3_step(s);
        int r = rc == SQLITE_ROW ? 1 : rc == SQLITE_DONE ? 0 : ledger_errno(l->writer, rc);
        sqlite3_reset(s);
        sqlite3_clear_bindings(s);
        return r;
}

static int run(struct ledger *l, enum statement which) {
        sqlite3_stmt *s = NULL;
        int r = prepare(l, which, &s);
        return r < 0 ? r : step(l, s);
}

static void bind_text(sqlite3_stmt *s, int i, const char *v) { sqlite3_bind_text(s, i, v, -1, SQLITE_STATIC); }

static int bind_blob(sqlite3_stmt *s, int i, const char *p, size_t n) {
        int rc = n == 0 ? sqlite3_bind_zeroblob(s, i, 0) : sqlite3_bind_blob64(s, i, p, n, SQLITE_STATIC);
        return rc == SQLITE_TOOBIG ? -EFBIG : rc == SQLITE_OK ? 0 : -ENOMEM;
}

static int run_for_id(struct ledger *l, enum statement which, const char *id) {
        sqlite3_stmt *s = NULL;
        int r = prepare(l, which, &s);
        if (r < 0)
                return r;
        bind_text(s, 1, id);
        return step(l, s);
}

/* ---- one request ------------------------------------------------------------------------------------------------- */

static int key_add(struct ledger *l, const struct ledger_job *j) {
        sqlite3_stmt *s = NULL;
        int r = prepare(l, S_KEY_ADD, &s);
        if (r < 0)
                return r;
        bind_text(s, 1, j->kind);
        bind_text(s, 2, j->tenant);
        bind_text(s, 3, j->idempotency_key);
        bind_text(s, 4, j->id);
        bind_text(s, 5, j->body_hash);
        return step(l, s);
}

static int insert_job(struct ledger *l, const struct ledger_job *j) {
        int r = 0;
        if (j->idempotency_key)
                r = key_add(l, j);     /* -EEXIST by the table's own key */
        sqlite3_stmt *s = NULL;
        if (r == 0)
                r = prepare(l, S_JOB_ADD, &s);
        if (r < 0)
                return r;
        bind_text(s, 1, j->id);
        bind_text(s, 2, j->kind);
        bind_text(s, 3, j->tenant);
        sqlite3_bind_int(s, 4, j->priority);
        sqlite3_bind_int64(s, 5, j->created_ms);
        r = step(l, s);
        if (r == 0)
                r = prepare(l, S_BODY_ADD, &s);
        if (r == 0)
                r = bind_blob(s, 1, j->body, j->body_len);
        return r < 0 ? r : step(l, s);
}

static int apply_insert(struct ledger *l, struct ledger_request *q) {
        int r = 0;
        for (size_t i = 0; i < q->n_jobs && r == 0; i++)
                r = insert_job(l, &q->jobs[i]);
        return r;
}

static int apply_state(struct ledger *l, struct ledger_request *q) {
        int r = run_for_id(l, q->kind == REQUEST_RUNNING ? S_RUNNING : S_REQUEUE, q->id);
        return r < 0 ? r : sqlite3_changes(l->writer) > 0 ? 0 : -ENOENT;
}

/* Statement `which` with the request's id and bytes. */
static int put_bytes(struct ledger *l, enum statement which, struct ledger_request *q) {
        sqlite3_stmt *s = NULL;
        int r = prepare(l, which, &s);
        if (r < 0)
                return r;
        bind_text(s, 1, q->id);
        r = bind_blob(s, 2, q->record, q->record_len);
        return r < 0 ? r : step(l, s);
}

static int apply_finish(struct ledger *l, struct ledger_request *q) {
        sqlite3_stmt *s = NULL;
        int r = prepare(l, S_FINISH, &s);
        if (r < 0)
                return r;
        bind_text(s, 1, q->id);
        bind_text(s, 2, q->outcome);
        sqlite3_bind_int64(s, 3, wall_ms());
        r = step(l, s);
        if (r < 0)
                return r;
        if (sqlite3_changes(l->writer) == 0)
                return -ENOENT;
        r = put_bytes(l, S_RECORD_ADD, q);
        return r < 0 ? r : run_for_id(l, S_DEL_BLOBS, q->id);    /* the request has done its work; its key keeps a hash of it */
}

static int apply_body(struct ledger *l, struct ledger_request *q) {
        int r = put_bytes(l, S_BODY_SET, q);
        return r < 0 ? r : sqlite3_changes(l->writer) > 0 ? 0 : -ENOENT;
}

static int apply_delete(struct ledger *l, struct ledger_request *q) {
        int r = run_for_id(l, S_DEL_BLOBS, q->id);
        if (r == 0)
                r = run_for_id(l, S_DEL_RECORD, q->id);
        if (r == 0)
                r = run_for_id(l, S_DEL_JOB, q->id);
        if (r < 0)
                return r;
        if (sqlite3_changes(l->writer) == 0)
                return -ENOENT;
        sqlite3_stmt *s = NULL;
        r = prepare(l, S_KEY_RELEASE, &s);
        if (r < 0)
                return r;
        bind_text(s, 1, q->id);
        sqlite3_bind_int64(s, 2, wall_ms());
        return step(l, s);
}

/* Rare and bound once, so not worth keeping prepared. */
static int run_before(struct ledger *l, const char *text, int64_t before_ms) {
        sqlite3_stmt *s = NULL;
        int rc = sqlite3_prepare_v2(l->writer, text, -1, &s, NULL);
        if (rc != SQLITE_OK)
                return ledger_errno(l->writer, rc);
        sqlite3_bind_int64(s, 1, before_ms);
        int r = step(l, s);
        sqlite3_finalize(s);
        return r;
}

static int apply_expire(struct ledger *l, struct ledger_request *q) {
        static const char *const in_order[] = {
                "DELETE FROM keys WHERE id IN (SELECT id FROM jobs WHERE state=2 AND ended_ms<?1)",
                "DELETE FROM keys WHERE released_ms<?1",
                "DELETE FROM bodies WHERE seq IN (SELECT seq FROM jobs WHERE state=2 AND ended_ms<?1)",
                "DELETE FROM records WHERE seq IN (SELECT seq FROM jobs WHERE state=2 AND ended_ms<?1)",
                "DELETE FROM jobs WHERE state=2 AND ended_ms<?1",
        };
        for (size_t i = 0; i < ARRAY_SIZE(in_order); i++) {
                int r = run_before(l, in_order[i], q->before_ms);
                if (r < 0)
                        return r;
        }
        return sqlite3_changes(l->writer);
}

static int apply(struct ledger *l, struct ledger_request *q) {
        switch (q->kind) {
        case REQUEST_INSERT: return apply_insert(l, q);
        case REQUEST_RUNNING: case REQUEST_REQUEUE: return apply_state(l, q);
        case REQUEST_FINISH: return apply_finish(l, q);
        case REQUEST_BODY: return apply_body(l, q);
        case REQUEST_DELETE: return apply_delete(l, q);
        case REQUEST_EXPIRE: return apply_expire(l, q);
        case REQUEST_KIND_MAX: break;
        }
        ASSERT(!"unknown request");
        return -EINVAL;
}

/* ---- one transaction ---------------------------------------------------------------------------------------------- */

static bool ends_transaction(struct ledger *l, int r) {
        return r == -ENOSPC || r == -EIO || r == -ENOMEM || sqlite3_get_autocommit(l->writer);
}

static int apply_in_savepoint(struct ledger *l, struct ledger_request *q) {
        int r = run(l, S_SAVE);
        if (r < 0)
                return r;
        q->r = apply(l, q);
        if (q->r >= 0)
                return run(l, S_RELEASE);
        if (ends_transaction(l, q->r))
                return q->r;
        r = run(l, S_UNDO);
        return r < 0 ? r : run(l, S_RELEASE);
}

/* All of `first`.. that are not skipped, up to `end` (exclusive). 0 once committed; else nothing has happened. */
static int transact(struct ledger *l, struct ledger_request *first, const struct ledger_request *end, bool skip_inserts) {
        int r = run(l, S_BEGIN);
        for (struct ledger_request *q = first; q != end && r >= 0; q = q->next)
                if (!(skip_inserts && q->kind == REQUEST_INSERT))
                        r = apply_in_savepoint(l, q);
        if (r >= 0)
                r = run(l, S_COMMIT);
        if (r < 0 && !sqlite3_get_autocommit(l->writer))
                run(l, S_ROLLBACK);
        if (r >= 0)
                atomic_fetch_add(&l->commits, 1);
        return r < 0 ? r : 0;
}

static void fail_all(struct ledger_request *first, int r, bool only_inserts) {
        for (struct ledger_request *q = first; q; q = q->next)
                if (!only_inserts || q->kind == REQUEST_INSERT)
                        q->r = r;
}

static bool only_inserts(const struct ledger_request *q) {
        for (; q; q = q->next)
                if (q->kind != REQUEST_INSERT)
                        return false;
        return true;
}

static void one_by_one(struct ledger *l, struct ledger_request *first) {
        for (struct ledger_request *q = first; q; q = q->next) {
                int r = transact(l, q, q->next, false);
                if (r < 0)
                        q->r = r;
        }
}

static void write_batch(struct ledger *l, struct ledger_request *first) {
        int r = transact(l, first, NULL, false);
        if (r == -ENOSPC) {
                atomic_store(&l->short_of_space, true);
                fail_all(first, -ENOSPC, true);
                if (only_inserts(first))
                        return;
                if (ballast_drop(&l->ballast))
                        atomic_fetch_add(&l->ballast_freed, 1);
                r = transact(l, first, NULL, true);
                if (r < 0)
                        fail_all(first, r, false);
        } else if (r < 0) {
                one_by_one(l, first);
        }
}

/* ---- the thread ----------------------------------------------------------------------------------------------------- */

void ledger_writer_tend(struct ledger *l) {
        int r = ballast_make(&l->ballast);
        atomic_store(&l->short_of_space, r < 0 || disk_free(l->dirfd) < l->low_water);
}

static struct ledger_request *take_batch(struct ledger *l, size_t *ret_n) {
        struct ledger_request *first = l->todo.first, *last = first;
        size_t n = first ? 1 : 0;
        for (; last && last->next && n < BATCH_MAX; last = last->next)
                n++;
        if (last) {
                l->todo.first = last->next;
                if (!last->next)
                        l->todo.last = &l->todo.first;
                last->next = NULL;
        }
        *ret_n = n;
        return first;
}

static void hand_back(struct ledger *l, struct ledger_request *first) {
        pthread_mutex_lock(&l->mutex);
        for (struct ledger_request *next; first; first = next) {
                next = first->next;
                list_add(&l->done, first);
        }
        pthread_mutex_unlock(&l->mutex);
        uv_async_send(&l->committed);
}

static bool frees_pages(const struct ledger_request *q) {
        for (; q; q = q->next)
                if ((q->kind == REQUEST_EXPIRE && q->r > 0) || (q->kind == REQUEST_FINISH && q->r == 0) || (q->kind == REQUEST_DELETE && q->r == 0))
                        return true;
        return false;
}

/* Gives pages back to the file system; only a convenience, so failure is nothing. A few are kept for the next request's body,
 * because giving back is a commit of its own. */
static void give_back(struct ledger *l) {
        sqlite3_stmt *s = NULL;
        bool many = sqlite3_prepare_v2(l->writer, "PRAGMA freelist_count", -1, &s, NULL) == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW &&
                sqlite3_column_int(s, 0) > FREE_PAGES_MAX;
        sqlite3_finalize(s);
        if (many)
                sqlite3_exec(l->writer, "PRAGMA incremental_vacuum(2000)", NULL, NULL, NULL);
}

void *ledger_writer_thread(void *arg) {
        struct ledger *l = arg;
        pthread_setname_np(pthread_self(), "ledger");
        pthread_mutex_lock(&l->mutex);
        for (;;) {
                while (!l->todo.first && !l->stop && !l->tend_wanted)
                        pthread_cond_wait(&l->wake, &l->mutex);
                bool tend = l->tend_wanted;
                l->tend_wanted = false;
                size_t n;
                struct ledger_request *batch = take_batch(l, &n);
                if (!batch && !tend && l->stop)
                        break;
                pthread_mutex_unlock(&l->mutex);
                if (batch) {
                        write_batch(l, batch);
                        atomic_fetch_add(&l->writes, n);
                        bool freed = frees_pages(batch);
                        hand_back(l, batch);
                        if (freed)
                                give_back(l);
                }
                if (tend)
                        ledger_writer_tend(l);
                pthread_mutex_lock(&l->mutex);
        }
        pthread_mutex_unlock(&l->mutex);
        return NULL;
}
