/* The way out of sandboxes with the network `allow`.
 *
 * Theory of operation. Such a sandbox's network namespace has no link but loopback, so nothing in it can send a packet anywhere.
 * Inside it every address is local (sandbox/allow.c), and two sockets that the spawner opened there receive what is sent to any
 * of them: all TCP connections, whatever their address and port, and every datagram to port 53. The daemon holds both:
 *
 *     sandbox                          │ daemon (an egress_net per sandbox)
 *       lookup of pypi.org ── UDP 53 ──┼─> a rule allows the name?  198.18.1.7, which now means pypi.org in this sandbox;
 *                                      │   otherwise NXDOMAIN. No question of a sandbox ever goes to a server
 *       connect 198.18.1.7:443 ────────┼─> is pypi.org:443 allowed?  resolve it (resolver.h), look at the addresses it has
 *                                      │   (policy.h), connect, carry bytes both ways
 *       connect 10.1.2.3:80 ───────────┼─> does a range allow 10.1.2.3:80?  connect
 *       CONNECT at 198.18.0.1:3128 ────┼─> the same for programs that want a proxy
 *       other datagrams, ICMP          │ end in the namespace
 *
 * So what is asked, where it goes and what comes back are facts the daemon decides on; a name that is answered with a private
 * address, the metadata service or this host does not get there, and a sandbox cannot tell anybody anything by asking for names.
 * Refused connections are reset. What was refused is in a log of bounded length; counters say what went through.
 *
 * Bounds: EGRESS_CONNECTIONS_MAX in all and EGRESS_NET_CONNECTIONS_MAX of one sandbox, EGRESS_NAMES_MAX names of one, questions
 * a second, time to connect, time without a byte. A connection holds at most one read (64 KiB) per direction that the other side
 * has not taken.
 *
 * Loop thread only. */
#pragma once
#include <uv.h>

#include "egress/rules.h"

#define EGRESS_RESOLVER "198.18.0.1"           /* what /etc/resolv.conf says inside; nameserver and proxy */
#define EGRESS_SELF "198.18.0.2"               /* the sandbox's own address, from which it connects */
#define EGRESS_PROXY_PORT 3128                 /* http://198.18.0.1:3128 as http_proxy and https_proxy: CONNECT only */

#define EGRESS_CONNECTIONS_MAX 4096            /* of all sandboxes; two descriptors each */
#define EGRESS_NET_CONNECTIONS_MAX 256         /* of one */
#define EGRESS_NAMES_MAX 4096                  /* names of one sandbox that have an address; the oldest is forgotten */
#define EGRESS_QUESTIONS_PER_S 500             /* of one sandbox; more are answered later, or dropped by the kernel */
#define EGRESS_CONNECT_MS 15000                /* to resolve a name and connect, or to say where to */
#define EGRESS_IDLE_MS 600000                  /* without a byte in either direction */
#define EGRESS_LOG_MAX 128                     /* entries of the deny log */
#define EGRESS_OPERATOR_MAX 64                 /* ranges and names in each of the operator's lists */

struct json_writer;        /* base/json.h */
struct egress;             /* the daemon's */
struct egress_net;         /* one sandbox's */

struct egress_config {
        /* Ranges that names may lead to, and requests may name, although they are local to this host or its network. */
        const char *const *allow;              /* NULL-terminated; may be NULL */
        const char *const *deny;               /* rules (rules.h) that win over every request; may be NULL */
        const char *resolver;                  /* ADDRESS or ADDRESS:PORT of a name server; NULL = those of /etc/resolv.conf */
        uint16_t own_port;                     /* the daemon's own: never reached at an address of this host; 0 = none */
};
/* -EINVAL names what is wrong. */
int egress_open(uv_loop_t *loop, const struct egress_config *cfg, struct egress **ret, struct error *e);
void egress_set_own_port(struct egress *eg, uint16_t port);
/* Every net must be closed. Frees itself when the loop has run its handles down. */
void egress_close(struct egress *eg);

/* Takes both descriptors, also on failure. Holds a reference to the rules. */
int egress_net_open(struct egress *eg, int tcp_fd, int udp_fd, struct egress_rules *rules, struct egress_net **ret, struct error *e);
/* From now on: connections that the new rules do not allow are cut. */
void egress_net_set_rules(struct egress_net *n, struct egress_rules *rules);
struct egress_rules *egress_net_rules(const struct egress_net *n);     /* borrowed */
/* Cuts everything, listens no more; counters and log stay. Idempotent. */
void egress_net_stop(struct egress_net *n);
void egress_net_close(struct egress_net *n);                           /* stops and frees; NULL is fine */

struct egress_counters {
        uint64_t connections;                  /* carried */
        uint64_t open;                         /* now */
        uint64_t denied;                       /* connections and questions refused by the rules, the operator, the kind of address or a bound */
        uint64_t failed;                       /* allowed, but no such name or nobody there */
        uint64_t questions;                    /* by DNS */
        uint64_t bytes_up, bytes_down;         /* from and to the sandbox */
};
const struct egress_counters *egress_net_counters(const struct egress_net *n);

enum egress_reason {
        REASON_NOT_ALLOWED,        /* no rule allows it */
        REASON_OPERATOR,           /* the operator's list forbids it */
        REASON_PRIVATE_ADDRESS,    /* a private address, which no rule names */
        REASON_LOCAL_ADDRESS,      /* this host, its link or a metadata service; the operator has not named it */
        REASON_NO_ADDRESS,         /* not an address anybody has */
        REASON_UNKNOWN_NAME,       /* an address of ours that means no name (any more) */
        REASON_TOO_MANY,           /* a bound on connections */
        REASON_BAD_REQUEST,        /* at the proxy */
        EGRESS_REASON_MAX,
};
STRING_TABLE_DECLARE(egress_reason);   /* "not_allowed", "operator", "private_address", ... */

struct egress_denial {
        int64_t wall_ms;                       /* of the last */
        uint64_t count;                        /* the same again and again is one entry */
        enum egress_reason reason;
        uint16_t port;                         /* 0: a question by DNS */
        char target[EGRESS_NAME_MAX + 1];      /* name or address */
        char address[EGRESS_ADDRESS_TEXT];     /* what the name led to, where that is the reason; else "" */
};
/* Entries, oldest first; at most EGRESS_LOG_MAX. */
size_t egress_net_log_count(const struct egress_net *n);
const struct egress_denial *egress_net_log_at(const struct egress_net *n, size_t i);
/* {"rules":[...],"counters":{...},"denied":[...]}: what every surface shows. */
void egress_net_write_json(const struct egress_net *n, struct json_writer *w);
void egress_counters_write_json(const struct egress_counters *c, struct json_writer *w);       /* the object alone */
