/* POST /task/submit. The body is checked whole before anything is kept; then the engine puts it on disk, and only then the
 * client is told. The client may be gone by that time: the task stays accepted. A big body is decoded in the pool. */
#include <string.h>

#include "api/executor_internal.h"
#include "base/log.h"
#include "score/request.h"

int executor_submit(struct api *a, const struct prepared *p, engine_submitted done, void *user) {
        struct engine_submission s = {
                .body = buf_str(&p->body), .body_len = p->body.len, .tenant = p->envelope.tenant, .priority = p->envelope.priority,
                .idempotency_key = p->envelope.idempotency_key, .secret_url = p->secret_url, .body_hash = p->body_hash,
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

struct submit {
        uv_work_t work;
        struct api *a;
        struct http_request *r;                /* NULL: the client is gone */
        const struct score_defaults *defaults;
        struct http_body_hold *hold;           /* while the pool decodes it */
        const char *body; size_t n;
        char *key;                             /* Idempotency-Key */
        int x; struct error e;                 /* what came of decoding */
        struct prepared p;
};

static void submit_free(struct submit *s) {
        prepared_release(&s->p);
        free(s->key);
        free(s);
}

static void submit_closed(void *user) {
        ((struct submit *)user)->r = NULL;
}

static void submit_fault(struct submit *s, int r, const char *text) {
        http_on_close(s->r, NULL, NULL);
        reply_error(s->r, fault_of_errno(r), r == -ENOMEM ? fault_text(r) : text);
        submit_free(s);
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
        submit_free(s);
}

/* Decoded. Whoever has gone by now was promised nothing, and the engine may be gone with him. */
static void submit_go_on(struct submit *s) {
        if (!s->r) {
                submit_free(s);
                return;
        }
        if (s->x == 0)
                s->x = executor_check(s->a, &s->p, &s->e);
        if (s->x < 0) {
                submit_fault(s, s->x, s->e.text);
                return;
        }
        int x = executor_submit(s->a, &s->p, submit_done, s);
        if (x < 0)
                submit_done(x, NULL, s);
}

static void submit_decode(struct submit *s) {
        struct json object;
        if (json_parse(s->body, s->n, &object, NULL) < 0 || object.type != JSON_OBJECT)
                s->x = error_say(&s->e, -EINVAL, SCORE_BODY_NOT_JSON);
        else
                s->x = executor_decode(s->defaults, &object, s->key, &s->p, &s->e);
}

static void submit_work(uv_work_t *w) {
        struct submit *s = container_of(w, struct submit, work);
        submit_decode(s);
        s->hold = http_body_release(s->hold);
}

static void submit_worked(uv_work_t *w, int status) { submit_go_on(container_of(w, struct submit, work)); }

void executor_post_submit(struct http_request *r, void *user) {
        struct api *a = user;
        const char *key = http_header(r, "Idempotency-Key");
        struct submit *s = calloc(1, sizeof *s);
        if (s)
                *s = (struct submit){ .a = a, .r = r, .defaults = engine_defaults(a->engine), .key = key ? strdup(key) : NULL };
        if (!s || (key && !s->key)) {
                free(s);
                reply_error(r, fault_of_errno(-ENOMEM), fault_text(-ENOMEM));
                return;
        }
        http_on_close(r, submit_closed, s);
        bool big = http_body_len(r) > TASK_INLINE_MAX;
        int x = big ? http_body_hold(r, &s->hold, &s->body, &s->n) : http_body(r, &s->body, &s->n);
        if (x < 0) {
                submit_fault(s, x == -ENOMEM ? x : -EIO, fault_text(-EIO));
        } else if (big) {
                ASSERT(uv_queue_work(a->loop, &s->work, submit_work, submit_worked) == 0);
        } else {
                submit_decode(s);
                submit_go_on(s);
        }
}
