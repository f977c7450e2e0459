/* The surface's two neighbours, faked: an HTTP exchange that remembers its answer, and an engine with one table of tasks whose
 * answers a test decides. Included by exactly one file of a test program. */
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "api/executor_internal.h"
#include "score/request.h"

/* ---- HTTP ----------------------------------------------------------------------------------------------------------- */

struct http_request {
        const char *method, *id, *wait, *key;          /* parameter, query, header */
        const char *body; size_t body_len;
        int answers, status;
        char *answer; size_t answer_len;
        char retry_after[16];
        void (*closed)(void *); void *closed_user;
        void (*drain)(void *); void *drain_user;
        int refuse, vanish;                            /* writes of a stream that find the client slow; that find it gone */
};

const char *http_method(const struct http_request *r) { return r->method; }
const char *http_param(const struct http_request *r, const char *name) { assert_string_equal(name, "id"); return r->id; }
const char *http_query(const struct http_request *r, const char *key) { return strcmp(key, "wait") == 0 ? r->wait : NULL; }
const char *http_header(const struct http_request *r, const char *name) { return strcmp(name, "Idempotency-Key") == 0 ? r->key : NULL; }
int http_body(struct http_request *r, const char **ret_data, size_t *ret_len) {
        *ret_data = r->body;
        *ret_len = r->body_len;
        return 0;
}
struct http_body_hold { int unused; };
int http_body_hold(struct http_request *r, struct http_body_hold **ret, const char **ret_data, size_t *ret_len) {
        *ret = calloc(1, sizeof **ret);
        return *ret ? http_body(r, ret_data, ret_len) : -ENOMEM;
}
struct http_body_hold *http_body_release(struct http_body_hold *h) {
        free(h);
        return NULL;
}
void http_respond(struct http_request *r, int status, const char *type, const char *body, size_t n) {
        assert_string_equal(type, "application/json");
        r->answers++;
        r->status = status;
        free(r->answer);
        r->answer = strndup(body, n);
        r->answer_len = n;
}
void http_respond_buf(struct http_request *r, int status, const char *type, struct buf *b) {
        http_respond(r, status, type, buf_str(b), b->len);
        buf_release(b);
}
void http_respond_header(struct http_request *r, const char *name, const char *value) {
        assert_string_equal(name, "Retry-After");
        snprintf(r->retry_after, sizeof r->retry_after, "%s", value);
}
void http_stream_start(struct http_request *r, int status, const char *type) { r->status = status; }
static void hang_up(struct http_request *r);
int http_stream_write(struct http_request *r, const char *p, size_t n) {
        if (r->vanish) {
                hang_up(r);
                return -EPIPE;
        }
        if (r->refuse-- > 0)
                return -EAGAIN;
        r->answer = realloc(r->answer, r->answer_len + n + 1);
        memcpy(r->answer + r->answer_len, p, n);
        r->answer_len += n;
        r->answer[r->answer_len] = 0;
        return 0;
}
void http_stream_start_length(struct http_request *r, int status, const char *type, uint64_t length) { r->status = status; }
void http_stream_abort(struct http_request *r) { r->answers++; }
void http_stream_end(struct http_request *r) { r->answers++; }
void http_on_close(struct http_request *r, void (*closed)(void *user), void *user) { r->closed = closed; r->closed_user = user; }
void http_on_drain(struct http_request *r, void (*drain)(void *user), void *user) { r->drain = drain; r->drain_user = user; }

/* The client hangs up. */
static UNUSED void hang_up(struct http_request *r) {
        void (*closed)(void *) = r->closed;
        r->closed = NULL;
        if (closed)
                closed(r->closed_user);
}

static UNUSED void forget(struct http_request *r) {
        free(r->answer);
        *r = (struct http_request){ 0 };
}

/* ---- engine --------------------------------------------------------------------------------------------------------- */

#define FAKE_ID "11111111-2222-4333-8444-555555555555"

