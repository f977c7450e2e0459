/* Each facility that a kernel may lack and sandboxes do without: forced missing, and what must hold all the same. Needs root. */
#include "sandbox/fixture.h"

#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fs.h"
#include "sandbox/facilities.h"
#include "sandbox/mounts.h"

/* The spawner reads the environment when it starts; the test's own table is probed anew too. */
static struct fixture *without(const char *names) {
        struct fixture *f = NULL;
        setenv("BRIG_FORCE_MISSING", names, 1);
        facilities_forget();
        assert_int_equal(fixture_setup((void **)&f), 0);
        unsetenv("BRIG_FORCE_MISSING");
        facilities_forget();
        return f;
}

/* Commands run, are bounded, and all of it goes. */
static void lives(const char *names) {
        struct fixture *f = without(names);
        struct box b;
        struct run r;
        struct sandbox_spec spec = box_spec();
        spec.limits.pids = 16;
        box_create(f, &b, &spec);
        run_sh(&b, &r, "echo $$ >/tmp/pid; test -e /proc/$(cat /tmp/pid) && ls -d /proc/[0-9]* | wc -l | grep -qx '[1-9]' && echo well");
        assert_string_equal(run_out(&r), "well");
        run_release(&r);
        run_sh(&b, &r, "i=0; while [ $i -lt 40 ]; do sleep 600 & i=$((i+1)); done; exit 0");
        run_release(&r);
        box_destroy(&b);
        assert_true(b.end.hit[LIMIT_PIDS]);    /* its processes are in its group, however they came there */
        fixture_teardown((void **)&f);
}

static void without_clone_into_cgroup_processes_join_their_group(void **state) { lives("clone-into-cgroup"); }
static void without_cgroup_kill_groups_are_frozen_and_killed(void **state) { lives("cgroup-kill"); }
static void without_detached_sources_mounts_are_attached_meanwhile(void **state) { lives("detached-source"); }
static void without_landlock_the_namespaces_hold(void **state) { lives("landlock"); }
static void without_all_of_them_too(void **state) { lives("clone-into-cgroup,cgroup-kill,detached-source,overlay-append,landlock,launcher"); }

static void without_sk_lookup_the_network_allow_is_refused(void **state) {
        struct fixture *f = without("sk-lookup");
        struct box b = { .f = f };
        struct error e = { 0 };
        struct sandbox_spec spec = box_spec();
        spec.network = NETWORK_ALLOW;
        int r = sandbox_create(f->spawner, &spec, &box_callbacks, &b, &b.sandbox, &e);
        if (r == 0) {
                fixture_until(f, &b.failed);
                e = b.error;
                box_destroy(&b);
        }
        assert_int_equal(e.code, -EOPNOTSUPP);
        spec.network = NETWORK_NONE;
        box_create(f, &b, &spec);
        box_destroy(&b);
        fixture_teardown((void **)&f);
}

/* ---- many lowers ---- */

#define LOWERS 100

/* Of each lower there is a file of its name, and "top" of all. */
static int many_lowers(const char *top) {
        int lowers[LOWERS];
        char path[128];
        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || mount("none", top, "tmpfs", 0, NULL) < 0)
                return 10;
        for (int i = 0; i < LOWERS; i++) {
                snprintf(path, sizeof path, "%s/l%d", top, i);
                if (mkdir(path, 0755) < 0 || (lowers[i] = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC)) < 0)
                        return 11;
                snprintf(path, sizeof path, "f%d", i);
                if (fs_write_atomic(lowers[i], path, "x", 1, 0644) < 0 || fs_write_atomic(lowers[i], "top", i ? "below" : "first", 5, 0644) < 0)
                        return 12;
        }
        _cleanup_close_ int fd = mount_overlay(lowers, LOWERS, -1, NULL, NULL, MOUNTS_INHERIT);
        if (fd < 0)
                return 13;
        _cleanup_buf_ struct buf b = BUF_INIT(64);
        if (fs_read_file(fd, "top", &b) < 0 || strcmp(buf_str(&b), "first") != 0)
                return 14;
        for (int i = 0; i < LOWERS; i++) {
                snprintf(path, sizeof path, "f%d", i);
                if (faccessat(fd, path, F_OK, 0) < 0)
                        return 15;
        }
        return faccessat(AT_FDCWD, MOUNT_PARK "/overlay/top", F_OK, 0) < 0 ? 0 : 16;        /* the place is free again */
}

static void overlay_of_many_lowers(const char *missing) {
        char top[] = "/tmp/brig-test-XXXXXX";
        int status;
        assert_non_null(mkdtemp(top));
        pid_t pid = fork();
        if (pid == 0) {
                setenv("BRIG_FORCE_MISSING", missing, 1);
                facilities_forget();
                _exit(many_lowers(top));
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        assert_int_equal(rmdir(top), 0);
}

static void without_overlay_append_many_layers_are_mounted_by_the_old_call(void **state) { overlay_of_many_lowers("overlay-append"); }
static void both_calls_make_the_same_overlay(void **state) { overlay_of_many_lowers(""); }

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(without_clone_into_cgroup_processes_join_their_group),
                cmocka_unit_test(without_cgroup_kill_groups_are_frozen_and_killed),
                cmocka_unit_test(without_detached_sources_mounts_are_attached_meanwhile),
                cmocka_unit_test(without_landlock_the_namespaces_hold),
                cmocka_unit_test(without_all_of_them_too),
                cmocka_unit_test(without_sk_lookup_the_network_allow_is_refused),
                cmocka_unit_test(without_overlay_append_many_layers_are_mounted_by_the_old_call),
                cmocka_unit_test(both_calls_make_the_same_overlay),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
