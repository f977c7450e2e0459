/* Answers whose bytes come from a descriptor: constant memory, no faster than the peer reads. They use http_on_close() and
 * http_on_drain() of the request. `done` may be called inside the function that was given it. Descriptors become this module's, and are closed in every case. */
#pragma once
#include "http/server.h"

#define HTTP_SEND_PIECE (64 * 1024)    /* bytes held for one answer, beside what is on its way to the socket */

/* What the client asked for of `size` bytes. 0: all; 1: a part; -ERANGE: nothing that exists (416). What is not one range of bytes,
 * or depends on a validator (If-Range), is all, as RFC 9110 lets a server decide. The caller that answers 206 itself (a pipe that
 * brings only the part) adds http_range_header(). */
int http_range(const struct http_request *r, uint64_t size, uint64_t *ret_from, uint64_t *ret_n);
void http_range_header(struct http_request *r, uint64_t size, uint64_t from, uint64_t n);      /* Content-Range and Accept-Ranges */
void http_range_refuse(struct http_request *r, uint64_t size);                                 /* the whole 416 answer */

/* A regular file of known size: 200, 206 or 416. If it turns out shorter, the connection ends early. Read on the loop's pool.
 * `done` (may be NULL) when nothing of it is used any more. 0: sent or handed to the socket; -ECANCELED: the peer went away. */
void http_send_file(struct http_request *r, int fd, uint64_t size, const char *content_type, void (*done)(int r, void *user), void *user);

/* What comes out of a non-blocking pipe or socket, up to its end; length < 0: unknown, chunked. `done` is called once:
 * 0: all was taken, and the *caller* ends the answer, when it knows how: http_stream_end() or http_stream_abort();
 * -ECANCELED: the peer went away, the request is dead; another -errno: reading failed, the caller aborts.
 * With `done` NULL the answer ends with the pipe. */
void http_send_pipe(struct http_request *r, int status, int fd, int64_t length, const char *content_type, void (*done)(int r, void *user), void *user);
