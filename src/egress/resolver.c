#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fs.h"
#include "egress/resolver.h"

#define RESOLV_CONF "/etc/resolv.conf"
#define RESOLV_CONF_MAX 8192
#define LOOK_AGAIN_MS 5000             /* at resolv.conf */

struct server { struct egress_address address; uint16_t port; };
struct cached { char name[EGRESS_NAME_MAX + 1]; struct dns_addresses addresses; uint64_t until_ms; };

struct resolver {
        uv_loop_t *loop;
        bool fixed;
        struct server servers[RESOLVER_SERVERS_MAX]; size_t n_servers;
        uint64_t looked_ms; struct timespec conf_time;
        struct cached *cache;
        unsigned n_lookups;
};

/* One question on its way; outlives its lookup until libuv has closed it. */
struct ask {
        union { uv_handle_t handle; uv_udp_t udp; uv_tcp_t tcp; };
        uv_connect_t connect; uv_write_t write;        /* by TCP */
        struct lookup *lookup;
        uint16_t id;
        uint8_t question[2 + DNS_QUERY_MAX];   /* by TCP */
        size_t n, size;                    /* bytes of the answer so far; of space */
        char space[];
};

struct lookup {
        struct resolver *resolver;
        char name[EGRESS_NAME_MAX + 1];
        void (*done)(int, const struct dns_addresses *, void *); void *user;
        uv_timer_t timer;
        struct ask *ask;
        uint16_t type;
        unsigned tries;
        bool tcp;                          /* the answer by UDP was cut */
        int last;                          /* why the last try failed */
        bool remembered;
        struct dns_addresses found;
};

/* ---- servers ---- */

static int parse_server(const char *text, struct server *ret) {
        char address[EGRESS_ADDRESS_TEXT];
        struct server s = { .port = 53 };
        const char *colon = strchr(text, ':'), *port = NULL;
        size_t n = strlen(text);
        if (text[0] == '[') {
                const char *end = strchr(text, ']');
                if (!end || (end[1] && end[1] != ':'))
                        return -EINVAL;
                port = end[1] ? end + 2 : NULL;
                n = (size_t)(end - ++text);
        } else if (colon && !strchr(colon + 1, ':')) {
                port = colon + 1;
                n = (size_t)(colon - text);
        }
        if (n >= sizeof address)
                return -EINVAL;
        memcpy(address, text, n);
        address[n] = 0;
        if (port) {
                char *end;
                unsigned long v = strtoul(port, &end, 10);
                if (*end || end == port || v < 1 || v > 65535)
                        return -EINVAL;
                s.port = (uint16_t)v;
        }
        if (egress_address_parse(address, &s.address) < 0)
                return -EINVAL;
        *ret = s;
        return 0;
}

static void read_conf(struct resolver *r) {
        _cleanup_buf_ struct buf b = BUF_INIT(RESOLV_CONF_MAX);
        r->n_servers = 0;
        if (fs_read_file(AT_FDCWD, RESOLV_CONF, &b) < 0)
                return;
        char *save = NULL, *text = b.data;
        for (char *line = text ? strtok_r(text, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save)) {
                char name[EGRESS_ADDRESS_TEXT];
                struct server s = { .port = 53 };
                if (r->n_servers < RESOLVER_SERVERS_MAX && sscanf(line, " nameserver %47s", name) == 1 && egress_address_parse(name, &s.address) == 0)
                        r->servers[r->n_servers++] = s;
        }
}

/* A small file of the host's: reading it costs less than asking somebody else to. */
static void look_at_conf(struct resolver *r) {
        struct stat st;
        uint64_t now = now_ms();
        if (r->fixed || (r->looked_ms && now < r->looked_ms + LOOK_AGAIN_MS))
                return;
        r->looked_ms = now;
        if (stat(RESOLV_CONF, &st) < 0 || (st.st_mtim.tv_sec == r->conf_time.tv_sec && st.st_mtim.tv_nsec == r->conf_time.tv_nsec))
                return;
        r->conf_time = st.st_mtim;
        read_conf(r);
}

/* ---- cache ---- */

static struct cached *slot(struct resolver *r, const char *name) {
        uint32_t h = 2166136261u;
        for (; *name; name++)
                h = (h ^ (unsigned char)*name) * 16777619u;
        return &r->cache[h % RESOLVER_CACHE_MAX];
}

static void remember(struct resolver *r, const char *name, const struct dns_addresses *a) {
        struct cached *c = slot(r, name);
        snprintf(c->name, sizeof c->name, "%s", name);
        c->addresses = *a;
        c->until_ms = now_ms() + 1000ull * MIN2(MAX2(a->ttl, (uint32_t)RESOLVER_TTL_MIN_S), (uint32_t)RESOLVER_TTL_MAX_S);
}

