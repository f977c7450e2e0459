/* The listener, and what all connections share: routes, the date, deadlines.
 *
 * Deadlines are numbers in the connections and one timer in the server, set for the earliest of them. A deadline that moves away
 * (most do, with each request) costs nothing: the timer fires once at the old time, looks, and is set anew. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/hash.h"
#include "http/internal.h"

#define BACKLOG 1024
#define GIVEN_BACKLOG 64      /* of sockets that were given: few peers each */
#define SWEEP_GAP_MS 20       /* deadlines closer together than this are looked at together */

void http_limits_default(struct http_limits *ret) {
        *ret = (struct http_limits){
                .line_max = 8 * 1024,
                .header_max = 32 * 1024,
                .body_max = 1ull << 30,
                .body_memory_max = 1024 * 1024,
                .head_timeout_ms = 10 * 1000,
                .body_timeout_ms = 30 * 1000,
                .body_rate_min = 1024,
                .idle_timeout_ms = 75 * 1000,
                .write_timeout_ms = 30 * 1000,
                .connections_max = 4096,
        };
}

/* ---- deadlines ---- */

static void sweep(uv_timer_t *t);

static void arm_sweep(struct http_server *s, uint64_t at) {
        uint64_t now = uv_now(s->loop);
        s->sweep_at = at;
        uv_timer_start(&s->sweep, sweep, at > now ? MAX2(at - now, (uint64_t)SWEEP_GAP_MS) : SWEEP_GAP_MS, 0);
}

void server_deadline(struct conn *c, uint64_t ms) {
        struct http_server *s = c->s;
        c->deadline = ms ? uv_now(s->loop) + ms : 0;
        if (c->deadline && (!s->sweep_at || c->deadline < s->sweep_at) && !uv_is_closing((uv_handle_t *)&s->sweep))
                arm_sweep(s, c->deadline);
}

static void sweep(uv_timer_t *t) {
        struct http_server *s = t->data;
        uint64_t now = uv_now(s->loop), first = 0;
        s->sweep_at = 0;
        for (struct conn *c = s->conns, *next; c; c = next) {
                next = c->next;
                if (c->state != CONN_CLOSED && c->deadline && c->deadline <= now) {
                        c->deadline = 0;
                        conn_expired(c);
                }
        }
        for (struct conn *c = s->conns; c; c = c->next)
                if (c->state != CONN_CLOSED && c->deadline && (!first || c->deadline < first))
                        first = c->deadline;
        if (first && !uv_is_closing((uv_handle_t *)t))
                arm_sweep(s, first);
}

static void soon(uv_timer_t *t) {
        struct http_server *s = t->data;
        struct conn *c = s->later, *next;
        for (s->later = NULL; c; c = next) {
                next = c->later;
                c->is_later = false;
                conn_pump(c);
                conn_unref(c);
        }
}

void server_later(struct conn *c) {
        struct http_server *s = c->s;
        if (c->is_later || c->state == CONN_CLOSED)
                return;
        c->is_later = true;
        c->pending++;
        c->later = s->later;
        if (!s->later)
                uv_timer_start(&s->soon, soon, 0, 0);
        s->later = c;
}

const char *server_date(struct http_server *s) {
        uint64_t second = uv_now(s->loop) / MS_PER_S + 1;
        if (second != s->date_s) {
                time_t now = time(NULL);
                struct tm tm;
                gmtime_r(&now, &tm);
                strftime(s->date, sizeof s->date, "%a, %d %b %Y %H:%M:%S GMT", &tm);
                s->date_s = second;
        }
        return s->date;
}

/* ---- connections ---- */

static void server_done(struct http_server *s) {
        if (!s->stopping || s->conns || s->handles > 0)
                return;
        void (*done)(void *user) = s->stopped;
        void *user = s->stopped_user;
        router_free(s);
        fd_close(s->diag_fd);
        free(s->unix_path);
        free(s->spool_dir);
        free(s->token);
        free(s);
        if (done)
                done(user);
}

