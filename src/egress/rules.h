/* What a sandbox with the network `allow` may reach: a list of rules, as the wire writes them.
 *
 *     pypi.org              that name, any port                 *.example.org:443     names below example.org (not itself), port 443
 *     10.0.0.0/8            addresses, either family            [2001:db8::/32]:8000-8100    a range of ports; an IPv6 range with ports in brackets
 *     *                     every name
 *
 * Names are compared without case and without a final dot; other scripts are written in their xn-- form (what a resolver
 * asks for). A rule of names says nothing about addresses and one of addresses nothing about names: a connection to an address
 * that was written as one needs a range, and one that goes to a name needs a name.
 *
 * Immutable once made, counted: each holder has a reference. Loop thread only. */
#pragma once
#include "base/error.h"
#include "egress/address.h"

#define EGRESS_RULES_MAX 256           /* rules of one sandbox */
#define EGRESS_RULE_TEXT_MAX 300       /* bytes of one */
#define EGRESS_NAME_MAX 253            /* characters of a name */

struct egress_rules;

/* `texts` ends with NULL; an empty list is right, and lets nothing through. -EINVAL says which rule and why; -E2BIG; -ENOMEM. */
int egress_rules_new(const char *const *texts, struct egress_rules **ret, struct error *e);
/* From a request: {"allow": ["pypi.org", ...]}, or the list alone. The text of a fault has no field's name. */
struct json;
int egress_rules_from_json(const struct json *v, struct egress_rules **ret, struct error *e);
struct egress_rules *egress_rules_ref(struct egress_rules *r);
struct egress_rules *egress_rules_unref(struct egress_rules *r);       /* NULL is fine; always NULL */
size_t egress_rules_count(const struct egress_rules *r);
/* Rule i in its canonical form: what egress_rules_new takes, and the same for two ways to write the same rule. */
const char *egress_rules_text(const struct egress_rules *r, size_t i);

/* Port 0: any at all. `name` is canonical (egress_name_canonical). */
bool egress_rules_allow_name(const struct egress_rules *r, const char *name, uint16_t port);
bool egress_rules_allow_address(const struct egress_rules *r, const struct egress_address *a, uint16_t port);
/* As the one before, but only rules whose range lies within `within` count: a special range must be meant to be allowed. */
bool egress_rules_name_address(const struct egress_rules *r, const struct egress_range *within, const struct egress_address *a, uint16_t port);

/* Lower case, no final dot; labels of 1 to 63 letters, digits, '-' and '_'. -EINVAL: not a name, or one that is an address. */
int egress_name_canonical(const char *name, size_t n, char ret[static EGRESS_NAME_MAX + 1]);
