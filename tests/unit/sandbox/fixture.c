#include <ftw.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/hash.h"
#include "sandbox/fixture.h"

static void on_lost(void *user) { ((struct fixture *)user)->lost = true; }
static void on_stopped(void *user) { ((struct fixture *)user)->stopped = true; }

static char instance[16];

const char *fixture_instance(void) { return instance; }

unsigned fixture_slowness(void) {
        const char *slow = getenv("BRIG_TEST_SLOW");
        long n = slow ? strtol(slow, NULL, 10) : 1;
        return n >= 1 && n <= 100 ? (unsigned)n : 1;
}
void fixture_kill_spawner(struct fixture *f) { kill(spawner_pid(f->spawner), SIGKILL); }

/* Mounts that other programs make meanwhile are not ours to count, and what the spawner should leave in "the host's" namespace shows
 * here. */
static int own_namespace(void) {
        static bool done;
        if (!done && (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)) {
                perror("a mount namespace for the test");
                return -1;
        }
        done = true;
        return 0;
}

/* One home per fixture: two programs at once are two daemons, and those never share one. */
static int make_home(struct fixture *f, const char *top) {
        snprintf(f->home, sizeof f->home, "%s/brig-test-XXXXXX", top ? top : "/tmp");
        if ((top && fs_mkdir_p(top, 0755) < 0) || !mkdtemp(f->home) || chmod(f->home, 0755) < 0) {
                fprintf(stderr, "%s: %s\n", f->home, strerrordesc_np(errno));
                return -1;
        }
        return 0;
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *at) { return remove(path) < 0 && errno != ENOENT ? -1 : 0; }

int fixture_setup(void **state) {
        struct fixture *f = calloc(1, sizeof *f);
        uv_loop_init(&f->loop);
        const char *home = getenv("BRIG_TEST_HOME");
        if (!getenv("BRIG_PROGRAM")) {
                fprintf(stderr, "BRIG_PROGRAM must name the built brig\n");
                free(f);
                return -1;
        }
        if (own_namespace() < 0 || make_home(f, home) < 0)
                return -1;
        unsigned char salt[4];
        char hex[9];
        random_bytes(salt, sizeof salt);
        hex_encode(salt, sizeof salt, hex);
        snprintf(instance, sizeof instance, "t%s", hex);
        const char *const roots[] = { "/tmp", NULL };
        const struct spawner_config cfg = { .home = f->home, .image_roots = roots, .id_base = 0x40000000u, .instance = instance,
                                            .program = getenv("BRIG_PROGRAM") };
        struct error e;
        if (spawner_start(&f->loop, &cfg, &f->spawner, &e) < 0) {
                fprintf(stderr, "%s\n", e.text);
                return -1;
        }
        spawner_on_lost(f->spawner, on_lost, f);
        *state = f;
        return 0;
}

static void on_late(uv_timer_t *t) { *(bool *)t->data = true; }

void fixture_until(struct fixture *f, const bool *flag) {
        bool late = false;
        uv_timer_t t;
        uv_timer_init(&f->loop, &t);
        t.data = &late;
        const char *slow = getenv("BRIG_TEST_SLOW");
        uv_timer_start(&t, on_late, 120000 * (uint64_t)(slow ? MAX2(strtol(slow, NULL, 10), 1l) : 1), 0);
        while (!*flag && !late)
                uv_run(&f->loop, UV_RUN_ONCE);
        uv_timer_stop(&t);
        uv_close((uv_handle_t *)&t, NULL);
        uv_run(&f->loop, UV_RUN_NOWAIT);
        if (*flag)
                return;
        fprintf(stderr, "an awaited event did not come; sandboxes of brig-%s end with this program\n", instance);
        fixture_kill_spawner(f);
        abort();
}

