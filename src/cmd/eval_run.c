/* Theory of operation. A thread for each task in flight takes the next instance, asks its endpoint, and puts the record on disk; the main thread shows how
 * it goes. A thread whose endpoint gives no answer goes to the next one after a rest. Tasks are submitted under a key made of the request and a text
 * that the output directory keeps until a run has ended by itself: the run after a killed one finds its tasks instead of running them again. */
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/strv.h"
#include "cmd/eval.h"
#include "cmd/remote.h"
#include "cmd/score_run.h"

#define ENDPOINTS_MAX 256
#define AHEAD 2                            /* tasks at an endpoint for each that it runs at once */
#define SLOTS_UNKNOWN 2
#define REST_FIRST_MS 500
#define REST_MAX_MS 15000
#define GIVE_UP_MS (5 * 60 * MS_PER_S)     /* without an answer from any endpoint */
#define BAR_WIDTH 24

struct run {
        struct eval *ev;
        char **urls; size_t n_urls;
        pthread_mutex_t lock;
        pthread_cond_t changed;
        size_t next, to_run, ended, resolved, working;
        uint64_t since_ms;
        bool interrupted;
};

struct worker { struct run *run; size_t endpoint; struct client *client; pthread_t thread; };

/* ---- endpoints ------------------------------------------------------------------------------------------------------------------ */

static int split_endpoints(struct run *run, const char *text, struct error *e) {
        int r = 0;
        for (const char *p = text; p && *p && r == 0; p += *p == ',') {
                size_t n = strcspn(p, ",");
                r = n ? strv_append_take(&run->urls, &run->n_urls, strndup(p, n)) : 0;
                p += n;
        }
        if (r == 0 && run->n_urls > ENDPOINTS_MAX)
                return error_say(e, -EINVAL, "--endpoints: more than %d", ENDPOINTS_MAX);
        return r < 0 ? error_set(e, r, "read --endpoints") : 0;
}

static int open_endpoint(const struct run *run, size_t i, struct client **ret, struct error *e) {
        return remote_find(run->n_urls ? run->urls[i % run->n_urls] : NULL, true, ret, e);
}

/* How many tasks it runs at once. */
static int slots(const struct run *run, size_t i, size_t *sum, struct error *e) {
        _cleanup_buf_ struct buf answer = BUF_INIT(1u << 20);
        struct client *c = NULL;
        struct json doc, v;
        int64_t n = 0;
        int status, r = open_endpoint(run, i, &c, e);
        if (r == 0)
                r = client_call(c, "GET", "/readyz", NULL, 0, REMOTE_CALL_MS, &status, &answer, e);
        client_free(c);
        if (r < 0)
                return r;
        if (json_parse(buf_str(&answer), answer.len, &doc, NULL) < 0 || !json_get(&doc, "slots", &v) || json_int(&v, &n) < 0 || n < 1 || n > EVAL_JOBS_MAX)
                n = SLOTS_UNKNOWN;
        *sum += (size_t)n * AHEAD;
        return 0;
}

/* One that does not answer now may later; none is an error. */
static int count_jobs(const struct run *run, size_t *ret, struct error *e) {
        size_t sum = 0;
        char *end;
        int r = -EIO;
        for (size_t i = 0; i < MAX2(run->n_urls, (size_t)1); i++) {
                struct error why;
                int x = slots(run, i, &sum, &why);
                if (x == 0)
                        r = 0;
                else if (r < 0) {
                        r = x;
                        *e = why;
                }
        }
        if (r < 0)
                return r;
        if (run->ev->o->jobs) {
                unsigned long n = strtoul(run->ev->o->jobs, &end, 10);
                if (*end || n < 1 || n > EVAL_JOBS_MAX)
                        return error_say(e, -EINVAL, "--jobs wants a number from 1 to %d", EVAL_JOBS_MAX);
                sum = n;
        }
        *ret = MIN2(sum, (size_t)EVAL_JOBS_MAX);
        return 0;
}

/* ---- one instance ----------------------------------------------------------------------------------------------------------------- */

