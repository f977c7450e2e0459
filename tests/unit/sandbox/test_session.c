/* What sandboxes of sessions have that others have not. */
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <sched.h>
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "sandbox/streamed.h"

static void names_of_capabilities_are_understood(void **state) {
        uint64_t bits;
        assert_int_equal(sandbox_cap_parse("NET_BIND_SERVICE", &bits), 0);
        assert_int_equal(bits, 1ull << CAP_NET_BIND_SERVICE);
        assert_int_equal(sandbox_cap_parse("cap_chown", &bits), 0);
        assert_int_equal(bits, 1ull << CAP_CHOWN);
        assert_int_equal(sandbox_cap_parse("ALL", &bits), 0);
        assert_int_equal(bits, ~0ull);
        assert_int_equal(sandbox_cap_parse("FLY", &bits), -EINVAL);
        assert_int_equal(sandbox_cap_parse("", &bits), -EINVAL);
}

static void dropped_capabilities_are_gone_for_good(void **state) {
        struct box b;
        struct run r;
        struct sandbox_spec spec = session_spec();
        spec.cap_drop = 1ull << CAP_CHOWN;
        box_create(*state, &b, &spec);
        run_sh(&b, &r, "grep -E 'CapEff|CapBnd' /proc/self/status | cut -f2; touch /tmp/a; chown 5 /tmp/a 2>/dev/null && echo chowned; chmod 600 /tmp/a && echo ok");
        assert_null(strstr(run_out(&r), "chowned"));
        assert_non_null(strstr(run_out(&r), "ok"));
        unsigned long long eff = strtoull(run_out(&r), NULL, 16);
        assert_false(eff & 1ull << CAP_CHOWN);
        assert_true(eff & 1ull << CAP_SETUID);
        run_release(&r);
        box_destroy(&b);
}

static void other_profiles_drop_nothing(void **state) {
        struct fixture *f = *state;
        struct box b = { .f = f };
        struct error e = { 0 };
        struct sandbox_spec spec = box_spec();
        spec.cap_drop = 1;
        assert_int_equal(sandbox_create(f->spawner, &spec, &box_callbacks, &b, &b.sandbox, &e), -EINVAL);
        assert_non_null(strstr(e.text, "cap_drop"));
}

static void setuid_programs_work_within(void **state) {
        struct box b;
        struct run r;
        const struct sandbox_spec spec = session_spec();
        box_create(*state, &b, &spec);
        run_sh(&b, &r, "cp /usr/bin/id /usr/local/bin/rid && chmod 4755 /usr/local/bin/rid");
        run_release(&r);
        const char *const argv[] = { "/usr/local/bin/rid", "-u", NULL };
        struct exec_spec x = run_spec(&r, argv);
        x.uid = x.gid = 1000;
        run_start(&b, &r, &x);
        run_wait(&b, &r);
        assert_string_equal(run_out(&r), "0");
        run_release(&r);
        box_destroy(&b);
}

/* ---- what goes in and comes out ---- */

static void output_comes_while_the_command_runs(void **state) {
        struct box b;
        struct streamed s;
        const struct sandbox_spec spec = session_spec();
        box_create(*state, &b, &spec);
        const char *const argv[] = { "sh", "-c", "echo first; cat; echo last >&2", NULL };
        int p[2];
        assert_int_equal(pipe2(p, O_CLOEXEC), 0);
        s = (struct streamed){ .text = { BUF_INIT(1), BUF_INIT(65536), BUF_INIT(65536) }, .want = 6 };
        const struct exec_spec x = { .argv = argv, .env = plain_env, .cwd = "/", .stdin_fd = p[0], .output = on_output, .started = on_started };
        struct error e = { 0 };
        assert_int_equal(sandbox_exec(b.sandbox, &x, on_streamed_exit, &s, &s.run.exec, &e), 0);
        close(p[0]);
        fixture_until(*state, &s.enough);
        fixture_until(*state, &s.born);
        assert_false(s.run.exited);
        assert_string_equal(buf_str(&s.text[1]), "first\n");
        assert_int_equal(write(p[1], "middle\n", 7), 7);
        close(p[1]);
        fixture_until(*state, &s.run.exited);
        assert_string_equal(buf_str(&s.text[1]), "first\nmiddle\n");
        assert_string_equal(buf_str(&s.text[2]), "last\n");
        stream_release(&s);
        box_destroy(&b);
}