int fixture_teardown(void **state) {
        struct fixture *f = *state;
        if (!f)
                return -1;
        if (!f->lost) {
                spawner_stop(f->spawner, on_stopped, f);
                fixture_until(f, &f->stopped);
        }
        spawner_free(f->spawner);
        uv_run(&f->loop, UV_RUN_DEFAULT);
        int r = uv_loop_close(&f->loop);
        (void)nftw(f->home, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
        free(f);
        return r;
}

/* ---- sandboxes ---- */

static void on_ready(struct sandbox *s, void *user) { ((struct box *)user)->ready = true; }
static void on_failed(struct sandbox *s, const char *step, const struct error *e, void *user) {
        struct box *b = user;
        b->failed = true;
        snprintf(b->step, sizeof b->step, "%s", step);
        b->error = *e;
}
static void on_limit(struct sandbox *s, enum limit_kind kind, void *user) { ((struct box *)user)->limit[kind] = true; }
static void on_gone(struct sandbox *s, const struct sandbox_end *end, void *user) {
        struct box *b = user;
        b->gone = true;
        b->end = *end;
        b->sandbox = NULL;
}
const struct sandbox_callbacks box_callbacks = { on_ready, on_failed, on_limit, on_gone };

struct sandbox_spec box_spec(void) {
        struct sandbox_spec s = { .id = "test", .profile = PROFILE_SCORE, .image = IMAGE_HOST };
        sandbox_limits_default(&s.limits);
        s.limits.memory_bytes = 256 << 20;
        s.limits.disk_bytes = 64 << 20;
        s.limits.inodes = 10000;
        s.limits.pids = 256;
        return s;
}

void box_create(struct fixture *f, struct box *b, const struct sandbox_spec *spec) {
        struct error e = { 0 };
        *b = (struct box){ .f = f };
        int r = sandbox_create(f->spawner, spec, &box_callbacks, b, &b->sandbox, &e);
        if (r < 0)
                fail_msg("create: %s", e.text);
        while (!b->ready && !b->failed)
                uv_run(&f->loop, UV_RUN_ONCE);
        if (b->failed)
                fail_msg("%s: %s", b->step, b->error.text);
}

void box_destroy(struct box *b) {
        if (b->sandbox)
                sandbox_destroy(b->sandbox);
        fixture_until(b->f, &b->gone);
}

/* ---- execs ---- */

static void on_exited(struct sandbox_exec *x, const struct exec_end *end, void *user) {
        struct run *r = user;
        r->exited = true;
        r->end = *end;
        r->exec = NULL;
}

static const char *const default_env[] = { "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=/root", "LANG=C.UTF-8", NULL };

struct exec_spec run_spec(struct run *r, const char *const *argv) {
        *r = (struct run){ 0 };
        capture_init(&r->out, 65536, 65536, 1 << 30, -1);
        capture_init(&r->err, 65536, 65536, 1 << 30, -1);
        return (struct exec_spec){ .argv = argv, .env = default_env, .cwd = "/", .stdin_fd = -1, .out = &r->out, .err = &r->err };
}

void run_start(struct box *b, struct run *r, const struct exec_spec *spec) {
        struct error e = { 0 };
        if (sandbox_exec(b->sandbox, spec, on_exited, r, &r->exec, &e) < 0)
                fail_msg("exec: %s", e.text);
}

void run_wait(struct box *b, struct run *r) { fixture_until(b->f, &r->exited); }

void run_sh(struct box *b, struct run *r, const char *script) {
        const char *const argv[] = { "sh", "-c", script, NULL };
        const struct exec_spec spec = run_spec(r, argv);
        run_start(b, r, &spec);
        run_wait(b, r);
}

void box_run_direct(struct fixture *f, struct box *b, struct run *r, const struct sandbox_spec *spec, const char *const *argv) {
        struct error e = { 0 };
        *b = (struct box){ .f = f };
        const struct exec_spec x = run_spec(r, argv);
        if (sandbox_create_direct(f->spawner, spec, &box_callbacks, b, &x, on_exited, r, &b->sandbox, &r->exec, &e) < 0)
                fail_msg("create: %s", e.text);
        run_wait(b, r);
}

void run_release(struct run *r) {
        capture_release(&r->out);
        capture_release(&r->err);
}

static const char *text(struct output_capture *c) {
        static struct buf b = BUF_INIT(1 << 20);
        buf_reset(&b);
        capture_text(c, &b);
        while (b.len > 0 && b.data[b.len - 1] == '\n')
                b.data[--b.len] = 0;
        return buf_str(&b);
}
const char *run_out(struct run *r) { return text(&r->out); }
const char *run_err(struct run *r) { return text(&r->err); }
