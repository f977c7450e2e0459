/* Chains: a base and layers that are in use. */
#include <string.h>

#include "base/log.h"
#include "store/image.h"
#include "store/image_store_private.h"

struct image_chain *image_chain_new(struct image_store *st, const char *base, const char *base_key, const char *key, struct cached_layer *const *layers, size_t n) {
        struct image_chain *c = calloc(1, sizeof *c);
        if (!c)
                return NULL;
        c->base = strdup(base);
        c->layers = calloc(n + 1, sizeof *c->layers);
        c->ids = calloc(n + 1, sizeof *c->ids);
        if (!c->base || !c->layers || !c->ids) {
                free(c->base);
                free(c->layers);
                free(c->ids);
                free(c);
                return NULL;
        }
        c->store = st;
        c->refs = 1;
        snprintf(c->base_key, sizeof c->base_key, "%s", base_key);
        snprintf(c->key, sizeof c->key, "%s", key);
        c->n = n;
        for (size_t i = 0; i < n; i++) {
                c->layers[i] = layers[i];
                cached_layer_use(layers[i]);
                c->ids[i] = cached_layer_manifest(layers[i])->id;
        }
        return c;
}

struct image_chain *image_chain_base(struct image_store *st, const char *base) {
        char key[SHA256_HEX] = "";
        if (strcmp(base, IMAGE_SCRATCH) != 0 && image_digest(st->spawner, base, key, NULL) < 0)
                sha256_hex(base, strlen(base), key);       /* not there: the sandbox will say so */
        return image_chain_new(st, base, key, key, NULL, 0);
}

struct image_chain *image_chain_extend(struct image_chain *p, const char *key, struct cached_layer *l) {
        struct cached_layer *all[IMAGE_LAYERS_MAX + 1];
        ASSERT(p->n < IMAGE_LAYERS_MAX);
        memcpy(all, p->layers, p->n * sizeof *all);
        all[p->n] = l;
        return image_chain_new(p->store, p->base, p->base_key, key, all, p->n + 1);
}

struct image_chain *image_chain_ref(struct image_chain *c) {
        c->refs++;
        return c;
}

struct image_chain *image_chain_unref(struct image_chain *c) {
        if (!c || --c->refs > 0)
                return NULL;
        for (size_t i = c->n; i-- > 0;)
                cached_layer_unuse(c->layers[i]);
        free(c->base);
        free(c->layers);
        free(c->ids);
        free(c);
        return NULL;
}

const char *image_chain_image(const struct image_chain *c) { return c->base; }
const char *const *image_chain_layers(const struct image_chain *c) { return c->ids; }
size_t image_chain_count(const struct image_chain *c) { return c->n; }
const char *image_chain_key(const struct image_chain *c) { return c->key; }

uint64_t image_chain_bytes(const struct image_chain *c) {
        uint64_t sum = 0;
        for (size_t i = 0; i < c->n; i++)
                sum += cached_layer_manifest(c->layers[i])->bytes;
        return sum;
}

int image_chain_id(const char *parent_key, const char *diff_id, char ret[static SHA256_HEX]) {
        char text[200];
        if (!parent_key[0]) {
                memmove(ret, diff_id, SHA256_HEX);
                return 0;
        }
        int n = snprintf(text, sizeof text, "sha256:%s sha256:%s", parent_key, diff_id);
        return sha256_hex(text, (size_t)n, ret);
}

/* ---- mounting ---- */

struct image_chain_opening {
        struct image_chain *chain;
        size_t pending;
        int r;
        struct error error;
        bool cancelled;
        void (*done)(int r, const struct error *e, void *user);
        void *user;
};

static void opening_end(struct image_chain_opening *o) {
        struct image_chain *c = o->chain;
        if (!o->cancelled)
                o->done(o->r, &o->error, o->user);
        free(o);
        image_chain_unref(c);
}

struct one_layer { struct image_chain_opening *opening; struct cached_layer *layer; };

static void opened(int r, const struct error *e, void *user) {
        struct one_layer *one = user;
        struct image_chain_opening *o = one->opening;
        if (r < 0 && o->r == 0) {
                o->r = r;
                o->error = *e;
        }
        if (r < 0) {
                log_event(LOG_WARN, "layer.unusable", "layer", cached_layer_manifest(one->layer)->id, "error", e->text, NULL);
                image_store_lose(o->chain->store, one->layer);
        }
        free(one);
        if (--o->pending == 0)
                opening_end(o);
}

/* Counts one more than there are, so that the end comes after the last was asked for. */
int image_chain_open(struct image_chain *c, void (*done)(int r, const struct error *e, void *user), void *user, struct image_chain_opening **ret) {
        struct image_chain_opening *o = calloc(1, sizeof *o);
        if (!o)
                return -ENOMEM;
        *o = (struct image_chain_opening){ .chain = image_chain_ref(c), .pending = 1, .done = done, .user = user };
        int r = 0;
        for (size_t i = 0; i < c->n && r >= 0; i++) {
                struct one_layer *one = calloc(1, sizeof *one);
                if (one)
                        *one = (struct one_layer){ o, c->layers[i] };
                r = one ? cached_layer_open(c->layers[i], opened, one) : -ENOMEM;
                if (r == 0)
                        o->pending++;
                else
                        free(one);
        }
        o->pending--;
        if (r < 0 && o->pending > 0) {
                o->r = error_set(&o->error, r, "open a layer");
                r = 0;
        }
        if (o->pending > 0) {
                *ret = o;
                return 0;
        }
        free(o);
        image_chain_unref(c);
        return r < 0 ? r : 1;
}

/* The answers that are still to come find nobody to tell. */
void image_chain_open_cancel(struct image_chain_opening *o) {
        if (o)
                o->cancelled = true;
}
