/* Commands started by the launcher inside: as those that join from outside, and out of reach until they execute. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "base/fs.h"
#include "sandbox/seccomp.h"
#include "sandbox/streamed.h"

/* The launcher comes when the spawner is idle, after the first command. */
static void with_launcher(struct fixture *f, struct box *b, const struct sandbox_spec *spec) {
        struct run r;
        box_create(f, b, spec);
        for (int i = 0; i < 2000; i++) {
                run_sh(b, &r, "grep -l launcher /proc/[0-9]*/comm 2>/dev/null | tr -dc 0-9; sleep 0.02");
                bool there = run_out(&r)[0] != 0;
                run_release(&r);
                if (there)
                        return;
        }
        fail_msg("no launcher came");
}

static const char facts[] =
        "grep -E '^(Uid|Gid|Groups|CapInh|CapPrm|CapEff|CapBnd|CapAmb|NoNewPrivs|Seccomp):' /proc/self/status; ulimit -n; umask; ls -l /proc/self/fd | wc -l; "
        "for n in cgroup ipc mnt net pid user uts; do readlink /proc/self/ns/$n; done; cut -d: -f2- /proc/self/cgroup | sed 's/x[0-9]*$//'; cut -d' ' -f5-7 /proc/self/stat | wc -w; "
        "grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status; cat /proc/self/oom_score_adj; env | sort; pwd";

static void both_ways_make_the_same_process(void **state) {
        struct box b;
        struct run r;
        char first[8192];
        struct sandbox_spec spec = session_spec();
        spec.cap_drop = 1;
        box_create(*state, &b, &spec);
        run_sh(&b, &r, facts);
        snprintf(first, sizeof first, "%s", run_out(&r));
        run_release(&r);
        box_destroy(&b);
        with_launcher(*state, &b, &spec);
        run_sh(&b, &r, "true");
        run_release(&r);
        run_sh(&b, &r, facts);
        /* Namespaces have other numbers in another sandbox. */
        const char *a = first, *c = run_out(&r);
        for (int line = 1; *a || *c; line++) {
                size_t n = strcspn(a, "\n"), m = strcspn(c, "\n");
                const char *bracket = memchr(a, '[', n);
                if (!bracket && (n != m || memcmp(a, c, n) != 0))
                        fail_msg("line %d: joined '%.*s', launched '%.*s'", line, (int)n, a, (int)m, c);
                a += n + (a[n] != 0);
                c += m + (c[m] != 0);
        }
        run_release(&r);
        box_destroy(&b);
}

static void the_two_filters_are_the_one(void **state) {
        struct error e;
        assert_int_equal(seccomp_prepare(&e), 0);
        static const uint64_t args[][6] = { { 0 }, { 0x10000000 }, { 2, 1, 0 }, { 16, 3, 6 }, { 40, 1 }, { 1, 0x5412 }, { 0x7fffffff, 0x7fffffff } };
        for (int nr = 0; nr < 600; nr++) {
                for (size_t i = 0; i < ARRAY_SIZE(args); i++) {
                        int standard = seccomp_evaluate(seccomp_program(SECCOMP_STANDARD), 0xc000003e, nr, args[i]);
                        int launcher = seccomp_evaluate(seccomp_program(SECCOMP_LAUNCHER), 0xc000003e, nr, args[i]);
                        if (nr == 435 || nr == 308)
                                assert_int_equal(launcher, 0);
                        else
                                assert_int_equal(launcher, standard);
                }
        }
}

static void what_is_launched_may_not_clone_or_join(void **state) {
        struct box b;
        struct run r;
        const struct sandbox_spec spec = session_spec();
        with_launcher(*state, &b, &spec);
        run_sh(&b, &r, "python3 -c \"import ctypes,os\nl=ctypes.CDLL(None,use_errno=True)\nfor n in (435,308,272): l.syscall(n,0x10000000 if n==272 else -1,0); print(ctypes.get_errno())\"");
        assert_string_equal(run_out(&r), "38\n1\n1");
        run_release(&r);
        box_destroy(&b);
}

