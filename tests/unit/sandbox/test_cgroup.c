/* Needs root and writable cgroups; never skips. Every child is waited for by its own end, none by time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "sandbox/cgroup_backend.h"
#include "sandbox/facilities.h"

#define MIB (1024ull * 1024)

static struct cgroup_manager *m;
static char instance[24];

static int open_manager(void **state) {
        struct error e;
        facilities_forget();
        snprintf(instance, sizeof instance, "test%d", (int)getpid());
        if (cgroup_manager_open(instance, &m, &e) < 0) {
                fprintf(stderr, "%s\n", e.text);
                return -1;
        }
        return 0;
}

static int close_manager(void **state) {
        cgroup_manager_close(m);
        unsetenv("BRIG_FORCE_MISSING");
        struct error e;
        return cgroup_sweep(instance, &e) == 0 ? 0 : -1;   /* closing must leave nothing to sweep */
}

/* A set whose tasks were killed: they may need longer to die than one call waits. */
static void destroy_killed(struct cgroup *c) {
        int r = cgroup_destroy(c);
        for (uint64_t end = now_ms() + 60000; r == -EBUSY && now_ms() < end;)
                r = cgroup_destroy(c);
        assert_int_equal(r, 0);
}

static struct cgroup *take(uint64_t memory, uint64_t pids) {
        struct cgroup *c = NULL;
        struct cgroup_limits l = { .memory_bytes = memory, .pids = pids };
        assert_int_equal(cgroup_take(m, &c, NULL), 0);
        assert_int_equal(cgroup_set_limits(c, &l, NULL), 0);
        return c;
}

/* Forks a child that joins the set, then runs fn and exits with what it returns. */
static pid_t child(struct cgroup *c, int sub, int (*fn)(void)) {
        pid_t pid = fork();
        if (pid != 0)
                return pid;
        if (cgroup_attach(c, sub, 0, false) < 0)
                _exit(99);
        _exit(fn());
}

static int wait_for(pid_t pid) {
        int status = -1;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        return status;
}

NORETURN static int wait_forever(void) {
        for (;;)
                pause();
}

static int eat_memory(void) {
        for (int i = 0; i < 256; i++) {
                char *p = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                if (p == MAP_FAILED)
                        return 1;
                memset(p, 1, MIB);
        }
        return 0;
}

static int fork_twice(void) {
        pid_t a = fork();
        if (a == 0)
                wait_forever();
        pid_t b = fork();
        if (b == 0)
                _exit(0);
        int refused = b < 0 && errno == EAGAIN;
        kill(a, SIGKILL);
        waitpid(a, NULL, 0);
        return a > 0 && refused ? 0 : 1;
}

static void memory_limit_kills_and_is_counted(void **state) {
        struct cgroup *c = take(32 * MIB, 100);
        uint32_t events = 0;
        struct pollfd p = { .fd = cgroup_oom_fd(c, &events) };
        p.events = (short)events;
        pid_t pid = child(c, -1, eat_memory);
        assert_int_equal(poll(&p, 1, 10000), 1);
        int status = wait_for(pid);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        struct cgroup_events ev;
        cgroup_read_events(c, &ev);
        assert_true(ev.oom > 0);
        assert_true(ev.oom_kill > 0);
        assert_int_equal(ev.pids_max, 0);
        struct cgroup_usage u;
        cgroup_read_usage(c, &u);
        assert_true(u.memory_peak_bytes > (int64_t)(30 * MIB) && u.memory_peak_bytes <= (int64_t)(32 * MIB));
        assert_int_equal(cgroup_destroy(c), 0);
}