struct engine_wait { void (*done)(int, void *); void *user; uint64_t ms; bool cancelled; };
struct engine {
        int submit_returns, submit_result;             /* at once; by the callback */
        bool defer;                                    /* the callback waits for fake_run */
        size_t submits; char *last_body; char *last_tenant, *last_key; int last_priority;
        engine_submitted done[8]; void *done_user[8]; size_t n_done;
        bool known; enum task_status status; const char *record;
        struct engine_wait wait;
        int delete_returns; void (*deleted)(int, void *); void *deleted_user;
        const char *source_fault;
        const char *log_path;
};
static struct engine fake;

static const char *const fake_states[] = { "pending", "running", "completed", "failed" };
STRING_TABLE(task_status, fake_states, TASK_STATUS_MAX)

const struct score_defaults *engine_defaults(const struct engine *en) {
        static struct score_defaults d;
        score_defaults_init(&d);
        return &d;
}
int engine_check_source(struct engine *en, const char *url, const char *commit, struct error *e) {
        return en->source_fault ? error_say(e, -EINVAL, "%s", en->source_fault) : 0;
}
int engine_submit(struct engine *en, const struct engine_submission *s, engine_submitted done, void *user) {
        if (en->submit_returns < 0)
                return en->submit_returns;
        en->submits++;
        free(en->last_body); free(en->last_tenant); free(en->last_key);
        en->last_body = strndup(s->body, s->body_len);
        en->last_tenant = strdup(s->tenant);
        en->last_key = s->idempotency_key ? strdup(s->idempotency_key) : NULL;
        en->last_priority = s->priority;
        assert_in_range(en->n_done, 0, ARRAY_SIZE(en->done) - 1);
        en->done[en->n_done] = done;
        en->done_user[en->n_done++] = user;
        return 0;
}
/* What was handed over reaches the disk. */
static UNUSED void fake_run(void) {
        size_t n = fake.n_done;
        fake.n_done = 0;
        for (size_t i = 0; i < n; i++)
                fake.done[i](fake.submit_result, FAKE_ID, fake.done_user[i]);
}
int engine_task_status(struct engine *en, const char *id, enum task_status *ret) {
        if (!en->known || strcmp(id, FAKE_ID) != 0)
                return -ENOENT;
        *ret = en->status;
        return 0;
}
int engine_task_record(struct engine *en, const char *id, struct buf *ret) {
        enum task_status st;
        if (engine_task_status(en, id, &st) < 0)
                return -ENOENT;
        return st < TASK_COMPLETED ? -EAGAIN : buf_adds(ret, en->record);
}
struct engine_wait *engine_task_wait(struct engine *en, const char *id, uint64_t ms, void (*done)(int r, void *user), void *user) {
        en->wait = (struct engine_wait){ .done = done, .user = user, .ms = ms };
        return &en->wait;
}
void engine_wait_cancel(struct engine_wait *w) { w->cancelled = true; }
int engine_task_delete(struct engine *en, const char *id, void (*done)(int r, void *user), void *user) {
        if (!en->known || strcmp(id, FAKE_ID) != 0)
                return -ENOENT;
        if (en->delete_returns < 0)
                return en->delete_returns;
        en->deleted = done;
        en->deleted_user = user;
        return 0;
}
int engine_task_log(struct engine *en, const char *id, enum task_stream stream) {
        return en->known && en->log_path && stream == TASK_STDOUT ? open(en->log_path, O_RDONLY | O_CLOEXEC) : -ENOENT;
}
size_t http_body_len(const struct http_request *r) { return r->body_len; }
void http_close_on_eof(struct http_request *r) { }
struct builder *engine_builder(struct engine *en) { return NULL; }
struct sessions *engine_sessions(struct engine *en) { return NULL; }       /* sessions have tests of their own, end to end */
static UNUSED int fake_reset(void **state) {
        free(fake.last_body); free(fake.last_tenant); free(fake.last_key);
        fake = (struct engine){ 0 };
        return 0;
}
