/* The life of tasks with a runner that does what the test says: no sandbox, but a real ledger, and real crashes. */
#include "engine/tasks_bench.h"

/* ---- running ------------------------------------------------------------------------------------------------------------------- */

static void a_task_runs_and_its_record_stays(void **state) {
        BENCH(b, 1, 10);
        char id[37];
        _cleanup_buf_ struct buf rec = BUF_INIT(1 << 20);
        submit(&b, id);
        UNTIL(&b, b.n_running == 1);
        assert_int_equal(status_of(&b, id), TASK_RUNNING);
        assert_int_equal(tasks_record(b.ts, id, &rec), -EAGAIN);
        end_run(&b, b.running, OUTCOME_RESOLVED);
        UNTIL(&b, status_of(&b, id) == TASK_COMPLETED);
        assert_true(has(&b, id, "\"outcome\":\"resolved\""));
        assert_true(has(&b, id, "/log\""));
}

static int attempts_on_disk(struct bench *b, const char *id) {
        int attempts;
        state_of(&b->f, id, &attempts);
        return attempts;
}

static void is_pending(struct bench *b, const char *id) { assert_int_equal(status_of(b, id), TASK_PENDING); }

/* Whoever kills the daemon when he sees `running` finds the attempt counted at the next start. */
static void a_task_is_shown_as_running_when_its_attempt_is_on_disk(void **state) {
        BENCH(b, 1, 10);
        char id[37];
        submit_and(&b, id, is_pending);
        UNTIL(&b, status_of(&b, id) == TASK_RUNNING);
        assert_int_equal(attempts_on_disk(&b, id), 1);
        assert_int_equal(b.started, 1);
        end_run(&b, b.running, OUTCOME_RESOLVED);
}

static void what_waits_is_pending_and_starts_when_there_is_a_place(void **state) {
        BENCH(b, 1, 10);
        char first[37], second[37];
        submit(&b, first);
        submit(&b, second);
        UNTIL(&b, b.n_running == 1);
        assert_int_equal(status_of(&b, second), TASK_PENDING);
        end_run(&b, b.running, OUTCOME_TIMEOUT);
        UNTIL(&b, b.n_running == 1);
        UNTIL(&b, status_of(&b, first) == TASK_FAILED);
        assert_string_equal(b.running->id, second);
        end_run(&b, b.running, OUTCOME_RESOLVED);
}

static void a_full_queue_refuses(void **state) {
        BENCH(b, 1, 1);
        char id[37];
        submit(&b, id);
        UNTIL(&b, b.n_running == 1);
        submit(&b, id);
        assert_int_equal(submit_full(&b, BODY, "", NULL, id), -EAGAIN);
        end_run(&b, b.running, OUTCOME_RESOLVED);
        UNTIL(&b, b.n_running == 1);
        end_run(&b, b.running, OUTCOME_RESOLVED);
}

/* The bound counts what is on its way to disk, or a burst would pass it. */
static void a_burst_does_not_pass_the_bound(void **state) {
        BENCH(b, 1, 3);
        struct submitted s[20] = { 0 };
        struct engine_submission sub = { .body = BODY, .body_len = strlen(BODY), .tenant = "" };
        size_t accepted = 0;
        for (int i = 0; i < 20; i++)
                assert_int_equal(tasks_submit(b.ts, &sub, on_submitted, &s[i]), 0);
        for (int i = 0; i < 20; i++) {
                UNTIL(&b, s[i].done);
                accepted += s[i].r == 0;
        }
        assert_int_equal(accepted, 3);
        while (accepted-- > 0) {
                UNTIL(&b, b.n_running == 1);
                end_run(&b, b.running, OUTCOME_RESOLVED);
        }
}

static void a_run_that_cannot_start_is_our_fault(void **state) {
        BENCH(b, 1, 10);
        b.fail_start = true;
        char id[37];
        submit(&b, id);
        UNTIL(&b, status_of(&b, id) == TASK_FAILED);
        assert_true(has(&b, id, "\"infra_error\""));
        assert_true(has(&b, id, "the test says no"));
        assert_true(has(&b, id, "\"repo_url\":\"/r\""));
}

/* ---- idempotency --------------------------------------------------------------------------------------------------------------- */