/* ---- asking ---- */

static void on_ask_closed(uv_handle_t *h) { free(h->data); }

static void drop_ask(struct lookup *l) {
        if (!l->ask)
                return;
        l->ask->lookup = NULL;
        uv_close(&TAKE_PTR(l->ask)->handle, on_ask_closed);
}

static void on_lookup_closed(uv_handle_t *h) {
        struct lookup *l = h->data;
        l->resolver->n_lookups--;
        free(l);
}

static void finish(struct lookup *l, int r) {
        drop_ask(l);
        if (l->done)
                l->done(r, r == 0 ? &l->found : NULL, l->user);
        uv_close((uv_handle_t *)&l->timer, on_lookup_closed);
}

static void ask_next(struct lookup *l);

static void on_alloc(uv_handle_t *h, size_t want, uv_buf_t *buf) {
        struct ask *a = h->data;
        *buf = uv_buf_init(a->space, (unsigned)a->size);
}

static void answered(struct lookup *l, const struct dns_addresses *a) {
        if (a->rcode == DNS_OK && a->n > 0) {
                l->found = *a;
                remember(l->resolver, l->name, a);
                finish(l, 0);
        } else if (a->cut && !l->tcp) {
                l->tcp = true;
                l->tries--;                    /* the same server, which has more to say */
                ask_next(l);
        } else if (a->rcode != DNS_OK && a->rcode != DNS_NXDOMAIN) {
                l->last = -EREMOTEIO;
                ask_next(l);
        } else if (a->rcode == DNS_OK && l->type == DNS_TYPE_A) {
                l->type = DNS_TYPE_AAAA;
                l->tries = 0;
                l->tcp = false;
                ask_next(l);
        } else
                finish(l, -ENOENT);
}

static void on_datagram(uv_udp_t *udp, ssize_t n, const uv_buf_t *buf, const struct sockaddr *from, unsigned flags) {
        struct ask *a = udp->data;
        struct lookup *l = a->lookup;
        struct dns_addresses found;
        if (!l || (n == 0 && !from))
                return;
        if (n < 0) {
                l->last = (int)n;
                ask_next(l);
                return;
        }
        /* Whoever guesses our port can send anything: what does not fit is passed over. */
        if (dns_read_answer((const uint8_t *)buf->base, (size_t)n, a->id, l->name, l->type, &found) == 0)
                answered(l, &found);
}

/* ---- by TCP: two bytes of length, then the message ---- */

static void on_tcp_alloc(uv_handle_t *h, size_t want, uv_buf_t *buf) {
        struct ask *a = h->data;
        *buf = uv_buf_init(a->space + a->n, (unsigned)(a->size - a->n));
}

static void tcp_failed(struct ask *a, int r) {
        struct lookup *l = a->lookup;
        if (!l)
                return;
        l->last = r;
        ask_next(l);
}

static void on_tcp_bytes(uv_stream_t *tcp, ssize_t n, const uv_buf_t *buf) {
        struct ask *a = tcp->data;
        struct lookup *l = a->lookup;
        struct dns_addresses found;
        if (!l || n == 0)
                return;
        if (n < 0) {
                tcp_failed(a, (int)n);
                return;
        }
        a->n += (size_t)n;
        const uint8_t *p = (const uint8_t *)a->space;
        size_t size = a->n >= 2 ? (size_t)(p[0] << 8 | p[1]) : 0;
        if (a->n < 2 || (a->n < 2 + size && a->n < a->size))
                return;
        if (a->n < 2 + size || dns_read_answer(p + 2, size, a->id, l->name, l->type, &found) < 0)
                tcp_failed(a, -EREMOTEIO);
        else
                answered(l, &found);
}

static void on_tcp_written(uv_write_t *w, int r) {
        if (r < 0)
                tcp_failed(w->handle->data, r);
}

static void on_tcp_connected(uv_connect_t *c, int r) {
        struct ask *a = c->handle->data;
        uv_buf_t b = uv_buf_init((char *)a->question, 2u + (unsigned)(a->question[0] << 8 | a->question[1]));
        if (r < 0) {
                tcp_failed(a, r);
                return;
        }
        r = uv_write(&a->write, c->handle, &b, 1, on_tcp_written);
        if (r == 0)
                r = uv_read_start(c->handle, on_tcp_alloc, on_tcp_bytes);
        if (r < 0)
                tcp_failed(a, r);
}

