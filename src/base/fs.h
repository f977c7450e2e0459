/* Files and paths. Every descriptor is CLOEXEC. Paths that a user can influence go through fs_open_beneath. */
#pragma once
#include <sys/types.h>
#include "base/buf.h"
#include "base/error.h"

/* openat2 with RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS: no component may be a link
 * or lead out of `dirfd`. Returns a descriptor or -errno (-ELOOP for a link, -EXDEV for an escape). */
int fs_open_beneath(int dirfd, const char *path, int flags, mode_t mode);
/* Appends the whole file to b, at most its limit (-EFBIG beyond). */
int fs_read_file(int dirfd, const char *path, struct buf *b);
int fs_read_fd(int fd, struct buf *b);                     /* from the current position to the end */
int fs_write_all(int fd, const void *p, size_t n);         /* retries short writes and EINTR */
/* Temporary file in the same directory, fsync, rename, fsync of the directory: whole or not at all. */
int fs_write_atomic(int dirfd, const char *name, const void *p, size_t n, mode_t mode);
int fs_mkdir_p(const char *path, mode_t mode);             /* absolute path; existing directories are fine */
/* A sealed memfd holding the bytes, offset 0, or -errno. */
int fs_memfd(const char *name, const void *p, size_t n);
