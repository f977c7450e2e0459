#include <string.h>

#include "cmd/remote.h"

#define PROBE_MS 2000
#define PORT_DEFAULT "9090"
#define EVENT_LINE_MAX (8u << 20)
#define EVENT_NAME_MAX 64

const struct option_row remote_rows[REMOTE_ROWS] = {
        { "--url", "URL", OPTION_TEXT, offsetof(struct remote_options, url), 0, COMPLETE_NONE, "the daemon (BRIG_URL, else the local one)" },
        { "-o", "json|text", OPTION_OUTPUT, offsetof(struct remote_options, json), 0, COMPLETE_NONE, "for machines, or for people (text)" },
};

static volatile sig_atomic_t interrupted;
static void on_signal(int number) { interrupted = 1; }

void remote_interruptible(struct client *c) {
        struct sigaction sa = { .sa_handler = on_signal };
        sigaction(SIGINT, &sa, NULL);
        sigaction(SIGTERM, &sa, NULL);
        client_interrupted_by(c, &interrupted);
}

/* ---- finding it ------------------------------------------------------------------------------------------------------ */

static const char *variable(const char *name, const char *other) {
        const char *v = getenv(name);
        if (!v || !v[0])
                v = other ? getenv(other) : NULL;
        return v && v[0] ? v : NULL;
}

static bool answers(struct client *c) {
        _cleanup_buf_ struct buf b = BUF_INIT(4096);
        int status;
        return client_call(c, "GET", "/healthz", NULL, 0, PROBE_MS, &status, &b, NULL) == 0 && status == 200 && strstr(buf_str(&b), "\"status\"");
}

int remote_find(const char *url, bool must, struct client **ret, struct error *e) {
        const char *port = variable("API_PORT", NULL), *token = variable("BRIG_API_TOKEN", "API_TOKEN");
        char local[64];
        struct client *c = NULL;
        if (!url)
                url = variable("BRIG_URL", NULL);
        bool named = url;
        if (!url)
                snprintf(local, sizeof local, "http://127.0.0.1:%.10s", port ? port : PORT_DEFAULT);
        int r = client_open(url ? url : local, token, &c, e);
        if (r == -ENOENT && !named && !must)
                r = 0;                 /* no library to ask with, and nobody was named */
        if (c && !named && !answers(c)) {
                client_free(c);
                c = NULL;
                if (must)
                        r = error_say(e, -EIO, "no daemon answers at %s; start one with `brig serve`, or name it with --url or BRIG_URL", local);
        }
        if (r == 0)
                *ret = c;
        return r;
}

/* ---- calls -------------------------------------------------------------------------------------------------------------- */

int remote_refusal(int status, const char *body, size_t n, struct error *e) {
        struct json doc, error;
        char text[400] = "", hint[200] = "";
        if (json_parse(body, n, &doc, NULL) == 0 && json_get(&doc, "error", &error)) {
                if (error.type == JSON_OBJECT) {
                        member_show(&error, "message", text, sizeof text);
                        member_show(&error, "hint", hint, sizeof hint);
                } else
                        member_show(&doc, "error", text, sizeof text);
        }
        int r = status == 404 ? -ENOENT : status == 409 ? -EBUSY : status >= 400 && status < 500 ? -EINVAL : -EIO;
        if (!text[0])
                return error_say(e, r, "the daemon answers with status %d", status);
        return error_say(e, r, "%s%s%s", text, hint[0] ? "; " : "", hint);
}

int remote_call(struct client *c, const char *method, const char *path, const struct buf *body, uint64_t timeout_ms, struct buf *answer,
                struct json *ret, struct error *e) {
        int status, r = client_call(c, method, path, body ? buf_str(body) : NULL, body ? body->len : 0, timeout_ms, &status, answer, e);
        if (r < 0)
                return r;
        if (status < 200 || status > 299)
                return remote_refusal(status, buf_str(answer), answer->len, e);
        struct json v;
        if (json_parse(buf_str(answer), answer->len, &v, NULL) < 0 || v.type != JSON_OBJECT)
                return error_say(e, -EIO, "the daemon's answer is not a JSON object");
        *ret = v;
        return 0;
}

