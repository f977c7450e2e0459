/* Inside the spawner: what the groups of operations share. See spawner.c for how it works. */
#pragma once
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#include "base/error.h"
#include "base/hash.h"
#include "sandbox/catch.h"
#include "sandbox/cgroup.h"
#include "sandbox/confine.h"
#include "sandbox/layer_image.h"
#include "sandbox/netns.h"
#include "sandbox/network.h"
#include "sandbox/protocol.h"
#include "sandbox/sandbox.h"
#include "sandbox/seat.h"

#define SPAWNER_CELLS_MAX 8192
#define SPAWNER_PROCS_MAX 32768
#define SPAWNER_ADOPTED_MAX 32768
#define IMAGE_ROOTS_MAX 32
#define SPAWNER_LOCK_FILE "spawner.lock"     /* below the home */

struct spawn;
struct child_parked;

/* A descriptor in the spawner's epoll set. Embedded; freed by its owner after watch_stop. */
struct watch { int fd; void (*fire)(struct spawn *sp, struct watch *w, uint32_t events); };
int watch_start(struct spawn *sp, struct watch *w, int fd, uint32_t events, void (*fire)(struct spawn *, struct watch *, uint32_t));
void watch_stop(struct spawn *sp, struct watch *w);

/* Objects by handle: index and generation, so a stale handle finds nothing. */
struct handles { void **object; uint32_t *generation; size_t n, alloc, max; };
int handle_new(struct handles *h, void *object, uint64_t *ret);        /* -EMFILE at the maximum */
void *handle_get(const struct handles *h, uint64_t handle);
void handle_drop(struct handles *h, uint64_t handle);

/* Why an operation failed, in the words of the spawner. */
struct fault { const char *step; struct error error; };
static inline int fault_set(struct fault *f, const char *step, int code) {
        f->step = step;
        return error_set(&f->error, code, "%s", step);
}

enum cell_state {
        CELL_MAKING,       /* waits for layer jobs */
        CELL_READY,        /* its first process runs */
        CELL_ENDED,        /* its first process is dead, nobody has asked for its removal */
        CELL_DYING,        /* being removed */
        CELL_STATE_MAX,
};

#define GROUP_NAME_MAX 24
#define FREEZE_REFS_MAX 16

enum cell_freeze { FREEZE_NONE, FREEZE_ASKED, FREEZE_STANDS };

/* One sandbox, the spawner's side. */
struct cell {
        uint64_t handle, ref;
        enum cell_state state;
        struct message *request;           /* what `spec` points into */
        struct sandbox_spec spec;
        bool direct;                       /* the first exec is PID 1; no init */
        struct seat *seat;
        struct cgroup *cgroup;
        int init_group;                    /* its group in the grouping hierarchy, or < 0 */
        int spare_group;                   /* made for the next exec once there was one, or -1 */
        char spare_name[GROUP_NAME_MAX]; uint32_t groups_made;
        int payload_group;                 /* above those of the commands, once there was one; or -1 */
        struct left_group *left;           /* of execs that ended and left something behind */
        enum cell_freeze freeze;
        uint64_t freeze_until_ms, freeze_ref[FREEZE_REFS_MAX]; size_t n_freeze_refs;   /* who waits for it to stand */
        char spare_only[GROUP_NAME_MAX]; bool sparing; uint64_t sparing_ref;     /* kill_others */
        struct watch oom;
        int net_ns;
        int view_ns;                       /* mount namespace of the last exec with a view, or -1 */
        struct network_link link; bool linked;
        struct catch catch;                /* network `allow`: tcp and udp until the daemon has them */
        int upper;                         /* root of the upper's file system; a detached mount */
        struct { ino_t ino; struct timespec changed; } resolv_conf;        /* in the upper, as we wrote it; ino 0: we did not */
        int plane[PLANE_MAX];              /* overlays on a tmpfs: kept until the rest is gone, see sweeper.c; or -1 */
        bool sweeping;                     /* the sweeper has them, and will say when they are closed */
        bool facts_read;
        int base[PLANE_MAX];               /* lowers of the planes, for helpers; -1 until asked for, and where no layer holds anything but in "/" */
        bool base_all;                     /* also of planes where no layer holds anything: for who compares with what was written */
        int unmount_wd;                    /* inotify: the upper's file system is gone */
        bool unmounted;
        uint64_t unmount_look_ms;          /* when to look for ourselves whether it is */
        pid_t init;                        /* 0 once reaped */
        int init_pidfd;
        struct watch control;              /* socket to init */
        unsigned n_procs;                  /* execs not reaped */
        unsigned n_mounted;                /* by sandbox_mount */
        pid_t launcher;                    /* 0 = none */
        int launch_fd;                     /* socket to it, or -1 */
        bool launcher_ready, no_launcher;  /* it has said so; it could not be had */
        uint32_t commands;                 /* execs other than helpers so far */
        bool killing, kill_answered, kill_again;
        struct layer_job *job; struct watch job_watch;
        size_t next_layer;                 /* layers below it are open */
        struct sandbox_usage usage;
        bool hit[LIMIT_KIND_MAX];
        bool gone_wanted;
        uint64_t started_ms;
        struct cell *next_blank;
        struct child_parked *parked;       /* of a blank, claimed or not: its first process */
        struct sandbox_limits made_for;    /* of a claimed blank */
};

