/* A set of paths as 64-bit hashes: what an archive of a million entries needs 16 MiB for. A collision can only confuse the archive that
 * contains it. */
#include <string.h>

#include "helper/unpack.h"

struct path_set { uint64_t *slot; size_t alloc, n, max; };

static uint64_t hash(const char *p, size_t n) {
        uint64_t h = 0xcbf29ce484222325ull;
        for (size_t i = 0; i < n; i++)
                h = (h ^ (unsigned char)p[i]) * 0x100000001b3ull;
        h ^= h >> 32;
        h *= 0xd6e8feb86659fd93ull;
        h ^= h >> 32;
        return h ? h : 1;
}

int path_set_new(size_t max, struct path_set **ret) {
        struct path_set *s = calloc(1, sizeof *s);
        if (!s || !(s->slot = calloc(1024, sizeof *s->slot))) {
                free(s);
                return -ENOMEM;
        }
        s->alloc = 1024;
        s->max = max;
        *ret = s;
        return 0;
}

void path_set_free(struct path_set *s) {
        if (!s)
                return;
        free(s->slot);
        free(s);
}

static uint64_t *place(uint64_t *slot, size_t alloc, uint64_t h) {
        size_t i = (size_t)h & (alloc - 1);
        while (slot[i] && slot[i] != h)
                i = (i + 1) & (alloc - 1);
        return &slot[i];
}

static int grow(struct path_set *s) {
        if (s->n * 4 < s->alloc * 3)
                return 0;
        uint64_t *more = calloc(s->alloc * 2, sizeof *more);
        if (!more)
                return -ENOMEM;
        for (size_t i = 0; i < s->alloc; i++)
                if (s->slot[i])
                        *place(more, s->alloc * 2, s->slot[i]) = s->slot[i];
        free(s->slot);
        s->slot = more;
        s->alloc *= 2;
        return 0;
}

int path_set_add(struct path_set *s, const char *path) {
        for (size_t n = strlen(path); n > 0;) {
                uint64_t h = hash(path, n), *at = place(s->slot, s->alloc, h);
                if (*at)
                        return 0;      /* and so is all above it */
                if (s->n >= s->max)
                        return -E2BIG;
                *at = h;
                s->n++;
                int r = grow(s);
                if (r < 0)
                        return r;
                while (n > 0 && path[n - 1] != '/')
                        n--;
                n -= n > 0;
        }
        return 0;
}

bool path_set_has(const struct path_set *s, const char *path) {
        return *place(s->slot, s->alloc, hash(path, strlen(path))) != 0;
}
