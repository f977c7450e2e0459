#include "store/ledger_fixture.h"

#include <signal.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include "store/ledger_schema.h"

static void a_job_goes_from_queued_to_its_record(void **state) {
        struct fixture f;
        fixture_init(&f);
        _cleanup_buf_ struct buf body = BUF_INIT(100), record = BUF_INIT(100);
        int attempts;
        assert_int_equal(insert(&f, "a", "{\"x\":1}"), 0);
        assert_int_equal(state_of(&f, "a", &attempts), JOB_QUEUED);
        assert_int_equal(attempts, 0);
        assert_int_equal(ledger_get_record(f.l, "a", &record), -EAGAIN);
        assert_int_equal(AWAIT(&f, ledger_set_running, "a"), 0);
        assert_int_equal(state_of(&f, "a", &attempts), JOB_RUNNING);
        assert_int_equal(attempts, 1);
        assert_int_equal(ledger_get_body(f.l, "a", &body), 0);
        assert_string_equal(buf_str(&body), "{\"x\":1}");
        assert_int_equal(AWAIT(&f, ledger_finish, "a", "resolved", "{\"y\":2}", 7), 0);
        assert_int_equal(state_of(&f, "a", NULL), JOB_FINISHED);
        assert_int_equal(ledger_get_body(f.l, "a", &body), -ENOENT);
        assert_int_equal(ledger_get_record(f.l, "a", &record), 0);
        assert_string_equal(buf_str(&record), "{\"y\":2}");
        fixture_release(&f);
}

/* The writer finishes it meanwhile: whatever the reader sees is whole. */
static void a_row_and_its_text_are_of_one_moment(void **state) {
        struct fixture f;
        fixture_init(&f);
        for (int i = 0; i < 200; i++) {
                char id[16];
                struct waiting w = { 0 };
                bool finished = false;
                snprintf(id, sizeof id, "%d", i);
                assert_int_equal(insert(&f, id, "body"), 0);
                assert_int_equal(ledger_finish(f.l, id, "resolved", "record", 6, on_done, &w), 0);
                while (!finished) {
                        _cleanup_buf_ struct buf text = BUF_INIT(100);
                        struct ledger_row row;
                        assert_int_equal(ledger_get_text(f.l, id, 1000, &row, &text), 0);
                        finished = row.state == JOB_FINISHED;
                        assert_string_equal(row.id, id);
                        assert_string_equal(buf_str(&text), finished ? "record" : "body");
                        ledger_row_release(&row);
                }
                await(&f, 0, &w);
        }
        struct ledger_row none;
        _cleanup_buf_ struct buf text = BUF_INIT(100);
        assert_int_equal(ledger_get_text(f.l, "none", 1000, &none, &text), -ENOENT);
        fixture_release(&f);
}

static int collect_kind(const struct ledger_row *row, void *user) {
        struct buf *b = user;
        assert_string_equal(row->kind, "session");
        return buf_printf(b, "%s%s", row->id, row->state == JOB_FINISHED ? "! " : " ");
}

static void jobs_of_another_kind_are_listed_in_order(void **state) {
        struct fixture f;
        fixture_init(&f);
        _cleanup_buf_ struct buf all = BUF_INIT(100), later = BUF_INIT(100);
        struct ledger_row row;
        assert_int_equal(insert(&f, "task", "{}"), 0);
        const char *const ids[] = { "one", "two", "three" };
        for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
                struct ledger_job job = { .id = ids[i], .kind = "session", .tenant = "", .body = "{}", .body_len = 2, .created_ms = 1 };
                assert_int_equal(AWAIT(&f, ledger_insert, &job, 1), 0);
        }
        assert_int_equal(AWAIT(&f, ledger_finish, "two", "failed", "{}", 2), 0);
        assert_int_equal(ledger_each_kind(f.l, "session", 0, collect_kind, &all), 0);
        assert_string_equal(buf_str(&all), "one two! three ");
        assert_int_equal(ledger_get(f.l, "one", &row), 0);
        assert_int_equal(ledger_each_kind(f.l, "session", row.seq, collect_kind, &later), 0);
        assert_string_equal(buf_str(&later), "two! three ");
        ledger_row_release(&row);
        fixture_release(&f);
}

