#include <string.h>

#include "egress/egress.h"
#include "egress/names.h"

#define FIRST 256u                             /* 198.18.1.0: what is below has other uses */
#define COUNT ((1u << 17) - FIRST)

struct name_entry { struct map_node node; uint32_t number; char name[]; };

static const char *key(const struct map_node *n) { return container_of(n, struct name_entry, node)->name; }

int names_init(struct names *n) {
        *n = (struct names){ 0 };
        return map_init(&n->by_name, key);
}

void names_release(struct names *n) {
        for (size_t i = 0; n->slots && i < EGRESS_NAMES_MAX; i++)
                free(n->slots[i]);
        free(n->slots);
        map_release(&n->by_name);
}

bool names_is_ours(const struct egress_address *a) {
        return a->family == 4 && a->b[0] == 198 && (a->b[1] & 0xfe) == 18;
}

static uint32_t number_of(const struct egress_address *a) {
        return (uint32_t)(a->b[1] & 1) << 16 | (uint32_t)a->b[2] << 8 | a->b[3];
}

static struct egress_address address_of(uint32_t number) {
        number += FIRST;
        return (struct egress_address){ .family = 4, .b = { 198, (uint8_t)(18 | number >> 16), (uint8_t)(number >> 8), (uint8_t)number } };
}

int names_address(struct names *n, const char *name, struct egress_address *ret) {
        struct map_node *found = map_find(&n->by_name, name);
        if (found) {
                *ret = address_of(container_of(found, struct name_entry, node)->number);
                return 0;
        }
        if (!n->slots && !(n->slots = calloc(EGRESS_NAMES_MAX, sizeof n->slots[0])))
                return -ENOMEM;
        size_t len = strlen(name);
        struct name_entry *entry = calloc(1, sizeof *entry + len + 1);
        if (!entry)
                return -ENOMEM;
        memcpy(entry->name, name, len + 1);
        entry->number = n->next++ % COUNT;
        struct name_entry **slot = &n->slots[entry->number % EGRESS_NAMES_MAX];
        if (*slot) {
                map_remove(&n->by_name, &(*slot)->node);
                free(*slot);
        }
        *slot = entry;
        map_add(&n->by_name, &entry->node);
        *ret = address_of(entry->number);
        return 0;
}

const char *names_find(const struct names *n, const struct egress_address *a) {
        if (!names_is_ours(a) || !n->slots || number_of(a) < FIRST)
                return NULL;
        uint32_t number = number_of(a) - FIRST;
        const struct name_entry *entry = n->slots[number % EGRESS_NAMES_MAX];
        return entry && entry->number == number ? entry->name : NULL;
}
