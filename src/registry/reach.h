/* Which addresses the daemon may connect to because a request named a registry. Pure functions, any thread.
 *
 * Without a rule a request could have the daemon speak to whatever the machine reaches: metadata services, the private network, other
 * services on loopback. So an address is allowed if
 *   - it is public unicast, or
 *   - the operator named it (ranges of `registry.allow`), or
 *   - it is loopback, the reference itself is written with a loopback host, and `loopback` is set: clients are on this machine anyway.
 * It is asked for the address that a socket is about to be connected to, after the name was resolved, each time: a name that resolves
 * to something else the second time gains nothing. IPv4 inside IPv6 (mapped, NAT64, 6to4, Teredo) is judged as what it stands for. */
#pragma once
#include <netinet/in.h>
#include <stdbool.h>

#include "base/error.h"

#define REACH_RANGES_MAX 64u

struct reach_range { uint8_t prefix[16]; unsigned bits; };     /* as IPv6; IPv4 is ::ffff:0:0/96 */

struct reach {
        struct reach_range ranges[REACH_RANGES_MAX]; size_t n_ranges;
        bool loopback;
};

/* "10.0.0.0/8", "fd00::/8", "192.0.2.1"; NULL-terminated or NULL. -EINVAL, -E2BIG. */
int reach_init(struct reach *ret, const char *const *ranges, bool loopback, struct error *e);
/* `named_loopback`: the reference's host is loopback (image_ref.loopback). Families other than IPv4 and IPv6: false. */
bool reach_allows(const struct reach *r, const struct sockaddr *a, bool named_loopback);
bool reach_is_loopback(const struct sockaddr *a);