static void a_body_takes_the_place_of_another_until_the_end(void **state) {
        struct fixture f;
        fixture_init(&f);
        _cleanup_buf_ struct buf body = BUF_INIT(100);
        assert_int_equal(insert(&f, "a", "{}"), 0);
        assert_int_equal(insert(&f, "b", "{}"), 0);
        assert_int_equal(AWAIT(&f, ledger_set_body, "a", "[1]", 3), 0);
        assert_int_equal(ledger_get_body(f.l, "a", &body), 0);
        assert_string_equal(buf_str(&body), "[1]");
        buf_reset(&body);
        assert_int_equal(ledger_get_body(f.l, "b", &body), 0);
        assert_string_equal(buf_str(&body), "{}");
        assert_int_equal(AWAIT(&f, ledger_finish, "a", "failed", "{}", 2), 0);
        assert_int_equal(AWAIT(&f, ledger_set_body, "a", "[2]", 3), -ENOENT);
        assert_int_equal(AWAIT(&f, ledger_set_body, "nobody", "[2]", 3), -ENOENT);
        fixture_release(&f);
}

static void a_records_head_is_read_alone(void **state) {
        struct fixture f;
        struct ledger_row row;
        fixture_init(&f);
        _cleanup_buf_ struct buf head = BUF_INIT(100);
        size_t n = 32u << 20;
        char *record = malloc(n);
        assert_non_null(record);
        memset(record, 'x', n);
        memcpy(record, "begin", 5);
        assert_int_equal(insert(&f, "a", "{}"), 0);
        assert_int_equal(AWAIT(&f, ledger_finish, "a", "failed", record, n), 0);
        assert_int_equal(ledger_get_text(f.l, "a", 8, &row, &head), 0);
        ledger_row_release(&row);
        assert_string_equal(buf_str(&head), "beginxxx");
        buf_reset(&head);
        assert_int_equal(ledger_get_text(f.l, "a", n, &row, &head), -ENOSPC);
        assert_int_equal(insert(&f, "b", "{}"), 0);
        assert_int_equal(AWAIT(&f, ledger_finish, "b", "failed", "{}", 2), 0);
        assert_int_equal(ledger_get_text(f.l, "b", 50, &row, &head), 0);
        ledger_row_release(&row);
        assert_string_equal(buf_str(&head), "{}");
        free(record);
        fixture_release(&f);
}

static void a_job_is_finished_once(void **state) {
        struct fixture f;
        fixture_init(&f);
        _cleanup_buf_ struct buf record = BUF_INIT(100);
        assert_int_equal(insert(&f, "a", "{}"), 0);
        assert_int_equal(AWAIT(&f, ledger_finish, "a", "resolved", "1", 1), 0);
        assert_int_equal(AWAIT(&f, ledger_finish, "a", "timeout", "2", 1), -ENOENT);
        assert_int_equal(AWAIT(&f, ledger_set_running, "a"), -ENOENT);
        assert_int_equal(ledger_get_record(f.l, "a", &record), 0);
        assert_string_equal(buf_str(&record), "1");
        fixture_release(&f);
}

static void unknown_ids_are_named(void **state) {
        struct fixture f;
        fixture_init(&f);
        struct ledger_row row;
        _cleanup_buf_ struct buf b = BUF_INIT(100);
        assert_int_equal(ledger_get(f.l, "nobody", &row), -ENOENT);
        assert_int_equal(ledger_get_body(f.l, "nobody", &b), -ENOENT);
        assert_int_equal(ledger_get_record(f.l, "nobody", &b), -ENOENT);
        assert_int_equal(AWAIT(&f, ledger_set_running, "nobody"), -ENOENT);
        assert_int_equal(AWAIT(&f, ledger_delete, "nobody"), -ENOENT);
        assert_int_equal(AWAIT(&f, ledger_finish, "nobody", "x", "", 0), -ENOENT);
        fixture_release(&f);
}

static void a_requeued_job_gets_its_attempt_back(void **state) {
        struct fixture f;
        fixture_init(&f);
        int attempts;
        assert_int_equal(insert(&f, "a", "{}"), 0);
        assert_int_equal(AWAIT(&f, ledger_set_running, "a"), 0);
        assert_int_equal(AWAIT(&f, ledger_requeue, "a"), 0);
        assert_int_equal(state_of(&f, "a", &attempts), JOB_QUEUED);
        assert_int_equal(attempts, 0);
        fixture_release(&f);
}

