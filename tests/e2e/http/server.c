/* A server for the HTTP tests and benchmark: routes that show one property each. Prints "port N" once it listens; ends on SIGTERM.
 * usage: http_test_server [listen=ADDR] [token=T] [LIMIT=N...] [deny=FIRST:COUNT] [spool=DIR] [file=PATH] [any_host=1] */
#include <ctype.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/metrics.h"
#include "http/events.h"
#include "http/send.h"
#include "http/server.h"
#include "http/tunnel.h"
#include "http/upload.h"
#include "http/websocket.h"

#define HELD_MAX 256
#define STREAM_PIECE 50000

static struct http_server *server;
static struct http_request *held[HELD_MAX];
static size_t n_held, n_closed, n_logged;
static int last_logged;
static uint64_t streamed;

static void text(struct http_request *r, int status, const char *s) {
        http_respond(r, status, "text/plain", s, strlen(s));
}

static void hello(struct http_request *r, void *user) {
        text(r, 200, "hello\n");
}

/* As long as the executor's answer. */
static void task(struct http_request *r, void *user) {
        char b[256];
        int n = snprintf(b, sizeof b, "{\"task_id\":\"%.36s\",\"status\":\"running\"}", http_param(r, "id"));
        http_respond(r, 200, "application/json", b, (size_t)n);
}

static void echo(struct http_request *r, void *user) {
        const char *p;
        size_t n;
        if (http_body(r, &p, &n) < 0)
                http_respond_error(r, 500, "no body");
        else
                http_respond(r, 200, "application/octet-stream", p, n);
}

static void digest(struct http_request *r, void *user) {
        const char *p;
        size_t n;
        char hex[SHA256_HEX], line[128];
        if (http_body(r, &p, &n) < 0 || sha256_hex(p, n, hex) < 0)
                http_respond_error(r, 500, "no body");
        else
                http_respond(r, 200, "text/plain", line, (size_t)snprintf(line, sizeof line, "%zu %s\n", n, hex));
}

/* What the server understood of the request. */
static void inspect(struct http_request *r, void *user) {
        _cleanup_buf_ struct buf b = BUF_INIT(64 * 1024);
        struct json_writer w = JSON_WRITER(&b);
        json_begin_object(&w);
        json_field_text(&w, "method", http_method(r));
        json_field_text(&w, "path", http_path(r));
        json_field_text(&w, "a", http_param(r, "a"));
        json_field_text(&w, "b", http_param(r, "b"));
        json_field_text(&w, "q", http_query(r, "q"));
        json_field_text(&w, "x", http_header(r, "x-test"));
        json_field_text(&w, "id", http_request_id(r));
        json_field_text(&w, "trace", http_traceparent(r));
        json_end_object(&w);
        http_respond_header(r, "X-Extra", "yes");
        http_respond_header(r, "X-Split", "no\r\nX-Evil: 1");
        http_respond(r, 200, "application/json", buf_str(&b), b.len);
}

static void peer_gone(void *user) {
        struct http_request *r = user;
        n_closed++;
        for (size_t i = 0; i < n_held; i++)
                if (held[i] == r)
                        held[i--] = held[--n_held];
}

static void later(struct http_request *r, void *user) {
        if (n_held == HELD_MAX) {
                http_respond_error(r, 503, "too many");
                return;
        }
        held[n_held++] = r;
        http_on_close(r, peer_gone, r);
}

static void release(struct http_request *r, void *user) {
        while (n_held > 0)
                text(held[--n_held], 200, "later\n");
        text(r, 200, "released\n");
}

static void counts(struct http_request *r, void *user) {
        char b[200];
        int n = snprintf(b, sizeof b, "{\"held\":%zu,\"closed\":%zu,\"connections\":%zu,\"logged\":%zu,\"last\":%d,\"streamed\":%llu}", n_held, n_closed,
                         http_server_connections(server), n_logged, last_logged, (unsigned long long)streamed);
        http_respond(r, 200, "application/json", b, (size_t)n);
}

static void big(struct http_request *r, void *user) {
        const char *q = http_query(r, "bytes");
        size_t n = q ? strtoul(q, NULL, 10) : 0;
        struct buf b = BUF_INIT(n);
        if (buf_reserve(&b, n) < 0) {
                http_respond_error(r, 500, "no memory");
                return;
        }
        for (size_t i = 0; i < n; i++)
                b.data[i] = (char)('a' + i % 23);
        b.len = n;
        http_respond_buf(r, 200, "text/plain", &b);
}

struct stream { struct http_request *r; size_t left; };

static void stream_gone(void *user) {
        n_closed++;
        free(user);
}

