/* Prepared trees: a repository at a commit, set up once, kept as a read-only layer, shared by every run that asks for the
 * same key. Mirrors (store/mirror.h) bring the objects; a set-up sandbox checks them out and runs setup_command; the
 * sandbox's upper image becomes the layer (store/layer.h). Set-up and publication are one at a time per key; requests that
 * ask meanwhile share the answer; failures are remembered for 60 s.
 *
 * Key: (image digest, canonical URL without credentials, resolved commit, repo_path, setup_command, set-up network and
 * environment, owner, layer format). It is two layers: the checkout (address, commit, repo_path, owner), which fits every image, and above
 * it, where a setup_command is given, what that command changed. Loop thread only. */
#pragma once
#include "sandbox/sandbox.h"
#include "store/image_store.h"
#include "store/mirror.h"

struct tree_store;
struct tree_ticket;

enum tree_failure {                /* codes of the wire (error.code) */
        TREE_OK, TREE_REPO_UNREACHABLE, TREE_COMMIT_NOT_FOUND, TREE_IMAGE_NOT_FOUND /* it went while it was used */, TREE_SETUP_FAILED, TREE_SETUP_TIMEOUT,
        TREE_DISK_FULL, TREE_INTERNAL, TREE_FAILURE_MAX,
};
STRING_TABLE_DECLARE(tree_failure);

struct tree_request {
        const char *repo_url;      /* as the client gave it, credentials included; validated by tree_url_check */
        const char *commit;        /* full hash or a name: names are resolved at the remote for each request */
        struct image_chain *image; /* what setup_command runs in; a reference is taken. NULL: the host's own */
        const char *image_digest;  /* 64 hex; not looked at without `image` */
        const char *repo_path;     /* absolute, "/testbed" */
        const char *setup_command; /* NULL or "" = none */
        enum sandbox_network setup_network;
        struct egress_rules *setup_allow;  /* NETWORK_ALLOW; else NULL */
        const char *const *setup_env;      /* "K=V", NULL-terminated, sorted by the caller */
        uint64_t setup_timeout_ms;
        uint32_t uid, gid;         /* who runs in the tree, and owns it; with uid 0 it is root's, whatever the group */
        struct sandbox_limits limits;
};

struct tree {                      /* answer; strings live until tree_release */
        char commit[65];           /* resolved, lower-case hex; "" of an image's tree */
        const char *image_digest;  /* 64 hex */
        const char *tree_hash;     /* git's own tree id of the commit, hex; of an image's tree: see tree_of_image */
        const char *const *layers; /* for sandbox_spec.layers */
        int64_t commit_time;       /* s since the epoch: mtime of the base files */
        bool cached;               /* nothing had to be made */
        uint64_t prepare_ms;
};

/* 0, or -EINVAL with a reason that names the field (400): leading '-', ext::, forbidden scheme, local path outside the roots
 * or unreadable. A local path that does not exist where any readable one may be named is no fault of the request: it passes
 * here, and tree_acquire says -ENOENT. */
int tree_url_check(struct tree_store *ts, const char *repo_url, const char *commit, struct error *e);

typedef void (*tree_done)(struct tree *t, enum tree_failure failure, const struct error *e, void *user);  /* t NULL on failure */
int tree_acquire(struct tree_store *ts, const struct tree_request *req, tree_done done, void *user, struct tree_ticket **ret, struct error *e);
/* The tree that an image has at repo_path, for tree_release: no layers, no commit, nothing is made; `tree_hash` is of the image's digest
 * and the path. At once. Nobody has looked whether the path is there. -ENOMEM. */
int tree_of_image(struct tree_store *ts, const char *image_digest, const char *repo_path, struct tree **ret);
void tree_cancel(struct tree_ticket *t);       /* the callback will not run; work shared with others goes on */
void tree_release(struct tree_store *ts, struct tree *t);    /* layers become evictable */

struct tree_store_config {
        const char *home;
        uint64_t max_bytes;                    /* of layers, LRU, never one in use */
        uint64_t mirror_max_bytes;             /* the same of mirrors; 0 = no bound */
        const char *const *repo_roots;         /* BRIG_REPO_ROOTS; NULL = default rule */
        bool any_readable_path;                /* default rule: loopback only; the CLI's own --repo */
        /* One more directory that may be read, opened by somebody who may (root, before it became the daemon): the path as a
         * request will name it, and its descriptor, duplicated; NULL without. */
        const char *local_repo; int local_repo_fd;
        const char *const *fetch_env;          /* operator's additions to git's environment when it fetches (proxies), copied; may be NULL */
        struct fetch_ssh ssh;
};
int tree_store_open(uv_loop_t *loop, struct spawner *sp, const struct tree_store_config *cfg, struct tree_store **ret, struct error *e);
/* The disk is short of so many bytes: the least used layers go. Returns how many bytes are on their way out. */
uint64_t tree_store_shed(struct tree_store *ts, uint64_t bytes);
/* Cancels what is being made (no callback of a ticket runs any more), waits until its sandboxes are gone, frees the store, then
 * calls `done`. The spawner must live until then. */
void tree_store_close(struct tree_store *ts, void (*done)(void *user), void *user);
