/* Commands of a session: how they wait, end and are kept; and terminals, whose output many look at. */
#include "session/fake_sandbox.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "session/session_internal.h"
#include "session/snapshot.h"
#include "session/terminal.h"

static char id[SESSION_ID_SIZE];
/* Not on a test's stack: the teardown ends what still runs. */
static struct heard { unsigned n; struct process_end end; } h[4];

static int with_session(void **state) {
        fake_setup(state);
        memset(h, 0, sizeof h);
        memcpy(id, fake_create_ready(fake_spec()), sizeof id);
        return 0;
}


static void on_done(const struct process_end *end, void *user) {
        struct heard *who = user;
        who->n++;
        who->end = *end;
}

static struct process *start(struct process_spec spec, struct heard *who) {
        struct process *p;
        struct error e = { 0 };
        if (!spec.shell && !spec.argv)
                spec.shell = "true";
        if (process_start(fake.ss, id, &spec, who ? on_done : NULL, who, &p, &e) < 0)
                fail_msg("%s", e.text);
        return p;
}

static int start_error(struct process_spec spec) {
        struct process *p;
        struct error e = { 0 };
        spec.shell = "true";
        return process_start(fake.ss, id, &spec, NULL, NULL, &p, &e);
}

/* ---- ends ---- */

static void a_shell_command_runs_where_the_session_says(void **state) {
        start((struct process_spec){ .shell = "make", .login = true, .cwd = "src" }, &h[0]);
        assert_string_equal(fake_exec()->argv, "/bin/bash -lc make");
        assert_string_equal(fake_exec()->cwd, "//src");
        fake_exit(fake_exec(), 3 << 8);
        assert_int_equal(h[0].n, 1);
        assert_int_equal(h[0].end.exit_code, 3);
}

static void a_signal_is_128_more_and_a_timeout_124(void **state) {
        assert_int_equal(process_exit_code(&(struct exec_end){ .started = true, .status = 5 << 8 }), 5);
        assert_int_equal(process_exit_code(&(struct exec_end){ .started = true, .status = SIGTERM }), 128 + SIGTERM);
        assert_int_equal(process_exit_code(&(struct exec_end){ .started = true, .status = SIGKILL, .timed_out = true }), 124);
}

/* The sandbox remembers for good that memory was gone once. */
static void only_what_was_killed_with_its_sandbox_was_out_of_memory(void **state) {
        assert_true(process_was_oom(&(struct exec_end){ .started = true, .sandbox_ended = true, .status = SIGKILL }));
        assert_true(process_was_oom(&(struct exec_end){ .started = true, .sandbox_ended = true, .status = 137 << 8 }));
        assert_false(process_was_oom(&(struct exec_end){ .started = true, .sandbox_ended = true, .status = 0 }));
        assert_false(process_was_oom(&(struct exec_end){ .started = true, .sandbox_ended = true, .status = SIGKILL, .timed_out = true }));
        assert_false(process_was_oom(&(struct exec_end){ .started = true, .status = SIGKILL }));
}

static void what_cannot_be_executed_says_so_on_standard_error(void **state) {
        const char *const argv[] = { "nothing", NULL };
        _cleanup_buf_ struct buf text = BUF_INIT(1000);
        struct process *p = start((struct process_spec){ .argv = argv, .background = true }, &h[0]);
        fake_not_started(fake_exec(), -ENOENT, "No such file");
        assert_int_equal(h[0].end.exit_code, 127);
        _cleanup_close_ int fd = process_log(p, 2);
        assert_true(fd >= 0);
        assert_int_equal(fs_read_fd(fd, &text), 0);
        assert_string_equal(buf_str(&text), "brig: nothing: No such file\n");
}

static void a_session_that_ends_takes_its_commands_along(void **state) {
        start((struct process_spec){ 0 }, &h[0]);
        fake_limit(fake_sandbox(id), LIMIT_WALL);
        fake_wait_record(id);
        assert_int_equal(h[0].n, 1);
        assert_true(h[0].end.session_ended);
        assert_int_equal(h[0].end.exit_code, 137);
}

static void who_has_gone_away_is_not_told(void **state) {
        struct process *p = start((struct process_spec){ 0 }, &h[0]);
        process_abandon(p, true);
        fake_turn();
        assert_int_equal(h[0].n, 0);
        assert_int_equal(fake_execs(), 0);
}

/* ---- how many ---- */

static int with_two_at_a_time(void **state) {
        fake_setup(state);
        memset(h, 0, sizeof h);
        ((struct sessions_config *)(uintptr_t)sessions_settings(fake.ss))->execs_max = 2;
        memcpy(id, fake_create_ready(fake_spec()), sizeof id);
        return 0;
}