static void the_same_key_gives_the_same_task(void **state) {
        BENCH(b, 1, 1);
        char first[37], again[37];
        assert_int_equal(submit_full(&b, BODY, "t", "k", first), 0);
        assert_int_equal(submit_full(&b, BODY, "t", "k", again), -EEXIST);
        assert_string_equal(first, again);
        assert_int_equal(submit_full(&b, "{\"repo_url\":\"/other\",\"test_command\":\"true\"}", "t", "k", again), -EBUSY);
        UNTIL(&b, b.n_running == 1);
        end_run(&b, b.running, OUTCOME_RESOLVED);
        UNTIL(&b, status_of(&b, first) == TASK_COMPLETED);
        assert_int_equal(submit_full(&b, BODY, "t", "k", again), -EEXIST);
        assert_int_equal(delete_task(&b, first), 0);
        assert_int_equal(submit_full(&b, BODY, "t", "k", again), -EEXIST);
        assert_string_equal(first, again);
        assert_int_equal(b.started, 1);
}

static void two_at_once_with_one_key_are_one_task(void **state) {
        BENCH(b, 1, 10);
        struct submitted s[2] = { 0 };
        struct engine_submission sub = { .body = BODY, .body_len = strlen(BODY), .tenant = "", .idempotency_key = "k" };
        for (int i = 0; i < 2; i++)
                assert_int_equal(tasks_submit(b.ts, &sub, on_submitted, &s[i]), 0);
        UNTIL(&b, s[0].done && s[1].done);
        assert_int_equal(s[0].r, 0);
        assert_int_equal(s[1].r, -EEXIST);
        assert_string_equal(s[0].id, s[1].id);
        UNTIL(&b, b.n_running == 1);
        end_run(&b, b.running, OUTCOME_RESOLVED);
}

static void a_repeat_is_answered_even_when_the_queue_is_full(void **state) {
        BENCH(b, 1, 1);
        char first[37], id[37];
        submit(&b, id);
        UNTIL(&b, b.n_running == 1);
        assert_int_equal(submit_full(&b, BODY, "", "k", first), 0);
        assert_int_equal(submit_full(&b, BODY, "", NULL, id), -EAGAIN);
        assert_int_equal(submit_full(&b, BODY, "", "k", id), -EEXIST);
        assert_string_equal(first, id);
        end_run(&b, b.running, OUTCOME_RESOLVED);
        UNTIL(&b, b.n_running == 1);
        end_run(&b, b.running, OUTCOME_RESOLVED);
}

/* ---- credentials ---------------------------------------------------------------------------------------------------------------- */

static const char *sought;

static int holds_sought(const char *path, const struct stat *st, int kind, struct FTW *at) {
        _cleanup_buf_ struct buf b = BUF_INIT(64 << 20);
        if (kind != FTW_F)
                return 0;
        assert_int_equal(fs_read_file(AT_FDCWD, path, &b), 0);
        return memmem(buf_str(&b), b.len, sought, strlen(sought)) != NULL;
}

static bool on_disk(struct bench *b, const char *text) {
        sought = text;
        return nftw(b->f.home, holds_sought, 8, FTW_PHYS) != 0;
}

static void credentials_reach_the_run_but_not_the_disk(void **state) {
        BENCH(b, 1, 10);
        char id[37];
        assert_int_equal(submit_secret(&b, SECRET_URL, "k", id), 0);
        UNTIL(&b, b.n_running == 1);
        assert_string_equal(b.running->req.repo_url, SECRET_URL);
        assert_true(on_disk(&b, "example.com"));
        assert_false(on_disk(&b, "hush-7"));
        end_run(&b, b.running, OUTCOME_RESOLVED);
        UNTIL(&b, status_of(&b, id) == TASK_COMPLETED);
        assert_true(has(&b, id, "https://***@example.com/r"));
        assert_false(on_disk(&b, "hush-7"));
}

