/* Idle sandboxes of sessions: what each holds in memory, whether making one more gets slower, whether commands do.
 * Run by idle.py. Usage: bench-idle BRIG N. Prints JSON lines. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fs.h"
#include "sandbox/sandbox.h"

#define FEW 10
#define EXECS 400

static uv_loop_t loop;
static struct spawner *spawner;
static bool done;

static void on_ready(struct sandbox *s, void *user) { done = true; }
static void on_failed(struct sandbox *s, const char *step, const struct error *e, void *user) {
        fprintf(stderr, "%s: %s\n", step, e->text);
        exit(1);
}
static unsigned n_gone;
static void on_gone(struct sandbox *s, const struct sandbox_end *end, void *user) { n_gone++; }
static void on_stopped(void *user) { done = true; }
static const struct sandbox_callbacks callbacks = { on_ready, on_failed, NULL, on_gone };

static void await(void) {
        while (!done)
                uv_run(&loop, UV_RUN_ONCE);
        done = false;
}

static void on_exited(struct sandbox_exec *x, const struct exec_end *end, void *user) {
        if (!end->started || end->status != 0) {
                fprintf(stderr, "/bin/true failed: %s, status %d\n", end->error.text, end->status);
                exit(1);
        }
        done = true;
}

static const char *const argv_true[] = { "/bin/true", NULL }, *const env[] = { "PATH=/usr/bin:/bin", NULL };
static const struct exec_spec exec_true = { .argv = argv_true, .env = env, .cwd = "/", .stdin_fd = -1 };

static double create(struct sandbox **ret, enum sandbox_upper upper) {
        struct sandbox_spec s = { .id = "bench", .profile = PROFILE_SESSION, .image = IMAGE_HOST, .upper = upper };
        struct error e;
        sandbox_limits_default(&s.limits);
        uint64_t start = now_ns();
        if (sandbox_create(spawner, &s, &callbacks, NULL, ret, &e) < 0) {
                fprintf(stderr, "%s\n", e.text);
                exit(1);
        }
        await();
        return (double)(now_ns() - start) / 1e6;
}

static double run(struct sandbox *s) {
        struct error e;
        uint64_t start = now_ns();
        if (sandbox_exec(s, &exec_true, on_exited, NULL, NULL, &e) < 0)
                exit(1);
        await();
        return (double)(now_ns() - start) / 1e6;
}

static void rest(unsigned ms) {
        struct timespec pause = { ms / 1000, (long)(ms % 1000) * 1000000 };
        nanosleep(&pause, NULL);
}

static long pss_kib(pid_t pid) {
        char path[64], line[256];
        long kib = 0;
        snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)pid);
        FILE *f = fopen(path, "re");
        while (f && fgets(line, sizeof line, f))
                if (sscanf(line, "Pss: %ld kB", &kib) == 1)
                        break;
        if (f)
                fclose(f);
        return kib;
}

static pid_t parent_of(pid_t pid) {
        char path[64], text[512];
        int parent = 0;
        snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
        FILE *f = fopen(path, "re");
        if (f && fgets(text, sizeof text, f)) {
                const char *at = strrchr(text, ')');
                if (at)
                        sscanf(at + 2, "%*c %d", &parent);
        }
        if (f)
                fclose(f);
        return parent;
}

/* This program in the daemon's place, the spawner, and all that it is the parent of: sweeper, inits, launchers. */
static long resident_kib(void) {
        long sum = pss_kib(getpid());
        pid_t root = spawner_pid(spawner);
        DIR *d = opendir("/proc");
        for (struct dirent *de; d && (de = readdir(d));) {
                pid_t pid = (pid_t)strtol(de->d_name, NULL, 10);
                if (pid > 0 && (pid == root || parent_of(pid) == root))
                        sum += pss_kib(pid);
        }
        if (d)
                closedir(d);
        return sum;
}

static long available_kib(void) {
        char line[256];
        long kib = 0;
        FILE *f = fopen("/proc/meminfo", "re");
        while (f && fgets(line, sizeof line, f))
                if (sscanf(line, "MemAvailable: %ld kB", &kib) == 1)
                        break;
        if (f)
                fclose(f);
        return kib;
}