static void bodies_carry_any_byte(void **state) {
        struct fixture f;
        fixture_init(&f);
        _cleanup_buf_ struct buf b = BUF_INIT(100);
        struct ledger_job j = job("a", "");
        j.body = "a\0\xff\n";
        j.body_len = 4;
        assert_int_equal(AWAIT(&f, ledger_insert, &j, 1), 0);
        assert_int_equal(ledger_get_body(f.l, "a", &b), 0);
        assert_int_equal(b.len, 4);
        assert_memory_equal(b.data, "a\0\xff\n", 4);
        fixture_release(&f);
}

static void a_batch_is_inserted_whole_or_not_at_all(void **state) {
        struct fixture f;
        fixture_init(&f);
        struct ledger_row row;
        assert_int_equal(insert_key(&f, "first", "t", "k"), 0);
        struct ledger_job two[] = { job("b1", "{}"), job("b2", "{}") };
        two[1].idempotency_key = "k";
        two[1].body_hash = "other";
        assert_int_equal(AWAIT(&f, ledger_insert, two, 2), -EEXIST);
        assert_int_equal(ledger_get(f.l, "b1", &row), -ENOENT);
        two[1].idempotency_key = "k2";
        assert_int_equal(AWAIT(&f, ledger_insert, two, 2), 0);
        fixture_release(&f);
}

/* ---- idempotency keys ------------------------------------------------------------------------------------------ */

static void a_key_is_unique_for_its_kind_and_tenant(void **state) {
        struct fixture f;
        fixture_init(&f);
        char id[37], hash[65];
        assert_int_equal(insert_key(&f, "a", "t", "k"), 0);
        assert_int_equal(insert_key(&f, "b", "t", "k"), -EEXIST);
        assert_int_equal(insert_key(&f, "c", "u", "k"), 0);
        assert_int_equal(ledger_find_key(f.l, "task", "t", "k", id, hash), 0);
        assert_string_equal(id, "a");
        assert_string_equal(hash, "h");
        assert_int_equal(ledger_find_key(f.l, "session", "t", "k", id, hash), -ENOENT);
        fixture_release(&f);
}

/* Two at once, in one transaction: the second must see the first. */
static void a_key_is_unique_within_one_commit(void **state) {
        struct fixture f;
        fixture_init(&f);
        struct ledger_job a = job("a", "{}"), b = job("b", "{}");
        a.idempotency_key = b.idempotency_key = "k";
        a.body_hash = b.body_hash = "h";
        struct waiting wa = { 0 }, wb = { 0 };
        assert_int_equal(ledger_insert(f.l, &a, 1, on_done, &wa), 0);
        assert_int_equal(ledger_insert(f.l, &b, 1, on_done, &wb), 0);
        assert_int_equal(await(&f, 0, &wa), 0);
        assert_int_equal(await(&f, 0, &wb), -EEXIST);
        fixture_release(&f);
}

static void a_key_survives_delete_for_the_retention_time(void **state) {
        struct fixture f;
        fixture_init(&f);
        char id[37], hash[65];
        assert_int_equal(insert_key(&f, "a", "t", "k"), 0);
        int64_t before = wall_ms();
        assert_int_equal(AWAIT(&f, ledger_delete, "a"), 0);
        assert_int_equal(insert_key(&f, "b", "t", "k"), -EEXIST);
        assert_int_equal(AWAIT(&f, ledger_expire, before), 0);
        assert_int_equal(ledger_find_key(f.l, "task", "t", "k", id, hash), 0);
        assert_int_equal(AWAIT(&f, ledger_expire, wall_ms() + 1), 0);
        assert_int_equal(ledger_find_key(f.l, "task", "t", "k", id, hash), -ENOENT);
        assert_int_equal(insert_key(&f, "b", "t", "k"), 0);
        fixture_release(&f);
}

