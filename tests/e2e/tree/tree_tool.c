/* Drives the tree store against the real spawner, one line a command, fields separated by tabs:
 *
 *     acquire N URL COMMIT IMAGE PATH SETUP NETWORK TIMEOUT_MS     -> got N COMMIT TREE_HASH TIME CACHED LAYER... | failed N CODE TEXT | refused N TEXT
 *     exec N COMMAND     in a fresh sandbox with the layers of N   -> ran N STATUS OUTPUT(with \n escaped)
 *     cancel N / release N                                         -> ok N
 *     check URL COMMIT                                             -> ok | refused TEXT
 *     quit                                                         -> bye, after the store and the spawner are closed
 *
 * usage: tree_tool BRIG HOME MAX_BYTES [ROOT...]      as root; becomes user 64321 once the spawner is up */
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/strv.h"
#include "sandbox/capture.h"
#include "store/home.h"
#include "store/tree.h"

#define TOOL_UID 64321
#define SLOTS 256

static uv_loop_t loop;
static struct spawner *spawner;
static struct tree_store *store;
static uv_pipe_t input;
static struct buf line = BUF_INIT(1 << 20);
static struct slot { struct tree_ticket *ticket; struct tree *tree; } slots[SLOTS];

static void say(const char *fmt, ...) PRINTF_LIKE(1, 2);
static void say(const char *fmt, ...) {
        va_list ap;
        va_start(ap, fmt);
        vprintf(fmt, ap);
        va_end(ap);
        putchar('\n');
        fflush(stdout);
}

static void on_tree(struct tree *t, enum tree_failure failure, const struct error *e, void *user) {
        struct slot *s = user;
        long n = (long)(s - slots);
        s->ticket = NULL;
        s->tree = t;
        if (t)
                say("got\t%ld\t%s\t%s\t%lld\t%d\t%s\t%s\t%llu", n, t->commit, t->tree_hash, (long long)t->commit_time, t->cached, t->layers[0],
                    t->layers[1] ? t->layers[1] : "-", (unsigned long long)t->prepare_ms);
        else
                say("failed\t%ld\t%s\t%s", n, tree_failure_to_string((int)failure), e->text);
}

static void acquire(char **f) {
        struct slot *s = &slots[strtoul(f[1], NULL, 10) % SLOTS];
        tree_release(store, TAKE_PTR(s->tree));
        static const char *const env[] = { "BRIG_SETUP=yes", NULL };
        struct error e = { 0 };
        struct tree_request q = { .repo_url = f[2], .commit = f[3], .repo_path = f[4], .setup_command = f[5],
                                  .setup_network = (enum sandbox_network)sandbox_network_from_string(f[6]), .setup_env = env,
                                  .setup_timeout_ms = strtoull(f[7], NULL, 10) };
        sandbox_limits_default(&q.limits);
        if (tree_acquire(store, &q, on_tree, s, &s->ticket, &e) < 0)
                say("refused\t%s\t%s", f[1], e.text);
}

/* ---- exec ---- */

struct run { long n; char *command; struct output_capture out; struct sandbox *sandbox; int status; uint64_t began_ns; struct error error; };

static void on_exit_of(struct sandbox_exec *x, const struct exec_end *end, void *user) {
        struct run *r = user;
        r->status = end->status;
        if (!end->started)
                r->error = end->error;
        sandbox_destroy(r->sandbox);
}

static void on_ready(struct sandbox *s, void *user) {
        struct run *r = user;
        static const char *const env[] = { "PATH=/usr/bin:/bin", "HOME=/root", NULL };
        const char *const argv[] = { "/bin/sh", "-c", r->command, NULL };
        struct exec_spec x = { .argv = argv, .env = env, .cwd = "/", .stdin_fd = -1, .out = &r->out, .err = &r->out, .timeout_ms = 60000 };
        struct sandbox_exec *ret;
        if (sandbox_exec(s, &x, on_exit_of, r, &ret, &r->error) < 0)
                sandbox_destroy(s);
}

static void on_failed(struct sandbox *s, const char *step, const struct error *e, void *user) {
        struct run *r = user;
        r->status = -1;
        r->error = *e;
}

static void on_gone(struct sandbox *s, const struct sandbox_end *end, void *user) {
        struct run *r = user;
        _cleanup_buf_ struct buf b = BUF_INIT(1 << 20), esc = BUF_INIT(2 << 20);
        capture_text(&r->out, &b);
        for (size_t i = 0; i < b.len; i++) {
                if (b.data[i] == '\n')
                        buf_adds(&esc, "\\n");
                else if (b.data[i] == '\t')
                        buf_adds(&esc, "\\t");
                else
                        buf_addc(&esc, b.data[i]);
        }
        say("ran\t%ld\t%d\t%s%s\t%llu", r->n, WIFEXITED(r->status) ? WEXITSTATUS(r->status) : -1, buf_str(&esc), r->error.text,
            (unsigned long long)((now_ns() - r->began_ns) / 1000));
        capture_release(&r->out);
        free(r->command);
        free(r);
}

