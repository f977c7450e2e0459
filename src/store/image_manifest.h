/* The small documents of an archive: OCI index and manifest, and docker's manifest.json. Hostile JSON; everything is checked for shape and
 * bounded, nothing is looked up. No state, any thread. */
#pragma once
#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"

#define IMAGE_MANIFEST_LAYERS_MAX 120
#define IMAGE_MANIFEST_NAMES_MAX 64
#define IMAGE_BLOB_PATH_MAX 512
#if defined(__aarch64__)
#define IMAGE_ARCHITECTURE "arm64"         /* what this machine runs, as OCI spells it */
#else
#define IMAGE_ARCHITECTURE "amd64"
#endif

struct image_blob {
        char path[IMAGE_BLOB_PATH_MAX];    /* in the archive, relative, no ".." */
        char digest[SHA256_HEX];           /* "" where the document does not say */
};

struct image_choice {                      /* what an index or manifest.json leads to */
        struct image_blob manifest;        /* OCI: of the manifest, or of a further index */
        bool is_index;
        struct image_blob config, layers[IMAGE_MANIFEST_LAYERS_MAX];   /* docker: all of it */
        size_t n_layers;
        char **names;                      /* owned */
};
void image_choice_release(struct image_choice *c);

/* `select`: NULL, or the name of the wanted one. -EBADMSG; -ENOENT: none fits; -E2BIG: several do, the text names them. */
int image_index_choose(const struct json *doc, const char *select, struct image_choice *ret, struct error *e);
int image_docker_choose(const struct json *doc, const char *select, struct image_choice *ret, struct error *e);
/* An OCI manifest: fills config and layers. */
int image_manifest_parse(const struct json *doc, struct image_choice *ret, struct error *e);
