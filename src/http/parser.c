/* From bytes to a request. Two opinions must agree before a request exists: a strict check of our own over the whole head (line
 * ends, names, values, framing), and llhttp, which then also frames the body. What they disagree about is a 400: a request that
 * two parsers read differently is how requests are smuggled past a proxy. */
#include <ctype.h>
#include <strings.h>

#include "http/internal.h"

static const struct refusal ok = { 0, NULL };
#define BAD(why) ((struct refusal){ 400, why })

static const char *const methods[] = { "GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE" };

static bool is_token(unsigned char c) {
        return isalnum(c) || (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_hex(unsigned char c) {
        return isxdigit(c);
}

int percent_decode(char *p, size_t n, bool plus, size_t *ret_n) {
        size_t out = 0;
        for (size_t i = 0; i < n; i++) {
                unsigned char c = (unsigned char)p[i];
                if (c == '%') {
                        if (n - i < 3 || !is_hex((unsigned char)p[i + 1]) || !is_hex((unsigned char)p[i + 2]))
                                return -EBADMSG;
                        char hex[3] = { p[i + 1], p[i + 2], 0 };
                        c = (unsigned char)strtoul(hex, NULL, 16);
                        i += 2;
                        if (c == 0)
                                return -EBADMSG;
                } else if (plus && c == '+')
                        c = ' ';
                p[out++] = (char)c;
        }
        p[out] = 0;
        *ret_n = out;
        return 0;
}

/* "GET /path HTTP/1.1": exactly two single spaces, nothing below '!' or above '~' in the target. */
static struct refusal request_line(struct http_request *r, const char *line, size_t n, size_t *ret_method_len) {
        const char *in = r->c->in;
        const char *sp = memchr(line, ' ', n);
        if (!sp || sp == line)
                return BAD("Malformed request line");
        for (const char *p = line; p < sp; p++)
                if (!is_token((unsigned char)*p))
                        return BAD("Malformed method");
        const char *target = sp + 1, *end = line + n;
        const char *sp2 = memchr(target, ' ', (size_t)(end - target));
        if (!sp2 || sp2 == target)
                return BAD("Malformed request line");
        for (const char *p = target; p < sp2; p++)
                if (*p < '!' || *p > '~' || *p == '#')
                        return BAD("Malformed request target");
        if (end - sp2 != 9 || memcmp(sp2 + 1, "HTTP/", 5) != 0 || !isdigit((unsigned char)sp2[6]) || sp2[7] != '.' || !isdigit((unsigned char)sp2[8]))
                return BAD("Malformed HTTP version");
        if (sp2[6] != '1' || sp2[8] > '1')
                return (struct refusal){ 505, "HTTP version not supported" };
        r->minor = (uint8_t)(sp2[8] - '0');
        r->target = (uint32_t)(target - in);
        r->target_len = (uint32_t)(sp2 - target);
        *ret_method_len = (size_t)(sp - line);
        return ok;
}

static struct refusal field_line(struct http_request *r, const char *line, size_t n) {
        const char *in = r->c->in, *end = line + n, *p = line;
        if (*p == ' ' || *p == '\t')
                return BAD("Folded header field");
        while (p < end && is_token((unsigned char)*p))
                p++;
        if (p == line || p >= end || *p != ':')
                return BAD("Malformed header field");
        if (r->n_fields == HTTP_FIELDS_MAX)
                return (struct refusal){ 431, "Too many header fields" };
        struct field *f = &r->fields[r->n_fields];
        f->name = (uint32_t)(line - in);
        f->name_len = (uint32_t)(p - line);
        p++;
        while (p < end && (*p == ' ' || *p == '\t'))
                p++;
        while (end > p && (end[-1] == ' ' || end[-1] == '\t'))
                end--;
        for (const char *v = p; v < end; v++)
                if (((unsigned char)*v < 0x20 && *v != '\t') || *v == 0x7f)
                        return BAD("Control character in a header field");
        f->value = (uint32_t)(p - in);
        f->value_len = (uint32_t)(end - p);
        r->n_fields++;
        return ok;
}

/* Every line of the head, which ends with an empty one. A CR without LF, or the reverse, is refused wherever it stands. */
static struct refusal lines(struct http_request *r, size_t *ret_method_len) {
        const char *p = r->c->in, *end = p + r->c->head_len;
        bool first = true;
        while (p < end) {
                const char *lf = memchr(p, '\n', (size_t)(end - p));
                if (!lf || lf == p || lf[-1] != '\r')
                        return BAD("Line not ended by CR LF");
                size_t n = (size_t)(lf - 1 - p);
                if (memchr(p, '\r', n))
                        return BAD("CR inside a line");
                if (n == 0)
                        break;
                struct refusal why = first ? request_line(r, p, n, ret_method_len) : field_line(r, p, n);
                if (why.status)
                        return why;
                first = false;
                p = lf + 1;
        }
        return first ? BAD("Malformed request line") : ok;
}

static bool is(const struct http_request *r, const struct field *f, const char *name, size_t n) {
        return f->name_len == n && strncasecmp(request_at(r, f->name), name, n) == 0;
}

static struct refusal once(struct field **slot, struct field *f, const char *why) {
        if (*slot)
                return BAD(why);
        *slot = f;
        return ok;
}

static struct refusal content_length(struct http_request *r, const struct field *f) {
        const char *p = request_at(r, f->value);
        uint64_t v = 0;
        if (r->has_length)
                return BAD("Repeated Content-Length");
        if (f->value_len == 0)
                return BAD("Malformed Content-Length");
        for (uint32_t i = 0; i < f->value_len; i++) {
                if (p[i] < '0' || p[i] > '9')
                        return BAD("Malformed Content-Length");
                if (v > (UINT64_MAX - 9) / 10)
                        return BAD("Content-Length out of range");
                v = v * 10 + (uint64_t)(p[i] - '0');
        }
        r->has_length = true;
        r->content_length = v;
        return ok;
}

static struct refusal transfer_encoding(struct http_request *r, const struct field *f) {
        const char *p = request_at(r, f->value);
        if (r->chunked)
                return BAD("Repeated Transfer-Encoding");
        if (r->minor == 0)
                return BAD("Transfer-Encoding in HTTP/1.0");
        if (f->value_len == 7 && strncasecmp(p, "chunked", 7) == 0) {
                r->chunked = true;
                return ok;
        }
        /* "gzip, chunked" is a coding that we do not know; "chunked, gzip" or "chunked, chunked" has no frame at all. */
        for (uint32_t i = 0; i + 7 < f->value_len; i++)
                if (strncasecmp(p + i, "chunked", 7) == 0)
                        return BAD("Malformed Transfer-Encoding");
        return (struct refusal){ 501, "Transfer coding not implemented" };
}

static struct refusal expectation(struct http_request *r, const struct field *f) {
        if (f->value_len != 12 || strncasecmp(request_at(r, f->value), "100-continue", 12) != 0)
                return (struct refusal){ 417, "Expectation not supported" };
        r->expect_continue = r->minor == 1;
        return ok;
}

static struct refusal known_field(struct http_request *r, struct field *f) {
        if (is(r, f, "host", 4))
                return once(&r->host, f, "Repeated Host");
        if (is(r, f, "content-length", 14))
                return content_length(r, f);
        if (is(r, f, "transfer-encoding", 17))
                return transfer_encoding(r, f);
        if (is(r, f, "authorization", 13))
                return once(&r->authorization, f, "Repeated Authorization");
        if (is(r, f, "origin", 6))
                return once(&r->origin, f, "Repeated Origin");
        if (is(r, f, "expect", 6))
                return expectation(r, f);
        if (is(r, f, "x-request-id", 12) && !r->id)
                r->id = f;
        else if (is(r, f, "traceparent", 11) && !r->trace)
                r->trace = f;
        return ok;
}

/* A refusal that leaves the framing in doubt must win over one that does not (417, 501): look at all fields first. */
static struct refusal known_fields(struct http_request *r) {
        struct refusal first = ok;
        for (size_t i = 0; i < r->n_fields; i++) {
                struct refusal why = known_field(r, &r->fields[i]);
                if (why.status == 400)
                        return why;
                if (why.status && !first.status)
                        first = why;
        }
        if (r->chunked && r->has_length)
                return BAD("Both Content-Length and Transfer-Encoding");
        if (!r->host && r->minor == 1)
                return BAD("Missing Host");
        return first;
}

static struct refusal check_host(const struct http_request *r) {
        if (!r->host)
                return ok;
        const char *p = request_at(r, r->host->value);
        if (r->host->value_len == 0)
                return BAD("Malformed Host");
        for (uint32_t i = 0; i < r->host->value_len; i++)
                if (!isalnum((unsigned char)p[i]) && !strchr("-._~!$&'()*+;=:[]%", p[i]))
                        return BAD("Malformed Host");
        return ok;
}

/* "http://host/path" is for proxies, but must be understood: its authority has to be the Host. */
static struct refusal absolute_form(struct http_request *r) {
        const char *p = request_at(r, r->target);
        if (r->target_len < 8 || strncasecmp(p, "http://", 7) != 0)
                return BAD("Malformed request target");
        const char *host = p + 7, *end = p + r->target_len, *slash = host;
        while (slash < end && *slash != '/' && *slash != '?')
                slash++;
        size_t n = (size_t)(slash - host);
        if (!r->host || n != r->host->value_len || strncasecmp(host, request_at(r, r->host->value), n) != 0)
                return BAD("Request target and Host differ");
        if (slash == end || *slash != '/')
                return BAD("Malformed request target");
        r->target += (uint32_t)(slash - p);
        r->target_len -= (uint32_t)(slash - p);
        return ok;
}

static struct refusal split_query(struct http_request *r) {
        char *p = request_at(r, r->query), *end = p + r->query_len;
        while (p < end) {
                char *amp = memchr(p, '&', (size_t)(end - p)), *stop = amp ? amp : end;
                char *eq = memchr(p, '=', (size_t)(stop - p));
                size_t n;
                if (stop > p) {
                        if (r->n_pairs == HTTP_QUERY_MAX)
                                return BAD("Too many query parameters");
                        char *key_end = eq ? eq : stop, *value = eq ? eq + 1 : stop;
                        if (percent_decode(value, (size_t)(stop - value), true, &n) < 0 || percent_decode(p, (size_t)(key_end - p), true, &n) < 0)
                                return BAD("Malformed query");
                        r->pairs[r->n_pairs].key = (uint32_t)(p - r->c->in);
                        r->pairs[r->n_pairs++].value = (uint32_t)((eq ? value : p + strlen(p)) - r->c->in);
                }
                p = stop + 1;
        }
        return ok;
}

/* Splits the path at its slashes, then decodes each segment, so that an encoded slash stays part of its segment. */
static struct refusal split_path(struct http_request *r, size_t n) {
        char *p = request_at(r, r->target), *end = p + n;
        buf_reset(&r->path);
        p++;
        for (;;) {
                char *slash = memchr(p, '/', (size_t)(end - p)), *stop = slash ? slash : end;
                size_t got;
                if (percent_decode(p, (size_t)(stop - p), false, &got) < 0)
                        return BAD("Malformed request target");
                if (r->n_segments < HTTP_SEGMENTS_MAX)
                        r->segments[r->n_segments] = (uint32_t)(p - r->c->in);
                r->n_segments++;
                if (buf_addc(&r->path, '/') < 0 || buf_add(&r->path, p, got) < 0)
                        return (struct refusal){ 503, "Out of memory" };
                if (!slash)
                        return ok;
                p = slash + 1;
        }
}

static struct refusal split_target(struct http_request *r) {
        struct refusal why = ok;
        if (*request_at(r, r->target) == '*' && r->target_len == 1 && strcmp(r->method, "OPTIONS") == 0)
                return buf_addc(&r->path, '*') < 0 ? (struct refusal){ 503, "Out of memory" } : ok;
        if (*request_at(r, r->target) != '/')
                why = absolute_form(r);
        if (why.status)
                return why;
        char *p = request_at(r, r->target), *mark = memchr(p, '?', r->target_len);
        if (r->c->s->has_rest && buf_add(&r->raw, p, r->target_len) < 0)
                return (struct refusal){ 503, "Out of memory" };
        size_t n = mark ? (size_t)(mark - p) : r->target_len;
        if (mark) {
                r->query = (uint32_t)(mark + 1 - r->c->in);
                r->query_len = (uint32_t)(r->target_len - n - 1);
        }
        /* The byte behind the target is the space before the version, the one behind the path its '?': both may become NUL. */
        why = split_path(r, n);
        return why.status ? why : split_query(r);
}

/* Second opinion. An unknown method never reaches llhttp: it is answered 405 by itself. */
static struct refusal ask_llhttp(struct conn *c) {
        llhttp_t *l = &c->parser;
        llhttp_init(l, HTTP_REQUEST, &c->s->settings);
        l->data = c;
        enum llhttp_errno e = llhttp_execute(l, c->in, c->head_len);
        bool complete = e == HPE_PAUSED;
        if (e != HPE_OK && !complete)
                return BAD("Malformed request");
        if (complete && llhttp_get_error_pos(l) != c->in + c->head_len)
                return BAD("Malformed request");
        bool has_body = c->r.chunked || c->r.content_length > 0;
        if (complete == has_body || (!complete && !c->r.chunked && l->content_length != c->r.content_length))
                return BAD("Malformed request");
        return ok;
}

static void terminate(struct http_request *r) {
        for (size_t i = 0; i < r->n_fields; i++) {
                struct field *f = &r->fields[i];
                *request_at(r, f->name + f->name_len) = 0;
                *request_at(r, f->value + f->value_len) = 0;
        }
}

static const char *find_method(const char *p, size_t n) {
        for (size_t i = 0; i < ARRAY_SIZE(methods); i++)
                if (strlen(methods[i]) == n && memcmp(p, methods[i], n) == 0)
                        return methods[i];
        return NULL;
}

/* Hard refusals; those after which the frame is still known (417, 501) go to *soft. */
static struct refusal check_head(struct conn *c, struct refusal *soft) {
        struct http_request *r = &c->r;
        size_t method_len = 0;
        struct refusal why = lines(r, &method_len);
        if (why.status)
                return why;
        *soft = known_fields(r);
        if (soft->status == 400)
                return *soft;
        why = check_host(r);
        const char *method = find_method(c->in, method_len);
        r->method = method ? method : "?";
        r->head_only = strcmp(r->method, "HEAD") == 0;
        return why.status || !method || soft->status == 501 ? why : ask_llhttp(c);
}

struct refusal parser_head(struct conn *c) {
        struct refusal soft = ok, why = check_head(c, &soft);
        /* Whatever came of it: from here on fields are read as strings. */
        terminate(&c->r);
        if (!why.status)
                why = split_target(&c->r);
        return why.status ? why : soft;
}

static int on_headers_complete(llhttp_t *l) {
        struct conn *c = l->data;
        c->r.keep_alive = llhttp_should_keep_alive(l);
        l->upgrade = 0;         /* we speak nothing else on this port: an offer to upgrade is ignored, as RFC 9110 allows */
        return 0;
}

static int on_message_complete(llhttp_t *l) {
        struct conn *c = l->data;
        c->complete = true;
        return HPE_PAUSED;
}

static int on_body(llhttp_t *l, const char *p, size_t n) {
        struct conn *c = l->data;
        struct http_request *r = &c->r;
        if (r->refused.status) {
                r->body.len += n;
                return r->body.len > DISCARD_MAX ? HPE_USER : 0;
        }
        if (r->up.on)
                return upload_piece(r, p, n);
        return body_add(&r->body, p, n, &c->s->cfg.limits, body_limit(r)) < 0 ? HPE_USER : 0;
}

static int on_overhead(llhttp_t *l, const char *p, size_t n) {
        struct conn *c = l->data;
        c->r.overhead += n;
        return c->r.overhead > CHUNK_OVERHEAD_MAX ? HPE_USER : 0;
}

/* Fields of the head are counted by the head's own limits; only those behind the last chunk come here with F_TRAILING. The two bytes
 * are the ": " of a name and the line end of a value: short fields cost too. */
static int on_trailer(llhttp_t *l, const char *p, size_t n) {
        return l->flags & F_TRAILING ? on_overhead(l, p, n + 2) : 0;
}

void parser_settings(llhttp_settings_t *ret) {
        llhttp_settings_init(ret);
        ret->on_headers_complete = on_headers_complete;
        ret->on_message_complete = on_message_complete;
        ret->on_body = on_body;
        ret->on_header_field = on_trailer;
        ret->on_header_value = on_trailer;
        ret->on_chunk_extension_name = on_overhead;
        ret->on_chunk_extension_value = on_overhead;
}

int parser_body(struct conn *c, const char *p, size_t n, size_t *ret_used, struct refusal *ret) {
        llhttp_t *l = &c->parser;
        struct http_request *r = &c->r;
        if (llhttp_get_errno(l) == HPE_PAUSED)
                llhttp_resume(l);
        enum llhttp_errno e = llhttp_execute(l, p, n);
        if (e == HPE_OK) {
                *ret_used = n;
                return 0;
        }
        if (e == HPE_PAUSED) {
                *ret_used = (size_t)(llhttp_get_error_pos(l) - p);
                return c->complete ? 1 : 2;
        }
        *ret_used = n;
        if (r->refused.status && r->body.len > DISCARD_MAX)
                *ret = r->refused;
        else if (r->overhead > CHUNK_OVERHEAD_MAX)
                *ret = (struct refusal){ 431, "Chunk extensions or trailers too large" };
        else if (r->body.r == -EFBIG)
                *ret = (struct refusal){ 413, "Request body too large" };
        else if (r->body.r < 0)
                *ret = (struct refusal){ 503, "Out of memory" };
        else
                *ret = BAD("Malformed body");
        return -EBADMSG;
}
