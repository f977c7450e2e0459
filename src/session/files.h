/* Operations on the files of a standing sandbox, made by the helper (helper/files.c): the daemon itself opens nothing there. Of sessions it
 * knows nothing; whoever calls holds the sandbox.
 *
 *     files_ask     an answer: list, stat, move...
 *     files_put     bytes go in, then there is an answer: write, unpack
 *     files_get     bytes come out: read, pack
 *
 * A call is over when `done` has run, once, from the loop; or when files_cancel returns. Until then the helper lives; it ends with the sandbox
 * too (then res->x is -ESHUTDOWN). Loop thread only. */
#pragma once
#include "sandbox/files_wire.h"
#include "sandbox/sandbox.h"

#define FILES_CALLS_MAX 512            /* at a time, of all sandboxes: -EUSERS */
#define FILES_ASK_MS 60000             /* for an answer */
#define FILES_PIPE_SIZE (256 * 1024)
#define FILES_REASON_MAX 256

struct files_call;

struct files_result {
        int x;                         /* 0; -EREMOTEIO: refused, see `code`; -ETIME; -ESHUTDOWN; another -errno is ours */
        char code[32];                 /* "not_found", "disk_full"...: see helper/files.c */
        char message[FILES_REASON_MAX];
        const char *json; size_t n;    /* the answer: one valid object; of unpack its last line. NULL without */
};
typedef void (*files_done)(const struct files_result *res, void *user);

/* argv[0] is the helper's verb. */
int files_ask(struct sandbox *sb, const char *const *argv, files_done done, void *user, struct files_call **ret);

/* *ret_fd: the non-blocking end of a pipe, the caller's, into which the content goes; closing it ends the content. */
int files_put(struct sandbox *sb, const char *const *argv, files_done done, void *user, struct files_call **ret, int *ret_fd);
/* The content was whole. Without this, `write` changes nothing. */
void files_commit(struct files_call *c);
/* It was not: with the end of the pipe `write` gives up. `done` follows. */
void files_abort(struct files_call *c);

/* `opened` runs once there is something to get: `size` of the file, or -1 where nobody knows; take the content by files_content.
 * Otherwise `done` says why there is nothing. */
int files_get(uv_loop_t *loop, struct sandbox *sb, const char *const *argv, void (*opened)(int64_t size, void *user), files_done done, void *user, struct files_call **ret);
/* The non-blocking pipe that brings `count` bytes from `from` on (of read; pack brings all): the caller's. What it brings is whole
 * when `done` says 0, which may come before or after the pipe's end. */
int files_content(struct files_call *c, uint64_t from, uint64_t count);

void files_cancel(struct files_call *c);       /* kills the helper; `done` will not run */
