/* The form of a request's network: "none", "open" (also the wire's "host", which never shares the host's own network), or the rules of
 * `allow`: {"allow": ["pypi.org", ...]} or the list alone. Faults as in base/fields.h. *ret_rules is the caller's reference, NULL but for NETWORK_ALLOW. */
#pragma once
#include "base/fields.h"
#include "sandbox/sandbox.h"

int field_network(const struct field *f, const struct json *v, enum sandbox_network *ret, struct egress_rules **ret_rules, struct error *e);
#define FIELD_NETWORK_TYPE "`none`, `open`, `{\"allow\": [RULE...]}`"
