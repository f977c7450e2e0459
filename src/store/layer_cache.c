#include <string.h>

#include "base/log.h"
#include "store/layer_cache.h"

struct open_waiter { struct open_waiter *next; void (*done)(int r, const struct error *e, void *user); void *user; };

struct cached_layer {
        struct map_node node;      /* by key; out of the map once discarded */
        struct layer_cache *cache;
        struct layer_manifest m;
        unsigned users, pins;
        uint64_t last_use;         /* of the cache's counter */
        bool open, opening, discarded;
        struct open_waiter *waiters;
};

struct layer_cache {
        struct spawner *spawner;
        struct map by_key;
        uint64_t bytes, max_bytes, uses;
        unsigned kinds;
        size_t open_idle;
        unsigned pending;          /* answers of the spawner that are still to come */
        bool freed;
};

static const char *layer_key(const struct map_node *n) {
        return container_of(n, struct cached_layer, node)->m.key;
}

struct layer_cache *layer_cache_new(struct spawner *sp, uint64_t max_bytes, unsigned kinds) {
        struct layer_cache *c = calloc(1, sizeof *c);
        if (!c || map_init(&c->by_key, layer_key) < 0) {
                free(c);
                return NULL;
        }
        c->spawner = sp;
        c->max_bytes = max_bytes;
        c->kinds = kinds;
        return c;
}

static void free_layer(struct cached_layer *l) {
        while (l->waiters) {
                struct open_waiter *w = l->waiters;
                l->waiters = w->next;
                free(w);
        }
        free(l);
}

static void free_node(struct map_node *n, void *user) {
        struct cached_layer *l = container_of(n, struct cached_layer, node);
        map_remove(&l->cache->by_key, n);
        if (!l->opening)                 /* else its answer frees it */
                free_layer(l);
        else
                l->discarded = true;
}

static void unref(struct layer_cache *c) {
        if (!c->freed || c->pending > 0)
                return;
        map_release(&c->by_key);
        free(c);
}

void layer_cache_free(struct layer_cache *c) {
        if (!c)
                return;
        map_each(&c->by_key, free_node, NULL);
        c->freed = true;
        unref(c);
}

/* ---- removal ---- */

static void removed(int r, const struct error *e, void *user) {
        struct layer_cache *c = user;
        c->pending--;
        if (r < 0)
                log_event(LOG_WARN, "layer.remove_failed", "error", e ? e->text : "", NULL);
        unref(c);
}

static void remove_on_disk(struct layer_cache *c, const char *id) {
        c->pending++;
        if (layers_remove(c->spawner, id, removed, c) < 0)
                c->pending--;
}

static void take_out(struct cached_layer *l) {
        struct layer_cache *c = l->cache;
        map_remove(&c->by_key, &l->node);
        c->bytes -= MIN2(c->bytes, l->m.bytes);
        if (l->open && l->users == 0)
                c->open_idle--;
        remove_on_disk(c, l->m.id);
}

void cached_layer_discard(struct cached_layer *l) {
        if (l->discarded)
                return;
        take_out(l);
        l->discarded = true;
        if (l->users == 0 && !l->opening)
                free_layer(l);
}

struct oldest { struct cached_layer *layer; bool open_only; };

static void older(struct map_node *n, void *user) {
        struct oldest *o = user;
        struct cached_layer *l = container_of(n, struct cached_layer, node);
        if (l->users > 0 || l->opening || (o->open_only ? !l->open : l->pins > 0))
                return;
        if (!o->layer || l->last_use < o->layer->last_use)
                o->layer = l;
}

/* Linear: evictions are rare, and a thousand layers are a few microseconds. */
static struct cached_layer *find_oldest(struct layer_cache *c, bool open_only) {
        struct oldest o = { .open_only = open_only };
        map_each(&c->by_key, older, &o);
        return o.layer;
}

static void trim(struct layer_cache *c) {
        struct cached_layer *l;
        while (c->bytes > c->max_bytes && (l = find_oldest(c, false))) {
                log_event(LOG_INFO, "layer.evicted", "layer", l->m.id, NULL);
                cached_layer_discard(l);
        }
        while (c->open_idle > LAYER_CACHE_OPEN_IDLE_MAX && (l = find_oldest(c, true))) {
                layers_close(c->spawner, l->m.id);
                l->open = false;
                c->open_idle--;
        }
}

uint64_t layer_cache_shed(struct layer_cache *c, uint64_t bytes) {
        uint64_t shed = 0;
        struct cached_layer *l;
        while (shed < bytes && (l = find_oldest(c, false))) {
                log_event(LOG_INFO, "layer.evicted", "layer", l->m.id, NULL);
                shed += l->m.bytes;
                cached_layer_discard(l);
        }
        return shed;
}

/* ---- use ---- */

struct cached_layer *layer_cache_find(struct layer_cache *c, const char *key) {
        struct map_node *n = map_find(&c->by_key, key);
        return n ? container_of(n, struct cached_layer, node) : NULL;
}

const struct layer_manifest *cached_layer_manifest(const struct cached_layer *l) {
        return &l->m;
}

uint64_t layer_cache_bytes(const struct layer_cache *c) {
        return c->bytes;
}

uint64_t layer_cache_max(const struct layer_cache *c) {
        return c->max_bytes;
}

void cached_layer_use(struct cached_layer *l) {
        if (l->users++ == 0 && l->open)
                l->cache->open_idle--;
        l->last_use = ++l->cache->uses;
}

