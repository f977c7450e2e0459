/* Layers and mirrors, as the daemon sees them: named things that the spawner keeps on disk and mounts into sandboxes.
 *
 * A layer is being made (UPPER_LAYER of one sandbox), then published or dropped; a published one is opened (mounted once,
 * shared by every sandbox that lists it), closed when unused, and removed. All calls are requests to the spawner; `done`
 * runs later, from the loop, exactly once, unless the spawner is lost. Loop thread only. */
#pragma once
#include <stdint.h>

#include "base/error.h"

struct spawner;

#define LAYER_FORMAT 1             /* raise it when what a layer holds changes: old ones are deleted at start */
#define LAYER_ID_SIZE 65           /* [0-9a-f]{1,64} and NUL */

enum layer_kind {
        LAYER_TREE,                /* a checkout, made at LAYER_TREE_PREFIX of the making sandbox; fits every image */
        LAYER_SETUP,               /* what a set-up command changed, one upper per plane of the image it ran on */
        LAYER_IMAGE,               /* of an image: laid out as a set-up */
        LAYER_KIND_MAX,
};
STRING_TABLE_DECLARE(layer_kind);  /* "tree", "setup", "image" */
#define LAYER_TREE_PREFIX "/tree"

struct layer_manifest {
        char id[LAYER_ID_SIZE];
        enum layer_kind kind;
        uint32_t range_base;       /* filled by the spawner: host id of root on its files */
        char key[LAYER_ID_SIZE];           /* what it was made from: the daemon's name for it. Ids are random, never used twice */
        char parent[LAYER_ID_SIZE];        /* id of the layer below, "" without */
        char commit[LAYER_ID_SIZE], tree_hash[LAYER_ID_SIZE];
        int64_t commit_time;
        char opaque[1024];         /* LAYER_TREE: path of the tree, which hides what an image has there; "" = none */
        uint64_t bytes;            /* filled by the spawner: blocks on disk */
        int64_t made_ms;           /* wall */
};

typedef void (*layer_done)(int r, const struct error *e, void *user);
/* `m` in the callback is as published, NULL on failure; -EBUSY: the making sandbox is not gone. A published layer is open. */
typedef void (*layer_published)(int r, const struct layer_manifest *m, const struct error *e, void *user);
int layers_publish(struct spawner *sp, const struct layer_manifest *m, layer_published done, void *user);
int layers_open(struct spawner *sp, const char *id, layer_done done, void *user);
int layers_close(struct spawner *sp, const char *id);
int layers_remove(struct spawner *sp, const char *id, layer_done done, void *user);      /* published, or being made */
/* `each` for every published layer, then `done`. */
int layers_list(struct spawner *sp, void (*each)(const struct layer_manifest *m, void *user), layer_done done, void *user);

int mirrors_make(struct spawner *sp, const char *id, layer_done done, void *user);
int mirrors_remove(struct spawner *sp, const char *id, layer_done done, void *user);
