/* Output as it comes, by server-sent events: exec with `stream`.
 *
 *     event: stdout                       event: exit
 *     data: {"data":"..."}                data: {"exit_code":0,...}
 *
 * Where the input is kept open, the first event is `started`, whose `id` takes it at .../commands/{id}/stdin.
 *
 * A client that reads slowly makes the program wait, and costs no memory; one that goes away takes its command with it. Text is
 * UTF-8 with replacement characters, and no character is cut between two events. */
#include <string.h>

#include "api/v1_internal.h"
#include "http/events.h"

#define PIECE V1_EVENT_OUTPUT
#define PENDING_MAX (1024u * 1024)     /* of each stream, not taken by the client yet: what pipes hold when a program ends */
#define EVENT_MAX (8u * PIECE)

static const char *const names[] = { NULL, "stdout", "stderr" };

size_t v1_whole_characters(const char *p, size_t n) {
        for (size_t back = 1; back <= 3 && back <= n; back++) {
                unsigned char c = (unsigned char)p[n - back];
                if (c < 0x80)
                        break;
                if (c >= 0xc0)
                        return back < (c >= 0xf0 ? 4u : c >= 0xe0 ? 3u : 2u) ? n - back : n;
        }
        return n;
}

int v1_send_output(struct http_request *r, int stream, const char *id, const char *p, size_t n, bool base64) {
        _cleanup_buf_ struct buf b = BUF_INIT(EVENT_MAX);
        struct json_writer w = JSON_WRITER(&b);
        json_begin_object(&w);
        int x = v1_put_bytes(&w, "data", p, n, base64);
        json_end_object(&w);
        int y = json_finish(&w);
        if (x < 0 || y < 0)
                return x < 0 ? x : y;
        return http_events_send(r, names[stream], id, b.data, b.len);
}

/* ---- exec ------------------------------------------------------------------------------------------------------------------------ */

struct exec_stream {
        struct http_request *r;        /* NULL: the client is gone */
        struct process *p;             /* NULL: it has ended */
        struct buf pending[3];
        char last[512];                /* the exit event's data, once it is known */
        bool base64, held, inside;
};

static void free_stream(struct exec_stream *s) {
        buf_release(&s->pending[1]);
        buf_release(&s->pending[2]);
        free(s);
}

static void client_gone(void *user) {
        struct exec_stream *s = user;
        s->r = NULL;
        if (s->p)
                process_abandon(TAKE_PTR(s->p), true);
        if (!s->inside)
                free_stream(s);
}

static void break_off(struct exec_stream *s) {
        struct http_request *r = TAKE_PTR(s->r);
        http_on_close(r, NULL, NULL);
        http_stream_abort(r);
        client_gone(s);
}

/* Of one stream: true if nothing of it waits. */
static bool flush_one(struct exec_stream *s, int stream) {
        struct buf *b = &s->pending[stream];
        while (s->r && b->len > 0) {
                size_t n = MIN2(b->len, (size_t)PIECE);
                if (!s->base64 && (s->p || n < b->len))
                        n = v1_whole_characters(b->data, n);
                if (n == 0)
                        return true;   /* the rest of a character is to come */
                int x = v1_send_output(s->r, stream, NULL, b->data, n, s->base64);
                if (x < 0)
                        return false;
                buf_consume(b, n);
        }
        return s->r != NULL;
}

static void flush(struct exec_stream *s) {
        s->inside = true;              /* writing may tell us that the client is gone */
        bool all = flush_one(s, 1);
        all = flush_one(s, 2) && all;
        if (all && !s->p)
                all = http_events_send(s->r, "exit", NULL, s->last, strlen(s->last)) == 0;
        s->inside = false;
        if (!s->r) {
                free_stream(s);
        } else if (all && !s->p) {
                http_on_close(s->r, NULL, NULL);
                http_on_drain(s->r, NULL, NULL);
                http_events_end(s->r);
                free_stream(s);
        } else if (s->p && s->held == all) {
                s->held = !all;
                process_hold(s->p, s->held);
        }
}

static void drained(void *user) { flush(user); }

static void bytes(int stream, const char *p, size_t n, void *user) {
        struct exec_stream *s = user;
        if (buf_add(&s->pending[stream], p, n) < 0)
                break_off(s);
        else
                flush(s);
}

static void done(const struct process_end *end, void *user) {
        struct exec_stream *s = user;
        const struct rusage *u = &end->exec->rusage;
        _cleanup_buf_ struct buf b = BUF_INIT(sizeof s->last);
        struct json_writer w = JSON_WRITER(&b);
        json_begin_object(&w);
        json_field_int(&w, "exit_code", end->exit_code);
        json_field_bool(&w, "timed_out", end->timed_out);
        json_field_bool(&w, "oom", end->oom);
        json_field_bool(&w, "session_ended", end->session_ended);
        json_field_uint(&w, "stdout_bytes", end->out->total);
        json_field_uint(&w, "stderr_bytes", end->err != end->out ? end->err->total : 0);
        json_field_uint(&w, "wall_ms", end->exec->wall_ms);
        json_field_int(&w, "cpu_ms", (int64_t)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) * 1000 + (u->ru_utime.tv_usec + u->ru_stime.tv_usec) / 1000);
        json_end_object(&w);
        s->p = NULL;
        if (json_finish(&w) < 0)
                break_off(s);
        else {
                snprintf(s->last, sizeof s->last, "%s", b.data);
                flush(s);
        }
}

/* Under which number its input is written. Nothing is unsent yet: it is taken. */
static void send_started(struct http_request *r, const struct process *p) {
        char text[32];
        if (process_input_id(p) > 0)
                (void)http_events_send(r, "started", NULL, text, (size_t)snprintf(text, sizeof text, "{\"id\":%u}", process_input_id(p)));
}

int v1_stream_exec(struct sessions *ss, struct http_request *r, const char *id, struct process_spec *spec, bool base64, struct error *e) {
        struct exec_stream *s = calloc(1, sizeof *s);
        if (!s)
                return error_set(e, -ENOMEM, "stream the output");
        s->r = r;
        s->base64 = base64;
        buf_init(&s->pending[1], PENDING_MAX);
        buf_init(&s->pending[2], PENDING_MAX);
        spec->output_limit = 2;        /* nothing is kept here: it goes out */
        int x = process_start(ss, id, spec, done, s, &s->p, e);
        if (x < 0) {
                free_stream(s);
                return x;
        }
        process_on_bytes(s->p, bytes, s);
        http_on_close(r, client_gone, s);
        http_on_drain(r, drained, s);
        s->inside = true;
        http_events_start(r);
        if (s->r)
                send_started(r, s->p);
        s->inside = false;
        if (!s->r)
                free_stream(s);
        return 0;
}
