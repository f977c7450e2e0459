/* A directory that only one exec sees. */
#include <string.h>
#include <sys/wait.h>

#include "sandbox/file_pack.h"
#include "sandbox/streamed.h"

static int pack(struct file_pack *p) {
        assert_int_equal(file_pack_add(p, "test.sh", 0755, "cat /verifier/key", 17), 0);
        assert_int_equal(file_pack_add(p, "key", 0600, "s3cret", 6), 0);
        assert_int_equal(file_pack_add(p, "sub/dir/data", 0644, "d", 1), 0);
        assert_int_equal(file_pack_seal(p), 0);
        return p->fd;
}

static void view_sh(struct box *b, struct run *r, const char *target, const char *script, bool freeze) {
        struct file_pack p = FILE_PACK_INIT;
        const struct exec_view view = { .target = target, .pack_fd = pack(&p) };
        const char *const argv[] = { "sh", "-c", script, NULL };
        struct exec_spec x = run_spec(r, argv);
        x.view = &view;
        x.freeze_at_end = freeze;
        run_start(b, r, &x);
        file_pack_release(&p);
        run_wait(b, r);
}

static void read_by_helper(struct box *b, struct run *r, const char *path, bool in_view) {
        const char *const argv[] = { "read-file", "root", path, NULL };
        struct exec_spec x = run_spec(r, argv);
        x.helper = true;
        x.in_view = in_view;
        run_start(b, r, &x);
        run_wait(b, r);
}

static void files_are_there_for_it_and_writable(void **state) {
        struct box b;
        struct run r;
        const struct sandbox_spec spec = session_spec();
        box_create(*state, &b, &spec);
        view_sh(&b, &r, "/verifier", "/verifier/test.sh && echo && stat -c '%u %a %n' /verifier /verifier/* && cat /verifier/sub/dir/data && echo x >/verifier/new && chmod 600 /verifier/new", false);
        assert_string_equal(run_out(&r), "s3cret\n0 755 /verifier\n0 600 /verifier/key\n0 755 /verifier/sub\n0 755 /verifier/test.sh\nd");
        assert_int_equal(r.end.status, 0);
        run_release(&r);
        run_sh(&b, &r, "ls -A /verifier");
        assert_string_equal(run_out(&r), "");
        run_release(&r);
        box_destroy(&b);
}

static void nobody_else_sees_it(void **state) {
        struct box b;
        struct streamed s;
        struct run r;
        const struct sandbox_spec spec = session_spec();
        box_create(*state, &b, &spec);
        /* What the agent left there stays for the agent. */
        stream_start(&b, &s, "mkdir /verifier; echo mine >/verifier/key; while :; do cat /verifier/key; cat /proc/[0-9]*/root/verifier/key 2>/dev/null; sleep 0.002; done", NULL);
        s.want = 5;
        fixture_until(*state, &s.enough);
        view_sh(&b, &r, "/verifier", "for i in 1 2 3 4 5 6 7 8 9 10; do cat /verifier/key >/dev/null; sleep 0.01; done; cat /verifier/key", false);
        assert_string_equal(run_out(&r), "s3cret");
        run_release(&r);
        exec_kill(s.run.exec);
        fixture_until(*state, &s.run.exited);
        assert_non_null(strstr(buf_str(&s.text[1]), "mine"));
        /* Root of the sandbox may look through the verifier's /proc entry as long as it lives: that is what `live` integrity says. */
        run_sh(&b, &r, "cat /verifier/key");
        assert_string_equal(run_out(&r), "mine");
        run_release(&r);
        stream_release(&s);
        box_destroy(&b);
}

