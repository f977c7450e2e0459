/* POST /session/{id}/export: the archive is whole on disk before the answer begins, and goes out as base64 piece by piece. */
#include <string.h>

#include "api/executor_internal.h"
#include "api/session_fields.h"
#include "api/v1_internal.h"
#include "base/base64.h"
#include "base/json.h"
#include "session/export.h"

#define PIECE (96 * 1024)              /* bytes of the archive at a time; a multiple of three */
#define HEAD_MAX (6 * SESSION_PATH_MAX + 256)
static const char tail[] = "\"}";

struct export_body { char *path; uint64_t timeout_ms; };
static const struct field export_fields[] = {
        { .name = "path", .kind = FIELD_STRING, .at = offsetof(struct export_body, path), .max = SESSION_PATH_MAX, .def = "`/workspace`", .doc = "what to export" },
        { .name = "timeout", .kind = FIELD_NUMBER, .at = offsetof(struct export_body, timeout_ms), .min = 0, .max = PROCESS_TIMEOUT_MAX_S, .scale = 1000, .def = "300", .doc = "seconds; 0 = none" },
};

struct v1_body executor_export_body(void) { return (struct v1_body){ export_fields, ARRAY_SIZE(export_fields) }; }

struct export_call {
        struct http_request *r;        /* NULL: the client is gone */
        int fd;
        uint64_t at, end;              /* of the archive in the file */
        bool tailed;
        char id[SESSION_ID_SIZE];
        char *path;
};

static void call_free(struct export_call *c) {
        fd_close(c->fd);
        free(c->path);
        free(c);
}

static void closed_waiting(void *user) { ((struct export_call *)user)->r = NULL; }
static void closed_sending(void *user) { call_free(user); }

/* As much as the connection takes. The request may die inside a write: then closed_sending has run. */
static void send_more(void *user) {
        struct export_call *c = user;
        static char space[PIECE];      /* one loop thread */
        while (c->at < c->end || !c->tailed) {
                _cleanup_buf_ struct buf b = BUF_INIT(base64_encoded(PIECE) + sizeof tail);
                size_t n = (size_t)MIN2(c->end - c->at, (uint64_t)PIECE);
                ssize_t got = n > 0 ? pread(c->fd, space, n, (off_t)c->at) : 0;
                int r = got != (ssize_t)n ? -EIO : base64_encode(space, n, &b);
                if (r == 0 && c->at + n == c->end)
                        r = buf_adds(&b, tail);
                if (r < 0) {
                        http_on_close(c->r, NULL, NULL);
                        http_stream_abort(c->r);
                        call_free(c);
                        return;
                }
                r = http_stream_write(c->r, b.data, b.len);
                if (r == -EPIPE)
                        return;
                if (r < 0)
                        return;        /* full: `drain` comes */
                c->at += n;
                c->tailed = c->at == c->end;
        }
        http_on_close(c->r, NULL, NULL);
        http_stream_end(c->r);
        call_free(c);
}

static int write_head(const struct export_call *c, struct buf *b) {
        struct json_writer w = JSON_WRITER(b);
        json_begin_object(&w);
        json_field_text(&w, "session_id", c->id);
        json_field_text(&w, "path", c->path);
        json_end_object(&w);
        int r = json_finish(&w);
        if (r < 0)
                return r;
        b->len--;                      /* the object goes on */
        return buf_adds(b, ",\"tar_b64\":\"");
}

static void exported(int r, int fd, uint64_t offset, uint64_t size, const struct error *e, void *user) {
        struct export_call *c = user;
        _cleanup_buf_ struct buf head = BUF_INIT(HEAD_MAX);
        c->fd = fd;
        c->at = offset;
        c->end = offset + size;
        if (c->r && r == 0)
                r = write_head(c, &head);
        if (!c->r || r < 0) {
                if (c->r) {
                        http_on_close(c->r, NULL, NULL);
                        reply_error(c->r, (struct fault){ .status = 500 }, e->text[0] ? e->text : "Internal error");
                }
                call_free(c);
                return;
        }
        http_on_close(c->r, closed_sending, c);
        http_on_drain(c->r, send_more, c);
        http_stream_start_length(c->r, 200, "application/json", head.len + base64_encoded(size) + strlen(tail));
        if (http_stream_write(c->r, head.data, head.len) == 0)
                send_more(c);
}

static int decode(const struct json *object, struct export_body *b, struct error *e) {
        *b = (struct export_body){ .timeout_ms = 300 * 1000 };
        int r = fields_decode(export_fields, ARRAY_SIZE(export_fields), object, 0, b, e);
        if (r == 0 && (!b->path || !b->path[0])) {
                free(b->path);
                b->path = strdup("/workspace");
                r = b->path ? 0 : error_set(e, -ENOMEM, "decode request");
        }
        if (r == 0 && b->path[0] != '/')
                r = error_say(e, -EINVAL, "Invalid value for 'path': must be an absolute path");
        return r;
}

void executor_post_export(struct http_request *r, void *user) {
        struct api *a = user;
        struct sessions *ss;
        const char *id;
        struct export_body b = { 0 };
        struct json object;
        struct error e = { 0 };
        if (!executor_session_ready(a, r, &ss, &id) || !executor_optional_body(r, &object))
                return;
        int x = decode(&object, &b, &e);
        struct export_call *c = x == 0 ? calloc(1, sizeof *c) : NULL;
        if (c) {
                *c = (struct export_call){ .r = r, .fd = -1, .path = TAKE_PTR(b.path) };
                snprintf(c->id, sizeof c->id, "%s", id);
                http_on_close(r, closed_waiting, c);
                x = session_export(ss, c->id, c->path, b.timeout_ms, exported, c, &e);
                if (x < 0) {
                        http_on_close(r, NULL, NULL);
                        call_free(c);
                }
        } else if (x == 0)
                x = -ENOMEM;
        free(b.path);
        if (x < 0)
                executor_session_fault(r, x, e.text);
}
