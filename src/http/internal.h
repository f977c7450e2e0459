/* Shared by the files of src/http/; not for others. */
#pragma once
#include <llhttp.h>

#include "base/clock.h"
#include "http/server.h"
#include "http/tunnel.h"
#include "http/upload.h"

#define READ_CHUNK (64u * 1024)          /* the server's read buffer, for bodies and what is thrown away */
#define HEAD_FIRST_ALLOC 4096u           /* of a connection's head buffer; also bounds what is read ahead */
#define OUT_MAX (4u * 1024 * 1024)       /* unsent bytes of heads, small bodies and chunks */
#define OUT_PIPELINE_MAX (64u * 1024)    /* beyond it no further pipelined request is taken */
#define COPY_MAX (16u * 1024)            /* bodies up to this are copied behind their head, larger ones sent from where they are */
#define EXTRA_MAX (16u * 1024)           /* header fields added by a handler */
#define REQUEST_ID_MAX 128
#define DISCARD_MAX (64u * 1024)         /* body of a request that was refused: read and dropped up to this, else the connection ends */
#define CHUNK_OVERHEAD_MAX (16u * 1024)  /* chunk extensions and trailers of one body */
#define REJECTED_MAX 64                  /* connections over the limit that are being told so */

struct conn;

/* A decision against a request: status 0 = none. */
struct refusal { int status; const char *message; };

struct field { uint32_t name, name_len, value, value_len; };   /* offsets in the head buffer, both NUL-terminated after parsing */

/* A body as it comes in: in memory, then flushed to the spool in pieces by the loop's pool. While `busy` nothing may be added. */
struct body {
        struct buf mem;
        uint64_t len;             /* all bytes so far */
        uint64_t written;         /* of those, in the spool */
        uv_fs_t req;
        int fd;
        int r;                    /* first error of the spool */
        bool busy;
        void *map;
};

/* A body that goes to its handler in pieces. */
struct upload {
        struct http_upload calls; void *user;
        unsigned paused;
        bool on;                  /* the route's bodies come so */
        bool started;             /* the handler has asked for it */
        bool ended;               /* `end` was called */
        bool feeding;             /* within the parser: a callback may be running */
        bool dropping;            /* answered already: what is here is only looked through for its end */
        struct buf left;          /* read, but behind a pause, or of the next request */
};

enum answer { ANSWER_NONE, ANSWER_STREAM, ANSWER_DONE };

struct http_request {
        struct conn *c;
        const char *method;
        uint32_t target, target_len;                /* path and query as sent */
        uint32_t query, query_len;
        uint8_t minor;
        bool keep_alive, head_only, has_length, chunked, expect_continue;
        uint64_t content_length;
        struct field fields[HTTP_FIELDS_MAX];
        size_t n_fields;
        struct field *host, *origin, *authorization, *id, *trace;
        struct buf path;                            /* decoded */
        struct buf raw;                             /* path and query as sent; only where a route has a rest */
        uint32_t segments[HTTP_SEGMENTS_MAX];       /* decoded, offsets in the head buffer */
        size_t n_segments;
        struct { uint32_t key, value; } pairs[HTTP_QUERY_MAX];
        size_t n_pairs;
        const struct http_route *route;
        uint32_t params[HTTP_PARAMS_MAX];
        char made_id[40];
        char traceparent[56];
        struct refusal refused;                     /* answer this instead of calling the handler */
        struct body body;
        struct upload up;
        size_t overhead;                            /* bytes of chunk extensions and trailers */
        /* answer */
        enum answer answer;
        int status;
        bool events;                                /* a stream of server-sent events; */
        uint64_t n_events;                          /* so many of them so far */
        bool fixed;                                 /* a stream with a length; */
        uint64_t out_left;                          /* of it, not written yet */
        uint64_t started_ms;
        struct buf extra;
        void (*closed)(void *user); void *closed_user;
        bool close_on_eof;                          /* http_close_on_eof */
        void (*sent)(bool whole, void *user); void *sent_user;
        void (*drain)(void *user); void *drain_user;
        bool want_drain;
};

enum conn_state {
        CONN_HEAD,       /* between requests, or reading a head */
        CONN_BODY,       /* reading (or dropping) a body */
        CONN_HANDLER,    /* the request is the handler's until it is answered */
        CONN_TUNNEL,     /* no longer HTTP */
        CONN_FLUSH,      /* the last answer is on its way out */
        CONN_LINGER,     /* our side is shut; what still comes is dropped, so that the peer can read the answer */
        CONN_CLOSED,
};

