/* A request handed on to another HTTP/1.1 server, and its answer handed back: bodies of any size both ways in constant memory, no faster
 * than the slower side, and after a 101 whatever bytes there are. What the other server says is hostile input: it is parsed strictly
 * and framed anew.
 *
 * Not handed on: hop-by-hop fields and what Connection names, Authorization, Expect (answered here), the fields in `drop`. The server
 * gets Host as given and X-Forwarded-Host, -Proto and -Prefix. Of its answer, fields that would speak for this server (Strict-Transport-
 * Security, Alt-Svc, Clear-Site-Data) are left out, a Location that stays on it gets the prefix, as does a cookie's path, and pages are put into a sandbox by
 * Content-Security-Policy: they may run scripts, but as nobody, not as this server's own pages. */
#pragma once
#include "http/server.h"

#define HTTP_FORWARD_HEAD_MAX (12 * 1024)              /* bytes of an answer's fields */
#define HTTP_FORWARD_BEFORE_MAX (256 * 1024)           /* bytes before its body: fields, reason, and answers 1xx that came before */
#define HTTP_FORWARD_FIRST_MS (300 * 1000)             /* until the answer begins */
#define HTTP_FORWARD_IDLE_MS (600 * 1000)              /* without a byte in either direction, from then on */
#define HTTP_FORWARD_AHEAD_MAX (256 * 1024)            /* of the request's body, not yet taken by the server */

struct http_forward {
        const char *target;            /* path and query */
        const char *host;
        const char *prefix;            /* what the path was behind, for the server to know; no slash at its end */
        const char *const *drop;       /* names of fields, NULL-terminated; may be NULL */
        uint64_t first_ms, idle_ms;    /* 0 = the defaults */
        /* To answer when the server does not: status 502 or 504. */
        void (*fail)(struct http_request *r, int status, const char *why, void *user);
        void (*done)(void *user);      /* once, when nothing of it is left */
        void *user;
};
struct http_forward_run;
/* The route must have stream_body, and `r` not be answered. `tcp`, connected, allocated by malloc and with nobody else using it, becomes this
 * module's. Strings are read during the call. Takes http_on_close() and http_on_drain(). NULL: no memory; `fail` and `done` have
 * run. Callbacks may run from inside. */
struct http_forward_run *http_forward(struct http_request *r, uv_tcp_t *tcp, const struct http_forward *f);
/* Ends it: what was begun breaks off, what was not is answered 502. `done` follows. */
void http_forward_cut(struct http_forward_run *run, const char *why);
