/* One HTTP GET at a time and many side by side: libcurl's multi interface on the libuv loop.
 *
 * A fetch does exactly one exchange: no redirect is followed, no authentication tried, nothing decoded; who calls decides what an
 * answer means (registry/get.h). The address is judged (registry/reach.h) when the socket is made. No proxy of the environment, no
 * cookies, no netrc; TLS is verified, 1.2 at least. `done` runs exactly once, from the loop, and the fetch is freed when it returns;
 * after fetch_cancel it does not run. Loop thread only. */
#pragma once
#include <stdbool.h>
#include <uv.h>

#include "base/error.h"
#include "registry/reach.h"

#define FETCH_URL_MAX 8192u
#define FETCH_HEADERS_MAX (128u * 1024)    /* bytes of an answer's headers, interim answers included */
#define FETCH_VALUE_MAX 4096u              /* of one header that is kept */
#define FETCH_CONNECT_MS 15000
#define FETCH_STALL_S 30                   /* an answer that sends nothing for so long has been cut */

struct fetcher;
struct fetch;

struct fetcher_config {
        struct reach reach;
        const char *ca_file;               /* more certificates than the system's; NULL = the system's */
};
int fetcher_new(uv_loop_t *loop, const struct fetcher_config *cfg, struct fetcher **ret, struct error *e);
/* No fetch may be alive. `done` runs from the loop when all its handles are closed and it is freed. */
void fetcher_close(struct fetcher *f, void (*done)(void *user), void *user);

struct fetch_result {
        int r;                             /* 0: the whole answer came; -ECANCELED: take() said no; else what went wrong, as -errno
                                            * (-EACCES: the address; -EPROTONOSUPPORT: no TLS there; -EPROTO: TLS, but not to be trusted) */
        const char *why;                   /* of r < 0, one line */
        bool connected;                    /* something answered, or at least took the connection */
        long status;                       /* 0 without an answer */
        const char *location, *authenticate, *content_type, *content_range;      /* "" without */
        int64_t retry_after_s;             /* -1 without, or when it is a date that is no number of seconds */
        int64_t content_length;            /* -1 unknown */
};

struct fetch_spec {
        const char *url;                   /* http or https; checked by who calls */
        const char *accept;                /* NULL: none */
        const char *authorization;         /* the whole value; NULL: none. Goes to this URL and nowhere else */
        uint64_t from;                     /* Range: bytes=from-; 0: none */
        bool named_loopback;               /* see reach_allows */
        /* A piece of the body, at most 16 KiB; what came before is known from `status`. Negative ends the fetch. */
        int (*take)(const void *p, size_t n, long status, void *user);
        void (*done)(const struct fetch_result *r, void *user);
        void *user;
};
/* Copies the spec. */
int fetch_start(struct fetcher *f, const struct fetch_spec *spec, struct fetch **ret, struct error *e);
void fetch_cancel(struct fetch *x);                /* NULL is nothing; not from inside its own callbacks */
/* For take(): the header of the answer that is coming; "" without. */
const char *fetch_content_range(const struct fetch *x);
