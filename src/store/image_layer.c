/* Layers while they are made: who wants which, who makes it, and what becomes of it.
 *
 *     WAITING ──loop, parents mounted──> MAKING ──ok──> PUBLISHING ──> everybody gets the chain
 *        ^                                 └──────not──> REMOVING ───> everybody gets the failure
 *        └────────── its maker was cancelled, others wait ──┘
 *
 * Whoever comes while a layer is being made waits for it; nobody who wants the same key makes a second one. */
#include <string.h>

#include "base/log.h"
#include "store/image_store_private.h"

static const char *const image_failure_names[IMAGE_FAILURE_MAX] = {
        "ok", "image_not_found", "image_invalid", "image_too_large", "registry_unreachable", "registry_unauthorized", "build_failed", "timeout",
        "cancelled", "image_in_use", "disk_full", "ended", "internal",
};
STRING_TABLE(image_failure, image_failure_names, IMAGE_FAILURE_MAX)

enum image_failure image_failure_of(int r) {
        switch (r) {
        case 0: return IMAGE_OK;
        case -ENOSPC: case -EDQUOT: return IMAGE_DISK_FULL;
        case -ECANCELED: return IMAGE_CANCELLED;
        case -EBADMSG: return IMAGE_INVALID;
        case -E2BIG: case -EFBIG: return IMAGE_TOO_LARGE;
        case -ETIMEDOUT: return IMAGE_TIMEOUT;
        default: return IMAGE_INTERNAL;
        }
}

const char *image_layer_node_key(const struct map_node *n) { return container_of(n, struct image_layer, node)->key; }

/* ---- telling ---- */

static void tell_later(struct image_want *w) {
        struct image_store *st = w->store;
        w->layer = NULL;
        w->next = NULL;
        *st->telling_last = w;
        st->telling_last = &w->next;
        image_store_wake(st);
}

static void tell(struct image_want *w) {
        struct image_want_callbacks cb = w->cb;
        void *user = w->user;
        struct image_chain *c = w->chain;
        enum image_failure failure = w->failure;
        struct error e = w->error;
        free(w);
        cb.done(c, failure, &e, user);
}

/* ---- the end of a layer ---- */

static void layer_free(struct image_layer *l) {
        map_remove(&l->store->layers, &l->node);
        image_chain_unref(l->parent);
        struct image_store *st = l->store;
        free(l);
        image_store_done(st);
}

static void settle(struct image_layer *l, struct cached_layer *made) {
        while (l->wants) {
                struct image_want *w = l->wants;
                l->wants = w->next;
                w->failure = l->failure;
                w->error = l->error;
                if (made && !(w->chain = image_chain_extend(l->parent, l->m.key, made))) {
                        w->failure = IMAGE_INTERNAL;
                        error_set(&w->error, -ENOMEM, "hold an image");
                }
                tell_later(w);
        }
        layer_free(l);
}

static void start_later(struct image_layer *l) {
        unsigned char id[16];
        random_bytes(id, sizeof id);
        hex_encode(id, sizeof id, l->m.id);
        l->state = LAYER_WAITING;
        l->maker = NULL;
        l->failure = IMAGE_OK;
        l->next_waiting = l->store->waiting;
        l->store->waiting = l;
        image_store_wake(l->store);
}

static void removed(int r, const struct error *e, void *user) {
        struct image_layer *l = user;
        struct cached_layer *instead = l->instead;
        if (instead) {
                settle(l, instead);
                cached_layer_unuse(instead);
        } else if (l->failure == IMAGE_CANCELLED && l->wants && !l->store->closing)
                start_later(l);                /* whoever waits makes it now */
        else
                settle(l, NULL);
}

static void give_up(struct image_layer *l, enum image_failure failure, const struct error *e) {
        l->failure = failure;
        l->error = e ? *e : (struct error){ 0 };
        l->state = LAYER_REMOVING;
        if (layers_remove(l->store->spawner, l->m.id, removed, l) < 0)
                removed(0, NULL, l);
}

static void published(int r, const struct layer_manifest *m, const struct error *e, void *user) {
        struct image_layer *l = user;
        struct cached_layer *made;
        struct error mine;
        int x = r == 0 ? layer_cache_add(l->store->cache, m, &made) : r;
        if (r == 0 && x == -EEXIST) {
                l->instead = layer_cache_find(l->store->cache, m->key);        /* another of the same contents, published meanwhile */
                cached_layer_use(l->instead);
                give_up(l, IMAGE_OK, NULL);
                return;
        }
        if (r == 0 && x < 0) {
                error_set(&mine, x, "keep a layer");
                e = &mine;
        }
        if (x < 0) {
                give_up(l, image_failure_of(x), e);
                return;
        }
        log_event(LOG_INFO, "image.layer_made", "layer", m->id, "key", m->key, NULL);
        cached_layer_use(made);                /* until those who want it have it */
        settle(l, made);
        cached_layer_unuse(made);
}

void image_layer_end(struct image_layer *l, enum image_failure failure, const struct error *e) {
        if (failure != IMAGE_OK) {
                give_up(l, l->maker ? failure : IMAGE_CANCELLED, e);
                return;
        }
        if ((l->instead = layer_cache_find(l->store->cache, l->m.key))) {
                cached_layer_use(l->instead);
                give_up(l, IMAGE_OK, NULL);
                return;
        }
        l->state = LAYER_PUBLISHING;
        int r = layers_publish(l->store->spawner, &l->m, published, l);
        if (r < 0) {
                struct error mine;
                error_set(&mine, r, "publish a layer");
                give_up(l, image_failure_of(r), &mine);
        }
}