static void root_inside_cannot_touch_the_launcher(void **state) {
        struct box b;
        struct run r;
        const struct sandbox_spec spec = session_spec();
        with_launcher(*state, &b, &spec);
        run_sh(&b, &r, "L=$(grep -l '^launcher$' /proc/[0-9]*/comm | tr -dc 0-9); "
                       "for s in 9 19 15 11 10 18; do kill -$s $L 2>/dev/null && echo signalled; done; "
                       "cat /proc/$L/mem /proc/$L/maps /proc/$L/environ 2>/dev/null | wc -c; ls /proc/$L/fd 2>/dev/null | wc -l; "
                       "ls /proc/$L/root/ 2>/dev/null; readlink /proc/$L/exe /proc/$L/ns/user; "
                       "echo 1000 >/proc/$L/oom_score_adj 2>/dev/null && echo adjusted; "
                       "prlimit --pid $L --nofile=1 2>/dev/null && echo limited; renice 19 $L >/dev/null 2>&1 && echo reniced; "
                       "python3 -c \"import ctypes,sys;l=ctypes.CDLL(None,use_errno=True);p=int(sys.argv[1]);print(l.ptrace(16,p,0,0),l.ptrace(0x4206,p,0,0),l.syscall(438,l.syscall(434,p,0),0,0))\" $L");
        assert_string_equal(run_out(&r), "0\n0\n-1 -1 -1");
        run_release(&r);
        run_sh(&b, &r, "echo well");
        assert_string_equal(run_out(&r), "well");
        run_release(&r);
        box_destroy(&b);
}

static void init_is_out_of_reach_from_its_first_moment(void **state) {
        struct box b;
        struct run r;
        const struct sandbox_spec spec = session_spec();
        for (int i = 0; i < 10; i++) {
                box_create(*state, &b, &spec);
                run_sh(&b, &r, "cat /proc/1/maps /proc/1/mem /proc/1/environ 2>/dev/null | wc -c; ls /proc/1/fd 2>/dev/null | wc -l; stat -c %u /proc/1/mem");
                assert_string_equal(run_out(&r), "0\n0\n65534");
                run_release(&r);
                box_destroy(&b);
        }
}

static void what_goes_wrong_before_the_program_is_told(void **state) {
        struct box b;
        struct run r;
        const struct sandbox_spec spec = session_spec();
        with_launcher(*state, &b, &spec);
        static const struct { const char *argv0, *cwd; int code; const char *step; } cases[] = {
                { "/no/such", "/", -ENOENT, "execute" }, { "no-such", "/", -ENOENT, "execute" }, { "/etc/passwd", "/", -EACCES, "execute" },
                { "true", "/no/such", -ENOENT, "change to the working directory" },
        };
        for (int i = 0; i < 40; i++) {
                const char *const argv[] = { cases[i % 4].argv0, NULL };
                struct exec_spec x = run_spec(&r, argv);
                x.cwd = cases[i % 4].cwd;
                run_start(&b, &r, &x);
                run_wait(&b, &r);
                assert_false(r.end.started);
                assert_int_equal(r.end.error.code, cases[i % 4].code);
                assert_non_null(strstr(r.end.error.text, cases[i % 4].step));
                run_release(&r);
        }
        box_destroy(&b);
}

static void many_at_once_come_back_each_with_its_own(void **state) {
        struct box b;
        static struct run r[120];
        const struct sandbox_spec spec = session_spec();
        with_launcher(*state, &b, &spec);
        for (size_t i = 0; i < ARRAY_SIZE(r); i++) {
                char text[16];
                snprintf(text, sizeof text, "exit %zu", i);
                const char *const argv[] = { "sh", "-c", text, NULL };
                const struct exec_spec x = run_spec(&r[i], argv);
                run_start(&b, &r[i], &x);
        }
        for (size_t i = 0; i < ARRAY_SIZE(r); i++) {
                run_wait(&b, &r[i]);
                assert_int_equal(WEXITSTATUS(r[i].end.status), i);
                assert_true(r[i].end.rusage.ru_minflt > 0);
                run_release(&r[i]);
        }
        box_destroy(&b);
}

