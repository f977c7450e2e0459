/* The broker's host face: pending, result, events. */
#include <string.h>

#include "api/rlm_api.h"
#include "http/events.h"

#define PENDING_BYTES_MAX (160u << 20)     /* of one answer: as many calls as may wait, each as long as it may be, and their names */

/* ---- pending ------------------------------------------------------------------------------------------------------------------------------ */

struct pending { struct http_request *r; struct rlm *m; struct rlm_poll *poll; char session[RLM_ID_SIZE], turn[RLM_TURN_ID_SIZE]; };

static void put_call(const struct rlm_call *c, void *user) {
        struct json_writer *w = user;
        json_begin_object(w);
        json_field_text(w, "id", c->lease->id);
        json_field_text(w, "lease", c->lease->lease);
        json_field_raw(w, "tool_name", c->tool_name.p, c->tool_name.n);
        json_field_raw(w, "args", c->args.p, c->args.n);
        json_field_raw(w, "kwargs", c->kwargs.p, c->kwargs.n);
        json_end_object(w);
}

static void answer_pending(struct http_request *r, struct rlm_turn *t) {
        struct buf b = BUF_INIT(PENDING_BYTES_MAX);
        struct json_writer w = JSON_WRITER(&b);
        json_begin_object(&w);
        json_put_key(&w, "requests");
        json_begin_array(&w);
        rlm_claim(t, put_call, &w);
        json_end_array(&w);
        int64_t left = rlm_remaining_ms(t);
        if (left >= 0)
                json_field_double(&w, "remaining_s", (double)left / 1000);
        else
                json_field_null(&w, "remaining_s");
        json_end_object(&w);
        v1_reply(r, 200, json_finish(&w), &b);
        buf_release(&b);
}

static void pending_closed(void *user) {
        struct pending *p = user;
        rlm_poll_cancel(p->poll);
        free(p);
}

static void on_pending(void *user) {
        struct pending *p = user;
        struct http_request *r = p->r;
        struct rlm_turn *t;
        http_on_close(r, NULL, NULL);
        enum rlm_fault f = rlm_turn_find(p->m, p->session, p->turn, &t);
        if (f == RLM_OK && rlm_turn_is_over(t))
                f = RLM_TURN_ENDED;
        free(p);
        if (f == RLM_OK)
                answer_pending(r, t);
        else
                rlm_fault_answer(r, f, NULL);
}

static bool take_wait(struct http_request *r, uint64_t *ret_ms) {
        const char *s = http_query(r, "wait");
        char *end;
        double seconds = s ? strtod(s, &end) : 0;
        if (s && (s[0] < '0' || s[0] > '9' || *end || !(seconds >= 0))) {
                v1_error(r, 400, "invalid", "Invalid value for 'wait': expected seconds", NULL);
                return false;
        }
        *ret_ms = seconds > RLM_WAIT_MAX_S ? RLM_WAIT_MAX_S * 1000u : (uint64_t)(seconds * 1000);
        return true;
}

/* GET serves HEAD too, which must not have an effect here. */
static bool is_head(struct http_request *r) {
        if (strcmp(http_method(r), "HEAD") != 0)
                return false;
        http_respond_header(r, "Allow", "GET");
        v1_error(r, 405, "method_not_allowed", "Method not allowed", NULL);
        return true;
}

void v1_get_rlm_pending(struct http_request *r, void *user) {
        struct api *a = user;
        uint64_t wait_ms;
        struct rlm_turn *t = is_head(r) ? NULL : rlm_turn_of(r, user);
        if (!t || !take_wait(r, &wait_ms))
                return;
        if (rlm_turn_is_over(t)) {
                rlm_fault_answer(r, RLM_TURN_ENDED, NULL);
                return;
        }
        if (rlm_has_unclaimed(t) || wait_ms == 0) {
                answer_pending(r, t);
                return;
        }
        struct pending *p = calloc(1, sizeof *p);
        if (p) {
                *p = (struct pending){ .r = r, .m = engine_rlm(a->engine) };
                snprintf(p->session, sizeof p->session, "%s", http_param(r, "id"));
                snprintf(p->turn, sizeof p->turn, "%s", http_param(r, "tid"));
                p->poll = rlm_poll_begin(t, wait_ms, on_pending, p);
        }
        if (!p || !p->poll) {
                free(p);
                rlm_fault_answer(r, RLM_TOO_MANY, "Too many polls of this turn");
                return;
        }
        http_on_close(r, pending_closed, p);
        http_close_on_eof(r);
}

/* ---- result ------------------------------------------------------------------------------------------------------------------------------ */

struct result_body { char *id, *lease; struct json result, tool_error; };

static int parse_span(const struct field *f, const struct json *v, void *target, struct error *e) {
        *(struct json *)((char *)target + f->at) = *v;
        return 0;
}

