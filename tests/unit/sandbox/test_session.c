/* What sandboxes of sessions have that others have not. */
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "sandbox/fixture.h"

static struct sandbox_spec session_spec(void) {
        struct sandbox_spec s = box_spec();
        s.profile = PROFILE_SESSION;
        return s;
}

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

struct streamed { struct run run; struct buf text[3]; size_t chunks; bool enough, room, born; size_t want; };

static void on_output(struct sandbox_exec *x, int stream, const void *p, size_t n, void *user) {
        struct streamed *s = user;
        buf_add(&s->text[stream], p, n);
        s->chunks++;
        s->enough |= s->want > 0 && s->text[1].len >= s->want;
}
static void on_writable(struct sandbox_exec *x, void *user) { ((struct streamed *)user)->room = true; }
static void on_started(struct sandbox_exec *x, void *user) { ((struct streamed *)user)->born = true; }
static void on_streamed_exit(struct sandbox_exec *x, const struct exec_end *end, void *user) {
        struct streamed *s = user;
        s->run.exited = true;
        s->run.end = *end;
        s->run.exec = NULL;
}

static const char *const plain_env[] = { "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=/root", NULL };

static void stream_start(struct box *b, struct streamed *s, const char *script, void (*change)(struct exec_spec *)) {
        const char *const argv[] = { "sh", "-c", script, NULL };
        struct error e = { 0 };
        *s = (struct streamed){ .text = { BUF_INIT(1), BUF_INIT(8 << 20), BUF_INIT(8 << 20) } };
        struct exec_spec x = { .argv = argv, .env = plain_env, .cwd = "/", .stdin_fd = -1, .output = on_output, .writable = on_writable, .started = on_started };
        if (change)
                change(&x);
        assert_int_equal(sandbox_exec(b->sandbox, &x, on_streamed_exit, s, &s->run.exec, &e), 0);
}
static void stream_release(struct streamed *s) {
        buf_release(&s->text[1]);
        buf_release(&s->text[2]);
}

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
        assert_true(s.born);
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
        assert_int_equal(exec_write(s.run.exec, "x", 1), -EPIPE);
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

int main(void) {
        signal(SIGPIPE, SIG_IGN);
        const struct CMUnitTest tests[] = {
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
