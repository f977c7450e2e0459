/* The end of execs and sandboxes: nothing is left, nothing is held back. */
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fs.h"
#include "sandbox/fixture.h"

/* What a sandbox could leave on the machine. */
struct census { int processes, mounts, groups; };

static int count_tree(int dirfd, const char *name, int depth) {
        int n = 0, fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *d = fd < 0 ? NULL : fdopendir(fd);
        for (struct dirent *de; d && depth < 8 && (de = readdir(d));) {
                if (de->d_type == DT_DIR && de->d_name[0] != '.')
                        n += 1 + count_tree(fd, de->d_name, depth + 1);
        }
        if (d)
                closedir(d);
        return n;
}

static int count_instance_groups(const char *instance, const char *path, int depth) {
        int n = 0, fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *d = fd < 0 ? NULL : fdopendir(fd);
        for (struct dirent *de; d && depth < 6 && (de = readdir(d));) {
                char below[1024];
                if (de->d_type != DT_DIR || de->d_name[0] == '.')
                        continue;
                snprintf(below, sizeof below, "%s/%s", path, de->d_name);
                if (strstr(de->d_name, instance))
                        n += count_tree(AT_FDCWD, below, 0);
                else
                        n += count_instance_groups(instance, below, depth + 1);
        }
        if (d)
                closedir(d);
        return n;
}

/* The spawner's own, made ahead: they have not run anything. */
static bool is_blank(const char *pid) {
        char path[300];
        _cleanup_buf_ struct buf b = BUF_INIT(64);
        snprintf(path, sizeof path, "/proc/%s/comm", pid);
        return fs_read_file(AT_FDCWD, path, &b) == 0 && strcmp(buf_str(&b), "brig-blank\n") == 0;
}

/* Processes in groups of this instance's sandboxes. */
static int count_processes(void) {
        int n = 0;
        DIR *d = opendir("/proc");
        for (struct dirent *de; (de = readdir(d));) {
                char path[300];
                _cleanup_buf_ struct buf b = BUF_INIT(65536);
                if (de->d_name[0] < '0' || de->d_name[0] > '9')
                        continue;
                snprintf(path, sizeof path, "/proc/%s/cgroup", de->d_name);
                if (fs_read_file(AT_FDCWD, path, &b) == 0 && strstr(buf_str(&b), "brig-t") && strstr(buf_str(&b), fixture_instance()) && !is_blank(de->d_name))
                        n++;
        }
        closedir(d);
        return n;
}

static int count_mounts(void) {
        int n = 0;
        _cleanup_buf_ struct buf b = BUF_INIT(4 << 20);
        fs_read_file(AT_FDCWD, "/proc/self/mountinfo", &b);
        for (const char *p = buf_str(&b); *p; p++)
                n += *p == '\n';
        return n;
}

static struct census census(void) {
        return (struct census){ count_processes(), count_mounts(), count_instance_groups(fixture_instance(), "/sys/fs/cgroup", 0) };
}

/* The spawner goes on by itself: it makes blanks, which have their name a moment after their birth, and fills its pools. So a look
 * that does not please is followed by another; what a sandbox leaves behind stays. */
static void until_nothing_is_left(struct fixture *f, const struct census *before) {
        for (uint64_t end = now_ms() + 30000;;) {
                const struct census now = census();
                /* The pool of fresh groups was perhaps not full before. */
                if (now.processes == before->processes && now.mounts == before->mounts && now.groups <= before->groups + 16)
                        return;
                if (now_ms() > end)
                        fail_msg("left: %d processes, %d mounts, %d groups; before: %d, %d, %d", now.processes, now.mounts, now.groups,
                                 before->processes, before->mounts, before->groups);
                uv_run(&f->loop, UV_RUN_NOWAIT);
                sched_yield();
        }
}

static void a_daemon_that_holds_stdout_does_not_hold_the_exec_back(void **state) {
        struct box b;
        struct run r;
        const struct sandbox_spec spec = box_spec();
        box_create(*state, &b, &spec);
        run_sh(&b, &r, "(setsid sh -c 'sleep 600 & sleep 600' &) ; echo out");      /* waits less than 600 s */
        assert_string_equal(run_out(&r), "out");
        run_release(&r);
        /* It is still there: only destroy ends it. */
        run_sh(&b, &r, "while [ $(cat /proc/[0-9]*/comm | grep -c sleep) -ne 2 ]; do :; done");
        run_release(&r);
        box_destroy(&b);
}