enum conn_phase { PHASE_NONE, PHASE_IDLE, PHASE_HEAD, PHASE_BODY, PHASE_HANDLER, PHASE_WRITE, PHASE_LINGER, PHASE_EVENTS, PHASE_TUNNEL };

struct conn {
        struct http_server *s;
        struct conn *prev, *next;
        union { uv_handle_t handle; uv_stream_t stream; uv_tcp_t tcp; uv_pipe_t pipe; } h;
        enum conn_state state;
        enum conn_phase phase;             /* what the deadline was set for */
        bool eof, reading, pumping, writing, rejected, head_started, complete;
        char *in; size_t in_len, in_alloc;       /* [head of the current request][not parsed yet] */
        size_t head_len, pos;                    /* the head; where the not parsed part begins */
        size_t scanned, line;                    /* of a head that is not whole: bytes seen, start of the last line */
        size_t first_line;                       /* length of the request line, once it was seen */
        llhttp_t parser;
        struct http_request r;
        struct buf out, sending;           /* gathered; given to the kernel */
        struct buf big, big_sending;       /* a large body, sent behind `out` */
        size_t big_done;                   /* bytes of `big` that are sent */
        uv_write_t write;
        uv_shutdown_t shutdown;
        uint64_t deadline;                 /* loop time, ms; 0 = none */
        uint64_t mark;                     /* body bytes or unsent bytes when the deadline was set: progress */
        unsigned pending;                  /* callbacks that still hold this object */
        struct http_tunnel *tunnel;        /* until its `closed` was called */
        void (*sent)(bool whole, void *user); void *sent_user;     /* of the answer that is on its way out */
        struct conn *later;                /* the next one to be pumped soon */
        bool is_later;
};

struct compiled_route;
struct http_server {
        uv_loop_t *loop;
        struct http_config cfg;
        union listener { uv_handle_t handle; uv_stream_t stream; uv_tcp_t tcp; uv_pipe_t pipe; } listener[HTTP_LISTEN_FDS_MAX];
        unsigned n_listeners;              /* handles that are open; one but for sockets that were given */
        char *unix_path, *spool_dir, *token;
        struct compiled_route *routes;
        struct conn *conns;
        size_t n_conns, n_rejected;
        uv_timer_t sweep, grace, soon;
        struct http_tunnel *tunnel;        /* until its `closed` was called */
        struct conn *later;                /* to be pumped by `soon` */
        uint64_t sweep_at;                 /* 0 = not armed */
        bool listening, stopping;
        bool has_rest;                     /* some route ends in {*} */
        void (*stopped)(void *user); void *stopped_user;
        unsigned handles;                  /* of our own, not closed yet */
        int diag_fd;                       /* sock_diag; -1 = not used */
        int port;
        uint64_t date_s; char date[40];
        char id_prefix[17]; uint64_t id_next;
        llhttp_settings_t settings;
        char read_buf[READ_CHUNK];
};

/* connection.c */
struct conn *conn_new(struct http_server *s);
void conn_start(struct conn *c, struct refusal why);    /* an accepted stream: begins to read, or tells it why not */
void conn_pump(struct conn *c);                         /* goes on as far as it can without waiting */
void conn_close(struct conn *c);
void conn_unref(struct conn *c);                        /* a callback that counted in `pending` has run */
int conn_grow(struct conn *c, size_t want);              /* room in c->in; moves what a request's strings point to */
void conn_arm(struct conn *c, enum conn_phase phase);    /* sets the deadline of what is waited for now */
void conn_expired(struct conn *c);
void conn_answered(struct conn *c);                     /* the answer is complete in the out buffers */
void conn_drop_idle(struct conn *c);                    /* at shutdown */

/* server.c */
void server_deadline(struct conn *c, uint64_t ms);      /* from now; 0 = none */
void server_forget(struct conn *c);                     /* a connection was freed */
void server_later(struct conn *c);                      /* conn_pump() from the loop, not from inside the caller */
const char *server_date(struct http_server *s);
/* Serves a connected stream socket, which becomes the server's. For tests and the fuzz target. */
int server_adopt(struct http_server *s, int fd);