static void beyond_execs_max_commands_wait_in_order(void **state) {
        const char *const names[] = { "a", "b", "c", "d" };
        for (int i = 0; i < 4; i++)
                start((struct process_spec){ .shell = names[i] }, &h[i]);
        assert_int_equal(fake_execs(), 2);
        struct sandbox_exec *b = fake_exec();
        fake_exit(b, 0);
        assert_int_equal(h[1].n, 1);
        assert_int_equal(fake_execs(), 2);
        assert_string_equal(fake_exec()->argv, "/bin/bash -c c");
        fake_exit(fake_exec(), 0);
        assert_string_equal(fake_exec()->argv, "/bin/bash -c d");
}

static void background_commands_do_not_wait(void **state) {
        for (int i = 0; i < 3; i++)
                start((struct process_spec){ .background = true }, NULL);
        assert_int_equal(fake_execs(), 3);
}

static void one_that_waits_can_be_cancelled(void **state) {
        struct process *p = NULL;
        for (int i = 0; i < 3; i++)
                p = start((struct process_spec){ 0 }, &h[i]);
        process_abandon(p, true);
        assert_int_equal(fake_execs(), 2);
        fake_exit(fake_exec(), 0);
        assert_int_equal(fake_execs(), 1);     /* nobody was left to come in */
        assert_int_equal(h[2].n, 0);
}

static void one_that_waits_ends_with_its_session(void **state) {
        for (int i = 0; i < 3; i++)
                start((struct process_spec){ 0 }, &h[i]);
        fake_limit(fake_sandbox(id), LIMIT_WALL);
        assert_int_equal(h[2].n, 1);
        assert_true(h[2].end.session_ended);
        fake_wait_record(id);
        assert_int_equal(h[0].n + h[1].n, 2);
}

static void a_session_runs_so_many_and_no_more(void **state) {
        for (unsigned i = 0; i < PROCESSES_LIVE_MAX; i++)
                start((struct process_spec){ 0 }, NULL);
        assert_int_equal(start_error((struct process_spec){ 0 }), -EUSERS);
        fake_exit(fake_exec(), 0);
        assert_int_equal(start_error((struct process_spec){ 0 }), 0);
}

/* ---- the table of background commands ---- */

static void an_ended_command_is_kept_under_its_number(void **state) {
        struct process_view v;
        struct process *p = start((struct process_spec){ .shell = "sleep 1", .background = true }, NULL);
        process_view(p, &v);
        assert_int_equal(v.id, 1);
        assert_int_equal(v.state, PROCESS_RUNNING);
        fake_output(fake_exec(), 1, "hello");
        fake_exit(fake_exec(), 7 << 8);
        assert_ptr_equal(process_find(fake.ss, id, 1), p);
        process_view(p, &v);
        assert_int_equal(v.state, PROCESS_EXITED);
        assert_int_equal(v.exit_code, 7);
        assert_int_equal(v.out_bytes, 5);
        assert_string_equal(v.text, "sleep 1");
        process_forget(p);
        assert_null(process_find(fake.ss, id, 1));
}

static void the_oldest_that_has_ended_makes_room(void **state) {
        for (unsigned i = 0; i < PROCESSES_KEPT_MAX; i++)
                start((struct process_spec){ .background = true }, NULL);
        assert_int_equal(start_error((struct process_spec){ .background = true }), -EUSERS);
        /* Number 64 ends first, number 63 after it: the older number goes. */
        fake_exit(fake_exec(), 0);
        fake_exit(fake_exec(), 0);
        start((struct process_spec){ .background = true }, NULL);
        assert_null(process_find(fake.ss, id, PROCESSES_KEPT_MAX - 1));
        assert_non_null(process_find(fake.ss, id, PROCESSES_KEPT_MAX));
        assert_non_null(process_find(fake.ss, id, PROCESSES_KEPT_MAX + 1));
}

static void forgetting_a_running_command_kills_it(void **state) {
        struct process *p = start((struct process_spec){ .background = true }, NULL);
        process_forget(p);
        process_forget(p);
        assert_true(fake_exec()->killed);
        fake_turn();
        assert_null(process_find(fake.ss, id, 1));
}

static void a_refused_start_takes_no_place(void **state) {
        fake.exec_error = -ENOSPC;
        assert_int_equal(start_error((struct process_spec){ .background = true }), -E2BIG);
        fake.exec_error = 0;
        assert_null(process_find(fake.ss, id, 1));
        for (unsigned i = 0; i < PROCESSES_KEPT_MAX; i++)
                start((struct process_spec){ .background = true }, NULL);
}

/* ---- followers ---- */

struct follower { struct process_follower f; unsigned more, gone; struct process_follower *drop; };

static void on_more(struct process_follower *f) {
        struct follower *w = container_of(f, struct follower, f);
        w->more++;
        if (w->drop)
                process_unfollow(w->drop);
}