static void a_restart_forgets_credentials_and_says_so(void **state) {
        BENCH(b, 1, 10);
        char running[37], queued[37], other[37];
        assert_int_equal(submit_secret(&b, SECRET_URL, NULL, running), 0);
        UNTIL(&b, b.n_running == 1);
        assert_int_equal(submit_secret(&b, SECRET_URL, NULL, queued), 0);
        submit(&b, other);
        bench_close(&b);
        bench_open(&b, 1, 10, 3600000);
        tasks_start(b.ts);
        UNTIL(&b, status_of(&b, running) == TASK_FAILED && status_of(&b, queued) == TASK_FAILED);
        assert_true(has(&b, queued, "\"outcome\":\"infra_error\""));
        assert_true(has(&b, queued, "\"code\":\"repo_unreachable\""));
        assert_true(has(&b, queued, "kept in memory only"));
        UNTIL(&b, b.n_running == 1);
        assert_string_equal(b.running->id, other);
        end_run(&b, b.running, OUTCOME_RESOLVED);
}

/* Other credentials are another request as long as this can be told without keeping anything to guess them by. */
static void a_key_holds_across_hidden_credentials(void **state) {
        BENCH(b, 1, 10);
        char first[37], again[37];
        assert_int_equal(submit_secret(&b, SECRET_URL, "k", first), 0);
        assert_int_equal(submit_secret(&b, SECRET_URL, "k", again), -EEXIST);
        assert_string_equal(first, again);
        assert_int_equal(submit_secret(&b, "https://u:other@example.com/r", "k", again), -EBUSY);
        UNTIL(&b, b.n_running == 1);
        end_run(&b, b.running, OUTCOME_RESOLVED);
        UNTIL(&b, status_of(&b, first) == TASK_COMPLETED);
        bench_close(&b);
        bench_open(&b, 1, 10, 3600000);
        tasks_start(b.ts);
        assert_int_equal(submit_secret(&b, SECRET_URL, "k", again), -EEXIST);
        assert_string_equal(first, again);
        assert_int_equal(submit_full(&b, BODY, "", "k", again), -EBUSY);
}

/* ---- waiting ---------------------------------------------------------------------------------------------------------------------- */

static void waiting_ends_with_the_record_on_disk(void **state) {
        BENCH(b, 1, 10);
        char id[37];
        struct waiting w = { 0 }, w2 = { 0 }, late = { 0 };
        submit(&b, id);
        assert_non_null(tasks_wait(b.ts, id, 60000, on_result, &w));
        assert_non_null(tasks_wait(b.ts, id, 60000, on_result, &w2));
        UNTIL(&b, b.n_running == 1);
        end_run(&b, b.running, OUTCOME_RESOLVED);
        UNTIL(&b, w.done && w2.done);
        assert_int_equal(w.r, 0);
        assert_int_equal(w2.r, 0);
        assert_true(has(&b, id, "resolved"));
        assert_non_null(tasks_wait(b.ts, id, 60000, on_result, &late));
        UNTIL(&b, late.done);
        assert_int_equal(late.r, 0);
}

struct asker { struct bench *b; const char *id; bool done; int record; };

static void on_end_ask(int r, void *user) {
        struct asker *a = user;
        _cleanup_buf_ struct buf rec = BUF_INIT(1 << 20);
        a->record = tasks_record(a->b->ts, a->id, &rec);
        a->done = true;
}

/* What a surface does: it asks for the record from within the call that tells it of the end. */
static void who_is_told_finds_the_record(void **state) {
        BENCH(b, 1, 10);
        char id[37];
        struct asker a = { .b = &b, .id = id, .record = -1 };
        submit(&b, id);
        assert_non_null(tasks_wait(b.ts, id, 60000, on_end_ask, &a));
        UNTIL(&b, b.n_running == 1);
        end_run(&b, b.running, OUTCOME_RESOLVED);
        UNTIL(&b, a.done);
        assert_int_equal(a.record, 0);
}

static void waiting_ends_with_its_time_or_the_task_or_the_caller(void **state) {
        BENCH(b, 1, 10);
        char id[37];
        struct waiting timed = { 0 }, gone = { 0 }, dropped = { 0 }, unknown = { 0 };
        submit(&b, id);
        assert_non_null(tasks_wait(b.ts, id, 1, on_result, &timed));
        UNTIL(&b, timed.done);
        assert_int_equal(timed.r, -ETIME);
        assert_non_null(tasks_wait(b.ts, id, 60000, on_result, &gone));
        engine_wait_cancel(tasks_wait(b.ts, id, 60000, on_result, &dropped));
        assert_int_equal(delete_task(&b, id), 0);
        assert_true(gone.done);
        assert_int_equal(gone.r, -ENOENT);
        assert_false(dropped.done);
        assert_non_null(tasks_wait(b.ts, "nobody", 60000, on_result, &unknown));
        UNTIL(&b, unknown.done);
        assert_int_equal(unknown.r, -ENOENT);
}

