/* Sandboxes, as the daemon sees them: asynchronous, on one libuv loop, by way of the spawner.
 *
 * Theory of operation. The daemon holds no privilege. `spawner_start` runs the privileged spawner (a re-exec of this
 * program) and keeps a SOCK_SEQPACKET to it; everything below is a typed request on that socket and a callback when the
 * answer, or the event, arrives. The life of a sandbox:
 *
 *     sandbox_create ──> CREATING ──ready──> READY ──sandbox_destroy──> DESTROYING ──gone──> freed
 *                            └──failed (gone follows at once)                 ^
 *                            a limit that kills (oom, wall, disk) ────────────┘ only when somebody calls destroy
 *
 * `gone` is called exactly once for each sandbox that sandbox_create returned, after the kernel confirmed that no
 * process, mount, cgroup, link or directory of it is left; the object is freed when it returns. Execs of a sandbox end
 * (their `exited` callback runs) before `gone`.
 *
 * Threads: everything here belongs to the loop's thread. Callbacks run from the loop, never from inside the call that
 * started the work. Ownership: specs are read during the call and may be temporary; descriptors in a spec stay the
 * caller's (they are duplicated by the kernel when passed). */
#pragma once
#include <stdbool.h>
#include <sys/resource.h>
#include <uv.h>

#include "base/error.h"
#include "egress/egress.h"

struct spawner;
struct sandbox;
struct sandbox_exec;

/* ---- limits and what they say ------------------------------------------------------------------------------- */

enum limit_kind { LIMIT_MEMORY, LIMIT_PIDS, LIMIT_DISK, LIMIT_OUTPUT, LIMIT_WALL, LIMIT_KIND_MAX };
STRING_TABLE_DECLARE(limit_kind);      /* "oom", "pids_limit", "disk_limit", "output_limit", "timeout" */

struct sandbox_limits {
        uint64_t memory_bytes;     /* 4 GiB; with a tmpfs upper held by samples: the cgroup's limit is this plus its size */
        uint64_t cpu_milli;        /* 1000 = one core; 0 = all */
        uint64_t pids;             /* 4096 */
        uint64_t disk_bytes;       /* 8 GiB: size of the writable layer */
        uint64_t inodes;           /* 1,000,000 in it */
        uint64_t output_bytes;     /* 64 MiB a stream on disk, per exec */
        uint64_t open_files;       /* 4096, RLIMIT_NOFILE */
        uint64_t wall_ms;          /* 4 h for the sandbox as a whole; execs have their own timeout */
};
void sandbox_limits_default(struct sandbox_limits *ret);

struct sandbox_usage {             /* a value that the kernel could not give is -1 */
        int64_t wall_ms, cpu_ms;
        int64_t memory_peak_bytes, pids_peak, disk_bytes;
};

/* ---- what a sandbox is made of ------------------------------------------------------------------------------ */

#define SANDBOX_STEP_IMAGE "open the image"   /* the step that fails where the image is not there for us */

enum sandbox_profile {
        PROFILE_SCORE,     /* no-new-privs, CHOWN DAC_OVERRIDE FOWNER SETUID SETGID KILL at most */
        PROFILE_SETUP,     /* root inside must be able to install packages: a container runtime's set minus MKNOD, NET_RAW */
        PROFILE_SESSION,
        PROFILE_RLM,       /* as PROFILE_SCORE; turns drop to uid 1000 and keep nothing */
        PROFILE_FETCH,     /* Brig's own git, in the host's network namespace; spawner accepts it with a mirror mount only */
        PROFILE_MAX,
};
enum sandbox_network {
        NETWORK_NONE, NETWORK_OPEN, NETWORK_HOST /* PROFILE_FETCH only */,
        NETWORK_ALLOW,     /* what spec.allow lists, through the daemon: see egress/egress.h and sandbox_egress */
        NETWORK_MAX,
};
STRING_TABLE_DECLARE(sandbox_network); /* "none", "open", "host", "allow" */

