/* A connection that leaves HTTP with 101 and carries bytes of another protocol from then on. As with a WebSocket: on success the
 * request is over, `closed` runs exactly once, callbacks never run inside a function of this header. */
#pragma once
#include "http/server.h"

struct http_tunnel;

#define HTTP_TUNNEL_HIGH_WATER (256 * 1024)    /* unsent bytes: -EAGAIN */
#define HTTP_TUNNEL_WRITE_MAX (1024 * 1024)

struct http_tunnel_calls {
        void (*data)(struct http_tunnel *t, const char *p, size_t n, void *user);      /* what the peer sent; p lives as long as the call */
        void (*drain)(struct http_tunnel *t, void *user);      /* after -EAGAIN */
        void (*closed)(struct http_tunnel *t, void *user);     /* the peer ended it, it broke, or http_tunnel_close(); t is dead */
};

/* Does this request ask to leave HTTP? The protocol it names; NULL when it does not. */
const char *http_upgrade_asked(const struct http_request *r);
/* Answers 101 with `Upgrade: protocol` and the fields given by http_respond_header(). -ENOMEM: answered 503. */
int http_tunnel_accept(struct http_request *r, const char *protocol, const struct http_tunnel_calls *calls, void *user, struct http_tunnel **ret);
int http_tunnel_write(struct http_tunnel *t, const char *p, size_t n);         /* 0; -EAGAIN: nothing taken; -EMSGSIZE; -EPIPE */
void http_tunnel_pause(struct http_tunnel *t);
void http_tunnel_resume(struct http_tunnel *t);
void http_tunnel_close(struct http_tunnel *t);                 /* what was written still goes out */
