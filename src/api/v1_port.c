/* Servers inside a session, reached from outside: /v1/sessions/{id}/ports/{port}/... for HTTP and WebSocket.
 *
 * The connection is made from inside the sandbox's network namespace, to 127.0.0.1 and, where nobody listens there, to ::1: by a socket that the
 * spawner made there and this daemon connects. So it works whatever network the session has, and reaches nothing but the session.
 *
 *     ASKING ──socket──> CONNECTING ──connected──> http_forward ──> over
 *        ^                   │ refused, IPv4
 *        └───────────────────┘
 *
 * Who may: whoever has the daemon's token, or the port's own (POST .../ports), given as header X-Brig-Port-Token or ?token=. It is derived
 * from a secret of this daemon's run, so nothing is stored, and it dies with the session, whose id is in it. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>
#include <strings.h>

#include "api/v1_internal.h"
#include "base/fields.h"
#include "base/hash.h"
#include "base/json.h"
#include "http/forward.h"
#include "http/upload.h"
#include "session/session.h"

#define PORT_LIVE_MAX 1024             /* requests and sockets under way, of all sessions: 503 */
#define PORT_CONNECT_MS 10000          /* 504 */
#define TOKEN_HEX 32                   /* digits of a port's token: 128 bits */
#define TOKEN_HEADER "X-Brig-Port-Token"
#define TARGET_MAX (16u * 1024)

static size_t live;

struct port_call {
        struct api *api;
        struct http_request *r;        /* until it was answered, handed on, or is gone */
        struct session_use use;
        struct http_forward_run *run;
        uv_tcp_t *tcp;
        uv_connect_t connect;
        uv_timer_t timer;
        unsigned refs;                 /* whatever will still call us */
        uint16_t port;
        bool ipv6, over, connecting;
};

/* ---- tokens ------------------------------------------------------------------------------------------------------------------- */

static int make_token(const char *id, uint16_t port, char ret[static TOKEN_HEX + 1]) {
        static unsigned char secret[32];
        static bool made;
        unsigned char mac[EVP_MAX_MD_SIZE];
        char text[SESSION_ID_SIZE + 16];
        if (!made)
                random_bytes(secret, sizeof secret);
        made = true;
        int n = snprintf(text, sizeof text, "%s:%u", id, port);
        if (!HMAC(EVP_sha256(), secret, sizeof secret, (unsigned char *)text, (size_t)n, mac, NULL))
                return -ENOMEM;
        hex_encode(mac, TOKEN_HEX / 2, ret);
        return 0;
}

static bool token_is(const char *have, const char *want) {
        return have && strlen(have) == TOKEN_HEX && secret_equal(have, want, TOKEN_HEX);
}

static bool may(const struct http_request *r, const char *token) {
        return http_authorized(r) || token_is(http_header(r, TOKEN_HEADER), token) || token_is(http_query(r, "token"), token);
}

/* The rest of the path and the query, without our token in it. */
static int make_target(const struct http_request *r, const char *token, struct buf *ret) {
        _cleanup_buf_ struct buf rest = BUF_INIT(TARGET_MAX);
        int e = http_rest(r, &rest);
        const char *p = buf_str(&rest);
        size_t path = strcspn(p, "?");
        if (e == 0)
                e = buf_add(ret, p, path);
        char mark = '?';
        for (p += path; e == 0 && *p;) {
                size_t n = strcspn(++p, "&");
                bool ours = n == 6 + TOKEN_HEX && memcmp(p, "token=", 6) == 0 && secret_equal(p + 6, token, TOKEN_HEX);
                if (!ours) {
                        e = buf_addc(ret, mark);
                        if (e == 0)
                                e = buf_add(ret, p, n);
                        mark = '&';
                }
                p += n;
        }
        return e;
}

static void port_error(struct http_request *r, int status, const char *code, const char *why, const char *hint) {
        char text[160];
        snprintf(text, sizeof text, "Port %.8s: %.128s", http_param(r, "port"), why);
        v1_error(r, status, code, text, hint);
}

/* ---- the end ------------------------------------------------------------------------------------------------------------------- */

static void unref(struct port_call *c) {
        if (--c->refs > 0)
                return;
        session_use_end(&c->use);
        live--;
        free(c);
}

static void timer_closed(uv_handle_t *h) { unref(h->data); }

static void tcp_closed(uv_handle_t *h) {
        struct port_call *c = h->data;
        free(h);
        unref(c);
}

static void drop_tcp(struct port_call *c) {
        uv_tcp_t *tcp = TAKE_PTR(c->tcp);
        c->connecting = false;
        if (tcp)
                uv_close((uv_handle_t *)tcp, tcp_closed);
}

