/* A session by its id, in the executor's dialect: start, status, deletion. */
#include <string.h>

#include "api/executor_internal.h"
#include "api/session_fields.h"
#include "base/json.h"

#define NOT_FOUND "Session not found"

/* What a fault of the engine of sessions is on this wire; NULL text: the decoder brought its own. */
void executor_session_fault(struct http_request *r, int x, const char *text) {
        struct fault f = fault_of_errno(x);
        switch (x) {
        case -EAGAIN:
                f.code = "too_many_sessions";
                text = "Too many sessions";
                break;
        case -EUSERS:
                f = (struct fault){ .status = 503, .code = "too_many_commands", .retry_after_s = 1 };
                break;
        case -EBUSY:
                if (text && *text)
                        f.code = "conflict";
                else
                        text = "The idempotency key belongs to a session with another body";
                break;
        case -EINVAL: case -EOPNOTSUPP:
                break;
        default:
                text = fault_text(x);
        }
        reply_error(r, f, text ? text : fault_text(x));
}

/* ---- POST /session/start ---------------------------------------------------------------------------------------------------------- */

struct starting { struct http_request *r; };       /* NULL: the client is gone */

static void starting_closed(void *user) { ((struct starting *)user)->r = NULL; }

static void started(int x, const char *id, const struct error *e, void *user) {
        struct starting *st = user;
        char body[128];
        if (st->r) {
                http_on_close(st->r, NULL, NULL);
                if (x == 0 || x == -EEXIST)
                        reply_json(st->r, 202, body, (size_t)snprintf(body, sizeof body, "{\"session_id\":\"%s\",\"status\":\"starting\"}", id));
                else
                        executor_session_fault(st->r, x, e ? e->text : NULL);
        }
        free(st);
}

void executor_post_session(struct http_request *r, void *user) {
        struct api *a = user;
        struct sessions *ss = engine_sessions(a->engine);
        struct json object;
        struct session_start q;
        struct error e;
        if (!executor_body(r, &object))
                return;
        int x = ss ? session_start_decode(ss, engine_builder(a->engine), &object, http_header(r, "Idempotency-Key"), &q, &e) : -ESHUTDOWN;
        struct starting *st = x == 0 ? calloc(1, sizeof *st) : NULL;
        if (!st) {
                if (x == 0)
                        session_start_release(&q);
                executor_session_fault(r, x < 0 ? x : -ENOMEM, x == -EINVAL || x == -EOPNOTSUPP ? e.text : NULL);
                return;
        }
        st->r = r;
        http_on_close(r, starting_closed, st);
        session_create(ss, &q.spec, started, st);
}

/* ---- GET /session/{id} ------------------------------------------------------------------------------------------------------------- */

void executor_get_session(struct http_request *r, void *user) {
        struct api *a = user;
        struct sessions *ss = engine_sessions(a->engine);
        struct session_view v;
        int x = ss ? session_get(ss, http_param(r, "id"), &v) : -ESHUTDOWN;
        if (x < 0 && x != -ENOENT) {
                executor_session_fault(r, x, NULL);
                return;
        }
        /* What has finished or expired is gone: this protocol knows no word for it. */
        if (x == 0 && !session_state_is_live(v.state) && v.state != SESSION_FAILED) {
                session_view_release(&v);
                x = -ENOENT;
        }
        if (x == -ENOENT) {
                reply_error(r, fault_of_errno(x), NOT_FOUND);
                return;
        }
        _cleanup_buf_ struct buf b = BUF_INIT(64 * 1024);
        struct json_writer w = JSON_WRITER(&b);
        json_begin_object(&w);
        json_field_text(&w, "session_id", v.id);
        json_field_text(&w, "status", session_state_to_string((int)v.state));
        json_field_text(&w, "image", v.image);
        json_field_text(&w, "error", v.error);
        json_end_object(&w);
        session_view_release(&v);
        reply_buf(r, 200, json_finish(&w), &b);
}

/* ---- DELETE /session/{id} ---------------------------------------------------------------------------------------------------------- */

struct deletion { struct http_request *r; char id[SESSION_ID_SIZE]; };

static void deletion_closed(void *user) { ((struct deletion *)user)->r = NULL; }

static void deleted(int x, void *user) {
        struct deletion *d = user;
        char body[128];
        if (d->r) {
                http_on_close(d->r, NULL, NULL);
                if (x == 0)
                        reply_json(d->r, 200, body, (size_t)snprintf(body, sizeof body, "{\"session_id\":\"%s\",\"deleted\":true}", d->id));
                else
                        reply_error(d->r, fault_of_errno(x), x == -ENOENT ? NOT_FOUND : fault_text(x));
        }
        free(d);
}

void executor_delete_session(struct http_request *r, void *user) {
        struct api *a = user;
        struct sessions *ss = engine_sessions(a->engine);
        struct deletion *d = calloc(1, sizeof *d);
        if (!d) {
                executor_session_fault(r, -ENOMEM, NULL);
                return;
        }
        d->r = r;
        snprintf(d->id, sizeof d->id, "%s", http_param(r, "id"));
        http_on_close(r, deletion_closed, d);
        bool fits = strlen(http_param(r, "id")) < sizeof d->id;
        int x = !ss ? -ESHUTDOWN : fits ? session_delete(ss, d->id, deleted, d) : -ENOENT;
        if (x < 0)
                deleted(x, d);
}
