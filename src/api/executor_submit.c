/* POST /task/submit. The body is checked whole before anything is kept; then the engine puts it on disk, and only then the
 * client is told. The client may be gone by that time: the task stays accepted. */
#include <string.h>

#include "api/executor_internal.h"
#include "base/log.h"
#include "base/redact.h"
#include "score/request.h"

void prepared_release(struct prepared *p) {
        envelope_release(&p->envelope);
        buf_release(&p->body);
        secret_free(TAKE_PTR(p->secret_url));
        free(p->source);
        p->source = NULL;
}

static char *redacted(const char *url) {
        _cleanup_buf_ struct buf b = BUF_INIT(2 * REQUEST_URL_MAX);
        return redact_url(url, &b) < 0 ? NULL : buf_steal(&b);
}

/* The store says "repo_url: why"; the surface says it as it says all faults. */
static int check_source(struct api *a, const struct score_request *q, struct error *e) {
        static const char *const fields[] = { "repo_url", "base_commit" };
        struct error why;
        if (q->tree == SOURCE_IMAGE && !q->repo_url[0])
                return 0;
        int r = engine_check_source(a->engine, q->repo_url, q->base_commit, &why);
        if (r == 0)
                return 0;
        for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
                size_t n = strlen(fields[i]);
                if (strncmp(why.text, fields[i], n) == 0 && strncmp(why.text + n, ": ", 2) == 0)
                        return error_say(e, r, "Invalid value for '%s': %s", fields[i], why.text + n + 2);
        }
        return error_say(e, r, "%s", why.text);
}

static int check_request(struct api *a, const struct json *object, char **ret_source, struct error *e) {
        struct score_request q;
        int r = score_request_decode(object, FIELDS_CHECK, engine_defaults(a->engine), &q, e);
        if (r < 0)
                return r;
        r = check_source(a, &q, e);
        if (r == 0 && !(*ret_source = redacted(q.repo_url)))
                r = error_set(e, -ENOMEM, "decode request");
        score_request_release(&q);
        return r;
}

int executor_prepare(struct api *a, const struct json *object, const char *header_key, struct prepared *ret, struct error *e) {
        struct prepared p = { .body = BUF_INIT(TASK_BODY_MAX) };
        int r = object->type == JSON_OBJECT ? 0 : error_say(e, -EINVAL, SCORE_BODY_NOT_JSON);
        if (r == 0)
                r = envelope_decode(object, header_key, &p.envelope, e);
        if (r == 0)
                r = check_request(a, object, &p.source, e);
        if (r == 0) {
                /* Room for all of it at once: growing a big body by doubling would hold it twice. */
                if (object->n < p.body.limit)
                        r = buf_reserve(&p.body, object->n);
                if (r == 0)
                        r = json_canonical_buf(object, &p.body);
                if (r == 0)
                        r = score_request_hide(&p.body, &p.secret_url);
                if (r == -ENOSPC || r == -E2BIG)
                        r = error_say(e, -E2BIG, "%s", fault_text(-E2BIG));
                else if (r == -ERANGE)
                        r = error_say(e, -EINVAL, SCORE_BODY_NOT_JSON);   /* a number that nobody could hold */
                else if (r < 0)
                        error_set(e, r, "decode request");
        }
        if (r < 0) {
                prepared_release(&p);
                return r;
        }
        *ret = p;
        return 0;
}

int executor_submit(struct api *a, const struct prepared *p, engine_submitted done, void *user) {
        struct engine_submission s = {
                .body = buf_str(&p->body), .body_len = p->body.len, .tenant = p->envelope.tenant, .priority = p->envelope.priority,
                .idempotency_key = p->envelope.idempotency_key, .secret_url = p->secret_url,
        };
        return engine_submit(a->engine, &s, done, user);
}

void executor_log_accepted(const char *id, const struct prepared *p, bool repeated) {
        char bytes[32];
        snprintf(bytes, sizeof bytes, "%zu", p->body.len);
        log_event(LOG_INFO, repeated ? "task.repeated" : "task.submitted", "task", id, "repo", p->source, "tenant", p->envelope.tenant,
                  "bytes", bytes, NULL);
}

bool executor_body(struct http_request *r, struct json *ret) {
        const char *body;
        size_t n;
        if (http_body(r, &body, &n) < 0) {
                reply_error(r, fault_of_errno(-EIO), fault_text(-EIO));
                return false;
        }
        if (json_parse(body, n, ret, NULL) == 0 && ret->type == JSON_OBJECT)
                return true;
        reply_error(r, fault_of_errno(-EINVAL), SCORE_BODY_NOT_JSON);
        return false;
}

struct submit { struct http_request *r; /* NULL: the client is gone */ struct prepared p; };

static void submit_closed(void *user) {
        ((struct submit *)user)->r = NULL;
}

static void submit_answer(struct submit *s, int r, const char *id) {
        char body[128];
        if (r == 0 || r == -EEXIST) {
                int n = snprintf(body, sizeof body, "{\"task_id\":\"%s\",\"status\":\"pending\"}", id);
                reply_json(s->r, 202, body, (size_t)n);
        } else {
                reply_error(s->r, fault_of_errno(r), fault_text(r));
        }
}

static void submit_done(int r, const char *id, void *user) {
        struct submit *s = user;
        if (r == 0 || r == -EEXIST)
                executor_log_accepted(id, &s->p, r == -EEXIST);
        if (s->r) {
                http_on_close(s->r, NULL, NULL);
                submit_answer(s, r, id);
        }
        prepared_release(&s->p);
        free(s);
}

void executor_post_submit(struct http_request *r, void *user) {
        struct api *a = user;
        struct json object;
        struct error e;
        if (!executor_body(r, &object))
                return;
        struct submit *s = calloc(1, sizeof *s);
        int x = s ? executor_prepare(a, &object, http_header(r, "Idempotency-Key"), &s->p, &e) : error_set(&e, -ENOMEM, "decode request");
        if (x < 0) {
                free(s);
                reply_error(r, fault_of_errno(x), x == -ENOMEM ? fault_text(x) : e.text);
                return;
        }
        s->r = r;
        http_on_close(r, submit_closed, s);
        x = executor_submit(a, &s->p, submit_done, s);
        if (x < 0)
                submit_done(x, NULL, s);
}
