/* One sandbox and one process in it, from creation to confirmed gone: what fetches, checkouts, set-up commands, unpackings and the steps of
 * builds are made of.
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
        const char *cwd;           /* NULL = "/" */
        const char *user;          /* of a command: looked up in the sandbox (store/image_user.h); NULL or "" = root */
        uint64_t timeout_ms;
        bool both;                 /* standard output goes where standard error goes */
        bool helper, helper_upper; /* argv[0] is a verb of the helper; see exec_spec */
        int stdin_fd;              /* taken over, also on failure; -1 = none */
        int fd;                    /* duplicated, and at HELPER_FIRST_FREE_FD in the command; -1 = none */
        /* What it prints, as it comes: both streams of a command, standard output of a helper. May be NULL; `user` is done's. */
        void (*output)(const char *p, size_t n, void *user);
};

enum box_end {
        BOX_EXITED,                /* `status` says how */
        BOX_TIMED_OUT,
        BOX_LIMIT,                 /* a limit of the sandbox ended it: `hit` */
        BOX_CANCELLED,
        BOX_FAILED,                /* our fault, or the image's: `error` */
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