/* parser.c */
void parser_settings(llhttp_settings_t *ret);
/* Parses the head in c->in[0..head_len) into c->r; strings are NUL-terminated in place. */
struct refusal parser_head(struct conn *c);
/* Feeds body bytes; *ret_used of them belong to this message. 1: message complete, 0: more, 2: more, but the handler paused,
 * < 0: refused (*ret). */
int parser_body(struct conn *c, const char *p, size_t n, size_t *ret_used, struct refusal *ret);
int percent_decode(char *p, size_t n, bool plus, size_t *ret_n);     /* in place, NUL-terminated; -EBADMSG (also for %00) */

/* router.c */
int router_compile(struct http_server *s, struct error *e);
void router_free(struct http_server *s);
/* Sets r->route; otherwise 404, or 405 with Allow already added. */
struct refusal router_find(struct http_request *r);

/* auth.c */
struct refusal auth_check(const struct http_request *r);    /* after routing */
bool auth_host_is_loopback(const char *host);

/* peer.c */
int peer_open(void);                                    /* a sock_diag socket that works, or -errno */
bool peer_denied(const struct http_server *s, const struct conn *c);

/* body.c */
void body_init(struct body *b);
void body_release(struct body *b, uv_loop_t *loop);      /* big ones are given back by the pool */
int body_add(struct body *b, const char *p, size_t n, const struct http_limits *l, uint64_t max);
uint64_t body_limit(const struct http_request *r);
/* Starts a flush if one is due (`last`: whatever the spool has begun must be whole). True: busy until c is pumped again. */
bool body_flush(struct conn *c, bool last);

/* tunnel.c */
struct http_tunnel {
        struct conn *c;
        struct http_tunnel_calls calls; void *user;
        void (*idle)(struct http_tunnel *t, void *user);       /* nothing came for idle_ms; may be NULL */
        void (*stopping)(struct http_tunnel *t, void *user);   /* the server would like to end; may be NULL */
        uint64_t idle_ms;
        uint64_t received;              /* bytes so far */
        unsigned paused;
        bool want_drain;
        bool strict;                    /* idle_ms counts whatever comes */
        bool again;                     /* `data` is called once unpaused, even without bytes */
        struct buf left;                /* came, and was not looked at */
};
/* As http_tunnel_accept(); the answer's header fields are added before. */
int tunnel_open(struct http_request *r, const struct http_tunnel *like, struct http_tunnel **ret);
int tunnel_put(struct http_tunnel *t, const char *p, size_t n);    /* whatever is unsent; no flush */
bool tunnel_full(struct http_tunnel *t);                /* over the high-water mark (or over): then `drain` will be called */
void tunnel_no_memory(struct http_request *r);          /* the answer when it could not be opened */
bool tunnel_step(struct conn *c);
bool tunnel_wants(const struct conn *c);
void tunnel_arrived(struct conn *c, const char *p, size_t n);
void tunnel_drained(struct conn *c);
void tunnel_tell(struct conn *c);                       /* `closed`, once it is over */
void tunnel_stopping(struct conn *c);

/* events.c */
void events_expired(struct conn *c);                    /* nothing was sent for a while */

/* upload.c */
void upload_reset(struct upload *u);
bool upload_step(struct conn *c);                       /* for conn_pump: true if it went on */
bool upload_wants(const struct conn *c);                /* body bytes are to be read now */
void upload_arrived(struct conn *c, const char *p, size_t n);      /* from the server's read buffer */
void upload_late(struct conn *c, struct refusal why);
/* Before the head of an answer: unless the body's end is here already, the connection cannot be used again. */
void upload_settle(struct http_request *r);
int upload_piece(struct http_request *r, const char *p, size_t n); /* from the parser; its return value is the parser's */

/* response.c */
void response_refuse(struct conn *c, struct refusal why, bool close);   /* the server's own answer */
int response_head(struct http_request *r, int status);  /* of a 101 */
void response_abort(struct http_request *r);            /* the answer was begun and cannot be finished */
int response_raw(struct conn *c, const char *p, size_t n);
void response_flush(struct conn *c);
size_t response_unsent(const struct conn *c);

/* request.c */
void request_reset(struct http_request *r);
void request_release(struct http_request *r);
void request_identify(struct http_request *r);          /* request id and traceparent */
bool request_lists(const struct http_request *r, const char *name, const char *token);     /* in any field of that name, comma-separated */
static inline char *request_at(const struct http_request *r, uint32_t offset) { return r->c->in + offset; }
