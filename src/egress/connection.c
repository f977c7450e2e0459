/* A connection of a sandbox's.
 *
 *     accepted ──port 53──> DNS (answers until the end)
 *        │ ────to the proxy──> HEAD ──CONNECT──┐
 *        ├─────a name's address────────────────┴─> RESOLVING ─> CONNECTING ─> CARRYING ─> CLOSED, freed when its handles are
 *        └─────any other address────────────────────────────────^
 *
 * The kernel has accepted it before we hear of it, so a refusal is a reset. While it is resolved and connected nothing is read
 * from the sandbox. Every state but CARRYING has EGRESS_CONNECT_MS to end; that one has EGRESS_IDLE_MS from byte to byte. */
#include <string.h>

#include "base/clock.h"
#include "egress/connection.h"

#define TICK_MS 1000
#define ATTEMPT_MS 4000                /* for one address, while there are others */

/* ---- connecting ---- */

static const char *target_text(const struct connection *c, char space[static EGRESS_ADDRESS_TEXT]) {
        if (c->name[0])
                return c->name;
        egress_address_format(&c->to.at[0], space);
        return space;
}

static void refuse(struct connection *c, int reason, const struct egress_address *led_to) {
        char space[EGRESS_ADDRESS_TEXT];
        net_denied(c->net, (enum egress_reason)reason, target_text(c, space), c->port, c->name[0] ? led_to : NULL);
        if (c->proxy)
                proxy_answer(c, 403, egress_reason_to_string(reason));
        else
                connection_reset(c);
}

static void give_up(struct connection *c, const char *why) {
        c->net->counters.failed++;
        if (c->proxy)
                proxy_answer(c, 502, why);
        else
                connection_reset(c);
}

static void on_outer_closed(uv_handle_t *h) { free(h); }

/* An attempt that is given up belongs to nobody. */
static void drop_attempt(struct connection *c) {
        if (!c->outer)
                return;
        c->outer->data = NULL;
        uv_close((uv_handle_t *)TAKE_PTR(c->outer), on_outer_closed);
}

static void try_next(struct connection *c);

static void on_connect(uv_connect_t *req, int status) {
        struct connection *c = req->handle->data;
        free(req);
        if (!c || c->state != CONNECTION_CONNECTING)
                return;
        if (status == 0) {
                c->state = CONNECTION_CARRYING;
                c->handles++;
                carry_start(c);
                return;
        }
        c->failed = true;
        drop_attempt(c);
        try_next(c);
}

static int start_attempt(struct connection *c, const struct egress_address *to) {
        struct sockaddr_storage sa;
        uv_connect_t *a = calloc(1, sizeof *a);
        uv_tcp_t *tcp = calloc(1, sizeof *tcp);
        int r = a && tcp ? uv_tcp_init(c->net->egress->loop, tcp) : -ENOMEM;
        if (r < 0) {
                free(a);
                free(tcp);
                return r;
        }
        tcp->data = c;
        c->outer = tcp;
        egress_address_to_sockaddr(to, c->port, &sa);
        r = uv_tcp_connect(a, tcp, (struct sockaddr *)&sa, on_connect);
        if (r < 0) {
                free(a);
                drop_attempt(c);
        }
        return r;
}

static void try_next(struct connection *c) {
        const struct egress_address *last = NULL;
        while (c->tried < c->to.n) {
                const struct egress_address *to = &c->to.at[c->tried++];
                int reason = policy_address(&c->net->egress->policy, c->net->rules, c->name[0] ? c->name : NULL, to, c->port);
                if (reason >= 0) {
                        c->refused = reason;
                        last = to;
                        continue;
                }
                c->attempt_until_ms = now_ms() + ATTEMPT_MS;
                if (start_attempt(c, to) == 0)
                        return;
                c->failed = true;
        }
        if (c->refused >= 0 && !c->failed)
                refuse(c, c->refused, last);
        else
                give_up(c, "cannot connect");
}

static void on_resolved(int r, const struct dns_addresses *a, void *user) {
        struct connection *c = user;
        c->lookup = NULL;
        if (r < 0) {
                give_up(c, r == -ENOENT ? "no such name" : "cannot resolve the name");
                return;
        }
        c->to = *a;
        c->state = CONNECTION_CONNECTING;
        try_next(c);
}

void connection_start(struct connection *c) {
        struct egress *eg = c->net->egress;
        c->refused = -1;
        if (!c->name[0]) {
                c->state = CONNECTION_CONNECTING;
                try_next(c);
                return;
        }
        int reason = policy_name(&eg->policy, c->net->rules, c->name, c->port);
        if (reason >= 0) {
                refuse(c, reason, NULL);
                return;
        }
        c->state = CONNECTION_RESOLVING;
        if (resolver_lookup(eg->resolver, c->name, on_resolved, c, &c->lookup) < 0)
                give_up(c, "cannot resolve the name");
}

