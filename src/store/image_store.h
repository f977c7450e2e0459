/* The store of images: named, immutable file systems that sandboxes stand on.
 *
 * An image is a base (the host's own file system, or nothing at all) and an ordered chain of layers, with a configuration: the
 * environment, working directory, user and commands that its maker wants. It is named by its digest, and by any number of names
 * (tags). Layers are shared between images by key.
 *
 * Every layer, whatever it comes from, is made the same way: a sandbox stands on the chain so far, its upper is the new layer,
 * something is unpacked or run in it, and what was written is published under a key:
 *
 *     image_layer_want(store, parent chain, key) ─┬─ published already ──────────────────────────────> done(chain)
 *                                                 ├─ being made by somebody else: waits ─────────────> done(chain)
 *                                                 └─ make(layer): the caller runs its sandbox ──┐
 *                                                      image_layer_unpack() or image_layer_run()│
 *                                                      or a sandbox of its own and              │
 *                                                      image_layer_publish()  ──────────────────┴────> done(chain), all who wait
 *
 * A key is 64 hex digits and says all that is in the layer *and below it*, so that equal keys mean equal file systems:
 * image_chain_id() for a layer that was a tar archive (the same number as the OCI chain id), a hash over the parent's key and the
 * inputs for a step of a build. What a crash leaves incomplete is deleted at the next start.
 *
 * Use is counted: an image that is acquired, and a layer of a chain that somebody holds, is never evicted. Beyond the byte limit
 * the least recently used go: layers that no image has, then images that can be had again (pulled, built). Imported images and
 * named snapshots are data: they stay until they are removed, and what has no room beside them is refused with -EDQUOT.
 *
 * Loop thread only. Callbacks run from the loop, never from inside the call that was given them, unless its comment says so. */
#pragma once
#include "base/buf.h"
#include "base/hash.h"
#include "base/json.h"
#include "sandbox/layers.h"
#include "sandbox/sandbox.h"
#include "store/image_config.h"
#include "store/image_user.h"

#define IMAGE_LAYERS_MAX 120               /* layers of one image; a sandbox takes SPEC_LAYERS_MAX */
#define IMAGE_NAME_MAX 255
#define IMAGE_NAMES_MAX 4096               /* in all */
#define IMAGE_IMAGES_MAX 4096
#define IMAGE_LAYER_BYTES_DEFAULT (64ull << 30)    /* size of a layer's file system: its quota. Sparse: costs what is written */
#define IMAGE_LAYER_INODES_DEFAULT (4ull << 20)
#define IMAGE_UNPACK_ENTRIES_MAX (4ull << 20)      /* entries of one archive */
#define IMAGE_UNPACK_TIMEOUT_MS (1800 * 1000ull)

struct image_store;
struct image;

/* ---- why something failed -------------------------------------------------------------------------------------------------- */

enum image_failure {
        IMAGE_OK,
        IMAGE_NOT_FOUND,           /* "image_not_found": nobody knows it */
        IMAGE_INVALID,             /* "image_invalid": what was given is no image, is hostile, or does not match its digest */
        IMAGE_TOO_LARGE,           /* "image_too_large": bytes, files, entries or layers beyond a limit */
        IMAGE_UNREACHABLE,         /* "registry_unreachable" */
        IMAGE_UNAUTHORIZED,        /* "registry_unauthorized" */
        IMAGE_STEP_FAILED,         /* "build_failed": a command of a build did not end with 0 */
        IMAGE_TIMEOUT,             /* "timeout" */
        IMAGE_CANCELLED,           /* "cancelled" */
        IMAGE_IN_USE,              /* "image_in_use" */
        IMAGE_DISK_FULL,           /* "disk_full" */
        IMAGE_SESSION_ENDED,       /* "ended": the session that it was made of */
        IMAGE_INTERNAL,            /* "internal" */
        IMAGE_FAILURE_MAX,
};
STRING_TABLE_DECLARE(image_failure);