static void large_requests_take_the_long_way(void **state) {
        struct box b;
        struct run r;
        static char big[100001];
        memset(big, 'x', sizeof big - 1);
        const struct sandbox_spec spec = session_spec();
        with_launcher(*state, &b, &spec);
        const char *const argv[] = { "sh", "-c", "echo ${#1}", "sh", big, NULL };
        const struct exec_spec x = run_spec(&r, argv);
        run_start(&b, &r, &x);
        run_wait(&b, &r);
        assert_string_equal(run_out(&r), "100000");
        run_release(&r);
        box_destroy(&b);
}

static void descriptors_arrive_at_any_number(void **state) {
        struct box b;
        struct run r;
        const struct sandbox_spec spec = session_spec();
        with_launcher(*state, &b, &spec);
        int a = fs_memfd("a", "from three\n", 11), c = fs_memfd("c", "from nine\n", 10), d = fs_memfd("d", "from 200\n", 9);
        const struct exec_fd fds[] = { { c, 9 }, { a, 3 }, { d, 200 } };
        const char *const argv[] = { "sh", "-c", "cat <&3; cat <&9; cat /proc/self/fd/200; ls -m /proc/self/fd", NULL };
        struct exec_spec x = run_spec(&r, argv);
        x.fds = fds;
        x.n_fds = 3;
        run_start(&b, &r, &x);
        run_wait(&b, &r);
        assert_string_equal(run_out(&r), "from three\nfrom nine\nfrom 200\n0, 1, 2, 200, 3, 4, 9");
        run_release(&r);
        close(a);
        close(c);
        close(d);
        box_destroy(&b);
}

static void stopping_every_child_stops_nobody_else(void **state) {
        struct box a, b;
        struct run r, slow[40];
        struct streamed s;
        const struct sandbox_spec spec = session_spec();
        with_launcher(*state, &a, &spec);
        with_launcher(*state, &b, &spec);
        /* Stops whatever appears beside it. */
        stream_start(&a, &s, "echo up; while :; do for p in /proc/[0-9]*; do p=${p#/proc/}; [ $p = $$ ] || kill -STOP $p; done; done 2>/dev/null", NULL);
        s.want = 3;
        fixture_until(*state, &s.enough);
        for (size_t i = 0; i < ARRAY_SIZE(slow); i++) {
                const char *const argv[] = { "sleep", "1000", NULL };
                struct exec_spec x = run_spec(&slow[i], argv);
                x.timeout_ms = 400;
                run_start(&a, &slow[i], &x);
        }
        for (int i = 0; i < 10; i++) {
                run_sh(&b, &r, "echo well");
                assert_string_equal(run_out(&r), "well");
                run_release(&r);
        }
        for (size_t i = 0; i < ARRAY_SIZE(slow); i++) {
                run_wait(&a, &slow[i]);
                assert_true(slow[i].end.timed_out);
                run_release(&slow[i]);
        }
        box_destroy(&a);
        box_destroy(&b);
        stream_release(&s);
}

static void no_room_for_one_more_process_is_told(void **state) {
        struct box b;
        struct run r;
        struct streamed s;
        struct sandbox_spec spec = session_spec();
        spec.limits.pids = 40;
        with_launcher(*state, &b, &spec);
        stream_start(&b, &s, "exec python3 -c \"import os,time\nwhile True:\n try:\n  if os.fork()==0: time.sleep(1000)\n except OSError: break\nprint('full',flush=True)\ntime.sleep(1000)\"", NULL);
        s.want = 5;
        fixture_until(*state, &s.enough);
        for (int i = 0; i < 3; i++) {
                const char *const argv[] = { "true", NULL };
                const struct exec_spec x = run_spec(&r, argv);
                run_start(&b, &r, &x);
                run_wait(&b, &r);
                assert_false(r.end.started);
                assert_int_equal(r.end.error.code, -EAGAIN);
                run_release(&r);
        }
        exec_kill(s.run.exec);
        fixture_until(*state, &s.run.exited);
        run_sh(&b, &r, "echo room");
        assert_string_equal(run_out(&r), "room");
        run_release(&r);
        box_destroy(&b);
        stream_release(&s);
}

