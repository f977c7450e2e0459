/* The layer group of messages: REQ_LAYER and EV_LAYER, between layers.c (daemon) and spawner_layer.c.
 *
 *     REQ_LAYER  u32 operation; then str id, or a manifest for LAYER_OP_PUBLISH, or nothing for LAYER_OP_LIST
 *     EV_LAYER   i32 0 or -errno, str text, u32 count, that many manifests (PUBLISH: one; LIST: all; else none) */
#pragma once
#include "sandbox/layers.h"
#include "sandbox/protocol.h"

enum layer_op { LAYER_OP_PUBLISH, LAYER_OP_OPEN, LAYER_OP_CLOSE, LAYER_OP_REMOVE, LAYER_OP_LIST, LAYER_OP_MIRROR_MAKE, LAYER_OP_MIRROR_REMOVE, LAYER_OP_MAX };

int layer_wire_put(struct buf *b, const struct layer_manifest *m);
/* Marks the reader bad for what layer_manifest_check would refuse. */
void layer_wire_get(struct wire *w, struct layer_manifest *ret);
