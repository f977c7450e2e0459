#include <string.h>

#include "egress/dns.h"

#define HEADER 12
#define CLASS_IN 1
#define FLAG_ANSWER 0x8000u
#define FLAG_RECURSE 0x0100u
#define FLAG_CAN_RECURSE 0x0080u
#define OPCODE 0x7800u
#define FLAG_CUT 0x0200u
#define CHAIN_MAX 8                    /* aliases that are followed */

static uint16_t get16(const uint8_t *p) { return (uint16_t)(p[0] << 8 | p[1]); }
static uint32_t get32(const uint8_t *p) { return (uint32_t)get16(p) << 16 | get16(p + 2); }
static void put16(uint8_t *p, unsigned v) { p[0] = (uint8_t)(v >> 8); p[1] = (uint8_t)v; }

/* The name at `at`, dotted, to `ret` (256 bytes); a byte that no host name has becomes '?', which none has either. Returns where what follows it
 * begins, or 0. A pointer must point before the piece it stands in, so every step goes towards the front and there is an end. */
static size_t read_name(const uint8_t *p, size_t n, size_t at, char ret[static 256]) {
        size_t len = 0, after = 0, start = at;
        for (;;) {
                if (at >= n)
                        return 0;
                uint8_t size = p[at];
                if (size >= 0xc0) {
                        if (at + 1 >= n)
                                return 0;
                        size_t to = (size_t)(size & 0x3f) << 8 | p[at + 1];
                        if (!after)
                                after = at + 2;
                        if (to >= start || to < HEADER)
                                return 0;
                        at = start = to;
                        continue;
                }
                if (size > 63 || at + 1 + size > n)
                        return 0;
                at++;
                if (size == 0)
                        break;
                if (len + size + 2 > 255)
                        return 0;
                if (len)
                        ret[len++] = '.';
                for (uint8_t i = 0; i < size; i++) {
                        uint8_t ch = p[at++];
                        ret[len++] = (char)(ch == '.' || ch <= ' ' || ch >= 0x7f ? '?' : ch);
                }
        }
        ret[len] = 0;
        return after ? after : at;
}

/* ---- of sandboxes ---- */

int dns_read_question(const uint8_t *p, size_t n, struct dns_question *ret, int *ret_rcode) {
        struct dns_question q = { .end = HEADER };
        char name[256];
        if (n < HEADER || get16(p + 2) & FLAG_ANSWER)
                return -EBADMSG;
        *ret = q;
        *ret_rcode = DNS_FORMERR;
        if (get16(p + 2) & OPCODE) {
                *ret_rcode = DNS_NOTIMP;
                return -ENOTSUP;
        }
        if (n > DNS_QUERY_MAX || get16(p + 4) != 1)
                return -ENOTSUP;
        /* A question has nothing before it that a pointer could mean. */
        size_t at = read_name(p, n, HEADER, name);
        if (at == 0 || at + 4 > n)
                return -ENOTSUP;
        q.type = get16(p + at);
        q.end = at + 4;
        *ret = q;
        if (get16(p + at + 2) != CLASS_IN) {
                *ret_rcode = DNS_NOTIMP;
                return -ENOTSUP;
        }
        if (egress_name_canonical(name, strlen(name), ret->name) < 0)
                ret->name[0] = 0;
        return 0;
}

size_t dns_write_answer(const uint8_t *question, const struct dns_question *q, int rcode, const uint8_t *address, uint32_t ttl, uint8_t *out) {
        size_t n = q->end;
        memcpy(out, question, n);
        put16(out + 2, FLAG_ANSWER | FLAG_CAN_RECURSE | (get16(question + 2) & FLAG_RECURSE) | (unsigned)rcode);
        put16(out + 4, n > HEADER ? 1 : 0);
        put16(out + 6, address ? 1 : 0);
        put16(out + 8, 0);
        put16(out + 10, 0);
        if (!address)
                return n;
        put16(out + n, 0xc000 | HEADER);
        put16(out + n + 2, DNS_TYPE_A);
        put16(out + n + 4, CLASS_IN);
        put16(out + n + 6, ttl >> 16);
        put16(out + n + 8, ttl & 0xffff);
        put16(out + n + 10, 4);
        memcpy(out + n + 12, address, 4);
        return n + 16;
}

