/* What a handler may ask of a request. */
#include <strings.h>

#include "base/hash.h"
#include "http/internal.h"

void request_reset(struct http_request *r) {
        r->method = "?";
        r->target = r->target_len = r->query = r->query_len = 0;
        r->minor = 1;
        r->keep_alive = r->head_only = r->has_length = r->chunked = r->expect_continue = false;
        r->content_length = 0;
        r->n_fields = r->n_segments = r->n_pairs = 0;
        r->host = r->origin = r->authorization = r->id = r->trace = NULL;
        r->route = NULL;
        r->made_id[0] = r->traceparent[0] = 0;
        r->refused = (struct refusal){ 0, NULL };
        r->overhead = 0;
        r->answer = ANSWER_NONE;
        r->status = 0;
        r->closed = r->drain = NULL;
        r->sent = NULL;
        r->want_drain = r->fixed = r->events = false;
        r->n_events = 0;
        if (r->up.on)
                upload_reset(&r->up);
        buf_reset(&r->path);
        buf_reset(&r->raw);
        buf_reset(&r->extra);
        body_release(&r->body, r->c->s->loop);
}

void request_release(struct http_request *r) {
        request_reset(r);
        buf_release(&r->path);
        buf_release(&r->raw);
        buf_release(&r->extra);
}

/* A made id is the server's random prefix and a counter: unique, and no system call a request. */
static void make_id(struct http_request *r) {
        struct http_server *s = r->c->s;
        uint64_t n = s->id_next++;
        memcpy(r->made_id, s->id_prefix, 16);
        r->made_id[16] = '-';
        for (int i = 0; i < 10; i++)
                r->made_id[17 + i] = "0123456789abcdef"[n >> (36 - 4 * i) & 15];
        r->made_id[27] = 0;
}

static bool id_is_sane(const char *id, size_t n) {
        if (n == 0 || n > REQUEST_ID_MAX)
                return false;
        for (size_t i = 0; i < n; i++)
                if (!(id[i] >= '0' && id[i] <= '9') && !((id[i] | 0x20) >= 'a' && (id[i] | 0x20) <= 'z') && !strchr("-_.:+/=@", id[i]))
                        return false;
        return true;
}

/* version-trace-span-flags, as the W3C's Trace Context has it: 2, 32, 16 and 2 lower-case hex digits; neither id all zero. */
static bool trace_is_sane(const char *t, size_t n) {
        if (n != 55 || t[2] != '-' || t[35] != '-' || t[52] != '-' || memcmp(t, "00", 2) != 0)
                return false;
        for (size_t i = 0; i < n; i++)
                if (t[i] != '-' && !(t[i] >= '0' && t[i] <= '9') && !(t[i] >= 'a' && t[i] <= 'f'))
                        return false;
        static const char zero[] = "00000000000000000000000000000000";
        return !memchr(t + 3, '-', 32) && !memchr(t + 36, '-', 16) && !memchr(t + 53, '-', 2) && memcmp(t + 3, zero, 32) != 0 &&
               memcmp(t + 36, zero, 16) != 0;
}

void request_identify(struct http_request *r) {
        if (!r->id || !id_is_sane(request_at(r, r->id->value), r->id->value_len)) {
                r->id = NULL;
                make_id(r);
        }
        if (r->trace && trace_is_sane(request_at(r, r->trace->value), r->trace->value_len)) {
                unsigned char span[8];
                memcpy(r->traceparent, request_at(r, r->trace->value), 56);
                random_bytes(span, sizeof span);
                span[0] |= 1;
                char hex[17];
                hex_encode(span, sizeof span, hex);
                memcpy(r->traceparent + 36, hex, 16);
        }
}

const char *http_method(const struct http_request *r) {
        return r->method;
}

const char *http_path(const struct http_request *r) {
        return buf_str(&r->path);
}

const char *http_query(const struct http_request *r, const char *key) {
        for (size_t i = 0; i < r->n_pairs; i++)
                if (strcmp(request_at(r, r->pairs[i].key), key) == 0)
                        return request_at(r, r->pairs[i].value);
        return NULL;
}

const char *http_header(const struct http_request *r, const char *name) {
        for (size_t i = 0; i < r->n_fields; i++)
                if (strcasecmp(request_at(r, r->fields[i].name), name) == 0)
                        return request_at(r, r->fields[i].value);
        return NULL;
}

size_t http_headers(const struct http_request *r) {
        return r->n_fields;
}

const char *http_header_name(const struct http_request *r, size_t i) {
        return request_at(r, r->fields[i].name);
}

const char *http_header_value(const struct http_request *r, size_t i) {
        return request_at(r, r->fields[i].value);
}

bool request_lists(const struct http_request *r, const char *name, const char *token) {
        size_t n = strlen(token);
        for (size_t i = 0; i < r->n_fields; i++) {
                if (strcasecmp(request_at(r, r->fields[i].name), name) != 0)
                        continue;
                for (const char *p = request_at(r, r->fields[i].value); *p;) {
                        p += strspn(p, " \t,");
                        size_t len = strcspn(p, " \t,");
                        if (len == n && strncasecmp(p, token, n) == 0)
                                return true;
                        p += len;
                }
        }
        return false;
}

const char *http_request_id(const struct http_request *r) {
        return r->id ? request_at(r, r->id->value) : r->made_id;
}

const char *http_traceparent(const struct http_request *r) {
        return r->traceparent[0] ? r->traceparent : NULL;
}

void http_on_close(struct http_request *r, void (*closed)(void *user), void *user) {
        r->closed = closed;
        r->closed_user = user;
}

void http_on_sent(struct http_request *r, void (*sent)(bool whole, void *user), void *user) {
        r->sent = sent;
        r->sent_user = user;
}

void http_close_on_eof(struct http_request *r) { r->close_on_eof = true; }

void http_on_drain(struct http_request *r, void (*drain)(void *user), void *user) {
        r->drain = drain;
        r->drain_user = user;
}
