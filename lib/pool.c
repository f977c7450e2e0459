/* Theory of operation. A pool is a table of endpoints under one mutex. Whoever has a task takes a place at the endpoint that is
 * well and has most room (turns go round among equals), or waits on the condition until there is one. An endpoint that did not
 * answer, or asked for a rest, gets no work until it answered a probe; probes are made by whoever waits or comes by when one is
 * due, outside the lock, one at a time for each endpoint. */
#include <pthread.h>
#include <time.h>

#include "internal.h"

#define ENDPOINTS_MAX 256
#define ATTEMPTS 3
#define ATTEMPTS_MAX 16
#define THREADS 64
#define AHEAD 2                        /* tasks at an endpoint for each that it runs at once */
#define SLOTS_UNKNOWN 8                /* of an endpoint that does not say how many */
#define PROBE_EVERY_S 5.0
#define PROBE_TIMEOUT_S 5.0
#define DOWN_FIRST_S 0.25
#define DOWN_MAX_S 30.0
#define GRACE_S 2.0                    /* how long an endpoint may be unreachable before its work goes to another */

struct endpoint {
        struct brig_client *client;
        int slots, in_flight, failures;
        bool down, probing;
        double probe_at;               /* monotonic */
};

struct brig_pool {
        struct brig_pool_options options;
        struct endpoint *endpoints; size_t n;
        size_t turn;
        int in_flight;
        pthread_mutex_t lock;
        pthread_cond_t changed;
};

static int add_endpoint(struct brig_pool *p, const char *url, struct brig_error *e) {
        if (p->n == ENDPOINTS_MAX)
                return fail(e, BRIG_ERR_ARGUMENT, "more than %d endpoints", ENDPOINTS_MAX);
        struct endpoint *more = reallocarray(p->endpoints, p->n + 1, sizeof *more);
        if (!more)
                return fail_memory(e);
        p->endpoints = more;
        more[p->n] = (struct endpoint){ 0 };
        int r = brig_client_new(url, p->options.token, &more[p->n].client, e);
        if (r == 0)
                p->n++;
        return r;
}

static int add_endpoints(struct brig_pool *p, const char *urls, struct brig_error *e) {
        _cleanup_free_ char *copy = strdup(urls);
        if (!copy)
                return fail_memory(e);
        char *at = copy;
        for (char *url; (url = strsep(&at, ",")) != NULL;) {
                url += strspn(url, " \t");
                size_t n = strlen(url);
                while (n > 0 && (url[n - 1] == ' ' || url[n - 1] == '\t'))
                        url[--n] = 0;
                int r = n ? add_endpoint(p, url, e) : 0;
                if (r < 0)
                        return r;
        }
        return p->n ? 0 : fail(e, BRIG_ERR_ARGUMENT, "no endpoints: give URLs, or set BRIG_URLS or DOCKYARD_SANDBOX_URLS");
}

static const char *urls_of_environment(void) {
        const char *urls = getenv("BRIG_URLS");
        if (!urls || !*urls)
                urls = getenv("DOCKYARD_SANDBOX_URLS");
        return urls ? urls : "";
}

int brig_pool_new(const char *urls, const struct brig_pool_options *options, struct brig_pool **ret, struct brig_error *e) {
        struct brig_pool *p = calloc(1, sizeof *p);
        if (!p)
                return fail_memory(e);
        if (options)
                p->options = *options;
        struct brig_pool_options *o = &p->options;
        if (o->attempts == 0)
                o->attempts = ATTEMPTS;
        pthread_condattr_t attr;
        pthread_condattr_init(&attr);
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        pthread_cond_init(&p->changed, &attr);
        pthread_condattr_destroy(&attr);
        pthread_mutex_init(&p->lock, NULL);
        int r = 0;
        if (o->per_endpoint < 0 || o->max_in_flight < 0 || o->attempts < 0 || o->attempts > ATTEMPTS_MAX)
                r = fail(e, BRIG_ERR_ARGUMENT, "per_endpoint and max_in_flight are at least 0, attempts 0 to %d", ATTEMPTS_MAX);
        if (r == 0)
                r = add_endpoints(p, urls ? urls : urls_of_environment(), e);
        o->token = NULL;               /* the caller's; the clients have it */
        if (r < 0)
                brig_pool_free(p);
        else
                *ret = p;
        return r;
}