/* One exec. */
struct proc {
        uint64_t handle;
        struct cell *cell;
        uint64_t ref;                      /* of the request */
        pid_t pid;                         /* 0: not known yet, or reaped */
        bool launching, kill_wanted;       /* the launcher has it: who it is will be told */
        int group;                         /* its own sub-group, or -1 */
        char group_name[GROUP_NAME_MAX];
        int view_socket;                   /* its view's mount namespace arrives here; -1 = it has none */
        bool freeze_at_end, held;          /* held: it has ended, and is told when the others stand */
        int status; struct rusage usage;   /* then */
        struct child_report *report;       /* shared with the child until it executes */
};

#define SPAWNER_EVENTS 32

/* See uppers.c. */
#define UPPERS_WANT 4u
struct uppers {
        int fd[UPPERS_WANT]; unsigned n;
        uint64_t bytes, inodes;            /* wanted; 0 = nobody has asked yet */
        struct layer_job *job; struct watch watch;
        uint64_t making_bytes, making_inodes;
        bool failed;
};

struct spawn {
        int epoll;
        struct epoll_event event[SPAWNER_EVENTS];      /* being handled: from next_event to n_events */
        int next_event, n_events;
        struct channel channel;
        pid_t sweeper; struct watch sweeper_watch;
        pid_t mover; struct watch mover_watch;     /* 0: not started yet; fd -1: gone */
        struct watch channel_watch, signal_watch, inotify_watch, timer_watch;
        bool stopping, lost;
        bool deaf;                         /* tests: BRIG_FORCE_MISSING names "unmount-events" */
        char home[4096], instance[40];
        char *image_root[IMAGE_ROOTS_MAX]; size_t n_image_roots;
        char *network_allow[NETWORK_ALLOW_MAX + 1];        /* NULL-terminated */
        int home_fd;
        int alone;                     /* holds SPAWNER_LOCK_FILE, see stand_alone */
        uint32_t daemon_uid, daemon_gid;
        struct handles cells, procs, adopted;
        struct idrange_allocator *ranges;
        struct uppers uppers;
        struct seat *seats; unsigned n_seats;
        struct cell *blanks; unsigned n_blanks;
        uint64_t sampled_ms;               /* when limits that the kernel does not hold were looked at */
        bool no_blanks;                    /* the last one could not be made: none until asked again */
        struct sandbox_limits blank_limits;
        struct cgroup_manager *cgroups;
        struct netns_pool *net_pool;
        struct network *network;
        struct layer_images *layers;
        int own_proc;                      /* /proc of our PID namespace */
        int host_mounts, own_mounts;       /* mount namespaces: the daemon's, the spawner's */
        int seed_ns;                       /* a mount namespace that holds one empty file system */
        int null_file;                     /* /dev/null, open */
        int idle_net;                      /* an empty network namespace, for helpers */
        int host_lower[PLANE_MAX];         /* directories of the host image */
        int lowest;                        /* a file system with what every image needs, below all that it has; -1 until needed */
        char fingerprint[SHA256_HEX];
        int init_image, helper_image, launcher_image;      /* sealed memfds */
        unsigned n_launching;              /* procs whose pid is not known yet */
        bool no_launchers;
        struct child_report *reports;      /* shared memory, one slot a proc */
};

/* ---- spawner.c ---- */
int spawner_send(struct spawn *sp, uint32_t type, uint64_t ref, uint64_t handle, const struct buf *body, const int *fds, size_t n_fds);
void spawner_send_failed(struct spawn *sp, uint64_t ref, uint64_t handle, const struct fault *f);
int timer_arm(struct spawn *sp, uint64_t ms);      /* wakes cells_tick */

