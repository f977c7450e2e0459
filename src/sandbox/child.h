/* The other side of clone: what runs between the birth of a process and its execve, in the spawner's code but not as the
 * spawner. Three births:
 *
 *     child_first   PID 1 of a new sandbox. It shares the spawner's memory while the spawner sleeps (CLONE_VM|CLONE_VFORK):
 *                   nothing hostile can reach it yet, and no page has to be copied.
 *     child_park    the same, ahead of need: it sleeps, in all its namespaces and under the filter, until child_unpark gives it
 *                   a program to execute. Until then nobody else is in there with it.
 *     child_join    a process in a standing sandbox. It has a copy of the memory and the spawner does not wait for it: root
 *                   in the sandbox could stop it, or starve it, and the spawner with it.
 *
 * Nothing here allocates or takes a lock. What goes wrong is written to `report`. The spawner is not dumpable, and neither is
 * a child of it before its execve, so nobody inside can look into it. */
#pragma once
#include "sandbox/spawner.h"

struct sock_fprog;

/* Where argv[0] is looked up when the environment has no PATH. */
#define CHILD_DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

struct child_report { const char *step; int code; };   /* code: -errno; 0 = executed, as far as is known */

/* A first process shares the spawner's table of descriptors, or each would begin with a copy of thousands and end with closing them.
 * What it keeps it first moves to low numbers, the slots, above which its own table then ends. In the spawner's table they are held
 * by an open null file, so that nothing else gets these numbers. Above every target of a descriptor. */
#define CHILD_SLOT 320
#define CHILD_SLOTS (MESSAGE_FDS_MAX + 3)
int child_slots_reserve(int null_fd);      /* once, in the spawner */

#define CHILD_MOUNTS_MAX 64
struct child_mount { int fd; const char *target; };    /* detached mount; target relative to the new root */

struct child_exec {
        const struct exec_request *x;
        int program;               /* memfd to execute; -1: argv[0], looked up inside */
        int user_ns;               /* to join, or -1: it is in it */
        bool filtered;             /* the filter is installed */
        bool shared_files;         /* it shares the spawner's descriptors until it places its own */
        size_t slots_used;         /* what it has put into slots then */
        int null_fd;               /* for descriptors that were given as -1 */
        struct confine_plan confine;
        const struct sock_fprog *filter;
        struct cgroup *cgroup; int group; bool cloned_in;
};

struct child_first {
        int seed_ns, net_ns;
        const char *hostname;
        struct child_mount mounts[CHILD_MOUNTS_MAX]; size_t n_mounts;   /* the first is the root */
        struct child_exec exec;
        struct child_report report;
};
/* Clones it and waits until it executes or fails. *ret_pid is set in both cases when a process was born (it must be
 * reaped); the result is that of the child: 0 or report.code. */
int child_first(struct child_first *c, pid_t *ret_pid, int *ret_pidfd);

#define CHILD_STACK_SIZE (128 * 1024)
struct child_parked {
        struct child_first first;
        uint32_t turn;             /* who of the spawner and the child runs */
        char stack[CHILD_STACK_SIZE] __attribute__((aligned(16)));
};
/* As child_first, with neither exec.x nor exec.program; exec.confine counts for resource limits alone. Returns when it sleeps.
 * *p may be freed when child_unpark has returned, or when it is reaped. */
int child_park(struct child_parked *p, pid_t *ret_pid, int *ret_pidfd);
/* With exec.x, exec.program, exec.confine set: wakes it and waits until it executes or fails; the result is the child's. Its
 * Landlock must be none: that restriction comes before the filter. A hard limit on open files above the spawner's is refused. */
int child_unpark(struct child_parked *p);
bool child_is_parked(const struct child_parked *p);            /* false: it is dead */

struct child_view {
        const char *target;        /* NULL: none */
        const char *output;        /* a second place, NULL: none */
        int pack; uint64_t bytes;
        bool read_only;
        uint32_t owner;            /* host id of root inside */
        int proc, socket;          /* the spawner's /proc; where the mount namespace is sent */
};

struct child_join {
        int init_pidfd;            /* whose namespaces to join */
        bool helper;               /* a PID and a network namespace of its own; root and base at fixed descriptors */
        int net_ns;                /* helper: an empty one */
        int view_ns;               /* helper: the mount namespace to see, or -1: the sandbox's own */
        struct child_view view;
        const int *base;           /* helper: lowers of each plane, -1 without; NULL for others */
        int upper;                 /* helper: file system that holds the planes' uppers, -1 = not asked for */
        int own;                   /* helper: passed as HELPER_OWN_FD, -1 = nothing */
        struct child_exec exec;
        struct child_report *report;
};
int child_join(struct child_join *c, pid_t *ret_pid);

/* Inside the spawner's start: makes the seed, the mount namespace from which every sandbox's is copied: one read-only tmpfs
 * with the directories d (/dev) and e (empty), and n, an empty file. */
int seed_make(int *ret_ns, struct error *e);