/* ---- deletion --------------------------------------------------------------------------------------------------------------------- */

static void a_queued_task_is_deleted_before_it_runs(void **state) {
        BENCH(b, 1, 10);
        char first[37], second[37];
        submit(&b, first);
        submit(&b, second);
        UNTIL(&b, b.n_running == 1);
        assert_int_equal(delete_task(&b, second), 0);
        assert_int_equal(status_of(&b, second), -ENOENT);
        end_run(&b, b.running, OUTCOME_RESOLVED);
        UNTIL(&b, status_of(&b, first) == TASK_COMPLETED);
        assert_int_equal(b.started, 1);
}

static void a_running_task_is_cancelled_and_leaves_nothing(void **state) {
        BENCH(b, 1, 10);
        char id[37];
        submit(&b, id);
        UNTIL(&b, b.n_running == 1);
        assert_int_equal(rundirs(&b), 1);
        assert_int_equal(delete_task(&b, id), 0);
        assert_int_equal(b.n_running, 0);
        assert_int_equal(rundirs(&b), 0);
        assert_int_equal(status_of(&b, id), -ENOENT);
        assert_int_equal(delete_task(&b, id), -ENOENT);
        submit(&b, id);                /* its place is free again */
        UNTIL(&b, b.n_running == 1);
        end_run(&b, b.running, OUTCOME_RESOLVED);
}

static struct waiting deletion;

static void delete_at_once(struct bench *b, const char *id) {
        deletion = (struct waiting){ 0 };
        assert_int_equal(tasks_delete(b->ts, id, on_result, &deletion), 0);
}

static void a_task_is_deleted_while_it_starts(void **state) {
        BENCH(b, 1, 10);
        char id[37];
        submit_and(&b, id, delete_at_once);
        UNTIL(&b, deletion.done);
        assert_int_equal(deletion.r, 0);
        assert_int_equal(b.started, 0);
        assert_int_equal(status_of(&b, id), -ENOENT);
}

static void a_task_is_deleted_while_it_is_recorded(void **state) {
        BENCH(b, 1, 10);
        char id[37];
        submit(&b, id);
        UNTIL(&b, b.n_running == 1);
        end_run(&b, b.running, OUTCOME_RESOLVED);
        struct waiting one = { 0 }, two = { 0 };
        assert_int_equal(tasks_delete(b.ts, id, on_result, &one), 0);
        assert_int_equal(tasks_delete(b.ts, id, on_result, &two), 0);
        UNTIL(&b, one.done && two.done);
        assert_int_equal(one.r, 0);
        assert_int_equal(status_of(&b, id), -ENOENT);
        assert_int_equal(rundirs(&b), 0);
}

static void a_finished_task_is_deleted_with_its_logs(void **state) {
        BENCH(b, 1, 10);
        char id[37];
        submit(&b, id);
        UNTIL(&b, b.n_running == 1);
        end_run(&b, b.running, OUTCOME_RESOLVED);
        UNTIL(&b, status_of(&b, id) == TASK_COMPLETED);
        assert_int_equal(rundirs(&b), 1);
        assert_int_equal(delete_task(&b, id), 0);
        assert_int_equal(rundirs(&b), 0);
        assert_int_equal(status_of(&b, id), -ENOENT);
}

/* ---- retention -------------------------------------------------------------------------------------------------------------------- */

static void old_records_go_with_their_logs(void **state) {
        struct bench b;
        bench_dir(&b);
        bench_open(&b, 1, 10, 1);
        tasks_start(b.ts);
        char id[37];
        submit(&b, id);
        UNTIL(&b, b.n_running == 1);
        end_run(&b, b.running, OUTCOME_RESOLVED);
        UNTIL(&b, (tasks_expire(b.ts), status_of(&b, id) == -ENOENT));
        UNTIL(&b, rundirs(&b) == 0);
        bench_release(&b);
}

/* ---- crash and drain ---------------------------------------------------------------------------------------------------------------- */