static void stream_more(void *user) {
        static char piece[STREAM_PIECE];
        struct stream *s = user;
        memset(piece, 's', sizeof piece);
        while (s->left > 0) {
                size_t n = MIN2(s->left, sizeof piece);
                int e = http_stream_write(s->r, piece, n);
                if (e < 0)
                        return;         /* -EAGAIN: called again; -EPIPE: stream_gone was called */
                s->left -= n;
                streamed += n;
        }
        http_stream_end(s->r);
        free(s);
}

static void stream(struct http_request *r, void *user) {
        const char *q = http_query(r, "bytes");
        struct stream *s = calloc(1, sizeof *s);
        if (!s)
                return;
        *s = (struct stream){ r, q ? strtoul(q, NULL, 10) : 0 };
        http_on_close(r, stream_gone, s);
        http_on_drain(r, stream_more, s);
        http_stream_start(r, 200, "text/plain");
        stream_more(s);
}

/* Bodies in pieces: their length and digest, at the end. */
struct upload { struct http_request *r; struct sha256 hash; uint64_t n; };

static void upload_gone(void *user) {
        struct upload *u = user;
        n_closed++;
        sha256_release(&u->hash);
        free(u);
}

static void upload_piece(const char *p, size_t n, void *user) {
        struct upload *u = user;
        sha256_update(&u->hash, p, n);
        u->n += n;
}

static void upload_end(void *user) {
        struct upload *u = user;
        char hex[SHA256_HEX], line[128];
        sha256_finish(&u->hash, hex);
        http_on_close(u->r, NULL, NULL);
        http_respond(u->r, 200, "text/plain", line, (size_t)snprintf(line, sizeof line, "%llu %s\n", (unsigned long long)u->n, hex));
        free(u);
}

static void upload(struct http_request *r, void *user) {
        struct upload *u = calloc(1, sizeof *u);
        if (!u || sha256_init(&u->hash) < 0) {
                free(u);
                http_respond_error(r, 503, "no memory");
                return;
        }
        u->r = r;
        http_on_close(r, upload_gone, u);
        http_upload_start(r, &(struct http_upload){ upload_piece, upload_end }, u);
}

/* The file given at start. */
static const char *file_path;

static void file(struct http_request *r, void *user) {
        struct stat st;
        int fd = file_path ? open(file_path, O_RDONLY | O_CLOEXEC) : -1;
        if (fd < 0 || fstat(fd, &st) < 0)
                http_respond_error(r, 404, "no file");
        else
                http_send_file(r, fd, (uint64_t)st.st_size, "application/octet-stream", NULL, NULL);
}

/* As many events as are asked for, numbered behind the last that the client has seen. */
static void events(struct http_request *r, void *user) {
        const char *n = http_query(r, "n"), *last = http_events_last_id(r);
        unsigned long at = last ? strtoul(last, NULL, 10) : 0, end = n ? strtoul(n, NULL, 10) : 3;
        http_events_start(r);
        while (at++ < end) {
                char id[24], text[64];
                snprintf(id, sizeof id, "%lu", at);
                int len = snprintf(text, sizeof text, "line %lu\nof two", at);
                if (http_events_send(r, "tick", id, text, (size_t)len) < 0)
                        return;
        }
        http_events_end(r);
}

/* Echo; back-pressure of one side is handed to the other. "close CODE REASON" closes. */
static void ws_message(struct http_websocket *ws, bool is_text, const char *p, size_t n, void *user) {
        unsigned long code;
        char *reason;
        if (is_text && n > 6 && strncmp(p, "close ", 6) == 0 && (code = strtoul(p + 6, &reason, 10)) > 0)
                http_websocket_close(ws, (int)code, *reason ? reason + 1 : reason);
        else if (http_websocket_send(ws, is_text, p, n) == -EAGAIN)
                http_websocket_close(ws, WEBSOCKET_POLICY, "Read faster");
}

static void ws_closed(struct http_websocket *ws, int code, const char *reason, void *user) {
        n_closed++;
        last_logged = code;
}

static void websocket(struct http_request *r, void *user) {
        static const char *const protocols[] = { "echo" };
        static const struct http_websocket_options options = { .protocols = protocols, .n_protocols = 1 };
        static const struct http_websocket_calls calls = { ws_message, NULL, ws_closed };
        struct http_websocket *ws;
        http_websocket_accept(r, &options, &calls, NULL, &ws);
}

static void shout(struct http_tunnel *t, const char *p, size_t n, void *user) {
        char b[4096];
        n = MIN2(n, sizeof b);
        for (size_t i = 0; i < n; i++)
                b[i] = (char)toupper((unsigned char)p[i]);
        http_tunnel_write(t, b, n);
}

static void shout_closed(struct http_tunnel *t, void *user) {
        n_closed++;
}

static void shouting(struct http_request *r, void *user) {
        static const struct http_tunnel_calls calls = { shout, NULL, shout_closed };
        struct http_tunnel *t;
        if (http_upgrade_asked(r))
                http_tunnel_accept(r, "shout", &calls, NULL, &t);
        else
                http_respond_error(r, 426, "upgrade");
}

