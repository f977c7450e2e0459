/* After the run, when nothing of it lives any more: has anybody written what the verdict rests on? The helper compares with the seal that applying
 * made (score/seal.h); this header is the daemon's side. Loop thread only. */
#pragma once
#include "sandbox/sandbox.h"
#include "score/record.h"

#define RECHECK_TIMEOUT_MS (60u * 1000)

/* r < 0: nobody knows, and e says why. The findings are the caller's to copy from; they go when this returns. */
typedef void (*recheck_done)(int r, const struct findings *f, const struct error *e, void *user);
/* Both descriptors stay the caller's and must live until done; watch_fd may be -1. `rule`: RECHECK_..., a constant, or NULL. */
int recheck_start(struct sandbox *s, int seal_fd, int watch_fd, const char *rule, recheck_done done, void *user, struct error *e);
