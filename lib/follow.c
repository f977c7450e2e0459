/* Output of background commands as it comes: server-sent events, read line by line out of whatever pieces the connection gives. A stream that
 * breaks off is asked for again behind the last event that was delivered. */
#include "base/base64.h"
#include "internal.h"

#define LINE_MAX_BYTES (1u << 20)      /* of the stream */
#define SILENCE_S 60                   /* the daemon says something every 15 s */

struct follow {
        struct brig_client *client;
        const char *what;
        int (*each)(const char *stream, const char *bytes, size_t n, void *user);
        void *user;
        struct buf line, data;
        char name[32], id[64], last[64];
        struct brig_command_end end;
        bool ended, progress;
        int r;                         /* what `each` said, or a fault of ours */
        struct brig_error *e;
};

static int deliver(struct follow *f, const struct json *v) {
        _cleanup_buf_ struct buf text = BUF_INIT(LINE_MAX_BYTES), bytes = BUF_INIT(LINE_MAX_BYTES);
        struct json data;
        int r = json_get(v, "data", &data) ? json_string(&data, &text) : -EINVAL;
        if (r == 0)
                r = base64_decode(buf_str(&text), text.len, &bytes);
        if (r < 0)
                return r == -ENOMEM ? fail_memory(f->e) : fail(f->e, BRIG_ERR_ANSWER, "%s: an event cannot be read", f->what);
        return f->each ? f->each(f->name, buf_str(&bytes), bytes.len, f->user) : 0;
}

static int event(struct follow *f) {
        struct json v;
        bool is_exit = strcmp(f->name, "exit") == 0;
        if (!is_exit && strcmp(f->name, "stdout") != 0 && strcmp(f->name, "stderr") != 0)
                return 0;              /* of a newer daemon */
        int r = parse_object(buf_str(&f->data), f->data.len, f->what, BRIG_ERR_ANSWER, &v, f->e);
        if (r == 0 && !is_exit)
                r = deliver(f, &v);
        if (r != 0)
                return r;
        f->progress = true;
        if (f->id[0])
                memcpy(f->last, f->id, sizeof f->last);
        if (!is_exit)
                return 0;
        f->ended = true;
        f->end = (struct brig_command_end){
                .exit_code = (int)member_int(&v, "exit_code", -1), .timed_out = member_bool(&v, "timed_out"), .oom = member_bool(&v, "oom"),
                .output_limit = member_bool(&v, "output_limit"), .session_ended = member_bool(&v, "session_ended"),
        };
        return 0;
}

static const char *value_of(const char *line, const char *field) {
        size_t n = strlen(field);
        if (strncmp(line, field, n) != 0 || line[n] != ':')
                return NULL;
        return line + n + 1 + (line[n + 1] == ' ');
}

static int take_line(struct follow *f) {
        const char *s = buf_str(&f->line), *v;
        int r = 0;
        if (!*s) {
                r = f->data.len > 0 ? event(f) : 0;
                f->name[0] = f->id[0] = 0;
                buf_reset(&f->data);
        } else if ((v = value_of(s, "event")))
                snprintf(f->name, sizeof f->name, "%s", v);
        else if ((v = value_of(s, "id")))
                snprintf(f->id, sizeof f->id, "%s", v);
        else if ((v = value_of(s, "data")) && buf_adds(&f->data, v) < 0)
                r = fail(f->e, BRIG_ERR_ANSWER, "%s: an event is too long", f->what);
        buf_reset(&f->line);
        return r;
}

static int on_piece(const char *p, size_t n, void *user) {
        struct follow *f = user;
        for (size_t i = 0; i < n && f->r == 0 && !f->ended; i++) {
                if (p[i] == '\n')
                        f->r = take_line(f);
                else if (p[i] != '\r' && buf_addc(&f->line, p[i]) < 0)
                        f->r = fail(f->e, BRIG_ERR_ANSWER, "%s: a line is too long", f->what);
        }
        return f->r != 0 || f->ended ? -1 : 0;
}

