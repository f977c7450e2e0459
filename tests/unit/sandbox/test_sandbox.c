/* A sandbox from create to gone: what runs in it, what comes out of it. */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "base/fs.h"
#include "sandbox/fixture.h"

static void output_and_status_come_back(void **state) {
        struct box b;
        struct run r;
        const struct sandbox_spec spec = box_spec();
        box_create(*state, &b, &spec);
        run_sh(&b, &r, "echo hello; echo oops >&2; exit 7");
        assert_true(r.end.started);
        assert_string_equal(run_out(&r), "hello");
        assert_string_equal(run_err(&r), "oops");
        assert_true(WIFEXITED(r.end.status));
        assert_int_equal(WEXITSTATUS(r.end.status), 7);
        run_release(&r);
        box_destroy(&b);
}

static void a_signal_is_told_from_a_status(void **state) {
        struct box b;
        struct run r;
        const struct sandbox_spec spec = box_spec();
        box_create(*state, &b, &spec);
        run_sh(&b, &r, "kill -TERM $$");
        assert_true(WIFSIGNALED(r.end.status));
        assert_int_equal(WTERMSIG(r.end.status), SIGTERM);
        run_release(&r);
        box_destroy(&b);
}

static void a_program_that_is_not_there_did_not_start(void **state) {
        struct box b;
        struct run r;
        const struct sandbox_spec spec = box_spec();
        const char *const argv[] = { "no-such-program", NULL };
        box_create(*state, &b, &spec);
        const struct exec_spec x = run_spec(&r, argv);
        run_start(&b, &r, &x);
        run_wait(&b, &r);
        assert_false(r.end.started);
        assert_int_equal(r.end.error.code, -ENOENT);
        run_release(&r);
        box_destroy(&b);
}

static void the_environment_is_exactly_what_was_given(void **state) {
        struct box b;
        struct run r;
        const struct sandbox_spec spec = box_spec();
        setenv("BRIG_TEST_SECRET", "s3cret", 1);
        box_create(*state, &b, &spec);
        const char *const argv[] = { "/usr/bin/env", NULL }, *const env[] = { "A=1", "B=two words", NULL };
        struct exec_spec x = run_spec(&r, argv);
        x.env = env;
        run_start(&b, &r, &x);
        run_wait(&b, &r);
        assert_string_equal(run_out(&r), "A=1\nB=two words");
        run_release(&r);
        box_destroy(&b);
}

static void init_has_no_environment_and_says_nothing(void **state) {
        struct box b;
        struct run r;
        const struct sandbox_spec spec = box_spec();
        box_create(*state, &b, &spec);
        run_sh(&b, &r, "until grep -q init /proc/1/cmdline; do :; done; cat /proc/1/environ | wc -c; tr '\\0' ' ' < /proc/1/cmdline");
        assert_null(strstr(run_out(&r), "SECRET"));
        assert_string_equal(run_out(&r), "0\ninit ");
        run_release(&r);
        box_destroy(&b);
}

static void working_directory_and_ids_are_as_asked(void **state) {
        struct box b;
        struct run r;
        const struct sandbox_spec spec = box_spec();
        box_create(*state, &b, &spec);
        const char *const argv[] = { "sh", "-c", "pwd; id -u; id -g; touch /tmp/mine; stat -c %u /tmp/mine", NULL };
        struct exec_spec x = run_spec(&r, argv);
        x.cwd = "/usr/share";
        x.uid = 1000;
        x.gid = 1001;
        run_start(&b, &r, &x);
        run_wait(&b, &r);
        assert_string_equal(run_out(&r), "/usr/share\n1000\n1001\n1000");
        run_release(&r);
        box_destroy(&b);
}

static void descriptors_arrive_at_their_numbers_and_no_others(void **state) {
        struct box b;
        struct run r;
        const struct sandbox_spec spec = box_spec();
        box_create(*state, &b, &spec);
        int in = fs_memfd("in", "from stdin\n", 11), extra = fs_memfd("extra", "from nine\n", 10);
        const struct exec_fd fds[] = { { extra, 9 } };
        const char *const argv[] = { "sh", "-c", "cat; cat <&9; ls -m /proc/self/fd", NULL };
        struct exec_spec x = run_spec(&r, argv);
        x.stdin_fd = in;
        x.fds = fds;
        x.n_fds = 1;
        run_start(&b, &r, &x);
        run_wait(&b, &r);
        /* 3 is the directory that ls reads. */
        assert_string_equal(run_out(&r), "from stdin\nfrom nine\n0, 1, 2, 3, 9");
        run_release(&r);
        close(in);
        close(extra);
        box_destroy(&b);
}