static void deleting_leaves_nothing(void **state) {
        struct fixture f;
        fixture_init(&f);
        assert_int_equal(insert(&f, "a", "{}"), 0);
        assert_int_equal(AWAIT(&f, ledger_finish, "a", "resolved", "1", 1), 0);
        assert_int_equal(AWAIT(&f, ledger_delete, "a"), 0);
        fixture_close(&f);
        sqlite3 *db;
        assert_int_equal(ledger_db_open(f.home, 1, &db, NULL), 0);
        const char *tables[] = { "jobs", "bodies", "records", "keys" };
        for (size_t i = 0; i < ARRAY_SIZE(tables); i++) {
                char q[64];
                sqlite3_stmt *s;
                snprintf(q, sizeof q, "SELECT count(*) FROM %s", tables[i]);
                assert_int_equal(sqlite3_prepare_v2(db, q, -1, &s, NULL), SQLITE_OK);
                assert_int_equal(sqlite3_step(s), SQLITE_ROW);
                assert_int_equal(sqlite3_column_int(s, 0), 0);
                sqlite3_finalize(s);
        }
        sqlite3_close(db);
        fixture_release(&f);
}

/* ---- retention ---------------------------------------------------------------------------------------------------- */

static int count(const struct ledger_row *r, void *user) { ++*(int *)user; return 0; }

static void what_ended_before_expires_with_its_key_and_the_rest_stays(void **state) {
        struct fixture f;
        fixture_init(&f);
        struct ledger_row row;
        char id[37], hash[65];
        assert_int_equal(insert_key(&f, "old", "t", "k"), 0);
        assert_int_equal(AWAIT(&f, ledger_finish, "old", "resolved", "1", 1), 0);
        assert_int_equal(insert(&f, "queued", "{}"), 0);
        assert_int_equal(AWAIT(&f, ledger_expire, wall_ms() - 60000), 0);
        assert_int_equal(ledger_get(f.l, "old", &row), 0);
        ledger_row_release(&row);
        int n = 0;
        assert_int_equal(ledger_each_ended(f.l, wall_ms() + 1, count, &n), 0);
        assert_int_equal(n, 1);
        assert_int_equal(AWAIT(&f, ledger_expire, wall_ms() + 1), 1);
        assert_int_equal(ledger_get(f.l, "old", &row), -ENOENT);
        assert_int_equal(ledger_find_key(f.l, "task", "t", "k", id, hash), -ENOENT);
        assert_int_equal(state_of(&f, "queued", NULL), JOB_QUEUED);
        fixture_release(&f);
}

/* ---- durability and group commit ------------------------------------------------------------------------------------ */

static int add_id(const struct ledger_row *r, void *user) { return buf_printf(user, "%s:%s ", r->id, job_state_to_string(r->state)); }

static void what_was_reported_is_there_after_kill_9(void **state) {
        struct fixture f;
        fixture_dir(&f);
        int p[2];
        assert_int_equal(pipe2(p, O_CLOEXEC), 0);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
                fixture_open(&f);
                bool ok = insert(&f, "one", "{}") == 0 && insert(&f, "two", "{}") == 0 && AWAIT(&f, ledger_set_running, "one") == 0 &&
                          insert(&f, "three", "{}") == 0 && AWAIT(&f, ledger_finish, "three", "resolved", "r", 1) == 0;
                if (write(p[1], ok ? "y" : "n", 1) == 1)
                        pause();
                _exit(1);
        }
        char answer = 0;
        assert_int_equal(read(p[0], &answer, 1), 1);
        assert_int_equal(answer, 'y');
        kill(child, SIGKILL);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        close(p[0]);
        close(p[1]);
        fixture_open(&f);
        _cleanup_buf_ struct buf ids = BUF_INIT(1000);
        assert_int_equal(ledger_each_open(f.l, add_id, &ids), 0);
        assert_string_equal(buf_str(&ids), "one:running two:queued ");
        assert_int_equal(state_of(&f, "three", NULL), JOB_FINISHED);
        fixture_release(&f);
}

struct ack { int fd; int n; };
static void on_acknowledged(int r, void *user) {
        struct ack *a = user;
        if (r == 0 && write(a->fd, &a->n, sizeof a->n) != sizeof a->n)
                _exit(1);
}

