/* Heads of forwarded requests and answers: what is handed on, what is not, what is made anew. */
#include <strings.h>

#include "http/forward_internal.h"

static const char *const hop_by_hop[] = {
        "Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization", "TE", "Trailer", "Transfer-Encoding", "Upgrade",
        "Content-Length",      /* framed anew */
};
static const char *const never_to_server[] = { "Authorization", "Expect", "Host", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Prefix" };
static const char *const never_to_client[] = { "Strict-Transport-Security", "Alt-Svc", "Clear-Site-Data", "Public-Key-Pins", "Date", "X-Request-Id", "traceparent" };

#define PAGE_POLICY "sandbox allow-scripts allow-forms allow-popups allow-modals allow-downloads"

static bool in(const char *const *list, size_t n, const char *name) {
        for (size_t i = 0; i < n; i++)
                if (strcasecmp(list[i], name) == 0)
                        return true;
        return false;
}

/* ---- the request ---- */

static bool goes_to_server(const struct http_request *r, const struct http_forward *o, const char *name) {
        if (in(hop_by_hop, ARRAY_SIZE(hop_by_hop), name) || in(never_to_server, ARRAY_SIZE(never_to_server), name) || request_lists(r, "Connection", name))
                return false;
        for (const char *const *d = o->drop; d && *d; d++)
                if (strcasecmp(*d, name) == 0)
                        return false;
        return true;
}

int forward_request_head(const struct http_request *r, const struct http_forward *o, const char *upgrade, struct buf *ret) {
        const char *host = http_header(r, "Host");
        int e = buf_printf(ret, "%s %s HTTP/1.1\r\nHost: %s\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Prefix: %s\r\n", r->method, o->target, o->host, o->prefix);
        if (e == 0 && host)
                e = buf_printf(ret, "X-Forwarded-Host: %s\r\n", host);
        for (size_t i = 0; e == 0 && i < http_headers(r); i++)
                if (goes_to_server(r, o, http_header_name(r, i)))
                        e = buf_printf(ret, "%s: %s\r\n", http_header_name(r, i), http_header_value(r, i));
        if (e == 0 && r->chunked)
                e = buf_adds(ret, "Transfer-Encoding: chunked\r\n");
        else if (e == 0 && r->has_length)
                e = buf_printf(ret, "Content-Length: %llu\r\n", (unsigned long long)r->content_length);
        if (e == 0 && upgrade)
                return buf_printf(ret, "Connection: Upgrade\r\nUpgrade: %s\r\n\r\n", upgrade);
        return e < 0 ? e : buf_adds(ret, "Connection: close\r\n\r\n");
}

/* ---- the answer ---- */

static const char *next_field(const struct buf *b, size_t *at, const char **ret_value) {
        if (*at >= b->len)
                return NULL;
        const char *name = b->data + *at, *value = name + strlen(name) + 1;
        *at += strlen(name) + strlen(value) + 2;
        *ret_value = value;
        return name;
}

static const char *field(const struct http_forward_run *f, const char *name) {
        const char *have, *value;
        for (size_t at = 0; (have = next_field(&f->fields, &at, &value));)
                if (strcasecmp(have, name) == 0)
                        return value;
        return NULL;
}

/* A path on the server, or its own address, becomes a path here. */
static void hand_location(struct http_forward_run *f, const char *value) {
        char text[2048];
        size_t n = strlen(f->host);
        if (strncasecmp(value, "http://", 7) == 0 && strncasecmp(value + 7, f->host, n) == 0 && (value[7 + n] == '/' || !value[7 + n]))
                value += 7 + n;
        bool here = value[0] == 0 || (value[0] == '/' && value[1] != '/');
        if (here && snprintf(text, sizeof text, "%s%s", f->prefix, *value ? value : "/") < (int)sizeof text)
                value = text;
        http_respond_header(f->r, "Location", value);
}

static const char *attribute(const char *p, size_t n, const char *name) {
        size_t len = strlen(name);
        return n > len && strncasecmp(p, name, len) == 0 && p[len] == '=' ? p + len + 1 : NULL;
}

/* A cookie stays below the prefix: else one server's cookies would go to all the others, and this one's pages. */
static void hand_cookie(struct http_forward_run *f, const char *value) {
        _cleanup_buf_ struct buf b = BUF_INIT(HTTP_FORWARD_HEAD_MAX);
        const char *path = "/";
        size_t n = strcspn(value, ";"), path_len = 1;
        int e = buf_add(&b, value, n);
        for (const char *p = value + n; *p; p += n) {
                p += strspn(p, "; \t");
                n = strcspn(p, ";");
                const char *given = attribute(p, n, "Path");
                if (given && given[0] == '/') {
                        path = given;
                        path_len = n - (size_t)(given - p);
                } else if (n > 0 && !given && !attribute(p, n, "Domain") && e == 0)
                        e = buf_printf(&b, "; %.*s", (int)n, p);
        }
        if (e == 0)
                e = buf_printf(&b, "; Path=%s%.*s", f->prefix, (int)path_len, path);
        if (e == 0)
                http_respond_header(f->r, "Set-Cookie", b.data);
}

static bool names_connection(const struct http_forward_run *f, const char *name) {
        const char *p = field(f, "Connection");
        size_t n = strlen(name);
        for (; p && *p; p += strcspn(p, " \t,")) {
                p += strspn(p, " \t,");
                if (strncasecmp(p, name, n) == 0 && strcspn(p, " \t,") == n)
                        return true;
        }
        return false;
}

static void hand_fields(struct http_forward_run *f) {
        const char *name, *value;
        for (size_t at = 0; (name = next_field(&f->fields, &at, &value));) {
                if (in(hop_by_hop, ARRAY_SIZE(hop_by_hop), name) || in(never_to_client, ARRAY_SIZE(never_to_client), name) ||
                    strcasecmp(name, "Content-Type") == 0 || names_connection(f, name))
                        continue;
                if (strcasecmp(name, "Location") == 0)
                        hand_location(f, value);
                else if (strcasecmp(name, "Set-Cookie") == 0)
                        hand_cookie(f, value);
                else
                        http_respond_header(f->r, name, value);
        }
        http_respond_header(f->r, "Content-Security-Policy", PAGE_POLICY);
}

static int add(struct buf *b, const char *p, size_t n) { return buf_add(b, p, n) < 0 ? HPE_USER : 0; }

static int on_name(llhttp_t *l, const char *p, size_t n) {
        struct http_forward_run *f = l->data;
        return l->flags & F_TRAILING ? 0 : add(&f->fields, p, n);
}

static int on_value(llhttp_t *l, const char *p, size_t n) {
        struct http_forward_run *f = l->data;
        return l->flags & F_TRAILING ? 0 : memchr(p, 0, n) ? HPE_USER : add(&f->fields, p, n);
}

static int on_part_end(llhttp_t *l) {
        struct http_forward_run *f = l->data;
        if (l->flags & F_TRAILING)
                return 0;
        return ++f->parts > 2 * HTTP_FIELDS_MAX ? HPE_USER : add(&f->fields, "", 1);
}

static int on_begin(llhttp_t *l) {
        struct http_forward_run *f = l->data;
        buf_reset(&f->fields);
        f->parts = 0;
        return f->complete ? HPE_USER : 0;
}

/* Its return value is llhttp's: 1, no body follows. */
static int on_head(llhttp_t *l) {
        struct http_forward_run *f = l->data;
        f->status = l->status_code;
        if (f->status == 101) {
                const char *protocol = field(f, "Upgrade");
                if (!f->may_upgrade || !protocol || !l->upgrade)
                        return HPE_USER;
                hand_fields(f);
                forward_answer_began(f);
                return forward_switch(f, protocol) < 0 ? HPE_USER : 0;
        }
        if (f->status < 200)
                return 0;
        if (f->status > 599)
                return HPE_USER;
        forward_answer_began(f);
        hand_fields(f);
        if (f->status == 204 || f->status == 304)
                return 1;                      /* a length there is that of another answer */
        f->answering = true;
        if (l->flags & F_CONTENT_LENGTH && l->content_length <= INT64_MAX)
                http_stream_start_length(f->r, f->status, field(f, "Content-Type"), l->content_length);
        else
                http_stream_start(f->r, f->status, field(f, "Content-Type"));
        return !f->r ? HPE_USER : f->r->head_only ? 1 : 0;
}

static int on_body(llhttp_t *l, const char *p, size_t n) {
        struct http_forward_run *f = l->data;
        return !f->answering || !f->r || forward_body(f, p, n) < 0 ? HPE_USER : 0;
}

static int on_complete(llhttp_t *l) {
        struct http_forward_run *f = l->data;
        f->complete = f->status >= 200;
        return 0;
}

void forward_parser_init(struct http_forward_run *f, bool may_upgrade) {
        llhttp_settings_init(&f->settings);
        f->settings.on_message_begin = on_begin;
        f->settings.on_header_field = on_name;
        f->settings.on_header_field_complete = on_part_end;
        f->settings.on_header_value = on_value;
        f->settings.on_header_value_complete = on_part_end;
        f->settings.on_headers_complete = on_head;
        f->settings.on_body = on_body;
        f->settings.on_message_complete = on_complete;
        llhttp_init(&f->parser, HTTP_RESPONSE, &f->settings);
        f->parser.data = f;
        f->may_upgrade = may_upgrade;
}
