/* Addresses and ranges of both families, and what kind of place an address is. Pure; any thread.
 *
 * An IPv4 address that comes inside an IPv6 one (::ffff:a.b.c.d, and 64:ff9b::/96, which translators take apart) is the IPv4
 * address: what is said of it holds for both ways to write it. */
#pragma once
#include <stdbool.h>
#include <sys/socket.h>

#include "base/macros.h"

#define EGRESS_ADDRESS_TEXT 48

struct egress_address { uint8_t family; /* 4 or 6 */ uint8_t b[16]; /* network order; 4 or 16 bytes count */ };
struct egress_range { struct egress_address base; uint8_t prefix; };

enum egress_place {
        PLACE_PUBLIC,
        PLACE_PRIVATE,     /* 10/8, 172.16/12, 192.168/16, fc00::/7: a request may name ranges in them */
        PLACE_LOCAL,       /* loopback, link-local with the metadata services, shared (100.64/10), protocol assignments: the operator alone may name them */
        PLACE_NOWHERE,     /* this network, multicast, reserved, documentation, 198.18/15 (ours inside), other tunnels: never */
        EGRESS_PLACE_MAX,
};

int egress_address_parse(const char *text, struct egress_address *ret);        /* -EINVAL; no brackets, no zone */
void egress_address_format(const struct egress_address *a, char ret[static EGRESS_ADDRESS_TEXT]);
/* -EAFNOSUPPORT: neither IPv4 nor IPv6. */
int egress_address_from_sockaddr(const struct sockaddr *sa, struct egress_address *ret, uint16_t *ret_port);
socklen_t egress_address_to_sockaddr(const struct egress_address *a, uint16_t port, struct sockaddr_storage *ret);
bool egress_address_equal(const struct egress_address *a, const struct egress_address *b);

/* ADDRESS or ADDRESS/PREFIX; -EINVAL, also when bits behind the prefix are set: a typing mistake that would allow more than meant. */
int egress_range_parse(const char *text, struct egress_range *ret);
bool egress_range_holds(const struct egress_range *r, const struct egress_address *a);

/* Which place; *ret_special (may be NULL) is the range that makes it one, and stays untouched for PUBLIC. */
enum egress_place egress_address_place(const struct egress_address *a, struct egress_range *ret_special);