static int add_key(const struct eval *ev, const struct eval_item *it, const struct buf *request, struct buf *ret, struct error *e) {
        char text[200], key[SHA256_HEX];
        int n = snprintf(text, sizeof text, "%s %s %u", ev->nonce, it->request, it->attempt);
        int r = sha256_hex(text, (size_t)n, key);
        if (r == 0)
                r = buf_add(ret, buf_str(request), request->len - 1);          /* without the brace */
        if (r == 0)
                r = buf_printf(ret, ",\"idempotency_key\":\"%s\"}", key);
        return r < 0 ? error_set(e, r, "write the request") : 0;
}

static int change_endpoint(struct worker *w, struct error *e) {
        client_free(w->client);
        w->client = NULL;
        return open_endpoint(w->run, ++w->endpoint, &w->client, e);
}

static int ask(struct worker *w, const struct buf *request, struct buf *record, struct error *e) {
        const struct score_run how = { .request = buf_str(request), .request_len = request->len };
        uint64_t since = now_ms(), rest = REST_FIRST_MS;
        for (;;) {
                int r = w->client ? score_remote(w->client, &how, record, e) : -EIO;
                if (r != -EIO || now_ms() - since > GIVE_UP_MS || score_interrupted())
                        return r == -EIO && score_interrupted() ? -EINTR : r;
                buf_reset(record);
                /* Nothing tells when an endpoint is there again; a signal ends the rest. */
                struct timespec t = { .tv_sec = (time_t)(rest / 1000), .tv_nsec = (long)(rest % 1000) * 1000000 };
                nanosleep(&t, NULL);
                rest = MIN2(rest * 2, (uint64_t)REST_MAX_MS);
                struct error why;
                if (change_endpoint(w, &why) < 0)
                        *e = why;
        }
}

static int run_item(struct worker *w, struct eval_item *it, struct error *e) {
        _cleanup_buf_ struct buf request = BUF_INIT(4u * SCORE_FILE_MAX), keyed = BUF_INIT(4u * SCORE_FILE_MAX), record = BUF_INIT(SCORE_RECORD_MAX);
        int r = eval_request(w->run->ev, it, &request, e);
        if (r == 0)
                r = add_key(w->run->ev, it, &request, &keyed, e);
        if (r == 0)
                r = ask(w, &keyed, &record, e);
        return r == 0 ? eval_store_save(w->run->ev, it, &request, &record, e) : r;
}

/* ---- threads ------------------------------------------------------------------------------------------------------------------------ */

static struct eval_item *take(struct run *run) {
        struct eval *ev = run->ev;
        while (run->next < ev->n && ev->items[run->next].state != EVAL_TO_RUN)
                run->next++;
        return run->next < ev->n && !score_interrupted() ? &ev->items[run->next++] : NULL;
}

static void ended(struct run *run, struct eval_item *it, int r, const struct error *e) {
        char text[sizeof e->text + RECORD_ID_MAX + 8];
        if (r == -EINTR) {
                run->interrupted = true;
                return;
        }
        run->ended++;
        it->state = r < 0 ? EVAL_FAILED : EVAL_HAS_RECORD;
        if (r < 0) {
                status_line("%s", "");
                it->why = strdup(e->text);
                snprintf(text, sizeof text, "%s: %s", it->instance->id, e->text);
                eval_problem(run->ev, run->ev->o->dataset, it->instance->line, text);
        } else
                run->resolved += strcmp(it->outcome, "resolved") == 0;
}

static void *work(void *arg) {
        struct worker *w = arg;
        struct run *run = w->run;
        struct eval_item *it;
        pthread_mutex_lock(&run->lock);
        while ((it = take(run))) {
                struct error e = { 0 };
                pthread_mutex_unlock(&run->lock);
                int r = run_item(w, it, &e);
                pthread_mutex_lock(&run->lock);
                ended(run, it, r, &e);
                pthread_cond_signal(&run->changed);
        }
        run->working--;
        pthread_cond_signal(&run->changed);
        pthread_mutex_unlock(&run->lock);
        client_free(w->client);
        return NULL;
}