static void on_gone(struct process_follower *f, const struct process_view *end) { container_of(f, struct follower, f)->gone++; }

static void follow(struct process *p, struct follower *w) {
        *w = (struct follower){ .f = { .more = on_more, .gone = on_gone } };
        assert_int_equal(process_follow(p, &w->f), 0);
}

static void followers_hear_once_a_turn_and_of_the_end(void **state) {
        struct follower a, b;
        struct process *p = start((struct process_spec){ .background = true }, NULL);
        follow(p, &a);
        follow(p, &b);
        fake_output(fake_exec(), 1, "x");
        fake_output(fake_exec(), 2, "y");
        assert_int_equal(a.more, 0);           /* not from inside */
        fake_turn();
        assert_int_equal(a.more, 1);
        assert_int_equal(b.more, 1);
        process_unfollow(&a.f);
        fake_exit(fake_exec(), 0);
        fake_turn();
        assert_int_equal(a.more, 1);
        assert_int_equal(b.more, 2);
        process_forget(p);
        assert_int_equal(a.gone, 0);
        assert_int_equal(b.gone, 1);
}

static void a_follower_may_take_the_next_one_away(void **state) {
        struct follower a, b;
        struct process *p = start((struct process_spec){ .background = true }, NULL);
        follow(p, &b);
        follow(p, &a);                         /* the newest is told first */
        a.drop = &b.f;
        fake_output(fake_exec(), 1, "x");
        fake_turn();
        assert_int_equal(a.more, 1);
        assert_int_equal(b.more, 0);
        process_unfollow(&a.f);
}

static void followers_have_a_bound(void **state) {
        static struct follower all[PROCESS_FOLLOWERS_MAX + 1];
        struct process *p = start((struct process_spec){ .background = true }, NULL);
        for (unsigned i = 0; i < PROCESS_FOLLOWERS_MAX; i++)
                follow(p, &all[i]);
        assert_int_equal(process_follow(p, &all[PROCESS_FOLLOWERS_MAX].f), -EUSERS);
        process_unfollow(&all[0].f);
        assert_int_equal(process_follow(p, &all[0].f), 0);
}

/* ---- input ---- */

static void on_written(int r, void *user) { *(int *)user = r; }

static void input_waits_for_the_program_to_read(void **state) {
        int r = 1;
        struct process *p = start((struct process_spec){ .background = true, .keep_input = true }, NULL);
        struct sandbox_exec *x = fake_exec();
        x->room = 3;
        assert_int_equal(process_write(p, "hello", 5, true, on_written, &r), 0);
        assert_int_equal(r, 1);
        assert_int_equal(process_write(p, "more", 4, false, on_written, &r), -EBUSY);
        x->room = 10;
        x->writable(x, x->user);
        assert_int_equal(r, 0);
        assert_memory_equal(x->input, "lo", 2);
        assert_true(x->input_closed);
}

static void input_of_a_command_that_ends_is_a_broken_pipe(void **state) {
        int r = 1;
        struct process *p = start((struct process_spec){ .background = true, .keep_input = true }, NULL);
        fake_exec()->room = 0;
        assert_int_equal(process_write(p, "hello", 5, false, on_written, &r), 0);
        fake_exit(fake_exec(), 0);
        assert_int_equal(r, -EPIPE);
        assert_int_equal(process_write(p, "hello", 5, false, on_written, &r), -EPIPE);
}

static void input_that_was_not_kept_open_is_not_written(void **state) {
        struct process *p = start((struct process_spec){ .background = true }, NULL);
        assert_int_equal(process_write(p, "x", 1, false, on_written, NULL), -ENOTCONN);
}

/* ---- terminals ---- */

static struct terminal *open_terminal(void) {
        struct terminal *t;
        struct error e = { 0 };
        const struct terminal_spec spec = { .rows = 24, .cols = 80 };
        assert_int_equal(terminal_open(fake.ss, id, &spec, &t, &e), 0);
        return t;
}

static void on_viewer(struct terminal_viewer *v) { }

static void attach(struct terminal *t, struct terminal_viewer *v, uint64_t from) {
        *v = (struct terminal_viewer){ .more = on_viewer, .room = on_viewer, .closed = on_viewer };
        assert_int_equal(terminal_attach(t, v, from), 0);
}

static void print(char c, size_t n) {
        static char block[4097];
        memset(block, c, sizeof block - 1);
        for (; n > 0; n -= 4096)
                fake_output(fake_exec(), 1, block);
}

