/* POST /v1/rlm/sessions/{id}/turns/{tid}/execute. A client that goes away leaves its action running: it may have had effects already, and is
 * bounded by its own time. */
#include <string.h>

#include "api/rlm_api.h"

#define EXECUTE_BODY_MAX (10u << 20)       /* variables of 8 MiB, and the code */
#define CODE_BYTES_MAX (64u * 1024)        /* of a code that is decoded at all: more than its characters can be */

struct execute_body { struct json code, variables; uint64_t timeout_ms, host_wait_ms; };

static int parse_span(const struct field *f, const struct json *v, void *target, struct error *e) {
        *(struct json *)((char *)target + f->at) = *v;
        return 0;
}

static const struct field rows[] = {
        { .name = "code", .kind = FIELD_CUSTOM, .parse = parse_span, .at = offsetof(struct execute_body, code), .type = "string", .doc = "Python, at most 12,000 characters; required" },
        { .name = "variables", .kind = FIELD_CUSTOM, .parse = parse_span, .at = offsetof(struct execute_body, variables), .type = "object", .def = "{}",
          .doc = "set in the namespace before the code runs; at most 8 MiB" },
        { .name = "timeout_s", .kind = FIELD_NUMBER, .at = offsetof(struct execute_body, timeout_ms), .min = 0, .max = RLM_TIMEOUT_MAX_S, .scale = 1000, .def = "120",
          .doc = "what the code itself may take" },
        { .name = "host_wait_s", .kind = FIELD_NUMBER, .at = offsetof(struct execute_body, host_wait_ms), .min = 0, .max = RLM_TIMEOUT_MAX_S, .scale = 1000, .def = "0",
          .doc = "waiting for tools up to this does not count as the code's time" },
};
struct v1_body v1_rlm_execute_body(void) { return (struct v1_body){ rows, ARRAY_SIZE(rows) }; }

struct waiting { struct http_request *r; };

static void closed(void *user) { ((struct waiting *)user)->r = NULL; }

static void on_executed(struct buf *answer, int x, void *user) {
        struct waiting *w = user;
        struct http_request *r = w->r;
        free(w);
        if (!r)
                return;
        http_on_close(r, NULL, NULL);
        v1_reply(r, 200, x, answer);
}

/* RLM_OK, or the fault that the code itself has. */
static enum rlm_fault decode(const struct json *o, struct execute_body *body, struct buf *code, struct error *e) {
        int x = fields_decode(rows, ARRAY_SIZE(rows), o, 0, body, e);
        if (x < 0)
                return RLM_INVALID;
        if (body->code.type != JSON_STRING) {
                error_say(e, -EINVAL, "Invalid value for 'code': expected a string");
                return RLM_INVALID;
        }
        if (body->variables.type != JSON_NULL && body->variables.type != JSON_OBJECT) {
                error_say(e, -EINVAL, "Invalid value for 'variables': expected an object");
                return RLM_INVALID;
        }
        if (body->timeout_ms == 0) {
                error_say(e, -EINVAL, "Invalid value for 'timeout_s': must be more than 0");
                return RLM_INVALID;
        }
        x = json_string(&body->code, code);
        return x == -ENOSPC ? RLM_CODE_TOO_LARGE : x < 0 ? RLM_INTERNAL : RLM_OK;
}

void v1_post_rlm_execute(struct http_request *r, void *user) {
        struct execute_body body = { .timeout_ms = RLM_TIMEOUT_DEFAULT_S * 1000 };
        _cleanup_buf_ struct buf code = BUF_INIT(CODE_BYTES_MAX);
        struct error e = { 0 };
        struct json o;
        struct rlm_turn *t = rlm_turn_of(r, user);
        if (!t || !rlm_body(r, EXECUTE_BODY_MAX, &o))
                return;
        enum rlm_fault f = decode(&o, &body, &code, &e);
        struct waiting *w = f == RLM_OK ? malloc(sizeof *w) : NULL;
        if (f == RLM_OK && !w)
                f = RLM_INTERNAL;
        if (f == RLM_OK) {
                const struct rlm_execute x = {
                        .code = buf_str(&code), .code_len = code.len, .variables = body.variables.type == JSON_OBJECT ? body.variables.p : NULL, .variables_len = body.variables.n,
                        .timeout_ms = body.timeout_ms, .host_wait_ms = body.host_wait_ms,
                };
                w->r = r;
                f = rlm_execute(t, &x, on_executed, w, &e);
        }
        if (f == RLM_OK) {
                http_on_close(r, closed, w);
                return;
        }
        free(w);
        rlm_fault_answer(r, f, f == RLM_INVALID ? e.text : NULL);
}
