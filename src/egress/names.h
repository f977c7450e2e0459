/* Which name each address from 198.18.1.0 to 198.19.255.255 means in one sandbox. An address is given to one name; the numbers go
 * round, so one is used again only after 130,816 others. EGRESS_NAMES_MAX are remembered, then the oldest is forgotten. */
#pragma once
#include "base/map.h"
#include "egress/rules.h"

struct name_entry;
struct names { struct map by_name; struct name_entry **slots; /* by number % EGRESS_NAMES_MAX; made on first use */ uint32_t next; };

int names_init(struct names *n);
void names_release(struct names *n);
bool names_is_ours(const struct egress_address *a);            /* 198.18.0.0/15, the resolver's included */
/* The name's address; a new one if it has none. */
int names_address(struct names *n, const char *name, struct egress_address *ret);
const char *names_find(const struct names *n, const struct egress_address *a);        /* NULL: it means none */