static void with_input(struct exec_spec *x) { x->stdin_pipe = true; }

static void input_is_written_as_the_program_takes_it(void **state) {
        struct box b;
        struct streamed s;
        const struct sandbox_spec spec = session_spec();
        box_create(*state, &b, &spec);
        stream_start(&b, &s, "echo ready; read go; wc -c", with_input);
        s.want = 6;
        fixture_until(*state, &s.enough);
        static char block[65536];
        memset(block, 'x', sizeof block);
        size_t sent = 0, want = 1 << 20;
        assert_int_equal(exec_write(s.run.exec, "go\n", 3), 3);
        while (sent < want) {
                s.room = false;
                ssize_t n = exec_write(s.run.exec, block, MIN2(sizeof block, want - sent));
                assert_true(n >= 0);
                sent += (size_t)n;
                if (sent < want && (size_t)n < sizeof block)
                        fixture_until(*state, &s.room);
        }
        exec_close_input(s.run.exec);
        fixture_until(*state, &s.run.exited);
        assert_string_equal(buf_str(&s.text[1]), "ready\n1048576\n");
        stream_release(&s);
        box_destroy(&b);
}

static void writing_to_one_that_does_not_read_says_so(void **state) {
        struct box b;
        struct streamed s;
        const struct sandbox_spec spec = session_spec();
        box_create(*state, &b, &spec);
        stream_start(&b, &s, "exec <&-; echo closed; sleep 1000", with_input);
        s.want = 7;
        fixture_until(*state, &s.enough);
        /* Whoever handed the other end over may hold it for a moment yet, and nothing says when it lets go. */
        ssize_t n;
        for (uint64_t end = now_ms() + 60000; (n = exec_write(s.run.exec, "x", 1)) >= 0 && now_ms() < end;)
                sched_yield();
        assert_int_equal(n, -EPIPE);
        assert_int_equal(exec_kill(s.run.exec), 0);
        fixture_until(*state, &s.run.exited);
        assert_int_equal(WTERMSIG(s.run.end.status), SIGKILL);
        stream_release(&s);
        stream_start(&b, &s, "sleep 1000", NULL);
        assert_int_equal(exec_write(s.run.exec, "x", 1), -ENOTCONN);
        exec_kill(s.run.exec);     /* before it has started */
        fixture_until(*state, &s.run.exited);
        stream_release(&s);
        box_destroy(&b);
}

static void a_held_stream_makes_the_program_wait(void **state) {
        struct box b;
        struct streamed s;
        const struct sandbox_spec spec = session_spec();
        box_create(*state, &b, &spec);
        struct run r;
        stream_start(&b, &s, "head -c 4194304 /dev/zero; touch /tmp/through", NULL);
        exec_hold(s.run.exec, true);
        /* A pipe's worth is what it can write. Another exec's time is enough to see that it is stuck. */
        run_sh(&b, &r, "for i in 1 2 3 4 5; do test -e /tmp/through && echo through; sleep 0.02; done");
        assert_string_equal(run_out(&r), "");
        run_release(&r);
        assert_int_equal(s.text[1].len, 0);
        exec_hold(s.run.exec, false);
        fixture_until(*state, &s.run.exited);
        assert_int_equal(s.text[1].len, 4194304);
        stream_release(&s);
        box_destroy(&b);
}

static void unlimited(struct exec_spec *x) { x->output_bytes = UINT64_MAX; }

static void output_of_streams_is_limited_where_asked(void **state) {
        struct box b;
        struct streamed s;
        struct sandbox_spec spec = session_spec();
        spec.limits.output_bytes = 100000;
        box_create(*state, &b, &spec);
        stream_start(&b, &s, "head -c 1000000 /dev/zero; sleep 1000", NULL);
        fixture_until(*state, &s.run.exited);
        assert_true(s.run.end.output_limit);
        stream_release(&s);
        stream_start(&b, &s, "head -c 1000000 /dev/zero", unlimited);
        fixture_until(*state, &s.run.exited);
        assert_false(s.run.end.output_limit);
        assert_int_equal(s.text[1].len, 1000000);
        stream_release(&s);
        box_destroy(&b);
}

