#include "api/ops.h"
#include "api/ops_events.h"
#include "base/metrics.h"
#include "rlm/rlm.h"

#define METRICS_TEXT_MAX (256 * 1024)

static void say(struct http_request *r, int status, const char *word) {
        char b[64];
        http_respond(r, status, "application/json", b, (size_t)snprintf(b, sizeof b, "{\"status\":\"%s\"}", word));
}

/* With what a client needs to share work out between endpoints. */
static void say_ready(struct http_request *r, const struct engine_stats *s) {
        char b[128];
        int n = snprintf(b, sizeof b, "{\"status\":\"ready\",\"slots\":%zu,\"running\":%zu,\"queued\":%zu}", s->slots, s->running, s->queued);
        http_respond(r, 200, "application/json", b, (size_t)n);
}

static void get_healthz(struct http_request *r, void *user) {
        say(r, 200, "ok");
}

static void get_readyz(struct http_request *r, void *user) {
        const struct api *a = user;
        struct engine_stats s;
        engine_stats(a->engine, &s);
        if (s.draining)
                say(r, 503, "draining");
        else if (s.disk_low)
                say(r, 503, "disk_full");
        else
                say_ready(r, &s);
}

static void measure_rlm(struct engine *en) {
        struct rlm_stats s = { 0 };
        if (engine_rlm(en))
                rlm_stats(engine_rlm(en), &s);
        metrics_set(METRIC_RLM_SESSIONS, (double)s.sessions);
        metrics_set(METRIC_RLM_TURNS, (double)s.turns);
        metrics_set(METRIC_RLM_SLOTS, s.slots);
        metrics_set(METRIC_RLM_SLOTS_USED, s.slots_used);
        metrics_set(METRIC_RLM_WAITING, (double)s.waiting);
        metrics_set(METRIC_RLM_SANDBOXES, (double)s.roots);
        metrics_set(METRIC_RLM_ENDING, s.ending);
}

static void get_metrics(struct http_request *r, void *user) {
        const struct api *a = user;
        struct engine_stats s;
        engine_stats(a->engine, &s);
        metrics_set(METRIC_TASKS_QUEUED, (double)s.queued);
        metrics_set(METRIC_TASKS_RUNNING, (double)s.running);
        metrics_set(METRIC_SESSIONS, (double)s.sessions);
        measure_rlm(a->engine);
        if (a->http)
                metrics_set(METRIC_HTTP_CONNECTIONS, (double)http_server_connections(a->http));
        _cleanup_buf_ struct buf b = BUF_INIT(METRICS_TEXT_MAX);
        if (metrics_write(&b) < 0)
                http_respond_error(r, 500, "Cannot write the metrics");
        else
                http_respond_buf(r, 200, "text/plain; version=0.0.4; charset=utf-8", &b);
}

void ops_count_request(int status) {
        char code[8];
        snprintf(code, sizeof code, "%d", status);
        metrics_add(METRIC_HTTP_REQUESTS, code, 1);
}

const struct http_route *ops_routes(size_t *ret_n) {
        static const struct http_route routes[] = {
                { .method = "GET", .pattern = "/healthz", .handler = get_healthz, .open = true },
                { .method = "GET", .pattern = "/readyz", .handler = get_readyz, .open = true },
                { .method = "GET", .pattern = "/metrics", .handler = get_metrics },
                { .method = "GET", .pattern = "/events", .handler = ops_get_events },
        };
        ops_events_begin();
        *ret_n = ARRAY_SIZE(routes);
        return routes;
}
