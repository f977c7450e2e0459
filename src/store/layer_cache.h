/* The table of published layers: found by key, counted while used, opened once for all users, evicted by least use when
 * their bytes pass the limit, never one in use. Asks the spawner (sandbox/layers.h); loop thread only.
 *
 * A layer that lies on another (parent) is useless without it: whoever uses both gives the upper one back first, so that the
 * lower is never the older of the two. */
#pragma once
#include <stdbool.h>
#include <uv.h>

#include "base/map.h"
#include "sandbox/layers.h"

#define LAYER_CACHE_OPEN_IDLE_MAX 32       /* layers kept open (mounted) without a user */

struct layer_cache;
struct cached_layer;

/* `kinds`: 1 << enum layer_kind each: what of the layers on disk is this cache's; others it leaves alone. */
struct layer_cache *layer_cache_new(struct spawner *sp, uint64_t max_bytes, unsigned kinds);
void layer_cache_free(struct layer_cache *c);      /* nothing is in use any more; no callback of an open runs after this */
/* Lists what is on disk; `done` once. Layers without a parent they name, and doubles of a key, are removed. */
int layer_cache_load(struct layer_cache *c, void (*done)(int r, const struct error *e, void *user), void *user);

struct cached_layer *layer_cache_find(struct layer_cache *c, const char *key);     /* NULL */
/* Adds one that was just published (and is open). -ENOMEM; -EEXIST: the key is there already. */
int layer_cache_add(struct layer_cache *c, const struct layer_manifest *m, struct cached_layer **ret);
const struct layer_manifest *cached_layer_manifest(const struct cached_layer *l);
void cached_layer_use(struct cached_layer *l);     /* counts; nests */
void cached_layer_unuse(struct cached_layer *l);   /* may evict */
bool cached_layer_idle(const struct cached_layer *l);      /* neither used nor pinned */

/* Pinned: never evicted, but closed when nobody uses it. Counts. */
void cached_layer_pin(struct cached_layer *l);
void cached_layer_unpin(struct cached_layer *l);   /* may evict */

/* Sees that the spawner has it mounted; `done(r)` from the loop, or at once when it has (then it returns 1 and `done` does not
 * run). The layer must be in use until then. */
int cached_layer_open(struct cached_layer *l, void (*done)(int r, const struct error *e, void *user), void *user);
/* Takes back a callback of cached_layer_open. */
void cached_layer_open_cancel(struct cached_layer *l, void *user);
/* It could not be opened: forgets and removes it, so that it is made again. */
void cached_layer_discard(struct cached_layer *l);

/* Removes the least recently used that nobody uses until so many bytes are on their way out or none is left; how many are. */
uint64_t layer_cache_shed(struct layer_cache *c, uint64_t bytes);
uint64_t layer_cache_bytes(const struct layer_cache *c);
uint64_t layer_cache_max(const struct layer_cache *c);
