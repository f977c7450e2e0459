#include <string.h>

#include "base/hash.h"
#include "base/map.h"

#define FIRST_BUCKETS 64

/* A multiply-and-fold hash over 8 bytes at a time, keyed by the seed on both sides of every product. */
static uint64_t fold(uint64_t a, uint64_t b) {
        __extension__ unsigned __int128 p = (unsigned __int128)a * b;
        return (uint64_t)p ^ (uint64_t)(p >> 64);
}

static uint64_t hash_of(const struct map *m, const char *key) {
        size_t n = strlen(key);
        uint64_t h = m->seed ^ n;
        while (n > 0) {
                uint64_t word = 0;
                size_t take = MIN2(n, sizeof word);
                memcpy(&word, key, take);
                h = fold(h ^ word, m->seed | 1);
                key += take;
                n -= take;
        }
        return fold(h, 0x9e3779b97f4a7c15ull ^ m->seed);
}

static struct map_node **slot(const struct map *m, const char *key) {
        return &m->buckets[hash_of(m, key) & (m->n_buckets - 1)];
}

int map_init(struct map *m, const char *(*key)(const struct map_node *n)) {
        *m = (struct map){ .key = key, .n_buckets = FIRST_BUCKETS };
        random_bytes(&m->seed, sizeof m->seed);
        m->buckets = calloc(m->n_buckets, sizeof *m->buckets);
        return m->buckets ? 0 : -ENOMEM;
}

void map_release(struct map *m) {
        free(m->buckets);
        m->buckets = NULL;
        m->n = m->n_buckets = 0;
}

struct map_node *map_find(const struct map *m, const char *key) {
        if (!m->buckets)
                return NULL;
        for (struct map_node *n = *slot(m, key); n; n = n->next)
                if (strcmp(m->key(n), key) == 0)
                        return n;
        return NULL;
}

static void grow(struct map *m) {
        struct map bigger = *m;
        bigger.n_buckets = m->n_buckets * 2;
        bigger.buckets = calloc(bigger.n_buckets, sizeof *bigger.buckets);
        if (!bigger.buckets)
                return;
        for (size_t i = 0; i < m->n_buckets; i++)
                for (struct map_node *n = m->buckets[i], *next; n; n = next) {
                        next = n->next;
                        struct map_node **s = slot(&bigger, m->key(n));
                        n->next = *s;
                        *s = n;
                }
        free(m->buckets);
        *m = bigger;
}

int map_add(struct map *m, struct map_node *n) {
        if (map_find(m, m->key(n)))
                return -EEXIST;
        if (m->n >= m->n_buckets)
                grow(m);
        struct map_node **s = slot(m, m->key(n));
        n->next = *s;
        *s = n;
        m->n++;
        return 0;
}

void map_remove(struct map *m, struct map_node *n) {
        for (struct map_node **at = slot(m, m->key(n)); *at; at = &(*at)->next)
                if (*at == n) {
                        *at = n->next;
                        n->next = NULL;
                        m->n--;
                        return;
                }
        ASSERT(!"node is not in the map");
}

struct map_node *map_any(const struct map *m, size_t *hint) {
        for (; *hint < m->n_buckets; ++*hint)
                if (m->buckets[*hint])
                        return m->buckets[*hint];
        return NULL;
}

void map_each(struct map *m, void (*f)(struct map_node *n, void *user), void *user) {
        for (size_t i = 0; i < m->n_buckets; i++)
                for (struct map_node *n = m->buckets[i], *next; n; n = next) {
                        next = n->next;
                        f(n, user);
                }
}