static void metrics(struct http_request *r, void *user) {
        struct buf b = BUF_INIT(1u << 20);
        metrics_add(METRIC_TASKS_FINISHED, "a\"b", 1);
        metrics_observe(METRIC_SCORE, 1.5);
        if (metrics_write(&b) < 0)
                http_respond_error(r, 500, "no room");
        else
                http_respond_buf(r, 200, "text/plain; version=0.0.4", &b);
}

static void nothing(struct http_request *r, void *user) {
        http_respond(r, 204, NULL, NULL, 0);
}

static const struct http_route routes[] = {
        { "GET", "/hello", hello, false, NULL },
        { "GET", "/open", hello, true, NULL },
        { "GET", "/task/{id}", task, false, NULL },
        { "POST", "/echo", echo, false, NULL },
        { "POST", "/digest", digest, false, NULL },
        { "GET", "/inspect/{a}/x/{b}", inspect, false, NULL },
        { "GET", "/later", later, false, NULL },
        { "POST", "/release", release, false, NULL },
        { "GET", "/counts", counts, false, NULL },
        { "GET", "/big", big, false, NULL },
        { "GET", "/stream", stream, false, NULL },
        { "GET", "/metrics", metrics, false, NULL },
        { "DELETE", "/hello", nothing, false, NULL },
        { "PUT", "/upload", upload, false, NULL, .stream_body = true, .body_max = HTTP_BODY_ANY },
        { "PUT", "/upload/small", upload, false, NULL, .stream_body = true, .body_max = 1000 },
        { "GET", "/file", file, false, NULL },
        { "GET", "/events", events, false, NULL },
        { "GET", "/ws", websocket, false, NULL },
        { "GET", "/shout", shouting, false, NULL },
};

static void logged(const struct http_request *r, int status, uint64_t ms, void *user) {
        n_logged++;
        last_logged = status;
}

static int option(struct http_config *cfg, const char *arg) {
        const char *eq = strchr(arg, '=');
        if (!eq)
                return -EINVAL;
        size_t n = (size_t)(eq - arg);
        uint64_t v = strtoul(eq + 1, NULL, 10);
#define IS(name) (n == strlen(name) && memcmp(arg, name, n) == 0)
        if (IS("listen")) cfg->listen = eq + 1;
        else if (IS("token")) cfg->token = eq + 1;
        else if (IS("spool")) cfg->spool_dir = eq + 1;
        else if (IS("file")) file_path = eq + 1;
        else if (IS("any_host")) cfg->any_host = v;
        else if (IS("deny")) {
                const char *colon = strchr(eq, ':');
                cfg->deny_uid_first = (uint32_t)v;
                cfg->deny_uid_count = colon ? (uint32_t)strtoul(colon + 1, NULL, 10) : 0;
        }
        else if (IS("line")) cfg->limits.line_max = v;
        else if (IS("header")) cfg->limits.header_max = v;
        else if (IS("body")) cfg->limits.body_max = v;
        else if (IS("memory")) cfg->limits.body_memory_max = v;
        else if (IS("head_ms")) cfg->limits.head_timeout_ms = v;
        else if (IS("body_ms")) cfg->limits.body_timeout_ms = v;
        else if (IS("idle_ms")) cfg->limits.idle_timeout_ms = v;
        else if (IS("write_ms")) cfg->limits.write_timeout_ms = v;
        else if (IS("connections")) cfg->limits.connections_max = v;
        else return -EINVAL;
#undef IS
        return 0;
}

static void stopped(void *user) {
        *(bool *)user = true;
}

static void terminate(uv_signal_t *h, int signum) {
        uv_close((uv_handle_t *)h, NULL);
        http_server_stop(server, 1000, stopped, h->data);
}

int main(int argc, char **argv) {
        struct http_config cfg = { .listen = "127.0.0.1:0", .routes = routes, .n_routes = ARRAY_SIZE(routes), .log = logged };
        struct error e;
        uv_signal_t on_term;
        bool done = false;
        http_limits_default(&cfg.limits);
        for (int i = 1; i < argc; i++)
                if (option(&cfg, argv[i]) < 0) {
                        fprintf(stderr, "unknown option %s\n", argv[i]);
                        return 64;
                }
        uv_loop_t *loop = uv_default_loop();
        uv_signal_init(loop, &on_term);
        on_term.data = &done;
        uv_signal_start(&on_term, terminate, SIGTERM);
        if (http_server_start(loop, &cfg, &server, &e) < 0) {
                fprintf(stderr, "%s\n", e.text);
                return 1;
        }
        printf("port %d\n", http_server_port(server));
        fflush(stdout);
        uv_run(loop, UV_RUN_DEFAULT);
        return done && uv_loop_close(loop) == 0 ? 0 : 1;
}