/* One connection. 0: it came to the exit; BRIG_ERR_TRANSPORT: worth another. */
static int follow_once(struct follow *f, const char *path) {
        _cleanup_free_ char *full = NULL;
        _cleanup_answer_ struct answer a = ANSWER_INIT;
        struct json none;
        if (asprintf(&full, "%s%s%s", path, f->last[0] ? "&last_event_id=" : "", f->last) < 0)
                return fail_memory(f->e);
        buf_reset(&f->line);
        buf_reset(&f->data);
        f->name[0] = f->id[0] = 0;
        struct exchange x = { .method = "GET", .path = full, .tries = 1, .piece = on_piece, .piece_user = f, .silence = SILENCE_S };
        struct brig_error own, *e = f->e ? f->e : &own;
        int r = exchange(f->client, &x, &a, e);
        if (f->r != 0)
                return f->r;
        if (f->ended)
                return 0;
        if (r < 0)
                return r;
        return a.status != 200 ? expect(&a, 200, f->what, &none, e) : fail(e, BRIG_ERR_TRANSPORT, "%s: the stream broke off", f->what);
}

int brig_follow_command(struct brig_client *c, const char *session_id, long command, const struct brig_follow_options *options,
                        int (*each)(const char *stream, const char *bytes, size_t n, void *user), void *user, struct brig_command_end *ret,
                        struct brig_error *e) {
        static const struct brig_follow_options defaults;
        const struct brig_follow_options *o = options ? options : &defaults;
        char path[512];
        int r = check_id(session_id, e);
        if (r == 0 && (command < 1 || (o->stream && strcmp(o->stream, "stdout") != 0 && strcmp(o->stream, "stderr") != 0)))
                r = fail(e, BRIG_ERR_ARGUMENT, "not a command or stream");
        if (r < 0)
                return r;
        snprintf(path, sizeof path, "/v1/sessions/%s/commands/%ld/output?follow=true&encoding=base64&offset=%lld%s%s", session_id, command, o->offset,
                 o->stream ? "&stream=" : "", o->stream ? o->stream : "");
        struct follow f = { .client = c, .what = "follow a command", .each = each, .user = user, .e = e, .line = BUF_INIT(LINE_MAX_BYTES), .data = BUF_INIT(LINE_MAX_BYTES) };
        double pause = RETRY_FIRST_S, lost_at = 0;
        for (;;) {
                f.progress = false;
                r = follow_once(&f, path);
                if (r != BRIG_ERR_TRANSPORT || f.r != 0)
                        break;
                if (f.progress) {
                        pause = RETRY_FIRST_S;
                        lost_at = 0;
                }
                lost_at = lost_at > 0 ? lost_at : now();
                if (now() - lost_at > UNREACHABLE_MAX_S)
                        break;
                rest(pause);
                pause = MIN2(2 * pause, 2.0);
        }
        buf_release(&f.line);
        buf_release(&f.data);
        if (r == 0 && ret)
                *ret = f.end;
        return r;
}

int brig_start_command(struct brig_client *c, const char *session_id, const char *request, long *ret, struct brig_error *e) {
        char path[320];
        struct json v;
        _cleanup_answer_ struct answer a = ANSWER_INIT;
        int r = check_id(session_id, e);
        if (r == 0)
                r = parse_object(request ? request : "", request ? strlen(request) : 0, "request", BRIG_ERR_ARGUMENT, &v, e);
        if (r < 0)
                return r;
        snprintf(path, sizeof path, "/v1/sessions/%s/commands", session_id);
        struct exchange x = { .method = "POST", .path = path, .body = request, .body_len = strlen(request), .timeout = REQUEST_TIMEOUT_S, .tries = 1 };
        r = exchange(c, &x, &a, e);
        r = r ? r : expect(&a, 201, "start a command", &v, e);
        if (r < 0)
                return r;
        int64_t id = member_int(&v, "id", 0);
        if (id < 1)
                return fail(e, BRIG_ERR_ANSWER, "start a command: the answer has no id");
        *ret = (long)id;
        return 0;
}
