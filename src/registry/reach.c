#include <arpa/inet.h>
#include <string.h>

#include "registry/reach.h"

static const uint8_t mapped[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };

struct special { uint32_t net; unsigned bits; };

/* IPv4 that is not public unicast (RFC 6890 and what followed). */
static const struct special special4[] = {
        { 0x00000000, 8 }, { 0x0a000000, 8 }, { 0x64400000, 10 }, { 0x7f000000, 8 }, { 0xa9fe0000, 16 }, { 0xac100000, 12 }, { 0xc0000000, 24 },
        { 0xc0000200, 24 }, { 0xc0586300, 24 }, { 0xc0a80000, 16 }, { 0xc6120000, 15 }, { 0xc6336400, 24 }, { 0xcb007100, 24 }, { 0xe0000000, 3 },
};

static bool in_prefix(const uint8_t *a, const uint8_t *prefix, unsigned bits) {
        unsigned whole = bits / 8, rest = bits % 8;
        if (memcmp(a, prefix, whole) != 0)
                return false;
        return rest == 0 || ((a[whole] ^ prefix[whole]) >> (8 - rest)) == 0;
}

static bool public4(uint32_t a) {
        for (size_t i = 0; i < ARRAY_SIZE(special4); i++)
                if ((a ^ special4[i].net) >> (32 - special4[i].bits) == 0)
                        return false;
        return true;
}

static uint32_t four(const uint8_t *p) { return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]; }

/* The IPv4 address that an IPv6 address stands for. */
static bool embedded4(const uint8_t *a, uint32_t *ret) {
        static const uint8_t nat64[12] = { 0, 0x64, 0xff, 0x9b }, compatible[12] = { 0 };
        static const uint8_t teredo[4] = { 0x20, 0x01, 0, 0 };
        if (memcmp(a, mapped, 12) == 0 || memcmp(a, nat64, 12) == 0 || memcmp(a, compatible, 12) == 0)
                *ret = four(a + 12);
        else if (a[0] == 0x20 && a[1] == 0x02)
                *ret = four(a + 2);
        else if (memcmp(a, teredo, 4) == 0)
                *ret = ~four(a + 12);
        else
                return false;
        return true;
}

static bool public6(const uint8_t *a) {
        static const uint8_t documentation[4] = { 0x20, 0x01, 0x0d, 0xb8 };
        static const uint8_t protocol[3] = { 0x20, 0x01, 0 };       /* 2001::/23 */
        uint32_t v4;
        if (embedded4(a, &v4))
                return public4(v4);
        if (a[0] >> 5 != 1)                              /* outside 2000::/3: loopback, link-local, private, multicast, 64:ff9b:1:: */
                return false;
        return memcmp(a, documentation, 4) != 0 && !in_prefix(a, protocol, 23);
}

static bool to16(const struct sockaddr *sa, uint8_t ret[static 16]) {
        if (sa->sa_family == AF_INET) {
                memcpy(ret, mapped, 12);
                memcpy(ret + 12, &((const struct sockaddr_in *)sa)->sin_addr, 4);
        } else if (sa->sa_family == AF_INET6)
                memcpy(ret, &((const struct sockaddr_in6 *)sa)->sin6_addr, 16);
        else
                return false;
        return true;
}

static bool loopback16(const uint8_t *a) {
        static const uint8_t one[16] = { [15] = 1 };
        return memcmp(a, one, 16) == 0 || (memcmp(a, mapped, 12) == 0 && a[12] == 127);
}

bool reach_is_loopback(const struct sockaddr *sa) {
        uint8_t a[16];
        return to16(sa, a) && loopback16(a);
}

bool reach_allows(const struct reach *r, const struct sockaddr *sa, bool named_loopback) {
        uint8_t a[16];
        if (!to16(sa, a))
                return false;
        if (loopback16(a) && r->loopback && named_loopback)
                return true;
        for (size_t i = 0; i < r->n_ranges; i++)
                if (in_prefix(a, r->ranges[i].prefix, r->ranges[i].bits))
                        return true;
        return public6(a);
}

/* ---- ranges ---- */

static int parse_bits(const char *s, unsigned max, unsigned *ret) {
        char *end;
        if (!*s || strlen(s) > 3 || *s < '0' || *s > '9')
                return -EINVAL;
        unsigned long v = strtoul(s, &end, 10);
        if (*end || v > max)
                return -EINVAL;
        *ret = (unsigned)v;
        return 0;
}

static int parse_range(const char *text, struct reach_range *ret) {
        char address[INET6_ADDRSTRLEN];
        const char *slash = strchr(text, '/');
        size_t n = slash ? (size_t)(slash - text) : strlen(text);
        unsigned bits;
        if (n >= sizeof address)
                return -EINVAL;
        memcpy(address, text, n);
        address[n] = 0;
        if (inet_pton(AF_INET, address, ret->prefix + 12) == 1) {
                memcpy(ret->prefix, mapped, 12);
                bits = 32;
                int r = slash ? parse_bits(slash + 1, 32, &bits) : 0;
                ret->bits = bits + 96;
                return r;
        }
        if (inet_pton(AF_INET6, address, ret->prefix) != 1)
                return -EINVAL;
        bits = 128;
        int r = slash ? parse_bits(slash + 1, 128, &bits) : 0;
        ret->bits = bits;
        return r;
}

int reach_init(struct reach *ret, const char *const *ranges, bool loopback, struct error *e) {
        struct reach r = { .loopback = loopback };
        for (; ranges && *ranges; ranges++) {
                if (r.n_ranges == REACH_RANGES_MAX)
                        return error_say(e, -E2BIG, "more than %u ranges of addresses", REACH_RANGES_MAX);
                if (parse_range(*ranges, &r.ranges[r.n_ranges]) < 0)
                        return error_say(e, -EINVAL, "'%s' is not a range of addresses", *ranges);
                r.n_ranges++;
        }
        *ret = r;
        return 0;
}