static void a_viewer_that_comes_late_sees_what_is_kept(void **state) {
        struct terminal *t = open_terminal();
        struct terminal_viewer v;
        const char *p;
        uint64_t lost;
        print('a', 4096);
        print('b', TERMINAL_KEEP);
        attach(t, &v, 0);
        size_t n = terminal_peek(&v, &p, &lost);
        assert_int_equal(lost, 4096);
        assert_int_equal(v.at, 4096);
        assert_int_equal(n, TERMINAL_KEEP - 4096);     /* as far as it lies together */
        assert_int_equal(p[0], 'b');
        terminal_took(&v, n);
        assert_int_equal(terminal_peek(&v, &p, &lost), 4096);
        assert_int_equal(lost, 0);
        terminal_took(&v, 4096);
        assert_int_equal(terminal_peek(&v, &p, &lost), 0);
        terminal_detach(&v);
}

static void the_program_waits_only_when_all_viewers_are_slow(void **state) {
        struct terminal *t = open_terminal();
        struct terminal_viewer quick, slow;
        const char *p;
        uint64_t lost;
        attach(t, &quick, 0);
        attach(t, &slow, 0);
        print('a', TERMINAL_KEEP / 2);
        terminal_took(&quick, terminal_peek(&quick, &p, &lost));
        print('a', 4096);
        assert_false(fake_exec()->held);
        print('a', TERMINAL_KEEP / 2);
        assert_true(fake_exec()->held);
        terminal_took(&quick, terminal_peek(&quick, &p, &lost));
        assert_false(fake_exec()->held);
        terminal_detach(&quick);
        print('a', 4096);
        assert_true(fake_exec()->held);
        terminal_detach(&slow);                /* nobody looks: it runs freely */
        assert_false(fake_exec()->held);
}

static void input_beyond_what_is_taken_has_to_wait(void **state) {
        struct terminal *t = open_terminal();
        struct terminal_viewer v;
        static char much[TERMINAL_INPUT_MAX + 10];
        attach(t, &v, 0);
        fake_exec()->room = 0;
        assert_int_equal(terminal_input(&v, much, sizeof much), TERMINAL_INPUT_MAX);
        assert_int_equal(terminal_input(&v, much, 1), 0);
        fake_exec()->room = SIZE_MAX;
        fake_exec()->writable(fake_exec(), fake_exec()->user);
        assert_int_equal(terminal_input(&v, much, 1), 1);
        terminal_detach(&v);
}

/* ---- what stands still ---- */

static void nothing_starts_in_a_paused_session(void **state) {
        session_pause_begins(session_find(fake.ss, id));
        assert_int_equal(start_error((struct process_spec){ 0 }), -EBUSY);     /* already while it is being frozen */
        session_pause_ends(session_find(fake.ss, id), 0);
        assert_int_equal(start_error((struct process_spec){ 0 }), -EBUSY);
        session_resumed(session_find(fake.ss, id));
        assert_int_equal(start_error((struct process_spec){ 0 }), 0);
}

static void a_snapshot_needs_a_store(void **state) {
        struct snapshot *s;
        struct error e = { 0 };
        assert_int_equal(session_snapshot(fake.ss, id, NULL, NULL, NULL, &s, &e), -EOPNOTSUPP);
        assert_int_equal(fake.freezes, 0);
        assert_null(session_stands_still(session_find(fake.ss, id)));
}

#define T(name) cmocka_unit_test_setup_teardown(name, with_session, fake_teardown)
#define TWO(name) cmocka_unit_test_setup_teardown(name, with_two_at_a_time, fake_teardown)

int main(void) {
        const struct CMUnitTest tests[] = {
                T(a_shell_command_runs_where_the_session_says), T(a_signal_is_128_more_and_a_timeout_124), T(only_what_was_killed_with_its_sandbox_was_out_of_memory), T(what_cannot_be_executed_says_so_on_standard_error),
                T(a_session_that_ends_takes_its_commands_along), T(who_has_gone_away_is_not_told), TWO(beyond_execs_max_commands_wait_in_order),
                TWO(background_commands_do_not_wait), TWO(one_that_waits_can_be_cancelled), TWO(one_that_waits_ends_with_its_session), T(a_session_runs_so_many_and_no_more),
                T(an_ended_command_is_kept_under_its_number), T(the_oldest_that_has_ended_makes_room), T(forgetting_a_running_command_kills_it),
                T(a_refused_start_takes_no_place), T(followers_hear_once_a_turn_and_of_the_end), T(a_follower_may_take_the_next_one_away), T(followers_have_a_bound),
                T(input_waits_for_the_program_to_read), T(input_of_a_command_that_ends_is_a_broken_pipe), T(input_that_was_not_kept_open_is_not_written),
                T(a_viewer_that_comes_late_sees_what_is_kept), T(the_program_waits_only_when_all_viewers_are_slow), T(input_beyond_what_is_taken_has_to_wait),
                T(nothing_starts_in_a_paused_session), T(a_snapshot_needs_a_store),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
