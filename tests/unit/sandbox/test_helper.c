/* Brig's own program inside: where it stands, what it sees, what it may. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fs.h"
#include "sandbox/fixture.h"

static void help(struct box *b, struct run *r, const char *const *argv) {
        struct exec_spec x = run_spec(r, argv);
        x.helper = true;
        run_start(b, r, &x);
        run_wait(b, r);
}

static void it_removes_a_hostile_tree(void **state) {
        struct box b;
        struct run r;
        const struct sandbox_spec spec = box_spec();
        box_create(*state, &b, &spec);
        run_sh(&b, &r, "mkdir -p /box/a/b; cd /box; ln -s / a/root; ln -s /etc a/b/etc; mkfifo a/pipe; mkdir a/locked; touch a/locked/x; chmod 000 a/locked; "
                       "/usr/bin/python3 -c \"import os\nos.chdir('/box/a')\nfor i in range(3000): os.mkdir('d'); os.chdir('d')\"; echo made");
        assert_string_equal(run_out(&r), "made");
        run_release(&r);
        const char *const argv[] = { "remove-tree", "/box", NULL };
        help(&b, &r, argv);
        assert_string_equal(run_err(&r), "");
        assert_int_equal(r.end.status, 0);
        run_release(&r);
        run_sh(&b, &r, "ls -d /box 2>/dev/null; ls /etc/passwd; ls -d /bin/.");
        assert_string_equal(run_out(&r), "/etc/passwd\n/bin/.");
        run_release(&r);
        box_destroy(&b);
}

static void it_does_not_follow_a_link_on_the_way(void **state) {
        struct box b;
        struct run r;
        const struct sandbox_spec spec = box_spec();
        box_create(*state, &b, &spec);
        run_sh(&b, &r, "ln -s /etc /box");
        run_release(&r);
        const char *const argv[] = { "remove-tree", "/box/passwd", NULL };
        help(&b, &r, argv);
        assert_int_not_equal(r.end.status, 0);
        run_release(&r);
        run_sh(&b, &r, "ls /etc/passwd");
        assert_string_equal(run_out(&r), "/etc/passwd");
        run_release(&r);
        box_destroy(&b);
}

static void it_sees_the_base_without_what_was_written(void **state) {
        struct box b;
        struct run r;
        const struct sandbox_spec spec = box_spec();
        box_create(*state, &b, &spec);
        run_sh(&b, &r, "echo changed > /etc/hostname; echo new > /etc/brig-new");
        run_release(&r);
        static const char *const script[] = {
                "read-file", "root", "etc/hostname", NULL, "read-file", "base", "etc/hostname", NULL, "read-file", "base", "etc/brig-new", NULL, "read-file", "root", "etc/brig-new", NULL,
        };
        static const char *const want[] = { "changed", "brig", "", "new" };
        for (int i = 0; i < 4; i++) {
                help(&b, &r, script + 4 * i);
                assert_string_equal(run_out(&r), want[i]);
                run_release(&r);
        }
        box_destroy(&b);
}

static void it_is_not_seen_inside_and_ends_with_the_sandbox(void **state) {
        struct box b;
        struct run r, see;
        const struct sandbox_spec spec = box_spec();
        box_create(*state, &b, &spec);
        int p[2];
        assert_int_equal(pipe2(p, O_CLOEXEC), 0);
        const char *const argv[] = { "wait", NULL };
        struct exec_spec x = run_spec(&r, argv);
        x.helper = true;
        x.stdin_fd = p[0];
        run_start(&b, &r, &x);
        while (r.out.total == 0)               /* it says that it is there */
                uv_run(&b.f->loop, UV_RUN_ONCE);
        run_sh(&b, &see, "until grep -q '^init$' /proc/1/comm; do :; done; cat /proc/[0-9]*/comm > /tmp/seen; grep -c helper /tmp/seen; grep -c init /tmp/seen");
        assert_string_equal(run_out(&see), "0\n1");
        run_release(&see);
        assert_false(r.exited);
        box_destroy(&b);
        assert_true(r.exited);
        run_release(&r);
        close(p[0]);
        close(p[1]);
}

static void an_unknown_verb_is_said(void **state) {
        struct box b;
        struct run r;
        const struct sandbox_spec spec = box_spec();
        box_create(*state, &b, &spec);
        const char *const argv[] = { "no-such-verb", NULL };
        help(&b, &r, argv);
        assert_int_equal(WEXITSTATUS(r.end.status), 64);
        run_release(&r);
        box_destroy(&b);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(it_removes_a_hostile_tree),
                cmocka_unit_test(it_does_not_follow_a_link_on_the_way),
                cmocka_unit_test(it_sees_the_base_without_what_was_written),
                cmocka_unit_test(it_is_not_seen_inside_and_ends_with_the_sandbox),
                cmocka_unit_test(an_unknown_verb_is_said),
        };
        return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
