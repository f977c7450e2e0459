/* Trees of this machine as tar streams: packed into one that is sent, unpacked from one that comes. Each has a thread for its half, and a pipe
 * between it and the client's callbacks. SIGPIPE must be ignored.
 *
 * What comes is untrusted: a session's files are whatever ran there made. Nothing is written outside of the target, no link is
 * followed (openat2), devices, FIFOs and set-id bits are left out, and so are links that lead out of the target, unless they are wanted. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"

#define LOCAL_DEPTH_MAX 256            /* directories in directories */
#define LOCAL_LINKS_MAX 65536          /* files with several names that are remembered while packing; others are packed whole each time */

struct packing;
/* `path`: a directory. keep_links: a file with several names is packed once, its other names as hard links; the reader must be able to link
 * from anywhere to anywhere. Else each is a file. */
int packing_start(const char *path, bool keep_links, struct packing **ret, struct error *e);
/* For client_transfer: `user` is the packing. What went wrong: packing_error. */
ssize_t packing_read(char *p, size_t n, void *user);
uint64_t packing_bytes(const struct packing *p);
int packing_error(const struct packing *p, struct error *e);       /* 0: none */
void packing_free(struct packing *p);

struct unpacking;
/* dir: borrowed. */
int unpacking_start(int dir, bool keep_links, struct unpacking **ret, struct error *e);
int unpacking_write(struct unpacking *u, const char *p, size_t n);         /* -EPIPE: it has failed, unpacking_end says how */
/* Waits until all is written. *ret_skipped: entries left out. */
int unpacking_end(struct unpacking *u, uint64_t *ret_entries, uint64_t *ret_skipped, struct error *e);
void unpacking_free(struct unpacking *u);

/* Does a link at `path` (clean, relative to the target) to `link` stay below the target? Only ".." at its beginning is believed, because
 * directories on its way may be links themselves. */
bool link_stays(const char *path, const char *link);
/* "./a//b" becomes "a/b"; "" for the top. -EBADMSG: absolute, or with "..". */
#define LOCAL_NAME_MAX 4095
int local_name(const char *name, char ret[static LOCAL_NAME_MAX + 1]);