/* ---- events -------------------------------------------------------------------------------------------------------------- */

struct events {
        const struct remote_events *what;
        struct error *e;
        struct buf line, data, refusal;
        char name[EVENT_NAME_MAX];
        int status;
};

static int event_end(struct events *s) {
        struct json v;
        if (!s->data.len)
                return 0;
        if (json_parse(buf_str(&s->data), s->data.len, &v, NULL) < 0)
                return error_say(s->e, -EIO, "an event is not JSON");
        int r = s->what->each(s->name[0] ? s->name : "message", &v, s->what->user);
        s->name[0] = 0;
        buf_reset(&s->data);
        return r;
}

static int event_line(struct events *s, const char *p, size_t n) {
        if (n && p[n - 1] == '\r')
                n--;
        if (n == 0)
                return event_end(s);
        if (n > 6 && memcmp(p, "event:", 6) == 0) {
                p += 6 + (p[6] == ' ');
                n -= (size_t)(6 + (p[-1] == ' '));
                snprintf(s->name, sizeof s->name, "%.*s", (int)MIN2(n, sizeof s->name - 1), p);
                return 0;
        }
        if (n > 5 && memcmp(p, "data:", 5) == 0)
                return buf_add(&s->data, p + 5, n - 5) < 0 ? error_say(s->e, -EIO, "an event is too long") : 0;
        return 0;                      /* a comment, an id */
}

static int on_bytes(int status, const char *p, size_t n, void *user) {
        struct events *s = user;
        s->status = status;
        if (status < 200 || status > 299)
                return buf_add(&s->refusal, p, n) < 0 ? error_say(s->e, -EIO, "the daemon answers with status %d", status) : 0;
        int r = 0;
        for (const char *end = p + n; p < end && r == 0;) {
                const char *nl = memchr(p, '\n', (size_t)(end - p));
                size_t m = (size_t)((nl ? nl : end) - p);
                if (buf_add(&s->line, p, m) < 0)
                        return error_say(s->e, -EIO, "a line of an event is too long");
                p += m + (nl != NULL);
                if (nl) {
                        r = event_line(s, buf_str(&s->line), s->line.len);
                        buf_reset(&s->line);
                }
        }
        return r < 0 ? r : r > 0 ? -ECANCELED : 0;
}

static ssize_t on_source(char *p, size_t n, void *user) {
        struct events *s = user;
        return s->what->source(p, n, s->what->user);
}

int remote_stream(struct client *c, const struct remote_events *what, struct error *e) {
        struct error own;
        struct events s = {
                .what = what, .e = e ? e : &own, .line = BUF_INIT(EVENT_LINE_MAX), .data = BUF_INIT(EVENT_LINE_MAX), .refusal = BUF_INIT(64 * 1024),
        };
        struct client_transfer t = {
                .method = what->method, .path = what->path, .content_type = what->content_type, .body = what->body ? buf_str(what->body) : NULL,
                .n = what->body ? what->body->len : 0, .source = what->source ? on_source : NULL, .sink = on_bytes, .user = &s,
        };
        int status, r = client_transfer(c, &t, &status, s.e);
        if (r == -ECANCELED)
                r = 0;
        else if (r == 0 && (status < 200 || status > 299))
                r = remote_refusal(status, buf_str(&s.refusal), s.refusal.len, s.e);
        buf_release(&s.line);
        buf_release(&s.data);
        buf_release(&s.refusal);
        return r;
}

/* ---- small things ----------------------------------------------------------------------------------------------------------- */

