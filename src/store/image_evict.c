/* What goes when there is no room: images that nobody uses and that can be had again, the one least recently used first; and an image whose
 * layer proves broken. */
#include <string.h>

#include "base/log.h"
#include "store/image_store_private.h"

static bool can_go(const struct image *img) {
        if (img->users > 0)
                return false;
        return img->origin == IMAGE_FROM_PULL || img->origin == IMAGE_FROM_BUILD || (img->origin == IMAGE_FROM_SNAPSHOT && !(img->names && img->names[0]));
}

static bool is_older(const struct image *a, const struct image *b) {
        return a->used_ms != b->used_ms ? a->used_ms < b->used_ms : a->used_turn < b->used_turn;
}

static void older(struct map_node *n, void *user) {
        struct image **oldest = user, *img = container_of(n, struct image, node);
        if (can_go(img) && (!*oldest || is_older(img, *oldest)))
                *oldest = img;
}

static bool evict_one(struct image_store *st) {
        struct image *oldest = NULL;
        char digest[SHA256_HEX];
        map_each(&st->images, older, &oldest);
        if (!oldest)
                return false;
        memcpy(digest, oldest->digest, sizeof digest);
        log_event(LOG_INFO, "image.evicted", "image", digest, NULL);
        image_take_out(oldest);
        image_forget(st, digest, NULL, NULL);
        return true;
}

void image_store_trim(struct image_store *st) {
        while (!st->closing && layer_cache_bytes(st->cache) > layer_cache_max(st->cache) && evict_one(st))
                ;
}

uint64_t image_store_shed(struct image_store *st, uint64_t bytes) {
        uint64_t shed = layer_cache_shed(st->cache, bytes);
        while (shed < bytes && evict_one(st))
                shed += layer_cache_shed(st->cache, bytes - shed);
        return shed;
}

struct losing { struct cached_layer *layer; struct image *image; };
static void has_it(struct map_node *n, void *user) {
        struct losing *l = user;
        struct image *img = container_of(n, struct image, node);
        for (size_t i = 0; i < img->n; i++)
                if (img->layers[i] == l->layer)
                        l->image = img;
}

void image_store_lose(struct image_store *st, struct cached_layer *layer) {
        struct losing l = { .layer = layer };
        cached_layer_use(layer);
        do {
                l.image = NULL;
                map_each(&st->images, has_it, &l);
                if (l.image) {
                        char digest[SHA256_HEX];
                        memcpy(digest, l.image->digest, sizeof digest);
                        image_take_out(l.image);
                        image_forget(st, digest, NULL, NULL);
                }
        } while (l.image);
        cached_layer_discard(layer);
        cached_layer_unuse(layer);
}