static void handle_closed(uv_handle_t *h) {
        struct http_server *s = h->data;
        s->handles--;
        server_done(s);
}

static void close_timers(struct http_server *s) {
        uv_timer_t *timers[] = { &s->sweep, &s->grace, &s->soon };
        for (size_t i = 0; i < ARRAY_SIZE(timers); i++)
                if (!uv_is_closing((uv_handle_t *)timers[i]))
                        uv_close((uv_handle_t *)timers[i], handle_closed);
}

void server_forget(struct conn *c) {
        struct http_server *s = c->s;
        if (c->prev)
                c->prev->next = c->next;
        else
                s->conns = c->next;
        if (c->next)
                c->next->prev = c->prev;
        s->n_conns--;
        if (c->rejected)
                s->n_rejected--;
        if (s->stopping && !s->conns)
                close_timers(s);
        server_done(s);
}

static struct conn *add_conn(struct http_server *s) {
        struct conn *c = conn_new(s);
        if (!c)
                return NULL;
        if (s->unix_path ? uv_pipe_init(s->loop, &c->h.pipe, 0) : uv_tcp_init(s->loop, &c->h.tcp)) {
                free(c);
                return NULL;
        }
        c->h.handle.data = c;
        c->next = s->conns;
        if (s->conns)
                s->conns->prev = c;
        s->conns = c;
        s->n_conns++;
        return c;
}

static void begin(struct http_server *s, struct conn *c) {
        struct refusal why = { 0, NULL };
        if (!s->unix_path)
                uv_tcp_nodelay(&c->h.tcp, 1);
        if (s->n_conns - s->n_rejected > s->cfg.limits.connections_max) {
                if (s->n_rejected >= REJECTED_MAX) {
                        conn_close(c);
                        return;
                }
                why = (struct refusal){ 503, "Too many connections" };
                s->n_rejected++;
                c->rejected = true;
        } else if (peer_denied(s, c))
                why = (struct refusal){ 403, "Forbidden" };
        conn_start(c, why);
}

static void accepted(uv_stream_t *listener, int status) {
        struct http_server *s = listener->data;
        if (status < 0 || s->stopping)
                return;
        struct conn *c = add_conn(s);
        if (!c)
                return;         /* no memory: the peer waits in the backlog until another comes */
        if (uv_accept(listener, &c->h.stream) < 0)
                conn_close(c);
        else
                begin(s, c);
}

int server_adopt(struct http_server *s, int fd) {
        struct conn *c = add_conn(s);
        if (!c)
                return -ENOMEM;
        int r = s->unix_path ? uv_pipe_open(&c->h.pipe, fd) : uv_tcp_open(&c->h.tcp, fd);
        if (r < 0) {
                conn_close(c);
                return r;
        }
        begin(s, c);
        return 0;
}

/* ---- listening ---- */

/* A socket file that nobody listens on any more is a leftover. Anything else there is not ours to remove. */
static int remove_stale(const char *path) {
        struct stat st;
        if (lstat(path, &st) < 0)
                return errno == ENOENT ? 0 : -errno;
        if (!S_ISSOCK(st.st_mode))
                return -EEXIST;
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        struct sockaddr_un a = { .sun_family = AF_UNIX };
        if (fd < 0)
                return -errno;
        memcpy(a.sun_path, path, strlen(path) + 1);
        if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0)
                return -EADDRINUSE;
        if (errno != ECONNREFUSED)
                return -errno;
        return unlink(path) < 0 ? -errno : 0;
}