/* Lives in a child until it says so, and is killed there: whatever `until_then` left is what the next start finds. */
static void crash(struct bench *b, void (*until_then)(struct bench *b)) {
        int p[2];
        assert_int_equal(pipe2(p, O_CLOEXEC), 0);
        pid_t child = fork();
        if (child == 0) {
                bench_open(b, 1, 10, 3600000);
                tasks_start(b->ts);
                until_then(b);
                if (write(p[1], "y", 1) == 1)
                        pause();
                _exit(1);
        }
        close(p[1]);
        char answer = 0;
        assert_int_equal(read(p[0], &answer, 1), 1);
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, &(int){ 0 }, 0), child);
        close(p[0]);
}

static void two_submitted_one_running(struct bench *b) {
        char id[37];
        submit(b, id);
        submit(b, id);
        UNTIL(b, b->n_running == 1);
}

static void until_one_runs(struct bench *b) { UNTIL(b, b->n_running == 1); }

static int add_id(const struct ledger_row *r, void *user) { return buf_printf(user, "%s ", r->id); }

static void every_accepted_task_ends_in_one_record_through_crashes(void **state) {
        struct bench b;
        bench_dir(&b);
        crash(&b, two_submitted_one_running);
        bench_open(&b, 1, 10, 3600000);
        _cleanup_buf_ struct buf ids = BUF_INIT(200);
        assert_int_equal(ledger_each_open(b.f.l, add_id, &ids), 0);
        assert_int_equal(ids.len, 74);
        ids.data[36] = ids.data[73] = 0;
        tasks_start(b.ts);
        for (int i = 0; i < 2; i++) {
                UNTIL(&b, b.n_running == 1);
                end_run(&b, b.running, OUTCOME_RESOLVED);
        }
        UNTIL(&b, status_of(&b, ids.data) == TASK_COMPLETED && status_of(&b, ids.data + 37) == TASK_COMPLETED);
        bench_release(&b);
}

static void what_ran_twice_when_the_daemon_died_is_interrupted(void **state) {
        struct bench b;
        bench_dir(&b);
        crash(&b, two_submitted_one_running);
        crash(&b, until_one_runs);
        bench_open(&b, 1, 10, 3600000);
        _cleanup_buf_ struct buf ids = BUF_INIT(200);
        assert_int_equal(ledger_each_open(b.f.l, add_id, &ids), 0);
        char first[37];
        snprintf(first, sizeof first, "%s", buf_str(&ids));
        UNTIL(&b, status_of(&b, first) == TASK_FAILED);
        assert_true(has(&b, first, "\"interrupted\""));
        tasks_start(b.ts);
        UNTIL(&b, b.n_running == 1);   /* only the other one runs */
        assert_string_not_equal(b.running->id, first);
        end_run(&b, b.running, OUTCOME_RESOLVED);
        bench_release(&b);
}

static void a_run_directory_without_a_task_is_swept(void **state) {
        struct bench b;
        bench_dir(&b);
        assert_int_equal(mkdirat(b.runs_dirfd, "11111111-1111-4111-8111-111111111111", 0700), 0);
        assert_int_equal(mkdirat(b.runs_dirfd, "not-ours", 0700), 0);
        bench_open(&b, 1, 10, 3600000);
        UNTIL(&b, rundirs(&b) == 1);
        bench_release(&b);
}

static void a_drain_lets_what_runs_end_and_refuses_the_rest(void **state) {
        BENCH(b, 1, 10);
        char id[37], waits[37], no[37];
        submit(&b, id);
        submit(&b, waits);
        UNTIL(&b, b.n_running == 1);
        tasks_drain(b.ts, 60000, on_drained, &b);
        assert_int_equal(submit_full(&b, BODY, "", NULL, no), -ESHUTDOWN);
        assert_false(b.drained);
        end_run(&b, b.running, OUTCOME_RESOLVED);
        UNTIL(&b, b.drained);
        assert_int_equal(status_of(&b, id), TASK_COMPLETED);
        assert_int_equal(status_of(&b, waits), TASK_PENDING);
        assert_int_equal(b.started, 1);
}

