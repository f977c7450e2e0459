/* Between forward.c (the exchange) and forward_head.c (what the heads say). */
#pragma once
#include "http/forward.h"
#include "http/internal.h"

#define FORWARD_REQUEST_MAX (64u * 1024)       /* of a request's head, as sent: what the server takes, and what is added */

struct http_forward_run {
        struct http_request *r;
        struct http_tunnel *t;
        struct http_server *server;
        uv_tcp_t *tcp;
        uv_timer_t timer;
        unsigned refs;                 /* handles, writes, the tunnel */
        llhttp_t parser;
        llhttp_settings_t settings;
        struct buf fields;             /* of the answer: name NUL value NUL ... */
        struct buf left;               /* of the answer's body: the client has no room for it yet */
        char *prefix, *host;
        uint64_t idle_ms;
        int status;
        size_t parts;                  /* names and values in `fields` */
        size_t before;                 /* bytes read before there was an answer */
        bool over, chunked, may_upgrade;
        bool active;                   /* something moved since the timer looked */
        bool sent;                     /* the whole request */
        bool deaf;                     /* the server reads no more */
        bool answering, complete;      /* its head went to the client; it is here whole */
        bool upload_paused, tunnel_paused;
        void (*fail)(struct http_request *r, int status, const char *why, void *user);
        void (*done)(void *user); void *user;
};

/* forward.c */
void forward_unref(struct http_forward_run *f);
void forward_handle_closed(uv_handle_t *h);
void forward_answered(struct http_forward_run *f);             /* the client has all of it */
int forward_body(struct http_forward_run *f, const char *p, size_t n);
int forward_switch(struct http_forward_run *f, const char *protocol);          /* the answer's fields are added before */
void forward_answer_began(struct http_forward_run *f);
/* forward_head.c */
int forward_request_head(const struct http_request *r, const struct http_forward *o, const char *upgrade, struct buf *ret);
void forward_parser_init(struct http_forward_run *f, bool may_upgrade);
