/* Execs with a terminal of their own. */
#include <string.h>
#include <signal.h>
#include <sys/wait.h>

#include "sandbox/streamed.h"

static void with_terminal(struct exec_spec *x) {
        static const struct exec_tty size = { .rows = 24, .cols = 80 };
        x->tty = &size;
}

static void say(struct streamed *s, const char *text) {
        size_t n = strlen(text);
        while (n > 0) {
                ssize_t w = exec_write(s->run.exec, text, n);
                assert_true(w >= 0);
                text += w;
                n -= (size_t)w;
                assert_true(n == 0 || w > 0);      /* a terminal that is there takes a line */
        }
}

static void until_text(struct fixture *f, struct streamed *s, const char *text) {
        while (!strstr(buf_str(&s->text[1]), text)) {
                if (s->run.exited)
                        fail_msg("it ended before it said '%s': %s", text, buf_str(&s->text[1]));
                s->enough = false;
                s->want = s->text[1].len + 1;
                fixture_until(f, &s->enough);
        }
}

static void a_terminal_is_one_in_every_way(void **state) {
        struct box b;
        struct streamed s;
        const struct sandbox_spec spec = session_spec();
        box_create(*state, &b, &spec);
        stream_start(&b, &s, "tty; stty size; test -t 0 && test -t 1 && test -t 2 && echo all; echo to-it >/dev/tty; stat -c '%u %a' $(tty); ps -o tty= $$", with_terminal);
        fixture_until(*state, &s.run.exited);
        assert_int_equal(s.run.end.status, 0);
        assert_string_equal(buf_str(&s.text[1]), "/dev/pts/0\r\n24 80\r\nall\r\nto-it\r\n0 620\r\npts/0\r\n");
        assert_int_equal(s.text[2].len, 0);
        stream_release(&s);
        box_destroy(&b);
}

static void what_is_typed_arrives_and_interrupts(void **state) {
        struct box b;
        struct streamed s;
        const struct sandbox_spec spec = session_spec();
        box_create(*state, &b, &spec);
        stream_start(&b, &s, "trap 'echo caught; exit 3' INT; echo ready; read line; echo got $line; while :; do sleep 0.01; done", with_terminal);
        until_text(*state, &s, "ready");
        say(&s, "hello\n");
        until_text(*state, &s, "got hello");
        say(&s, "\003");
        fixture_until(*state, &s.run.exited);
        assert_non_null(strstr(buf_str(&s.text[1]), "caught"));
        assert_int_equal(WEXITSTATUS(s.run.end.status), 3);
        stream_release(&s);
        box_destroy(&b);
}

static void a_new_size_is_told(void **state) {
        struct box b;
        struct streamed s;
        const struct sandbox_spec spec = session_spec();
        box_create(*state, &b, &spec);
        stream_start(&b, &s, "trap 'stty size; exit' WINCH; echo ready; while :; do sleep 0.01; done", with_terminal);
        until_text(*state, &s, "ready");
        assert_int_equal(exec_tty_resize(s.run.exec, 50, 132), 0);
        fixture_until(*state, &s.run.exited);
        assert_non_null(strstr(buf_str(&s.text[1]), "50 132"));
        stream_release(&s);
        box_destroy(&b);
}

static void what_it_leaves_behind_does_not_hold_its_end(void **state) {
        struct box b;
        struct streamed s;
        struct run r;
        const struct sandbox_spec spec = session_spec();
        box_create(*state, &b, &spec);
        stream_start(&b, &s, "(trap '' HUP; while :; do echo more; done) & echo last words; exit 5", with_terminal);
        fixture_until(*state, &s.run.exited);
        assert_int_equal(WEXITSTATUS(s.run.end.status), 5);
        assert_non_null(strstr(buf_str(&s.text[1]), "last words"));
        stream_release(&s);
        const char *const argv[] = { "true", NULL };
        const struct exec_spec x = run_spec(&r, argv);
        struct error e;
        assert_int_equal(sandbox_exec(b.sandbox, &x, on_streamed_exit, &r, &r.exec, &e), 0);
        assert_int_equal(exec_tty_resize(r.exec, 1, 1), -ENOTTY);
        run_wait(&b, &r);
        run_release(&r);
        box_destroy(&b);
}

static void other_users_have_terminals_too(void **state) {
        struct box b;
        struct streamed s;
        const struct sandbox_spec spec = session_spec();
        const char *const argv[] = { "sh", "-c", "id -u; stat -c %u $(tty)", NULL };
        const struct exec_tty size = { 24, 80 };
        struct error e;
        box_create(*state, &b, &spec);
        s = (struct streamed){ .text = { BUF_INIT(1), BUF_INIT(65536), BUF_INIT(65536) } };
        const struct exec_spec x = { .argv = argv, .env = plain_env, .uid = 1000, .gid = 1000, .tty = &size, .output = on_output };
        assert_int_equal(sandbox_exec(b.sandbox, &x, on_streamed_exit, &s, &s.run.exec, &e), 0);
        fixture_until(*state, &s.run.exited);
        assert_string_equal(buf_str(&s.text[1]), "1000\r\n1000\r\n");
        stream_release(&s);
        box_destroy(&b);
}

static void one_that_cannot_be_executed_says_so(void **state) {
        struct box b;
        struct streamed s = { .text = { BUF_INIT(1), BUF_INIT(65536), BUF_INIT(65536) } };
        const struct sandbox_spec spec = session_spec();
        const char *const argv[] = { "/no/such", NULL };
        const struct exec_tty size = { 24, 80 };
        struct error e;
        box_create(*state, &b, &spec);
        const struct exec_spec x = { .argv = argv, .env = plain_env, .tty = &size, .output = on_output };
        assert_int_equal(sandbox_exec(b.sandbox, &x, on_streamed_exit, &s, &s.run.exec, &e), 0);
        fixture_until(*state, &s.run.exited);
        assert_false(s.run.end.started);
        assert_int_equal(s.run.end.error.code, -ENOENT);
        stream_release(&s);
        box_destroy(&b);
}

int main(void) {
        signal(SIGPIPE, SIG_IGN);
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_terminal_is_one_in_every_way),
                cmocka_unit_test(what_is_typed_arrives_and_interrupts),
                cmocka_unit_test(a_new_size_is_told),
                cmocka_unit_test(what_it_leaves_behind_does_not_hold_its_end),
                cmocka_unit_test(other_users_have_terminals_too),
                cmocka_unit_test(one_that_cannot_be_executed_says_so),
        };
        return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
