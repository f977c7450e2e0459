/* The router: a table of patterns, split into segments once. Paths are compared segment by segment after decoding; nothing is
 * normalised, so "." and ".." are names like any other and match nothing. */
#include "http/internal.h"

struct compiled_segment { const char *text; size_t len; bool param; };
struct compiled_route {
        const struct http_route *route;
        struct compiled_segment segments[HTTP_SEGMENTS_MAX];
        size_t n;
        bool rest;             /* the last of them is "{*}" */
};

static int compile(struct compiled_route *ret, const struct http_route *route, struct error *e) {
        const char *p = route->pattern;
        size_t params = 0;
        ret->route = route;
        if (*p != '/')
                return error_say(e, -EINVAL, "route %s: must begin with a slash", route->pattern);
        while (*p == '/') {
                if (ret->n == HTTP_SEGMENTS_MAX)
                        return error_say(e, -EINVAL, "route %s: too many segments", route->pattern);
                struct compiled_segment *s = &ret->segments[ret->n++];
                s->text = ++p;
                s->len = strcspn(p, "/");
                p += s->len;
                ret->rest = s->len == 3 && memcmp(s->text, "{*}", 3) == 0;
                if (ret->rest && s->text[3])
                        return error_say(e, -EINVAL, "route %s: something stands behind {*}", route->pattern);
                s->param = !ret->rest && s->len > 2 && s->text[0] == '{' && s->text[s->len - 1] == '}';
                if (s->param && ++params > HTTP_PARAMS_MAX)
                        return error_say(e, -EINVAL, "route %s: too many parameters", route->pattern);
                if (s->param) {
                        s->text++;
                        s->len -= 2;
                }
        }
        return 0;
}

int router_compile(struct http_server *s, struct error *e) {
        s->routes = calloc(s->cfg.n_routes ? s->cfg.n_routes : 1, sizeof *s->routes);
        if (!s->routes)
                return error_set(e, -ENOMEM, "routes");
        for (size_t i = 0; i < s->cfg.n_routes; i++) {
                int r = compile(&s->routes[i], &s->cfg.routes[i], e);
                if (r < 0)
                        return r;
                s->has_rest |= s->routes[i].rest;
        }
        return 0;
}

void router_free(struct http_server *s) {
        free(s->routes);
        s->routes = NULL;
}

static bool matches(const struct compiled_route *cr, struct http_request *r) {
        size_t params = 0, n = cr->n - cr->rest;
        if (cr->rest ? r->n_segments < n : r->n_segments != n)
                return false;
        for (size_t i = 0; i < n; i++) {
                const struct compiled_segment *s = &cr->segments[i];
                const char *have = request_at(r, r->segments[i]);
                if (s->param && *have)
                        r->params[params++] = r->segments[i];
                else if (s->param || strncmp(have, s->text, s->len) != 0 || have[s->len] != 0)
                        return false;
        }
        return true;
}

static bool serves(const struct http_route *route, const char *method) {
        if (route->method[0] == '*')
                return method[0] != '?';
        return strcmp(route->method, method) == 0 || (strcmp(method, "HEAD") == 0 && strcmp(route->method, "GET") == 0);
}

struct refusal router_find(struct http_request *r) {
        struct http_server *s = r->c->s;
        char allow[128];
        size_t n = 0;
        bool star = strcmp(buf_str(&r->path), "*") == 0;
        allow[0] = 0;
        for (size_t i = 0; i < s->cfg.n_routes; i++) {
                const struct http_route *route = s->routes[i].route;
                if (!star && !matches(&s->routes[i], r))
                        continue;
                if (!star && serves(route, r->method)) {
                        r->route = route;
                        return (struct refusal){ 0, NULL };
                }
                if (strstr(allow, route->method))
                        continue;
                int more = snprintf(allow + n, sizeof allow - n, "%s%s%s", n ? ", " : "", route->method, strcmp(route->method, "GET") == 0 ? ", HEAD" : "");
                n = MIN2(n + (size_t)more, sizeof allow - 1);
        }
        if (n == 0)
                return (struct refusal){ 404, "Not found" };
        http_respond_header(r, "Allow", allow);
        return (struct refusal){ 405, "Method not allowed" };
}

const char *http_param(const struct http_request *r, const char *name) {
        const struct compiled_route *cr = r->c->s->routes;
        if (!r->route)
                return NULL;
        cr += r->route - r->c->s->cfg.routes;
        size_t params = 0;
        for (size_t i = 0; i < cr->n; i++) {
                const struct compiled_segment *s = &cr->segments[i];
                if (!s->param)
                        continue;
                if (strncmp(s->text, name, s->len) == 0 && name[s->len] == 0)
                        return request_at(r, r->params[params]);
                params++;
        }
        return NULL;
}

int http_rest(const struct http_request *r, struct buf *b) {
        const struct compiled_route *cr = r->c->s->routes;
        const char *p = buf_str(&r->raw);
        ASSERT(r->route);
        cr += r->route - r->c->s->cfg.routes;
        ASSERT(cr->rest);
        size_t n = strcspn(p, "?"), at = 0;
        /* Segments were split at the slashes of what was sent, so they can be counted there. */
        for (size_t slashes = 0; at < n; at++)
                if (p[at] == '/' && ++slashes == cr->n)
                        break;
        int e = at < n ? 0 : buf_addc(b, '/');
        return e < 0 ? e : buf_adds(b, p + at);
}
