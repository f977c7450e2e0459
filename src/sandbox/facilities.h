/* What this kernel offers, probed once, in one table.
 *
 * The spawner (root) calls facilities_get() before it makes anything; `brig doctor` calls it in a process of its own.
 * Whoever chooses between a newer call and its fallback reads the table and never probes again:
 *
 *     if (facility_ok(FACILITY_CLONE_INTO_CGROUP))
 *             ...
 *
 * BRIG_FORCE_MISSING=name,name in the environment makes facilities missing, so that tests drive every fallback.
 * Not thread-safe on the first call (probes run in short-lived child processes of the caller); read-only afterwards. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/error.h"

enum facility {
        FACILITY_USER_NS,           /* user, PID, IPC, UTS, mount namespaces */
        FACILITY_CLONE3,            /* clone3 with a pidfd */
        FACILITY_CLONE_INTO_CGROUP, /* and a child that lives: not so below a cgroup that was once killed */
        FACILITY_PIDFD,             /* pidfd_open, setns through a pidfd */
        FACILITY_CLOSE_RANGE,
        FACILITY_OPENAT2,
        FACILITY_MOUNT_API,         /* fsopen, fsmount, open_tree, move_mount, mount_setattr */
        FACILITY_IDMAP_MOUNT,       /* id-mapped mounts of the file system that holds / */
        FACILITY_OVERLAY_IDMAP,     /* overlay over an id-mapped lower */
        FACILITY_DETACHED_SOURCE,   /* clones of, and overlays over, mounts that are attached nowhere */
        FACILITY_OVERLAY_APPEND,    /* an overlay's lowers can be added one by one */
        FACILITY_LOOP,              /* loop devices */
        FACILITY_SECCOMP,
        FACILITY_LANDLOCK,          /* value: ABI version */
        FACILITY_CGROUP,            /* value: enum cgroup_kind */
        FACILITY_CGROUP_KILL,       /* cgroup.kill in the grouping hierarchy */
        FACILITY_MEMORY_PEAK,       /* the kernel reports the most memory used */
        FACILITY_PIDS_PEAK,
        FACILITY_SWAP_LIMIT,        /* swap is accounted, so it can be refused */
        FACILITY_CPU_QUOTA,
        FACILITY_NET_NS,
        FACILITY_VETH,
        FACILITY_NFT,               /* the nft program, and tables with NAT in the kernel */
        FACILITY_SK_LOOKUP,         /* programs that say which socket a connection is for */
        FACILITY_SYS_RESOURCE,      /* root may raise hard limits */
        FACILITY_MAX,
};
STRING_TABLE_DECLARE(facility);     /* "user-ns", "clone-into-cgroup", ...: what BRIG_FORCE_MISSING takes */

enum facility_state { FACILITY_OK, FACILITY_DEGRADED, FACILITY_MISSING, FACILITY_STATE_MAX };
STRING_TABLE_DECLARE(facility_state);

struct facility_row {
        enum facility_state state;
        bool forced;                /* BRIG_FORCE_MISSING says so */
        int value;                  /* meaning by facility; 0 otherwise */
        char detail[120];           /* what was found: "ABI 7", "EPERM from clone3" */
};

struct facilities {
        struct facility_row row[FACILITY_MAX];
        char kernel[96];            /* release and machine */
        bool root;                  /* false: most rows say nothing about what root could do */
};

/* Probes on the first call of the process. Never NULL, never fails: what cannot be probed is missing. */
const struct facilities *facilities_get(void);
bool facility_ok(enum facility f);  /* FACILITY_OK or FACILITY_DEGRADED; probes on the first call */
int facility_value(enum facility f);
/* Only for tests: forget the table, so that the next call probes again with the environment as it is then. */
void facilities_forget(void);

/* Without it no sandbox can be made at all. */
bool facility_required(enum facility f);
/* What is lost, or done instead, where it is missing; one sentence. */
const char *facility_loss(enum facility f);
/* True when every required facility is there: this machine can score. */
bool facilities_sufficient(const struct facilities *f);
/* Appends the table for a person, or the same as one JSON object. */
int facilities_print(const struct facilities *f, bool json, struct buf *b);
