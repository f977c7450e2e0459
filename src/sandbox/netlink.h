/* The few rtnetlink requests Brig makes: veth pairs, addresses, routes. One request, one acknowledgement, no allocation beyond
 * the handle. A handle belongs to the network namespace in which it was opened. Errors: -errno, the kernel's. */
#pragma once
#include <stdint.h>

#include "base/macros.h"

#define NFT_PATH "/usr/sbin/nft"

struct netlink;

int netlink_open(struct netlink **ret);
void netlink_close(struct netlink *nl);

/* `peer_netns` >= 0: the peer is born in that namespace. */
int netlink_veth_make(struct netlink *nl, const char *name, const char *peer, int peer_netns);
int netlink_link_index(struct netlink *nl, const char *name);            /* > 0, or -ENODEV */
int netlink_link_up(struct netlink *nl, int index);
/* Makes the link's carrier, just come up, count at once. The kernel does so in work of its own and drops packets until then
 * (seen: 150 ms and more); since 6.8 asking for the link catches up with that work. */
int netlink_link_sync(struct netlink *nl, int index);
int netlink_link_delete(struct netlink *nl, int index);
/* Addresses in network order. `peer` 0: the same as `address` (a /32). */
int netlink_address_add(struct netlink *nl, int index, uint32_t address, uint32_t peer);
/* Default route by way of `gateway`, which need not be on any subnet of the link. */
int netlink_default_route(struct netlink *nl, int index, uint32_t gateway);
/* Every address is one of this namespace's own, by way of `index` (loopback); connections to them come from `source`. */
int netlink_all_local(struct netlink *nl, int index, uint32_t source);
struct in6_addr;
int netlink_address6_add(struct netlink *nl, int index, const struct in6_addr *address);
int netlink_all_local6(struct netlink *nl, int index);