static void a_writer_left_behind_does_not_keep_the_reader_busy(void **state) {
        struct box b;
        struct run r;
        const struct sandbox_spec spec = box_spec();
        box_create(*state, &b, &spec);
        run_sh(&b, &r, "(setsid yes &); exit 4");
        assert_int_equal(WEXITSTATUS(r.end.status), 4);
        run_release(&r);
        box_destroy(&b);
}

static void all_that_was_written_before_the_end_is_kept(void **state) {
        struct box b;
        struct run r;
        const struct sandbox_spec spec = box_spec();
        box_create(*state, &b, &spec);
        run_sh(&b, &r, "i=0; while [ $i -lt 2000 ]; do echo 0123456789012345678901234567890123456789; i=$((i+1)); done; (sleep 600 &)");
        assert_int_equal(r.out.total, 2000 * 41);
        run_release(&r);
        box_destroy(&b);
}

static void a_timeout_kills_what_the_exec_started_and_nothing_else(void **state) {
        struct box b;
        struct run slow, other, r;
        const struct sandbox_spec spec = box_spec();
        box_create(*state, &b, &spec);
        const char *const keep[] = { "sleep", "601", NULL }, *const argv[] = { "sh", "-c", "echo begun; (setsid sleep 602 &); trap '' TERM; sleep 603", NULL };
        const struct exec_spec xo = run_spec(&other, keep);
        run_start(&b, &other, &xo);
        struct exec_spec x = run_spec(&slow, argv);
        x.timeout_ms = 2000 * fixture_slowness();       /* by then it has begun, on a busy machine too */
        run_start(&b, &slow, &x);
        run_wait(&b, &slow);
        assert_true(slow.end.timed_out);
        assert_true(WIFSIGNALED(slow.end.status) && WTERMSIG(slow.end.status) == SIGKILL);
        assert_string_equal(run_out(&slow), "begun");
        run_sh(&b, &r, "for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $f | grep -o '^sleep 60.'; done");
        assert_string_equal(run_out(&r), "sleep 601");
        assert_false(other.exited);
        box_destroy(&b);
        assert_true(other.exited && other.end.sandbox_ended);
        run_release(&r);
        run_release(&slow);
        run_release(&other);
}

static void on_killed(struct sandbox *s, void *user) { ((struct box *)user)->killed = true; }

static void kill_all_leaves_only_init(void **state) {
        struct box b;
        struct run r, r2;
        const struct sandbox_spec spec = box_spec();
        box_create(*state, &b, &spec);
        const char *const argv[] = { "sh", "-c", "for i in 1 2 3 4 5; do (setsid sh -c 'while :; do sleep 0.01; done' &); done; echo go; while :; do (sleep 600 &) ; sleep 0.01; done", NULL };
        const struct exec_spec x = run_spec(&r, argv);
        run_start(&b, &r, &x);
        run_sh(&b, &r2, "while [ $(cat /proc/[0-9]*/comm 2>/dev/null | grep -c sleep) -lt 10 ]; do :; done");
        run_release(&r2);
        assert_int_equal(sandbox_kill_all(b.sandbox, on_killed, &b), 0);
        fixture_until(b.f, &b.killed);
        assert_true(r.exited);
        run_sh(&b, &r2, "cat /proc/[0-9]*/comm 2>/dev/null > /tmp/names; grep -cx sleep /tmp/names; grep -cx sh /tmp/names");
        assert_string_equal(run_out(&r2), "0\n1");
        run_release(&r);
        run_release(&r2);
        box_destroy(&b);
}

static void a_signal_reaches_the_main_process(void **state) {
        struct box b;
        struct run r;
        const struct sandbox_spec spec = box_spec();
        box_create(*state, &b, &spec);
        const char *const argv[] = { "sleep", "600", NULL };
        const struct exec_spec x = run_spec(&r, argv);
        run_start(&b, &r, &x);
        assert_int_equal(exec_signal(r.exec, SIGUSR1), 0);
        run_wait(&b, &r);
        assert_int_equal(WTERMSIG(r.end.status), SIGUSR1);
        run_release(&r);
        box_destroy(&b);
}

