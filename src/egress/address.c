#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include "egress/address.h"

#define V4(w, x, y, z) .family = 4, .b = { w, x, y, z }
#define V6(w, x, y, z) .family = 6, .b = { w, x, y, z }

static const struct { struct egress_range range; enum egress_place place; } special[] = {
        { { { V4(0, 0, 0, 0) }, 8 }, PLACE_NOWHERE },
        { { { V4(10, 0, 0, 0) }, 8 }, PLACE_PRIVATE },
        { { { V4(100, 64, 0, 0) }, 10 }, PLACE_LOCAL },
        { { { V4(127, 0, 0, 0) }, 8 }, PLACE_LOCAL },
        { { { V4(169, 254, 0, 0) }, 16 }, PLACE_LOCAL },
        { { { V4(172, 16, 0, 0) }, 12 }, PLACE_PRIVATE },
        { { { V4(192, 0, 0, 0) }, 24 }, PLACE_LOCAL },
        { { { V4(192, 0, 2, 0) }, 24 }, PLACE_NOWHERE },
        { { { V4(192, 88, 99, 0) }, 24 }, PLACE_NOWHERE },
        { { { V4(192, 168, 0, 0) }, 16 }, PLACE_PRIVATE },
        { { { V4(198, 18, 0, 0) }, 15 }, PLACE_NOWHERE },
        { { { V4(198, 51, 100, 0) }, 24 }, PLACE_NOWHERE },
        { { { V4(203, 0, 113, 0) }, 24 }, PLACE_NOWHERE },
        { { { V4(224, 0, 0, 0) }, 3 }, PLACE_NOWHERE },
        { { { .family = 6, .b = { [15] = 1 } }, 128 }, PLACE_LOCAL },
        { { { V6(0xfe, 0x80, 0x00, 0x00) }, 10 }, PLACE_LOCAL },
        { { { V6(0xfc, 0x00, 0x00, 0x00) }, 7 }, PLACE_PRIVATE },
        { { { V6(0x20, 0x01, 0x00, 0x00) }, 32 }, PLACE_NOWHERE },
        { { { V6(0x20, 0x01, 0x0d, 0xb8) }, 32 }, PLACE_NOWHERE },
        { { { V6(0x20, 0x02, 0x00, 0x00) }, 16 }, PLACE_NOWHERE },
};

static void unwrap(struct egress_address *a) {
        static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff }, translated[12] = { 0, 0x64, 0xff, 0x9b };
        if (a->family != 6 || (memcmp(a->b, mapped, 12) != 0 && memcmp(a->b, translated, 12) != 0))
                return;
        a->family = 4;
        memmove(a->b, a->b + 12, 4);
        memset(a->b + 4, 0, 12);
}

int egress_address_parse(const char *text, struct egress_address *ret) {
        struct egress_address a = { 0 };
        if (inet_pton(AF_INET, text, a.b) == 1)
                a.family = 4;
        else if (inet_pton(AF_INET6, text, a.b) == 1)
                a.family = 6;
        else
                return -EINVAL;
        unwrap(&a);
        *ret = a;
        return 0;
}

void egress_address_format(const struct egress_address *a, char ret[static EGRESS_ADDRESS_TEXT]) {
        if (!inet_ntop(a->family == 4 ? AF_INET : AF_INET6, a->b, ret, EGRESS_ADDRESS_TEXT))
                ret[0] = 0;
}

int egress_address_from_sockaddr(const struct sockaddr *sa, struct egress_address *ret, uint16_t *ret_port) {
        struct egress_address a = { 0 };
        uint16_t port;
        if (sa->sa_family == AF_INET) {
                const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)sa;
                a.family = 4;
                memcpy(a.b, &in->sin_addr, 4);
                port = ntohs(in->sin_port);
        } else if (sa->sa_family == AF_INET6) {
                const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)(const void *)sa;
                a.family = 6;
                memcpy(a.b, &in->sin6_addr, 16);
                port = ntohs(in->sin6_port);
        } else
                return -EAFNOSUPPORT;
        unwrap(&a);
        *ret = a;
        if (ret_port)
                *ret_port = port;
        return 0;
}

socklen_t egress_address_to_sockaddr(const struct egress_address *a, uint16_t port, struct sockaddr_storage *ret) {
        memset(ret, 0, sizeof *ret);
        if (a->family == 4) {
                struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(port) };
                memcpy(&in.sin_addr, a->b, 4);
                memcpy(ret, &in, sizeof in);
                return sizeof in;
        }
        struct sockaddr_in6 in = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
        memcpy(&in.sin6_addr, a->b, 16);
        memcpy(ret, &in, sizeof in);
        return sizeof in;
}

bool egress_address_equal(const struct egress_address *a, const struct egress_address *b) {
        return a->family == b->family && memcmp(a->b, b->b, a->family == 4 ? 4 : 16) == 0;
}

/* ---- ranges ---- */

static bool same_bits(const uint8_t *a, const uint8_t *b, unsigned bits) {
        if (memcmp(a, b, bits / 8) != 0)
                return false;
        return bits % 8 == 0 || ((a[bits / 8] ^ b[bits / 8]) & (uint8_t)(0xff00u >> (bits % 8))) == 0;
}

static bool rest_is_zero(const struct egress_range *r) {
        unsigned size = r->base.family == 4 ? 32 : 128;
        for (unsigned bit = r->prefix; bit < size; bit++)
                if (r->base.b[bit / 8] & 0x80u >> bit % 8)
                        return false;
        return true;
}

int egress_range_parse(const char *text, struct egress_range *ret) {
        char address[EGRESS_ADDRESS_TEXT];
        const char *slash = strchr(text, '/');
        size_t n = slash ? (size_t)(slash - text) : strlen(text);
        if (n >= sizeof address)
                return -EINVAL;
        memcpy(address, text, n);
        address[n] = 0;
        struct egress_range r = { 0 };
        if (egress_address_parse(address, &r.base) < 0)
                return -EINVAL;
        unsigned size = r.base.family == 4 ? 32 : 128, most = strchr(address, ':') ? 128 : 32;
        unsigned long prefix = most;
        if (slash) {
                char *end;
                if (slash[1] < '0' || slash[1] > '9')
                        return -EINVAL;
                prefix = strtoul(slash + 1, &end, 10);
                if (*end || prefix > most)
                        return -EINVAL;
        }
        if (most > size) {         /* an IPv4 address in IPv6 dress */
                if (prefix < 96)
                        return -EINVAL;
                prefix -= 96;
        }
        r.prefix = (uint8_t)prefix;
        if (!rest_is_zero(&r))
                return -EINVAL;
        *ret = r;
        return 0;
}

bool egress_range_holds(const struct egress_range *r, const struct egress_address *a) {
        return r->base.family == a->family && same_bits(r->base.b, a->b, r->prefix);
}

enum egress_place egress_address_place(const struct egress_address *a, struct egress_range *ret_special) {
        for (size_t i = 0; i < ARRAY_SIZE(special); i++) {
                if (!egress_range_holds(&special[i].range, a))
                        continue;
                if (ret_special)
                        *ret_special = special[i].range;
                return special[i].place;
        }
        /* Of IPv6 only 2000::/3 is given to anybody: the rest is multicast, old or unknown. */
        if (a->family == 6 && (a->b[0] & 0xe0) != 0x20) {
                if (ret_special)
                        *ret_special = (struct egress_range){ .base = *a, .prefix = 128 };
                return PLACE_NOWHERE;
        }
        return PLACE_PUBLIC;
}
