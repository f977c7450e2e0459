/* A sandbox_spec on the wire: encoded by the daemon, decoded and checked by the spawner. */
#pragma once
#include "sandbox/protocol.h"
#include "sandbox/sandbox.h"

#define SPEC_LAYERS_MAX 12
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

int exec_spec_encode(const struct exec_spec *x, int out, int err, struct buf *b, int *fds, size_t *n_fds);