/* ---- spawner_sandbox.c ---- */
int op_create(struct spawn *sp, struct message *m, struct fault *f);
int op_destroy(struct spawn *sp, struct message *m, struct fault *f);
int op_kill_all(struct spawn *sp, struct message *m, struct fault *f);
int op_kill_others(struct spawn *sp, struct message *m, struct fault *f);
int op_now(struct spawn *sp, struct message *m, struct fault *f);
int op_socket(struct spawn *sp, struct message *m, struct fault *f);
void cell_end(struct spawn *sp, struct cell *c);               /* removes it; EV_GONE when that is confirmed */
void cell_advance(struct spawn *sp, struct cell *c);           /* something it waits for has happened; may free it */
void cell_check_oom(struct spawn *sp, struct cell *c);
void cell_limit(struct spawn *sp, struct cell *c, enum limit_kind kind);
struct cell *cell_of_pid(struct spawn *sp, pid_t pid);         /* whose init or launcher is it? */
void cell_reaped(struct spawn *sp, struct cell *c, pid_t pid, int status);
void cell_unmounted(struct spawn *sp, int wd);
void cell_swept(struct spawn *sp, uint64_t handle);
bool cells_tick(struct spawn *sp);                             /* true: call again in 100 ms */
void cells_end_all(struct spawn *sp);

/* ---- cell.c: making and unmaking its parts ---- */
int cell_parse(struct spawn *sp, struct cell *c, struct message *m, struct fault *f);
int cell_take_seat(struct spawn *sp, struct cell *c, struct fault *f);
struct cell *cell_new(void);
/* Makes all that is alike in plain sandboxes, with a parked first process; c->spec.limits as expected. */
int cell_prefabricate(struct spawn *sp, struct cell *c, struct fault *f);
/* Makes the rest of it, or all if it is no claimed blank, and starts the first process. */
int cell_build(struct spawn *sp, struct cell *c, struct fault *f);
/* What its execs may do. */
struct sock_fprog;
const struct sock_fprog *cell_filter(const struct cell *c, bool launches);
void cell_confine(const struct cell *c, bool helper, struct confine_plan *ret);
/* /etc/resolv.conf in the upper while it is what build_network wrote, O_PATH; -1: it is not, or there was none. */
int cell_open_resolv_conf(const struct cell *c);
void cell_sample_disk(struct cell *c);
void cell_read_facts(struct cell *c);
/* Detached, read-only views of the planes without what was written, to c->base: of "/" always, of another where a layer holds something, or of
 * all. What is there already stays. */
int cell_base(struct spawn *sp, struct cell *c, bool all);
void cell_drop_upper(struct spawn *sp, struct cell *c);
/* Has the sweeper close what is open of its file systems and network. `handle`: as for sweeper_give. */
void cell_sweep(struct spawn *sp, struct cell *c, uint64_t handle);
void cell_free(struct spawn *sp, struct cell *c);

/* ---- cell_image.c ---- */
/* The image's own directory, O_PATH; -1 in *ret_fd: the host's planes. -EPERM: below no image root. */
int cell_open_base(struct spawn *sp, const char *image, int *ret_fd);
/* What lies below every image of one plane: /proc, /dev, /sys, /tmp, /etc/hosts. A fresh mount, the caller's. */
int cell_lowest(struct spawn *sp, uint64_t attrs, int user_ns);

/* ---- spawner_exec.c ---- */
struct exec_request {                      /* exec_spec as it came, checked */
        const char **argv, **env;          /* owned arrays */
        const char *cwd;
        uint32_t uid, gid;
        bool helper, helper_upper, tty, in_view, freeze_at_end;
        struct exec_fd fds[MESSAGE_FDS_MAX]; size_t n_fds;     /* 0, 1 and 2 are always there; tty: 0 is where its other side goes */
        const char *view;                  /* where a private directory goes, or NULL */
        const char *view_output;               /* and a second one, or NULL */
        int view_pack; uint64_t view_bytes;
        bool view_read_only;
        uint16_t rows, cols;
};
int op_exec(struct spawn *sp, struct message *m, struct fault *f);
int op_exec_kill(struct spawn *sp, struct message *m, struct fault *f);
int op_exec_signal(struct spawn *sp, struct message *m, struct fault *f);
bool execs_prepare(struct spawn *sp);      /* while idle: groups and launchers for the next ones; true: there is more to do */
void procs_release_held(struct spawn *sp, struct cell *c, bool frozen);
int proc_new(struct spawn *sp, struct cell *c, struct proc **ret);
struct proc *proc_of_pid(struct spawn *sp, pid_t pid);
void proc_reaped(struct spawn *sp, struct proc *p, int status, const struct rusage *ru);
/* It never came to be one. */
void proc_failed(struct spawn *sp, struct proc *p, const char *step, int code);
void proc_free(struct spawn *sp, struct proc *p);

