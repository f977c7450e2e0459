/* A full disk, for real (a small tmpfs), and failing writes and syncs, by an SQLite file system that fails on demand. */
#include "store/ledger_fixture.h"

#include <sqlite3.h>
#include <stdatomic.h>

#include "store/ballast.h"

#define MIB (1u << 20)

/* ---- a file system that fails on demand ------------------------------------------------------------------------------ */

static _Atomic int fail_syncs, fail_writes;     /* how many of the next ones fail, of the log file */
static const sqlite3_io_methods *real;
static sqlite3_io_methods faulty;

static int take(_Atomic int *left) { return *left > 0 && atomic_fetch_sub(left, 1) > 0; }
static int faulty_sync(sqlite3_file *f, int flags) { return take(&fail_syncs) ? SQLITE_IOERR_FSYNC : real->xSync(f, flags); }
static int faulty_write(sqlite3_file *f, const void *p, int n, sqlite3_int64 at) {
        return take(&fail_writes) ? SQLITE_IOERR_WRITE : real->xWrite(f, p, n, at);
}

static int (*real_open)(sqlite3_vfs *v, const char *name, sqlite3_file *f, int flags, int *out);
static int faulty_open(sqlite3_vfs *v, const char *name, sqlite3_file *f, int flags, int *out) {
        int rc = real_open(v, name, f, flags, out);
        if (rc != SQLITE_OK || !f->pMethods || !(flags & SQLITE_OPEN_WAL))
                return rc;
        real = f->pMethods;
        faulty = *real;
        faulty.xSync = faulty_sync;
        faulty.xWrite = faulty_write;
        f->pMethods = &faulty;
        return rc;
}

static int install_faults(void **state) {
        static sqlite3_vfs v;
        v = *sqlite3_vfs_find(NULL);
        real_open = v.xOpen;
        v.xOpen = faulty_open;
        v.zName = "faulty";
        return sqlite3_vfs_register(&v, 1) == SQLITE_OK ? 0 : -1;
}

static void a_failed_sync_is_reported_and_the_next_write_works(void **state) {
        struct fixture f;
        fixture_init(&f);
        struct ledger_row row;
        fail_syncs = 2;                /* the batch, and the try of its one request alone */
        assert_int_equal(insert(&f, "a", "{}"), -EIO);
        fail_syncs = 0;
        assert_int_equal(ledger_get(f.l, "a", &row), -ENOENT);
        assert_int_equal(insert(&f, "b", "{}"), 0);
        fixture_close(&f);
        fixture_open(&f);
        assert_int_equal(state_of(&f, "b", NULL), JOB_QUEUED);
        fixture_release(&f);
}

static void a_write_that_fails_once_is_tried_again(void **state) {
        struct fixture f;
        fixture_init(&f);
        fail_writes = 1;
        assert_int_equal(insert(&f, "a", "{}"), 0);
        assert_int_equal(fail_writes, 0);
        assert_int_equal(state_of(&f, "a", NULL), JOB_QUEUED);
        fixture_release(&f);
}

/* ---- a full disk ---------------------------------------------------------------------------------------------------------- */

static void fixture_small_disk(struct fixture *f, size_t size, uint64_t ballast, uint64_t low) {
        fixture_dir(f);
        char options[32];
        snprintf(options, sizeof options, "size=%zu", size);
        assert_int_equal(mount("tmpfs", f->home, "tmpfs", MS_NOSUID | MS_NODEV, options), 0);
        f->mounted = true;
        f->cfg.ballast_bytes = ballast;
        f->cfg.low_water_bytes = low;
        fixture_open(f);
}

/* Writes until nothing more fits. */
static void fill(struct fixture *f) {
        char path[128], *block = calloc(1, 65536);
        snprintf(path, sizeof path, "%s/filler", f->home);
        int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        for (size_t n = 65536; n >= 1;)
                if (write(fd, block, n) < 0)
                        n /= 2;
        close(fd);
        free(block);
}

static void unfill(struct fixture *f) {
        char path[128];
        snprintf(path, sizeof path, "%s/filler", f->home);
        assert_int_equal(unlink(path), 0);
}

static bool ballast_there(struct fixture *f) {
        char path[128];
        struct stat st;
        snprintf(path, sizeof path, "%s/" BALLAST_FILE, f->home);
        return stat(path, &st) == 0;
}

static char *big(size_t n) {
        char *s = malloc(n + 1);
        memset(s, 'r', n);
        s[n] = 0;
        return s;
}

static void below_the_mark_nothing_is_admitted_and_above_it_again(void **state) {
        struct fixture f;
        fixture_small_disk(&f, 24 * MIB, 4 * MIB, 2 * MIB);
        assert_false(ledger_disk_low(f.l));
        fill(&f);
        assert_true(ledger_disk_low(f.l));
        unfill(&f);
        for (int i = 0; i < 100 && ledger_disk_low(f.l); i++) {
                ledger_tend(f.l);
                AWAIT(&f, ledger_expire, (int64_t)0);  /* a write behind the tending: it has been done */
        }
        assert_false(ledger_disk_low(f.l));
        fixture_release(&f);
}

