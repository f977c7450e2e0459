/* DNS messages, as far as Brig speaks them: the questions of sandboxes and their answers, its own questions and what servers
 * say. Pure parsing of hostile bytes: bounds on everything, compression pointers go backwards only, nothing is allocated. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

#include "egress/rules.h"

#define DNS_UDP_MAX 1232               /* bytes of an answer by UDP; also what we tell servers */
#define DNS_TCP_MAX 16384              /* bytes of an answer by TCP that we listen to */
#define DNS_QUERY_MAX 512              /* bytes of a question we listen to */
#define DNS_ADDRESSES_MAX 16           /* of one answer */

enum { DNS_TYPE_A = 1, DNS_TYPE_CNAME = 5, DNS_TYPE_AAAA = 28, DNS_TYPE_OPT = 41, DNS_TYPE_ANY = 255 };
enum { DNS_OK = 0, DNS_FORMERR = 1, DNS_SERVFAIL = 2, DNS_NXDOMAIN = 3, DNS_NOTIMP = 4, DNS_REFUSED = 5 };

struct dns_question {
        char name[EGRESS_NAME_MAX + 1];    /* canonical; "" when it is no host name (then it is nobody's) */
        uint16_t type;
        size_t end;                        /* bytes of the message up to the end of its question */
};

/* 0: one question of class IN. -EBADMSG: nothing that can be answered (too short, an answer); -ENOTSUP: a message that is
 * answered with *ret_rcode instead (FORMERR, NOTIMP), ret->end as far as it could be read. */
int dns_read_question(const uint8_t *p, size_t n, struct dns_question *ret, int *ret_rcode);
/* The answer to it, in at most `max` (>= DNS_QUERY_MAX) bytes: `address` (4 bytes, NULL without) for `ttl` seconds. Returns its length. */
size_t dns_write_answer(const uint8_t *question, const struct dns_question *q, int rcode, const uint8_t *address, uint32_t ttl, uint8_t *out);

/* A question of our own; `out` has DNS_QUERY_MAX bytes. Returns its length. */
size_t dns_write_question(uint16_t id, const char *name, uint16_t type, uint8_t *out);

struct dns_addresses {
        struct egress_address at[DNS_ADDRESSES_MAX]; size_t n;
        uint32_t ttl;                      /* the least of the records that led there */
        int rcode;
        bool cut;                          /* there was more than fits: ask by TCP */
};
/* What the server says to dns_write_question(id, name, type). -EBADMSG: not an answer to that, or broken; *ret untouched. An answer
 * that was cut gives what it holds. */
int dns_read_answer(const uint8_t *p, size_t n, uint16_t id, const char *name, uint16_t type, struct dns_addresses *ret);
