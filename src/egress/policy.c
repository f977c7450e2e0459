#include <ifaddrs.h>

#include "egress/names.h"
#include "egress/policy.h"

static bool is_own(const struct egress_address *a) {
        struct ifaddrs *all;
        bool found = false;
        if (getifaddrs(&all) < 0)
                return true;           /* unknown: then nothing is let through */
        for (const struct ifaddrs *i = all; i && !found; i = i->ifa_next) {
                struct egress_address own;
                found = i->ifa_addr && egress_address_from_sockaddr(i->ifa_addr, &own, NULL) == 0 && egress_address_equal(&own, a);
        }
        freeifaddrs(all);
        return found;
}

int policy_name(const struct egress_policy *p, const struct egress_rules *rules, const char *name, uint16_t port) {
        if (!egress_rules_allow_name(rules, name, port))
                return REASON_NOT_ALLOWED;
        /* A list that forbids some ports of a name does not forbid the name. */
        if (p->deny && port != 0 && egress_rules_allow_name(p->deny, name, port))
                return REASON_OPERATOR;
        return -1;
}

static bool operator_allows(const struct egress_policy *p, const struct egress_address *a) {
        for (size_t i = 0; i < p->n_allow; i++)
                if (egress_range_holds(&p->allow[i], a))
                        return true;
        return false;
}

int policy_address(const struct egress_policy *p, const struct egress_rules *rules, const char *name, const struct egress_address *a, uint16_t port) {
        struct egress_range special;
        enum egress_place place = egress_address_place(a, &special);
        if (!name && !egress_rules_allow_address(rules, a, port))
                return REASON_NOT_ALLOWED;
        if (p->deny && egress_rules_allow_address(p->deny, a, port))
                return REASON_OPERATOR;
        if (place == PLACE_NOWHERE)
                return REASON_NO_ADDRESS;
        bool own = p->is_own ? p->is_own(a) : is_own(a), loopback = place == PLACE_LOCAL && (a->family == 6 ? a->b[0] == 0 : a->b[0] == 127);
        /* To itself the daemon would be a client that nobody asked for a token. */
        if ((own || loopback) && p->own_port != 0 && port == p->own_port)
                return REASON_LOCAL_ADDRESS;
        if (operator_allows(p, a))
                return -1;
        if (own || place == PLACE_LOCAL)
                return REASON_LOCAL_ADDRESS;
        if (place == PLACE_PRIVATE && !egress_rules_name_address(rules, &special, a, port))
                return REASON_PRIVATE_ADDRESS;
        return -1;
}
