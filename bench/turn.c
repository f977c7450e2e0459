/* Turns without HTTP: what an action, a turn on a warm sandbox and one from nothing cost, against `python3 -c pass` in the same sandbox.
 * Run by turn.py. Usage: bench-turn BRIG ROUNDS. Prints JSON lines. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/macros.h"
#include "rlm/interpreter.h"

#define ROUNDS_MAX 1000
#define ACTIONS 20             /* of a round */

static uv_loop_t loop;
static struct spawner *spawner;
static bool done, gone;

static void await(bool *flag) {
        while (!*flag)
                uv_run(&loop, UV_RUN_ONCE);
        *flag = false;
}

NORETURN static void give_up(const char *what, const char *why) {
        fprintf(stderr, "%s: %s\n", what, why);
        exit(1);
}

static double ms_since(uint64_t start) { return (double)(now_ns() - start) / 1e6; }

static void rest(unsigned ms) {
        uint64_t until = now_ns() + ms * NS_PER_MS;
        struct timespec pause = { 0, 1000000 };
        while (now_ns() < until) {
                uv_run(&loop, UV_RUN_NOWAIT);
                nanosleep(&pause, NULL);
        }
}

/* ---- sandboxes and commands ---- */

static void on_sandbox(struct sandbox *s, void *user) { done = true; }
static void on_failed(struct sandbox *s, const char *step, const struct error *e, void *user) { give_up(step, e->text); }
static void on_gone(struct sandbox *s, const struct sandbox_end *end, void *user) { gone = true; }
static void on_stopped(void *user) { done = true; }
static const struct sandbox_callbacks callbacks = { on_sandbox, on_failed, NULL, on_gone };

static struct sandbox *create(void) {
        struct sandbox_spec spec = { .id = "bench", .profile = PROFILE_RLM, .image = IMAGE_HOST, .upper = UPPER_TMPFS };
        struct sandbox *s;
        struct error e;
        sandbox_limits_default(&spec.limits);
        spec.limits.disk_bytes = 1ull << 30;
        if (sandbox_create(spawner, &spec, &callbacks, NULL, &s, &e) < 0)
                give_up("create", e.text);
        await(&done);
        return s;
}

static void on_exited(struct sandbox_exec *x, const struct exec_end *end, void *user) {
        if (!end->started || end->status != 0)
                give_up("python3 -c pass", end->error.text);
        done = true;
}

static double cold(struct sandbox *s) {
        static const char *const argv[] = { "python3", "-c", "pass", NULL }, *const env[] = { "PATH=/usr/bin:/bin", NULL };
        static const struct exec_spec x = { .argv = argv, .env = env, .cwd = "/", .stdin_fd = -1, .uid = TURN_UID, .gid = TURN_UID };
        struct error e;
        uint64_t start = now_ns();
        if (sandbox_exec(s, &x, on_exited, NULL, NULL, &e) < 0)
                give_up("exec", e.text);
        await(&done);
        return ms_since(start);
}

/* ---- turns ---- */

static void on_ready(struct interpreter *in, void *user) { done = true; }
static void on_lost(struct interpreter *in, const struct error *e, void *user) { give_up("the interpreter ended", e->text); }
static void on_begun(struct turn_process *t, void *user) { done = true; }
static void on_done(struct turn_process *t, uint64_t action, const struct turn_reply *r, void *user) { done = true; }
static void on_ended(struct turn_process *t, const struct turn_end *end, void *user) {
        if (end->reason != TURN_END_KILLED)
                give_up("the turn ended", end->error.text);
        done = true;
}

static struct interpreter *start_python(struct sandbox *s) {
        static const struct interpreter_callbacks cb = { on_ready, on_lost };
        const struct interpreter_spec spec = { .cache = IMAGE_HOST };
        struct interpreter *in;
        struct error e;
        if (interpreter_start(s, &spec, &cb, NULL, &in, &e) < 0)
                give_up("start python", e.text);
        await(&done);
        return in;
}

static struct turn_process *begin(struct interpreter *in) {
        static const struct turn_callbacks cb = { .begun = on_begun, .done = on_done, .ended = on_ended };
        static const char setup[] = "{\"tools\":[{\"name\":\"search\",\"description\":\"Finds.\",\"parameters\":{\"properties\":{\"query\":{\"type\":\"string\"},"
                                    "\"n\":{\"type\":\"integer\",\"default\":10}},\"required\":[\"query\"]}}],\"outputs\":[{\"name\":\"answer\"}]}";
        const struct turn_spec spec = { .setup = setup, .setup_len = sizeof setup - 1, .secret = "bench", .broker = "unix:@none", .cwd = "/tmp" };
        struct turn_process *t;
        struct error e;
        if (turn_process_start(in, &spec, &cb, NULL, &t, &e) < 0)
                give_up("begin", e.text);
        await(&done);
        return t;
}

