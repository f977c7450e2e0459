/* POST /v1/sessions/{id}/exec. A client that goes away takes its command with it. */
#include <string.h>

#include "api/v1_internal.h"

struct call { struct http_request *r; struct process *p; bool base64; };

static void closed(void *user) {
        struct call *c = user;
        process_abandon(c->p, true);
        free(c);
}

static int64_t cpu_ms(const struct rusage *u) {
        return (int64_t)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) * 1000 + (u->ru_utime.tv_usec + u->ru_stime.tv_usec) / 1000;
}

static void done(const struct process_end *end, void *user) {
        struct call *c = user;
        _cleanup_buf_ struct buf b = BUF_INIT(16ull * PROCESS_OUTPUT_MAX);
        struct json_writer w = JSON_WRITER(&b);
        json_begin_object(&w);
        json_field_int(&w, "exit_code", end->exit_code);
        int x = v1_put_capture(&w, "stdout", end->out, c->base64);
        if (x == 0 && end->err != end->out)
                x = v1_put_capture(&w, "stderr", end->err, c->base64);
        else
                json_field_text(&w, "stderr", "");
        json_field_uint(&w, "stdout_bytes", end->out->total);
        json_field_uint(&w, "stderr_bytes", end->err != end->out ? end->err->total : 0);
        json_field_bool(&w, "timed_out", end->timed_out);
        json_field_bool(&w, "oom", end->oom);
        json_field_bool(&w, "session_ended", end->session_ended);
        json_field_uint(&w, "wall_ms", end->exec->wall_ms);
        json_field_int(&w, "cpu_ms", cpu_ms(&end->exec->rusage));
        json_end_object(&w);
        int y = json_finish(&w);
        http_on_close(c->r, NULL, NULL);
        v1_reply(c->r, 200, x < 0 ? x : y, &b);
        free(c);
}

static int start(struct sessions *ss, struct http_request *r, const char *id, const struct json *object, struct error *e) {
        struct exec_body body;
        struct process_spec spec;
        struct call *c = calloc(1, sizeof *c);
        int x = c ? v1_exec_decode(ss, object, &body, e) : error_set(e, -ENOMEM, "decode the request");
        if (x == 0 && body.keep_input && !body.stream) {
                exec_body_release(&body);
                x = error_say(e, -EINVAL, "Invalid value for 'keep_input': it goes with 'stream'");
        }
        if (x == 0 && body.stream) {
                free(c);
                exec_body_spec(&body, &spec);
                x = v1_stream_exec(ss, r, id, &spec, body.base64, e);
                exec_body_release(&body);
                return x;
        }
        if (x < 0) {
                free(c);
                return x;
        }
        *c = (struct call){ .r = r, .base64 = body.base64 };
        exec_body_spec(&body, &spec);
        x = process_start(ss, id, &spec, done, c, &c->p, e);
        exec_body_release(&body);
        if (x < 0)
                free(c);
        else {
                http_on_close(r, closed, c);
                http_close_on_eof(r);
        }
        return x;
}

void v1_post_exec(struct http_request *r, void *user) {
        struct sessions *ss;
        const char *id;
        struct json object;
        struct error e = { 0 };
        if (!v1_ready(r, user, &ss, &id) || !v1_body(r, false, &object))
                return;
        int x = start(ss, r, id, &object, &e);
        if (x < 0)
                v1_fault(r, x, e.text, "session");
}
