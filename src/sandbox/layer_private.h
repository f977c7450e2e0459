/* Shared by the files of layer_image; nobody else includes it. */
#pragma once
#include "base/map.h"
#include "sandbox/layer_image.h"
#include "sandbox/layer_job.h"

struct layer_entry {               /* a mounted image: being made, or published and open */
        struct map_node node;
        struct layer_manifest m;   /* making: id, kind unknown, range_base only */
        int mount_fd;
        bool making, attached;
};

struct layer_images {
        struct map entries;
        struct layer_job *jobs;    /* running */
        int dir_fd, mirrors_fd, mnt_fd;
        int clones_detached;       /* -1 not asked yet */
        uint32_t store_id;
};

struct layer_plane { const char *plane, *in_setup, *in_tree; };
extern const struct layer_plane layer_planes[3];

struct layer_entry *layer_find(struct layer_images *li, const char *id);
/* Takes mount_fd over, also on failure. */
int layer_entry_add(struct layer_images *li, const struct layer_manifest *m, int mount_fd, bool making);
void layer_forget(struct layer_images *li, struct layer_entry *en);
int layer_manifest_read(int dirfd, const char *id, struct layer_manifest *ret);
void layer_job_abort(struct layer_job *j);
/* Tests: as on a kernel that cannot clone from a detached mount. */
void layer_images_force_attach(struct layer_images *li);
/* Deletes a directory and what is in it, links not followed, at any depth. */
int layer_remove_tree(int dirfd, const char *name);
