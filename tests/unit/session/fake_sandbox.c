#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fs.h"
#include "fake_sandbox.h"
#include "sandbox/layers.h"
#include "session/session_internal.h"

struct fake fake;

struct sandbox {
        struct sandbox *next;
        char id[SESSION_ID_SIZE];
        struct sandbox_callbacks cb;
        void *user;
        bool destroyed;
        struct sandbox_exec *execs;
        void (*ask)(struct sandbox *s, int r, void *user);     /* a freeze or thaw under way */
        void *ask_user;
        int ask_r;
};

/* ---- the clock: linked with --wrap=now_ns ---- */

static _Atomic uint64_t forward_ns;
uint64_t __real_now_ns(void);
uint64_t __wrap_now_ns(void);
uint64_t __wrap_now_ns(void) { return __real_now_ns() + forward_ns; }
void fake_forward(uint64_t ms) { forward_ns += ms * NS_PER_MS; }

/* ---- sandbox.h ---- */

int sandbox_create(struct spawner *sp, const struct sandbox_spec *spec, const struct sandbox_callbacks *cb, void *user, struct sandbox **ret, struct error *e) {
        struct sandbox *s = calloc(1, sizeof *s);
        assert_non_null(s);
        *s = (struct sandbox){ .next = fake.sandboxes, .cb = *cb, .user = user };
        snprintf(s->id, sizeof s->id, "%s", spec->id);
        fake.sandboxes = s;
        *ret = s;
        return 0;
}

void sandbox_destroy(struct sandbox *s) { s->destroyed = true; }

static void join(char *to, size_t size, const char *const *words) {
        to[0] = 0;
        for (size_t at = 0; *words && at < size; words++)
                at += (size_t)snprintf(to + at, size - at, "%s%s", at ? " " : "", *words);
}

int sandbox_exec(struct sandbox *s, const struct exec_spec *spec, void (*exited)(struct sandbox_exec *x, const struct exec_end *end, void *user),
                 void *user, struct sandbox_exec **ret, struct error *e) {
        if (fake.exec_error)
                return error_set(e, fake.exec_error, "fake");
        struct sandbox_exec *x = calloc(1, sizeof *x);
        assert_non_null(x);
        *x = (struct sandbox_exec){
                .next = s->execs, .sandbox = s, .uid = spec->uid, .gid = spec->gid, .timeout_ms = spec->timeout_ms, .out = spec->out, .err = spec->err,
                .output = spec->output, .writable = spec->writable, .exited = exited, .user = user, .room = SIZE_MAX,
        };
        join(x->argv, sizeof x->argv, spec->argv);
        snprintf(x->cwd, sizeof x->cwd, "%s", spec->cwd);
        s->execs = x;
        if (ret)
                *ret = x;
        return 0;
}

int exec_kill(struct sandbox_exec *x) {
        x->killed = true;
        return 0;
}

int exec_signal(struct sandbox_exec *x, int sig) {
        x->signal = sig;
        return 0;
}

void exec_hold(struct sandbox_exec *x, bool hold) { x->held = hold; }
void exec_drain(struct sandbox_exec *x) { }
void exec_close_input(struct sandbox_exec *x) { x->input_closed = true; }
int exec_tty_resize(struct sandbox_exec *x, uint16_t rows, uint16_t cols) { return 0; }

ssize_t exec_write(struct sandbox_exec *x, const void *p, size_t n) {
        size_t take = MIN2(n, x->room), keep = MIN2(take, sizeof x->input);
        x->room -= x->room == SIZE_MAX ? 0 : take;
        memcpy(x->input, (const char *)p + take - keep, keep);
        x->input_len = keep;
        return (ssize_t)take;
}

static int ask(struct sandbox *s, int r, void (*done)(struct sandbox *s, int r, void *user), void *user) {
        assert_null(s->ask);
        s->ask = done;
        s->ask_user = user;
        s->ask_r = r;
        return 0;
}

int sandbox_freeze(struct sandbox *s, void (*done)(struct sandbox *s, int r, void *user), void *user) {
        fake.freezes++;
        return ask(s, fake.freeze_error, done, user);
}

int sandbox_thaw(struct sandbox *s, void (*done)(struct sandbox *s, int r, void *user), void *user) {
        fake.thaws++;
        return ask(s, 0, done, user);
}

/* ---- what the rest of the store would call ---- */

