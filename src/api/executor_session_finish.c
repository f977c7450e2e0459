/* POST /session/{id}/finish in the executor's dialect, and POST /v1/sessions/{id}/finish. The body is decoded and packed in the pool, unless it is small. */
#include <string.h>

#include "api/executor_internal.h"
#include "api/session_fields.h"
#include "api/v1_internal.h"
#include "base/json.h"
#include "score/request.h"

#define INLINE_MAX (64u * 1024)
#define NOT_FOUND "session not found"

struct finish_call {
        uv_work_t work;
        struct http_request *r;        /* NULL: the client is gone */
        struct sessions *ss;
        struct api *api;
        struct http_body_hold *hold;
        const char *body;
        size_t len;
        struct finish_spec spec;
        struct finish_wait *wait;
        int decoded;
        bool native;
        struct error e;
        char id[SESSION_ID_SIZE];
};

static void call_closed(void *user) {
        struct finish_call *c = user;
        c->r = NULL;
        if (c->wait) {
                session_finish_forget(c->wait);
                free(c);
        }                              /* else it is still being decoded: the finish goes on all the same */
}

static bool is_expired(struct sessions *ss, const char *id) {
        struct session_view v;
        if (!ss || session_get(ss, id, &v) < 0)
                return false;
        bool expired = v.state == SESSION_EXPIRED;
        session_view_release(&v);
        return expired;
}

/* Each dialect has its own words. */
static void refuse(struct sessions *ss, struct http_request *r, bool native, const char *id, int x, const char *text) {
        if (x == -EIO && is_expired(ss, id))
                x = -EAGAIN;           /* its time was over while the verifier ran: not our fault */
        if (x == -EUSERS)
                text = "Too many calls wait for this session";
        if (x == -EBUSY)
                text = "The session is paused, or a snapshot of it is being made";
        if (native && (x == -ENOENT || x == -EAGAIN))
                v1_unready(ss, r, id);
        else if (native)
                v1_fault(r, x, text, "session");
        else if (x == -ENOENT)
                reply_error(r, fault_of_errno(x), NOT_FOUND);
        else if (x == -EAGAIN)
                executor_session_unready(ss, r, id);
        else
                executor_session_fault(r, x, text);
}

static void finished(int x, const char *answer, size_t n, void *user) {
        struct finish_call *c = user;
        if (c->r) {
                http_on_close(c->r, NULL, NULL);
                if (x == 0)
                        reply_json(c->r, 200, answer, n);
                else
                        refuse(c->ss, c->r, c->native, c->id, x, NULL);
        }
        free(c);
}

/* Decoded: over to the session. */
static void go_on(struct finish_call *c) {
        struct finish_wait *wait;
        if (c->decoded < 0) {
                if (c->r) {
                        http_on_close(c->r, NULL, NULL);
                        refuse(c->ss, c->r, c->native, c->id, c->decoded, c->e.text);
                }
                free(c);
                return;
        }
        struct sessions *ss = engine_sessions(c->api->engine);
        if (!ss) {
                finish_spec_release(&c->spec);
                finished(-ESHUTDOWN, NULL, 0, c);
                return;
        }
        session_finish(ss, c->id, &c->spec, finished, c, &wait);
        if (!wait)
                return;                /* c has been answered, and is gone */
        c->wait = wait;
        if (!c->r)
                call_closed(c);
}

static void decode_body(struct finish_call *c) {
        static const char none[] = "{}";
        struct json object;
        bool empty = c->len == 0;
        if (json_parse(empty ? none : c->body, empty ? strlen(none) : c->len, &object, NULL) < 0 || object.type != JSON_OBJECT)
                c->decoded = error_say(&c->e, -EINVAL, SCORE_BODY_NOT_JSON);
        else
                c->decoded = finish_body_decode(&object, c->native ? AGENT_KILL : AGENT_KEEP, &c->spec, &c->e);
}

static void decode(uv_work_t *work) {
        struct finish_call *c = container_of(work, struct finish_call, work);
        decode_body(c);
        c->hold = http_body_release(c->hold);
}

static void decoded(uv_work_t *work, int status) { go_on(container_of(work, struct finish_call, work)); }

static int begin(struct finish_call *c) {
        int x;
        if (http_body_len(c->r) <= INLINE_MAX) {
                x = http_body(c->r, &c->body, &c->len);
                if (x < 0)
                        return x;
                decode_body(c);
                go_on(c);
                return 0;
        }
        x = http_body_hold(c->r, &c->hold, &c->body, &c->len);
        if (x < 0)
                return x;
        x = uv_queue_work(c->api->loop, &c->work, decode, decoded);
        if (x < 0)
                c->hold = http_body_release(c->hold);
        return x;
}

static void post_finish(struct http_request *r, struct api *a, bool native) {
        struct sessions *ss = engine_sessions(a->engine);
        const char *id = http_param(r, "id");
        if (!ss || strlen(id) >= SESSION_ID_SIZE) {
                refuse(ss, r, native, id, ss ? -ENOENT : -ESHUTDOWN, NULL);
                return;
        }
        struct finish_call *c = calloc(1, sizeof *c);
        if (!c) {
                refuse(ss, r, native, id, -ENOMEM, NULL);
                return;
        }
        *c = (struct finish_call){ .r = r, .api = a, .ss = ss, .native = native, .spec = { .pack = FILE_PACK_INIT } };
        snprintf(c->id, sizeof c->id, "%s", id);
        http_on_close(r, call_closed, c);
        int x = begin(c);
        if (x < 0) {
                http_on_close(r, NULL, NULL);
                free(c);
                refuse(ss, r, native, id, x, NULL);
        }
}

void executor_post_finish(struct http_request *r, void *user) { post_finish(r, user, false); }
void v1_post_finish(struct http_request *r, void *user) { post_finish(r, user, true); }
