/* Tasks with a runner that does what the test says: no sandbox, but a real ledger. For the files of tests that include it. */
#pragma once
#include "store/ledger_fixture.h"

#include <dirent.h>

#include "base/log.h"
#include "engine/tasks.h"
#include "score/request.h"

#define BODY "{\"repo_url\":\"/r\",\"test_command\":\"true\"}"

/* ---- a runner of the test's own ------------------------------------------------------------------------------------------ */

struct score_task { struct score_task *next; score_done done; void *user; struct score_request req; char id[37]; };

struct bench {
        struct fixture f;
        struct score_defaults defaults;
        struct tasks *ts;
        struct score_task *running;
        size_t n_running, started;
        int runs_dirfd;
        bool fail_start, drained;
        char fatal[128];
};

static inline int fake_start(void *ctx, const char *id, struct score_request *req, int log_dirfd, score_done done, void *user,
                      struct score_task **ret, struct error *e) {
        struct bench *b = ctx;
        if (b->fail_start)
                return error_say(e, -EIO, "the test says no");
        struct score_task *t = calloc(1, sizeof *t);
        *t = (struct score_task){ .next = b->running, .done = done, .user = user, .req = *req };
        snprintf(t->id, sizeof t->id, "%s", id);
        int fd = openat(log_dirfd, "stdout.log", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        close(fd);
        b->running = t;
        b->n_running++;
        b->started++;
        *ret = t;
        return 0;
}

static inline void end_run(struct bench *b, struct score_task *t, enum outcome outcome) {
        for (struct score_task **at = &b->running; *at; at = &(*at)->next)
                if (*at == t) {
                        *at = t->next;
                        break;
                }
        b->n_running--;
        struct score_record rec;
        score_record_init(&rec);
        score_record_echo(&rec, &t->req);
        rec.outcome = outcome;
        if (outcome == OUTCOME_CANCELLED) {
                rec.error_code = strdup("interrupted");
                rec.error_message = strdup("cancelled");
        }
        t->done(&rec, t->user);
        score_record_release(&rec);
        score_request_release(&t->req);
        free(t);
}

static inline void fake_cancel(void *ctx, struct score_task *t) { end_run(ctx, t, OUTCOME_CANCELLED); }

static inline void on_fatal(const char *why, void *user) {
        struct bench *b = user;
        snprintf(b->fatal, sizeof b->fatal, "%s", why);
}

static inline void bench_open(struct bench *b, size_t running_max, size_t queued_max, uint64_t max_age_ms) {
        struct error e = { 0 };
        fixture_open(&b->f);
        score_defaults_init(&b->defaults);
        struct tasks_config cfg = {
                .loop = &b->f.loop, .ledger = b->f.l, .runner = { fake_start, fake_cancel, b }, .log_urls = true, .defaults = &b->defaults,
                .running_max = running_max, .queued_max = queued_max, .max_age_ms = max_age_ms, .runs_dirfd = b->runs_dirfd,
                .fatal = on_fatal, .user = b,
        };
        if (tasks_open(&cfg, &b->ts, &e) < 0)
                fail_msg("%s", e.text);
}

static inline void bench_dir(struct bench *b) {
        *b = (struct bench){ 0 };
        fixture_dir(&b->f);
        char runs[128];
        snprintf(runs, sizeof runs, "%s/runs", b->f.home);
        assert_int_equal(mkdir(runs, 0700), 0);
        b->runs_dirfd = open(runs, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static inline void bench_init(struct bench *b, size_t running_max, size_t queued_max) {
        bench_dir(b);
        bench_open(b, running_max, queued_max, 3600000);
        tasks_start(b->ts);
}

/* Without the stop, the turn of the loop that ran this would go on to sleep until the next timer, for up to 2 s. */
static inline void on_drained(void *user) {
        struct bench *b = user;
        b->drained = true;
        uv_stop(&b->f.loop);
}

static inline void drain(struct bench *b, uint64_t grace_ms) {
        tasks_drain(b->ts, grace_ms, on_drained, b);
        while (!b->drained)
                uv_run(&b->f.loop, UV_RUN_ONCE);
}

static inline void bench_close(struct bench *b) {
        b->drained = false;
        drain(b, 0);
        tasks_free(b->ts);
        fixture_close(&b->f);
}

static inline void bench_release(struct bench *b) {
        bench_close(b);
        close(b->runs_dirfd);
        fixture_release(&b->f);
}

/* A bench that goes with its block. */
#define BENCH(b, running_max, queued_max) CLEANUP(bench_release) struct bench b; bench_init(&b, running_max, queued_max)

#define NEVER_MS 60000             /* longer than a busy machine takes for a few commits */

/* Runs the loop until `condition`. */
#define UNTIL(b, condition) do { \
        uint64_t end_ = now_ms() + NEVER_MS; \
        while (!(condition)) { \
                if (now_ms() > end_) fail_msg("never: %s", #condition); \
                uv_timer_t t_; \
                uv_timer_init(&(b)->f.loop, &t_); \
                uv_timer_start(&t_, wake, 5, 0); \
                uv_run(&(b)->f.loop, UV_RUN_ONCE); \
                uv_close((uv_handle_t *)&t_, NULL); \
                uv_run(&(b)->f.loop, UV_RUN_NOWAIT); \
        } } while (0)
static inline void wake(uv_timer_t *t) { }

/* ---- calls ------------------------------------------------------------------------------------------------------------------ */

struct submitted { int r; bool done; char id[37]; struct bench *b; void (*at_once)(struct bench *b, const char *id); };
static inline void on_submitted(int r, const char *id, void *user) {
        struct submitted *s = user;
        s->r = r;
        s->done = true;
        snprintf(s->id, sizeof s->id, "%s", id ? id : "");
        if (s->at_once)
                s->at_once(s->b, s->id);
}

static inline int submit_it(struct bench *b, const struct engine_submission *sub, char ret_id[static 37]) {
        struct submitted s = { 0 };
        assert_int_equal(tasks_submit(b->ts, sub, on_submitted, &s), 0);
        UNTIL(b, s.done);
        snprintf(ret_id, 37, "%s", s.id);
        return s.r;
}

static inline int submit_full(struct bench *b, const char *body, const char *tenant, const char *key, char ret_id[static 37]) {
        const struct engine_submission sub = { .body = body, .body_len = strlen(body), .tenant = tenant, .idempotency_key = key };
        return submit_it(b, &sub, ret_id);
}

#define HIDDEN_BODY "{\"repo_url\":\"https://***@example.com/r\",\"test_command\":\"true\"}"
#define SECRET_URL "https://u:hush-7@example.com/r"

/* As the surface does with a body that held credentials. */
static inline int submit_secret(struct bench *b, const char *url, const char *key, char ret_id[static 37]) {
        const struct engine_submission sub = { .body = HIDDEN_BODY, .body_len = strlen(HIDDEN_BODY), .secret_url = url, .tenant = "", .idempotency_key = key };
        return submit_it(b, &sub, ret_id);
}

static inline void submit(struct bench *b, char ret_id[static 37]) { assert_int_equal(submit_full(b, BODY, "", NULL, ret_id), 0); }

/* Calls `at_once` from within the answer: the task has a place by then, and that it runs is on its way to disk. A turn of the
 * loop later it may be there. */
static inline void submit_and(struct bench *b, char ret_id[static 37], void (*at_once)(struct bench *b, const char *id)) {
        const struct engine_submission sub = { .body = BODY, .body_len = strlen(BODY), .tenant = "" };
        struct submitted s = { .b = b, .at_once = at_once };
        assert_int_equal(tasks_submit(b->ts, &sub, on_submitted, &s), 0);
        UNTIL(b, s.done);
        assert_int_equal(s.r, 0);
        snprintf(ret_id, 37, "%s", s.id);
}

static inline int status_of(struct bench *b, const char *id) {
        enum task_status st;
        int r = tasks_status(b->ts, id, &st);
        return r < 0 ? r : (int)st;
}

static inline bool has(struct bench *b, const char *id, const char *text) {
        _cleanup_buf_ struct buf rec = BUF_INIT(1 << 20);
        assert_int_equal(tasks_record(b->ts, id, &rec), 0);
        return strstr(buf_str(&rec), text) != NULL;
}

static inline size_t rundirs(struct bench *b) {
        DIR *d = fdopendir(openat(b->runs_dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        size_t n = 0;
        for (struct dirent *e; (e = readdir(d));)
                n += e->d_name[0] != '.';
        closedir(d);
        return n;
}

static inline void on_result(int r, void *user) { on_done(r, user); }

static inline int delete_task(struct bench *b, const char *id) {
        struct waiting w = { 0 };
        int r = tasks_delete(b->ts, id, on_result, &w);
        if (r < 0)
                return r;
        UNTIL(b, w.done);
        return w.r;
}