int sandbox_kill_all(struct sandbox *s, void (*done)(struct sandbox *s, void *user), void *user) { return -ENOSYS; }
int sandbox_kill_others(struct sandbox *s, struct sandbox_exec *spare, void (*done)(struct sandbox *s, int r, void *user), void *user) { return -ENOSYS; }
struct egress_net *sandbox_egress(struct sandbox *s) { return NULL; }
const char *spawner_image_digest(const struct spawner *sp) { return "d1"; }
int mirrors_make(struct spawner *sp, const char *name, layer_done done, void *user) { return -ENOSYS; }
int mirrors_remove(struct spawner *sp, const char *name, layer_done done, void *user) { return -ENOSYS; }
int layers_publish(struct spawner *sp, const struct layer_manifest *m, layer_published done, void *user) { return -ENOSYS; }
int layers_open(struct spawner *sp, const char *id, layer_done done, void *user) { return -ENOSYS; }
int layers_close(struct spawner *sp, const char *id) { return -ENOSYS; }
int layers_remove(struct spawner *sp, const char *id, layer_done done, void *user) { return -ENOSYS; }

static layer_done listed;
static void *listed_user;
int layers_list(struct spawner *sp, void (*each)(const struct layer_manifest *m, void *user), layer_done done, void *user) {
        listed = done;
        listed_user = user;
        return 0;
}

/* ---- events ---- */

struct sandbox *fake_sandbox(const char *session) {
        for (struct sandbox *s = fake.sandboxes; s; s = s->next)
                if (strcmp(s->id, session) == 0)
                        return s;
        return NULL;
}

const char *fake_sandbox_id(const struct sandbox *s) { return s->id; }

static void take_out(struct sandbox_exec *x) {
        struct sandbox_exec **at = &x->sandbox->execs;
        while (*at && *at != x)
                at = &(*at)->next;
        assert_ptr_equal(*at, x);
        *at = x->next;
}

static void end_exec(struct sandbox_exec *x, const struct exec_end *end) {
        take_out(x);
        x->exited(x, end, x->user);
        free(x);
}

void fake_exit(struct sandbox_exec *x, int status) { end_exec(x, &(struct exec_end){ .started = true, .status = status }); }

void fake_not_started(struct sandbox_exec *x, int r, const char *why) {
        struct exec_end end = { 0 };
        error_say(&end.error, r, "%s", why);
        end_exec(x, &end);
}

void fake_output(struct sandbox_exec *x, int stream, const char *text) {
        struct output_capture *c = stream == 2 ? x->err : x->out;
        if (c)
                capture_feed(c, text, strlen(text));
        if (x->output)
                x->output(x, stream, text, strlen(text), x->user);
}

void fake_ready(struct sandbox *s) {
        if (!s)
                fail_msg("it has no sandbox");
        else
                s->cb.ready(s, s->user);
}

void fake_limit(struct sandbox *s, enum limit_kind kind) { s->cb.limit(s, kind, s->user); }

void fake_failed(struct sandbox *s, const char *step, int r) {
        struct error e;
        error_set(&e, r, "fake");
        s->cb.failed(s, step, &e, s->user);
        s->destroyed = true;
}

void fake_broken(struct sandbox *s) { s->destroyed = true; }

struct sandbox_exec *fake_exec(void) {
        for (struct sandbox *s = fake.sandboxes; s; s = s->next)
                if (s->execs)
                        return s->execs;
        fail_msg("no command runs");
        abort();
}

size_t fake_execs(void) {
        size_t n = 0;
        for (struct sandbox *s = fake.sandboxes; s; s = s->next)
                for (struct sandbox_exec *x = s->execs; x; x = x->next)
                        n++;
        return n;
}

/* One thing that was asked for and has not been told. */
static bool tell_one(void) {
        static const struct sandbox_end end;
        for (struct sandbox **at = &fake.sandboxes, *s; (s = *at); at = &s->next) {
                if (s->ask) {
                        void (*done)(struct sandbox *, int, void *) = s->ask;
                        s->ask = NULL;
                        done(s, s->destroyed ? -ESHUTDOWN : s->ask_r, s->ask_user);
                        return true;
                }
                for (struct sandbox_exec *x = s->execs; x; x = x->next)
                        if (x->killed || s->destroyed) {
                                end_exec(x, &(struct exec_end){ .started = true, .status = SIGKILL, .sandbox_ended = s->destroyed });
                                return true;
                        }
                if (s->destroyed) {
                        *at = s->next;
                        s->cb.gone(s, &end, s->user);
                        free(s);
                        return true;
                }
        }
        if (!listed)
                return false;
        layer_done done = listed;
        listed = NULL;
        done(0, NULL, listed_user);
        return true;
}