static void destroy_at_any_moment_leaves_nothing(void **state) {
        struct fixture *f = *state;
        struct box b;
        struct run r;
        const struct sandbox_spec spec = box_spec();
        box_create(f, &b, &spec);
        box_destroy(&b);
        const struct census before = census();
        for (int i = 0; i < 12; i++) {
                struct error e;
                b = (struct box){ .f = f };
                assert_int_equal(sandbox_create(f->spawner, &spec, &box_callbacks, &b, &b.sandbox, &e), 0);
                if (i > 0)                             /* else before it even is ready */
                        fixture_until(f, &b.ready);
                if (i > 1) {
                        const char *const argv[] = { "sh", "-c", "(setsid sleep 600 &); mkfifo /tmp/x; cat /tmp/x", NULL };
                        const struct exec_spec x = run_spec(&r, argv);
                        run_start(&b, &r, &x);
                        for (int turns = 0; turns < (i - 2) * 20; turns++)     /* ever later in its life */
                                uv_run(&f->loop, UV_RUN_NOWAIT);
                }
                box_destroy(&b);
                if (i > 1) {
                        assert_true(r.exited);
                        run_release(&r);
                }
                until_nothing_is_left(f, &before);
        }
}

static void the_facts_of_the_end_are_there(void **state) {
        struct box b;
        struct run r;
        const struct sandbox_spec spec = box_spec();
        box_create(*state, &b, &spec);
        run_sh(&b, &r, "head -c 10000000 /dev/zero > /tmp/ten");
        run_release(&r);
        box_destroy(&b);
        assert_true(b.end.usage.wall_ms >= 0 && b.end.usage.wall_ms < 30000);
        assert_true(b.end.usage.disk_bytes >= 10000000 && b.end.usage.disk_bytes < 12000000);
        assert_true(b.end.usage.memory_peak_bytes >= 10000000);
        for (int i = 0; i < LIMIT_KIND_MAX; i++)
                assert_false(b.end.hit[i]);
}

/* Fails by time when "gone" waits for the event alone. */
static void an_unmount_that_nobody_tells_is_found(void **state) {
        struct fixture *f;
        setenv("BRIG_FORCE_MISSING", "unmount-events", 1);
        assert_int_equal(fixture_setup((void **)&f), 0);
        unsetenv("BRIG_FORCE_MISSING");
        struct box b;
        const struct sandbox_spec spec = box_spec();
        box_create(f, &b, &spec);
        box_destroy(&b);
        fixture_teardown((void **)&f);
}

static void the_end_of_the_spawner_is_told_and_is_the_end_of_all(void **state) {
        struct fixture *f;
        assert_int_equal(fixture_setup((void **)&f), 0);
        struct box b;
        struct run r;
        const struct sandbox_spec spec = box_spec();
        box_create(f, &b, &spec);
        const char *const argv[] = { "sh", "-c", "echo up; sleep 600", NULL };
        const struct exec_spec x = run_spec(&r, argv);
        run_start(&b, &r, &x);
        while (r.out.total == 0)
                uv_run(&f->loop, UV_RUN_ONCE);
        assert_true(count_processes() > 0);
        fixture_kill_spawner(f);
        fixture_until(f, &f->lost);
        assert_true(b.gone && r.exited && r.end.sandbox_ended);
        for (uint64_t end = now_ms() + 30000; count_processes() > 0; sched_yield())    /* the kernel is at it */
                assert_true(now_ms() < end);
        run_release(&r);
        fixture_teardown((void **)&f);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_daemon_that_holds_stdout_does_not_hold_the_exec_back),
                cmocka_unit_test(a_writer_left_behind_does_not_keep_the_reader_busy),
                cmocka_unit_test(all_that_was_written_before_the_end_is_kept),
                cmocka_unit_test(a_timeout_kills_what_the_exec_started_and_nothing_else),
                cmocka_unit_test(kill_all_leaves_only_init),
                cmocka_unit_test(a_signal_reaches_the_main_process),
                cmocka_unit_test(destroy_at_any_moment_leaves_nothing),
                cmocka_unit_test(the_facts_of_the_end_are_there),
                cmocka_unit_test(an_unmount_that_nobody_tells_is_found),
                cmocka_unit_test(the_end_of_the_spawner_is_told_and_is_the_end_of_all),
        };
        return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
