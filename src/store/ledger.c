/* Theory of operation. Two connections to one database. The writer's belongs to the writer thread (ledger_writer.c); the
 * reader's to the loop, which may block on it for as long as a page takes to read. A write is a request: copied, put on a
 * list, committed with whatever else is there, and handed back through an async handle; its `done` runs on the loop, after
 * the commit, so that what `done` reads is there.
 *
 * In WAL mode with synchronous=FULL each commit is one append and one fsync of the log file; readers never wait for it. */
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <string.h>

#include "store/ledger_internal.h"
#include "store/ledger_schema.h"

#define TEND_EVERY_MS 2000

static const char *const job_state_names[] = { "queued", "running", "finished" };
STRING_TABLE(job_state, job_state_names, JOB_STATE_MAX)

/* ---- handing back ---------------------------------------------------------------------------------------------------- */

static void finish_requests(struct ledger *l) {
        struct request_list done;
        pthread_mutex_lock(&l->mutex);
        list_init(&done);
        list_join(&done, &l->done);
        pthread_mutex_unlock(&l->mutex);
        for (struct ledger_request *q = done.first, *next; q; q = next) {
                next = q->next;
                l->pending_bytes -= q->bytes;
                if (q->done)
                        q->done(q->r, q->user);
                free(q);
        }
}

static void on_committed(uv_async_t *a) { finish_requests(a->data); }

/* ---- opening and closing ---------------------------------------------------------------------------------------------- */

void ledger_tend(struct ledger *l) {
        pthread_mutex_lock(&l->mutex);
        l->tend_wanted = true;
        pthread_cond_signal(&l->wake);
        pthread_mutex_unlock(&l->mutex);
}

/* Space comes back without an event, so it has to be looked for; nothing happens here while all is well. */
static void on_tend(uv_timer_t *t) {
        struct ledger *l = t->data;
        if (l->short_of_space)
                ledger_tend(l);
}

static void free_statements(sqlite3_stmt **s, size_t n) {
        for (size_t i = 0; i < n; i++)
                sqlite3_finalize(s[i]);
}

static void ledger_free(struct ledger *l) {
        free_statements(l->read, ARRAY_SIZE(l->read));
        free_statements(l->write, ARRAY_SIZE(l->write));
        sqlite3_close(l->reader);
        sqlite3_close(l->writer);
        fd_close(l->dirfd);
        pthread_mutex_destroy(&l->mutex);
        pthread_cond_destroy(&l->wake);
        free(l);
}

static void on_closed(uv_handle_t *h) {
        struct ledger *l = h->data;
        if (--l->open_handles == 0)
                ledger_free(l);
}

static int start_thread(struct ledger *l) {
        /* Signals are the loop's. */
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        pthread_attr_t attr;
        pthread_attr_init(&attr);
        pthread_attr_setstacksize(&attr, 256 * 1024);
        int r = -pthread_create(&l->thread, &attr, ledger_writer_thread, l);
        pthread_attr_destroy(&attr);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        return r;
}

