/* Control groups: limits, counters and killing, one set of groups per sandbox.
 *
 * Theory of operation. A *set* is what one sandbox gets: a group in the *grouping hierarchy* (the v2 tree; it kills, freezes
 * and counts CPU time even without controllers) and one in each hierarchy that carries a limit. Where those are is the
 * backend's business, a table of functions with two implementations, chosen once by what is mounted:
 *
 *     v2:      /sys/fs/cgroup/<ours>/brig-<instance>/<n>                  everything in one group
 *     hybrid:  .../unified/<ours>/brig-<instance>/<n>                     kill, freeze, cpu time
 *              .../memory|pids|cpu/<ours>/brig-<instance>/<n>             v1: the limits
 *
 * <ours> is the group the spawner started in, so that whatever limits the operator put on it hold for its sandboxes.
 * On v2 no process may sit beside controlled groups: cgroup_manager_open moves the caller (and, with it, all processes of
 * <ours> that are Brig's) to brig-<instance>/main first.
 *
 * A set is used once. A group that was killed stays poisonous (a clone into it is born killed), so the pool holds fresh sets
 * only, and destroying one removes its directories. "Gone" means that every rmdir succeeded.
 *
 * Inside a set, execs live in *sub-groups* of the grouping hierarchy: commands in "p/x1", "p/x2", ..., so that one can be killed without
 * the others and all be frozen by one write to "p"; helpers in "h1", ...; init in the set's own. The limits are the set's.
 *
 * Spawner only, one thread. Nothing here sleeps for more than CGROUP_BUSY_MS in all. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

enum cgroup_kind { CGROUP_NONE, CGROUP_HYBRID, CGROUP_V2, CGROUP_KIND_MAX };
STRING_TABLE_DECLARE(cgroup_kind);          /* "none", "hybrid", "v2" */

#define CGROUP_BUSY_MS 200                  /* how long cgroup_destroy waits for dying tasks before it says -EBUSY */
#define CGROUP_POOL_MAX 64

struct cgroup_manager;
struct cgroup;                              /* one set */

struct cgroup_limits {
        uint64_t memory_bytes;              /* 0 = none */
        /* Beside memory_bytes where the kernel counts the buffers of TCP and UDP apart (v1); within it elsewhere. At most memory_bytes. */
#define CGROUP_SOCKET_BYTES (64ull << 20)
        uint64_t tmpfs_bytes;               /* sizes of the tmpfs mounts: the kernel can only limit the sum */
        uint64_t pids;                      /* 0 = none; counts threads */
        uint64_t cpu_milli;                 /* 0 = all */
};

struct cgroup_events {                      /* counts since the set was made; -1 = the kernel does not say */
        int64_t oom;                        /* the limit was reached and nothing could be reclaimed */
        int64_t oom_kill;                   /* processes killed for it */
        int64_t pids_max;                   /* forks refused */
};

struct cgroup_now { int64_t memory_bytes, pids; };      /* at this moment; -1 = the kernel does not say */

struct cgroup_usage {                       /* -1 = the kernel does not say */
        int64_t memory_peak_bytes;
        int64_t cpu_us;
        int64_t pids_peak;
};

/* What is mounted, without touching anything. */
enum cgroup_kind cgroup_detect(void);

/* `instance` is [0-9a-z]{1,32}. Makes the parents, moves this process to a leaf where needed, sweeps what an earlier process
 * of the same instance left. Fails when the hierarchies cannot be written. */
int cgroup_manager_open(const char *instance, struct cgroup_manager **ret, struct error *e);
/* Destroys the pool and the parents; sets still alive stay (their owner destroys them first). */
void cgroup_manager_close(struct cgroup_manager *m);
enum cgroup_kind cgroup_manager_kind(const struct cgroup_manager *m);
/* One line for the log: backend, controllers, what is missing. */
const char *cgroup_manager_describe(const struct cgroup_manager *m);

