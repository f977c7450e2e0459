#include <string.h>

#include "api/reply.h"
#include "base/json.h"

static const char json_type[] = "application/json";

struct fault fault_of_errno(int r) {
        switch (r) {
        case -EINVAL:
                return (struct fault){ .status = 400 };
        case -EOPNOTSUPP:
                return (struct fault){ .status = 400, .code = "unsupported" };
        case -E2BIG:
                return (struct fault){ .status = 413, .code = "too_large" };
        case -EBUSY:
                return (struct fault){ .status = 409, .code = "idempotency_conflict" };
        case -EAGAIN:
                return (struct fault){ .status = 503, .code = "queue_full", .retry_after_s = 10 };
        case -ENOSPC:
                return (struct fault){ .status = 503, .code = "disk_full", .retry_after_s = 30 };
        case -ESHUTDOWN:
                return (struct fault){ .status = 503, .code = "draining", .retry_after_s = 5 };
        case -ENOENT:
                return (struct fault){ .status = 404 };
        default:
                return (struct fault){ .status = 500, .code = "internal" };
        }
}

const char *fault_text(int r) {
        switch (r) {
        case -EBUSY:
                return "The idempotency key belongs to a task with another body";
        case -E2BIG:
                return "Request body is too large";
        case -EAGAIN:
                return "The queue is full";
        case -ENOSPC:
                return "The disk is full";
        case -ESHUTDOWN:
                return "The server is shutting down";
        case -ENOENT:
                return "Task not found";
        default:
                return "Internal error";
        }
}

void reply_json(struct http_request *r, int status, const char *body, size_t n) {
        http_respond(r, status, json_type, body, n);
}

void reply_buf(struct http_request *r, int status, int x, struct buf *b) {
        if (x < 0)
                reply_error(r, fault_of_errno(-EIO), fault_text(-EIO));
        else
                http_respond_buf(r, status, json_type, b);
}

void reply_error(struct http_request *r, struct fault f, const char *text) {
        static const char last_resort[] = "{\"error\":\"Internal error\"}";
        _cleanup_buf_ struct buf b = BUF_INIT(8192);
        struct json_writer w = JSON_WRITER(&b);
        json_begin_object(&w);
        json_field_text(&w, "error", text);
        if (f.code)
                json_field_text(&w, "code", f.code);
        json_end_object(&w);
        if (f.retry_after_s) {
                char seconds[16];
                snprintf(seconds, sizeof seconds, "%u", f.retry_after_s);
                http_respond_header(r, "Retry-After", seconds);
        }
        if (json_finish(&w) < 0)
                http_respond(r, 500, json_type, last_resort, strlen(last_resort));
        else
                http_respond_buf(r, f.status, json_type, &b);
}

void reply_not_found(struct http_request *r) {
        reply_error(r, fault_of_errno(-ENOENT), fault_text(-ENOENT));
}