/* ---- chains: what a sandbox stands on ---------------------------------------------------------------------------------------- */

/* A base and layers, each of them in use for as long as the chain is held. Counted: every holder gives back what it took. */
struct image_chain;
/* Nothing but a base. `base`: IMAGE_HOST, IMAGE_SCRATCH, or the absolute path of a directory image. NULL: no memory. */
struct image_chain *image_chain_base(struct image_store *st, const char *base);
struct image_chain *image_chain_ref(struct image_chain *c);
struct image_chain *image_chain_unref(struct image_chain *c);      /* NULL */
const char *image_chain_image(const struct image_chain *c);        /* for sandbox_spec.image */
const char *const *image_chain_layers(const struct image_chain *c); /* ids, bottom first, NULL-terminated; for sandbox_spec.layers */
size_t image_chain_count(const struct image_chain *c);
/* Key of the uppermost layer. Of a chain without layers: "" over IMAGE_SCRATCH, else a digest of the base. So two chains with equal
 * keys hold the same files. */
const char *image_chain_key(const struct image_chain *c);
uint64_t image_chain_bytes(const struct image_chain *c);           /* on disk */

/* The OCI chain id of a tar layer with this diff id (64 hex digits, without "sha256:") above `parent_key` ("" = nothing). */
int image_chain_id(const char *parent_key, const char *diff_id, char ret[static SHA256_HEX]);

/* ---- making a layer ----------------------------------------------------------------------------------------------------------- */

struct image_layer;                /* being made */
struct image_want;

struct image_want_callbacks {
        /* Nobody has the layer: make it now. Ends with exactly one of image_layer_unpack, image_layer_run, image_layer_publish or
         * image_layer_abandon. Also called for one who waited, when the one who made it was cancelled. */
        void (*make)(struct image_layer *l, void *user);
        /* The layer is there: `c` is the parent chain and the layer, the callee's to unref. Or it failed: c NULL, and the failure
         * of whoever made it. Exactly once, unless cancelled. */
        void (*done)(struct image_chain *c, enum image_failure failure, const struct error *e, void *user);
};
/* `key`: see above. Takes its own reference on `parent`. -E2BIG: IMAGE_LAYERS_MAX reached. */
int image_layer_want(struct image_store *st, struct image_chain *parent, const char *key, const struct image_want_callbacks *cb, void *user,
                     struct image_want **ret, struct error *e);
/* No callback runs any more; what was being made is given up, or passed on to who waits. Who is between `make` and its end with a sandbox
 * (or download) of its own still ends the layer, with image_layer_abandon(l, IMAGE_CANCELLED, e), once that is gone. */
void image_want_cancel(struct image_want *w);
/* Is it there already (then image_layer_want ends without make)? For those who would have to download first. */
bool image_layer_known(struct image_store *st, const char *key);

/* Fills image, layers, upper (UPPER_LAYER) and upper_layer of a specification for a sandbox of the maker's own. The strings live
 * as long as the layer. */
void image_layer_spec(const struct image_layer *l, struct sandbox_spec *ret);
struct image_chain *image_layer_parent(const struct image_layer *l);       /* borrowed */
/* The sandbox is gone and all is well: publish. */
void image_layer_publish(struct image_layer *l);
/* It could not be made: all who wait get this. The sandbox, if there was one, is gone. */
void image_layer_abandon(struct image_layer *l, enum image_failure failure, const struct error *e);

struct image_progress { uint64_t bytes_in, bytes_out, entries; };  /* of an archive: compressed bytes read, bytes written, entries */
typedef void (*image_progress_fn)(const struct image_progress *p, void *user);