static int by_value(const void *a, const void *b) {
        double x = *(const double *)a, y = *(const double *)b;
        return (x > y) - (x < y);
}
static double quantile(double *v, size_t n, double q) {
        qsort(v, n, sizeof *v, by_value);
        return v[(size_t)((double)(n - 1) * q)];
}

struct speed { double p50, p99; };
static struct speed exec_speed(struct sandbox **s, size_t n) {
        static double t[EXECS];
        for (size_t i = 0; i < n && i < FEW; i++)
                run(s[i * n / FEW]);
        rest(500);             /* launchers come */
        for (size_t i = 0; i < EXECS; i++) {
                /* The same ten sandboxes, however many stand beside them. */
                t[i] = run(s[i % FEW * n / FEW]);
                struct timespec pause = { 0, 3000000 };
                nanosleep(&pause, NULL);
        }
        return (struct speed){ quantile(t, EXECS, 0.5), quantile(t, EXECS, 0.99) };
}

static void bar(const char *name, double value, double limit, const char *unit, const char *detail) {
        printf("{\"bar\": \"%s\", \"value\": %.3f, \"limit\": %.2f, \"better\": \"lower\", \"unit\": \"%s\", \"detail\": \"%s\"}\n", name, value, limit, unit, detail);
}

static void measure(size_t n, enum sandbox_upper upper, const char *kind) {
        struct sandbox **s = calloc(n, sizeof *s);
        double *t = calloc(n, sizeof *t), first, last;
        char name[128], detail[256];
        for (size_t i = 0; i < FEW; i++)
                t[i] = create(&s[i], upper);
        const struct speed few = exec_speed(s, FEW);
        long before = resident_kib(), free_before = available_kib();
        for (size_t i = FEW; i < n; i++)
                t[i] = create(&s[i], upper);
        rest(500);
        long after = resident_kib(), free_after = available_kib();
        const struct speed many = exec_speed(s, n);
        size_t part = MIN2(n / 2, (size_t)100);
        first = quantile(t, part, 0.5);
        last = quantile(t + n - part, part, 0.5);
        double each = (double)(after - before) / (double)(n - FEW);
        snprintf(name, sizeof name, "%zu idle sandboxes (%s): resident memory each", n, kind);
        snprintf(detail, sizeof detail, "daemon, spawner, inits: %ld MiB in all; with what the kernel holds for each %.0f KiB", after / 1024,
                 (double)(free_before - free_after) / (double)(n - FEW));
        bar(name, each, 400, "KiB", detail);
        snprintf(name, sizeof name, "%zu idle sandboxes (%s): exec p99 against that at %d", n, kind, FEW);
        snprintf(detail, sizeof detail, "p99 %.2f ms against %.2f ms, p50 %.2f ms against %.2f ms", many.p99, few.p99, many.p50, few.p50);
        bar(name, many.p99 / few.p99, 2, "ratio", detail);
        snprintf(name, sizeof name, "%zu idle sandboxes (%s): creation of the last against the first", n, kind);
        snprintf(detail, sizeof detail, "p50 %.2f ms of the last %zu, %.2f ms of the first", last, part, first);
        bar(name, last / first, 1.5, "ratio", detail);
        n_gone = 0;
        uint64_t start = now_ns();
        for (size_t i = 0; i < n; i++)
                sandbox_destroy(s[i]);
        while (n_gone < n)
                uv_run(&loop, UV_RUN_ONCE);
        fprintf(stderr, "%zu removed in %.0f ms\n", n, (double)(now_ns() - start) / 1e6);
        free(s);
        free(t);
}

int main(int argc, char **argv) {
        long n = argc > 2 ? strtol(argv[2], NULL, 10) : 1000;
        if (argc < 2 || n < 2 * FEW || n > 8000)
                return 64;
        char home[] = "/var/tmp/brig-bench-XXXXXX";
        const struct spawner_config cfg = { .home = mkdtemp(home), .id_base = 0x40000000u, .instance = "benchidle", .program = argv[1] };
        struct error e;
        uv_loop_init(&loop);
        if (!cfg.home || spawner_start(&loop, &cfg, &spawner, &e) < 0) {
                fprintf(stderr, "%s\n", e.text);
                return 1;
        }
        measure((size_t)n, UPPER_TMPFS, "in memory");
        measure((size_t)n, UPPER_DISK, "on disk");
        spawner_stop(spawner, on_stopped, NULL);
        await();
        return 0;
}