static void after_the_grace_what_runs_is_put_back_without_costing_an_attempt(void **state) {
        BENCH(b, 1, 10);
        char id[37];
        submit(&b, id);
        for (int i = 0; i < TASK_ATTEMPTS_MAX + 1; i++) {
                UNTIL(&b, b.n_running == 1);
                bench_close(&b);
                assert_int_equal(b.n_running, 0);
                bench_open(&b, 1, 10, 3600000);
                tasks_start(b.ts);
        }
        UNTIL(&b, b.n_running == 1);
        end_run(&b, b.running, OUTCOME_RESOLVED);
        UNTIL(&b, status_of(&b, id) == TASK_COMPLETED);
}

static void drain_at_once(struct bench *b, const char *id) { tasks_drain(b->ts, 0, on_drained, b); }

static void what_a_drain_puts_back_is_pending_and_can_be_deleted(void **state) {
        BENCH(b, 2, 10);
        char id[37], starts[37];
        submit(&b, id);
        UNTIL(&b, b.n_running == 1);
        submit_and(&b, starts, drain_at_once);
        UNTIL(&b, b.drained);
        assert_int_equal(b.started, 1);
        assert_int_equal(status_of(&b, id), TASK_PENDING);
        assert_int_equal(status_of(&b, starts), TASK_PENDING);
        assert_int_equal(delete_task(&b, id), 0);
        assert_int_equal(status_of(&b, id), -ENOENT);
}

static void when_the_spawner_is_lost_what_runs_is_interrupted(void **state) {
        BENCH(b, 1, 10);
        char id[37], waits[37];
        submit(&b, id);
        submit(&b, waits);
        UNTIL(&b, b.n_running == 1);
        tasks_lost(b.ts, on_drained, &b);
        UNTIL(&b, b.drained);
        assert_int_equal(status_of(&b, id), TASK_FAILED);
        assert_true(has(&b, id, "\"interrupted\""));
        assert_int_equal(status_of(&b, waits), TASK_PENDING);
        end_run(&b, b.running, OUTCOME_INFRA_ERROR);     /* too late: the record stands */
        assert_true(has(&b, id, "\"interrupted\""));
}

static void lose_at_once(struct bench *b, const char *id) { tasks_lost(b->ts, on_drained, b); }

static void a_task_that_was_just_starting_when_the_spawner_was_lost_never_runs(void **state) {
        BENCH(b, 1, 10);
        char id[37];
        submit_and(&b, id, lose_at_once);
        UNTIL(&b, b.drained);
        assert_true(has(&b, id, "\"interrupted\""));
        assert_int_equal(b.started, 0);
}

/* ---- long bodies ---------------------------------------------------------------------------------------------------------- */

#define POOL_MAX 4                 /* threads of libuv's pool */

struct hold { uv_work_t work; uv_sem_t until; bool over; };

static void hold(uv_work_t *work) { uv_sem_wait(&container_of(work, struct hold, work)->until); }

static void hold_over(uv_work_t *work, int status) { container_of(work, struct hold, work)->over = true; }

/* No thread of the pool is free until pool_go_on. */
static void pool_stands(struct bench *b, struct hold held[static POOL_MAX]) {
        for (size_t i = 0; i < POOL_MAX; i++) {
                held[i].over = false;
                assert_int_equal(uv_sem_init(&held[i].until, 0), 0);
                assert_int_equal(uv_queue_work(&b->f.loop, &held[i].work, hold, hold_over), 0);
        }
}

static void pool_go_on(struct bench *b, struct hold held[static POOL_MAX]) {
        for (size_t i = 0; i < POOL_MAX; i++)
                uv_sem_post(&held[i].until);
        for (size_t i = 0; i < POOL_MAX; i++) {
                UNTIL(b, held[i].over);
                uv_sem_destroy(&held[i].until);
        }
}

/* Of 1 MiB, and then one that is short. The short one is there when the long one's attempt is on disk. */
static void submit_long(struct bench *b, char ret_long[static 37]) {
        size_t n = 1u << 20;
        char *body = malloc(n), id[37];
        memset(body, ' ', n);
        memcpy(body, BODY, strlen(BODY));
        const struct engine_submission sub = { .body = body, .body_len = n, .tenant = "" };
        assert_int_equal(submit_it(b, &sub, ret_long), 0);
        free(body);
        submit(b, id);
        UNTIL(b, b->n_running == 1);
        assert_string_equal(b->running->id, id);
        assert_int_equal(attempts_on_disk(b, ret_long), 1);
}