enum sandbox_upper { UPPER_TMPFS, UPPER_DISK /* sparse ext4 image */, UPPER_LAYER /* an image that may become a layer */, UPPER_MAX };

/* A place the spawner knows by class and id below a root it opened at start; never a host path from a request. */
enum mount_class {
        MOUNT_MIRROR,      /* $BRIG_HOME/mirrors/<id>, id-mapped from the store's range; read-only unless `writable` */
        MOUNT_SOURCE,      /* a directory whose descriptor the daemon opened (and so may read); read-only, nosuid, nodev */
        MOUNT_CLASS_MAX,
};
struct sandbox_mount {
        enum mount_class class;
        const char *id;            /* [0-9a-f]{1,64}; NULL for MOUNT_SOURCE */
        int fd;                    /* MOUNT_SOURCE only: O_PATH directory */
        const char *target;        /* absolute path inside */
        bool writable;             /* MOUNT_MIRROR with PROFILE_FETCH only; else refused */
};

/* A read-only file that appears below /run/brig, content from a memfd. */
struct sandbox_file {
        const char *name;          /* one component */
        int fd;                    /* sealed memfd */
        mode_t mode;               /* 0444 or 0555 */
};

#define IMAGE_HOST "host"          /* the built-in image */
#define IMAGE_SCRATCH "scratch"    /* no file at all: everything comes from the layers. Anything else is the absolute path of a directory image */

#define SANDBOX_USER 1000u         /* whose `user_dir` is */
struct sandbox_spec {
        const char *id;            /* names it in logs; [0-9a-z-]{1,64} */
        enum sandbox_profile profile;
        const char *image;         /* IMAGE_HOST, IMAGE_SCRATCH or a directory below the operator's image roots */
        const char *const *layers; /* ids, bottom first, NULL-terminated; may be NULL */
        enum sandbox_upper upper;
        const char *upper_layer;   /* UPPER_LAYER: id of the layer being made */
        enum sandbox_network network;
        struct egress_rules *allow;        /* NETWORK_ALLOW: what may be reached; the sandbox takes a reference of its own */
        struct sandbox_limits limits;
        const struct sandbox_mount *mounts; size_t n_mounts;
        const struct sandbox_file *files; size_t n_files;
        const char *hostname;      /* "brig" when NULL */
        const char *user_dir;      /* a directory that is made, or given, to uid and gid SANDBOX_USER inside; absolute, not below /usr or /opt. NULL = none */
        uint64_t cap_drop;         /* 1 << CAP_x each: taken from the set of the profile; PROFILE_SESSION only, else refused */
};
/* "NET_BIND_SERVICE", "CAP_NET_BIND_SERVICE" (any case), "ALL" -> bits for cap_drop. -EINVAL: no such capability. */
int sandbox_cap_parse(const char *name, uint64_t *ret);

/* Ends of a sandbox. */
struct sandbox_end {
        struct sandbox_usage usage;
        bool hit[LIMIT_KIND_MAX];  /* limits that fired, from the kernel's own counters (OUTPUT, WALL: from ours) */
        bool has_network;          /* NETWORK_ALLOW */
        struct egress_counters network;
};

struct sandbox_callbacks {
        void (*ready)(struct sandbox *s, void *user);
        /* Our fault or the operator's; the spec was right. `step` is the spawner's name of the operation. */
        void (*failed)(struct sandbox *s, const char *step, const struct error *e, void *user);
        /* Called at once when a limit fires that ends the sandbox's work (its processes are being killed). */
        void (*limit)(struct sandbox *s, enum limit_kind kind, void *user);   /* may be NULL */
        void (*gone)(struct sandbox *s, const struct sandbox_end *end, void *user);
};

struct exec_spec;
struct exec_end;

int sandbox_create(struct spawner *sp, const struct sandbox_spec *spec, const struct sandbox_callbacks *cb, void *user,
                   struct sandbox **ret, struct error *e);
