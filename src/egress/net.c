/* The daemon's part and a sandbox's: life, counters, the deny log. */
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "egress/internal.h"

static const char *const reasons[] = {
        "not_allowed", "operator", "private_address", "local_address", "no_address", "unknown_name", "too_many", "bad_request",
};
STRING_TABLE(egress_reason, reasons, EGRESS_REASON_MAX)

/* ---- the daemon's ---- */

static int read_operator(struct egress *eg, const struct egress_config *cfg, struct error *e) {
        struct egress_policy *p = &eg->policy;
        for (size_t i = 0; cfg->allow && cfg->allow[i]; i++) {
                if (p->n_allow == EGRESS_OPERATOR_MAX)
                        return error_say(e, -EINVAL, "network: at most %d ranges may be allowed", EGRESS_OPERATOR_MAX);
                if (egress_range_parse(cfg->allow[i], &p->allow[p->n_allow++]) < 0)
                        return error_say(e, -EINVAL, "network: '%.60s' is not a range such as 10.1.0.0/16", cfg->allow[i]);
        }
        if (!cfg->deny || !cfg->deny[0])
                return 0;
        int r = egress_rules_new(cfg->deny, &p->deny, e);
        return r < 0 ? error_prefix(e, "network.deny") : 0;
}

int egress_open(uv_loop_t *loop, const struct egress_config *cfg, struct egress **ret, struct error *e) {
        struct egress *eg = calloc(1, sizeof *eg);
        if (!eg)
                return error_set(e, -ENOMEM, "open the egress");
        eg->loop = loop;
        eg->policy.own_port = cfg->own_port;
        int r = read_operator(eg, cfg, e);
        if (r == 0) {
                r = resolver_open(loop, cfg->resolver, &eg->resolver);
                if (r < 0)
                        error_say(e, r, "network.resolver: expected an address, or ADDRESS:PORT, not '%.60s'", cfg->resolver ? cfg->resolver : "");
        }
        if (r < 0) {
                egress_rules_unref(eg->policy.deny);
                free(eg);
                return r;
        }
        uv_timer_init(loop, &eg->tick);
        uv_unref((uv_handle_t *)&eg->tick);
        eg->tick.data = eg;
        *ret = eg;
        return 0;
}

void egress_set_own_port(struct egress *eg, uint16_t port) { eg->policy.own_port = port; }

static void on_tick_closed(uv_handle_t *h) {
        struct egress *eg = h->data;
        resolver_close(eg->resolver);
        egress_rules_unref(eg->policy.deny);
        free(eg);
}

static void maybe_free_all(struct egress *eg) {
        if (eg->closing && eg->n_nets == 0 && !uv_is_closing((uv_handle_t *)&eg->tick))
                uv_close((uv_handle_t *)&eg->tick, on_tick_closed);
}

void egress_close(struct egress *eg) {
        if (!eg)
                return;
        eg->closing = true;
        maybe_free_all(eg);
}

/* ---- a sandbox's ---- */

static void on_connection(uv_stream_t *listener, int status) {
        struct egress_net *n = listener->data;
        if (status == 0 && !n->stopped)
                connection_accept(n, listener);
}

static void on_closed(uv_handle_t *h) {
        struct egress_net *n = h->data;
        if (h == (uv_handle_t *)&n->dns)
                n->dns_fd = fd_close(n->dns_fd);
        n->handles--;
        net_maybe_free(n);
}

void net_maybe_free(struct egress_net *n) {
        if (!n->closing || n->handles > 0 || n->n_connections > 0)
                return;
        struct egress *eg = n->egress;
        egress_rules_unref(n->rules);
        names_release(&n->names);
        free(n->log);
        free(n);
        eg->n_nets--;
        maybe_free_all(eg);
}

static int start(struct egress_net *n, int tcp_fd) {
        int r = uv_tcp_init(n->egress->loop, &n->listener);
        if (r < 0) {
                fd_close(tcp_fd);
                return r;
        }
        n->handles++;
        n->listener.data = n;
        uv_timer_init(n->egress->loop, &n->dns_pause);
        n->dns_pause.data = n;
        n->handles++;
        r = uv_tcp_open(&n->listener, tcp_fd);
        if (r < 0)
                fd_close(tcp_fd);
        if (r == 0)
                r = uv_listen((uv_stream_t *)&n->listener, EGRESS_NET_CONNECTIONS_MAX, on_connection);
        if (r == 0)
                r = uv_poll_init(n->egress->loop, &n->dns, n->dns_fd);
        if (r < 0)
                return r;
        n->handles++;
        n->dns.data = n;
        return net_dns_start(n);
}

