/* One command in one sandbox, from creation to confirmed gone: what fetches, checkouts and set-up commands are made of.
 *
 * `done` runs exactly once, after the sandbox is gone, from the loop; the box is freed when it returns. Loop thread only. */
#pragma once
#include "sandbox/sandbox.h"

#define BOX_OUT_MAX 65536          /* of standard output, from its beginning */
#define BOX_TAIL_MAX 16384         /* of standard error, from its end */
#define BOX_OUTPUT_LIMIT (64ull << 20)     /* bytes of a stream after which the command is killed */

struct box;

struct box_spec {
        const struct sandbox_spec *sandbox;
        const char *const *argv;
        const char *const *env;
        const char *cwd;
        uint64_t timeout_ms;
        bool both;                 /* standard output goes where standard error goes */
        bool helper;               /* argv[0] is a verb of the helper */
        int fd;                    /* >= 0: duplicated, and at HELPER_FIRST_FREE_FD in the command; with `helper` only */
};

enum box_end {
        BOX_EXITED,                /* `status` says how */
        BOX_TIMED_OUT,
        BOX_LIMIT,                 /* a limit of the sandbox ended it: `hit` */
        BOX_CANCELLED,
        BOX_FAILED,                /* our fault: `error` */
};

struct box_result {
        enum box_end end;
        int status;                /* wait status */
        bool hit[LIMIT_KIND_MAX];
        const char *out;           /* the first BOX_OUT_MAX bytes, NUL-terminated */
        size_t out_len;            /* of `out`, which may hold more NULs */
        const char *err;           /* the last BOX_TAIL_MAX bytes */
        struct error error;
        bool not_started;          /* BOX_FAILED: the program could not be executed */
        bool no_image;             /* BOX_FAILED: the image is not there for us */
};
typedef void (*box_done)(const struct box_result *r, void *user);

/* Everything in the spec is copied or used up before it returns. */
int box_start(struct spawner *sp, const struct box_spec *spec, box_done done, void *user, struct box **ret, struct error *e);
void box_cancel(struct box *b);    /* `done` still runs */
