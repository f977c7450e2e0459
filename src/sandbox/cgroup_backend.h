/* What the two cgroup backends share; private to cgroup*.c. */
#pragma once
#include "base/clock.h"
#include "base/fs.h"
#include "sandbox/cgroup.h"

/* Hierarchies a set may have a directory in. On v2 only CG_GROUP is used, and carries everything. */
enum cg_hierarchy { CG_GROUP, CG_MEMORY, CG_PIDS, CG_CPU, CG_HIERARCHY_MAX };

#define CG_NAME_MAX 24
#define CG_FILE_MAX 4096                 /* most bytes read from one control file; lists of pids are read in rounds */

struct cgroup {
        struct cgroup_manager *m;
        struct cgroup *next;             /* in the pool */
        char name[CG_NAME_MAX];
        unsigned made;                   /* bit h: it has a directory in hierarchy h */
        int oom_fd;                      /* owned; -1 = none */
        uint64_t oom_seen;               /* v1: notifications read so far */
        struct cgroup_limits limits;     /* as applied */
};

struct cgroup_backend {
        enum cgroup_kind kind;
        /* Fills dir[] with the parents' descriptors. */
        int (*open)(struct cgroup_manager *m, struct error *e);
        int (*make)(struct cgroup *c);
        int (*limit)(struct cgroup *c, const struct cgroup_limits *l, struct error *e);
        int (*attach)(struct cgroup *c, pid_t pid);       /* to the hierarchies with limits */
        int (*arm_oom)(struct cgroup *c);                 /* sets oom_fd */
        uint32_t oom_epoll;
        void (*oom_clear)(struct cgroup *c);
        void (*events)(struct cgroup *c, struct cgroup_events *ret);
        void (*usage)(struct cgroup *c, struct cgroup_usage *ret);   /* memory and pids; CPU time is common */
        void (*now)(struct cgroup *c, struct cgroup_now *ret);
        int64_t (*private_memory)(struct cgroup *c);
        int64_t (*shared_memory)(struct cgroup *c);
};
extern const struct cgroup_backend cgroup_backend_hybrid, cgroup_backend_v2;

struct cgroup_manager {
        const struct cgroup_backend *backend;
        char instance[33];
        char describe[160];
        int dir[CG_HIERARCHY_MAX];       /* .../brig-<instance> in each hierarchy; -1 = not mounted */
        bool cgroup_kill;                /* the kernel kills a group at one write */
        uint64_t next_name;
        struct cgroup *pool;
        unsigned pooled;
        struct cgroup_limits last;       /* what the last sandbox asked for: fresh sets get it off the hot path */
};

/* ---- control files: one open, one write or read, one close ---- */

/* `group` and `file` may be NULL; writes fmt to <dirfd>/<group>/<file>. */
int cg_write(int dirfd, const char *group, const char *file, const char *fmt, ...) PRINTF_LIKE(4, 5);
int cg_read(int dirfd, const char *group, const char *file, char ret_text[static CG_FILE_MAX]);
/* A number: the whole file's, or (key) the one behind "key ". -1 where it cannot be had. */
int64_t cg_read_number(int dirfd, const char *group, const char *file, const char *key);

/* ---- where things are ---- */

struct cg_mounts {
        char path[CG_HIERARCHY_MAX][256];   /* <mount>/<our own group>, "" = not mounted */
        char root[CG_HIERARCHY_MAX][256];   /* <mount> */
        bool v2_memory;                     /* the v2 tree carries the memory controller */
        enum cgroup_kind kind;
};
int cg_find_mounts(struct cg_mounts *ret);

/* ---- the grouping hierarchy, or any one: killing and removing by directory ---- */

/* Calls fn for each subdirectory; stops at the first that does not return 0. */
int cg_each_subdir(int dirfd, int (*fn)(int dirfd, const char *name, void *user), void *user);
int cg_kill_tree(int dirfd, bool cgroup_kill);   /* every process in or below it; returns before they are gone */
/* Removes the directory and all below it; waits until `deadline_ns` for dying tasks. 0, -EBUSY, -errno; absent is 0. */
int cg_remove_tree(int parent, const char *name, uint64_t deadline_ns);