static void exec(char **f) {
        static const struct sandbox_callbacks cb = { .ready = on_ready, .failed = on_failed, .gone = on_gone };
        long n = strtol(f[1], NULL, 10);
        struct run *r = calloc(1, sizeof *r);
        struct error e = { 0 };
        static const char *const no_layers[] = { NULL };
        struct tree *t = n < 0 ? NULL : slots[n].tree;
        r->n = n;
        r->command = strdup(f[2]);
        r->began_ns = now_ns();
        capture_init(&r->out, 65536, 65536, 64 << 20, -1);
        struct sandbox_spec s = { .id = "run", .profile = PROFILE_SCORE, .image = IMAGE_HOST, .layers = t ? t->layers : no_layers,
                                  .upper = UPPER_TMPFS, .network = NETWORK_NONE };
        sandbox_limits_default(&s.limits);
        if (sandbox_create(spawner, &s, &cb, r, &r->sandbox, &e) < 0)
                say("ran\t%ld\t-1\t%s\t0", n, e.text);
}

/* ---- the rest ---- */

static void stopped(void *user) {
        say("bye");
        spawner_free(spawner);
        uv_close((uv_handle_t *)&input, NULL);
}

static void store_closed(void *user) {
        spawner_stop(spawner, stopped, NULL);
}

static void lost(void *user) {
        say("lost");
        exit(3);
}

static void quit(void) {
        for (size_t i = 0; i < SLOTS; i++)
                if (slots[i].tree)
                        tree_release(store, TAKE_PTR(slots[i].tree));
        uv_read_stop((uv_stream_t *)&input);
        tree_store_close(store, store_closed, NULL);
}

static void command(char *text) {
        char *f[9] = { NULL };
        struct error e;
        size_t n = 0;
        while (n < 8 && (f[n] = strsep(&text, "\t")))
                n++;
        if (strcmp(f[0], "acquire") == 0 && n == 8)
                acquire(f);
        else if (strcmp(f[0], "exec") == 0 && n == 3)
                exec(f);
        else if (strcmp(f[0], "cancel") == 0 && n == 2) {
                struct slot *s = &slots[strtoul(f[1], NULL, 10)];
                if (s->ticket)
                        tree_cancel(TAKE_PTR(s->ticket));
                say("ok\t%s", f[1]);
        } else if (strcmp(f[0], "release") == 0 && n == 2) {
                tree_release(store, TAKE_PTR(slots[strtoul(f[1], NULL, 10)].tree));
                say("ok\t%s", f[1]);
        } else if (strcmp(f[0], "check") == 0 && n == 3) {
                int r = tree_url_check(store, f[1], f[2], &e);
                say(r < 0 ? "refused\t%s" : "ok", e.text);
        } else if (strcmp(f[0], "quit") == 0)
                quit();
        else
                say("what?");
}

static void on_alloc(uv_handle_t *h, size_t want, uv_buf_t *b) {
        static char space[65536];
        *b = uv_buf_init(space, sizeof space);
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *b) {
        if (n < 0) {
                quit();
                return;
        }
        buf_add(&line, b->base, (size_t)n);
        for (char *nl; line.data && (nl = memchr(line.data, '\n', line.len));) {
                *nl = 0;
                size_t used = (size_t)(nl - line.data) + 1;
                char *copy = strdup(line.data);
                buf_consume(&line, used);
                command(copy);
                free(copy);
        }
}

static int start(int argc, char **argv) {
        struct error e = { 0 };
        struct home home = HOME_INIT;
        int r = home_open(argv[2], &home, &e);
        if (r == 0)
                r = home_layout(&home, TOOL_UID, TOOL_UID, &e);
        const char *image_roots[] = { "/tmp", NULL };
        struct spawner_config sc = { .home = argv[2], .image_roots = image_roots, .id_base = 0x40000000, .daemon_uid = TOOL_UID, .daemon_gid = TOOL_UID,
                                     .instance = home.instance, .program = argv[1] };
        if (r == 0)
                r = spawner_start(&loop, &sc, &spawner, &e);
        if (r == 0 && (setresgid(TOOL_UID, TOOL_UID, TOOL_UID) < 0 || setresuid(TOOL_UID, TOOL_UID, TOOL_UID) < 0))
                r = error_set(&e, -errno, "become the daemon's user");
        prctl(PR_SET_DUMPABLE, 1);
        struct tree_store_config tc = { .home = argv[2], .max_bytes = strtoull(argv[3], NULL, 10), .any_readable_path = argc == 4,
                                        .repo_roots = argc > 4 ? (const char *const *)argv + 4 : NULL };
        if (r == 0)
                r = tree_store_open(&loop, spawner, &tc, &store, &e);
        if (r < 0)
                say("failed to start: %s", e.text);
        return r;
}

int main(int argc, char **argv) {
        uv_loop_init(&loop);
        if (argc < 4 || start(argc, argv) < 0)
                return 1;
        spawner_on_lost(spawner, lost, NULL);
        uv_pipe_init(&loop, &input, 0);
        uv_pipe_open(&input, 0);
        uv_read_start((uv_stream_t *)&input, on_alloc, on_read);
        say("ready");
        uv_run(&loop, UV_RUN_DEFAULT);
        return 0;
}