/* Inserts as fast as it can, many at a time, and says which are committed, until it is killed. */
static void insert_for_ever(struct fixture *f, int fd) {
        fixture_open(f);
        for (int n = 0;;) {
                for (int i = 0; i < 20; i++, n++) {
                        struct ack *a = malloc(sizeof *a);
                        *a = (struct ack){ fd, n };
                        char id[16];
                        snprintf(id, sizeof id, "%d", n);
                        struct ledger_job j = job(id, "{}");
                        if (ledger_insert(f->l, &j, 1, on_acknowledged, a) < 0)
                                _exit(1);
                }
                uv_run(&f->loop, UV_RUN_ONCE);
        }
}

static void every_acknowledged_insert_survives_a_kill_at_any_moment(void **state) {
        static const int kill_after[] = { 1, 37, 400, 2500 };
        for (size_t round = 0; round < ARRAY_SIZE(kill_after); round++) {
                struct fixture f;
                fixture_dir(&f);
                int p[2], last = -1, n;
                assert_int_equal(pipe2(p, O_CLOEXEC), 0);
                pid_t child = fork();
                if (child == 0)
                        insert_for_ever(&f, p[1]);
                close(p[1]);
                for (int i = 0; i < kill_after[round] && read(p[0], &n, sizeof n) == sizeof n; i++)
                        last = MAX2(last, n);
                kill(child, SIGKILL);
                while (read(p[0], &n, sizeof n) == sizeof n)    /* told before it died, read after */
                        last = MAX2(last, n);
                assert_int_equal(waitpid(child, &(int){ 0 }, 0), child);
                close(p[0]);
                assert_true(last + 1 >= kill_after[round]);
                fixture_open(&f);
                for (int i = 0; i <= last; i++) {
                        char id[16];
                        snprintf(id, sizeof id, "%d", i);
                        assert_int_equal(state_of(&f, id, NULL), JOB_QUEUED);
                }
                fixture_release(&f);
        }
}

static void closing_commits_what_was_asked_for(void **state) {
        struct fixture f;
        fixture_init(&f);
        struct ledger_job j = job("a", "{}");
        struct waiting w = { 0 };
        assert_int_equal(ledger_insert(f.l, &j, 1, on_done, &w), 0);
        fixture_close(&f);
        assert_true(w.done);
        assert_int_equal(w.r, 0);
        fixture_open(&f);
        assert_int_equal(state_of(&f, "a", NULL), JOB_QUEUED);
        fixture_release(&f);
}

struct counter { int left; };
static void on_counted(int r, void *user) {
        assert_int_equal(r, 0);
        ((struct counter *)user)->left--;
}

/* Keeps the writer from committing, as another program that writes would. */
static sqlite3 *hold_up(const char *home) {
        char path[128];
        sqlite3 *db;
        snprintf(path, sizeof path, "%s/" LEDGER_FILE, home);
        assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
        assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
        return db;
}

static void many_writes_share_a_commit(void **state) {
        enum { N = 2000 };
        struct fixture f;
        fixture_init(&f);
        struct counter c = { N };
        struct ledger_stats before, after;
        ledger_stats(f.l, &before);
        sqlite3 *other = hold_up(f.home);
        for (int i = 0; i < N; i++) {
                char id[16];
                snprintf(id, sizeof id, "%d", i);
                struct ledger_job j = job(id, "{}");
                assert_int_equal(ledger_insert(f.l, &j, 1, on_counted, &c), 0);
        }
        assert_int_equal(sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
        sqlite3_close(other);
        while (c.left > 0)
                uv_run(&f.loop, UV_RUN_ONCE);
        ledger_stats(f.l, &after);
        assert_int_equal(after.writes - before.writes, N);
        assert_true(after.commits - before.commits <= N / 10);
        fixture_release(&f);
}

/* ---- the schema's versions -------------------------------------------------------------------------------------------- */

static void sql(const char *home, const char *text) {
        char path[128];
        sqlite3 *db;
        snprintf(path, sizeof path, "%s/" LEDGER_FILE, home);
        assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
        char *why = NULL;
        if (sqlite3_exec(db, text, NULL, NULL, &why) != SQLITE_OK)
                fail_msg("%s", why);
        sqlite3_close(db);
}

static void every_older_version_is_brought_up_with_its_rows(void **state) {
        for (int version = 1; version <= ledger_schema_version(); version++) {
                struct fixture f;
                fixture_dir(&f);
                char path[128];
                sqlite3 *db;
                snprintf(path, sizeof path, "%s/" LEDGER_FILE, f.home);
                assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
                assert_int_equal(ledger_schema_migrate(db, version, NULL), 0);
                sqlite3_close(db);
                sql(f.home, "INSERT INTO jobs(id, kind, tenant, priority, state, created_ms) VALUES('old', 'task', 't', 3, 0, 1);"
                            "INSERT INTO bodies VALUES(1, '{}')");
                fixture_open(&f);
                assert_int_equal(state_of(&f, "old", NULL), JOB_QUEUED);
                assert_int_equal(insert_key(&f, "new", "t", "k"), 0);
                fixture_release(&f);
        }
}

static void only_its_owner_reads_the_ledger(void **state) {
        struct fixture f;
        struct stat st;
        fixture_init(&f);
        assert_int_equal(insert(&f, "a", "{}"), 0);
        static const char *const names[] = { LEDGER_FILE, LEDGER_FILE "-wal", LEDGER_FILE "-shm" };
        for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
                char path[160];
                snprintf(path, sizeof path, "%s/%s", f.home, names[i]);
                assert_int_equal(stat(path, &st), 0);
                assert_int_equal(st.st_mode & 07777, 0600);
        }
        fixture_release(&f);
}

