/* The outcome map of a run: ids in the order in which they were reported, and an index by a keyed hash, because ids are
 * written by hostile code that would otherwise choose colliding ones. */
#include <string.h>

#include "base/hash.h"
#include "score/record.h"

static const char *const status_names[] = { "passed", "failed", "error", "skipped", "xfailed", "xpassed", "missing" };
STRING_TABLE(test_status, status_names, TEST_STATUS_MAX)

struct results_index {
        uint64_t key[2];
        size_t slots;              /* a power of two, at least twice the entries */
        uint32_t at[];             /* entry + 1, 0 = free */
};

/* When an id is reported twice the graver one stays. Missing is the absence of a report: any report replaces it. */
static int gravity(enum test_status st) {
        static const int g[TEST_STATUS_MAX] = {
                [TEST_MISSING] = 0, [TEST_PASSED] = 1, [TEST_XPASSED] = 2, [TEST_SKIPPED] = 3, [TEST_XFAILED] = 4,
                [TEST_FAILED] = 5, [TEST_ERROR] = 6,
        };
        return g[st];
}

static inline uint64_t rotl(uint64_t x, int by) {
        return (x << by) | (x >> (64 - by));
}

struct sip { uint64_t a, b, c, d; };

static void sip_round(struct sip *s) {
        s->a += s->b; s->b = rotl(s->b, 13) ^ s->a; s->a = rotl(s->a, 32);
        s->c += s->d; s->d = rotl(s->d, 16) ^ s->c;
        s->a += s->d; s->d = rotl(s->d, 21) ^ s->a;
        s->c += s->b; s->b = rotl(s->b, 17) ^ s->c; s->c = rotl(s->c, 32);
}

/* SipHash-1-3 over the bytes of a string. */
static uint64_t hash_id(const uint64_t key[2], const char *id) {
        size_t n = strlen(id);
        struct sip s = { key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d, key[0] ^ 0x6c7967656e657261, key[1] ^ 0x7465646279746573 };
        size_t i = 0;
        for (; i + 8 <= n; i += 8) {
                uint64_t m;
                memcpy(&m, id + i, 8);
                s.d ^= m; sip_round(&s); s.a ^= m;
        }
        uint64_t last = (uint64_t)n << 56;
        for (size_t k = 0; i + k < n; k++)
                last |= (uint64_t)(unsigned char)id[i + k] << (8 * k);
        s.d ^= last; sip_round(&s); s.a ^= last;
        s.c ^= 0xff;
        for (int k = 0; k < 3; k++)
                sip_round(&s);
        return s.a ^ s.b ^ s.c ^ s.d;
}

/* The slot of id: its entry's, or the free one where it would go. */
static uint32_t *find_slot(const struct test_results *t, struct results_index *x, const char *id) {
        for (size_t at = hash_id(x->key, id) & (x->slots - 1);; at = (at + 1) & (x->slots - 1))
                if (x->at[at] == 0 || strcmp(t->items[x->at[at] - 1].id, id) == 0)
                        return &x->at[at];
}

static int grow_index(struct test_results *t) {
        struct results_index *old = t->index;
        size_t slots = old ? old->slots * 2 : 64;
        struct results_index *x = calloc(1, sizeof *x + slots * sizeof x->at[0]);
        if (!x)
                return -ENOMEM;
        x->slots = slots;
        if (old)
                memcpy(x->key, old->key, sizeof x->key);
        else
                random_bytes(x->key, sizeof x->key);
        for (size_t i = 0; i < t->n; i++)
                *find_slot(t, x, t->items[i].id) = (uint32_t)i + 1;
        free(old);
        t->index = x;
        return 0;
}

static int add_item(struct test_results *t, const char *id, enum test_status st) {
        if (t->n >= TEST_RESULTS_MAX)
                return -ENOSPC;
        if (t->n == t->alloc) {
                size_t grown = t->alloc ? t->alloc * 2 : 32;
                struct test_result *p = realloc(t->items, grown * sizeof *p);
                if (!p)
                        return -ENOMEM;
                t->items = p;
                t->alloc = grown;
        }
        char *copy = strdup(id);
        if (!copy)
                return -ENOMEM;
        t->items[t->n++] = (struct test_result){ .id = copy, .status = st };
        return 0;
}

int test_results_put(struct test_results *t, const char *id, enum test_status st) {
        ASSERT((unsigned)st < TEST_STATUS_MAX);
        struct results_index *x = t->index;
        if (!x || (t->n + 1) * 2 > x->slots) {
                int r = grow_index(t);
                if (r < 0)
                        return r;
                x = t->index;
        }
        uint32_t *slot = find_slot(t, x, id);
        if (*slot) {
                struct test_result *have = &t->items[*slot - 1];
                if (gravity(st) > gravity(have->status))
                        have->status = st;
                return 0;
        }
        int r = add_item(t, id, st);
        if (r == 0)
                *slot = (uint32_t)t->n;
        return r;
}

enum test_status test_results_get(const struct test_results *t, const char *id) {
        if (!t->index)
                return TEST_MISSING;
        uint32_t at = *find_slot(t, t->index, id);
        return at ? t->items[at - 1].status : TEST_MISSING;
}

size_t test_results_count(const struct test_results *t, enum test_status st) {
        size_t n = 0;
        for (size_t i = 0; i < t->n; i++)
                n += t->items[i].status == st;
        return n;
}

void test_results_release(struct test_results *t) {
        if (!t)
                return;
        for (size_t i = 0; i < t->n; i++)
                free(t->items[i].id);
        free(t->items);
        free(t->index);
        *t = (struct test_results){ 0 };
}
