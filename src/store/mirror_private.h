/* Shared by the files of the mirrors; nobody else includes it. */
#pragma once
#include "base/map.h"
#include "store/box.h"
#include "store/mirror.h"

struct mirror_ticket {
        struct mirror_ticket *next;
        struct mirror *mirror;
        struct repo_url url;
        char *commit;
        enum commit_kind kind;
        int source_fd;
        bool covered;              /* the present run answers it */
        mirror_done done;
        void *user;
};

enum mirror_state { MIRROR_IDLE, MIRROR_MAKING, MIRROR_FETCHING, MIRROR_JOINING, MIRROR_CLEANING, MIRROR_REMOVING };

struct mirror {
        struct map_node node;
        struct mirror_store *store;
        char id[65], incoming[65];
        enum mirror_state state;
        struct mirror_ticket *queue, *lead;    /* lead: whose words the run uses; stays in the queue as long as the run */
        struct box *box;
        unsigned holds;            /* checkouts that read it */
        bool dirty;                /* something may lie in the quarantine */
        bool finishing;            /* callbacks are being run */
        bool unwanted;             /* the run was cancelled: nobody joins it any more */
        char commit[65];           /* what the fetch found */
};

struct mirror_store {
        struct spawner *spawner;
        struct map mirrors;
        int home_fd, state_fd;
        uint64_t max_bytes;
        char **env;
        struct fetch_ssh ssh;
        bool closing;
        void (*closed)(void *user);
        void *closed_user;
};

/* mirror.c */
/* Ends the run: answers everybody whom it covers, clears the quarantine, and goes on with the queue. `e`: for a failure. */
void mirror_finish(struct mirror *m, enum mirror_end end, const struct error *e);
bool mirror_is_wanted(const struct mirror *m);         /* does anybody still wait for the run? */
int mirror_mark_private(struct mirror *m);             /* from now on access is proved each time */

/* mirror_run.c */
/* Starts a run with the words of `lead`; mirror_finish ends it. -errno: it did not start. */
int mirror_run(struct mirror *m);
const char *mirror_ssh_command(const struct fetch_ssh *ssh);   /* GIT_SSH_COMMAND=... */
