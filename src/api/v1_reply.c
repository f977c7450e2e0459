/* How the native surface answers, and reads what all its calls have in common. */
#include <string.h>

#include "api/v1_internal.h"
#include "base/base64.h"
#include "base/clock.h"

/* ---- answers -------------------------------------------------------------------------------------------------------------------- */

static int put_error(const char *code, const char *message, const char *hint, struct buf *b) {
        struct json_writer w = JSON_WRITER(b);
        json_begin_object(&w);
        json_put_key(&w, "error");
        json_begin_object(&w);
        json_field_text(&w, "code", code);
        json_field_text(&w, "message", message);
        json_field_text(&w, "hint", hint);
        json_end_object(&w);
        json_end_object(&w);
        return json_finish(&w);
}

void v1_error(struct http_request *r, int status, const char *code, const char *message, const char *hint) {
        _cleanup_buf_ struct buf b = BUF_INIT(16384);
        int x = put_error(code, message, hint, &b);
        v1_reply(r, status, x, &b);
}

int v1_or_plain_error(int status, const char *path, const char *message, struct buf *b) {
        static const struct { int status; const char *code; } codes[] = {
                { 401, "unauthorized" }, { 403, "forbidden" }, { 404, "not_found" }, { 405, "method_not_allowed" }, { 408, "timeout" }, { 413, "too_large" },
                { 414, "too_large" }, { 416, "range" }, { 431, "too_large" }, { 503, "busy" },
        };
        const char *code = "invalid";
        for (size_t i = 0; i < ARRAY_SIZE(codes); i++)
                if (codes[i].status == status)
                        code = codes[i].code;
        if (strncmp(path, "/v1", 3) == 0 && (!path[3] || path[3] == '/' || path[3] == '?'))
                return put_error(code, message, NULL, b);
        struct json_writer w = JSON_WRITER(b);
        json_begin_object(&w);
        json_field_text(&w, "error", message);
        json_end_object(&w);
        return json_finish(&w);
}

struct v1_fault { int x, status; const char *code, *message, *hint; unsigned retry_after_s; };

static const struct v1_fault faults[] = {
        { -EINVAL, 400, "invalid", "The request is not valid", NULL, 0 },
        { -EOPNOTSUPP, 400, "unsupported", "This cannot be done here", NULL, 0 },
        { -ENOENT, 404, "not_found", NULL, NULL, 0 },
        { -EBUSY, 409, "conflict", "Another request is under way", NULL, 0 },
        { -ECANCELED, 409, "conflict", "The session was resumed meanwhile", NULL, 0 },
        { -EPIPE, 409, "input_closed", "It reads no more", NULL, 0 },
        { -ENOTCONN, 409, "no_input", "It was started without an open standard input", "start it with keep_input", 0 },
        { -ESRCH, 409, "ended", "It has ended", NULL, 0 },
        { -E2BIG, 413, "too_large", "The body is too large", NULL, 0 },
        { -EUSERS, 503, "too_many_commands", "Too many commands run in this session", "wait for some to end", 1 },
        { -EAGAIN, 503, "too_many_sessions", "Too many sessions live", "delete some, or raise the setting session.max", 10 },
        { -ETIMEDOUT, 504, "timeout", "Its processes did not come to stand in time", "ask again", 0 },
        { -ENOSPC, 503, "disk_full", "The disk is full", NULL, 30 },
        { -ESHUTDOWN, 503, "draining", "The server is shutting down", NULL, 5 },
};

void v1_fault(struct http_request *r, int x, const char *text, const char *what) {
        char message[128];
        for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
                const struct v1_fault *f = &faults[i];
                if (f->x != x)
                        continue;
                if (f->retry_after_s) {
                        char seconds[16];
                        snprintf(seconds, sizeof seconds, "%u", f->retry_after_s);
                        http_respond_header(r, "Retry-After", seconds);
                }
                snprintf(message, sizeof message, "There is no such %s", what ? what : "thing");
                v1_error(r, f->status, f->code, text && *text ? text : f->message ? f->message : message, f->hint);
                return;
        }
        v1_error(r, 500, "internal", "Internal error", NULL);
}

void v1_reply(struct http_request *r, int status, int x, struct buf *b) {
        static const char last_resort[] = "{\"error\":{\"code\":\"internal\",\"message\":\"Internal error\",\"hint\":null}}";
        if (x < 0)
                http_respond(r, 500, "application/json", last_resort, strlen(last_resort));
        else
                http_respond_buf(r, status, "application/json", b);
}