void cached_layer_unuse(struct cached_layer *l) {
        struct layer_cache *c = l->cache;
        ASSERT(l->users > 0);
        l->last_use = ++c->uses;
        if (--l->users > 0)
                return;
        if (l->discarded) {
                if (!l->opening)
                        free_layer(l);
                return;
        }
        if (l->open)
                c->open_idle++;
        trim(c);
}

bool cached_layer_idle(const struct cached_layer *l) { return l->users == 0 && l->pins == 0; }

void cached_layer_pin(struct cached_layer *l) {
        l->pins++;
}

void cached_layer_unpin(struct cached_layer *l) {
        ASSERT(l->pins > 0);
        if (--l->pins == 0) {
                l->last_use = ++l->cache->uses;
                trim(l->cache);
        }
}

static int add(struct layer_cache *c, const struct layer_manifest *m, bool open, struct cached_layer **ret) {
        struct cached_layer *l = calloc(1, sizeof *l);
        if (!l)
                return -ENOMEM;
        l->cache = c;
        l->m = *m;
        l->open = open;
        l->last_use = ++c->uses;
        int r = map_add(&c->by_key, &l->node);
        if (r < 0) {
                free(l);
                return r;
        }
        c->bytes += m->bytes;
        if (open)
                c->open_idle++;
        *ret = l;
        return 0;
}

int layer_cache_add(struct layer_cache *c, const struct layer_manifest *m, struct cached_layer **ret) {
        return add(c, m, true, ret);
}

/* ---- opening ---- */

static void opened(int r, const struct error *e, void *user) {
        struct cached_layer *l = user;
        struct layer_cache *c = l->cache;
        c->pending--;
        l->opening = false;
        l->open = r == 0;
        l->users++;                      /* it outlives the callbacks, whatever they do */
        struct open_waiter *w = l->waiters;
        l->waiters = NULL;
        while (w) {
                struct open_waiter *next = w->next;
                if (w->done)
                        w->done(r, e, w->user);
                free(w);
                w = next;
        }
        if (--l->users == 0 && l->discarded)
                free_layer(l);
        else if (l->users == 0 && l->open)
                c->open_idle++;
        if (!c->freed)
                trim(c);
        unref(c);
}

int cached_layer_open(struct cached_layer *l, void (*done)(int r, const struct error *e, void *user), void *user) {
        if (l->open)
                return 1;
        struct open_waiter *w = calloc(1, sizeof *w);
        if (!w)
                return -ENOMEM;
        *w = (struct open_waiter){ .done = done, .user = user };
        if (!l->opening) {
                int r = layers_open(l->cache->spawner, l->m.id, opened, l);
                if (r < 0) {
                        free(w);
                        return r;
                }
                l->opening = true;
                l->cache->pending++;
        }
        w->next = l->waiters;
        l->waiters = w;
        return 0;
}

void cached_layer_open_cancel(struct cached_layer *l, void *user) {
        for (struct open_waiter *w = l->waiters; w; w = w->next)
                if (w->user == user)
                        w->done = NULL;
}

/* ---- loading ---- */

struct loading {
        struct layer_cache *cache;
        struct layer_manifest *found;
        size_t n, alloc;
        void (*done)(int r, const struct error *e, void *user);
        void *user;
        int r;
};

static void found_one(const struct layer_manifest *m, void *user) {
        struct loading *ld = user;
        if (!(ld->cache->kinds & 1u << m->kind))
                return;
        if (ld->n == ld->alloc) {
                size_t more = MAX2(ld->alloc * 2, (size_t)64);
                void *p = realloc(ld->found, more * sizeof *ld->found);
                if (!p) {
                        ld->r = -ENOMEM;
                        return;
                }
                ld->found = p;
                ld->alloc = more;
        }
        ld->found[ld->n++] = *m;
}

/* Set-up layers first, so that the trees they lie on count as used later. */
static int by_age(const void *a, const void *b) {
        const struct layer_manifest *x = a, *y = b;
        if (x->kind != y->kind)
                return x->kind == LAYER_SETUP ? -1 : 1;
        return (x->made_ms > y->made_ms) - (x->made_ms < y->made_ms);
}

static bool has_id(const struct loading *ld, const char *id) {
        for (size_t i = 0; i < ld->n; i++)
                if (strcmp(ld->found[i].id, id) == 0)
                        return true;
        return false;
}

static void loaded(int r, const struct error *e, void *user) {
        struct loading *ld = user;
        struct layer_cache *c = ld->cache;
        if (!c->freed && r == 0 && ld->r == 0) {
                if (ld->n > 0)
                        qsort(ld->found, ld->n, sizeof *ld->found, by_age);
                for (size_t i = 0; i < ld->n; i++) {
                        const struct layer_manifest *m = &ld->found[i];
                        struct cached_layer *l;
                        if (m->key[0] == 0 || (m->parent[0] && !has_id(ld, m->parent)) || add(c, m, false, &l) < 0)
                                remove_on_disk(c, m->id);
                }
                trim(c);
        }
        if (!c->freed)
                ld->done(r < 0 ? r : ld->r, e, ld->user);
        free(ld->found);
        free(ld);
        c->pending--;                  /* not before: `done` may free the cache */
        unref(c);
}

int layer_cache_load(struct layer_cache *c, void (*done)(int r, const struct error *e, void *user), void *user) {
        struct loading *ld = calloc(1, sizeof *ld);
        if (!ld)
                return -ENOMEM;
        *ld = (struct loading){ .cache = c, .done = done, .user = user };
        int r = layers_list(c->spawner, found_one, loaded, ld);
        if (r < 0) {
                free(ld);
                return r;
        }
        c->pending++;
        return 0;
}
