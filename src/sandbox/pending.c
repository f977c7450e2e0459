/* Stand-ins, weak, for confinement modules that are being written: each disappears by itself when the real function is
 * linked. This file goes away with the last of them. */
#include "sandbox/network.h"

#define WEAK __attribute__((weak))

WEAK int network_open(const struct network_config *cfg, struct network **ret, struct error *e) { return error_set(e, -EOPNOTSUPP, "network"); }
WEAK void network_close(struct network *n) { }
WEAK int network_attach(struct network *n, int netns_fd, struct network_link *ret, struct error *e) { return -EOPNOTSUPP; }
WEAK int network_detach(struct network *n, const struct network_link *l) { return 0; }
WEAK int network_resolv_conf(const struct network *n, struct buf *b) { return 0; }
WEAK int network_sweep(const char *instance, struct error *e) { return 0; }
