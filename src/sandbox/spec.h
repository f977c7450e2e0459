/* A sandbox_spec on the wire: encoded by the daemon, decoded and checked by the spawner. */
#pragma once
#include "sandbox/protocol.h"
#include "sandbox/sandbox.h"

#define SPEC_LAYERS_MAX 128
#define SPEC_MOUNTS_MAX 16
#define SPEC_FILES_MAX 32
#define SPEC_FILES_BYTES_MAX (64ull << 20)
#define SPEC_PATH_MAX 4096

/* Appends the fields to b, and the descriptors to fds (MESSAGE_FDS_MAX of them). */
int sandbox_spec_encode(const struct sandbox_spec *s, bool direct, struct buf *b, int *fds, size_t *n_fds);
/* Strings point into the message, descriptors stay the message's; arrays are the spec's. -EBADMSG. */
int sandbox_spec_decode(struct message *m, struct sandbox_spec *ret, bool *ret_direct);
void sandbox_spec_release(struct sandbox_spec *s);     /* of a decoded one */
/* Names, ranges, combinations; the error names the field. */
int sandbox_spec_check(const struct sandbox_spec *s, struct error *e);

/* An absolute path without empty, "." or ".." components; "/" itself is not one. */
bool spec_path_ok(const char *p);
bool workspace_path_ok(const char *p);                 /* of struct sandbox_bind */

/* ---- execs ---- */

#define ARGV_MAX 65536
#define ENV_MAX 16384
#define FD_TARGET_MAX 255
#define EXEC_FDS_MAX 32                /* beyond 0, 1 and 2 */
#define VIEW_BYTES_MIN (1ull << 20)
#define VIEW_BYTES_MAX (4ull << 30)

/* `far`: descriptors for 0, 1 and 2, -1 where the spec says it or nothing is wanted. */
int exec_spec_encode(const struct exec_spec *x, const int far[3], struct buf *b, int *fds, size_t *n_fds);
struct exec_request;
/* Strings point into the message, descriptors stay the message's. -EBADMSG, -EINVAL. */
int exec_request_decode(struct message *m, struct exec_request *x);
void exec_request_release(struct exec_request *x);