void brig_pool_free(struct brig_pool *p) {
        if (!p)
                return;
        for (size_t i = 0; i < p->n; i++)
                brig_client_free(p->endpoints[i].client);
        free(p->endpoints);
        pthread_cond_destroy(&p->changed);
        pthread_mutex_destroy(&p->lock);
        free(p);
}

/* ---- health: under the lock but where it is said ------------------------------------------------------------------ */

static void endpoint_failed(struct endpoint *ep, double asked) {
        double seconds = DOWN_FIRST_S * (double)(1u << MIN2(ep->failures, 10));
        ep->failures++;
        ep->down = true;
        ep->probe_at = now() + MIN2(asked > 0 ? asked : seconds, DOWN_MAX_S);
}

/* Without the lock: asks one endpoint how it is. */
static void probe(struct brig_pool *p, struct endpoint *ep) {
        struct exchange x = { .method = "GET", .path = "/readyz", .timeout = PROBE_TIMEOUT_S, .tries = 1 };
        _cleanup_answer_ struct answer a = ANSWER_INIT;
        struct json v;
        int r = exchange(ep->client, &x, &a, NULL);
        int64_t slots = r == 0 && expect(&a, 200, "readyz", &v, NULL) == 0 ? member_int(&v, "slots", 0) : 0;
        pthread_mutex_lock(&p->lock);
        ep->probing = false;
        if (r < 0 || a.status == 503)
                endpoint_failed(ep, a.retry_after);
        else {                         /* one that does not know the question but answers is well */
                ep->down = false;
                ep->failures = 0;
                ep->probe_at = now() + PROBE_EVERY_S;
                if (slots > 0 && slots <= 100000)
                        ep->slots = (int)slots;
        }
        pthread_cond_broadcast(&p->changed);
        pthread_mutex_unlock(&p->lock);
}

static struct endpoint *due(struct brig_pool *p) {
        double t = now();
        for (size_t i = 0; i < p->n; i++)
                if (!p->endpoints[i].probing && p->endpoints[i].probe_at <= t)
                        return &p->endpoints[i];
        return NULL;
}

/* ---- places -------------------------------------------------------------------------------------------------------- */

static int room(const struct brig_pool *p, const struct endpoint *ep) {
        int most = p->options.per_endpoint ? p->options.per_endpoint : AHEAD * (ep->slots ? ep->slots : SLOTS_UNKNOWN);
        return ep->down || ep->probe_at == 0 ? 0 : most - ep->in_flight;
}

static bool among(const struct endpoint *ep, struct endpoint *const *tried, size_t n) {
        for (size_t i = 0; i < n; i++)
                if (tried[i] == ep)
                        return true;
        return false;
}

static struct endpoint *choose(struct brig_pool *p, struct endpoint *const *tried, size_t n_tried) {
        if (p->options.max_in_flight && p->in_flight >= p->options.max_in_flight)
                return NULL;
        struct endpoint *best = NULL;
        bool best_new = false;
        for (size_t i = 0; i < p->n; i++) {
                struct endpoint *ep = &p->endpoints[(p->turn + i) % p->n];
                bool new = !among(ep, tried, n_tried);
                int more = room(p, ep);
                if (more <= 0 || (best && (new < best_new || (new == best_new && more <= room(p, best)))))
                        continue;
                best = ep;
                best_new = new;
        }
        if (best)
                p->turn = (size_t)(best - p->endpoints + 1) % p->n;
        return best;
}

static struct endpoint *take(struct brig_pool *p, struct endpoint *const *tried, size_t n_tried) {
        pthread_mutex_lock(&p->lock);
        for (;;) {
                struct endpoint *ep = due(p);
                if (ep) {
                        ep->probing = true;
                        pthread_mutex_unlock(&p->lock);
                        probe(p, ep);
                        pthread_mutex_lock(&p->lock);
                        continue;
                }
                if ((ep = choose(p, tried, n_tried))) {
                        ep->in_flight++;
                        p->in_flight++;
                        pthread_mutex_unlock(&p->lock);
                        return ep;
                }
                struct timespec until;
                clock_gettime(CLOCK_MONOTONIC, &until);        /* at most so long: a probe may come due */
                until.tv_nsec += 100 * 1000 * 1000;
                until.tv_sec += until.tv_nsec / 1000000000;
                until.tv_nsec %= 1000000000;
                pthread_cond_timedwait(&p->changed, &p->lock, &until);
        }
}

