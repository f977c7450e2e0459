/* A directory or file of a session as a gzip tar archive, made by the helper in the sandbox's mount namespace and spooled to an unnamed
 * file, so that a fault on the way is still a fault and no half archive. Loop thread only. */
#pragma once
#include "session/session.h"

#define EXPORT_BYTES_MAX (16ull << 30)     /* of one archive, compressed */
#define EXPORT_LEVEL 1                     /* of gzip: what is exported travels once */

/* r: 0, then `fd` (the callee's) holds the archive from `offset` on, `size` bytes; else -ENOENT there is no such path, -EFBIG, -ETIMEDOUT,
 * -ENOSPC, -EIO, with a text. */
typedef void (*session_exported)(int r, int fd, uint64_t offset, uint64_t size, const struct error *e, void *user);
/* -ENOENT no such session, -EAGAIN not ready, -ESHUTDOWN, -errno; then `done` does not run. `done` may find that its user is gone: it runs
 * in any case. */
int session_export(struct sessions *ss, const char *id, const char *path, uint64_t timeout_ms, session_exported done, void *user, struct error *e);