static int open_databases(struct ledger *l, const char *home, struct error *e) {
        l->dirfd = open(home, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (l->dirfd < 0)
                return error_set(e, -errno, "open %s", home);
        l->ballast.dirfd = l->dirfd;
        int r = ledger_db_open(home, 1, &l->writer, e);
        if (r == -ENOSPC && ballast_drop(&l->ballast)) {
                /* Full already at start: what ran before must still be recorded, so give the ballast back first. */
                atomic_fetch_add(&l->ballast_freed, 1);
                r = ledger_db_open(home, 1, &l->writer, e);
        }
        return r < 0 ? r : ledger_db_open(home, 0, &l->reader, e);
}

int ledger_open(uv_loop_t *loop, const struct ledger_config *cfg, struct ledger **ret, struct error *e) {
        struct ledger *l = calloc(1, sizeof *l);
        if (!l)
                return error_set(e, -ENOMEM, "open the ledger");
        l->loop = loop;
        l->dirfd = -1;
        l->low_water = cfg->low_water_bytes;
        l->ballast = (struct ballast){ .bytes = cfg->ballast_bytes, .low_water = cfg->low_water_bytes, .there = true };
        list_init(&l->todo);
        list_init(&l->done);
        pthread_mutex_init(&l->mutex, NULL);
        pthread_cond_init(&l->wake, NULL);
        int r = open_databases(l, cfg->home, e);
        if (r < 0) {
                ledger_free(l);
                return r;
        }
        ledger_writer_tend(l);
        r = start_thread(l);
        if (r < 0) {
                ledger_free(l);
                return error_set(e, r, "start the ledger's writer");
        }
        ASSERT(uv_async_init(loop, &l->committed, on_committed) == 0);
        ASSERT(uv_timer_init(loop, &l->tend) == 0);
        l->committed.data = l->tend.data = l;
        l->open_handles = 2;
        uv_timer_start(&l->tend, on_tend, TEND_EVERY_MS, TEND_EVERY_MS);
        uv_unref((uv_handle_t *)&l->tend);
        *ret = l;
        return 0;
}

void ledger_close(struct ledger *l) {
        if (!l)
                return;
        pthread_mutex_lock(&l->mutex);
        l->stop = true;
        pthread_cond_signal(&l->wake);
        pthread_mutex_unlock(&l->mutex);
        pthread_join(l->thread, NULL);
        finish_requests(l);
        uv_close((uv_handle_t *)&l->committed, on_closed);
        uv_close((uv_handle_t *)&l->tend, on_closed);
}

/* ---- writing ------------------------------------------------------------------------------------------------------------ */

static int post(struct ledger *l, struct ledger_request *q, ledger_done done, void *user) {
        q->done = done;
        q->user = user;
        l->pending_bytes += q->bytes;
        pthread_mutex_lock(&l->mutex);
        ASSERT(!l->stop);
        list_add(&l->todo, q);
        pthread_cond_signal(&l->wake);
        pthread_mutex_unlock(&l->mutex);
        return 0;
}

/* Copies n bytes and a NUL to *at and moves it; NULL stays NULL. */
static const char *put(char **at, const char *p, size_t n) {
        if (!p)
                return NULL;
        char *to = *at;
        memcpy(to, p, n);
        to[n] = 0;
        *at += n + 1;
        return to;
}

static const char *put_str(char **at, const char *s) { return s ? put(at, s, strlen(s)) : NULL; }
static size_t room(const char *s) { return s ? strlen(s) + 1 : 0; }

static struct ledger_request *request_new(enum request_kind kind, size_t n_jobs, size_t strings) {
        struct ledger_request *q = calloc(1, sizeof *q + n_jobs * sizeof q->jobs[0] + strings);
        if (q)
                *q = (struct ledger_request){ .kind = kind, .n_jobs = n_jobs };
        return q;
}

int ledger_insert(struct ledger *l, const struct ledger_job *jobs, size_t n, ledger_done done, void *user) {
        size_t blobs = 0, strings = 0;
        for (size_t i = 0; i < n; i++) {
                const struct ledger_job *j = &jobs[i];
                blobs += j->body_len;
                strings += room(j->id) + room(j->kind) + room(j->tenant) + room(j->idempotency_key) + room(j->body_hash) + (j->body_stays ? 0 : j->body_len + 1);
        }
        if (l->pending_bytes > 0 && l->pending_bytes + blobs > LEDGER_PENDING_MAX)
                return -EAGAIN;
        struct ledger_request *q = request_new(REQUEST_INSERT, n, strings);
        if (!q)
                return -ENOMEM;
        q->bytes = blobs;
        char *at = (char *)&q->jobs[n];
        for (size_t i = 0; i < n; i++) {
                const struct ledger_job *j = &jobs[i];
                q->jobs[i] = (struct ledger_job){
                        .id = put_str(&at, j->id), .kind = put_str(&at, j->kind), .tenant = put_str(&at, j->tenant),
                        .priority = j->priority, .body = j->body_stays ? j->body : put(&at, j->body ? j->body : "", j->body_len), .body_len = j->body_len,
                        .idempotency_key = put_str(&at, j->idempotency_key), .body_hash = put_str(&at, j->body_hash),
                        .created_ms = j->created_ms,
                };
        }
        return post(l, q, done, user);
}

static int post_id(struct ledger *l, enum request_kind kind, const char *id, ledger_done done, void *user) {
        struct ledger_request *q = request_new(kind, 0, room(id));
        if (!q)
                return -ENOMEM;
        char *at = (char *)q->jobs;
        q->id = put_str(&at, id);
        return post(l, q, done, user);
}

int ledger_set_running(struct ledger *l, const char *id, ledger_done done, void *user) {
        return post_id(l, REQUEST_RUNNING, id, done, user);
}

int ledger_requeue(struct ledger *l, const char *id, ledger_done done, void *user) {
        return post_id(l, REQUEST_REQUEUE, id, done, user);
}

int ledger_delete(struct ledger *l, const char *id, ledger_done done, void *user) {
        return post_id(l, REQUEST_DELETE, id, done, user);
}

static int post_blob(struct ledger *l, enum request_kind kind, const char *id, const char *outcome, const char *record, size_t record_len, ledger_done done, void *user) {
        struct ledger_request *q = request_new(kind, 0, room(id) + room(outcome) + record_len + 1);
        if (!q)
                return -ENOMEM;
        char *at = (char *)q->jobs;
        q->id = put_str(&at, id);
        q->outcome = put_str(&at, outcome);
        q->record = put(&at, record ? record : "", record_len);
        q->record_len = q->bytes = record_len;
        return post(l, q, done, user);
}

int ledger_finish(struct ledger *l, const char *id, const char *outcome, const char *record, size_t record_len, ledger_done done, void *user) {
        return post_blob(l, REQUEST_FINISH, id, outcome, record, record_len, done, user);
}

int ledger_set_body(struct ledger *l, const char *id, const char *body, size_t body_len, ledger_done done, void *user) {
        return post_blob(l, REQUEST_BODY, id, NULL, body, body_len, done, user);
}

int ledger_expire(struct ledger *l, int64_t ended_before_ms, ledger_done done, void *user) {
        struct ledger_request *q = request_new(REQUEST_EXPIRE, 0, 0);
        if (!q)
                return -ENOMEM;
        q->before_ms = ended_before_ms;
        return post(l, q, done, user);
}

/* ---- reading ------------------------------------------------------------------------------------------------------------- */

#define ROW_COLUMNS "id, kind, tenant, outcome, priority, attempts, state, created_ms, ended_ms, seq"
enum read_statement { R_GET, R_BODY, R_RECORD, R_KEY, R_OPEN, R_ENDED, R_KIND, R_MAX };
_Static_assert(R_MAX <= ARRAY_SIZE(((struct ledger *)0)->read), "room for the reader's statements");
static const char *const read_sql[R_MAX] = {
        [R_GET] = "SELECT " ROW_COLUMNS " FROM jobs WHERE id=?1",
        [R_BODY] = "SELECT body FROM jobs JOIN bodies USING (seq) WHERE id=?1",
        [R_RECORD] = "SELECT state, record FROM jobs LEFT JOIN records USING (seq) WHERE id=?1",
        [R_KEY] = "SELECT id, body_hash FROM keys WHERE kind=?1 AND tenant=?2 AND key=?3",
        [R_OPEN] = "SELECT " ROW_COLUMNS " FROM jobs WHERE state<>2 ORDER BY seq",
        [R_ENDED] = "SELECT " ROW_COLUMNS " FROM jobs WHERE state=2 AND ended_ms<?1 ORDER BY ended_ms",
        [R_KIND] = "SELECT " ROW_COLUMNS " FROM jobs WHERE kind<>'task' AND kind=?1 AND seq>?2 ORDER BY seq",
};

static int read_prepare(struct ledger *l, enum read_statement which, sqlite3_stmt **ret) {
        if (!l->read[which]) {
                int rc = sqlite3_prepare_v3(l->reader, read_sql[which], -1, SQLITE_PREPARE_PERSISTENT, &l->read[which], NULL);
                if (rc != SQLITE_OK)
                        return ledger_errno(l->reader, rc);
        }
        *ret = l->read[which];
        return 0;
}

/* A statement left in the middle keeps its snapshot, and the log could not be taken over: always reset. */
static void read_end(sqlite3_stmt **s) {
        if (!*s)
                return;
        sqlite3_reset(*s);
        sqlite3_clear_bindings(*s);
}
#define _cleanup_read_ CLEANUP(read_end)

/* 1 a row, 0 no row, -errno. */
static int read_step(struct ledger *l, sqlite3_stmt *s) {
        int rc = sqlite3_step(s);
        return rc == SQLITE_ROW ? 1 : rc == SQLITE_DONE ? 0 : ledger_errno(l->reader, rc);
}

static const char *column(sqlite3_stmt *s, int i) { return (const char *)sqlite3_column_text(s, i); }

/* Borrowed: valid until the statement moves on. */
static void row_borrow(sqlite3_stmt *s, struct ledger_row *ret) {
        *ret = (struct ledger_row){
                .id = (char *)column(s, 0), .kind = (char *)column(s, 1), .tenant = (char *)column(s, 2), .outcome = (char *)column(s, 3),
                .priority = sqlite3_column_int(s, 4), .attempts = sqlite3_column_int(s, 5), .state = (enum job_state)sqlite3_column_int(s, 6),
                .created_ms = sqlite3_column_int64(s, 7), .ended_ms = sqlite3_column_int64(s, 8), .seq = (uint64_t)sqlite3_column_int64(s, 9),
        };
}

void ledger_row_release(struct ledger_row *r) {
        free(r->id);
        free(r->kind);
        free(r->tenant);
        free(r->outcome);
        *r = (struct ledger_row){ 0 };
}

static int row_copy(const struct ledger_row *from, struct ledger_row *ret) {
        struct ledger_row r = *from;
        r.id = strdup(from->id);
        r.kind = strdup(from->kind);
        r.tenant = strdup(from->tenant);
        r.outcome = from->outcome ? strdup(from->outcome) : NULL;
        if (!r.id || !r.kind || !r.tenant || (from->outcome && !r.outcome)) {
                ledger_row_release(&r);
                return -ENOMEM;
        }
        *ret = r;
        return 0;
}

/* The row that the statement finds for the id. The caller ends the statement, on failure too. */
static int read_by_id(struct ledger *l, enum read_statement which, const char *id, sqlite3_stmt **ret) {
        int r = read_prepare(l, which, ret);
        if (r < 0)
                return r;
        sqlite3_bind_text(*ret, 1, id, -1, SQLITE_STATIC);
        r = read_step(l, *ret);
        return r < 0 ? r : r == 0 ? -ENOENT : 0;
}

int ledger_get(struct ledger *l, const char *id, struct ledger_row *ret) {
        _cleanup_read_ sqlite3_stmt *s = NULL;
        struct ledger_row borrowed;
        int r = read_by_id(l, R_GET, id, &s);
        if (r < 0)
                return r;
        row_borrow(s, &borrowed);
        return row_copy(&borrowed, ret);
}

static int add_column(sqlite3_stmt *s, int i, struct buf *ret) {
        const void *p = sqlite3_column_blob(s, i);
        int n = sqlite3_column_bytes(s, i);
        if (!p && n > 0)
                return -ENOMEM;
        return buf_add(ret, p ? p : "", (size_t)n);
}

/* Not through a column: that would have SQLite read the whole value first. */
static int add_blob(struct ledger *l, const char *table, const char *column_, int64_t seq, size_t max, struct buf *ret) {
        sqlite3_blob *blob = NULL;
        int rc = sqlite3_blob_open(l->reader, "main", table, column_, seq, 0, &blob), r = 0;
        if (rc == SQLITE_OK) {
                size_t n = MIN2((size_t)sqlite3_blob_bytes(blob), max);
                r = buf_reserve(ret, n);
                if (r == 0 && n > 0)
                        rc = sqlite3_blob_read(blob, ret->data + ret->len, (int)n, 0);
                if (r == 0 && rc == SQLITE_OK && n > 0) {
                        ret->len += n;
                        ret->data[ret->len] = 0;
                }
        }
        sqlite3_blob_close(blob);
        return r < 0 ? r : rc == SQLITE_OK ? 0 : ledger_errno(l->reader, rc);
}

/* The statement is in its row until the end, and keeps the moment for what is read beside it. */
int ledger_get_text(struct ledger *l, const char *id, size_t max, struct ledger_row *ret, struct buf *ret_text) {
        _cleanup_read_ sqlite3_stmt *s = NULL;
        struct ledger_row borrowed;
        int r = read_by_id(l, R_GET, id, &s);
        if (r < 0)
                return r;
        row_borrow(s, &borrowed);
        bool finished = borrowed.state == JOB_FINISHED;
        r = add_blob(l, finished ? "records" : "bodies", finished ? "record" : "body", (int64_t)borrowed.seq, max, ret_text);
        return r < 0 ? r : row_copy(&borrowed, ret);
}

int ledger_get_body(struct ledger *l, const char *id, struct buf *ret) {
        _cleanup_read_ sqlite3_stmt *s = NULL;
        int r = read_by_id(l, R_BODY, id, &s);
        return r < 0 ? r : add_column(s, 0, ret);
}

int ledger_get_record(struct ledger *l, const char *id, struct buf *ret) {
        _cleanup_read_ sqlite3_stmt *s = NULL;
        int r = read_by_id(l, R_RECORD, id, &s);
        if (r < 0)
                return r;
        return sqlite3_column_int(s, 0) != JOB_FINISHED ? -EAGAIN : add_column(s, 1, ret);
}

int ledger_find_key(struct ledger *l, const char *kind, const char *tenant, const char *key, char ret_id[static 37], char ret_hash[static 65]) {
        _cleanup_read_ sqlite3_stmt *s = NULL;
        int r = read_prepare(l, R_KEY, &s);
        if (r < 0)
                return r;
        sqlite3_bind_text(s, 1, kind, -1, SQLITE_STATIC);
        sqlite3_bind_text(s, 2, tenant, -1, SQLITE_STATIC);
        sqlite3_bind_text(s, 3, key, -1, SQLITE_STATIC);
        r = read_step(l, s);
        if (r <= 0)
                return r < 0 ? r : -ENOENT;
        snprintf(ret_id, 37, "%s", column(s, 0));
        snprintf(ret_hash, 65, "%s", column(s, 1));
        return 0;
}

static int each(struct ledger *l, sqlite3_stmt *s, int (*row)(const struct ledger_row *r, void *user), void *user) {
        int r;
        while ((r = read_step(l, s)) > 0) {
                struct ledger_row borrowed;
                row_borrow(s, &borrowed);
                r = row(&borrowed, user);
                if (r != 0)
                        break;
        }
        return r;
}

int ledger_each_open(struct ledger *l, int (*row)(const struct ledger_row *r, void *user), void *user) {
        _cleanup_read_ sqlite3_stmt *s = NULL;
        int r = read_prepare(l, R_OPEN, &s);
        return r < 0 ? r : each(l, s, row, user);
}

int ledger_each_ended(struct ledger *l, int64_t ended_before_ms, int (*row)(const struct ledger_row *r, void *user), void *user) {
        _cleanup_read_ sqlite3_stmt *s = NULL;
        int r = read_prepare(l, R_ENDED, &s);
        if (r < 0)
                return r;
        sqlite3_bind_int64(s, 1, ended_before_ms);
        return each(l, s, row, user);
}

/* row() may ask the ledger for a body or a record: those are other statements. */
int ledger_each_kind(struct ledger *l, const char *kind, uint64_t after_seq, int (*row)(const struct ledger_row *r, void *user), void *user) {
        _cleanup_read_ sqlite3_stmt *s = NULL;
        int r = read_prepare(l, R_KIND, &s);
        if (r < 0)
                return r;
        sqlite3_bind_text(s, 1, kind, -1, SQLITE_STATIC);
        sqlite3_bind_int64(s, 2, (int64_t)after_seq);
        return each(l, s, row, user);
}

uint64_t ledger_disk_lacks(const struct ledger *l) {
        uint64_t have = disk_free(l->dirfd), want = l->low_water > UINT64_MAX / 2 ? UINT64_MAX : 2 * l->low_water;
        return have < want ? want - have : 0;
}

bool ledger_disk_low(struct ledger *l) {
        if (!l->short_of_space && disk_free(l->dirfd) < l->low_water)
                l->short_of_space = true;      /* on_tend takes it back */
        return l->short_of_space;
}

void ledger_stats(struct ledger *l, struct ledger_stats *ret) {
        *ret = (struct ledger_stats){ .commits = l->commits, .writes = l->writes, .ballast_freed = l->ballast_freed };
}
