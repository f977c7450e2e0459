#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "api/ops.h"
#include "base/metrics.h"
#include "http/events.h"

/* For the stream of events, which a daemon's test listens to. */
const char *http_query(const struct http_request *r, const char *key) { return NULL; }
void http_respond_header(struct http_request *r, const char *name, const char *value) { }
void http_on_close(struct http_request *r, void (*closed)(void *user), void *user) { }
void http_on_drain(struct http_request *r, void (*drain)(void *user), void *user) { }
void http_events_start(struct http_request *r) { }
int http_events_send(struct http_request *r, const char *event, const char *id, const char *data, size_t n) { return 0; }
const char *http_events_last_id(const struct http_request *r) { return NULL; }

/* The neighbours, faked. */
struct http_request { int status; char type[64]; char *body; };
struct engine { struct engine_stats stats; };
static struct engine fake;
static struct api api = { .engine = &fake };

void engine_stats(struct engine *en, struct engine_stats *ret) { *ret = en->stats; }
struct rlm *engine_rlm(struct engine *en) { return NULL; }
size_t http_server_connections(const struct http_server *s) { return 4; }
void http_respond(struct http_request *r, int status, const char *type, const char *body, size_t n) {
        r->status = status;
        snprintf(r->type, sizeof r->type, "%s", type);
        r->body = strndup(body, n);
}
void http_respond_buf(struct http_request *r, int status, const char *type, struct buf *b) {
        http_respond(r, status, type, buf_str(b), b->len);
}
void http_respond_error(struct http_request *r, int status, const char *message) {
        fail_msg("%d %s", status, message);
}

static const struct http_route *route(const char *pattern) {
        size_t n;
        const struct http_route *all = ops_routes(&n);
        for (size_t i = 0; i < n; i++)
                if (strcmp(all[i].pattern, pattern) == 0)
                        return &all[i];
        fail_msg("no route %s", pattern);
        return NULL;
}

static void check(const char *pattern, int status, const char *body) {
        struct http_request r = { 0 };
        route(pattern)->handler(&r, &api);
        assert_int_equal(r.status, status);
        assert_string_equal(r.body, body);
        free(r.body);
}

static void health_and_readiness_need_no_token_and_metrics_do(void **state) {
        assert_true(route("/healthz")->open);
        assert_true(route("/readyz")->open);
        assert_false(route("/metrics")->open);
}

static void readiness_says_why_not(void **state) {
        fake.stats = (struct engine_stats){ .slots = 4, .running = 2, .queued = 7 };
        check("/readyz", 200, "{\"status\":\"ready\",\"slots\":4,\"running\":2,\"queued\":7}");
        fake.stats.disk_low = true;
        check("/readyz", 503, "{\"status\":\"disk_full\"}");
        fake.stats.draining = true;
        check("/readyz", 503, "{\"status\":\"draining\"}");
        check("/healthz", 200, "{\"status\":\"ok\"}");
}

static void metrics_show_the_engines_numbers(void **state) {
        struct http_request r = { 0 };
        fake.stats = (struct engine_stats){ .queued = 12, .running = 3 };
        api.http = (struct http_server *)&fake;
        ops_count_request(404);
        route("/metrics")->handler(&r, &api);
        assert_int_equal(r.status, 200);
        assert_non_null(strstr(r.type, "version=0.0.4"));
        assert_non_null(strstr(r.body, "\nbrig_tasks_queued 12\n"));
        assert_non_null(strstr(r.body, "\nbrig_tasks_running 3\n"));
        assert_non_null(strstr(r.body, "\nbrig_http_connections 4\n"));
        assert_non_null(strstr(r.body, "\nbrig_http_requests_total{code=\"404\"} 1\n"));
        free(r.body);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(health_and_readiness_need_no_token_and_metrics_do),
                cmocka_unit_test(readiness_says_why_not),
                cmocka_unit_test(metrics_show_the_engines_numbers),
        };
        return cmocka_run_group_tests_name("api/ops", tests, NULL, NULL);
}
