/* Directories of workspaces, mounted in a standing sandbox. */
#include <string.h>
#include <sys/stat.h>

#include "base/macros.h"
#include "sandbox/fixture.h"

struct answer { bool done; int r; };

static void answered(struct sandbox *s, int r, void *user) { *(struct answer *)user = (struct answer){ true, r }; }

static int mount_at(struct box *b, const char *path, const char *target, bool writable) {
        struct answer a = { 0 };
        const struct sandbox_bind bind = { .path = path, .target = target, .writable = writable };
        int r = sandbox_mount(b->sandbox, &bind, answered, &a);
        if (r < 0)
                return r;
        fixture_until(b->f, &a.done);
        return a.r;
}

static void open_box(void **state, struct box *b) {
        struct sandbox_spec spec = box_spec();
        spec.profile = PROFILE_RLM;
        box_create(*state, b, &spec);
}

/* As uid 1000 inside. */
static void user_sh(struct box *b, struct run *r, const char *script) {
        const char *const argv[] = { "/bin/sh", "-c", script, NULL };
        struct exec_spec x = run_spec(r, argv);
        x.uid = x.gid = SANDBOX_USER;
        run_start(b, r, &x);
        run_wait(b, r);
}

static void says(struct box *b, const char *script, const char *expected) {
        struct run r;
        user_sh(b, &r, script);
        assert_string_equal(run_out(&r), expected);
        run_release(&r);
}

static void files_outlive_the_sandbox_and_stay_the_users(void **state) {
        struct box a, b;
        open_box(state, &a);
        open_box(state, &b);                   /* its ids are others */
        assert_int_equal(mount_at(&a, "tenant/one/sessions/s/workspace", "/workspace", true), 0);
        says(&a, "cd /workspace && echo kept > file && stat -c '%u %g' . file", "1000 1000\n1000 1000");
        box_destroy(&a);
        assert_int_equal(mount_at(&b, "tenant/one/sessions/s/workspace", "/workspace", true), 0);
        says(&b, "cat /workspace/file && stat -c '%u %g' /workspace/file && echo more >> /workspace/file && cat /workspace/file", "kept\n1000 1000\nkept\nmore");
        box_destroy(&b);
}

static void on_disk_nothing_is_anybodys_on_the_host(void **state) {
        struct fixture *f = *state;
        struct box b;
        struct stat st;
        char path[256];
        open_box(state, &b);
        assert_int_equal(mount_at(&b, "owners/w", "/workspace", true), 0);
        says(&b, "echo x > /workspace/file", "");
        snprintf(path, sizeof path, "%s/workspaces", f->home);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_uid, 0);
        assert_int_equal(st.st_mode & 07777, 0700);
        snprintf(path, sizeof path, "%s/workspaces/owners/w/file", f->home);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_uid % 65536, SANDBOX_USER);
        assert_true(st.st_uid >= 65536);
        box_destroy(&b);
}

static void who_runs_already_sees_it(void **state) {
        struct box b;
        struct run r;
        open_box(state, &b);
        const char *const argv[] = { "/bin/sh", "-c", "read x; cd /deep/er/place && echo here > $x && ls", NULL };
        struct exec_spec x = run_spec(&r, argv);
        x.stdin_pipe = true;
        x.uid = x.gid = SANDBOX_USER;
        run_start(&b, &r, &x);
        assert_int_equal(mount_at(&b, "seen/w", "/deep/er/place", true), 0);
        assert_int_equal(exec_write(r.exec, "name\n", 5), 5);
        run_wait(&b, &r);
        assert_string_equal(run_out(&r), "name");
        run_release(&r);
        box_destroy(&b);
}

static void nothing_else_of_the_disk_is_seen(void **state) {
        struct box b;
        open_box(state, &b);
        assert_int_equal(mount_at(&b, "mine/w", "/workspace", true), 0);
        assert_int_equal(mount_at(&b, "others/secret", "/other", true), 0);
        says(&b, "ls -A /workspace; ls -d /workspace/../etc", "/workspace/../etc");
        says(&b, "ls /workspace/../secret 2>/dev/null; echo $?", "2");
        box_destroy(&b);
}