int query_encode(struct buf *b, const char *s) {
        int r = 0;
        for (; *s && r == 0; s++)
                if (strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/", *s))
                        r = buf_addc(b, *s);
                else
                        r = buf_printf(b, "%%%02X", (unsigned char)*s);
        return r;
}

int session_path(const char *id, const char *tail, char ret[static REMOTE_PATH_MAX], struct error *e) {
        size_t n = strspn(id, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.");
        if (n == 0 || id[n] || n > 128)
                return error_say(e, -EINVAL, "'%.100s' is not the id of a session", id);
        if (snprintf(ret, REMOTE_PATH_MAX, "/v1/sessions/%s%s", id, tail) >= REMOTE_PATH_MAX)
                return error_say(e, -EINVAL, "the path is too long");
        return 0;
}

const char *member_show(const struct json *object, const char *key, char *ret, size_t n) {
        struct json v;
        ret[0] = 0;
        if (!json_get(object, key, &v) || v.type == JSON_NULL)
                return ret;
        if (v.type == JSON_STRING) {
                struct buf b = BUF_INIT(json_string_max(&v) + 1);
                if (json_string(&v, &b) == 0)
                        snprintf(ret, n, "%s", buf_str(&b));
                buf_release(&b);
        } else
                snprintf(ret, n, "%.*s", (int)MIN2(v.n, n - 1), v.p);
        for (char *p = ret; *p; p++)
                if ((unsigned char)*p < ' ' || *p == 0x7f)
                        *p = '?';
        return ret;
}

int put_pairs(struct json_writer *w, const char *key, char *const *pairs, const char *option, struct error *e) {
        if (!pairs)
                return 0;
        json_put_key(w, key);
        json_begin_object(w);
        int r = 0;
        for (; *pairs && r == 0; pairs++) {
                size_t n = strcspn(*pairs, "=");
                char name[256];
                if (n == 0 || !(*pairs)[n] || n >= sizeof name) {
                        r = error_say(e, -EINVAL, "%s wants NAME=VALUE, not '%.100s'", option, *pairs);
                        break;
                }
                memcpy(name, *pairs, n);
                name[n] = 0;
                json_field_text(w, name, *pairs + n + 1);
        }
        json_end_object(w);
        return r;
}

int put_number(struct json_writer *w, const char *key, const char *text, const char *option, struct error *e) {
        char *end;
        if (!text)
                return 0;
        double v = strtod(text, &end);
        if (end == text || *end)
                return error_say(e, -EINVAL, "%s wants a number, not '%.100s'", option, text);
        json_field_double(w, key, v);
        return 0;
}

int print_json(const struct json *v) {
        return fwrite(v->p, 1, v->n, stdout) == v->n && fputc('\n', stdout) != EOF && fflush(stdout) == 0 ? 0 : -EIO;
}

/* ---- tables -------------------------------------------------------------------------------------------------------------------- */

void table_init(struct table *t, const char *const *head, size_t columns) {
        ASSERT(columns <= TABLE_COLUMNS_MAX);
        *t = (struct table){ .head = head, .columns = columns, .cells = BUF_INIT(REMOTE_ANSWER_MAX) };
        for (size_t i = 0; i < columns; i++)
                table_cell(t, head[i]);
}

int table_cell(struct table *t, const char *text) {
        int r = buf_add(&t->cells, text && text[0] ? text : "-", strlen(text && text[0] ? text : "-") + 1);
        t->n += r == 0;
        return r;
}

int table_print(struct table *t, FILE *to) {
        size_t width[TABLE_COLUMNS_MAX] = { 0 }, i = 0;
        const char *p = t->cells.data;
        for (i = 0; i < t->n; i++, p += strlen(p) + 1)
                width[i % t->columns] = MAX2(width[i % t->columns], strlen(p));
        p = t->cells.data;
        for (i = 0; i < t->n; i++, p += strlen(p) + 1) {
                bool last = i % t->columns == t->columns - 1;
                fprintf(to, "%-*s%s", last ? 0 : (int)width[i % t->columns], p, last ? "\n" : "  ");
        }
        return fflush(to) == 0 ? 0 : -EIO;
}

void table_release(struct table *t) { buf_release(&t->cells); }