static void both_streams_may_share_a_capture(void **state) {
        struct box b;
        struct run r;
        const struct sandbox_spec spec = box_spec();
        box_create(*state, &b, &spec);
        const char *const argv[] = { "sh", "-c", "echo 1; echo 2 >&2; echo 3", NULL };
        struct exec_spec x = run_spec(&r, argv);
        x.err = x.out;
        run_start(&b, &r, &x);
        run_wait(&b, &r);
        assert_string_equal(run_out(&r), "1\n2\n3");
        run_release(&r);
        box_destroy(&b);
}

static void execs_run_side_by_side(void **state) {
        struct box b;
        struct run r[4];
        const struct sandbox_spec spec = box_spec();
        box_create(*state, &b, &spec);
        /* Each waits for the one before it: none would end if they ran one after the other. */
        static const char *const scripts[] = {
                "cd /tmp; mkfifo a b c; touch ready; cat a; echo 0", "cd /tmp; while ! [ -e ready ]; do :; done; echo x > a; cat b; echo 1",
                "cd /tmp; while ! [ -e ready ]; do :; done; echo x > b; cat c; echo 2", "cd /tmp; while ! [ -e ready ]; do :; done; echo x > c; echo 3",
        };
        for (int i = 3; i >= 0; i--) {
                const char *const argv[] = { "sh", "-c", scripts[i], NULL };
                const struct exec_spec x = run_spec(&r[i], argv);
                run_start(&b, &r[i], &x);
        }
        static const char *const want[] = { "x\n0", "x\n1", "x\n2", "3" };
        for (int i = 0; i < 4; i++) {
                run_wait(&b, &r[i]);
                assert_string_equal(run_out(&r[i]), want[i]);
                run_release(&r[i]);
        }
        box_destroy(&b);
}

static void files_appear_below_run_brig(void **state) {
        struct box b;
        struct run r;
        struct sandbox_spec spec = box_spec();
        int text = fs_memfd("t", "hello\n", 6), script = fs_memfd("s", "#!/bin/sh\necho ran\n", 19);
        const struct sandbox_file files[] = { { "text", text, 0444 }, { "script", script, 0555 } };
        spec.files = files;
        spec.n_files = 2;
        box_create(*state, &b, &spec);
        run_sh(&b, &r, "cat /run/brig/text; /run/brig/script; (echo x > /run/brig/text) 2>/dev/null; (rm -f /run/brig/text) 2>/dev/null; cat /run/brig/text");
        assert_string_equal(run_out(&r), "hello\nran\nhello");
        run_release(&r);
        close(text);
        close(script);
        box_destroy(&b);
}

