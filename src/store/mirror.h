/* Mirrors: one bare repository per canonical address, which grows until it is removed, and the one way to a commit hash.
 *
 * A request names a commit; the answer is its hash, and the promise that the mirror holds it. Work on one mirror is serial:
 *
 *     QUEUED ──> FETCH (network; mirror read-only, quarantine writable) ──present──> done
 *                  └──new──> JOIN (no network; quarantine read-only, mirror writable) ──> done
 *
 * Requests that ask the same of the same mirror share one run; one that comes later waits, and then finds the commit there.
 * A name is resolved at the remote by a run that began after the request came. Where credentials were ever used, access is
 * proved at the remote again, each time. Loop thread only. */
#pragma once
#include "sandbox/sandbox.h"
#include "store/repo_url.h"

#define MIRROR_FETCH_TIMEOUT_MS (600 * 1000ull)
#define MIRROR_JOIN_TIMEOUT_MS (600 * 1000ull)

struct mirror_store;
struct mirror_ticket;

enum mirror_end { MIRROR_OK, MIRROR_UNREACHABLE, MIRROR_NO_COMMIT, MIRROR_DISK_FULL, MIRROR_FAILED };

/* The operator's files for fetches by ssh: memfds, the caller's, which must stay open. 0 = none. Every fetch by ssh has them, no other. */
struct fetch_ssh { int key_fd, known_hosts_fd; };

struct mirror_store_config {
        const char *home;                      /* BRIG_HOME: what the daemon remembers of mirrors is in trees/ below it */
        const char *const *fetch_env;          /* may be NULL */
        struct fetch_ssh ssh;
        uint64_t max_bytes;                    /* beyond it the least recently used go, never one in use; 0 = no bound */
};
int mirror_store_open(struct spawner *sp, const struct mirror_store_config *cfg, struct mirror_store **ret, struct error *e);
/* Cancels everything; `done` once no sandbox is left, then it is freed. */
void mirror_store_close(struct mirror_store *ms, void (*done)(void *user), void *user);

void mirror_id(const struct repo_url *url, char ret[static 65]);
/* Must access be proved at the remote before anything of this repository is used? */
bool mirror_is_private(struct mirror_store *ms, const struct repo_url *url);

/* `commit`: lower-case hash, valid during the call. */
typedef void (*mirror_done)(enum mirror_end end, const char *commit, const struct error *e, void *user);
/* `source_fd`: REPO_LOCAL's directory, duplicated; else -1. `url` is copied. */
int mirror_ensure(struct mirror_store *ms, const struct repo_url *url, int source_fd, const char *commit, mirror_done done, void *user,
                  struct mirror_ticket **ret, struct error *e);
/* While it is held a mirror is not removed. Held from the callback of mirror_ensure on, before it returns. NULL: no memory. */
struct mirror;
struct mirror *mirror_hold(struct mirror_store *ms, const struct repo_url *url);
void mirror_drop(struct mirror *m);            /* NULL is nothing */
void mirror_cancel(struct mirror_ticket *t);   /* the callback will not run */