static void a_newer_ledger_is_refused_and_left_alone(void **state) {
        struct fixture f;
        fixture_init(&f);
        fixture_close(&f);
        sql(f.home, "PRAGMA user_version=99");
        struct error e = { 0 };
        struct ledger *l = NULL;
        uv_loop_t loop;
        uv_loop_init(&loop);
        assert_int_equal(ledger_open(&loop, &f.cfg, &l, &e), -EPROTO);
        assert_non_null(strstr(e.text, "newer"));
        uv_loop_close(&loop);
        sql(f.home, "SELECT * FROM jobs");
        fixture_release(&f);
}

static void a_file_that_is_no_ledger_is_an_error(void **state) {
        struct fixture f;
        fixture_dir(&f);
        char path[128], junk[8192];
        memset(junk, 'x', sizeof junk);
        snprintf(path, sizeof path, "%s/" LEDGER_FILE, f.home);
        int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        assert_int_equal(fs_write_all(fd, junk, sizeof junk), 0);
        close(fd);
        struct error e = { 0 };
        struct ledger *l = NULL;
        uv_loop_t loop;
        uv_loop_init(&loop);
        assert_int_equal(ledger_open(&loop, &f.cfg, &l, &e), -EBADMSG);
        uv_loop_close(&loop);
        fixture_release(&f);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_job_goes_from_queued_to_its_record),
                cmocka_unit_test(a_row_and_its_text_are_of_one_moment),
                cmocka_unit_test(jobs_of_another_kind_are_listed_in_order),
                cmocka_unit_test(a_job_is_finished_once),
                cmocka_unit_test(a_body_takes_the_place_of_another_until_the_end),
                cmocka_unit_test(a_records_head_is_read_alone),
                cmocka_unit_test(unknown_ids_are_named),
                cmocka_unit_test(a_requeued_job_gets_its_attempt_back),
                cmocka_unit_test(bodies_carry_any_byte),
                cmocka_unit_test(only_its_owner_reads_the_ledger),
                cmocka_unit_test(a_batch_is_inserted_whole_or_not_at_all),
                cmocka_unit_test(a_key_is_unique_for_its_kind_and_tenant),
                cmocka_unit_test(a_key_is_unique_within_one_commit),
                cmocka_unit_test(a_key_survives_delete_for_the_retention_time),
                cmocka_unit_test(deleting_leaves_nothing),
                cmocka_unit_test(what_ended_before_expires_with_its_key_and_the_rest_stays),
                cmocka_unit_test(what_was_reported_is_there_after_kill_9),
                cmocka_unit_test(every_acknowledged_insert_survives_a_kill_at_any_moment),
                cmocka_unit_test(closing_commits_what_was_asked_for),
                cmocka_unit_test(many_writes_share_a_commit),
                cmocka_unit_test(every_older_version_is_brought_up_with_its_rows),
                cmocka_unit_test(a_newer_ledger_is_refused_and_left_alone),
                cmocka_unit_test(a_file_that_is_no_ledger_is_an_error),
        };
        return cmocka_run_group_tests_name("store/ledger", tests, NULL, NULL);
}
