/* Manifests, indexes and configurations, as a registry sends them: only what a pull needs, everything bounded. Pure, any thread.
 *
 * Accepted: OCI manifests and indexes, Docker's schema 2 and manifest lists. What a text is, is said by its own mediaType, then by
 * its Content-Type, then by its members; the old schema 1, foreign layers and artefacts that are no images are refused by name. */
#pragma once
#include <stdbool.h>

#include "base/error.h"
#include "store/image_ref.h"

#define MANIFEST_BYTES_MAX (4u << 20)      /* of a manifest or an index */
#define CONFIG_BYTES_MAX (8u << 20)
#define MANIFEST_LAYERS_MAX 127u
#define INDEX_ENTRIES_MAX 1000u
#define INDEX_DEPTH_MAX 2u                 /* indexes that lead to indexes */
#define IMAGE_BYTES_MAX (64ull << 30)      /* sum of the layers' sizes, as they are sent */

enum layer_media { LAYER_TAR, LAYER_TAR_GZIP, LAYER_TAR_ZSTD, LAYER_MEDIA_MAX };

struct blob_ref {
        char digest[IMAGE_REF_DIGEST_LEN + 1];
        uint64_t size;
        enum layer_media media;            /* of layers */
};

enum manifest_kind { MANIFEST_IMAGE, MANIFEST_INDEX };
struct manifest {
        enum manifest_kind kind;
        struct blob_ref chosen;            /* MANIFEST_INDEX: the entry for linux on this machine */
        struct blob_ref config;            /* MANIFEST_IMAGE */
        struct blob_ref *layers; size_t n_layers;          /* bottom first; owned */
};

/* The architecture's name in an index: "amd64", "arm64"... */
extern const char *const manifest_architecture;
/* The Accept header of a manifest's request. */
extern const char *const manifest_accept;

/* `content_type` may be NULL. -EBADMSG: not such a text; -EOPNOTSUPP: another kind of thing; -ENOENT: an index without an entry for
 * `architecture`; -E2BIG: too many layers, entries or bytes. */
int manifest_parse(const char *p, size_t n, const char *content_type, const char *architecture, struct manifest *ret, struct error *e);
void manifest_release(struct manifest *m);
/* rootfs.diff_ids of a configuration: exactly n of them, into ret[n]. -EBADMSG; -ENOENT: for another architecture or system. */
int config_diff_ids(const char *p, size_t len, const char *architecture, size_t n, char (*ret)[IMAGE_REF_DIGEST_LEN + 1], struct error *e);