/* ---- our own ---- */

size_t dns_write_question(uint16_t id, const char *name, uint16_t type, uint8_t *out) {
        size_t n = HEADER;
        memset(out, 0, HEADER);
        put16(out, id);
        put16(out + 2, FLAG_RECURSE);
        put16(out + 4, 1);
        put16(out + 10, 1);
        while (*name) {
                size_t label = strcspn(name, ".");
                ASSERT(label > 0 && label < 64 && n + label < DNS_QUERY_MAX - 32);
                out[n++] = (uint8_t)label;
                memcpy(out + n, name, label);
                n += label;
                name += label + (name[label] == '.');
        }
        out[n++] = 0;
        put16(out + n, type);
        put16(out + n + 2, CLASS_IN);
        n += 4;
        static const uint8_t opt[11] = { 0, 0, DNS_TYPE_OPT, DNS_UDP_MAX >> 8, DNS_UDP_MAX & 0xff };
        memcpy(out + n, opt, sizeof opt);
        return n + sizeof opt;
}

struct record { char name[256]; uint16_t type, class, size; uint32_t ttl; size_t data; };

static size_t read_record(const uint8_t *p, size_t n, size_t at, struct record *r) {
        at = read_name(p, n, at, r->name);
        if (at == 0 || at + 10 > n)
                return 0;
        r->type = get16(p + at);
        r->class = get16(p + at + 2);
        r->ttl = get32(p + at + 4);
        r->size = get16(p + at + 8);
        r->data = at + 10;
        return r->data + r->size > n ? 0 : r->data + r->size;
}

static bool same_name(const char *a, const char *b) {
        char x[EGRESS_NAME_MAX + 1], y[EGRESS_NAME_MAX + 1];
        return egress_name_canonical(a, strlen(a), x) == 0 && egress_name_canonical(b, strlen(b), y) == 0 && strcmp(x, y) == 0;
}

/* One pass over the answers: addresses of `name`, or the alias it has. 1: `name` is now that alias. */
static int walk(const uint8_t *p, size_t n, size_t at, unsigned count, char name[static 256], uint16_t type, struct dns_addresses *a) {
        struct record r;
        char alias[256] = "";
        for (; count > 0; count--) {
                at = read_record(p, n, at, &r);
                if (at == 0)
                        break;                 /* broken or cut: what came before it counts */
                if (r.class != CLASS_IN || !same_name(r.name, name))
                        continue;
                if (r.type == DNS_TYPE_CNAME && read_name(p, n, r.data, alias) != 0)
                        a->ttl = MIN2(a->ttl, r.ttl);
                if (r.type != type || r.size != (type == DNS_TYPE_A ? 4 : 16) || a->n == DNS_ADDRESSES_MAX)
                        continue;
                struct sockaddr_storage unused;
                struct egress_address got = { .family = type == DNS_TYPE_A ? 4 : 6 };
                memcpy(got.b, p + r.data, r.size);
                /* There and back: an IPv4 address in IPv6 dress loses it. */
                egress_address_to_sockaddr(&got, 0, &unused);
                egress_address_from_sockaddr((struct sockaddr *)&unused, &a->at[a->n++], NULL);
                a->ttl = MIN2(a->ttl, r.ttl);
        }
        if (a->n > 0 || !alias[0])
                return 0;
        memcpy(name, alias, sizeof alias);
        return 1;
}

int dns_read_answer(const uint8_t *p, size_t n, uint16_t id, const char *name, uint16_t type, struct dns_addresses *ret) {
        struct dns_addresses a = { .ttl = UINT32_MAX };
        char at_name[256];
        if (n < HEADER || get16(p) != id || !(get16(p + 2) & FLAG_ANSWER) || get16(p + 4) != 1)
                return -EBADMSG;
        size_t at = read_name(p, n, HEADER, at_name);
        if (at == 0 || at + 4 > n || !same_name(at_name, name) || get16(p + at) != type || get16(p + at + 2) != CLASS_IN)
                return -EBADMSG;
        a.rcode = get16(p + 2) & 15;
        a.cut = get16(p + 2) & FLAG_CUT;
        for (int i = 0; i < CHAIN_MAX && walk(p, n, at + 4, get16(p + 6), at_name, type, &a) > 0; i++)
                ;
        *ret = a;
        return 0;
}
