/* Private to network*.c. */
#pragma once
#include "sandbox/netlink.h"
#include "sandbox/network.h"
#include <stdbool.h>
#include <sys/types.h>

#define FORWARD_PATH "/proc/sys/net/ipv4/ip_forward"

struct network {
        char instance[33];
        char prefix_name[13];              /* what its links' names begin with: "brig" and the instance */
        uint32_t pool, gateway;            /* network order */
        unsigned prefix;
        uint32_t count, next;
        char allow[NETWORK_ALLOW_MAX][32];
        unsigned n_allow;
        uint32_t resolvers[NETWORK_RESOLVERS_MAX];
        unsigned n_resolvers;
        bool stub;                         /* a resolver on a loopback address is translated */
        bool turned_forwarding_on;
        pid_t remover;                     /* process that removes a link; 0 = none */
        struct netlink *netlink;           /* in the host's namespace */
};

#define LINK_DIGITS 3                      /* a link's number, in base 36, behind the prefix: 15 characters at most */
#define LINKS_MAX (36 * 36 * 36)           /* more than there may be sandboxes */

int network_cidr_parse(const char *s, uint32_t *ret_address, unsigned *ret_prefix);   /* network order, host bits zero */
bool network_is_loopback(uint32_t address);
int network_rules_add(struct network *n, struct error *e);
/* Absent is 0. `ret_was_off`: it is gone, and before it was made the machine did not forward. */
int network_rules_remove(const char *instance, bool *ret_was_off);
bool network_rules_others(void);                      /* is there a table of any instance left? */