/* ---- accepting ---- */

static void on_tick(uv_timer_t *t) { connections_tick(t->data, now_ms()); }

static void add(struct connection *c) {
        struct egress *eg = c->net->egress;
        c->next = eg->connections;
        c->prev = &eg->connections;
        if (c->next)
                c->next->prev = &c->next;
        eg->connections = c;
        eg->n_connections++;
        c->net->n_connections++;
        c->net->counters.open++;
        if (!eg->ticking)
                uv_timer_start(&eg->tick, on_tick, TICK_MS, TICK_MS);
        eg->ticking = true;
}

static bool is_proxy(const struct egress_address *a, uint16_t port) {
        struct egress_address proxy;
        return port == EGRESS_PROXY_PORT && egress_address_parse(EGRESS_RESOLVER, &proxy) == 0 && egress_address_equal(a, &proxy);
}

/* Where it was going is what its socket is bound to. */
static void begin(struct connection *c) {
        struct sockaddr_storage sa;
        int len = sizeof sa, r = uv_tcp_getsockname(&c->inner, (struct sockaddr *)&sa, &len);
        if (r == 0)
                r = egress_address_from_sockaddr((struct sockaddr *)&sa, &c->to.at[0], &c->port);
        if (r < 0) {
                connection_reset(c);
                return;
        }
        c->to.n = 1;
        const struct egress_net *n = c->net;
        if (n->n_connections > EGRESS_NET_CONNECTIONS_MAX || n->egress->n_connections > EGRESS_CONNECTIONS_MAX) {
                refuse(c, REASON_TOO_MANY, NULL);
                return;
        }
        if (c->port == 53 || is_proxy(&c->to.at[0], c->port)) {
                c->state = c->port == 53 ? CONNECTION_DNS : CONNECTION_HEAD;
                if (proxy_listen(c) < 0)
                        connection_reset(c);
                return;
        }
        if (names_is_ours(&c->to.at[0])) {
                const char *name = names_find(&n->names, &c->to.at[0]);
                if (!name) {
                        refuse(c, REASON_UNKNOWN_NAME, NULL);
                        return;
                }
                snprintf(c->name, sizeof c->name, "%s", name);
        }
        connection_start(c);
}

void connection_accept(struct egress_net *n, uv_stream_t *listener) {
        struct connection *c = calloc(1, sizeof *c);
        if (!c || uv_tcp_init(n->egress->loop, &c->inner) < 0) {
                free(c);
                return;        /* libuv listens again once somebody has room for it: the next readable turn */
        }
        c->net = n;
        c->inner.data = c;
        c->handles = 1;
        c->refused = -1;
        c->deadline_ms = now_ms() + EGRESS_CONNECT_MS;
        add(c);
        if (uv_accept(listener, (uv_stream_t *)&c->inner) < 0)
                connection_reset(c);
        else
                begin(c);
}

/* ---- time, rules, end ---- */

static void late(struct connection *c, uint64_t now) {
        if (c->state == CONNECTION_CONNECTING && c->tried < c->to.n && now >= c->attempt_until_ms && now < c->deadline_ms) {
                c->failed = true;
                drop_attempt(c);
                try_next(c);
        } else if (now >= c->deadline_ms) {
                if (c->state == CONNECTION_RESOLVING || c->state == CONNECTION_CONNECTING)
                        give_up(c, "cannot connect in time");
                else
                        connection_reset(c);
        }
}

void connections_tick(struct egress *eg, uint64_t now) {
        for (struct connection *c = eg->connections, *next; c; c = next) {
                next = c->next;
                if (c->state != CONNECTION_CLOSED)
                        late(c, now);
        }
        if (eg->connections)
                return;
        uv_timer_stop(&eg->tick);
        eg->ticking = false;
}

void connections_recheck(struct egress_net *n) {
        const struct egress_policy *p = &n->egress->policy;
        for (struct connection *c = n->egress->connections, *next; c; c = next) {
                next = c->next;
                if (c->net != n || c->state == CONNECTION_CLOSED || c->state == CONNECTION_HEAD || c->state == CONNECTION_DNS)
                        continue;
                const struct egress_address *at = c->state == CONNECTION_RESOLVING ? NULL : &c->to.at[c->tried ? c->tried - 1 : 0];
                int reason = c->name[0] ? policy_name(p, n->rules, c->name, c->port) : -1;
                if (reason < 0 && at)
                        reason = policy_address(p, n->rules, c->name[0] ? c->name : NULL, at, c->port);
                if (reason >= 0)
                        refuse(c, reason, at);
        }
}

void connections_cut(struct egress_net *n) {
        for (struct connection *c = n->egress->connections, *next; c; c = next) {
                next = c->next;
                if (c->net == n)
                        connection_reset(c);
        }
}
