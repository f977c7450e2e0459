/* brig serve: the daemon. Settings, engine, HTTP; one line on standard output when it accepts; down on SIGTERM or SIGINT.
 *
 * Way down: the engine drains while HTTP goes on answering (new work gets 503, what ends meanwhile can be fetched), then the
 * server closes, then the process ends with status 0. A second signal ends it at once: the spawner, whose socket closes,
 * removes every sandbox, and what ran is run again after the next start. */
#include <malloc.h>
#include <signal.h>
#include <string.h>

#include "api/api.h"
#include "api/executor.h"
#include "api/ops.h"
#include "api/rlm_api.h"
#include "api/v1.h"
#include "base/log.h"
#include "cmd/verbs.h"
#include "engine/settings.h"
#include "sandbox/idrange.h"

#define HTTP_GRACE_MS 2000         /* for answers under way once the engine is down */

extern char **environ;

struct daemon {
        uv_loop_t loop;
        struct engine_config cfg;
        struct api api;
        struct http_server *http;
        struct http_route *routes;
        uv_signal_t term, interrupt;
        bool stopping;             /* a signal has come */
        bool down;                 /* nothing is left to stop */
        int status;
        char spool[4096];
};

static int configure(struct daemon *d, int argc, char **argv, struct error *e) {
        settings_init(&d->cfg);
        int r = settings_from_env(&d->cfg, environ, e);
        if (r == 0)
                r = settings_from_args(&d->cfg, argc, argv, e);
        return r < 0 ? r : settings_check(&d->cfg, e);
}

/* ---- HTTP ------------------------------------------------------------------------------------------------------------------ */

static void log_request(const struct http_request *r, int status, uint64_t ms, void *user) {
        char code[16], took[24];
        enum log_level level = status >= 500 ? LOG_WARN : LOG_DEBUG;
        ops_count_request(status);
        if (!log_enabled(level))
                return;
        snprintf(code, sizeof code, "%d", status);
        snprintf(took, sizeof took, "%llu", (unsigned long long)ms);
        log_event(level, "http.request", "method", http_method(r), "path", http_path(r), "status", code, "ms", took,
                  "request", http_request_id(r), NULL);
}

static int collect_routes(struct daemon *d, size_t *ret_n) {
        size_t n[3] = { 0 }, at = 0;
        const struct http_route *surfaces[] = { executor_routes(&n[0]), v1_routes(&n[1]), ops_routes(&n[2]) };
        d->routes = calloc(n[0] + n[1] + n[2], sizeof *d->routes);
        if (!d->routes)
                return -ENOMEM;
        for (size_t i = 0; i < ARRAY_SIZE(surfaces); at += n[i++])
                memcpy(d->routes + at, surfaces[i], n[i] * sizeof *d->routes);
        *ret_n = at;
        return 0;
}

static int start_http(struct daemon *d, struct error *e) {
        size_t n;
        int r = collect_routes(d, &n);
        if (r < 0)
                return error_set(e, r, "start HTTP");
        snprintf(d->spool, sizeof d->spool, "%s/spool", d->cfg.home);
        d->api.spool_dir = d->spool;
        struct http_config hc = {
                .listen = d->cfg.listen, .routes = d->routes, .n_routes = n, .token = d->cfg.token, .any_host = d->cfg.insecure_open,
                .deny_uid_first = (uint32_t)d->cfg.id_base, .deny_uid_count = IDRANGE_SIZE * IDRANGE_MAX, .spool_dir = d->spool,
                .error_body = v1_or_plain_error, .log = log_request, .user = &d->api,
        };
        http_limits_default(&hc.limits);
        r = http_server_start(&d->loop, &hc, &d->http, e);
        d->api.http = d->http;
        if (r == 0)
                engine_set_own_port(d->api.engine, (uint16_t)MAX2(http_server_port(d->http), 0));
        if (r == 0 && !http_server_checks_peers(d->http))
                log_event(LOG_WARN, "http.peers_unchecked", "why", "the kernel does not tell who is at the other end of a loopback connection", NULL);
        return r;
}