static double action(struct turn_process *t) {
        struct error e;
        uint64_t start = now_ns();
        if (turn_process_execute(t, 1, "x = 1", 5, NULL, 0, &e) < 0)
                give_up("execute", e.text);
        await(&done);
        return ms_since(start);
}

static void end(struct turn_process *t) {
        turn_process_kill(t);
        await(&done);
}

static double t_cold[ROUNDS_MAX], t_start[ROUNDS_MAX], t_next[ROUNDS_MAX], t_nothing[ROUNDS_MAX], t_first[ROUNDS_MAX], t_answer[ROUNDS_MAX], t_action[ROUNDS_MAX * ACTIONS];
static size_t n_answers;

static double from_nothing(struct sandbox **ret_s, struct interpreter **ret_in) {
        uint64_t start = now_ns();
        *ret_s = create();
        *ret_in = start_python(*ret_s);
        struct turn_process *t = begin(*ret_in);
        double ms = ms_since(start);
        t_answer[n_answers++] = ms + action(t);
        end(t);
        return ms;
}

/* ---- figures ---- */


static int by_value(const void *a, const void *b) {
        double x = *(const double *)a, y = *(const double *)b;
        return (x > y) - (x < y);
}
static double quantile(double *v, size_t n, double q) {
        qsort(v, n, sizeof *v, by_value);
        return v[(size_t)((double)(n - 1) * q)];
}

static void bar(const char *name, double value, double limit, const char *unit, const char *detail) {
        printf("{\"bar\": \"%s\", \"value\": %.3f, \"limit\": %.2f, \"better\": \"lower\", \"unit\": \"%s\", \"detail\": \"%s\"}\n", name, value, limit, unit, detail);
}

static void round_of(size_t i, struct sandbox *s, struct interpreter *in) {
        struct sandbox *fresh;
        struct interpreter *python;
        rest(60);
        t_cold[i] = cold(s);
        rest(60);
        uint64_t start = now_ns();
        struct turn_process *t = begin(in);
        t_start[i] = ms_since(start);
        t_first[i] = action(t);
        for (size_t k = 0; k < ACTIONS; k++)
                t_action[i * ACTIONS + k] = action(t);
        rest(60);
        end(t);
        start = now_ns();
        t = begin(in);                 /* at once, behind the confirmed end of the one before */
        t_next[i] = ms_since(start);
        end(t);
        rest(60);
        t_nothing[i] = from_nothing(&fresh, &python);
        interpreter_free(python);
        sandbox_destroy(fresh);
        await(&gone);
}

static void report(size_t n) {
        char detail[256];
        double base = quantile(t_cold, n, 0.5), warm = quantile(t_start, n, 0.5), next = quantile(t_next, n, 0.5), nothing = quantile(t_nothing, n, 0.5);
        double act = quantile(t_action, n * ACTIONS, 0.5);
        snprintf(detail, sizeof detail, "p50 %.3f ms, p99 %.3f ms; the first of a turn %.3f ms; %zu actions", act, quantile(t_action, n * ACTIONS, 0.99),
                 quantile(t_first, n, 0.5), n * ACTIONS);
        bar("action x = 1, without HTTP: p50", act, 1, "ms", detail);
        snprintf(detail, sizeof detail, "p50 %.2f ms against %.2f ms, %zu pairs", warm, base, n);
        bar("turn start on a warm sandbox against python3 -c pass in it", warm / base, 0.15, "ratio", detail);
        snprintf(detail, sizeof detail, "p50 %.2f ms against %.2f ms, %zu pairs", next, base, n);
        bar("turn start right behind another's end against python3 -c pass", next / base, 0.15, "ratio", detail);
        snprintf(detail, sizeof detail, "p50 %.1f ms against %.1f ms: sandbox, interpreter, turn; to the first action's end %.1f ms; p10 %.1f ms against %.1f ms; %zu pairs", nothing, base,
                 quantile(t_answer, n, 0.5), quantile(t_nothing, n, 0.1), quantile(t_cold, n, 0.1), n);
        bar("turn start from nothing against python3 -c pass", nothing / base, 2, "ratio", detail);
}

int main(int argc, char **argv) {
        long n = argc > 2 ? strtol(argv[2], NULL, 10) : 100;
        if (argc < 2 || n < 1 || n > ROUNDS_MAX)
                return 64;
        char home[] = "/var/tmp/brig-bench-XXXXXX";
        const struct spawner_config cfg = { .home = mkdtemp(home), .id_base = 0x40000000u, .instance = "benchturn", .program = argv[1] };
        struct error e;
        uv_loop_init(&loop);
        if (spawner_start(&loop, &cfg, &spawner, &e) < 0)
                give_up("start", e.text);
        struct sandbox *s = create();
        struct interpreter *in = start_python(s);
        rest(500);
        for (size_t i = 0; i < (size_t)n; i++)
                round_of(i, s, in);
        report((size_t)n);
        interpreter_free(in);
        sandbox_destroy(s);
        await(&gone);
        spawner_stop(spawner, on_stopped, NULL);
        await(&done);
        spawner_free(spawner);
        return 0;
}