/* Makes sets until `want` (<= CGROUP_POOL_MAX) wait in the pool, at most `most` per call (off the hot path, when idle).
 * Returns how many are missing still, or -errno. */
int cgroup_pool_fill(struct cgroup_manager *m, unsigned want, unsigned most);
/* From the pool, else made now. */
int cgroup_take(struct cgroup_manager *m, struct cgroup **ret, struct error *e);
int cgroup_set_limits(struct cgroup *c, const struct cgroup_limits *l, struct error *e);

/* ---- putting processes in ---- */

/* The set's own directory in the grouping hierarchy, for CLONE_INTO_CGROUP; the caller closes it. -EOPNOTSUPP without v2 tree. */
int cgroup_open_group(struct cgroup *c);
/* A new sub-group (name: [a-z0-9]{1,15}, or two of these with a slash between: the first exists); *ret_fd is its directory in the grouping hierarchy, for CLONE_INTO_CGROUP and
 * cgroup_sub_*; the caller closes it. -EOPNOTSUPP where no v2 tree is mounted. */
int cgroup_sub_make(struct cgroup *c, const char *name, int *ret_fd);
/* Puts a process (0 = the caller) under the set's limits and in the sub-group `sub_fd` (-1: the set's own group).
 * `cloned_in`: CLONE_INTO_CGROUP has put it in the grouping hierarchy; only the limits are left to attach. */
int cgroup_attach(struct cgroup *c, int sub_fd, pid_t pid, bool cloned_in);
/* Kills all in the sub-group; with `remove`, also removes its directory (-EBUSY: not empty yet, call again). */
int cgroup_sub_kill(int sub_fd);
int cgroup_sub_remove(struct cgroup *c, const char *name);
int cgroup_sub_empty(int sub_fd);           /* 1 empty, 0 not, -errno */
int cgroup_sub_move(int sub_fd, pid_t pid); /* a process of the same set, from another sub-group. May wait for a grace period, up to 10 ms */
int64_t cgroup_sub_cpu_us(int sub_fd);      /* of all that ran in it; -1 = the kernel does not say */
/* Of all groups directly below `sub_fd` but the one called `spare`: kill, and whether nothing is left in them (1, 0, -errno). */
int cgroup_below_kill(int sub_fd, const char *spare);
int cgroup_below_empty(int sub_fd, const char *spare);
int cgroup_sub_frozen(int sub_fd);          /* 1 every process in and below it stands, 0 not yet, -errno */

/* ---- killing, events, counters ---- */

int cgroup_kill(struct cgroup *c);          /* SIGKILL to every process of the set; returns before they are gone */
int cgroup_freeze(struct cgroup *c, int sub_fd, bool freeze);   /* sub_fd -1 = the whole set */
/* A descriptor to watch for out-of-memory, with epoll events *ret_epoll (EPOLLIN or EPOLLPRI); the set owns it. When it
 * fires, call cgroup_oom_clear and cgroup_read_events, then kill: v1 has no group kill of its own. -1 = none. */
int cgroup_oom_fd(struct cgroup *c, uint32_t *ret_epoll);
void cgroup_oom_clear(struct cgroup *c);
void cgroup_read_events(struct cgroup *c, struct cgroup_events *ret);
void cgroup_read_usage(struct cgroup *c, struct cgroup_usage *ret);
void cgroup_read_now(struct cgroup *c, struct cgroup_now *ret);
/* What the processes hold by themselves at this moment: neither files (tmpfs included) nor caches. -1 = the kernel does not say. */
int64_t cgroup_read_private_memory(struct cgroup *c);
/* Memory of files: those of tmpfs, and those without a name (shared mappings, memfd, System V). */
int64_t cgroup_read_shared_memory(struct cgroup *c);

/* Removes every directory of the set, sub-groups too, and frees it. -EBUSY: tasks are still dying; nothing is freed, call again. */
int cgroup_destroy(struct cgroup *c);

/* Kills and removes every set below the hierarchies that an earlier process of the instance left. Returns how many. */
int cgroup_sweep(const char *instance, struct error *e);