static int send_by_tcp(struct ask *a, const struct lookup *l, const struct sockaddr *to) {
        size_t n = dns_write_question(a->id, l->name, l->type, a->question + 2);
        a->question[0] = (uint8_t)(n >> 8);
        a->question[1] = (uint8_t)n;
        return uv_tcp_connect(&a->connect, &a->tcp, to, on_tcp_connected);
}

static int send_by_udp(struct ask *a, const struct lookup *l, const struct sockaddr *to) {
        uint8_t question[DNS_QUERY_MAX];
        uv_buf_t b = uv_buf_init((char *)question, (unsigned)dns_write_question(a->id, l->name, l->type, question));
        int r = uv_udp_connect(&a->udp, to);
        if (r == 0)
                r = uv_udp_recv_start(&a->udp, on_alloc, on_datagram);
        if (r == 0)
                r = uv_udp_try_send(&a->udp, &b, 1, NULL);
        return MIN2(r, 0);
}

static int send_ask(struct lookup *l, const struct server *s) {
        struct sockaddr_storage to;
        uv_loop_t *loop = l->resolver->loop;
        size_t size = l->tcp ? 2 + DNS_TCP_MAX : DNS_UDP_MAX + 512;
        struct ask *a = calloc(1, sizeof *a + size);
        if (!a)
                return -ENOMEM;
        a->size = size;
        int r = getrandom(&a->id, sizeof a->id, 0) != sizeof a->id ? -EIO : l->tcp ? uv_tcp_init(loop, &a->tcp) : uv_udp_init(loop, &a->udp);
        if (r < 0) {
                free(a);
                return r;
        }
        a->handle.data = a;
        a->lookup = l;
        l->ask = a;
        egress_address_to_sockaddr(&s->address, s->port, &to);
        return l->tcp ? send_by_tcp(a, l, (struct sockaddr *)&to) : send_by_udp(a, l, (struct sockaddr *)&to);
}

static void on_time(uv_timer_t *t) {
        struct lookup *l = t->data;
        if (l->remembered) {
                finish(l, 0);
                return;
        }
        ask_next(l);
}

static void ask_next(struct lookup *l) {
        const struct resolver *r = l->resolver;
        drop_ask(l);
        if (l->tries == RESOLVER_TRIES || r->n_servers == 0) {
                finish(l, r->n_servers == 0 ? -EDESTADDRREQ : l->last);
                return;
        }
        const struct server *s = &r->servers[l->tries++ % r->n_servers];
        l->last = -ETIMEDOUT;
        int e = send_ask(l, s);
        if (e < 0)
                l->last = e;
        /* A server that cannot be reached is left at once. */
        uv_timer_start(&l->timer, on_time, e < 0 ? 0 : RESOLVER_TRY_MS, 0);
}

int resolver_lookup(struct resolver *r, const char *name, void (*done)(int, const struct dns_addresses *, void *), void *user, struct lookup **ret) {
        struct lookup *l = r->n_lookups < RESOLVER_LOOKUPS_MAX ? calloc(1, sizeof *l) : NULL;
        if (!l)
                return r->n_lookups < RESOLVER_LOOKUPS_MAX ? -ENOMEM : -EAGAIN;
        *l = (struct lookup){ .resolver = r, .done = done, .user = user, .type = DNS_TYPE_A };
        snprintf(l->name, sizeof l->name, "%s", name);
        uv_timer_init(r->loop, &l->timer);
        l->timer.data = l;
        r->n_lookups++;
        look_at_conf(r);
        const struct cached *c = slot(r, name);
        if (now_ms() < c->until_ms && strcmp(c->name, name) == 0) {
                l->found = c->addresses;
                l->remembered = true;
        }
        uv_timer_start(&l->timer, on_time, 0, 0);
        *ret = l;
        return 0;
}

void lookup_cancel(struct lookup *l) {
        drop_ask(l);
        l->done = NULL;
        uv_close((uv_handle_t *)&l->timer, on_lookup_closed);
}

/* ---- life ---- */

int resolver_open(uv_loop_t *loop, const char *server, struct resolver **ret) {
        struct resolver *r = calloc(1, sizeof *r);
        if (!r)
                return -ENOMEM;
        r->loop = loop;
        r->fixed = server != NULL;
        if (server && parse_server(server, &r->servers[0]) < 0) {
                free(r);
                return -EINVAL;
        }
        r->n_servers = server ? 1 : 0;
        r->cache = calloc(RESOLVER_CACHE_MAX, sizeof r->cache[0]);
        if (!r->cache) {
                free(r);
                return -ENOMEM;
        }
        *ret = r;
        return 0;
}

void resolver_close(struct resolver *r) {
        if (!r)
                return;
        ASSERT(r->n_lookups == 0);
        free(r->cache);
        free(r);
}