/* The operator's limit, or the machine's memory, ran out: that is not what the sandbox's own limit says. */
static void a_limit_above_the_set_is_not_its_own(void **state) {
        struct cgroup *c = take(512 * MIB, 100);
        bool hybrid = cgroup_manager_kind(m) == CGROUP_HYBRID;
        const char *file = hybrid ? "memory.limit_in_bytes" : "memory.max";
        assert_int_equal(cg_write(m->dir[hybrid ? CG_MEMORY : CG_GROUP], NULL, file, "%d", (int)(32 * MIB)), 0);
        assert_true(WIFSIGNALED(wait_for(child(c, -1, eat_memory))));
        struct cgroup_events ev;
        cgroup_read_events(c, &ev);
        assert_true(ev.oom_kill > 0);
        assert_int_equal(ev.oom, 0);
        assert_int_equal(cgroup_destroy(c), 0);
}

static void tmpfs_sizes_are_added_to_the_memory_limit(void **state) {
        struct cgroup *c = NULL;
        struct cgroup_limits l = { .memory_bytes = 64 * MIB, .tmpfs_bytes = 256 * MIB, .pids = 10 };
        assert_int_equal(cgroup_take(m, &c, NULL), 0);
        assert_int_equal(cgroup_set_limits(c, &l, NULL), 0);
        assert_int_equal(wait_for(child(c, -1, eat_memory)), 0);   /* 256 MiB and what a fork costs */
        assert_int_equal(cgroup_destroy(c), 0);
}

static void a_limit_that_is_not_reached_counts_nothing(void **state) {
        struct cgroup *c = take(512 * MIB, 100);
        assert_int_equal(wait_for(child(c, -1, eat_memory)), 0);
        struct cgroup_events ev;
        cgroup_read_events(c, &ev);
        assert_int_equal(ev.oom, 0);
        assert_int_equal(ev.oom_kill, 0);
        assert_int_equal(ev.pids_max, 0);
        assert_int_equal(cgroup_destroy(c), 0);
}

static void pids_limit_refuses_and_is_counted(void **state) {
        struct cgroup *c = take(256 * MIB, 2);
        assert_int_equal(wait_for(child(c, -1, fork_twice)), 0);
        struct cgroup_events ev;
        cgroup_read_events(c, &ev);
        assert_int_equal(ev.pids_max, 1);
        assert_int_equal(ev.oom, 0);
        struct cgroup_usage u;
        cgroup_read_usage(c, &u);
        assert_true(u.pids_peak == 2 || u.pids_peak == -1);
        assert_int_equal(cgroup_destroy(c), 0);
}

static int64_t limit_file(struct cgroup *c, int hierarchy, const char *v1, const char *v2) {
        bool hybrid = cgroup_manager_kind(m) == CGROUP_HYBRID;
        return cg_read_number(m->dir[hybrid ? hierarchy : CG_GROUP], c->name, hybrid ? v1 : v2, NULL);
}

static void swap_is_refused_where_it_is_accounted(void **state) {
        struct cgroup *c = take(64 * MIB, 10);
        if (!facility_ok(FACILITY_SWAP_LIMIT))
                assert_int_equal(limit_file(c, CG_MEMORY, "memory.memsw.limit_in_bytes", "memory.swap.max"), -1);
        else if (cgroup_manager_kind(m) == CGROUP_HYBRID)
                assert_int_equal(limit_file(c, CG_MEMORY, "memory.memsw.limit_in_bytes", ""), 64 * MIB);
        else
                assert_int_equal(limit_file(c, CG_MEMORY, "", "memory.swap.max"), 0);
        assert_int_equal(cgroup_destroy(c), 0);
}

static void limits_can_be_raised_and_lowered(void **state) {
        struct cgroup *c = take(64 * MIB, 10);
        struct cgroup_limits up = { .memory_bytes = 128 * MIB, .pids = 20 }, down = { .memory_bytes = 32 * MIB, .pids = 5 };
        assert_int_equal(cgroup_set_limits(c, &up, NULL), 0);
        assert_int_equal(limit_file(c, CG_MEMORY, "memory.limit_in_bytes", "memory.max"), 128 * MIB);
        assert_int_equal(cgroup_set_limits(c, &down, NULL), 0);
        assert_int_equal(limit_file(c, CG_MEMORY, "memory.limit_in_bytes", "memory.max"), 32 * MIB);
        assert_int_equal(limit_file(c, CG_PIDS, "pids.max", "pids.max"), 5);
        assert_int_equal(cgroup_destroy(c), 0);
}

