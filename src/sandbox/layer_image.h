/* Layer images, the privileged side: sparse ext4 files below $BRIG_HOME/layers, made, mounted, published and removed by the
 * spawner. The daemon's side is sandbox/layers.h.
 *
 * Theory of operation. An image is made under a name of its own (.<id>.tmp), mounted read-write through a loop device that
 * clears itself, and handed to the root file system of one set-up sandbox as the place of its uppers. When that sandbox is
 * gone, publication makes the superblock read-only (the kernel refuses while anybody could still write, and writes
 * everything out), fsyncs the file, writes the manifest, and renames: the rename is the one moment at which the layer
 * exists. From then on the same mount serves as a lower. After a restart it is mounted afresh, read-only, on first use.
 *
 * What is inside. A set-up layer holds one upper per plane: root/ usr/ opt/ (LAYER_PLANES). A tree layer is made by a
 * checkout below /tree of a sandbox and is one whole root: root/tree. layer_image_lower knows the difference; nobody else has to.
 *
 * Files are owned by the range of the sandbox that wrote them; the manifest records its base, and whoever attaches a lower
 * maps ids from there (layer_image_lower returns a fresh detached mount, ready for one mount_setattr).
 *
 * Every slow step (mkfs 7 ms, loop mount 12 ms, publication: as long as the disk takes) runs in a short-lived child of the
 * spawner (struct layer_job); what the child made comes back as a descriptor. The spawner polls layer_job_fd and calls
 * layer_job_finish. Single-threaded. Ids are checked here: [0-9a-f]{1,64}. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"
#include "sandbox/layers.h"

struct layer_images;
struct layer_job;

#define LAYER_IMAGE_MIN_BYTES (16ull << 20)
#define LAYER_IMAGE_MAX_BYTES (1ull << 40)
#define LAYER_IMAGE_MAX_INODES (16ull << 20)

/* Opens (makes, 0700) `layers` and `mirrors` below home_fd, refuses a directory that others than root could have changed, and
 * deletes what a crash left incomplete. Call in the mount namespace in which the spawner will stay. `store_id`: the host
 * id that owns mirrors (first id of the range of slot 0). */
int layer_images_open(int home_fd, uint32_t store_id, struct layer_images **ret, struct error *e);
void layer_images_free(struct layer_images *li);       /* kills jobs, unmounts; drops what was being made */

/* ---- uppers ---- */

struct layer_upper_spec {
        const char *id;            /* of the layer being made; NULL: an image without a name, gone with its last descriptor */
        uint64_t bytes, inodes;
        uint32_t range_base;       /* host id of root inside */
};
/* Starts a child that makes and mounts the image; layer_job_finish gives the mount (a detached one, root of the image, owned
 * by range_base, 0755). The caller makes the planes' directories and work directories in it. For a named image the table
 * keeps a descriptor too, until publish or drop. */
int layer_image_make(struct layer_images *li, const struct layer_upper_spec *spec, struct layer_job **ret);

/* ---- lowers ---- */

/* Is it mounted? Then layer_image_lower works at once; else start layer_image_open first. */
bool layer_image_is_open(struct layer_images *li, const char *id);
int layer_image_open(struct layer_images *li, const char *id, struct layer_job **ret);
/* A fresh, detached, read-only, nodev mount of what the layer holds for a plane ("/", "/usr", "/opt"), the caller's. -ENOENT:
 * it holds nothing there (not an error). `ret_range_base`: the host id that root inside has on the files. */
int layer_image_lower(struct layer_images *li, const char *id, const char *plane, uint32_t *ret_range_base);
int layer_image_close(struct layer_images *li, const char *id, struct layer_job **ret);   /* drops the cached mount; users keep theirs */

/* ---- publication and removal ---- */

/* -EBUSY from the job: somebody can still write (the sandbox is not gone). */
int layer_image_publish(struct layer_images *li, const struct layer_manifest *m, struct layer_job **ret);
int layer_image_stat(struct layer_images *li, const char *id, struct layer_manifest *ret);  /* -ENOENT */
int layer_image_remove(struct layer_images *li, const char *id, struct layer_job **ret);    /* published or being made */
/* Calls `each` for every published layer. */
int layer_images_list(struct layer_images *li, int (*each)(const struct layer_manifest *m, void *user), void *user);

/* ---- mirrors: directories owned by the store's range ---- */

int layer_mirror_make(struct layer_images *li, const char *id);               /* 0 too when it exists */
int layer_mirror_remove(struct layer_images *li, const char *id, struct layer_job **ret);
int layer_mirror_open(struct layer_images *li, const char *id);               /* O_PATH descriptor of the directory, or -errno */
uint32_t layer_mirror_owner(const struct layer_images *li);                   /* host id that owns what is in it */

/* ---- jobs ---- */

int layer_job_fd(const struct layer_job *j);           /* poll for POLLIN */
/* Reaps the child, updates the table, frees the job. 0 and, for make, the mount in *ret_fd (else -1); or -errno with the
 * child's own words in e. Blocks if called before the descriptor is readable. */
int layer_job_finish(struct layer_job *j, int *ret_fd, struct error *e);