/* A sandbox for one command: `first` is its PID 1, there is no init and no further exec; cheaper by a process. When it ends,
 * everything it started is dead, `exited` runs, and the sandbox goes by itself: `gone` follows without sandbox_destroy. If it cannot be executed, `exited` runs with started = false, then cb->failed, then gone. */
int sandbox_create_direct(struct spawner *sp, const struct sandbox_spec *spec, const struct sandbox_callbacks *cb, void *user,
                          const struct exec_spec *first, void (*exited)(struct sandbox_exec *x, const struct exec_end *end, void *user),
                          void *exec_user, struct sandbox **ret, struct sandbox_exec **ret_exec, struct error *e);
uv_loop_t *sandbox_loop(const struct sandbox *s);
/* Kills everything and removes everything; idempotent, at any moment. */
void sandbox_destroy(struct sandbox *s);
/* Kills every process but the init, and waits until they are gone: `done` runs when only the init is left. */
int sandbox_kill_all(struct sandbox *s, void (*done)(struct sandbox *s, void *user), void *user);
/* As sandbox_kill_all, but what `spare` (an exec that has started: else -EAGAIN) and its children run lives on. `done` runs once with 0
 * or -errno (-EOPNOTSUPP: execs have no control groups of their own here). */
int sandbox_kill_others(struct sandbox *s, struct sandbox_exec *spare, void (*done)(struct sandbox *s, int r, void *user), void *user);
/* NETWORK_ALLOW, from `ready` until `gone` has returned: rules, counters and deny log; else NULL. Rules may be changed at any time. */
struct egress_net *sandbox_egress(struct sandbox *s);

/* Stops every process of its execs where it stands, and lets them go on. While frozen, helpers run, other execs fail with
 * -EBUSY, kills and sandbox_destroy work; time limits of execs go on. `done` runs once with 0 or -errno (-ETIMEDOUT: some
 * process would not stop within FREEZE_MAX_MS, and all go on; -EOPNOTSUPP; -ESHUTDOWN: the sandbox has ended). Idempotent. */
#define FREEZE_MAX_MS 5000
#define SANDBOX_ASKS_MAX 512       /* freezes, thaws and questions of a sandbox that may wait for their answer; -EBUSY beyond */
int sandbox_freeze(struct sandbox *s, void (*done)(struct sandbox *s, int r, void *user), void *user);
int sandbox_thaw(struct sandbox *s, void (*done)(struct sandbox *s, int r, void *user), void *user);

struct sandbox_now {               /* at this moment; a value that the kernel could not give is -1 */
        int64_t cpu_us, memory_bytes, memory_peak_bytes, pids, pids_peak;     /* memory: with the file cache it caused and what its tmpfs hold */
        int64_t disk_bytes, disk_free_bytes, inodes, inodes_free;
        bool frozen;
};
/* `now` is NULL when r < 0. */
int sandbox_usage_now(struct sandbox *s, void (*done)(struct sandbox *s, int r, const struct sandbox_now *now, void *user), void *user);

/* A stream socket of its network namespace, non-blocking and neither bound nor connected, that becomes the caller's: what it connects to, or
 * is bound to, is as seen from inside (abstract names of Unix sockets too). It keeps the namespace, so close it when the sandbox ends. fd is
 * -1 when r < 0. Needs no way out of the sandbox. */
enum sandbox_socket_kind { SOCKET_IPV4, SOCKET_IPV6, SOCKET_UNIX, SOCKET_KIND_MAX };
int sandbox_socket(struct sandbox *s, enum sandbox_socket_kind kind, void (*done)(struct sandbox *s, int r, int fd, void *user), void *user);

