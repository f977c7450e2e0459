/* The manifest of a layer: a small text file beside the image, one "key value" a line, fixed keys in fixed order.
 *
 *     brig-layer 1
 *     id 9f86d081...
 *     ...
 *
 * Written by the spawner from what the daemon said, so every value is checked against its alphabet before it is written
 * and again when it is read. Errors: -EINVAL for anything out of its alphabet, -EBADMSG for another format or shape. */
#pragma once
#include "base/buf.h"
#include "sandbox/layers.h"

#define LAYER_MANIFEST_MAX 4096

bool layer_id_valid(const char *id);          /* [0-9a-f]{1,64} */
bool layer_opaque_valid(const char *path);    /* "" or absolute, normal, no component "." or "..", no control bytes */
int layer_manifest_check(const struct layer_manifest *m);
int layer_manifest_encode(const struct layer_manifest *m, struct buf *b);
int layer_manifest_parse(const char *text, size_t n, struct layer_manifest *ret);
