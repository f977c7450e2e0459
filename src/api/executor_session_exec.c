/* POST /session/{id}/exec, in the executor's dialect. A waiting call is one small object: no thread, no timer of its own. */
#include <string.h>

#include "api/executor_internal.h"
#include "api/session_fields.h"
#include "base/json.h"

#define NOT_FOUND "session not found"

/* 404, or 409 with the state that it is in. */
void executor_session_unready(struct sessions *ss, struct http_request *r, const char *id) {
        struct session_view v;
        char text[80];
        int x = session_get(ss, id, &v);
        if (x == 0 && (session_state_is_live(v.state) || v.state == SESSION_FAILED)) {
                snprintf(text, sizeof text, "session not ready (status=%s)", session_state_to_string((int)v.state));
                session_view_release(&v);
                reply_error(r, (struct fault){ .status = 409 }, text);
                return;
        }
        if (x == 0)
                session_view_release(&v);
        reply_error(r, fault_of_errno(-ENOENT), NOT_FOUND);
}

bool executor_session_ready(struct api *a, struct http_request *r, struct sessions **ret_ss, const char **ret_id) {
        struct sessions *ss = engine_sessions(a->engine);
        const char *id = http_param(r, "id");
        const struct session *s = ss ? session_find(ss, id) : NULL;
        if (!ss) {
                executor_session_fault(r, -ESHUTDOWN, NULL);
                return false;
        }
        if (!s || session_state(s) != SESSION_READY) {
                executor_session_unready(ss, r, id);
                return false;
        }
        *ret_ss = ss;
        *ret_id = id;
        return true;
}

bool executor_optional_body(struct http_request *r, struct json *ret) {
        static const char none[] = "{}";
        const char *body;
        size_t n;
        if (http_body_len(r) > 0)
                return executor_body(r, ret);
        (void)http_body(r, &body, &n);
        return json_parse(none, strlen(none), ret, NULL) == 0;
}

struct exec_call { struct http_request *r; struct process *p; char id[SESSION_ID_SIZE]; };

/* The client is gone; the command goes on to its end, as it would on the reference. */
static void exec_closed(void *user) {
        struct exec_call *c = user;
        process_abandon(c->p, false);
        free(c);
}

static int put_capture(struct json_writer *w, const char *key, const struct output_capture *c) {
        _cleanup_buf_ struct buf text = BUF_INIT(PROCESS_OUTPUT_MAX + 128);
        int r = capture_text(c, &text);
        json_field_string(w, key, buf_str(&text), text.len);
        return r;
}

static void exec_done(const struct process_end *end, void *user) {
        struct exec_call *c = user;
        _cleanup_buf_ struct buf b = BUF_INIT(16ull * PROCESS_OUTPUT_MAX);
        struct json_writer w = JSON_WRITER(&b);
        json_begin_object(&w);
        json_field_text(&w, "session_id", c->id);
        json_field_int(&w, "exit_code", end->exit_code);
        int x = put_capture(&w, "stdout", end->out);
        if (x == 0)
                x = put_capture(&w, "stderr", end->err);
        json_field_bool(&w, "timed_out", end->timed_out);
        json_end_object(&w);
        int y = json_finish(&w);
        http_on_close(c->r, NULL, NULL);
        reply_buf(c->r, 200, x < 0 ? x : y, &b);
        free(c);
}

static int start(struct sessions *ss, struct http_request *r, const char *id, const struct json *object, struct error *e) {
        struct exec_body body;
        struct process_spec spec;
        struct exec_call *c = calloc(1, sizeof *c);
        int x = c ? exec_body_decode(ss, object, &body, e) : -ENOMEM;
        if (x < 0) {
                free(c);
                return x;
        }
        c->r = r;
        snprintf(c->id, sizeof c->id, "%s", id);
        exec_body_spec(&body, &spec);
        spec.login = true;
        x = process_start(ss, id, &spec, exec_done, c, &c->p, e);
        exec_body_release(&body);
        if (x < 0)
                free(c);
        else
                http_on_close(r, exec_closed, c);
        return x;
}

void executor_post_exec(struct http_request *r, void *user) {
        struct api *a = user;
        struct sessions *ss;
        const char *id;
        struct json object;
        struct error e = { 0 };
        if (!executor_session_ready(a, r, &ss, &id) || !executor_optional_body(r, &object))
                return;
        int x = start(ss, r, id, &object, &e);
        if (x < 0)
                executor_session_fault(r, x, e.text);
}