static const struct field result_rows[] = {
        { .name = "id", .kind = FIELD_STRING, .at = offsetof(struct result_body, id), .max = LEASE_ID_MAX, .doc = "the call's; required" },
        { .name = "lease", .kind = FIELD_STRING, .at = offsetof(struct result_body, lease), .max = 128, .doc = "its lease, as `pending` gave it; required" },
        { .name = "result", .kind = FIELD_CUSTOM, .parse = parse_span, .at = offsetof(struct result_body, result), .type = "any", .doc = "what the tool returned; this, or" },
        { .name = "tool_error", .kind = FIELD_CUSTOM, .parse = parse_span, .at = offsetof(struct result_body, tool_error), .type = "object", .doc = "`category` and `message` of what went wrong" },
};
struct v1_body v1_rlm_result_body(void) { return (struct v1_body){ result_rows, ARRAY_SIZE(result_rows) }; }

static int decode_result(const struct json *o, struct result_body *body, struct rlm_result *ret, struct error *e) {
        struct json v, error;
        int x = fields_decode(result_rows, ARRAY_SIZE(result_rows), o, 0, body, e);
        if (x < 0)
                return x;
        if (!body->id || !body->lease)
                return error_say(e, -EINVAL, "Missing: 'id' and 'lease' are required");
        bool has = json_get(o, "result", &v), has_error = json_get(o, "tool_error", &error) && error.type != JSON_NULL;
        if (has && has_error && v.type == JSON_NULL)
                has = false;
        if (has == has_error)
                return error_say(e, -EINVAL, "Expected either 'result' or 'tool_error'");
        if (has_error && error.type != JSON_OBJECT)
                return error_say(e, -EINVAL, "Invalid value for 'tool_error': expected an object");
        *ret = has ? (struct rlm_result){ false, v.p, v.n } : (struct rlm_result){ true, error.p, error.n };
        return 0;
}

void v1_post_rlm_result(struct http_request *r, void *user) {
        static const char done[] = "{\"settled\":true}";
        struct result_body body = { 0 };
        struct rlm_result res;
        struct json o;
        struct error e = { 0 };
        struct rlm_turn *t = rlm_turn_of(r, user);
        if (!t)
                return;
        if (http_body_len(r) > RLM_BODY_MAX) {
                v1_error(r, 413, "ToolResultTooLarge", "ToolResultTooLarge: the body has more than 2097152 bytes", "settle the call with a tool_error: it still waits");
                return;
        }
        if (!rlm_body(r, RLM_BODY_MAX, &o))
                return;
        int x = decode_result(&o, &body, &res, &e);
        enum lease_answer a = x == 0 ? rlm_settle(t, body.id, body.lease, &res) : LEASE_OK;
        free(body.id);
        free(body.lease);
        if (x < 0)
                v1_fault(r, x, e.text, NULL);
        else if (a != LEASE_OK)
                rlm_lease_answer(r, a);
        else
                http_respond(r, 200, "application/json", done, sizeof done - 1);
}

/* ---- events ------------------------------------------------------------------------------------------------------------------------------- */

struct events { struct rlm_subscriber sub; struct http_request *r; uint64_t dropped; };

static void leave(struct events *ev) {
        rlm_unsubscribe(&ev->sub);
        free(ev);
}

static void events_closed(void *user) { leave(user); }

/* Who reads slowly loses events, and is told how many; nothing that a turn needs comes by an event alone. */
static void on_event(struct rlm_subscriber *s, const char *event, const char *data, size_t n) {
        struct events *ev = container_of(s, struct events, sub);
        int x = ev->dropped > 0 ? -EAGAIN : http_events_send(ev->r, event, NULL, data, n);
        if (x == -EAGAIN)              /* -EPIPE: it has left, and `ev` is gone */
                ev->dropped++;
}

static void on_drain(void *user) {
        struct events *ev = user;
        char data[64];
        if (ev->dropped == 0)
                return;
        int n = snprintf(data, sizeof data, "{\"events\":%llu}", (unsigned long long)ev->dropped);
        if (http_events_send(ev->r, "dropped", NULL, data, (size_t)n) == 0)
                ev->dropped = 0;
}

static void on_turn_over(struct rlm_subscriber *s) {
        struct events *ev = container_of(s, struct events, sub);
        struct http_request *r = ev->r;
        http_on_close(r, NULL, NULL);
        free(ev);
        http_events_end(r);
}

void v1_get_rlm_events(struct http_request *r, void *user) {
        struct rlm_turn *t = is_head(r) ? NULL : rlm_turn_of(r, user);
        if (!t)
                return;
        struct events *ev = rlm_turn_is_over(t) ? NULL : calloc(1, sizeof *ev);
        if (!ev) {
                rlm_fault_answer(r, rlm_turn_is_over(t) ? RLM_TURN_ENDED : RLM_INTERNAL, NULL);
                return;
        }
        *ev = (struct events){ .sub = { .event = on_event, .ended = on_turn_over }, .r = r };
        if (!rlm_may_subscribe(t)) {
                free(ev);
                rlm_fault_answer(r, RLM_TOO_MANY, "Too many listen to this turn");
                return;
        }
        http_events_start(r);
        http_on_close(r, events_closed, ev);
        http_on_drain(r, on_drain, ev);
        rlm_subscribe(t, &ev->sub);
}
