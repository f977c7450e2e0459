/* An HTTP/1.1 server on a libuv loop over llhttp in strict mode.
 *
 * What a handler sees: a request whose head is parsed and whose body is complete (in memory up to body_memory_max, else a
 * spooled file), and a response that may be given now or later, whole or as a stream. A route that takes bodies of any size in
 * constant memory gets them in pieces instead (http/upload.h). Answers from descriptors: http/send.h; server-sent events:
 * http/events.h; WebSocket: http/websocket.h; other protocols behind an Upgrade: http/tunnel.h.
 *
 * Exactly one of http_respond(), http_respond_buf() or http_stream_start()..http_stream_end() answers a request; with that the
 * request is over and the pointer is dead (unless the stream is still open). A handler that answers later MUST register
 * http_on_close(): the peer may vanish at any moment; then `closed` runs, once, and the pointer is dead. `closed` is not called
 * once the request was answered. Callbacks are never called from inside the function that registers them.
 *
 * Requests of one connection are handled one after the other, so pipelined answers are in order; what a peer sends ahead is not
 * read beyond a few KiB. Strings that a request gives live as long as the request. Loop thread only. */
#pragma once
#include <stdbool.h>
#include <uv.h>

#include "base/buf.h"
#include "base/error.h"

struct http_server;
struct http_request;       /* one exchange: request and response; owned by its connection */

#define HTTP_FIELDS_MAX 100              /* header fields of a request: 431 */
#define HTTP_PARAMS_MAX 4                /* {names} in a route's pattern */
#define HTTP_SEGMENTS_MAX 16             /* segments of a path; a longer one matches no route */
#define HTTP_QUERY_MAX 32                /* pairs of a query: 400 */
#define HTTP_STREAM_WRITE_MAX (1024 * 1024)      /* bytes of one http_stream_write */
#define HTTP_STREAM_HIGH_WATER (256 * 1024)      /* unsent bytes of a stream */
#define HTTP_BODY_ANY UINT64_MAX           /* http_route.body_max: whatever the client sends */
#define HTTP_LISTEN_FDS_MAX 2u           /* of one server */
#define HTTP_LINGER_MS 5000              /* how long a peer that must be cut off may still read its answer */

struct http_limits {       /* each reached is a named answer */
        size_t line_max;           /* 8 KiB: 414 */
        size_t header_max;         /* 32 KiB in all: 431 */
        uint64_t body_max;         /* 1 GiB: 413 */
        size_t body_memory_max;    /* 1 MiB, beyond it spooled to an unlinked file */
        uint64_t head_timeout_ms;  /* 10 s from a head's first byte to its last, 408 */
        uint64_t body_timeout_ms;  /* 30 s in which not even body_rate_min bytes came, 408 */
        size_t body_rate_min;      /* 1 KiB */
        uint64_t idle_timeout_ms;  /* 75 s between requests, closed */
        uint64_t write_timeout_ms; /* 30 s without progress of a pending write, closed */
        size_t connections_max;    /* 4096: beyond it, accepted and answered 503 */
};
void http_limits_default(struct http_limits *ret);

typedef void (*http_handler)(struct http_request *r, void *user);

struct http_route {
        const char *method;        /* "GET" also serves HEAD; "*" serves all that the server knows */
        const char *pattern;       /* "/task/{id}/result"; {x} matches one non-empty segment, a last "{*}" whatever follows */
        http_handler handler;
        bool open;                 /* answers without a token (healthz, readyz) */
        void *user;                /* the handler's; NULL = http_config.user */
        bool stream_body;          /* the handler runs once the head is in; the body comes in pieces (http/upload.h) */
        uint64_t body_max;         /* of this route's bodies, instead of http_limits.body_max; 0 = that one; HTTP_BODY_ANY = none */
};

struct http_config {
        const char *listen;        /* "127.0.0.1:9090", "[::1]:9090", "0.0.0.0:0", "unix:/path"; NULL: listen_fds */
        /* Instead: stream sockets, bound already, of whatever network. They become the server's when the start succeeds. */
        const int *listen_fds; size_t n_listen_fds;
        struct http_limits limits;
        const struct http_route *routes; size_t n_routes;      /* must outlive the server */
        const char *token;         /* NULL or "" = none: then Host must be loopback, unless any_host, and Origin absent or same (403) */
        /* Instead of token, Host and Origin: may this request, whose head is read, be heard at all? Asked before its route is looked at; false: 401.
         * Gets `user` of this table. NULL: the rules above. */
        bool (*authorize)(const struct http_request *r, void *user);
        bool any_host;             /* an open listener that the operator insisted on */
        uint32_t deny_uid_first, deny_uid_count;    /* local peers with these uids are refused (sock_diag; SO_PEERCRED on unix:) */
        const char *spool_dir;     /* NULL = /tmp; copied */
        void (*log)(const struct http_request *r, int status, uint64_t ms, void *user);  /* after each answer; may be NULL */
        /* Body of an error that the server itself makes (404, 405, 401, 413...). `path`: as far as it was understood, or "". NULL = {"error": message}. */
        int (*error_body)(int status, const char *path, const char *message, struct buf *b);
        void *user;
};
int http_server_start(uv_loop_t *loop, const struct http_config *cfg, struct http_server **ret, struct error *e);
int http_server_port(const struct http_server *s);              /* 0 on a unix socket */
bool http_server_checks_peers(const struct http_server *s);     /* false: deny_uid was asked for and the kernel cannot tell */
size_t http_server_connections(const struct http_server *s);
/* Accepts no more; idle connections close at once, busy ones after their answer or after grace_ms (0 = now). Then frees the server
 * and calls done. */