static void one_to_read_cannot_be_written(void **state) {
        struct box b;
        open_box(state, &b);
        assert_int_equal(mount_at(&b, "ro/w", "/rw", true), 0);
        says(&b, "echo x > /rw/file", "");
        assert_int_equal(mount_at(&b, "ro/w", "/ro", false), 0);
        says(&b, "cat /ro/file; echo y > /ro/file || echo refused; mv /ro/file /ro/g || echo refused", "x\nrefused\nrefused");
        box_destroy(&b);
}

static void programs_of_it_get_no_privilege_and_devices_none(void **state) {
        struct box b;
        open_box(state, &b);
        assert_int_equal(mount_at(&b, "flags/w", "/workspace", true), 0);
        says(&b, "grep ' /workspace ' /proc/self/mountinfo | grep -o 'nosuid,nodev'", "nosuid,nodev");
        box_destroy(&b);
}

static void no_link_in_a_workspace_is_followed(void **state) {
        struct box b;
        open_box(state, &b);
        assert_int_equal(mount_at(&b, "links/w", "/workspace", true), 0);
        says(&b, "cd /workspace && ln -s /etc sessions && ln -s .. up && echo x > file", "");
        assert_int_equal(mount_at(&b, "links/w/sessions/s", "/m1", true), -ENOTDIR);
        assert_int_equal(mount_at(&b, "links/w/up", "/m2", true), -ENOTDIR);
        assert_int_equal(mount_at(&b, "links/w/file", "/m3", true), -ENOTDIR);
        says(&b, "ls -d /m1 /m2 /m3 2>/dev/null; echo done", "done");
        box_destroy(&b);
}

static void no_link_on_the_way_to_the_place_is_followed(void **state) {
        struct box b;
        struct run r;
        open_box(state, &b);
        run_sh(&b, &r, "ln -s /etc /link && echo x > /file");
        run_release(&r);
        assert_int_equal(mount_at(&b, "target/w", "/link", true), -ENOTDIR);
        assert_int_equal(mount_at(&b, "target/w", "/link/x", true), -ENOTDIR);
        assert_int_equal(mount_at(&b, "target/w", "/file", true), -ENOTDIR);
        says(&b, "test -e /etc/passwd && echo whole; test -e /etc/x || echo clean", "whole\nclean");
        box_destroy(&b);
}

static void names_that_are_none_are_refused(void **state) {
        static const char *const bad[] = { "", "/", "/abs", "a/", "a//b", ".", "..", "a/../b", ".hidden", "a/.b", "a b", "a\nb", "a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q" };
        struct box b;
        open_box(state, &b);
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
                assert_int_equal(mount_at(&b, bad[i], "/workspace", true), -EINVAL);
        assert_int_equal(mount_at(&b, "a", "relative", true), -EINVAL);
        assert_int_equal(mount_at(&b, "a", "/", true), -EINVAL);
        assert_int_equal(mount_at(&b, "a", "/a/../b", true), -EINVAL);
        box_destroy(&b);
}

static void there_is_a_limit_and_the_next_is_refused(void **state) {
        struct box b;
        char target[32];
        open_box(state, &b);
        for (unsigned i = 0; i < SANDBOX_MOUNTS_MAX; i++) {
                snprintf(target, sizeof target, "/m%u", i);
                assert_int_equal(mount_at(&b, "many/w", target, true), 0);
        }
        assert_int_equal(mount_at(&b, "many/w", "/more", true), -ENOSPC);
        box_destroy(&b);
}

static void only_the_runtimes_sandboxes_get_one(void **state) {
        struct box b;
        struct sandbox_spec spec = box_spec();
        spec.profile = PROFILE_SCORE;
        box_create(*state, &b, &spec);
        assert_int_equal(mount_at(&b, "a/w", "/workspace", true), -EPERM);
        box_destroy(&b);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(files_outlive_the_sandbox_and_stay_the_users), cmocka_unit_test(on_disk_nothing_is_anybodys_on_the_host),
                cmocka_unit_test(who_runs_already_sees_it), cmocka_unit_test(nothing_else_of_the_disk_is_seen), cmocka_unit_test(one_to_read_cannot_be_written),
                cmocka_unit_test(programs_of_it_get_no_privilege_and_devices_none), cmocka_unit_test(no_link_in_a_workspace_is_followed),
                cmocka_unit_test(no_link_on_the_way_to_the_place_is_followed), cmocka_unit_test(names_that_are_none_are_refused),
                cmocka_unit_test(there_is_a_limit_and_the_next_is_refused), cmocka_unit_test(only_the_runtimes_sandboxes_get_one),
        };
        return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