static void a_long_body_is_decoded_in_the_pool(void **state) {
        BENCH(b, 2, 10);
        struct hold held[POOL_MAX];
        char id[37];
        pool_stands(&b, held);
        submit_long(&b, id);
        is_pending(&b, id);
        pool_go_on(&b, held);
        UNTIL(&b, b.n_running == 2);
        assert_string_equal(b.running->id, id);
}

static void a_task_is_deleted_while_its_body_is_decoded(void **state) {
        BENCH(b, 2, 10);
        struct hold held[POOL_MAX];
        char id[37];
        pool_stands(&b, held);
        submit_long(&b, id);
        delete_at_once(&b, id);
        pool_go_on(&b, held);
        UNTIL(&b, deletion.done);
        assert_int_equal(b.started, 1);
        assert_int_equal(status_of(&b, id), -ENOENT);
}

static void the_end_waits_for_a_body_that_is_decoded(void **state) {
        BENCH(b, 2, 10);
        struct hold held[POOL_MAX];
        char id[37];
        pool_stands(&b, held);
        submit_long(&b, id);
        struct score_task *lost = b.running;
        tasks_lost(b.ts, on_drained, &b);
        UNTIL(&b, status_of(&b, id) == TASK_FAILED);
        assert_false(b.drained);
        pool_go_on(&b, held);
        UNTIL(&b, b.drained);
        assert_int_equal(b.started, 1);
        end_run(&b, lost, OUTCOME_INFRA_ERROR);
}

int main(void) {
        log_set_level(LOG_LEVEL_MAX);
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_task_runs_and_its_record_stays),
                cmocka_unit_test(a_task_is_shown_as_running_when_its_attempt_is_on_disk),
                cmocka_unit_test(what_waits_is_pending_and_starts_when_there_is_a_place),
                cmocka_unit_test(a_full_queue_refuses),
                cmocka_unit_test(a_burst_does_not_pass_the_bound),
                cmocka_unit_test(a_run_that_cannot_start_is_our_fault),
                cmocka_unit_test(the_same_key_gives_the_same_task),
                cmocka_unit_test(two_at_once_with_one_key_are_one_task),
                cmocka_unit_test(a_repeat_is_answered_even_when_the_queue_is_full),
                cmocka_unit_test(credentials_reach_the_run_but_not_the_disk),
                cmocka_unit_test(a_restart_forgets_credentials_and_says_so),
                cmocka_unit_test(a_key_holds_across_hidden_credentials),
                cmocka_unit_test(waiting_ends_with_the_record_on_disk),
                cmocka_unit_test(who_is_told_finds_the_record),
                cmocka_unit_test(waiting_ends_with_its_time_or_the_task_or_the_caller),
                cmocka_unit_test(a_queued_task_is_deleted_before_it_runs),
                cmocka_unit_test(a_running_task_is_cancelled_and_leaves_nothing),
                cmocka_unit_test(a_task_is_deleted_while_it_starts),
                cmocka_unit_test(a_task_is_deleted_while_it_is_recorded),
                cmocka_unit_test(a_finished_task_is_deleted_with_its_logs),
                cmocka_unit_test(old_records_go_with_their_logs),
                cmocka_unit_test(every_accepted_task_ends_in_one_record_through_crashes),
                cmocka_unit_test(what_ran_twice_when_the_daemon_died_is_interrupted),
                cmocka_unit_test(a_run_directory_without_a_task_is_swept),
                cmocka_unit_test(a_drain_lets_what_runs_end_and_refuses_the_rest),
                cmocka_unit_test(after_the_grace_what_runs_is_put_back_without_costing_an_attempt),
                cmocka_unit_test(what_a_drain_puts_back_is_pending_and_can_be_deleted),
                cmocka_unit_test(when_the_spawner_is_lost_what_runs_is_interrupted),
                cmocka_unit_test(a_task_that_was_just_starting_when_the_spawner_was_lost_never_runs),
                cmocka_unit_test(a_long_body_is_decoded_in_the_pool),
                cmocka_unit_test(a_task_is_deleted_while_its_body_is_decoded),
                cmocka_unit_test(the_end_waits_for_a_body_that_is_decoded),
        };
        return cmocka_run_group_tests_name("engine/tasks", tests, NULL, NULL);
}