void fake_turn(void) {
        while (tell_one())
                ;
        uv_run(&fake.loop, UV_RUN_NOWAIT);
        while (tell_one())
                ;
}

void fake_until(const bool *flag) {
        for (;;) {
                while (tell_one())
                        ;
                if (*flag)
                        return;
                uv_run(&fake.loop, UV_RUN_ONCE);
        }
}

/* ---- the fixture ---- */

static void open_sessions(void) {
        struct error e = { 0 };
        if (ledger_open(&fake.loop, &(struct ledger_config){ .home = fake.home }, &fake.ledger, &e) < 0)
                fail_msg("%s", e.text);
        fake.cfg.loop = &fake.loop;
        fake.cfg.ledger = fake.ledger;
        fake.cfg.runs_dirfd = fake.runs_dirfd;
        if (sessions_open(&fake.cfg, &fake.ss, &e) < 0)
                fail_msg("%s", e.text);
}

int fake_setup(void **state) {
        alarm(100);                        /* what is waited for and never comes ends the program */
        fake = (struct fake){ .cfg = { .live_max = 4, .output_max = 65536, .exec_timeout_ms = 60000 } };
        snprintf(fake.home, sizeof fake.home, "/dev/shm/brig-session-XXXXXX");         /* memory: no test is about the disk */
        assert_non_null(mkdtemp(fake.home));
        char runs[80];
        snprintf(runs, sizeof runs, "%s/runs", fake.home);
        assert_int_equal(mkdir(runs, 0700), 0);
        fake.runs_dirfd = open(runs, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(fake.runs_dirfd >= 0);
        assert_int_equal(uv_loop_init(&fake.loop), 0);
        open_sessions();
        return 0;
}

static void on_drained(void *user) { *(bool *)user = true; }

static void close_sessions(void) {
        bool drained = false;
        sessions_drain(fake.ss, 0, on_drained, &drained);
        fake_until(&drained);
        sessions_free(fake.ss);
        ledger_close(fake.ledger);
        uv_run(&fake.loop, UV_RUN_DEFAULT);
}

void fake_reopen(void) {
        close_sessions();
        open_sessions();
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw) { return remove(path); }

int fake_teardown(void **state) {
        close_sessions();
        assert_int_equal(uv_loop_close(&fake.loop), 0);
        fake.runs_dirfd = fd_close(fake.runs_dirfd);
        nftw(fake.home, remove_one, 8, FTW_DEPTH | FTW_PHYS);
        alarm(0);
        return 0;
}

/* ---- sessions ---- */

struct session_spec fake_spec(void) {
        struct session_spec spec;
        assert_int_equal(session_spec_init(fake.ss, &spec), 0);
        return spec;
}

struct creation { bool done; int r; char id[SESSION_ID_SIZE]; };

static void on_created(int r, const char *id, const struct error *e, void *user) {
        struct creation *c = user;
        c->r = r;
        if (id)
                snprintf(c->id, sizeof c->id, "%s", id);
        c->done = true;
}

static struct creation last;

int fake_create_error(struct session_spec spec) {
        last = (struct creation){ 0 };
        session_create(fake.ss, &spec, on_created, &last);
        fake_until(&last.done);
        return last.r;
}

const char *fake_create(struct session_spec spec) {
        assert_int_equal(fake_create_error(spec), 0);
        return last.id;
}

const char *fake_create_ready(struct session_spec spec) {
        const char *id = fake_create(spec);
        fake_ready(fake_sandbox(id));
        return id;
}

enum session_state fake_state(const char *id) {
        struct session_view v;
        if (session_get(fake.ss, id, &v) < 0)
                return SESSION_STATE_MAX;
        enum session_state st = v.state;
        session_view_release(&v);
        return st;
}

void fake_wait_record(const char *id) {
        struct ledger_row row;
        for (bool finished = false; !finished || session_any(fake.ss, id);) {
                while (tell_one())
                        ;
                uv_run(&fake.loop, UV_RUN_NOWAIT);
                assert_int_equal(ledger_get(fake.ledger, id, &row), 0);
                finished = row.state == JOB_FINISHED;
                ledger_row_release(&row);
        }
}
