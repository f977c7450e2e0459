/* Terminals of a session (session/terminal.h), and looking at one by WebSocket.
 *
 * Binary messages are bytes: what the terminal prints, what the viewer types. Text messages are JSON objects with a `type`.
 * To the viewer: attached (offset, rows, cols), size, lost (bytes that came faster than they were taken), exit (exit_code), after which the
 * socket closes with 1000. From it: input (data), resize (rows, cols), signal (number). */
#include <string.h>

#include "api/v1_internal.h"
#include "http/websocket.h"

#define SEND_PIECE (32u * 1024)
#define CODE_GONE 4404                 /* the terminal was closed, or its session has ended */
#define JSON_MAX 256

/* ---- opening, listing, closing ------------------------------------------------------------------------------------------------ */

static void put_terminal(struct json_writer *w, const struct terminal_view *v) {
        json_begin_object(w);
        json_field_uint(w, "id", v->id);
        json_field_text(w, "state", v->running ? "running" : "exited");
        if (v->running)
                json_field_null(w, "exit_code");
        else
                json_field_int(w, "exit_code", v->exit_code);
        json_field_uint(w, "rows", v->rows);
        json_field_uint(w, "cols", v->cols);
        json_field_uint(w, "viewers", v->viewers);
        json_field_uint(w, "first_offset", v->first);
        json_field_uint(w, "next_offset", v->end);
        v1_put_time(w, "started_at", v->started_ms);
        v1_put_time(w, "ended_at", v->ended_ms);
        json_end_object(w);
}

static void reply_terminal(struct http_request *r, int status, const struct terminal *t) {
        _cleanup_buf_ struct buf b = BUF_INIT(4096);
        struct json_writer w = JSON_WRITER(&b);
        struct terminal_view v;
        terminal_view(t, &v);
        put_terminal(&w, &v);
        v1_reply(r, status, json_finish(&w), &b);
}

/* The terminal that the path names; else 404 is answered. */
static struct terminal *named(struct http_request *r, void *user) {
        struct sessions *ss;
        const char *id;
        unsigned n;
        if (!v1_part(r, user, "tid", &ss, &id, &n))
                return NULL;
        struct terminal *t = n > 0 ? terminal_find(ss, id, n) : NULL;
        if (!t)
                v1_fault(r, -ENOENT, NULL, "terminal");
        return t;
}

void v1_post_terminal(struct http_request *r, void *user) {
        struct sessions *ss;
        const char *id;
        struct terminal_body body;
        struct terminal *t;
        struct json object;
        struct error e = { 0 };
        if (!v1_ready(r, user, &ss, &id) || !v1_body(r, true, &object))
                return;
        int x = v1_terminal_decode(&object, &body, &e);
        if (x == 0) {
                struct terminal_spec spec = {
                        .argv = (const char *const *)body.exec.argv, .env = (const char *const *)body.exec.env, .cwd = body.exec.cwd,
                        .user_given = body.exec.user_given, .uid = body.exec.uid, .gid = body.exec.gid, .rows = (uint16_t)body.rows, .cols = (uint16_t)body.cols,
                };
                x = terminal_open(ss, id, &spec, &t, &e);
                exec_body_release(&body.exec);
        }
        if (x < 0)
                v1_fault(r, x, e.text, "session");
        else
                reply_terminal(r, 201, t);
}

static int put_each(const struct terminal_view *v, void *user) {
        put_terminal(user, v);
        return 0;
}

void v1_list_terminals(struct http_request *r, void *user) {
        struct sessions *ss = v1_sessions(r, user);
        _cleanup_buf_ struct buf b = BUF_INIT(TERMINALS_MAX * 1024);
        struct json_writer w = JSON_WRITER(&b);
        if (!ss)
                return;
        json_begin_object(&w);
        json_put_key(&w, "terminals");
        json_begin_array(&w);
        int x = terminals_list(ss, http_param(r, "id"), put_each, &w);
        json_end_array(&w);
        json_end_object(&w);
        if (x == -ENOENT)
                v1_unready(ss, r, http_param(r, "id"));
        else
                v1_reply(r, 200, json_finish(&w), &b);
}