static void a_source_directory_is_read_only_and_read_as_a_stranger(void **state) {
        struct box b;
        struct run r;
        struct sandbox_spec spec = box_spec();
        char dir[] = "/tmp/brig-source-XXXXXX", path[64];
        assert_non_null(mkdtemp(dir));
        snprintf(path, sizeof path, "%s/file", dir);
        int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        assert_int_equal(write(file, "theirs\n", 7), 7);
        close(file);
        char secret[64];
        snprintf(secret, sizeof secret, "%s/secret", dir);
        close(open(secret, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
        assert_int_equal(chmod(dir, 0755), 0);
        int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
        const struct sandbox_mount mounts[] = { { .class = MOUNT_SOURCE, .fd = fd, .target = "/mnt/a/b" } };
        spec.mounts = mounts;
        spec.n_mounts = 1;
        box_create(*state, &b, &spec);
        run_sh(&b, &r, "cat /mnt/a/b/file; stat -c %u /mnt/a/b/file; cat /mnt/a/b/secret 2>/dev/null || echo refused; "
                       "(echo x > /mnt/a/b/new) 2>/dev/null; ls /mnt/a/b");
        assert_string_equal(run_out(&r), "theirs\n65534\nrefused\nfile\nsecret");
        run_release(&r);
        box_destroy(&b);
        close(fd);
        unlink(path);
        unlink(secret);
        rmdir(dir);
}

static void the_host_image_has_its_tools(void **state) {
        struct box b;
        struct run r;
        const struct sandbox_spec spec = box_spec();
        box_create(*state, &b, &spec);
        run_sh(&b, &r, "/usr/bin/python3 -c 'import json; print(json.dumps([1]))'; git --version | cut -d' ' -f1; id -un; hostname; "
                       "dpkg -s base-files | head -1; getent hosts localhost | head -c 3; df /dev/shm >/dev/null && echo shm; [ -t 0 ] || echo x >/dev/null");
        assert_string_equal(run_out(&r), "[1]\ngit\nroot\nbrig\nPackage: base-files\n::1shm");
        run_release(&r);
        box_destroy(&b);
}

static void root_inside_may_write_anywhere_and_nothing_reaches_the_host(void **state) {
        struct box b;
        struct run r;
        const struct sandbox_spec spec = box_spec();
        box_create(*state, &b, &spec);
        run_sh(&b, &r, "echo x > /usr/brig-test-mark && echo x > /etc/brig-test-mark && rm /usr/bin/env && chown 5:6 /usr/share/doc && echo done");
        assert_string_equal(run_out(&r), "done");
        assert_int_equal(access("/usr/brig-test-mark", F_OK), -1);
        assert_int_equal(access("/etc/brig-test-mark", F_OK), -1);
        assert_int_equal(access("/usr/bin/env", F_OK), 0);
        run_release(&r);
        box_destroy(&b);
        /* Nor the next sandbox. */
        box_create(*state, &b, &spec);
        run_sh(&b, &r, "ls /usr/brig-test-mark /usr/bin/env 2>/dev/null");
        assert_string_equal(run_out(&r), "/usr/bin/env");
        run_release(&r);
        box_destroy(&b);
}

static void on_exited(struct sandbox_exec *x, const struct exec_end *end, void *user) {
        struct run *r = user;
        r->exited = true;
        r->end = *end;
}

static void a_single_command_may_be_pid_1(void **state) {
        struct fixture *f = *state;
        struct box b = { .f = f };
        struct run r;
        struct error e;
        const struct sandbox_spec spec = box_spec();
        const char *const argv[] = { "sh", "-c", "echo $$; exit 3", NULL };
        const struct exec_spec x = run_spec(&r, argv);
        assert_int_equal(sandbox_create_direct(f->spawner, &spec, &box_callbacks, &b, &x, on_exited, &r, &b.sandbox, &r.exec, &e), 0);
        run_wait(&b, &r);
        assert_string_equal(run_out(&r), "1");
        assert_int_equal(WEXITSTATUS(r.end.status), 3);
        box_destroy(&b);
        run_release(&r);
}

static void a_single_command_that_is_not_there_fails_the_sandbox(void **state) {
        struct fixture *f = *state;
        struct box b = { .f = f };
        struct run r;
        struct error e;
        const struct sandbox_spec spec = box_spec();
        const char *const argv[] = { "/no/such", NULL };
        const struct exec_spec x = run_spec(&r, argv);
        assert_int_equal(sandbox_create_direct(f->spawner, &spec, &box_callbacks, &b, &x, on_exited, &r, &b.sandbox, &r.exec, &e), 0);
        fixture_until(f, &b.gone);
        assert_true(r.exited && !r.end.started && b.failed);
        assert_int_equal(r.end.error.code, -ENOENT);
        assert_string_equal(b.step, "execute");
        run_release(&r);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(output_and_status_come_back),
                cmocka_unit_test(a_signal_is_told_from_a_status),
                cmocka_unit_test(a_program_that_is_not_there_did_not_start),
                cmocka_unit_test(the_environment_is_exactly_what_was_given),
                cmocka_unit_test(init_has_no_environment_and_says_nothing),
                cmocka_unit_test(working_directory_and_ids_are_as_asked),
                cmocka_unit_test(descriptors_arrive_at_their_numbers_and_no_others),
                cmocka_unit_test(both_streams_may_share_a_capture),
                cmocka_unit_test(execs_run_side_by_side),
                cmocka_unit_test(files_appear_below_run_brig),
                cmocka_unit_test(a_source_directory_is_read_only_and_read_as_a_stranger),
                cmocka_unit_test(the_host_image_has_its_tools),
                cmocka_unit_test(root_inside_may_write_anywhere_and_nothing_reaches_the_host),
                cmocka_unit_test(a_single_command_may_be_pid_1),
                cmocka_unit_test(a_single_command_that_is_not_there_fails_the_sandbox),
        };
        return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