/* Nothing of ours goes on; whoever still holds it comes back. */
static void over(struct port_call *c) {
        if (c->over)
                return;
        c->over = true;
        drop_tcp(c);
        uv_close((uv_handle_t *)&c->timer, timer_closed);
}

static void client_gone(void *user) {
        struct port_call *c = user;
        c->r = NULL;
        over(c);
}

static void refuse(struct port_call *c, int status, const char *code, const char *hint, const char *why) {
        struct http_request *r = TAKE_PTR(c->r);
        if (r) {
                http_on_close(r, NULL, NULL);
                port_error(r, status, code, why, hint);
        }
        over(c);
}

static void session_ends(struct session_use *u) {
        struct port_call *c = container_of(u, struct port_call, use);
        static const char why[] = "the session has ended";
        c->refs++;
        if (c->run)
                http_forward_cut(c->run, why);
        refuse(c, 502, "session_ended", NULL, why);
        unref(c);
}

/* ---- forwarding ------------------------------------------------------------------------------------------------------------------ */

static void forward_failed(struct http_request *r, int status, const char *why, void *user) {
        port_error(r, status, status == 504 ? "port_timeout" : "port_failed", why, NULL);
}

static void forward_done(void *user) {
        struct port_call *c = user;
        c->run = NULL;
        over(c);
        unref(c);
}

static void forward(struct port_call *c) {
        static const char *const drop[] = { TOKEN_HEADER, NULL };
        struct http_request *r = TAKE_PTR(c->r);
        _cleanup_buf_ struct buf target = BUF_INIT(TARGET_MAX);
        char host[32], prefix[SESSION_ID_SIZE + 64], token[TOKEN_HEX + 1];
        const char *id = http_param(r, "id");
        snprintf(host, sizeof host, "localhost:%u", c->port);
        snprintf(prefix, sizeof prefix, "/v1/sessions/%s/ports/%u", id, c->port);
        if (make_token(id, c->port, token) < 0 || make_target(r, token, &target) < 0) {
                c->r = r;
                refuse(c, 500, "internal", NULL, "no memory");
                return;
        }
        struct http_forward f = {
                .target = target.data, .host = host, .prefix = prefix, .drop = drop, .fail = forward_failed, .done = forward_done, .user = c,
        };
        uv_timer_stop(&c->timer);
        c->refs++;
        unref(c);                      /* the handle's place is taken by the exchange */
        c->run = http_forward(r, TAKE_PTR(c->tcp), &f);
}

/* ---- the connection --------------------------------------------------------------------------------------------------------------- */

static void ask(struct port_call *c);

static void connect_failed(struct port_call *c, int x) {
        drop_tcp(c);
        if (x == -ECONNREFUSED && !c->ipv6) {
                c->ipv6 = true;
                ask(c);
        } else if (x == -ECONNREFUSED || x == -EADDRNOTAVAIL || x == -EAFNOSUPPORT)
                refuse(c, 502, "port_refused", "start a server there that listens on 127.0.0.1 or on all addresses", "nothing listens there");
        else
                refuse(c, 502, "port_failed", NULL, "no connection");
}

static void connected(uv_connect_t *req, int x) {
        struct port_call *c = req->data;
        if (!c->over && c->connecting) {
                c->connecting = false;
                if (x == 0)
                        forward(c);
                else
                        connect_failed(c, x);
        }
        unref(c);
}

static void late(uv_timer_t *t) {
        refuse(t->data, 504, "port_timeout", NULL, "the server does not take the connection");
}

static int connect_socket(struct port_call *c, int fd) {
        struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(c->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(c->port), .sin6_addr = IN6ADDR_LOOPBACK_INIT };
        uv_tcp_t *tcp = malloc(sizeof *tcp);
        int x = tcp ? uv_tcp_init(c->api->loop, tcp) : -ENOMEM;
        if (x < 0) {
                free(tcp);
                fd_close(fd);
                return x;
        }
        tcp->data = c;
        c->tcp = tcp;
        c->refs++;
        x = uv_tcp_open(tcp, fd);
        if (x < 0) {
                fd_close(fd);
                return x;
        }
        c->connect.data = c;
        x = uv_tcp_connect(&c->connect, tcp, c->ipv6 ? (const struct sockaddr *)&v6 : (const struct sockaddr *)&v4, connected);
        if (x == 0) {
                c->connecting = true;
                c->refs++;
        }
        return x;
}