void v1_get_terminal(struct http_request *r, void *user) {
        struct terminal *t = named(r, user);
        if (t)
                reply_terminal(r, 200, t);
}

void v1_delete_terminal(struct http_request *r, void *user) {
        struct terminal *t = named(r, user);
        struct terminal_view v;
        char body[64];
        if (!t)
                return;
        terminal_view(t, &v);
        terminal_close(t);
        http_respond(r, 200, "application/json", body, (size_t)snprintf(body, sizeof body, "{\"id\":%u,\"deleted\":true}", v.id));
}

/* ---- looking at one ------------------------------------------------------------------------------------------------------------ */

struct viewer {
        struct terminal_viewer v;      /* first */
        struct http_websocket *ws;
        struct buf rest;               /* typed, and not taken yet: then the socket is paused */
        uint64_t lost;                 /* not told yet */
        uint16_t rows, cols;           /* as told */
        bool read_only, greeted, over;
};

static int say(struct viewer *o, const char *text, int n) { return http_websocket_send(o->ws, true, text, (size_t)n); }

/* False: it must wait for room. */
static bool say_state(struct viewer *o, const struct terminal_view *t) {
        char text[JSON_MAX];
        if (!o->greeted) {
                uint64_t at = MAX2(o->v.at, t->first);
                if (say(o, text, snprintf(text, sizeof text, "{\"type\":\"attached\",\"offset\":%llu,\"rows\":%u,\"cols\":%u}", (unsigned long long)at, t->rows, t->cols)) < 0)
                        return false;
                o->greeted = true;
                o->v.at = at;          /* what was gone before it came is not lost by it */
        } else if (o->rows != t->rows || o->cols != t->cols) {
                if (say(o, text, snprintf(text, sizeof text, "{\"type\":\"size\",\"rows\":%u,\"cols\":%u}", t->rows, t->cols)) < 0)
                        return false;
        }
        o->rows = t->rows;
        o->cols = t->cols;
        return true;
}

static bool say_lost(struct viewer *o) {
        char text[JSON_MAX];
        if (o->lost && say(o, text, snprintf(text, sizeof text, "{\"type\":\"lost\",\"bytes\":%llu}", (unsigned long long)o->lost)) < 0)
                return false;
        o->lost = 0;
        return true;
}

static void more(struct terminal_viewer *v) {
        struct viewer *o = container_of(v, struct viewer, v);
        struct terminal_view t;
        char text[JSON_MAX];
        if (o->over || !v->terminal)
                return;
        terminal_view(v->terminal, &t);
        if (!say_state(o, &t))
                return;
        for (;;) {
                const char *p;
                uint64_t lost;
                size_t n = terminal_peek(v, &p, &lost);
                o->lost += lost;
                if (!say_lost(o))
                        return;
                if (n == 0)
                        break;
                n = MIN2(n, SEND_PIECE);
                if (http_websocket_send(o->ws, false, p, n) < 0)
                        return;        /* `drain` comes, or the end */
                terminal_took(v, n);
        }
        if (!t.running && say(o, text, snprintf(text, sizeof text, "{\"type\":\"exit\",\"exit_code\":%d}", t.exit_code)) == 0) {
                o->over = true;
                http_websocket_close(o->ws, WEBSOCKET_NORMAL, "The program has ended");
        }
}

static void drain(struct http_websocket *ws, void *user) {
        struct viewer *o = user;
        more(&o->v);
}

static void type(struct viewer *o, const char *p, size_t n) {
        if (o->read_only || o->over || !o->v.terminal)
                return;
        ssize_t took = terminal_input(&o->v, p, n);
        if (took < 0 || (size_t)took == n)
                return;                /* who has ended reads no more */
        if (buf_add(&o->rest, p + took, n - (size_t)took) == 0)
                http_websocket_pause(o->ws);
        else
                http_websocket_close(o->ws, WEBSOCKET_INTERNAL, "Out of memory");
}

