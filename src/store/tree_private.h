/* Shared by the files of the tree store; nobody else includes it. */
#pragma once
#include "base/hash.h"
#include "base/map.h"
#include "store/box.h"
#include "store/layer_cache.h"
#include "store/mirror.h"
#include "store/tree.h"

#define TREE_FAILURE_MEMORY_MS (60 * 1000ull)
#define TREE_CHECKOUT_TIMEOUT_MS (600 * 1000ull)
#define TREE_CHECKOUT_BYTES (16ull << 30)
#define TREE_CHECKOUT_INODES (4ull << 20)

enum ticket_step { STEP_LOADING, STEP_RESOLVE, STEP_TREE, STEP_SETUP, STEP_OPEN };

struct tree_ticket {
        struct tree_ticket *next;          /* of the store's */
        struct tree_store *store;
        enum ticket_step step;
        /* the request */
        struct repo_url url;
        int source_fd;
        struct image_chain *image;         /* NULL: the host's own */
        char *wanted, *repo_path, *setup_command, **setup_env;
        enum sandbox_network setup_network;
        struct egress_rules *setup_allow;
        uint64_t setup_timeout_ms;
        uint32_t uid, gid;                 /* both 0: the tree is root's */
        struct sandbox_limits limits;
        char image_digest[SHA256_HEX];
        /* how far it is */
        char commit[65], tree_key[SHA256_HEX];
        struct mirror_ticket *mirror;
        struct tree_build *build;          /* waits for it */
        struct tree_ticket *next_waiting, **settling;  /* settling: the list of those about to be told, which it is in */
        struct cached_layer *tree, *setup, *opening;   /* tree and setup: in use by this ticket */
        bool opened_tree, made_something;
        uint64_t began_ms;
        tree_done done;
        void *user;
};

struct tree_store {
        struct spawner *spawner;
        struct mirror_store *mirrors;
        struct layer_cache *cache;
        struct map builds;
        uv_idle_t idle;
        struct tree_ticket *tickets;
        char **roots, *home;               /* real paths */
        bool any_readable_path;
        char *local_repo; int local_repo_fd;
        bool loaded, closing, mirrors_closed, freed;
        size_t running;                    /* builds with something under way */
        size_t answers;                    /* given and not released */
        void (*closed)(void *user);
        void *closed_user;
};

void tree_ticket_go_on(struct tree_ticket *t);
void tree_ticket_fail(struct tree_ticket *t, enum tree_failure failure, const struct error *e);
void tree_store_maybe_free(struct tree_store *ts);

/* tree_build.c */
const char *tree_build_key(const struct map_node *n);
/* The ticket waits for the build of `key`, started if need be; it goes on, or fails, later or now. */
void tree_build_join(struct tree_ticket *t, enum layer_kind kind, const char *key);
void tree_build_leave(struct tree_ticket *t);
void tree_builds_forget(struct tree_store *ts);    /* what is remembered of failures */

/* tree_policy.c: which local directories may be read */
int tree_policy_init(struct tree_store *ts, const struct tree_store_config *cfg, struct error *e);
void tree_policy_release(struct tree_store *ts);
/* Checks and opens: what tree_url_check says, and for a local repository its directory, by its real path. */
int tree_address(struct tree_store *ts, const char *repo_url, const char *commit, struct repo_url *ret, int *ret_source_fd, struct error *e);
