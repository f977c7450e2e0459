/* What the spawner and the launcher in a sandbox say to each other; theory of operation in launcher.c. Also read without a C library. */
#pragma once
#include <stdint.h>

#define LAUNCH_BYTES_MAX 32768u            /* of one request: what is larger goes the long way (child_join) */
#define LAUNCH_FDS_MAX 36u
#define LAUNCH_SLOTS 8u                    /* children on their way to execve at one time */
#define LAUNCH_NONE UINT32_MAX

enum launch_fd { LAUNCH_CONTROL_FD, LAUNCH_USER_NS_FD, LAUNCH_NULL_FD, LAUNCH_FIRST_FD };       /* what it holds; from the last on, what arrives */

/* One datagram, with the descriptors: the group to be born in, then one for each of target. */
struct launch_request {
        uint64_t handle;                   /* comes back */
        uint64_t caps;
        uint64_t nofile_soft, nofile_hard;
        uint32_t securebits, no_new_privs, uid, gid;
        uint32_t last_cap;                 /* the kernel's highest */
        uint32_t n_argv, n_env;
        uint32_t cwd;                      /* where in the text, or LAUNCH_NONE */
        uint32_t path;                     /* where in the text is the list to look argv[0] up in, or LAUNCH_NONE */
        uint32_t n_fds;
        uint8_t target[LAUNCH_FDS_MAX];
        uint32_t n_text;
        /* n_argv + 1 + n_env + 1 uint64_t: 1 + where in the text, 0 at the end of each list; then the text, strings with their NULs */
};

enum launch_step {
        LAUNCH_OK, LAUNCH_REQUEST, LAUNCH_CLONE, LAUNCH_USER_NS, LAUNCH_FDS, LAUNCH_LIMITS, LAUNCH_BOUNDING, LAUNCH_FILTER, LAUNCH_IDS, LAUNCH_PRIVILEGES,
        LAUNCH_CWD, LAUNCH_EXECUTE, LAUNCH_STEP_MAX,
};

/* LAUNCH_OK: it is born, and the message's credentials name it. Else it never came to run its program. */
/* The first, with handle 0, says that it is there. */
struct launch_answer { uint64_t handle; uint32_t step; int32_t code; };
