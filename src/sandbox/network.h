/* Network `open`: one point-to-point veth per sandbox, translated by the host, private destinations dropped.
 *
 * Theory of operation. network_open makes one nft table, brig_<instance>, whose rules match links by name
 * (brig<instance>*), so a sandbox costs one link and two addresses, no rule. Every host end carries the same gateway
 * address; the sandbox's own comes from NETWORK_POOL. From a sandbox these are dropped: the host's own addresses (whatever
 * arrives for local delivery), other sandboxes, loopback, link-local with the metadata address, private, shared (CGNAT),
 * benchmark, multicast and reserved ranges, every IPv6 packet, and any source but the sandbox's own address. What the
 * operator lists in `allow` is let through. IPv6 is off on the link (loopback has ::1).
 *
 * Names: resolvers are the host's. One that only the host can reach (127.0.0.53) is reached through the gateway's port 53,
 * translated; one at a private address is let through for port 53 alone. network_resolv_conf is what the sandbox's
 * /etc/resolv.conf must say.
 *
 * Spawner only, one thread. */
#pragma once
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"

#define NETWORK_POOL "100.96.0.0/16"           /* default; gateway is its first address */
#define NETWORK_ALLOW_MAX 64                   /* CIDRs the operator may name */
#define NETWORK_RESOLVERS_MAX 3

struct network;
struct network_link { int index; uint32_t number; uint32_t address; /* network order */ };

struct network_config {
        const char *instance;                  /* its first eight characters tell its links from others' */
        const char *pool;                      /* CIDR, /12 to /24; NULL = NETWORK_POOL */
        const char *const *allow;              /* IPv4 CIDRs, NULL-terminated; may be NULL */
        const char *resolv_conf;               /* NULL = /etc/resolv.conf (and systemd-resolved's own, where that names a stub) */
};

/* Makes the table and turns forwarding on. Call it for the first sandbox that wants `open`, not before: until then Brig
 * touches nothing of the host's network. Sweeps what an earlier process of the instance left. */
int network_open(const struct network_config *cfg, struct network **ret, struct error *e);
void network_close(struct network *n);         /* links, table, forwarding as it was */
/* Gives the namespace its link, address and default route. */
int network_attach(struct network *n, int netns_fd, struct network_link *ret, struct error *e);
/* Removes the link, without waiting for the kernel: -EBUSY until it says that the link is gone, then 0. Call again. */
int network_detach(struct network *n, const struct network_link *l);
int network_allow_check(const char *cidr);     /* -EINVAL: `allow` does not take it */
int network_resolv_conf(const struct network *n, struct buf *b);
/* Removes links and table that an earlier process of the instance left, and turns forwarding off again if that one had turned it on;
 * returns how many links. */
int network_sweep(const char *instance, struct error *e);
