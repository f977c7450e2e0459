/* What a connection says to us and not through us: questions by TCP, and CONNECT. */
#include <stdio.h>
#include <string.h>

#include "egress/connection.h"

/* ---- CONNECT ---- */

void proxy_answer(struct connection *c, unsigned status, const char *text) {
        char out[512];
        int n = snprintf(out, sizeof out, "HTTP/1.1 %u %s\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n%s\n", status,
                         status == 403 ? "Forbidden" : status == 502 ? "Bad Gateway" : "Bad Request", strlen(text) + 1, text);
        uv_buf_t b = uv_buf_init(out, (unsigned)n);
        (void)uv_try_write((uv_stream_t *)&c->inner, &b, 1);
        connection_finish(c);
}

/* host:port or [address]:port, in [p, end). */
static bool parse_authority(struct connection *c, const char *p, const char *end) {
        const char *colon = end;
        unsigned port = 0;
        while (colon > p && colon[-1] != ':')
                colon--;
        for (const char *d = colon; d < end; d++) {
                if (*d < '0' || *d > '9' || end - colon > 5)
                        return false;
                port = port * 10 + (unsigned)(*d - '0');
        }
        if (colon == p || colon == end || port < 1 || port > 65535)
                return false;
        const char *stop = colon - 1;
        if (p < stop && *p == '[' && stop[-1] == ']') {
                p++;
                stop--;
        }
        char host[EGRESS_NAME_MAX + 2];
        if (stop <= p || (size_t)(stop - p) >= sizeof host)
                return false;
        memcpy(host, p, (size_t)(stop - p));
        host[stop - p] = 0;
        c->port = (uint16_t)port;
        if (egress_address_parse(host, &c->to.at[0]) == 0) {
                c->to.n = 1;
                c->name[0] = 0;
                const char *name = names_find(&c->net->names, &c->to.at[0]);
                if (name)
                        snprintf(c->name, sizeof c->name, "%s", name);
                return true;
        }
        return egress_name_canonical(host, strlen(host), c->name) == 0;
}

static void on_head(struct connection *c) {
        static const char verb[] = "CONNECT ";
        char *end = memmem(c->head, c->head_len, "\r\n\r\n", 4);
        if (!end) {
                if (c->head_len == HEAD_MAX)
                        proxy_answer(c, 400, "the request is too long");
                return;
        }
        uv_read_stop((uv_stream_t *)&c->inner);
        c->head_used = (size_t)(end + 4 - c->head);
        const char *line = memchr(c->head, '\r', c->head_used), *at = c->head + sizeof verb - 1;
        const char *space = line > at && memcmp(c->head, verb, sizeof verb - 1) == 0 ? memchr(at, ' ', (size_t)(line - at)) : NULL;
        if (!space || strncmp(space + 1, "HTTP/1.", 7) != 0 || !parse_authority(c, at, space)) {
                net_denied(c->net, REASON_BAD_REQUEST, EGRESS_RESOLVER, EGRESS_PROXY_PORT, NULL);
                proxy_answer(c, 400, "this proxy takes CONNECT host:port alone; other traffic needs no proxy");
                return;
        }
        c->proxy = true;
        connection_start(c);
}

/* ---- questions ---- */

static void on_questions(struct connection *c) {
        while (c->state == CONNECTION_DNS && c->head_len >= 2) {
                size_t n = (size_t)(uint8_t)c->head[0] << 8 | (uint8_t)c->head[1];
                uint8_t out[2 + DNS_QUERY_MAX + 16];
                if (n > DNS_QUERY_MAX || !net_dns_may_ask(c->net)) {
                        connection_reset(c);
                        return;
                }
                if (c->head_len < 2 + n)
                        return;
                size_t len = net_dns_answer(c->net, (const uint8_t *)c->head + 2, n, out + 2);
                c->net->questions++;
                c->head_len -= 2 + n;
                memmove(c->head, c->head + 2 + n, c->head_len);
                if (len == 0) {
                        connection_reset(c);
                        return;
                }
                out[0] = (uint8_t)(len >> 8);
                out[1] = (uint8_t)len;
                uv_buf_t b = uv_buf_init((char *)out, (unsigned)(len + 2));
                if (uv_try_write((uv_stream_t *)&c->inner, &b, 1) != (int)b.len)
                        connection_reset(c);   /* it asks, and does not read */
        }
}

/* ---- reading ---- */

static void on_alloc(uv_handle_t *h, size_t want, uv_buf_t *buf) {
        struct connection *c = h->data;
        *buf = uv_buf_init(c->head + c->head_len, (unsigned)(HEAD_MAX - c->head_len));
}

static void on_read(uv_stream_t *from, ssize_t n, const uv_buf_t *buf) {
        struct connection *c = from->data;
        if (n == 0)
                return;
        if (n < 0) {
                connection_finish(c);
                return;
        }
        c->head_len += (size_t)n;
        if (c->state == CONNECTION_DNS)
                on_questions(c);
        else if (c->state == CONNECTION_HEAD)
                on_head(c);
}

int proxy_listen(struct connection *c) {
        c->head = malloc(HEAD_MAX);
        return c->head ? uv_read_start((uv_stream_t *)&c->inner, on_alloc, on_read) : -ENOMEM;
}