static int listen_unix(struct http_server *s, const char *path, struct error *e) {
        if (path[0] != '/' || strlen(path) >= sizeof ((struct sockaddr_un *)NULL)->sun_path)
                return error_say(e, -EINVAL, "unix:%s: not an absolute path of at most 107 bytes", path);
        s->unix_path = strdup(path);
        int r = s->unix_path ? uv_pipe_init(s->loop, &s->listener[0].pipe, 0) : -ENOMEM;
        if (r < 0)
                return error_set(e, r, "listen on %s", path);
        s->handles++;
        s->n_listeners = 1;
        r = remove_stale(path);
        if (r == 0)
                r = uv_pipe_bind(&s->listener[0].pipe, path);
        if (r == 0 && chmod(path, 0660) < 0)
                r = -errno;
        return r < 0 ? error_set(e, r, "listen on %s", path) : 0;
}

static int parse_address(const char *listen, struct sockaddr_storage *ret) {
        char host[64];
        const char *colon = strrchr(listen, ':');
        if (!colon || colon == listen || (size_t)(colon - listen) >= sizeof host)
                return -EINVAL;
        char *end;
        errno = 0;
        unsigned long port = strtoul(colon + 1, &end, 10);
        if (*end || end == colon + 1 || port > 65535 || colon[1] == '-' || colon[1] == '+')
                return -EINVAL;
        memcpy(host, listen, (size_t)(colon - listen));
        host[colon - listen] = 0;
        if (strcmp(host, "localhost") == 0)
                return uv_ip4_addr("127.0.0.1", (int)port, (struct sockaddr_in *)ret);
        size_t n = strlen(host);
        if (host[0] == '[' && host[n - 1] == ']') {
                host[n - 1] = 0;
                return uv_ip6_addr(host + 1, (int)port, (struct sockaddr_in6 *)ret);
        }
        return uv_ip4_addr(host, (int)port, (struct sockaddr_in *)ret);
}

static int listen_tcp(struct http_server *s, const char *listen, struct error *e) {
        struct sockaddr_storage a;
        if (parse_address(listen, &a) < 0)
                return error_say(e, -EINVAL, "listen address %s: want IP:PORT, [IPV6]:PORT or unix:/PATH", listen);
        int r = uv_tcp_init(s->loop, &s->listener[0].tcp);
        if (r < 0)
                return error_set(e, r, "listen on %s", listen);
        s->handles++;
        s->n_listeners = 1;
        r = uv_tcp_bind(&s->listener[0].tcp, (struct sockaddr *)&a, a.ss_family == AF_INET6 ? UV_TCP_IPV6ONLY : 0);
        return r < 0 ? error_set(e, r, "listen on %s", listen) : 0;
}

/* libuv's handles for TCP serve every stream socket that is there already. */
static int listen_given(struct http_server *s, const struct http_config *cfg, struct error *e) {
        ASSERT(cfg->n_listen_fds > 0 && cfg->n_listen_fds <= HTTP_LISTEN_FDS_MAX);
        for (size_t i = 0; i < cfg->n_listen_fds; i++) {
                union listener *l = &s->listener[i];
                int r = uv_tcp_init(s->loop, &l->tcp);
                if (r < 0)
                        return error_set(e, r, "listen");
                l->handle.data = s;
                s->handles++;
                s->n_listeners++;
                /* The caller's until all went well: a handle closes what it has. */
                int fd = fcntl(cfg->listen_fds[i], F_DUPFD_CLOEXEC, 3);
                r = fd < 0 ? -errno : uv_tcp_open(&l->tcp, fd);
                if (r < 0) {
                        fd_close(fd);
                        return error_set(e, r, "listen");
                }
                r = uv_listen(&l->stream, GIVEN_BACKLOG, accepted);
                if (r < 0)
                        return error_set(e, r, "listen");
        }
        for (size_t i = 0; i < cfg->n_listen_fds; i++)
                close(cfg->listen_fds[i]);
        s->listening = true;
        return 0;
}

static void learn_port(struct http_server *s) {
        struct sockaddr_storage a;
        int n = sizeof a;
        if (!s->unix_path && uv_tcp_getsockname(&s->listener[0].tcp, (struct sockaddr *)&a, &n) == 0)
                s->port = ntohs(((struct sockaddr_in *)&a)->sin_port);    /* in6 has it at the same place */
}

