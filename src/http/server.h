/* An HTTP/1.1 server on a libuv loop over llhttp in strict mode.
 *
 * What a handler sees: a request whose head is parsed and whose body is complete (in memory up to body_memory_max, else a
 * spooled file), and a response object that may be answered now or later, whole or as a stream. The peer may vanish at any
 * moment: `on_close` runs and the response object is dead afterwards. Loop thread only. */
#pragma once
#include <stdbool.h>
#include <uv.h>

#include "base/buf.h"
#include "base/error.h"

struct http_server;
struct http_request;       /* one exchange: request and response; owned by its connection */

struct http_limits {       /* each reached is a named answer */
        size_t line_max;           /* 8 KiB: 414 */
        size_t header_max;         /* 32 KiB in all, 100 fields: 431 */
        uint64_t body_max;         /* 1 GiB: 413 */
        size_t body_memory_max;    /* 1 MiB, beyond it spooled to an unlinked file */
        uint64_t head_timeout_ms;  /* 10 s for a whole head, 408 */
        uint64_t body_timeout_ms;  /* 30 s without a byte, 408 */
        uint64_t idle_timeout_ms;  /* 75 s between requests, closed */
        uint64_t write_timeout_ms; /* 30 s without progress of a pending write, closed */
        size_t connections_max;    /* 4096: beyond it, accepted and answered 503 */
        size_t pipeline_max;       /* 64 requests read ahead; then reading stops */
};
void http_limits_default(struct http_limits *ret);

typedef void (*http_handler)(struct http_request *r, void *user);

struct http_route {
        const char *method;        /* "GET" also serves HEAD */
        const char *pattern;       /* "/task/{id}/result"; {x} matches one non-empty segment */
        http_handler handler;
        bool open;                 /* answers without a token (healthz, readyz) */
};

struct http_config {
        const char *listen;        /* "127.0.0.1:9090", "[::1]:9090", "unix:/path" */
        struct http_limits limits;
        const struct http_route *routes; size_t n_routes;
        const char *token;         /* NULL = none: then Host must be loopback and Origin absent or same (403) */
        uint32_t deny_uid_first, deny_uid_count;    /* peers on loopback with these uids are refused (sock_diag) */
        const char *spool_dir;
        void (*log)(const struct http_request *r, int status, uint64_t ms, void *user);  /* may be NULL */
        /* Body of an error that the server itself makes (404, 405, 401, 413...). NULL = {"error": message}. */
        int (*error_body)(int status, const char *message, struct buf *b);
        void *user;
};
int http_server_start(uv_loop_t *loop, const struct http_config *cfg, struct http_server **ret, struct error *e);
int http_server_port(const struct http_server *s);
void http_server_stop(struct http_server *s, uint64_t grace_ms, void (*done)(void *user), void *user);   /* frees it */

/* request */
const char *http_method(const struct http_request *r);
const char *http_path(const struct http_request *r);                   /* decoded, without the query */
const char *http_param(const struct http_request *r, const char *name);/* {name} of the route */
const char *http_query(const struct http_request *r, const char *key); /* decoded; NULL when absent */
const char *http_header(const struct http_request *r, const char *name);
const char *http_request_id(const struct http_request *r);             /* X-Request-Id if sane, else made */
size_t http_body_len(const struct http_request *r);
/* The whole body as one read-only span (memory or mmap of the spool), valid until the response is finished. */
int http_body(struct http_request *r, const char **ret_data, size_t *ret_len);

/* response */
void http_respond(struct http_request *r, int status, const char *content_type, const char *body, size_t n);   /* copies */
void http_respond_buf(struct http_request *r, int status, const char *content_type, struct buf *b);             /* takes the contents */
void http_respond_header(struct http_request *r, const char *name, const char *value);                          /* before respond */
void http_stream_start(struct http_request *r, int status, const char *content_type);                           /* chunked */
int http_stream_write(struct http_request *r, const char *p, size_t n);      /* -EAGAIN: over the high-water mark, wait for on_drain */
void http_stream_end(struct http_request *r);
void http_on_close(struct http_request *r, void (*closed)(void *user), void *user);   /* peer gone before the answer was complete */
void http_on_drain(struct http_request *r, void (*drain)(void *user), void *user);
