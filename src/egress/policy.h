/* Whether a sandbox may reach a place: its rules, the operator's lists, and what kind of address it is. The only file that decides;
 * no state but the operator's lists. */
#pragma once
#include "egress/egress.h"

struct egress_policy {
        struct egress_range allow[EGRESS_OPERATOR_MAX]; size_t n_allow;
        struct egress_rules *deny;             /* NULL = none */
        uint16_t own_port;
        /* The host's own addresses; NULL: asked of the kernel. Tests set it. */
        bool (*is_own)(const struct egress_address *a);
};

/* Of a name, before it is resolved: -1 = yes, or the reason. */
int policy_name(const struct egress_policy *p, const struct egress_rules *rules, const char *name, uint16_t port);
/* Of an address: `name` is what led there, or NULL where the sandbox wrote the address itself. -1 = yes, or the reason. */
int policy_address(const struct egress_policy *p, const struct egress_rules *rules, const char *name, const struct egress_address *a, uint16_t port);