int egress_net_open(struct egress *eg, int tcp_fd, int udp_fd, struct egress_rules *rules, struct egress_net **ret, struct error *e) {
        struct egress_net *n = calloc(1, sizeof *n);
        if (!n || names_init(&n->names) < 0) {
                free(n);
                fd_close(tcp_fd);
                fd_close(udp_fd);
                return error_set(e, -ENOMEM, "open the network of a sandbox");
        }
        n->egress = eg;
        n->rules = egress_rules_ref(rules);
        n->dns_fd = udp_fd;
        eg->n_nets++;
        int r = start(n, tcp_fd);
        if (r < 0) {
                if (n->dns.data == NULL)
                        n->dns_fd = fd_close(n->dns_fd);
                egress_net_close(n);
                return error_set(e, r, "open the network of a sandbox");
        }
        *ret = n;
        return 0;
}

void egress_net_set_rules(struct egress_net *n, struct egress_rules *rules) {
        struct egress_rules *old = n->rules;
        n->rules = egress_rules_ref(rules);
        egress_rules_unref(old);
        connections_recheck(n);
}

struct egress_rules *egress_net_rules(const struct egress_net *n) { return n->rules; }

void egress_net_stop(struct egress_net *n) {
        if (n->stopped)
                return;
        n->stopped = true;
        connections_cut(n);
        if (n->listener.data)
                uv_close((uv_handle_t *)&n->listener, on_closed);
        if (n->dns_pause.data)
                uv_close((uv_handle_t *)&n->dns_pause, on_closed);
        if (n->dns.data)
                uv_close((uv_handle_t *)&n->dns, on_closed);
}

void egress_net_close(struct egress_net *n) {
        if (!n)
                return;
        egress_net_stop(n);
        n->closing = true;
        net_maybe_free(n);
}

/* ---- what it says ---- */

const struct egress_counters *egress_net_counters(const struct egress_net *n) { return &n->counters; }
size_t egress_net_log_count(const struct egress_net *n) { return n->log_n; }
const struct egress_denial *egress_net_log_at(const struct egress_net *n, size_t i) { return &n->log[(n->log_first + i) % EGRESS_LOG_MAX]; }

void net_denied(struct egress_net *n, enum egress_reason reason, const char *target, uint16_t port, const struct egress_address *led_to) {
        struct egress_denial d = { .wall_ms = wall_ms(), .count = 1, .reason = reason, .port = port };
        n->counters.denied++;
        snprintf(d.target, sizeof d.target, "%s", target);
        if (led_to)
                egress_address_format(led_to, d.address);
        if (!n->log && !(n->log = calloc(EGRESS_LOG_MAX, sizeof n->log[0])))
                return;
        for (size_t i = n->log_n; i-- > 0;) {
                struct egress_denial *old = &n->log[(n->log_first + i) % EGRESS_LOG_MAX];
                if (old->reason == reason && old->port == port && strcmp(old->target, d.target) == 0 && strcmp(old->address, d.address) == 0) {
                        old->wall_ms = d.wall_ms;
                        old->count++;
                        return;
                }
        }
        if (n->log_n == EGRESS_LOG_MAX)
                n->log_first = (n->log_first + 1) % EGRESS_LOG_MAX;
        else
                n->log_n++;
        n->log[(n->log_first + n->log_n - 1) % EGRESS_LOG_MAX] = d;
}

void egress_counters_write_json(const struct egress_counters *c, struct json_writer *w) {
        json_begin_object(w);
        json_field_uint(w, "connections", c->connections);
        json_field_uint(w, "open", c->open);
        json_field_uint(w, "denied", c->denied);
        json_field_uint(w, "failed", c->failed);
        json_field_uint(w, "questions", c->questions);
        json_field_uint(w, "bytes_up", c->bytes_up);
        json_field_uint(w, "bytes_down", c->bytes_down);
        json_end_object(w);
}

static void write_denial(const struct egress_denial *d, struct json_writer *w) {
        char at[25];
        format_wall(d->wall_ms, at);
        json_begin_object(w);
        json_field_text(w, "at", at);
        json_field_uint(w, "count", d->count);
        json_field_text(w, "kind", d->port ? "connection" : "question");
        json_field_text(w, "target", d->target);
        json_put_key(w, "port");
        if (d->port)
                json_put_uint(w, d->port);
        else
                json_put_null(w);
        json_field_text(w, "address", d->address[0] ? d->address : NULL);
        json_field_text(w, "reason", egress_reason_to_string((int)d->reason));
        json_end_object(w);
}

void egress_net_write_json(const struct egress_net *n, struct json_writer *w) {
        json_begin_object(w);
        json_put_key(w, "rules");
        json_begin_array(w);
        for (size_t i = 0; i < egress_rules_count(n->rules); i++)
                json_put_text(w, egress_rules_text(n->rules, i));
        json_end_array(w);
        json_put_key(w, "counters");
        egress_counters_write_json(&n->counters, w);
        json_put_key(w, "denied");
        json_begin_array(w);
        for (size_t i = 0; i < n->log_n; i++)
                write_denial(egress_net_log_at(n, i), w);
        json_end_array(w);
        json_end_object(w);
}