struct image_unpack {
        int fd;                    /* the archive: regular file or pipe, read from where it stands; duplicated */
        bool name_by_content;      /* the layer's key becomes image_chain_id of what the archive holds; that of the want is its name till then */
        const char *diff_id;       /* 64 hex digits that the uncompressed archive must have as SHA-256; NULL = any */
        const char *target;        /* below this directory of the image, which is made; NULL = "/" */
        bool no_whiteouts;         /* names that begin with ".wh." are ordinary (a plain tar, not a layer) */
        int64_t owner_uid, owner_gid;      /* >= 0 together with set_owner: everything belongs to these */
        bool set_owner;
        uint64_t bytes_max, inodes_max;    /* 0 = the defaults */
        uint64_t timeout_ms;               /* 0 = IMAGE_UNPACK_TIMEOUT_MS */
        image_progress_fn progress; void *progress_user;           /* may be NULL; from the loop, a few times a second */
};
/* Unpacks a tar archive (plain, gzip, xz or zstd: found by its first bytes) in a sandbox without a network, then publishes. Names that
 * are absolute, climb (".."), or lead out of the image through links, device nodes, overlay attributes, more than the limits and a wrong
 * diff_id are IMAGE_INVALID or IMAGE_TOO_LARGE, with the entry's name. Of entries with one name the last counts. Calls for errors of
 * the caller's (-EBADF) come by `done` of the want, too. */
void image_layer_unpack(struct image_layer *l, const struct image_unpack *u);

struct image_run {                 /* a command of a build: its end publishes (status 0) or fails the layer */
        const struct sandbox_spec *sandbox;    /* id, profile, network, limits, mounts, files; what image_layer_spec fills is ignored */
        const char *const *argv, *const *env;
        const char *cwd;           /* made, if it is not there, is the caller's business */
        const char *user;          /* as USER of a configuration; looked up in the image. NULL = root */
        uint64_t timeout_ms;
        void (*output)(const char *p, size_t n, void *user); void *output_user;    /* what it prints (both streams), as it comes; may be NULL */
};
/* A status other than 0 is IMAGE_STEP_FAILED; the error's text ends with the last lines of the output. */
void image_layer_run(struct image_layer *l, const struct image_run *run);

/* ---- images -------------------------------------------------------------------------------------------------------------------- */

enum image_origin { IMAGE_FROM_IMPORT, IMAGE_FROM_PULL, IMAGE_FROM_BUILD, IMAGE_FROM_SNAPSHOT, IMAGE_FROM_BUILTIN, IMAGE_ORIGIN_MAX };
STRING_TABLE_DECLARE(image_origin);        /* "import", "pull", "build", "snapshot", "builtin" */

/* Makes the image durable, under names, and hands it over in use. Adding one that is there adds the names. A name that belonged
 * to another image moves. `done(img)`: on disk, in use by the callee (image_unuse). */
struct image_add {
        struct image_chain *chain;         /* own reference is taken */
        const struct image_config *config; /* copied */
        const char *digest;                /* 64 hex: of the OCI configuration where it came as one; NULL = computed from content */
        enum image_origin origin;
        const char *source;                /* for people: where it came from; may be NULL */
        const char *const *names;          /* may be NULL; checked with image_name_given by the caller */
};
typedef void (*image_done)(struct image *img, enum image_failure failure, const struct error *e, void *user);
int image_store_add(struct image_store *st, const struct image_add *a, image_done done, void *user, struct error *e);

/* "debian" -> "debian:latest"; a digest ("sha256:..." or 12 to 64 hex digits) and paths stay. -EINVAL: not a name. */
int image_name_normalize(const char *name, char ret[static IMAGE_NAME_MAX + 1], struct error *e);
/* The same for a name that an image is to have: not one that means something else ("host", "scratch", a path, a digest). Pure, any thread. */
int image_name_given(const char *name, char ret[static IMAGE_NAME_MAX + 1], struct error *e);
/* By name or digest, at once, without use; NULL: not here. "host", "scratch" and directories are not found this way: acquire them. */
struct image *image_find(struct image_store *st, const char *ref);
void image_use(struct image *img);                 /* counts; for as long as it is used it is not evicted or removed */
void image_unuse(struct image *img);               /* may evict */

