/* What a sandbox costs: create -> /bin/true -> confirmed gone, through the same calls as the daemon's, against bwrap and against a
 * bare posix_spawn; and an exec in a standing sandbox against the bare one. Shuffled, paired rounds; medians; one JSON object a
 * line. Usage: sandbox BRIG_PROGRAM [ROUNDS] */
#include <math.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/hash.h"
#include "sandbox/sandbox.h"

enum contender { BARE, BWRAP, DIRECT, INIT, EXEC, CONTENDER_MAX };
static const char *const names[CONTENDER_MAX] = { "bare", "bwrap", "sandbox", "sandbox with init", "exec" };

static uv_loop_t loop;
static struct spawner *spawner;
static struct sandbox *standing;
static bool done;

static void on_ready(struct sandbox *s, void *user) { done = done || user == NULL; }
static void on_failed(struct sandbox *s, const char *step, const struct error *e, void *user) {
        fprintf(stderr, "%s: %s\n", step, e->text);
        exit(1);
}
static void on_gone(struct sandbox *s, const struct sandbox_end *end, void *user) { done = true; }
static void on_stopped(void *user) { done = true; }
static const struct sandbox_callbacks callbacks = { on_ready, on_failed, NULL, on_gone };

static void await(void) {
        while (!done)
                uv_run(&loop, UV_RUN_ONCE);
        done = false;
}

static const char *const argv_true[] = { "/bin/true", NULL }, *const env[] = { "PATH=/usr/bin:/bin", NULL };

static void check(const struct exec_end *end) {
        if (!end->started || end->status != 0) {
                fprintf(stderr, "/bin/true failed: %s, status %d\n", end->error.text, end->status);
                exit(1);
        }
}
static void on_exited_destroy(struct sandbox_exec *x, const struct exec_end *end, void *user) {
        check(end);
        sandbox_destroy(*(struct sandbox **)user);
}
static void on_exited_check(struct sandbox_exec *x, const struct exec_end *end, void *user) { check(end); }
static void on_exited(struct sandbox_exec *x, const struct exec_end *end, void *user) {
        check(end);
        done = true;
}

static struct sandbox_spec spec(void) {
        struct sandbox_spec s = { .id = "bench", .profile = PROFILE_SCORE, .image = IMAGE_HOST };
        sandbox_limits_default(&s.limits);
        return s;
}

static const struct exec_spec exec_true = { .argv = argv_true, .env = env, .cwd = "/", .stdin_fd = -1 };

static struct sandbox *opened;
static void run_direct(void) {
        struct sandbox_spec s = spec();
        struct error e;
        if (sandbox_create_direct(spawner, &s, &callbacks, &opened, &exec_true, on_exited_check, NULL, &opened, NULL, &e) < 0)
                exit(1);
        await();
}

static void on_ready_exec(struct sandbox *s, void *user) {
        struct error e;
        if (sandbox_exec(s, &exec_true, on_exited_destroy, user, NULL, &e) < 0)
                exit(1);
}
static void run_init(void) {
        static const struct sandbox_callbacks with_exec = { on_ready_exec, on_failed, NULL, on_gone };
        struct sandbox_spec s = spec();
        struct error e;
        if (sandbox_create(spawner, &s, &with_exec, &opened, &opened, &e) < 0)
                exit(1);
        await();
}

static void run_exec(void) {
        struct error e;
        if (sandbox_exec(standing, &exec_true, on_exited, NULL, NULL, &e) < 0)
                exit(1);
        await();
}