static void give_back(struct brig_pool *p, struct endpoint *ep, bool failed, double asked) {
        pthread_mutex_lock(&p->lock);
        ep->in_flight--;
        p->in_flight--;
        if (failed)
                endpoint_failed(ep, asked);
        pthread_cond_broadcast(&p->changed);
        pthread_mutex_unlock(&p->lock);
}

/* ---- tasks ---------------------------------------------------------------------------------------------------------- */

/* Could another endpoint do better? */
static bool worth_another(int r, const struct brig_error *e, const struct brig_task_result *t) {
        if (r == BRIG_OK)
                return strcmp(t->error_code, "interrupted") == 0 || strcmp(t->error_code, "disk_full") == 0 || strcmp(t->error_code, "internal") == 0;
        if (r == BRIG_ERR_TRANSPORT)
                return true;
        int s = e->http_status;        /* 404: it was accepted, and the endpoint has forgotten it */
        return r == BRIG_ERR_STATUS && (s == 404 || s == 500 || s == 502 || s == 503 || s == 504);
}

int brig_pool_run_task(struct brig_pool *p, const char *spec, const struct brig_wait *wait, struct brig_task_result *ret, struct brig_error *e) {
        struct endpoint *tried[ATTEMPTS_MAX];
        struct brig_error own;
        struct brig_wait w = wait ? *wait : (struct brig_wait){ 0 };
        if (!e)
                e = &own;
        if (!(w.poll_interval > 0))
                w.poll_interval = p->options.poll_interval;
        for (int attempt = 0;; attempt++) {
                struct brig_task_result t = { 0 };
                struct endpoint *ep = take(p, tried, (size_t)attempt);
                int r = run_task(ep->client, spec, &w, p->n > 1 ? GRACE_S : UNREACHABLE_MAX_S, &t, e);
                bool down = r == BRIG_ERR_TRANSPORT || (r == BRIG_ERR_STATUS && e->http_status == 503);
                give_back(p, ep, down, down ? e->retry_after : 0);
                tried[attempt] = ep;
                if (attempt + 1 == p->options.attempts || !worth_another(r, e, &t)) {
                        if (r == BRIG_OK)
                                *ret = t;
                        return r;
                }
                brig_task_result_release(&t);
        }
}

struct map {
        struct brig_pool *pool;
        const char *const *specs; size_t n;
        struct brig_outcome *outcomes;
        void (*progress)(size_t, size_t, size_t, const struct brig_outcome *, void *); void *user;
        pthread_mutex_t lock;
        size_t next, done;
};

static void *map_work(void *arg) {
        struct map *m = arg;
        for (;;) {
                pthread_mutex_lock(&m->lock);
                size_t i = m->next < m->n ? m->next++ : m->n;
                pthread_mutex_unlock(&m->lock);
                if (i == m->n)
                        return NULL;
                struct brig_outcome *o = &m->outcomes[i];
                *o = (struct brig_outcome){ 0 };
                o->code = brig_pool_run_task(m->pool, m->specs[i], NULL, &o->result, &o->error);
                pthread_mutex_lock(&m->lock);
                m->done++;
                if (m->progress)
                        m->progress(m->done, m->n, i, o, m->user);
                pthread_mutex_unlock(&m->lock);
        }
}

int brig_pool_map(struct brig_pool *p, const char *const *specs, size_t n, unsigned threads,
                  void (*progress)(size_t done, size_t n, size_t i, const struct brig_outcome *o, void *user), void *user,
                  struct brig_outcome *ret, struct brig_error *e) {
        struct map m = { .pool = p, .specs = specs, .n = n, .outcomes = ret, .progress = progress, .user = user, .lock = PTHREAD_MUTEX_INITIALIZER };
        size_t want = MIN2(threads ? threads : THREADS, n), made = 0;
        _cleanup_free_ pthread_t *workers = calloc(want + 1, sizeof *workers);
        if (!workers)
                return fail_memory(e);
        while (made < want && pthread_create(&workers[made], NULL, map_work, &m) == 0)
                made++;
        for (size_t i = 0; i < made; i++)
                pthread_join(workers[i], NULL);
        return made || n == 0 ? 0 : fail(e, BRIG_ERR_MEMORY, "cannot start a thread");
}