/* A directory of a workspace appears at `target` of a standing sandbox, for everybody in it; what was there is covered until the sandbox ends. Where
 * directories of `path` or `target` are not there they are made: those of the workspace belong to SANDBOX_USER inside, those of the sandbox to root
 * inside. No link is followed. `done` runs once: 0, and what is seen at `target` by that name is the directory; or -errno, and nothing is mounted
 * (-ENOTDIR: something else is in the way, a link or a file; -ESTALE: it was mounted, and is not what is seen; -ENOSPC: SANDBOX_MOUNTS_MAX; -EPERM: PROFILE_RLM
 * only). Mounted nosuid and nodev. The files outlive the sandbox: they belong to no limit of it. */
#define WORKSPACES_DIR "workspaces"        /* in the home: root's, and what is below is the sandboxes' */
#define WORKSPACE_PATH_MAX 1024u
#define WORKSPACE_DEPTH_MAX 16u
#define SANDBOX_MOUNTS_MAX 16u
struct sandbox_bind {
        const char *path;          /* below $BRIG_HOME/workspaces: components [0-9A-Za-z_-][0-9A-Za-z._-]{0,127}, at most WORKSPACE_DEPTH_MAX */
        const char *target;        /* absolute, no "." or ".." */
        bool writable;
};
int sandbox_mount(struct sandbox *s, const struct sandbox_bind *bind, void (*done)(struct sandbox *s, int r, void *user), void *user);

/* ---- processes in it ------------------------------------------------------------------------------------------ */

struct output_capture;             /* sandbox/capture.h: head and tail in memory, full log on disk, byte limit */

struct exec_fd { int fd; int target; };

struct exec_tty { uint16_t rows, cols; };

/* A directory that only this exec and what it starts can see: it has a mount namespace of its own, a copy of the sandbox's, in
 * which a fresh tmpfs covers `target`. Everybody else sees there what was there, a directory made for it if nothing was
 * (a link or file in that place goes). Writable for root inside unless `read_only`; its memory counts as the sandbox's. */
struct exec_view {
        const char *target;        /* absolute, no "." or ".."; links on the way are resolved within the sandbox */
        int pack_fd;               /* what is in it: a sealed memfd from sandbox/file_pack.h; -1 = nothing */
        uint64_t bytes;            /* size of the tmpfs; 0 = VIEW_BYTES */
        bool read_only;
        const char *output;        /* one more such place, empty, of the same size, writable for everybody inside; NULL = none. Neither within the other */
};
#define VIEW_BYTES (256ull << 20)
#define VIEW_INODES 65536

