#include <errno.h>

#include "sandbox/spawner.h"

/* A handle is (generation << 32 | index + 1): never 0, and one that was dropped finds nothing. */

int handle_new(struct handles *h, void *object, uint64_t *ret) {
        size_t i = 0;
        while (i < h->alloc && h->object[i])
                i++;
        if (i >= h->max)
                return -EMFILE;
        if (i == h->alloc) {
                size_t alloc = MIN2(h->max, MAX2((size_t)64, h->alloc * 2));
                void **o = calloc(alloc, sizeof *o);
                uint32_t *g = calloc(alloc, sizeof *g);
                if (!o || !g) {
                        free(o);
                        free(g);
                        return -ENOMEM;
                }
                for (size_t j = 0; j < h->alloc; j++) {
                        o[j] = h->object[j];
                        g[j] = h->generation[j];
                }
                free(h->object);
                free(h->generation);
                h->object = o;
                h->generation = g;
                h->alloc = alloc;
        }
        h->object[i] = object;
        h->n++;
        *ret = (uint64_t)h->generation[i] << 32 | (uint32_t)(i + 1);
        return 0;
}

static size_t index_of(const struct handles *h, uint64_t handle) {
        size_t i = (uint32_t)handle - 1u;
        return (uint32_t)handle == 0 || i >= h->alloc || h->generation[i] != handle >> 32 ? SIZE_MAX : i;
}

void *handle_get(const struct handles *h, uint64_t handle) {
        size_t i = index_of(h, handle);
        return i == SIZE_MAX ? NULL : h->object[i];
}

void handle_drop(struct handles *h, uint64_t handle) {
        size_t i = index_of(h, handle);
        ASSERT(i != SIZE_MAX && h->object[i]);
        h->object[i] = NULL;
        h->generation[i]++;
        h->n--;
}