void http_server_stop(struct http_server *s, uint64_t grace_ms, void (*done)(void *user), void *user);

/* request */
const char *http_method(const struct http_request *r);
const char *http_path(const struct http_request *r);                   /* decoded, without the query */
const char *http_param(const struct http_request *r, const char *name);/* {name} of the route, decoded; NULL when there is none */
const char *http_query(const struct http_request *r, const char *key); /* decoded; NULL when absent, "" without a value */
const char *http_header(const struct http_request *r, const char *name);   /* the first of that name; NULL when absent */
size_t http_headers(const struct http_request *r);                     /* how many fields there are; in the order in which they came: */
const char *http_header_name(const struct http_request *r, size_t i);
const char *http_header_value(const struct http_request *r, size_t i);
/* Appends what stands at "{*}" of the route, as sent, with the slash before it and the query: "/a%20b?x=1", at least "/". */
int http_rest(const struct http_request *r, struct buf *b);
bool http_authorized(const struct http_request *r);                    /* for open routes: with the server's token, or it needs none */
const char *http_request_id(const struct http_request *r);             /* X-Request-Id if sane, else made; goes out with the answer */
const char *http_traceparent(const struct http_request *r);            /* of this exchange: the peer's trace, our span; NULL when none came */
size_t http_body_len(const struct http_request *r);
/* The whole body as one read-only span (memory or mmap of the spool; never NULL). */
int http_body(struct http_request *r, const char **ret_data, size_t *ret_len);
/* Takes the body out of the request, which has none from then on: the span stays as it is until the hold is released, whatever
 * becomes of the request, its peer or the server. For bodies that a pool job works on. Released in any thread, and best in the
 * pool: giving back a big body takes long. On error (-errno) the request keeps its body. */
struct http_body_hold;
int http_body_hold(struct http_request *r, struct http_body_hold **ret, const char **ret_data, size_t *ret_len);
struct http_body_hold *http_body_release(struct http_body_hold *h);    /* takes NULL; returns NULL */

/* response */
void http_respond(struct http_request *r, int status, const char *content_type, const char *body, size_t n);   /* copies */
void http_respond_buf(struct http_request *r, int status, const char *content_type, struct buf *b);             /* takes the contents */
void http_respond_error(struct http_request *r, int status, const char *message);                               /* body by error_body */
void http_respond_header(struct http_request *r, const char *name, const char *value);                          /* before respond; a value with control bytes is dropped */
void http_stream_start(struct http_request *r, int status, const char *content_type);                           /* chunked */
void http_stream_start_length(struct http_request *r, int status, const char *content_type, uint64_t length);   /* Content-Length, not chunked */
/* 0: taken; -EAGAIN: nothing taken, too much is unsent, wait for on_drain; -EMSGSIZE: n over HTTP_STREAM_WRITE_MAX, or over what
 * is left of the length; -EPIPE: the peer is gone (`closed` has run, maybe inside this very call). */
int http_stream_write(struct http_request *r, const char *p, size_t n);
void http_stream_end(struct http_request *r);      /* with less than the length: as http_stream_abort */
void http_stream_abort(struct http_request *r);    /* ends the connection, so that the client cannot take what it has for the whole */
void http_on_close(struct http_request *r, void (*closed)(void *user), void *user);   /* peer gone before the answer was complete */
/* Before the answer: `sent` runs once all of it was given to the kernel (true), or the connection has ended before (false); maybe from inside
 * the call that answers. With a request that was sent ahead, an answer counts as sent when the next one is given. */
void http_on_sent(struct http_request *r, void (*sent)(bool whole, void *user), void *user);
/* For this request a peer that ends its side of the connection counts as gone: for work that is done only while somebody waits. (Else
 * it may have shut down one direction, and still reads.) */
void http_close_on_eof(struct http_request *r);
void http_on_drain(struct http_request *r, void (*drain)(void *user), void *user);    /* a stream fell below the high-water mark */