static void show(const struct run *run) {
        if (run->ev->o->quiet)
                return;
        double seconds = (double)(now_ms() - run->since_ms) / MS_PER_S, rate = seconds > 0 ? (double)run->ended / seconds : 0;
        char bar[BAR_WIDTH + 1], left[60] = "";
        size_t full = run->to_run ? run->ended * BAR_WIDTH / run->to_run : BAR_WIDTH;
        memset(bar, '.', BAR_WIDTH);
        memset(bar, '#', full);
        bar[BAR_WIDTH] = 0;
        if (rate > 0) {
                unsigned long s = (unsigned long)((double)(run->to_run - run->ended) / rate);
                if (s >= 60)
                        snprintf(left, sizeof left, ", %lu h %02lu min left", s / 3600, s / 60 % 60);
                else
                        snprintf(left, sizeof left, ", %lu s left", s);
        }
        status_line("[%s] %zu/%zu, %zu resolved, %.1f/s%s", bar, run->ended, run->to_run, run->resolved, rate, left);
}

static void watch(struct run *run) {
        pthread_mutex_lock(&run->lock);
        while (run->working > 0) {
                struct timespec until;
                show(run);
                clock_gettime(CLOCK_MONOTONIC, &until);
                until.tv_sec++;
                pthread_cond_timedwait(&run->changed, &run->lock, &until);
        }
        pthread_mutex_unlock(&run->lock);
        if (!run->ev->o->quiet)
                status_line("%s", "");
}

static int start(struct run *run, struct worker *workers, size_t n, size_t *ret_started, struct error *e) {
        int r = 0;
        *ret_started = 0;
        for (size_t i = 0; i < n && r == 0; i++) {
                struct worker *w = &workers[i];
                struct error why;
                *w = (struct worker){ .run = run, .endpoint = i };
                (void)open_endpoint(run, i, &w->client, &why);         /* else it looks for another */
                pthread_mutex_lock(&run->lock);
                r = -pthread_create(&w->thread, NULL, work, w);
                run->working += r == 0;
                pthread_mutex_unlock(&run->lock);
                if (r < 0)
                        client_free(w->client);
                *ret_started += r == 0;
        }
        return *ret_started ? 0 : error_set(e, r, "start a thread");
}

static int run_all(struct run *run, struct error *e) {
        size_t jobs = 0, started;
        int r = count_jobs(run, &jobs, e);
        if (r < 0)
                return r;
        jobs = MIN2(jobs, run->to_run);
        _cleanup_free_ struct worker *workers = calloc(jobs, sizeof *workers);
        if (!workers)
                return error_set(e, -ENOMEM, "start threads");
        score_interruptible();
        run->since_ms = now_ms();
        r = start(run, workers, jobs, &started, e);
        if (r < 0)
                return r;
        watch(run);
        for (size_t i = 0; i < started; i++)
                pthread_join(workers[i].thread, NULL);
        run->ev->wall_ms = now_ms() - run->since_ms;
        eval_store_renew(run->ev);         /* no task is left that another run should find */
        return run->interrupted || score_interrupted() ? error_say(e, -EINTR, "interrupted; the same command goes on") : 0;
}

int eval_run(struct eval *ev, struct error *e) {
        struct run run = { .ev = ev, .lock = PTHREAD_MUTEX_INITIALIZER };
        pthread_condattr_t attr;
        for (size_t i = 0; i < ev->n; i++)
                run.to_run += ev->items[i].state == EVAL_TO_RUN;
        if (run.to_run == 0)
                return 0;
        pthread_condattr_init(&attr);
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        pthread_cond_init(&run.changed, &attr);
        pthread_condattr_destroy(&attr);
        int r = split_endpoints(&run, ev->o->endpoints, e);
        if (r == 0)
                r = run_all(&run, e);
        pthread_cond_destroy(&run.changed);
        strv_free(run.urls);
        return r;
}