static void cpu_quota_is_set(void **state) {
        struct cgroup *c = take(64 * MIB, 10);
        struct cgroup_limits l = { .memory_bytes = 64 * MIB, .pids = 10, .cpu_milli = 1500 };
        assert_int_equal(cgroup_set_limits(c, &l, NULL), 0);
        assert_int_equal(limit_file(c, CG_CPU, "cpu.cfs_quota_us", "cpu.max"), 150000);
        assert_int_equal(wait_for(child(c, -1, fork_twice)) & 0xff, 0);
        assert_int_equal(cgroup_destroy(c), 0);
}

static int64_t cpu_ns(void) {
        struct timespec t;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
        return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static int spin(void) {
        for (int64_t end = cpu_ns() + 20000000; cpu_ns() < end;)
                ;
        return 0;
}

static void cpu_time_is_counted(void **state) {
        struct cgroup *c = take(64 * MIB, 10);
        assert_int_equal(wait_for(child(c, -1, spin)), 0);
        struct cgroup_usage u;
        cgroup_read_usage(c, &u);
        assert_true(u.cpu_us >= 15000);
        assert_int_equal(cgroup_destroy(c), 0);
}

NORETURN static int bomb(void) {
        for (int i = 0; i < 200; i++)
                if (fork() == 0) {
                        setsid();
                        if (fork() == 0)
                                wait_forever();
                }
        wait_forever();
}

/* Kills a tree of daemons that nobody waits for, and is sure that none is left. */
static void kill_reaches_everything_and_destroy_confirms(void **state) {
        struct cgroup *c = take(512 * MIB, 300);
        int sub = -1;
        assert_int_equal(cgroup_sub_make(c, "x0", &sub), 0);
        pid_t pid = child(c, sub, bomb);
        struct cgroup_events ev = { 0 };
        while (ev.pids_max <= 0)   /* the bomb has filled the set */
                cgroup_read_events(c, &ev);
        assert_int_equal(cgroup_kill(c), 0);
        int status = wait_for(pid);
        assert_true(WIFSIGNALED(status));
        fd_close(sub);
        int dir = m->dir[CG_GROUP];
        char name[CG_NAME_MAX];
        memcpy(name, c->name, sizeof name);
        destroy_killed(c);
        assert_int_equal(faccessat(dir, name, F_OK, 0), -1);
}

static void destroying_a_set_with_living_tasks_is_busy_and_loses_nothing(void **state) {
        struct cgroup *c = take(64 * MIB, 10);
        pid_t pid = child(c, -1, wait_forever);
        while (cg_read_number(m->dir[CG_GROUP], c->name, "cgroup.events", "populated") != 1)
                sched_yield();
        assert_int_equal(cgroup_destroy(c), -EBUSY);
        assert_int_equal(cgroup_kill(c), 0);
        wait_for(pid);
        assert_int_equal(cgroup_destroy(c), 0);
}

static void killing_a_sub_group_spares_the_others(void **state) {
        struct cgroup *c = take(64 * MIB, 10);
        int a = -1, b = -1;
        assert_int_equal(cgroup_sub_make(c, "x0", &a), 0);
        assert_int_equal(cgroup_sub_make(c, "x1", &b), 0);
        pid_t in_a = child(c, a, wait_forever), in_b = child(c, b, wait_forever);
        while (cgroup_sub_empty(a) || cgroup_sub_empty(b))
                sched_yield();
        assert_int_equal(cgroup_sub_remove(c, "x0"), -EBUSY);
        assert_int_equal(cgroup_sub_kill(a), 0);
        assert_true(WIFSIGNALED(wait_for(in_a)));
        assert_int_equal(waitpid(in_b, NULL, WNOHANG), 0);
        assert_int_equal(cgroup_sub_empty(a), 1);
        assert_int_equal(cgroup_sub_empty(b), 0);
        assert_int_equal(cgroup_sub_remove(c, "x0"), 0);
        cgroup_kill(c);
        wait_for(in_b);
        fd_close(a);
        fd_close(b);
        assert_int_equal(cgroup_destroy(c), 0);
}

static long clone_into(int dir) {
        struct clone_args args = { .flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (uint64_t)dir };
        long pid = syscall(SYS_clone3, &args, sizeof args);
        if (pid == 0)
                _exit(0);
        return pid;
}

static void the_pool_gives_fresh_sets_that_children_survive_in(void **state) {
        assert_int_equal(cgroup_pool_fill(m, 3, 100), 0);
        char last[CG_NAME_MAX] = "";
        for (int i = 0; i < 5; i++) {   /* more than the pool holds */
                struct cgroup *c = take(64 * MIB, 10);
                assert_string_not_equal(c->name, last);
                memcpy(last, c->name, sizeof last);
                int sub = -1;
                assert_int_equal(cgroup_sub_make(c, "init", &sub), 0);
                if (facility_ok(FACILITY_CLONE_INTO_CGROUP))
                        assert_int_equal(wait_for((pid_t)clone_into(sub)), 0);
                cgroup_kill(c);   /* poisoned: must never come back */
                fd_close(sub);
                assert_int_equal(cgroup_destroy(c), 0);
        }
}

static void a_child_cloned_in_gets_the_limits_by_attaching_itself(void **state) {
        if (!facility_ok(FACILITY_CLONE_INTO_CGROUP))
                return;
        struct cgroup *c = take(32 * MIB, 10);
        int sub = -1;
        assert_int_equal(cgroup_sub_make(c, "x0", &sub), 0);
        struct clone_args args = { .flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (uint64_t)sub };
        long pid = syscall(SYS_clone3, &args, sizeof args);
        if (pid == 0)
                _exit(cgroup_attach(c, sub, 0, true) < 0 ? 99 : eat_memory());
        assert_true(WIFSIGNALED(wait_for((pid_t)pid)));
        struct cgroup_events ev;
        cgroup_read_events(c, &ev);
        assert_true(ev.oom > 0);
        fd_close(sub);
        assert_int_equal(cgroup_destroy(c), 0);
}

static void the_pool_applies_the_last_limits_in_advance(void **state) {
        struct cgroup *c = take(48 * MIB, 33);
        assert_int_equal(cgroup_destroy(c), 0);
        assert_int_equal(cgroup_pool_fill(m, 1, 1), 0);
        assert_int_equal(limit_file(m->pool, CG_MEMORY, "memory.limit_in_bytes", "memory.max"), 48 * MIB);
        assert_int_equal(limit_file(m->pool, CG_PIDS, "pids.max", "pids.max"), 33);
}

static void freezing_stops_and_thawing_goes_on(void **state) {
        struct cgroup *c = take(64 * MIB, 10);
        pid_t pid = child(c, -1, wait_forever);
        while (cg_read_number(m->dir[CG_GROUP], c->name, "cgroup.events", "populated") != 1)
                sched_yield();
        assert_int_equal(cgroup_freeze(c, -1, true), 0);
        while (cg_read_number(m->dir[CG_GROUP], c->name, "cgroup.events", "frozen") != 1)
                sched_yield();
        assert_int_equal(cgroup_freeze(c, -1, false), 0);
        assert_int_equal(cg_read_number(m->dir[CG_GROUP], c->name, "cgroup.events", "frozen"), 0);
        cgroup_kill(c);
        wait_for(pid);
        assert_int_equal(cgroup_destroy(c), 0);
}

/* A process that dies with live sandboxes leaves them to its successor. */
static void the_sweep_removes_what_a_dead_manager_left_and_nothing_else(void **state) {
        struct cgroup *mine = take(64 * MIB, 10);
        char other[40], path[400];
        snprintf(other, sizeof other, "%sb", instance);
        pid_t pid = fork();
        if (pid == 0) {
                struct cgroup_manager *theirs;
                struct cgroup *c;
                int sub;
                if (cgroup_manager_open(other, &theirs, NULL) < 0 || cgroup_take(theirs, &c, NULL) < 0 || cgroup_sub_make(c, "x0", &sub) < 0)
                        _exit(1);
                pid_t in_sub = child(c, sub, wait_forever), in_set = child(c, -1, wait_forever);
                if (in_sub < 0 || in_set < 0)
                        _exit(1);
                while (cgroup_sub_empty(sub) != 0 || cg_read_number(theirs->dir[CG_GROUP], c->name, "cgroup.procs", NULL) != in_set)
                        sched_yield();
                _exit(0);
        }
        assert_int_equal(wait_for(pid), 0);
        struct cg_mounts mounts;
        assert_int_equal(cg_find_mounts(&mounts), 0);
        struct error e = { 0 };
        assert_int_equal(cgroup_sweep(other, &e), 1);
        for (int h = 0; h < CG_HIERARCHY_MAX; h++) {
                snprintf(path, sizeof path, "%s/brig-%s", mounts.path[h], other);
                assert_int_equal(access(path, F_OK), -1);
        }
        assert_int_equal(faccessat(m->dir[CG_GROUP], mine->name, F_OK, 0), 0);
        assert_int_equal(cgroup_destroy(mine), 0);
}

static void without_cgroup_kill_a_fork_bomb_dies_all_the_same(void **state) {
        cgroup_manager_close(m);
        setenv("BRIG_FORCE_MISSING", "cgroup-kill", 1);
        assert_int_equal(open_manager(state), 0);
        assert_false(m->cgroup_kill);
        kill_reaches_everything_and_destroy_confirms(state);
}

static void bad_names_are_refused(void **state) {
        struct cgroup_manager *none = NULL;
        assert_int_equal(cgroup_manager_open("../x", &none, NULL), -EINVAL);
        assert_int_equal(cgroup_manager_open("", &none, NULL), -EINVAL);
        assert_int_equal(cgroup_manager_open("0123456789012345678901234567890123", &none, NULL), -EINVAL);
        assert_null(none);
        struct cgroup *c = take(64 * MIB, 10);
        int fd = -1;
        assert_int_equal(cgroup_sub_make(c, "..", &fd), -EINVAL);
        assert_int_equal(cgroup_sub_make(c, "a/b/c", &fd), -EINVAL);
        assert_int_equal(cgroup_sub_make(c, "a/..", &fd), -EINVAL);
        assert_int_equal(cgroup_sub_make(c, "/a", &fd), -EINVAL);
        assert_int_equal(cgroup_sub_make(c, "a/b", &fd), -ENOENT);
        assert_int_equal(cgroup_destroy(c), 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, open_manager, close_manager)
int main(void) {
        const struct CMUnitTest tests[] = {
                T(memory_limit_kills_and_is_counted),
                T(a_limit_above_the_set_is_not_its_own),
                T(tmpfs_sizes_are_added_to_the_memory_limit),
                T(a_limit_that_is_not_reached_counts_nothing),
                T(pids_limit_refuses_and_is_counted),
                T(swap_is_refused_where_it_is_accounted),
                T(limits_can_be_raised_and_lowered),
                T(cpu_quota_is_set),
                T(cpu_time_is_counted),
                T(kill_reaches_everything_and_destroy_confirms),
                T(destroying_a_set_with_living_tasks_is_busy_and_loses_nothing),
                T(killing_a_sub_group_spares_the_others),
                T(the_pool_gives_fresh_sets_that_children_survive_in),
                T(a_child_cloned_in_gets_the_limits_by_attaching_itself),
                T(the_pool_applies_the_last_limits_in_advance),
                T(freezing_stops_and_thawing_goes_on),
                T(the_sweep_removes_what_a_dead_manager_left_and_nothing_else),
                T(without_cgroup_kill_a_fork_bomb_dies_all_the_same),
                T(bad_names_are_refused),
        };
        return cmocka_run_group_tests_name("sandbox/cgroup", tests, NULL, NULL);
}
