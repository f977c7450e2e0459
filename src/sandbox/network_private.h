/* Private to network*.c. */
#pragma once
#include "sandbox/netlink.h"
#include "sandbox/network.h"
#include <stdbool.h>
#include <sys/types.h>

#define FORWARD_PATH "/proc/sys/net/ipv4/ip_forward"

struct network {
        char instance[33];
        char prefix_name[16];              /* "brig-<inst4>-" */
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

int network_cidr_parse(const char *s, uint32_t *ret_address, unsigned *ret_prefix);   /* network order, host bits zero */
bool network_is_loopback(uint32_t address);
int network_rules_add(struct network *n, struct error *e);
int network_rules_remove(const char *instance);       /* absent is 0 */
bool network_rules_others(void);                      /* is there a table of any instance left? */