static void standard_descriptors_may_be_the_callers(void **state) {
        struct box b;
        struct run r = { 0 };
        struct error e = { 0 };
        int p[2];
        const struct sandbox_spec spec = session_spec();
        box_create(*state, &b, &spec);
        assert_int_equal(pipe2(p, O_CLOEXEC), 0);
        const char *const argv[] = { "echo", "out", NULL };
        const struct exec_fd fds[] = { { p[1], 1 } };
        struct exec_spec x = { .argv = argv, .env = plain_env, .stdin_fd = -1, .fds = fds, .n_fds = 1 };
        assert_int_equal(sandbox_exec(b.sandbox, &x, on_streamed_exit, &r, &r.exec, &e), 0);
        close(p[1]);
        fixture_until(*state, &r.exited);
        char text[16] = "";
        assert_int_equal(read(p[0], text, sizeof text), 4);
        assert_string_equal(text, "out\n");
        close(p[0]);
        x.output = on_output;      /* who gets it? */
        assert_int_equal(sandbox_exec(b.sandbox, &x, on_streamed_exit, &r, &r.exec, &e), -EINVAL);
        box_destroy(&b);
}

/* ---- freezing, killing, counting ---- */

struct asked { bool done; int r; struct sandbox_now now; };
static void on_done(struct sandbox *s, int r, void *user) { *(struct asked *)user = (struct asked){ .done = true, .r = r }; }
static void on_now(struct sandbox *s, int r, const struct sandbox_now *now, void *user) {
        struct asked *a = user;
        *a = (struct asked){ .done = true, .r = r };
        if (now)
                a->now = *now;
}
static int freeze(struct box *b, bool on) {
        struct asked a = { 0 };
        assert_int_equal((on ? sandbox_freeze : sandbox_thaw)(b->sandbox, on_done, &a), 0);
        fixture_until(b->f, &a.done);
        return a.r;
}
static struct sandbox_now now_of(struct box *b) {
        struct asked a = { 0 };
        assert_int_equal(sandbox_usage_now(b->sandbox, on_now, &a), 0);
        fixture_until(b->f, &a.done);
        assert_int_equal(a.r, 0);
        return a.now;
}

/* Says "." for as long as it runs, many times a second. */
static const char ticker[] = "while :; do echo .; sleep 0.005; done";

static void what_is_frozen_stands_until_it_is_thawed(void **state) {
        struct box b;
        struct streamed s;
        struct run r;
        const struct sandbox_spec spec = session_spec();
        box_create(*state, &b, &spec);
        stream_start(&b, &s, ticker, NULL);
        s.want = 2;
        fixture_until(*state, &s.enough);
        assert_int_equal(freeze(&b, true), 0);
        assert_true(now_of(&b).frozen);
        assert_int_equal(freeze(&b, true), 0);
        const char *const argv[] = { "true", NULL };
        struct exec_spec x = run_spec(&r, argv);
        run_start(&b, &r, &x);
        run_wait(&b, &r);
        assert_false(r.end.started);
        assert_int_equal(r.end.error.code, -EBUSY);
        run_release(&r);
        /* A helper runs, and in its time nobody else does. */
        x = run_spec(&r, argv);
        x.helper = true;
        run_start(&b, &r, &x);
        run_wait(&b, &r);
        assert_true(r.end.started);
        assert_int_equal(r.end.status, 0);
        run_release(&r);
        size_t before = s.text[1].len;
        for (int i = 0; i < 20; i++) {
                x = run_spec(&r, argv);
                x.helper = true;
                run_start(&b, &r, &x);
                run_wait(&b, &r);
                run_release(&r);
        }
        assert_true(s.text[1].len <= before + 2);      /* what was in the pipe */
        s.want = s.text[1].len + 10;
        s.enough = false;
        assert_int_equal(freeze(&b, false), 0);
        fixture_until(*state, &s.enough);
        assert_false(now_of(&b).frozen);
        exec_kill(s.run.exec);
        fixture_until(*state, &s.run.exited);
        stream_release(&s);
        box_destroy(&b);
}

static void a_frozen_sandbox_can_be_killed_and_destroyed(void **state) {
        struct box b;
        struct streamed s, t;
        const struct sandbox_spec spec = session_spec();
        box_create(*state, &b, &spec);
        stream_start(&b, &s, ticker, NULL);
        stream_start(&b, &t, ticker, NULL);
        s.want = t.want = 2;
        fixture_until(*state, &s.enough);
        fixture_until(*state, &t.enough);
        assert_int_equal(freeze(&b, true), 0);
        exec_kill(s.run.exec);
        fixture_until(*state, &s.run.exited);
        assert_false(t.run.exited);
        box_destroy(&b);
        assert_true(t.run.exited);
        assert_true(t.run.end.sandbox_ended);
        stream_release(&s);
        stream_release(&t);
}