void image_layer_publish(struct image_layer *l) { image_layer_end(l, IMAGE_OK, NULL); }
void image_layer_abandon(struct image_layer *l, enum image_failure failure, const struct error *e) { image_layer_end(l, failure, e); }

/* ---- the beginning ---- */

static void make(struct image_layer *l) {
        l->state = LAYER_MAKING;
        l->maker = l->wants;
        l->maker->cb.make(l, l->maker->user);
}

static void parent_opened(int r, const struct error *e, void *user) {
        struct image_layer *l = user;
        l->opening = NULL;
        if (r == 0 && l->wants) {
                make(l);
                return;
        }
        l->failure = r < 0 ? image_failure_of(r) : IMAGE_CANCELLED;
        if (r < 0)
                l->error = *e;
        settle(l, NULL);                       /* nothing of it is on disk */
}

static void start(struct image_layer *l) {
        struct error e;
        struct cached_layer *there = layer_cache_find(l->store->cache, l->key);
        if (!l->wants || there) {              /* asked for before the layers on disk were known */
                settle(l, there);
                return;
        }
        int r = image_chain_open(l->parent, parent_opened, l, &l->opening);
        if (r == 0)
                return;
        if (r < 0)
                error_set(&e, r, "open a layer");
        parent_opened(MIN2(r, 0), &e, l);
}

void image_layers_step(struct image_store *st) {
        while (st->waiting) {
                struct image_layer *l = st->waiting;
                st->waiting = l->next_waiting;
                start(l);
        }
        while (st->telling) {
                struct image_want *w = st->telling;
                st->telling = w->next;
                if (!st->telling)
                        st->telling_last = &st->telling;
                tell(w);
        }
}

static int layer_new(struct image_store *st, struct image_chain *parent, const char *key, struct image_layer **ret) {
        struct image_layer *l = calloc(1, sizeof *l);
        if (!l)
                return -ENOMEM;
        l->store = st;
        l->m.kind = LAYER_IMAGE;
        snprintf(l->key, sizeof l->key, "%s", key);
        memcpy(l->m.key, l->key, sizeof l->m.key);
        if (parent->n > 0)
                memcpy(l->m.parent, parent->ids[parent->n - 1], strlen(parent->ids[parent->n - 1]) + 1);
        int r = map_add(&st->layers, &l->node);
        if (r < 0) {
                free(l);
                return r;
        }
        l->parent = image_chain_ref(parent);
        st->busy++;
        start_later(l);
        *ret = l;
        return 0;
}

static void append(struct image_layer *l, struct image_want *w) {
        struct image_want **at = &l->wants;
        while (*at)
                at = &(*at)->next;
        *at = w;
        w->layer = l;
}

int image_layer_want(struct image_store *st, struct image_chain *parent, const char *key, const struct image_want_callbacks *cb, void *user,
                     struct image_want **ret, struct error *e) {
        if (strlen(key) != SHA256_HEX - 1)
                return error_say(e, -EINVAL, "a layer's key has 64 digits");
        if (st->closing)
                return error_say(e, -ECANCELED, "the store of images is being closed");
        if (parent->n >= IMAGE_LAYERS_MAX)
                return error_say(e, -E2BIG, "an image has at most %d layers", IMAGE_LAYERS_MAX);
        struct image_want *w = calloc(1, sizeof *w);
        if (!w)
                return error_set(e, -ENOMEM, "make a layer");
        *w = (struct image_want){ .store = st, .cb = *cb, .user = user };
        struct cached_layer *l = layer_cache_find(st->cache, key);
        struct map_node *n = map_find(&st->layers, key);
        struct image_layer *making = n ? container_of(n, struct image_layer, node) : NULL;
        int r = 0;
        if (l && (w->chain = image_chain_extend(parent, key, l)))
                tell_later(w);
        else if (l)
                r = -ENOMEM;
        else if (making || (r = layer_new(st, parent, key, &making)) == 0)
                append(making, w);
        if (r < 0) {
                free(w);
                return error_set(e, r, "make a layer");
        }
        *ret = w;
        return 0;
}

bool image_layer_known(struct image_store *st, const char *key) { return layer_cache_find(st->cache, key) != NULL; }

static void unlink_want(struct image_want **at, struct image_want *w) {
        while (*at != w)
                at = &(*at)->next;
        *at = w->next;
}

void image_want_cancel(struct image_want *w) {
        struct image_store *st = w->store;
        struct image_layer *l = w->layer;
        if (!l) {
                unlink_want(&st->telling, w);
                st->telling_last = &st->telling;
                while (*st->telling_last)
                        st->telling_last = &(*st->telling_last)->next;
                image_chain_unref(w->chain);
        } else {
                unlink_want(&l->wants, w);
                if (l->maker == w) {
                        l->maker = NULL;
                        image_layer_hush(l);
                        if (l->box)
                                box_cancel(l->box);      /* its end gives the layer up */
                }
        }
        free(w);
}

static void cancel_one(struct map_node *n, void *user) {
        struct image_layer *l = container_of(n, struct image_layer, node);
        if (l->box)
                box_cancel(l->box);
}

void image_layers_cancel(struct image_store *st) { map_each(&st->layers, cancel_one, NULL); }

/* ---- for the maker ---- */

void image_layer_spec(const struct image_layer *l, struct sandbox_spec *ret) {
        ret->image = l->parent->base;
        ret->layers = l->parent->ids;
        ret->upper = UPPER_LAYER;
        ret->upper_layer = l->m.id;
}

struct image_chain *image_layer_parent(const struct image_layer *l) { return l->parent; }