static int start(struct http_server *s, const struct http_config *cfg, struct error *e) {
        if (cfg->token && cfg->token[0] && !(s->token = strdup(cfg->token)))
                return error_set(e, -ENOMEM, "token");
        s->spool_dir = strdup(cfg->spool_dir ? cfg->spool_dir : "/tmp");
        if (!s->spool_dir)
                return error_set(e, -ENOMEM, "spool directory");
        int r = router_compile(s, e);
        if (r < 0)
                return r;
        if (!cfg->listen)
                return listen_given(s, cfg, e);
        r = strncmp(cfg->listen, "unix:", 5) == 0 ? listen_unix(s, cfg->listen + 5, e) : listen_tcp(s, cfg->listen, e);
        if (r < 0)
                return r;
        s->listener[0].handle.data = s;
        if (cfg->deny_uid_count && !s->unix_path)
                s->diag_fd = peer_open();
        r = uv_listen(&s->listener[0].stream, BACKLOG, accepted);
        if (r < 0)
                return error_set(e, r, "listen on %s", cfg->listen);
        s->listening = true;
        learn_port(s);
        return 0;
}

int http_server_start(uv_loop_t *loop, const struct http_config *cfg, struct http_server **ret, struct error *e) {
        unsigned char salt[8];
        struct http_server *s = calloc(1, sizeof *s);
        if (!s)
                return error_set(e, -ENOMEM, "HTTP server");
        s->loop = loop;
        s->cfg = *cfg;
        s->cfg.listen = s->cfg.token = s->cfg.spool_dir = NULL;     /* the caller's; ours are copies */
        s->cfg.listen_fds = NULL;
        s->diag_fd = -1;
        random_bytes(salt, sizeof salt);
        hex_encode(salt, sizeof salt, s->id_prefix);
        parser_settings(&s->settings);
        /* A peer that closes while we write is an ordinary error, not a signal. */
        signal(SIGPIPE, SIG_IGN);
        uv_timer_init(loop, &s->sweep);
        uv_timer_init(loop, &s->grace);
        uv_timer_init(loop, &s->soon);
        s->sweep.data = s->grace.data = s->soon.data = s;
        s->handles += 3;
        int r = start(s, cfg, e);
        if (r < 0) {
                http_server_stop(s, 0, NULL, NULL);
                return r;
        }
        *ret = s;
        return 0;
}

int http_server_port(const struct http_server *s) {
        return s->port;
}

bool http_server_checks_peers(const struct http_server *s) {
        return s->cfg.deny_uid_count == 0 || s->unix_path || s->diag_fd >= 0;
}

size_t http_server_connections(const struct http_server *s) {
        return s->n_conns;
}

/* ---- stopping ---- */

static void close_all(struct http_server *s) {
        for (struct conn *c = s->conns, *next; c; c = next) {
                next = c->next;
                conn_close(c);
        }
}

static void grace_over(uv_timer_t *t) {
        close_all(t->data);
}

void http_server_stop(struct http_server *s, uint64_t grace_ms, void (*done)(void *user), void *user) {
        ASSERT(!s->stopping);
        s->stopping = true;
        s->stopped = done;
        s->stopped_user = user;
        if (s->unix_path && s->listening)
                unlink(s->unix_path);
        for (unsigned i = 0; i < s->n_listeners; i++) {
                s->listener[i].handle.data = s;
                uv_close(&s->listener[i].handle, handle_closed);
        }
        for (struct conn *c = s->conns, *next; c; c = next) {
                next = c->next;
                conn_drop_idle(c);
        }
        if (grace_ms == 0)
                close_all(s);
        else
                uv_timer_start(&s->grace, grace_over, grace_ms, 0);
        if (!s->conns)
                close_timers(s);
}