struct exec_spec {
        const char *const *argv;   /* NULL-terminated; argv[0] is looked up in PATH of `env` when it has no slash */
        const char *const *env;    /* NULL-terminated; built from nothing: exactly this */
        const char *cwd;
        uint32_t uid, gid;         /* inside; 0 = root inside */
        int stdin_fd;              /* -1 = /dev/null; else the caller's: a pipe, a socket, a file */
        bool stdin_pipe;           /* instead of stdin_fd: a pipe that exec_write fills */
        /* Captures for stdout and stderr (may be the same object: interleaved); owned by the caller and must live until
         * `exited`. NULL = /dev/null, unless `output` is set. */
        struct output_capture *out, *err;
        /* Output as it comes, beside the captures or instead of them. `stream` is 1 or 2 (1 for both where out == err != NULL, and for a
         * terminal). Never after `exited`, whose user it gets; bytes are valid during the call. See exec_hold. */
        void (*output)(struct sandbox_exec *x, int stream, const void *p, size_t n, void *user);
        void (*writable)(struct sandbox_exec *x, void *user);  /* exec_write took less than it was given: there is room again. May be NULL */
        void (*started)(struct sandbox_exec *x, void *user);   /* it is born (whether its program executes is told by exec_end). May be NULL */
        uint64_t output_bytes;     /* most a stream before it is killed; 0 = limits.output_bytes, UINT64_MAX = no limit */
        /* Descriptors at these numbers; 1 and 2 too, where neither capture nor `output` nor tty wants them. */
        const struct exec_fd *fds; size_t n_fds;
        /* A terminal of its own as stdin, stdout, stderr and controlling terminal; stdin_*, err and fds 0 to 2 are not looked at.
         * Input by exec_write, output to `out` and `output`. */
        const struct exec_tty *tty;
        uint64_t timeout_ms;       /* from process start; 0 = none. SIGKILL to it and what it started, and to nobody else */
        bool helper;               /* Brig's own static helper: argv[0] is its verb; the sandbox's mount and user namespace, not
                                    * its PID namespace; no network; CHOWN, DAC_OVERRIDE, FOWNER only. Mounts of the sandbox's
                                    * layers without the upper are passed at descriptor HELPER_BASE_FD, the root at HELPER_ROOT_FD. */
        const struct exec_view *view;      /* see there; not for helpers */
        bool in_view;              /* helpers: "/" is as the last exec with a view saw it, also after its end. -ENOENT: there was none */
        /* When its main process ends, all execs' processes are frozen (sandbox_freeze) before `exited` runs. exec_end.frozen
         * says whether that could be done. */
        bool freeze_at_end;
        bool helper_upper;         /* and the uppers of its planes as they lie on disk, read only by convention: HELPER_UPPER_FD */
};
#define HELPER_ROOT_FD 3           /* "/" of the sandbox */
#define HELPER_BASE_FD 4           /* read-only view of "/" as it was before anything was written */
#define HELPER_BASE_USR_FD 5       /* the same of "/usr" and "/opt", which are mounts of their own: open only where a layer holds */
#define HELPER_BASE_OPT_FD 6       /* something there */
#define HELPER_FIRST_FREE_FD 7
#define HELPER_UPPER_FD 250        /* of "/", then of "/usr" and "/opt", where they are planes of their own */
#define HELPER_OWN_FD 253          /* with them: the file in the upper of "/" that is ours, /etc/resolv.conf while nothing there has changed it */

struct exec_end {
        bool started;              /* false: the program could not be executed (`error` says why) and nothing ran */
        struct error error;
        int status;                /* wait status, as from waitpid: use WIFEXITED and friends */
        bool timed_out;
        bool output_limit;         /* killed because a stream passed limits.output_bytes */
        bool sandbox_ended;        /* the sandbox was destroyed or hit a limit first */
        bool frozen;               /* as freeze_at_end asked */
        uint64_t wall_ms;
        struct rusage rusage;
};

/* `exited` runs when the main process has ended (what it left behind does not hold it back) and what it and its
 * children had written by then is in the captures. */
int sandbox_exec(struct sandbox *s, const struct exec_spec *spec, void (*exited)(struct sandbox_exec *x, const struct exec_end *end, void *user),
                 void *user, struct sandbox_exec **ret, struct error *e);
/* All of these only until `exited` has run: the object is gone then. */
int exec_signal(struct sandbox_exec *x, int sig);    /* to the main process */
int exec_kill(struct sandbox_exec *x);               /* SIGKILL to it and to what it started; `exited` follows */
/* Stops or resumes reading its output: what it writes waits in the pipe, and it waits when that is full. What the pipe
 * holds at its end is delivered all the same. */
void exec_hold(struct sandbox_exec *x, bool hold);
/* Delivers what its pipes hold at this moment, held or not: for whoever hears by another way that all is written. */
void exec_drain(struct sandbox_exec *x);
/* With stdin_pipe or tty. Bytes taken, 0 to n: with less than n, `writable` is called when there is room. -EPIPE: nobody reads
 * any more; -ENOTCONN: it has no such input. */
ssize_t exec_write(struct sandbox_exec *x, const void *p, size_t n);
void exec_close_input(struct sandbox_exec *x);       /* end of file for stdin_pipe; of a terminal: no effect (write its end-of-file character) */
int exec_tty_resize(struct sandbox_exec *x, uint16_t rows, uint16_t cols);    /* the kernel tells it by SIGWINCH */