static void room(struct terminal_viewer *v) {
        struct viewer *o = container_of(v, struct viewer, v);
        ssize_t took = terminal_input(v, buf_str(&o->rest), o->rest.len);
        buf_consume(&o->rest, took < 0 ? o->rest.len : (size_t)took);
        if (o->rest.len == 0)
                http_websocket_resume(o->ws);
}

static int number_of(const struct json *object, const char *name, int64_t max) {
        struct json v;
        int64_t n;
        return json_get(object, name, &v) && json_int(&v, &n) == 0 && n >= 1 && n <= max ? (int)n : -EINVAL;
}

static const char *command(struct viewer *o, const struct json *object) {
        struct json type_, v;
        struct terminal *t = o->v.terminal;
        if (!json_get(object, "type", &type_))
                return "A message needs a type";
        if (json_string_is(&type_, "input")) {
                _cleanup_buf_ struct buf b = BUF_INIT(TERMINAL_INPUT_MAX);
                if (!json_get(object, "data", &v) || json_string(&v, &b) < 0)
                        return "Input needs data, a string";
                type(o, buf_str(&b), b.len);
        } else if (json_string_is(&type_, "resize")) {
                int rows = number_of(object, "rows", TERMINAL_SIZE_MAX), cols = number_of(object, "cols", TERMINAL_SIZE_MAX);
                if (rows < 0 || cols < 0)
                        return "A size is rows and cols, from 1 to 1000";
                (void)terminal_resize(t, (uint16_t)rows, (uint16_t)cols);
        } else if (json_string_is(&type_, "signal")) {
                int n = number_of(object, "signal", 64);
                if (n < 0)
                        return "A signal is a number from 1 to 64";
                (void)terminal_signal(t, n);
        } else
                return "Unknown type of message";
        return NULL;
}

static void message(struct http_websocket *ws, bool text, const char *p, size_t n, void *user) {
        struct viewer *o = user;
        struct json object;
        if (!text) {
                type(o, p, n);
                return;
        }
        if (o->read_only || o->over || !o->v.terminal)
                return;
        const char *why = "A text message is a JSON object";
        if (json_parse(p, n, &object, NULL) == 0 && object.type == JSON_OBJECT)
                why = command(o, &object);
        if (why)
                http_websocket_close(ws, WEBSOCKET_POLICY, why);
}

/* The terminal is gone; the object stays until its socket is. */
static void terminal_gone(struct terminal_viewer *v) {
        struct viewer *o = container_of(v, struct viewer, v);
        o->over = true;
        http_websocket_close(o->ws, CODE_GONE, "The terminal is closed");
}

static void socket_closed(struct http_websocket *ws, int code, const char *reason, void *user) {
        struct viewer *o = user;
        terminal_detach(&o->v);
        buf_release(&o->rest);
        free(o);
}

void v1_attach_terminal(struct http_request *r, void *user) {
        static const char *const protocols[] = { "brig.terminal.v1" };
        static const struct http_websocket_options options = { .protocols = protocols, .n_protocols = 1, .message_max = TERMINAL_INPUT_MAX };
        static const struct http_websocket_calls calls = { message, drain, socket_closed };
        struct terminal *t = named(r, user);
        const char *read_only = http_query(r, "read_only");
        uint64_t from;
        if (!t || !v1_query_uint(r, "from", 0, UINT64_MAX, &from))
                return;
        struct viewer *o = calloc(1, sizeof *o);
        if (!o) {
                v1_fault(r, -ENOMEM, NULL, NULL);
                return;
        }
        o->v = (struct terminal_viewer){ .more = more, .room = room, .closed = terminal_gone };
        buf_init(&o->rest, TERMINAL_INPUT_MAX);
        o->read_only = read_only && strcmp(read_only, "false") != 0 && strcmp(read_only, "0") != 0;
        int x = terminal_attach(t, &o->v, from);
        if (x < 0) {
                free(o);
                v1_fault(r, x, x == -EUSERS ? "Too many look at this terminal" : NULL, "session");
                return;
        }
        if (http_websocket_accept(r, &options, &calls, o, &o->ws) < 0) {
                terminal_detach(&o->v);
                free(o);
        }
}
