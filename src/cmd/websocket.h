/* The client's side of a WebSocket (RFC 6455) over a client's connection. Nothing blocks but opening; whoever uses it polls websocket_fd
 * and calls websocket_work. */
#pragma once
#include "cmd/client.h"

#define WEBSOCKET_MESSAGE_MAX (1u << 20)       /* bytes of one message that comes */

struct websocket;

/* Borrows c until it is freed. A refusal of the daemon's is an error with its words (as remote_call). */
int websocket_open(struct client *c, const char *path, const char *protocol, struct websocket **ret, struct error *e);
void websocket_free(struct websocket *w);
int websocket_fd(const struct websocket *w);
short websocket_events(const struct websocket *w);     /* what to poll for */
size_t websocket_unsent(const struct websocket *w);
int websocket_send(struct websocket *w, bool text, const void *p, size_t n);
void websocket_close(struct websocket *w);             /* says so; websocket_work then comes to its end */
/* Reads and writes what is possible now. each(text, p, n) for every message; non-zero of it is returned. 0; -EPIPE: it is closed, *ret_code is the
 * close code (1006: broken off); -EPROTO. */
int websocket_work(struct websocket *w, int (*each)(bool text, const char *p, size_t n, void *user), void *user, int *ret_code);