/* ---- processes that one of its execs has started ---------------------------------------------------------------------------
 *
 * Such a process can be given a control group of its own, to be signalled, killed and counted with all that it starts. It must be root
 * inside, live in the sandbox, and be none of our own; the spawner checks it. `pidfd` stays the caller's, and may come from a number: whoever
 * must be sure that it was not taken by another process in between, asks the process for a sign of life afterwards. */

struct sandbox_adopted;
struct adopted_callbacks {
        void (*adopted)(struct sandbox_adopted *a, void *user);
        /* Once, last: nothing of it is left, neither process nor group, or (r < 0) it was not adopted, and lives on: -ESRCH it is dead,
         * -EPERM it may not be, -EOPNOTSUPP there are no groups here, -ESHUTDOWN the sandbox has ended (and all of it with it). The object is gone
         * when it returns. */
        void (*empty)(struct sandbox_adopted *a, int r, int64_t cpu_us, void *user);
};
int sandbox_adopt(struct sandbox *s, int pidfd, const struct adopted_callbacks *cb, void *user, struct sandbox_adopted **ret);
/* All: -EAGAIN before `adopted`. `done` runs once, unless `empty` does before; may be NULL. */
int adopted_signal(struct sandbox_adopted *a, int sig, void (*done)(struct sandbox_adopted *a, void *user));   /* to the adopted process itself; it has it when `done` runs */
int adopted_kill(struct sandbox_adopted *a);         /* SIGKILL to all of the group; `empty` follows */
int adopted_usage(struct sandbox_adopted *a, void (*done)(struct sandbox_adopted *a, int64_t cpu_us, void *user));   /* -EBUSY: is being asked */
/* Its callbacks will not run any more. The group lives on until it is empty or the sandbox ends. */
void adopted_forget(struct sandbox_adopted *a);

/* ---- the spawner, daemon side ---------------------------------------------------------------------------------- */

struct spawner_config {
        const char *home;                    /* BRIG_HOME, absolute */
        const char *const *image_roots;      /* directories below which directory images may lie; NULL-terminated, may be NULL */
        const char *const *network_allow;    /* IPv4 ranges that `open` may reach although private, NULL-terminated; may be NULL */
        uint32_t id_base;                    /* BRIG_ID_BASE: first host id of the ranges (a multiple of 65,536) */
        uint32_t daemon_uid, daemon_gid;     /* what the daemon becomes; the socket's other end is this user */
        const char *instance;                /* instance id ([0-9a-z]{1,32}): everything made on the machine carries it */
        const char *program;                 /* the brig program; NULL = this one */
};

/* Starts the spawner process. Call as root, before threads and before dropping privileges. */
int spawner_start(uv_loop_t *loop, const struct spawner_config *cfg, struct spawner **ret, struct error *e);
/* Fingerprint of the host image: 64 hex digits. */
const char *spawner_image_digest(const struct spawner *sp);
#define SPAWNER_LOST_S 20     /* once the daemon is gone it removes what it has, and ends within this time whatever happens */
/* Who carries connections of sandboxes with NETWORK_ALLOW; without, they are refused (-EOPNOTSUPP). Must outlive every sandbox. */
void spawner_set_egress(struct spawner *sp, struct egress *eg);
pid_t spawner_pid(const struct spawner *sp);
const char *spawner_describe(const struct spawner *sp);     /* one line for the log: cgroup backend and controllers */
/* `lost` runs once if the spawner dies: every sandbox is gone with it; the daemon records and exits. */
void spawner_on_lost(struct spawner *sp, void (*lost)(void *user), void *user);
/* Asks it to kill and remove everything, then to exit; `done` runs after that. */
void spawner_stop(struct spawner *sp, void (*done)(void *user), void *user);
void spawner_free(struct spawner *sp);
/* The privileged side: `brig spawner` (hidden verb) calls this with the socket; does not return but to exit. */
int spawner_main(int socket_fd);
