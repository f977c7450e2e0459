/* An intrusive hash map from text to objects that hold their own key and a `struct map_node`. The map owns nothing; an
 * object stays where it is while it is in the map, and is in one map per node.
 *
 *     struct task { struct map_node node; char id[37]; };
 *     static const char *task_key(const struct map_node *n) { return container_of(n, struct task, node)->id; }
 *     struct map m;
 *     r = map_init(&m, task_key);
 *     r = map_add(&m, &t->node);              // -EEXIST
 *     struct map_node *n = map_find(&m, id);  // NULL
 *     map_remove(&m, &t->node);
 *
 * Grows by doubling; when there is no memory to grow it stays as it is and only gets slower, so adding never fails for
 * want of memory. The hash is keyed with a random seed per map: names chosen by clients cannot be made to collide. Not
 * thread-safe. */
#pragma once
#include "base/macros.h"

struct map_node { struct map_node *next; };
struct map {
        struct map_node **buckets;
        size_t n_buckets;          /* a power of two */
        size_t n;
        uint64_t seed;
        const char *(*key)(const struct map_node *n);
};

int map_init(struct map *m, const char *(*key)(const struct map_node *n));   /* -ENOMEM */
void map_release(struct map *m);                                             /* the objects are the caller's */
struct map_node *map_find(const struct map *m, const char *key);
int map_add(struct map *m, struct map_node *n);                              /* -EEXIST */
void map_remove(struct map *m, struct map_node *n);                          /* must be in it */
/* Any node, NULL when empty: for taking a map apart. Costs O(1) over a whole emptying when `*hint` starts at 0. */
struct map_node *map_any(const struct map *m, size_t *hint);
/* Calls f for each; f may remove (and free) the node it is given, and must not add. */
void map_each(struct map *m, void (*f)(struct map_node *n, void *user), void *user);