/* When the process began, in clock ticks, if it is called launcher and the spawner's child. */
static bool launcher_began(const char *pid, pid_t spawner, unsigned long long *ret) {
        char path[300], text[1024];
        int parent;
        snprintf(path, sizeof path, "/proc/%s/stat", pid);
        FILE *f = fopen(path, "re");
        if (!f)
                return false;
        bool is = fgets(text, sizeof text, f) && sscanf(text, "%*d (launcher) %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &parent, ret) == 2;
        fclose(f);
        return is && parent == spawner;
}

/* As the machine's own out-of-memory killer might. The eldest: until they execute, its children have its name and its parent. */
static void kill_launcher(pid_t spawner) {
        unsigned long long began, eldest = ULLONG_MAX;
        pid_t launcher = 0;
        DIR *d = opendir("/proc");
        for (const struct dirent *de; (de = readdir(d));) {
                if (launcher_began(de->d_name, spawner, &began) && began < eldest) {
                        eldest = began;
                        launcher = (pid_t)strtol(de->d_name, NULL, 10);
                }
        }
        closedir(d);
        assert_true(launcher > 0);
        assert_int_equal(kill(launcher, SIGKILL), 0);
}

static void a_dead_launcher_is_missed_by_nobody(void **state) {
        struct fixture *f = *state;
        struct box b;
        struct run r[30];
        const struct sandbox_spec spec = session_spec();
        with_launcher(f, &b, &spec);
        for (size_t i = 0; i < ARRAY_SIZE(r); i++) {
                const char *const argv[] = { "true", NULL };
                const struct exec_spec x = run_spec(&r[i], argv);
                run_start(&b, &r[i], &x);
        }
        kill_launcher(spawner_pid(f->spawner));
        for (size_t i = 0; i < ARRAY_SIZE(r); i++) {
                run_wait(&b, &r[i]);
                /* It ran, or it is told that it did not. */
                assert_true(r[i].end.started ? r[i].end.status == 0 : r[i].end.error.code == -EIO);
                run_release(&r[i]);
        }
        run_sh(&b, &r[0], "echo well");
        assert_string_equal(run_out(&r[0]), "well");
        run_release(&r[0]);
        box_destroy(&b);
}

static void without_launchers_all_works_as_well(void **state) {
        struct fixture *f;
        struct box b;
        struct run r;
        const struct sandbox_spec spec = session_spec();
        setenv("BRIG_FORCE_MISSING", "launcher", 1);
        assert_int_equal(fixture_setup((void **)&f), 0);
        unsetenv("BRIG_FORCE_MISSING");
        box_create(f, &b, &spec);
        for (int i = 0; i < 5; i++) {
                run_sh(&b, &r, "sleep 0.02; cat /proc/[0-9]*/comm");
                assert_null(strstr(run_out(&r), "launcher"));
                run_release(&r);
        }
        box_destroy(&b);
        fixture_teardown((void **)&f);
}

int main(void) {
        signal(SIGPIPE, SIG_IGN);
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(both_ways_make_the_same_process),
                cmocka_unit_test(the_two_filters_are_the_one),
                cmocka_unit_test(what_is_launched_may_not_clone_or_join),
                cmocka_unit_test(root_inside_cannot_touch_the_launcher),
                cmocka_unit_test(init_is_out_of_reach_from_its_first_moment),
                cmocka_unit_test(what_goes_wrong_before_the_program_is_told),
                cmocka_unit_test(many_at_once_come_back_each_with_its_own),
                cmocka_unit_test(large_requests_take_the_long_way),
                cmocka_unit_test(descriptors_arrive_at_any_number),
                cmocka_unit_test(stopping_every_child_stops_nobody_else),
                cmocka_unit_test(no_room_for_one_more_process_is_told),
                cmocka_unit_test(a_dead_launcher_is_missed_by_nobody),
                cmocka_unit_test(without_launchers_all_works_as_well),
        };
        return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