static void links_in_the_way_stay_within(void **state) {
        struct box b;
        struct run r;
        const struct sandbox_spec spec = session_spec();
        box_create(*state, &b, &spec);
        run_sh(&b, &r, "mkdir -p /srv/real; ln -s /srv/real /abs; ln -s /../../../srv/real /up; ln -s /etc /v; ln -s /proc/self/root /magic; echo f >/plain");
        run_release(&r);
        view_sh(&b, &r, "/abs/deep/er", "cat /srv/real/deep/er/key", false);
        assert_string_equal(run_out(&r), "s3cret");
        run_release(&r);
        view_sh(&b, &r, "/up/x", "cat /srv/real/x/key", false);
        assert_string_equal(run_out(&r), "s3cret");
        run_release(&r);
        view_sh(&b, &r, "/v", "cat /v/key; test -e /etc/passwd && echo still; test -e /etc/key && echo covered", false);
        assert_string_equal(run_out(&r), "s3cretstill");
        run_release(&r);
        view_sh(&b, &r, "/plain", "cat /plain/key", false);
        assert_string_equal(run_out(&r), "s3cret");
        run_release(&r);
        view_sh(&b, &r, "/magic/x", "cat /x/key", false);
        assert_false(r.end.started);
        assert_int_equal(r.end.error.code, -ELOOP);
        run_release(&r);
        view_sh(&b, &r, "/proc/x", "true", false);
        assert_false(r.end.started);
        run_release(&r);
        box_destroy(&b);
}

static void results_are_read_when_all_stands(void **state) {
        struct box b;
        struct run r;
        struct streamed s;
        const struct sandbox_spec spec = session_spec();
        box_create(*state, &b, &spec);
        stream_start(&b, &s, "echo up; while :; do echo evil >/tmp/reward; done", NULL);
        s.want = 3;
        fixture_until(*state, &s.enough);
        view_sh(&b, &r, "/verifier", "echo 1 >/verifier/reward; echo out >/tmp/mine; (while :; do echo late >/verifier/late; done) & exit 0", true);
        assert_true(r.end.frozen);
        run_release(&r);
        read_by_helper(&b, &r, "verifier/reward", true);
        assert_string_equal(run_out(&r), "1");
        run_release(&r);
        read_by_helper(&b, &r, "tmp/mine", true);
        assert_string_equal(run_out(&r), "out");
        run_release(&r);
        read_by_helper(&b, &r, "verifier/reward", false);
        assert_int_equal(WEXITSTATUS(r.end.status), 2);
        run_release(&r);
        box_destroy(&b);
        stream_release(&s);
}

static void the_view_outlives_all_its_processes(void **state) {
        struct box b;
        struct run r;
        const struct sandbox_spec spec = session_spec();
        box_create(*state, &b, &spec);
        read_by_helper(&b, &r, "verifier/key", true);
        assert_false(r.end.started);
        assert_int_equal(r.end.error.code, -ENOENT);
        run_release(&r);
        view_sh(&b, &r, "/verifier", "echo 7 >/verifier/reward", true);
        run_release(&r);
        read_by_helper(&b, &r, "verifier/reward", true);
        assert_string_equal(run_out(&r), "7");
        run_release(&r);
        box_destroy(&b);           /* and does not keep it from going */
}

static void hundreds_of_files_fit(void **state) {
        struct box b;
        struct run r;
        struct file_pack p = FILE_PACK_INIT;
        const struct sandbox_spec spec = session_spec();
        box_create(*state, &b, &spec);
        for (int i = 0; i < 600; i++) {
                char name[32];
                snprintf(name, sizeof name, "d%d/f%d", i % 10, i);
                assert_int_equal(file_pack_add(&p, name, 0644, name, strlen(name)), 0);
        }
        assert_int_equal(file_pack_seal(&p), 0);
        const struct exec_view view = { .target = "/harness", .pack_fd = p.fd };
        const char *const argv[] = { "sh", "-c", "find /harness -type f | wc -l; cat /harness/d7/f597", NULL };
        struct exec_spec x = run_spec(&r, argv);
        x.view = &view;
        run_start(&b, &r, &x);
        run_wait(&b, &r);
        assert_string_equal(run_out(&r), "600\nd7/f597");
        run_release(&r);
        file_pack_release(&p);
        box_destroy(&b);
}

static void a_view_that_is_full_is_an_error_of_its_own(void **state) {
        struct box b;
        struct run r;
        struct file_pack p = FILE_PACK_INIT;
        static char big[3 << 20];
        const struct sandbox_spec spec = session_spec();
        box_create(*state, &b, &spec);
        assert_int_equal(file_pack_add(&p, "big", 0644, big, sizeof big), 0);
        assert_int_equal(file_pack_seal(&p), 0);
        const struct exec_view view = { .target = "/harness", .pack_fd = p.fd, .bytes = 1 << 20 };
        const char *const argv[] = { "true", NULL };
        struct exec_spec x = run_spec(&r, argv);
        x.view = &view;
        run_start(&b, &r, &x);
        run_wait(&b, &r);
        assert_false(r.end.started);
        assert_int_equal(r.end.error.code, -ENOSPC);
        assert_non_null(strstr(r.end.error.text, "fill the view"));
        run_release(&r);
        file_pack_release(&p);
        box_destroy(&b);
}