static void a_full_disk_refuses_new_jobs_and_records_what_runs(void **state) {
        struct fixture f;
        fixture_small_disk(&f, 24 * MIB, 4 * MIB, 1 * MIB);
        _cleanup_free_ char *record = big(MIB);
        _cleanup_buf_ struct buf got = BUF_INIT(2 * MIB);
        assert_int_equal(insert(&f, "runs", "{}"), 0);
        assert_int_equal(AWAIT(&f, ledger_set_running, "runs"), 0);
        fill(&f);
        assert_int_equal(insert(&f, "new", record), -ENOSPC);
        assert_true(ballast_there(&f));
        assert_int_equal(AWAIT(&f, ledger_finish, "runs", "resolved", record, MIB), 0);
        assert_false(ballast_there(&f));
        assert_true(ledger_disk_low(f.l));
        assert_int_equal(ledger_get_record(f.l, "runs", &got), 0);
        assert_int_equal(got.len, MIB);
        struct ledger_stats st;
        ledger_stats(f.l, &st);
        assert_int_equal(st.ballast_freed, 1);
        unfill(&f);
        ledger_tend(f.l);
        AWAIT(&f, ledger_expire, (int64_t)0);
        for (int i = 0; i < 100 && !ballast_there(&f); i++)
                AWAIT(&f, ledger_expire, (int64_t)0);
        assert_true(ballast_there(&f));
        assert_int_equal(insert(&f, "new", "{}"), 0);
        fixture_release(&f);
}

/* One transaction with both: the new job is refused, the record is kept. */
static void a_full_disk_splits_a_batch(void **state) {
        struct fixture f;
        fixture_small_disk(&f, 24 * MIB, 4 * MIB, 1 * MIB);
        _cleanup_free_ char *text = big(MIB);
        assert_int_equal(insert(&f, "runs", "{}"), 0);
        fill(&f);
        struct ledger_job j = job("new", text);
        struct waiting wi = { 0 }, wf = { 0 };
        assert_int_equal(ledger_insert(f.l, &j, 1, on_done, &wi), 0);
        assert_int_equal(ledger_finish(f.l, "runs", "resolved", text, MIB, on_done, &wf), 0);
        assert_int_equal(await(&f, 0, &wi), -ENOSPC);
        assert_int_equal(await(&f, 0, &wf), 0);
        assert_int_equal(state_of(&f, "runs", NULL), JOB_FINISHED);
        fixture_release(&f);
}

/* Whatever shares a transaction with what does not fit: what is reported as accepted is there, what is refused is not. */
static void a_full_disk_never_reports_what_it_did_not_keep(void **state) {
        enum { N = 200 };
        struct fixture f;
        fixture_small_disk(&f, 24 * MIB, 4 * MIB, 1 * MIB);
        _cleanup_free_ char *text = big(2 * MIB);
        struct waiting w[N] = { 0 }, wf = { 0 };
        assert_int_equal(insert(&f, "runs", "{}"), 0);
        fill(&f);
        for (int i = 0; i < N; i++) {
                char id[16];
                snprintf(id, sizeof id, "%d", i);
                struct ledger_job j = job(id, "{}");
                assert_int_equal(ledger_insert(f.l, &j, 1, on_done, &w[i]), 0);
                if (i == N / 2)
                        assert_int_equal(ledger_finish(f.l, "runs", "resolved", text, 2 * MIB, on_done, &wf), 0);
        }
        assert_int_equal(await(&f, 0, &wf), 0);
        for (int i = 0; i < N; i++) {
                char id[16];
                struct ledger_row row = { 0 };
                snprintf(id, sizeof id, "%d", i);
                int r = await(&f, 0, &w[i]), there = ledger_get(f.l, id, &row);
                ledger_row_release(&row);
                assert_true(r == 0 || r == -ENOSPC);
                assert_int_equal(there, r == 0 ? 0 : -ENOENT);
        }
        fixture_release(&f);
}

static void beyond_the_ballast_a_record_is_refused_and_the_job_stays_open(void **state) {
        struct fixture f;
        fixture_small_disk(&f, 24 * MIB, 4 * MIB, 1 * MIB);
        _cleanup_free_ char *record = big(12 * MIB);
        assert_int_equal(insert(&f, "runs", "{}"), 0);
        fill(&f);
        assert_int_equal(AWAIT(&f, ledger_finish, "runs", "resolved", record, 12 * MIB), -ENOSPC);
        assert_int_equal(state_of(&f, "runs", NULL), JOB_QUEUED);
        assert_int_equal(AWAIT(&f, ledger_finish, "runs", "infra_error", "{}", 2), 0);
        fixture_release(&f);
}

static void a_full_disk_at_start_still_opens_what_was_there(void **state) {
        struct fixture f;
        fixture_small_disk(&f, 24 * MIB, 4 * MIB, 1 * MIB);
        assert_int_equal(insert(&f, "a", "{}"), 0);
        fixture_close(&f);
        fill(&f);
        fixture_open(&f);
        assert_true(ledger_disk_low(f.l));
        assert_int_equal(state_of(&f, "a", NULL), JOB_QUEUED);
        assert_int_equal(AWAIT(&f, ledger_finish, "a", "infra_error", "{}", 2), 0);
        fixture_release(&f);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_failed_sync_is_reported_and_the_next_write_works),
                cmocka_unit_test(a_write_that_fails_once_is_tried_again),
                cmocka_unit_test(below_the_mark_nothing_is_admitted_and_above_it_again),
                cmocka_unit_test(a_full_disk_refuses_new_jobs_and_records_what_runs),
                cmocka_unit_test(a_full_disk_splits_a_batch),
                cmocka_unit_test(a_full_disk_never_reports_what_it_did_not_keep),
                cmocka_unit_test(beyond_the_ballast_a_record_is_refused_and_the_job_stays_open),
                cmocka_unit_test(a_full_disk_at_start_still_opens_what_was_there),
        };
        return cmocka_run_group_tests_name("store/ledger_faults", tests, install_faults, NULL);
}