static void say_ready(const struct daemon *d) {
        const char *listen = d->cfg.listen, *colon = strrchr(listen, ':');
        if (strncmp(listen, "unix:", 5) == 0)
                printf("ready %s\n", listen);
        else
                printf("ready http://%.*s:%d\n", (int)(colon - listen), listen, http_server_port(d->http));
        fflush(stdout);
}

/* ---- the way down ---------------------------------------------------------------------------------------------------------- */

/* Not closed: that would bring back the default action, and a signal at the last moment would spoil a good end. */
static void stop_signals(struct daemon *d) {
        d->down = true;
        uv_unref((uv_handle_t *)&d->term);
        uv_unref((uv_handle_t *)&d->interrupt);
}

static void http_stopped(void *user) {
        struct daemon *d = user;
        d->http = d->api.http = NULL;
        engine_free(d->api.engine);
        d->api.engine = NULL;
        stop_signals(d);
}

static void drained(void *user) {
        struct daemon *d = user;
        http_server_stop(d->http, HTTP_GRACE_MS, http_stopped, d);
}

static void on_signal(uv_signal_t *s, int number) {
        struct daemon *d = s->data;
        if (d->down)
                return;
        log_event(LOG_INFO, "daemon.signal", "signal", number == SIGINT ? "SIGINT" : "SIGTERM", NULL);
        if (d->stopping)
                _exit(128 + number);
        d->stopping = true;
        engine_drain(d->api.engine, d->cfg.drain_grace_s * 1000, drained, d);
}

static void on_fatal(const char *why, void *user) {
        struct daemon *d = user;
        fprintf(stderr, "brig serve: %s\n", why);
        d->status = 1;
        uv_stop(&d->loop);
}

static void start_signals(struct daemon *d) {
        uv_signal_init(&d->loop, &d->term);
        uv_signal_init(&d->loop, &d->interrupt);
        d->term.data = d->interrupt.data = d;
        uv_signal_start(&d->term, on_signal, SIGTERM);
        uv_signal_start(&d->interrupt, on_signal, SIGINT);
}

static int serve(struct daemon *d, struct error *e) {
        int r = engine_start(&d->loop, &d->cfg, &d->api.engine, e);
        if (r < 0)
                return r;
        engine_on_fatal(d->api.engine, on_fatal, d);
        d->api.loop = &d->loop;
        rlm_set_face(engine_rlm(d->api.engine), &rlm_broker_face, &d->api);
        r = start_http(d, e);
        if (r < 0)
                return r;              /* the process ends, and the spawner with it */
        start_signals(d);
        say_ready(d);
        uv_run(&d->loop, UV_RUN_DEFAULT);
        return 0;
}

static int run(const struct command *c, int argc, char **argv) {
        for (int i = 1; i < argc; i++)
                if (strcmp(argv[i], "--help") == 0)
                        return command_begin(c, NULL, 2, (char *[]){ argv[0], argv[i], NULL }, &argv, &argc, &argc) ? 0 : argc;
        /* One heap for all threads: the writer's and the pool's allocations are short-lived, and an arena each is memory lost. */
        mallopt(M_ARENA_MAX, 1);
        signal(SIGPIPE, SIG_IGN);
        static struct daemon d;
        struct error e = { 0 };
        int r = configure(&d, argc, argv, &e);
        if (r < 0) {
                fprintf(stderr, "brig serve: %s\n", e.text);
                return EXIT_USAGE;
        }
        uv_loop_init(&d.loop);
        r = serve(&d, &e);
        if (r < 0) {
                fprintf(stderr, "brig serve: %s\n", e.text);
                return 1;
        }
        free(d.routes);
        settings_release(&d.cfg);
        return d.status;
}

const struct command cmd_serve = {
        .name = "serve", .synopsis = "[SETTING...]", .doc = "run the daemon",
        .text = "Prints one line, ready http://HOST:PORT, once it accepts. SIGTERM drains it. Every setting is also a variable of the\n"
                "environment; brig config shows those in effect.",
        .status = "0 after a drain, 1 when it cannot run, 64 for a setting that is wrong", .settings = settings_rows, .run = run,
};