static void run_program(const char *const *argv) {
        pid_t pid;
        int status;
        if (posix_spawn(&pid, argv[0], NULL, NULL, (char *const *)argv, (char *const *)env) != 0 || waitpid(pid, &status, 0) < 0 || status != 0) {
                fprintf(stderr, "%s failed\n", argv[0]);
                exit(1);
        }
}
static void run_bare(void) { run_program(argv_true); }
static void run_bwrap(void) {
        static const char *const argv[] = { "/usr/bin/bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "/bin/true", NULL };
        run_program(argv);
}

static void (*const runs[CONTENDER_MAX])(void) = { run_bare, run_bwrap, run_direct, run_init, run_exec };

static int by_value(const void *a, const void *b) {
        double x = *(const double *)a, y = *(const double *)b;
        return (x > y) - (x < y);
}
static double quantile(const double *v, size_t n, double q) {
        double *copy = malloc(n * sizeof *copy);
        memcpy(copy, v, n * sizeof *copy);
        qsort(copy, n, sizeof *copy, by_value);
        double m = copy[(size_t)((double)n * q)];
        free(copy);
        return m;
}
static double median(const double *v, size_t n) { return quantile(v, n, 0.5); }

static double *times[CONTENDER_MAX];

static void measure(size_t rounds) {
        for (size_t round = 0; round < rounds; round++) {
                enum contender order[CONTENDER_MAX] = { BARE, BWRAP, DIRECT, INIT, EXEC };
                for (int i = CONTENDER_MAX - 1; i > 0; i--) {
                        unsigned char dice;
                        random_bytes(&dice, 1);
                        int j = dice % (i + 1);
                        enum contender swap = order[i];
                        order[i] = order[j];
                        order[j] = swap;
                }
                for (int i = 0; i < CONTENDER_MAX; i++) {
                        /* A rest, alike before each: what one leaves to the kernel to do, and the spawner's refilling of its
                         * pools (begun after 6 ms of idleness, a part of 1 ms each 6 ms), is not charged to the next. */
                        struct timespec rest = { 0, 30 * 1000 * 1000 };
                        nanosleep(&rest, NULL);
                        uint64_t start = now_ns();
                        runs[order[i]]();
                        times[order[i]][round] = (double)(now_ns() - start) / 1e6;
                }
        }
}

static void report(const char *bar, enum contender a, enum contender b, double limit, size_t n) {
        double *ratio = malloc(n * sizeof *ratio);
        for (size_t i = 0; i < n; i++)
                ratio[i] = times[a][i] / times[b][i];
        printf("{\"bar\": \"%s\", \"value\": %.3f, \"limit\": %.2f, \"better\": \"lower\", \"unit\": \"ratio\", "
               "\"detail\": \"p50 of %zu paired runs, 30 ms apart, from a pool of 4 sandboxes made ahead while idle; %s %.2f ms (p10 %.2f), %s %.2f ms (p10 %.2f)\"}\n",
               bar, median(ratio, n), limit, n, names[a], median(times[a], n), quantile(times[a], n, 0.1), names[b], median(times[b], n),
               quantile(times[b], n, 0.1));
        free(ratio);
}

int main(int argc, char **argv) {
        long rounds = argc > 2 ? strtol(argv[2], NULL, 10) : 200;
        if (argc < 2 || rounds < 1 || rounds > 100000)
                return 64;
        char home[] = "/tmp/brig-bench-XXXXXX";
        const struct spawner_config cfg = { .home = mkdtemp(home), .id_base = 0x40000000u, .instance = "bench", .program = argv[1] };
        struct error e;
        uv_loop_init(&loop);
        if (!cfg.home || spawner_start(&loop, &cfg, &spawner, &e) < 0) {
                fprintf(stderr, "%s\n", e.text);
                return 1;
        }
        for (int i = 0; i < CONTENDER_MAX; i++)
                times[i] = calloc((size_t)rounds, sizeof(double));
        const struct sandbox_spec s = spec();
        if (sandbox_create(spawner, &s, &callbacks, NULL, &standing, &e) < 0)
                return 1;
        await();
        measure(MIN2((size_t)rounds, (size_t)10));     /* warm up */
        measure((size_t)rounds);
        size_t n = (size_t)rounds;
        report("sandbox: create, /bin/true, confirmed gone, against bwrap", DIRECT, BWRAP, 0.4, n);
        report("sandbox: create, /bin/true, confirmed gone, against posix_spawn", DIRECT, BARE, 2, n);
        report("sandbox with init: the same, against posix_spawn", INIT, BARE, 3, n);
        report("exec of /bin/true in a standing sandbox, against posix_spawn", EXEC, BARE, 1.5, n);
        sandbox_destroy(standing);
        await();
        spawner_stop(spawner, on_stopped, NULL);
        await();
        return 0;
}