void v1_unready(struct sessions *ss, struct http_request *r, const char *id) {
        struct session_view v;
        char text[128];
        if (session_get(ss, id, &v) < 0) {
                v1_fault(r, -ENOENT, NULL, "session");
                return;
        }
        snprintf(text, sizeof text, "The session is %s", session_state_to_string((int)v.state));
        const char *hint = v.state == SESSION_STARTING ? "ask again with ?wait=" : v.state == SESSION_FINISHING ? NULL : "start another one";
        session_view_release(&v);
        v1_error(r, 409, "not_ready", text, hint);
}

struct sessions *v1_sessions(struct http_request *r, void *user) {
        struct api *a = user;
        struct sessions *ss = engine_sessions(a->engine);
        if (!ss)
                v1_fault(r, -ESHUTDOWN, NULL, NULL);
        return ss;
}

bool v1_body(struct http_request *r, bool may_be_empty, struct json *ret) {
        static const char none[] = "{}";
        const char *body = none;
        size_t n = strlen(none);
        if (http_body_len(r) > V1_BODY_MAX) {
                v1_fault(r, -E2BIG, NULL, NULL);
                return false;
        }
        if ((http_body_len(r) > 0 || !may_be_empty) && http_body(r, &body, &n) < 0) {
                v1_fault(r, -EIO, NULL, NULL);
                return false;
        }
        if (json_parse(body, n, ret, NULL) == 0 && ret->type == JSON_OBJECT)
                return true;
        v1_error(r, 400, "invalid", "The body must be a JSON object", NULL);
        return false;
}

bool v1_query_uint(struct http_request *r, const char *key, uint64_t absent, uint64_t max, uint64_t *ret) {
        const char *s = http_query(r, key);
        char text[96], *end;
        *ret = absent;
        if (!s)
                return true;
        errno = 0;
        unsigned long long n = strtoull(s, &end, 10);
        if (s[0] < '0' || s[0] > '9' || *end || errno) {
                snprintf(text, sizeof text, "Invalid value for '%.40s': expected a number", key);
                v1_error(r, 400, "invalid", text, NULL);
                return false;
        }
        *ret = MIN2((uint64_t)n, max);
        return true;
}

bool v1_query_true(struct http_request *r, const char *key) {
        const char *s = http_query(r, key);
        return s && strcmp(s, "0") != 0 && strcmp(s, "false") != 0;
}

bool v1_ready(struct http_request *r, void *user, struct sessions **ret_ss, const char **ret_id) {
        struct sessions *ss = v1_sessions(r, user);
        const char *id = http_param(r, "id");
        const struct session *s = ss ? session_find(ss, id) : NULL;
        if (!ss)
                return false;
        if (!s || session_state(s) != SESSION_READY) {
                v1_unready(ss, r, id);
                return false;
        }
        *ret_ss = ss;
        *ret_id = id;
        return true;
}

bool v1_part(struct http_request *r, void *user, const char *name, struct sessions **ret_ss, const char **ret_id, unsigned *ret_number) {
        struct sessions *ss = v1_sessions(r, user);
        const char *id = http_param(r, "id"), *text = http_param(r, name);
        char *end;
        if (!ss)
                return false;
        if (!session_find(ss, id)) {
                v1_unready(ss, r, id);
                return false;
        }
        unsigned long n = strtoul(text, &end, 10);
        *ret_number = text[0] >= '0' && text[0] <= '9' && !*end && n <= UINT32_MAX ? (unsigned)n : 0;
        *ret_ss = ss;
        *ret_id = id;
        return true;
}

void v1_put_time(struct json_writer *w, const char *key, int64_t ms) {
        char text[32];
        if (ms == 0) {
                json_field_null(w, key);
                return;
        }
        format_wall(ms, text);
        json_field_text(w, key, text);
}

void v1_put_seconds(struct json_writer *w, const char *key, uint64_t ms) { json_field_double(w, key, (double)ms / 1000); }

int v1_put_bytes(struct json_writer *w, const char *key, const char *p, size_t n, bool base64) {
        if (!base64) {
                json_field_string(w, key, p, n);
                return 0;
        }
        _cleanup_buf_ struct buf b = BUF_INIT(base64_encoded(n) + 1);
        int r = base64_encode(p, n, &b);
        json_field_string(w, key, buf_str(&b), b.len);
        return r;
}

int v1_put_capture(struct json_writer *w, const char *key, const struct output_capture *c, bool base64) {
        _cleanup_buf_ struct buf text = BUF_INIT(PROCESS_OUTPUT_MAX + 128);
        int r = capture_text(c, &text);
        int x = v1_put_bytes(w, key, buf_str(&text), text.len, base64);
        return r < 0 ? r : x;
}