static void a_read_only_view_and_a_place_for_output(void **state) {
        struct box b;
        struct run r;
        struct file_pack p = FILE_PACK_INIT;
        const struct sandbox_spec spec = session_spec();
        box_create(*state, &b, &spec);
        run_sh(&b, &r, "mkdir /out; echo old >/out/old");
        run_release(&r);
        const struct exec_view view = { .target = "/verifier", .pack_fd = pack(&p), .read_only = true, .output = "/out" };
        const char *const argv[] = { "sh", "-c", "cat /verifier/key 2>&1; cat /verifier/sub/dir/data; echo; touch /verifier/new /verifier/key 2>/dev/null || echo closed; rm /verifier/key 2>/dev/null || echo kept; "
                                     "mount -o remount,rw /verifier 2>/dev/null || echo stays; ls -A /out; echo x >/out/new; stat -c %a /out; id -u", NULL };
        struct exec_spec x = run_spec(&r, argv);
        x.view = &view;
        x.uid = x.gid = 1000;
        run_start(&b, &r, &x);
        run_wait(&b, &r);
        assert_string_equal(run_out(&r), "cat: /verifier/key: Permission denied\nd\nclosed\nkept\nstays\n777\n1000");
        run_release(&r);
        x = run_spec(&r, argv);
        x.view = &view;
        run_start(&b, &r, &x);
        run_wait(&b, &r);
        assert_string_equal(run_out(&r), "s3cretd\nclosed\nkept\nstays\n777\n0");      /* another run's output is not there */
        run_release(&r);
        read_by_helper(&b, &r, "/out/new", true);
        assert_string_equal(run_out(&r), "x");
        run_release(&r);
        read_by_helper(&b, &r, "/out/old", false);
        assert_string_equal(run_out(&r), "old");
        run_release(&r);
        file_pack_release(&p);
        box_destroy(&b);
}

static void some_combinations_are_refused(void **state) {
        struct box b;
        struct run r;
        const struct sandbox_spec spec = session_spec();
        box_create(*state, &b, &spec);
        const char *const argv[] = { "true", NULL };
        static const char *const targets[] = { "relative", "/", "/a/../b", "/a//b" };
        for (size_t i = 0; i < ARRAY_SIZE(targets) + 2; i++) {
                const struct exec_view view = { .target = i < ARRAY_SIZE(targets) ? targets[i] : "/ok", .pack_fd = -1 };
                struct exec_spec x = run_spec(&r, argv);
                x.view = i == ARRAY_SIZE(targets) + 1 ? NULL : &view;
                x.helper = i == ARRAY_SIZE(targets);
                x.in_view = i == ARRAY_SIZE(targets) + 1;      /* not a helper */
                run_start(&b, &r, &x);
                run_wait(&b, &r);
                assert_false(r.end.started);
                assert_int_equal(r.end.error.code, -EINVAL);
                run_release(&r);
        }
        static const char *const outputs[] = { "/ok", "/ok/below", "/", "out", "/a/../b" };
        for (size_t i = 0; i < ARRAY_SIZE(outputs); i++) {
                const struct exec_view view = { .target = i ? "/ok" : "/ok/below", .pack_fd = -1, .output = outputs[i] };
                struct exec_spec x = run_spec(&r, argv);
                x.view = &view;
                run_start(&b, &r, &x);
                run_wait(&b, &r);
                assert_int_equal(r.end.error.code, -EINVAL);
                run_release(&r);
        }
        box_destroy(&b);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(files_are_there_for_it_and_writable),
                cmocka_unit_test(nobody_else_sees_it),
                cmocka_unit_test(links_in_the_way_stay_within),
                cmocka_unit_test(results_are_read_when_all_stands),
                cmocka_unit_test(the_view_outlives_all_its_processes),
                cmocka_unit_test(hundreds_of_files_fit),
                cmocka_unit_test(a_view_that_is_full_is_an_error_of_its_own),
                cmocka_unit_test(a_read_only_view_and_a_place_for_output), cmocka_unit_test(some_combinations_are_refused),
        };
        return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
