/* Who may speak. With a token: the bearer of it. Without: whoever reaches the loopback address, but not a web page that was made to
 * (a foreign Host is DNS rebinding, a foreign Origin is another site's script). */
#include <arpa/inet.h>
#include <strings.h>

#include "base/hash.h"
#include "http/internal.h"

bool auth_host_is_loopback(const char *host) {
        char name[64];
        const char *end;
        struct in_addr v4;
        struct in6_addr v6;
        if (host[0] == '[') {
                host++;
                end = strchr(host, ']');
                if (!end || (end[1] != 0 && end[1] != ':'))
                        return false;
        } else
                end = host + strcspn(host, ":");
        size_t n = (size_t)(end - host);
        if (n == 0 || n >= sizeof name)
                return false;
        memcpy(name, host, n);
        name[n] = 0;
        if (*end == ']')
                return inet_pton(AF_INET6, name, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
        return strcasecmp(name, "localhost") == 0 || (inet_pton(AF_INET, name, &v4) == 1 && ntohl(v4.s_addr) >> 24 == 127);
}

static bool bearer_matches(const struct http_request *r, const char *token) {
        char have[65], want[65];
        if (!r->authorization)
                return false;
        const char *p = request_at(r, r->authorization->value);
        if (strncasecmp(p, "Bearer ", 7) != 0)
                return false;
        for (p += 7; *p == ' '; p++)
                ;
        /* Digests have one length, so that comparing says nothing about the token's. */
        if (sha256_hex(p, strlen(p), have) < 0 || sha256_hex(token, strlen(token), want) < 0)
                return false;
        return secret_equal(have, want, 64);
}

static bool origin_is_ours(const struct http_request *r) {
        const char *origin = request_at(r, r->origin->value);
        return r->host && strncasecmp(origin, "http://", 7) == 0 && strcasecmp(origin + 7, request_at(r, r->host->value)) == 0;
}

bool http_authorized(const struct http_request *r) {
        return !r->c->s->token || bearer_matches(r, r->c->s->token);
}

struct refusal auth_check(const struct http_request *r) {
        const struct http_server *s = r->c->s;
        if (s->cfg.authorize) {
                bool heard = s->cfg.authorize(r, s->cfg.user);
                return heard ? (struct refusal){ 0, NULL } : (struct refusal){ 401, "Unauthorized" };
        }
        if (s->token) {
                if ((r->route && r->route->open) || bearer_matches(r, s->token))
                        return (struct refusal){ 0, NULL };
                return (struct refusal){ 401, "Unauthorized" };
        }
        /* Only HTTP/1.0 can lack a Host here; no browser speaks it. */
        if (!s->cfg.any_host && !s->unix_path && r->host && !auth_host_is_loopback(request_at(r, r->host->value)))
                return (struct refusal){ 403, "Host is not this machine; without an API token only localhost and loopback addresses name it" };
        if (r->origin && !origin_is_ours(r))
                return (struct refusal){ 403, "Foreign origin" };
        return (struct refusal){ 0, NULL };
}