/* Finds the image, or has it pulled, and opens its layers. `ref`: "host", "scratch", an absolute path (a directory below the
 * operator's image roots), a name, a digest. `done` gives a lease, the callee's. Concurrent acquisitions of one name share the work. */
struct image_lease {
        struct image_chain *chain;         /* image_chain_image, image_chain_layers for the specification */
        const struct image_config *config; /* never NULL */
        char digest[SHA256_HEX];
        const struct image_user *user;     /* who USER of the configuration is (root where it says nothing), never NULL */
};
struct image_acquisition;
struct image_acquire_options {
        uint64_t pull_timeout_ms;          /* 0 = the store's default */
        bool no_pull;                      /* only what is here */
        void (*progress)(const char *what, const struct image_progress *p, void *user);        /* may be NULL; same `user` as done */
};
typedef void (*image_acquired)(struct image_lease *lease, enum image_failure failure, const struct error *e, void *user);
int image_acquire(struct image_store *st, const char *ref, const struct image_acquire_options *o, image_acquired done, void *user,
                  struct image_acquisition **ret, struct error *e);
void image_acquire_cancel(struct image_acquisition *a);
void image_lease_release(struct image_lease *l);   /* NULL is fine */

/* What image_acquire does with a name that nobody knows here; set by the registry client. `pull` must call done once, with an image in use
 * (image_unuse is the store's), and answers *ret_cancel's call by not calling done. */
struct image_puller {
        int (*pull)(void *ctx, const char *name, uint64_t timeout_ms, void (*progress)(const char *what, const struct image_progress *p, void *user),
                    image_done done, void *user, void **ret_job, struct error *e);
        void (*cancel)(void *ctx, void *job);
        void *ctx;
};
void image_store_set_puller(struct image_store *st, const struct image_puller *p);

struct image_info {
        char digest[SHA256_HEX];
        const char *base;
        size_t n_layers;
        enum image_origin origin;
        const char *source;
        uint64_t bytes;                    /* of its layers on disk, shared ones included */
        int64_t created_ms, used_ms;       /* wall */
        unsigned users;
        const struct image_config *config;
        const char *const *names;          /* NULL-terminated; valid until the loop runs on */
};
void image_info(const struct image *img, struct image_info *ret);
uint64_t image_store_bytes(const struct image_store *st);       /* of all layers on disk */
uint64_t image_store_bytes_max(const struct image_store *st);
void image_store_each(struct image_store *st, void (*each)(struct image *img, void *user), void *user);

/* A further name, durable when `done` runs (img as given, still only borrowed). */
int image_tag(struct image_store *st, struct image *img, const char *name, image_done done, void *user, struct error *e);
/* A name: it goes, and with the last one the image. A digest: the image goes with all its names. IMAGE_IN_USE: it is used and would go;
 * nothing has changed then. `done(NULL, IMAGE_OK)`: durable. */
int image_remove(struct image_store *st, const char *ref, image_done done, void *user, struct error *e);

/* ---- the store ------------------------------------------------------------------------------------------------------------------ */

struct image_store_config {
        const char *home;
        uint64_t max_bytes;
        uint64_t pull_timeout_ms;          /* default of acquisitions */
};
int image_store_open(uv_loop_t *loop, struct spawner *sp, const struct image_store_config *cfg, struct image_store **ret, struct error *e);
/* Gives up what is being made, waits for its sandboxes, frees the store, then calls done. Nothing is in use any more. */
void image_store_close(struct image_store *st, void (*done)(void *user), void *user);
/* Has it read what there is? Until then nothing is found; acquisitions and layers wait by themselves. */
bool image_store_ready(const struct image_store *st);
/* The disk is short of so many bytes: as tree_store_shed. */
uint64_t image_store_shed(struct image_store *st, uint64_t bytes);
struct spawner *image_store_spawner(const struct image_store *st);
uv_loop_t *image_store_loop(const struct image_store *st);
