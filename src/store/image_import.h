/* Importing an image from an archive: a tar of a root file system, an OCI layout, or what `docker save` writes, each plain or packed with gzip,
 * xz or zstd; which of them it is, its contents tell.
 *
 * Theory of operation. Nobody here looks into an archive. It is unpacked, as it is, into a layer over nothing. If that turns out to be a file
 * system, the layer is the image. If it holds an OCI layout or the manifest of a `docker save`, a sandbox without a network on top of that layer
 * hands out the small documents (checked against their digests), and then each layer's blob, through a pipe, to the sandbox that unpacks it
 * above the one below. Blobs are hashed on their way and layers by their diff ids. Afterwards the outer layer goes.
 *
 *     UNPACK ──> STAND (a sandbox on it) ──> READ documents ──> LAYERS, one above the other ──> KEEP ──> done
 *                                              └─ none: a file system ───────────────────────^
 *
 * Loop thread only. */
#pragma once
#include "store/image_store.h"

#define IMAGE_DOCUMENT_MAX (1u << 20)      /* bytes of an index, a manifest or a configuration in an archive */

struct image_import;

struct image_import_spec {                 /* copied */
        int fd;                            /* the archive, from where it stands; duplicated */
        const char *name;                  /* of the image; NULL: the names that the archive gives, or none */
        const char *select;                /* of an archive with several images: the one with this name in it; NULL: there must be one */
        const char *source;                /* for people */
        uint64_t timeout_ms;               /* of each unpacking; 0 = the default */
};
struct image_import_callbacks {
        void (*progress)(const char *what, const struct image_progress *p, void *user);        /* may be NULL */
        void (*done)(struct image *img, enum image_failure failure, const struct error *e, void *user);   /* img in use, the callee's */
};
int image_import_start(struct image_store *st, const struct image_import_spec *spec, const struct image_import_callbacks *cb, void *user,
                       struct image_import **ret, struct error *e);
void image_import_cancel(struct image_import *im);         /* no callback any more; what it made goes by itself */
