/* Request bodies in pieces: constant memory for any size, nothing spooled, no faster than the handler takes them.
 *
 * A route with `stream_body` has its handler called once the head is in. Nothing of the body has been asked for then: a client
 * that waits for "100 Continue" still waits. The handler refuses by answering, or takes the body, now or later:
 *
 *     http_on_close(r, closed, u);
 *     http_upload_start(r, &(struct http_upload){ data, end }, u);
 *
 * Then `data` is called for each piece and `end` once behind the last; the answer may be given from then on, or earlier: the
 * rest of the body is then dropped with the connection. If the body does not come whole (the peer vanished, too slow, not valid
 * HTTP, over the limit), `end` is not called: `closed` is, after which the request is dead; the server has told the peer.
 * So exactly one of these happens: the handler answers, or `closed` runs.
 *
 * Callbacks run on the loop, never inside a function of this header. A handler may pause, resume and answer in them. */
#pragma once
#include "http/server.h"

#define HTTP_UPLOAD_PIECE_MAX (64 * 1024)      /* bytes of one `data` */

struct http_upload {
        void (*data)(const char *p, size_t n, void *user);     /* all of it is the handler's to keep; p lives as long as the call */
        void (*end)(void *user);
};
/* At most once a request. A request without a body has an `end`, too. */
void http_upload_start(struct http_request *r, const struct http_upload *u, void *user);
/* No `data` and no `end` comes while paused, not even one that has been read already. Counted once: pause twice, resume once. */
void http_upload_pause(struct http_request *r);
void http_upload_resume(struct http_request *r);
uint64_t http_upload_length(const struct http_request *r);     /* Content-Length; HTTP_BODY_ANY when unknown (chunked) */

/* Sends the whole body into a pipe or stream socket, as fast as its reader takes it, instead of http_upload_start(). `fd` must be
 * non-blocking and stays the caller's; `done` is called once, and closing fd is up to it (that is what the reader takes for the
 * end, so an upload that broke can be told to the reader first).
 * done(0): all of it was written; the caller answers. done(-EPIPE or another errno of the pipe): the reader has had enough; the
 * caller answers. done(-ECANCELED): the body did not come whole, the request is dead. Uses http_on_close() of the request. */
int http_upload_to_pipe(struct http_request *r, int fd, void (*done)(int r, void *user), void *user);   /* -errno: nothing was begun */