/* ---- groups.c ---- */
void group_take(struct cell *c, struct proc *p, bool helper);  /* p->group and its name; -1 where there are none */
void group_give(struct proc *p);
void group_make_spare(struct cell *c);
void groups_kill(struct cell *c);          /* all commands */
void groups_release(struct cell *c);
int freeze_start(struct spawn *sp, struct cell *c);
void freeze_advance(struct spawn *sp, struct cell *c);
int op_freeze(struct spawn *sp, struct message *m, struct fault *f);
int kill_others(struct spawn *sp, struct cell *c, const struct proc *spare);
bool spare_is_alone(struct cell *c);

int group_make(struct cell *c, char name[static GROUP_NAME_MAX]);      /* for commands; its descriptor, or -errno */
void group_drop(struct cell *c, const char *name);             /* removes it now, or when what is left in it is gone */

/* ---- spawner_adopted.c ---- */
int op_adopt(struct spawn *sp, struct message *m, struct fault *f);
int op_adopted(struct spawn *sp, struct message *m, struct fault *f);
void adopted_tick(struct spawn *sp);                           /* looks again at those that are being killed */
void adopted_moved(struct spawn *sp, uint64_t handle, int r);  /* the mover has put it into its group, or not */
void adopted_move_all(struct spawn *sp);                       /* there is no mover any more */
void adopted_release(struct spawn *sp, const struct cell *c);  /* forgets those of a sandbox that is going, untold */

/* ---- spawner_mount.c ---- */
int op_mount(struct spawn *sp, struct message *m, struct fault *f);

/* ---- mover.c ---- */
/* Puts a process into a group; adopted_moved(handle) follows. -errno: it does not. */
int mover_give(struct spawn *sp, uint64_t handle, int group, pid_t pid);
void mover_end(struct spawn *sp);

/* ---- launch.c ---- */
/* While idle: gives the sandbox a launcher if its next command is worth it. True: it took some time. */
bool launcher_prepare(struct spawn *sp, struct cell *c);
/* 1: the launcher has it; 0: it cannot do this one; -errno. */
int launch(struct spawn *sp, struct cell *c, struct proc *p, const struct exec_request *x);
void launcher_listen(struct spawn *sp, struct cell *c);        /* takes what it has said */
void launcher_drop(struct spawn *sp, struct cell *c);          /* closes the socket: it ends */
bool launcher_reaped(struct spawn *sp, struct cell *c, pid_t pid);

/* ---- uppers.c ---- */
bool uppers_fill(struct spawn *sp);        /* starts making one if some are missing: true */
int uppers_take(struct spawn *sp, const struct sandbox_limits *l, uint32_t owner);     /* a mount, or -1 */
void uppers_end(struct spawn *sp);

/* ---- blank.c ---- */
#define BLANKS_WANT 4
int blanks_fill(struct spawn *sp);         /* makes one at most; how many are missing still */
bool blank_claim(struct spawn *sp, struct cell *c);            /* parts for c, if its spec is a plain one and there is a blank */
bool blank_is(struct spawn *sp, pid_t pid);                    /* is it some blank's first process? */
void blank_reaped(struct spawn *sp, pid_t pid);
void blanks_end(struct spawn *sp);

/* ---- sweeper.c ---- */
#define SWEEP_FDS_MAX 8
int sweeper_start(struct spawn *sp, struct error *e);
/* Closes n descriptors; the caller closes its own. Then cell_swept(handle) unless that is 0. -errno: it has not got them. */
int sweeper_give(struct spawn *sp, uint64_t handle, const int *fds, size_t n);
void sweeper_end(struct spawn *sp);        /* when it has closed everything */

/* ---- spawner_layer.c ---- */
int op_layer(struct spawn *sp, struct message *m, struct fault *f);