static void freeze_end(struct exec_spec *x) { x->freeze_at_end = true; }

static void all_stands_when_an_exec_that_asks_for_it_ends(void **state) {
        struct box b;
        struct streamed s, t;
        const struct sandbox_spec spec = session_spec();
        box_create(*state, &b, &spec);
        stream_start(&b, &s, ticker, NULL);
        s.want = 2;
        fixture_until(*state, &s.enough);
        stream_start(&b, &t, "sleep 1000 & exit 3", freeze_end);
        fixture_until(*state, &t.run.exited);
        assert_int_equal(WEXITSTATUS(t.run.end.status), 3);
        assert_true(t.run.end.frozen);
        assert_true(now_of(&b).frozen);
        assert_false(s.run.exited);
        assert_int_equal(freeze(&b, false), 0);
        exec_kill(s.run.exec);
        fixture_until(*state, &s.run.exited);
        assert_false(s.run.end.frozen);
        stream_release(&s);
        stream_release(&t);
        box_destroy(&b);
}

static void a_timeout_kills_that_commands_tree_only(void **state) {
        struct box b;
        struct streamed s;
        struct run r;
        const struct sandbox_spec spec = session_spec();
        box_create(*state, &b, &spec);
        stream_start(&b, &s, ticker, NULL);
        run_sh(&b, &r, "setsid sleep 1001 >/dev/null 2>&1 &");
        run_release(&r);
        const char *const argv[] = { "sh", "-c", "setsid sleep 1002 & echo out; sleep 1003", NULL };
        struct exec_spec x = run_spec(&r, argv);
        x.timeout_ms = 2000;           /* by then it has begun, on a busy machine too */
        run_start(&b, &r, &x);
        run_wait(&b, &r);
        assert_true(r.end.timed_out);
        assert_string_equal(run_out(&r), "out");
        run_release(&r);
        run_sh(&b, &r, "for p in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$p; done | grep -o 'sleep 100[0-9]' | sort -u");
        assert_string_equal(run_out(&r), "sleep 1001");
        run_release(&r);
        assert_false(s.run.exited);
        exec_kill(s.run.exec);
        fixture_until(*state, &s.run.exited);
        stream_release(&s);
        box_destroy(&b);
}

static void all_but_one_can_be_killed(void **state) {
        struct box b;
        struct streamed s, t;
        struct run r;
        struct asked a = { 0 };
        const struct sandbox_spec spec = session_spec();
        box_create(*state, &b, &spec);
        stream_start(&b, &s, "setsid sleep 1001 & echo up; wait", NULL);
        stream_start(&b, &t, "setsid sleep 1002 & echo up; wait", NULL);
        s.want = t.want = 3;
        run_sh(&b, &r, "setsid sleep 1003 >/dev/null 2>&1 &");
        run_release(&r);
        fixture_until(*state, &s.enough);
        fixture_until(*state, &t.enough);
        assert_int_equal(sandbox_kill_others(b.sandbox, s.run.exec, on_done, &a), 0);
        fixture_until(*state, &a.done);
        assert_int_equal(a.r, 0);
        fixture_until(*state, &t.run.exited);
        assert_false(s.run.exited);
        run_sh(&b, &r, "while ! { for p in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$p; done 2>/dev/null | grep -o 'sleep 100[0-9]' | sort -u | grep .; }; do :; done");
        assert_string_equal(run_out(&r), "sleep 1001");
        run_release(&r);
        exec_kill(s.run.exec);
        fixture_until(*state, &s.run.exited);
        stream_release(&s);
        stream_release(&t);
        box_destroy(&b);
}