static void got_socket(struct sandbox *s, int x, int fd, void *user) {
        struct port_call *c = user;
        if (c->over)
                fd_close(fd);
        else {
                if (x == 0)
                        x = connect_socket(c, fd);
                if (x < 0)
                        connect_failed(c, x);
        }
        unref(c);
}

static void ask(struct port_call *c) {
        struct sandbox *s = session_sandbox(c->use.session);
        int x = s ? sandbox_socket(s, c->ipv6 ? SOCKET_IPV6 : SOCKET_IPV4, got_socket, c) : -ESHUTDOWN;
        if (x == 0)
                c->refs++;
        else
                refuse(c, 503, "too_many_connections", NULL, "too many connections at once");
}

/* ---- the handlers ------------------------------------------------------------------------------------------------------------------ */

static bool parse_port(const char *text, uint16_t *ret) {
        char *end;
        unsigned long v = strtoul(text, &end, 10);
        if (text[0] < '1' || text[0] > '9' || *end || v > 65535)
                return false;
        *ret = (uint16_t)v;
        return true;
}

void v1_serve_port(struct http_request *r, void *user) {
        struct api *a = user;
        struct sessions *ss = v1_sessions(r, user);
        const char *id = http_param(r, "id");
        char token[TOKEN_HEX + 1];
        uint16_t port;
        if (!ss)
                return;
        if (!parse_port(http_param(r, "port"), &port)) {
                v1_error(r, 400, "invalid", "A port is a number from 1 to 65535", NULL);
                return;
        }
        if (strlen(id) >= SESSION_ID_SIZE || make_token(id, port, token) < 0 || !may(r, token)) {
                http_respond_header(r, "WWW-Authenticate", "Bearer");
                v1_error(r, 401, "unauthorized", "Unauthorized", "give the port's token, or the server's");
                return;
        }
        struct port_call *c = live < PORT_LIVE_MAX ? calloc(1, sizeof *c) : NULL;
        if (!c) {
                v1_error(r, 503, "too_many_connections", "Too many connections to ports at once", NULL);
                return;
        }
        int x = session_use_begin(ss, id, &c->use, session_ends);
        if (x < 0) {
                free(c);
                if (x == -ENOENT || x == -EAGAIN)
                        v1_unready(ss, r, id);
                else
                        v1_fault(r, x, NULL, "session");
                return;
        }
        c->api = a;
        c->r = r;
        c->port = port;
        c->refs = 1;
        live++;
        uv_timer_init(a->loop, &c->timer);
        c->timer.data = c;
        uv_timer_start(&c->timer, late, PORT_CONNECT_MS, 0);
        http_on_close(r, client_gone, c);
        http_close_on_eof(r);          /* who goes away while the server is silent would keep one of few places, and the session in use */
        ask(c);
}

struct port_body { uint64_t port; };

static const struct field port_fields[] = {
        { .name = "port", .kind = FIELD_INT, .at = offsetof(struct port_body, port), .min = 1, .max = 65535, .doc = "Where a server inside listens, or will" },
};

struct v1_body v1_port_body(void) { return (struct v1_body){ port_fields, ARRAY_SIZE(port_fields) }; }

void v1_post_port(struct http_request *r, void *user) {
        struct sessions *ss = v1_sessions(r, user);
        struct port_body body = { 0 };
        struct json object;
        struct error e = { 0 };
        char token[TOKEN_HEX + 1], url[SESSION_ID_SIZE + 64];
        if (!ss)
                return;
        struct session *s = session_find(ss, http_param(r, "id"));
        if (!s) {
                v1_unready(ss, r, http_param(r, "id"));
                return;
        }
        if (!v1_body(r, false, &object))
                return;
        int x = fields_decode(port_fields, ARRAY_SIZE(port_fields), &object, 0, &body, &e);
        if (x == 0 && body.port == 0)
                x = error_say(&e, -EINVAL, "Missing required field: port");
        if (x == 0)
                x = make_token(session_id(s), (uint16_t)body.port, token);
        if (x < 0) {
                v1_fault(r, x, e.text, "session");
                return;
        }
        snprintf(url, sizeof url, "/v1/sessions/%s/ports/%u/", session_id(s), (unsigned)body.port);
        _cleanup_buf_ struct buf b = BUF_INIT(1024);
        struct json_writer w = JSON_WRITER(&b);
        json_begin_object(&w);
        json_field_text(&w, "session_id", session_id(s));
        json_field_int(&w, "port", (int64_t)body.port);
        json_field_text(&w, "token", token);
        json_field_text(&w, "url", url);
        json_end_object(&w);
        v1_reply(r, 200, json_finish(&w), &b);
}
