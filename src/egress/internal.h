/* Inside src/egress: what the daemon's part, a sandbox's and a connection share. Loop thread only. */
#pragma once
#include "egress/dns.h"
#include "egress/egress.h"
#include "egress/names.h"
#include "egress/policy.h"
#include "egress/resolver.h"

struct connection;

struct egress {
        uv_loop_t *loop;
        struct egress_policy policy;
        struct resolver *resolver;
        uv_timer_t tick;                       /* every second while there is a connection */
        bool ticking, closing;
        unsigned n_nets, n_connections;
        struct connection *connections;        /* list */
};

struct egress_net {
        struct egress *egress;
        struct egress_rules *rules;
        uv_tcp_t listener;
        uv_poll_t dns;
        uv_timer_t dns_pause;
        int dns_fd;
        unsigned handles;                      /* not yet closed */
        bool stopped, closing;
        unsigned n_connections;                /* not yet freed */
        unsigned questions; uint64_t questions_since;
        struct names names;
        struct egress_counters counters;
        struct egress_denial *log;             /* ring of EGRESS_LOG_MAX; NULL until the first */
        size_t log_first, log_n;
};

/* ---- net.c ---- */
void net_denied(struct egress_net *n, enum egress_reason reason, const char *target, uint16_t port, const struct egress_address *led_to);
void net_maybe_free(struct egress_net *n);

/* ---- net_dns.c ---- */
int net_dns_start(struct egress_net *n);
/* Has it questions left in this second? */
bool net_dns_may_ask(struct egress_net *n);
/* The answer to one message, in `out` of DNS_QUERY_MAX + 16 bytes; 0: none. */
size_t net_dns_answer(struct egress_net *n, const uint8_t *question, size_t len, uint8_t *out);

/* ---- connection.c ---- */
void connection_accept(struct egress_net *n, uv_stream_t *listener);
void connections_tick(struct egress *eg, uint64_t now);
void connections_recheck(struct egress_net *n);        /* cuts what the rules do not allow */
void connections_cut(struct egress_net *n);