static void usage_is_told_while_it_runs(void **state) {
        struct box b;
        struct streamed s;
        const struct sandbox_spec spec = session_spec();
        box_create(*state, &b, &spec);
        const struct sandbox_now before = now_of(&b);
        stream_start(&b, &s, "head -c 8388608 /dev/zero >/tmp/file; echo up; while :; do :; done", NULL);
        s.want = 3;
        fixture_until(*state, &s.enough);
        struct sandbox_now n = now_of(&b);
        assert_true(n.pids > before.pids);
        assert_true(n.disk_bytes >= before.disk_bytes + 8388608);
        assert_true(n.disk_free_bytes > 0 && n.disk_free_bytes < before.disk_free_bytes);
        assert_true(n.memory_bytes > 0 && n.memory_peak_bytes >= n.memory_bytes);
        while (n.cpu_us < before.cpu_us + 20000)
                n = now_of(&b);
        box_destroy(&b);
        stream_release(&s);
}

static void questions_are_answered_when_the_sandbox_goes(void **state) {
        struct box b;
        struct asked a = { 0 };
        const struct sandbox_spec spec = session_spec();
        box_create(*state, &b, &spec);
        sandbox_destroy(b.sandbox);
        assert_int_equal(sandbox_freeze(b.sandbox, on_done, &a), -ESHUTDOWN);
        box_destroy(&b);
        box_create(*state, &b, &spec);
        assert_int_equal(sandbox_usage_now(b.sandbox, on_now, &a), 0);
        for (int i = 1; i < SANDBOX_ASKS_MAX; i++)
                assert_int_equal(sandbox_usage_now(b.sandbox, on_now, &a), 0);
        assert_int_equal(sandbox_usage_now(b.sandbox, on_now, &a), -EBUSY);
        box_destroy(&b);
        assert_true(a.done);
}

/* The first is made on request, later ones come from what was made meanwhile; a size of its own is made on request again. */
static void uppers_on_disk_are_private_and_bounded(void **state) {
        struct box b[8];
        struct run r;
        struct sandbox_spec spec = session_spec();
        spec.upper = UPPER_DISK;
        for (size_t i = 0; i < ARRAY_SIZE(b); i++) {
                spec.limits.disk_bytes = i == 5 ? 128 << 20 : 64 << 20;
                box_create(*state, &b[i], &spec);
                run_sh(&b[i], &r, "ls /srv /var/tmp; echo mine >/srv/mine; stat -c '%u %u' /srv/mine /var/tmp; sleep 0.03");
                assert_string_equal(run_out(&r), "/srv:\n\n/var/tmp:\n0 0\n0 0");
                run_release(&r);
        }
        run_sh(&b[7], &r, "head -c 100000000 /dev/zero >/srv/big 2>/dev/null || echo full; sync /srv/mine && echo synced");
        assert_string_equal(run_out(&r), "full\nsynced");
        run_release(&r);
        run_sh(&b[5], &r, "head -c 100000000 /dev/zero >/srv/big && echo fits");
        assert_string_equal(run_out(&r), "fits");
        run_release(&r);
        for (size_t i = 0; i < ARRAY_SIZE(b); i++)
                box_destroy(&b[i]);
        assert_true(b[7].end.hit[LIMIT_DISK]);
        assert_false(b[5].end.hit[LIMIT_DISK]);
}

int main(void) {
        signal(SIGPIPE, SIG_IGN);
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(what_is_frozen_stands_until_it_is_thawed),
                cmocka_unit_test(a_frozen_sandbox_can_be_killed_and_destroyed),
                cmocka_unit_test(all_stands_when_an_exec_that_asks_for_it_ends),
                cmocka_unit_test(a_timeout_kills_that_commands_tree_only),
                cmocka_unit_test(all_but_one_can_be_killed),
                cmocka_unit_test(usage_is_told_while_it_runs),
                cmocka_unit_test(uppers_on_disk_are_private_and_bounded),
                cmocka_unit_test(questions_are_answered_when_the_sandbox_goes),
                cmocka_unit_test(output_comes_while_the_command_runs),
                cmocka_unit_test(input_is_written_as_the_program_takes_it),
                cmocka_unit_test(writing_to_one_that_does_not_read_says_so),
                cmocka_unit_test(a_held_stream_makes_the_program_wait),
                cmocka_unit_test(output_of_streams_is_limited_where_asked),
                cmocka_unit_test(standard_descriptors_may_be_the_callers),
                cmocka_unit_test(names_of_capabilities_are_understood),
                cmocka_unit_test(dropped_capabilities_are_gone_for_good),
                cmocka_unit_test(other_profiles_drop_nothing),
                cmocka_unit_test(setuid_programs_work_within),
        };
        return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
