#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"
#include "sandbox/cgroup_backend.h"
#include "sandbox/disk.h"
#include "sandbox/facilities.h"

static int fresh(void **state) {
        unsetenv("BRIG_FORCE_MISSING");
        facilities_forget();
        return 0;
}

/* Privileged tests never skip: a machine that runs them must be able to run sandboxes. */
static void this_machine_suffices(void **state) {
        const struct facilities *f = facilities_get();
        for (int i = 0; i < FACILITY_MAX; i++)
                if (facility_required(i) && f->row[i].state == FACILITY_MISSING)
                        fail_msg("%s: %s", facility_to_string(i), f->row[i].detail);
        assert_true(facilities_sufficient(f));
        assert_true(f->root);
}

/* In a new PID namespace, like a spawner: its numbers are those of every other daemon's. */
static int probe_beside_groups_of_others(void) {
        struct cg_mounts m;
        if (cg_find_mounts(&m) < 0)
                return 2;
        char path[400];
        int made = 0;
        for (int h = 0; h < CG_HIERARCHY_MAX; h++)
                for (int i = 1; i < 30 && m.path[h][0]; i++) {
                        snprintf(path, sizeof path, "%s/brig-probe-%d", m.path[h], i);
                        made += mkdir(path, 0755) == 0;
                }
        facilities_forget();
        int r = made > 0 && facility_ok(FACILITY_CGROUP) ? 0 : 1;
        for (int h = 0; h < CG_HIERARCHY_MAX; h++)
                for (int i = 1; i < 30 && m.path[h][0]; i++) {
                        snprintf(path, sizeof path, "%s/brig-probe-%d", m.path[h], i);
                        rmdir(path);
                }
        return r;
}

static void probing_beside_another_daemon_that_probes_finds_the_same(void **state) {
        pid_t outer = fork();
        if (outer == 0) {
                pid_t inner = unshare(CLONE_NEWPID | CLONE_NEWNS) < 0 ? -1 : fork();
                if (inner == 0) {
                        /* The probes ask the /proc of their PID namespace, and /proc/self/cgroup is there too. */
                        if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || mount("proc", "/proc", "proc", 0, NULL) < 0)
                                _exit(3);
                        _exit(probe_beside_groups_of_others());
                }
                int status = -1;
                waitpid(inner, &status, 0);
                _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 4);
        }
        int status = -1;
        assert_int_equal(waitpid(outer, &status, 0), outer);
        assert_int_equal(status, 0);
}

static void what_is_forced_is_missing_and_nothing_else(void **state) {
        const struct facilities before = *facilities_get();
        setenv("BRIG_FORCE_MISSING", "landlock,no-such-thing,loop", 1);
        facilities_forget();
        const struct facilities *f = facilities_get();
        for (int i = 0; i < FACILITY_MAX; i++) {
                bool forced = i == FACILITY_LANDLOCK || i == FACILITY_LOOP;
                assert_int_equal(f->row[i].forced, forced);
                assert_int_equal(f->row[i].state, forced ? FACILITY_MISSING : before.row[i].state);
        }
        assert_false(facility_ok(FACILITY_LANDLOCK));
        assert_int_equal(facility_value(FACILITY_LANDLOCK), 0);
        assert_true(facilities_sufficient(f));
}

static void a_required_one_missing_is_not_sufficient(void **state) {
        setenv("BRIG_FORCE_MISSING", "seccomp", 1);
        assert_false(facilities_sufficient(facilities_get()));
}

static void the_table_is_probed_once(void **state) {
        facilities_get();
        setenv("BRIG_FORCE_MISSING", "seccomp", 1);
        assert_true(facility_ok(FACILITY_SECCOMP));
}

static void every_row_is_printed_with_what_is_lost(void **state) {
        setenv("BRIG_FORCE_MISSING", "loop", 1);
        _cleanup_buf_ struct buf text = BUF_INIT(65536), json = BUF_INIT(65536);
        assert_int_equal(facilities_print(facilities_get(), false, &text), 0);
        assert_int_equal(facilities_print(facilities_get(), true, &json), 0);
        for (int i = 0; i < FACILITY_MAX; i++) {
                char quoted[64];
                snprintf(quoted, sizeof quoted, "\"name\":\"%s\"", facility_to_string(i));
                assert_non_null(strstr(buf_str(&text), facility_to_string(i)));
                assert_non_null(strstr(buf_str(&json), quoted));
                assert_non_null(facility_loss(i));
        }
        assert_non_null(strstr(buf_str(&text), "missing   forced by BRIG_FORCE_MISSING; no disk-backed sandboxes"));
}

static void printing_stops_at_the_buffers_limit(void **state) {
        _cleanup_buf_ struct buf small = BUF_INIT(100);
        assert_int_equal(facilities_print(facilities_get(), false, &small), -ENOSPC);
        assert_int_equal(facilities_print(facilities_get(), true, &small), -ENOSPC);
}

static void disk_samples_see_blocks_and_inodes_run_out(void **state) {
        assert_int_equal(unshare(CLONE_NEWNS), 0);
        assert_int_equal(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
        assert_int_equal(mount("tmpfs", "/mnt", "tmpfs", 0, "size=1m,nr_inodes=200"), 0);
        int dir = open("/mnt", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        struct disk_sample s;
        assert_int_equal(disk_sample(dir, &s), 0);
        assert_false(s.full);
        assert_int_equal(s.used_bytes, 0);
        static char block[4096];
        int fd = openat(dir, "big", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        while (write(fd, block, sizeof block) > 0)
                ;
        assert_int_equal(disk_sample(dir, &s), 0);
        assert_true(s.full);
        assert_int_equal(s.used_bytes, 1024 * 1024);
        assert_int_equal(ftruncate(fd, 0), 0);
        fd_close(fd);
        assert_int_equal(disk_sample(dir, &s), 0);
        assert_false(s.full);
        char name[16];
        for (int i = 0;; i++) {
                snprintf(name, sizeof name, "%d", i);
                fd = openat(dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
                if (fd < 0)
                        break;
                fd_close(fd);
        }
        assert_int_equal(disk_sample(dir, &s), 0);
        assert_true(s.full);
        fd_close(dir);
        umount2("/mnt", MNT_DETACH);
        assert_int_equal(disk_sample(-1, &s), -EBADF);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup(this_machine_suffices, fresh),
                cmocka_unit_test_setup(probing_beside_another_daemon_that_probes_finds_the_same, fresh),
                cmocka_unit_test_setup(what_is_forced_is_missing_and_nothing_else, fresh),
                cmocka_unit_test_setup(a_required_one_missing_is_not_sufficient, fresh),
                cmocka_unit_test_setup(the_table_is_probed_once, fresh),
                cmocka_unit_test_setup(every_row_is_printed_with_what_is_lost, fresh),
                cmocka_unit_test_setup(printing_stops_at_the_buffers_limit, fresh),
                cmocka_unit_test_setup(disk_samples_see_blocks_and_inodes_run_out, fresh),
        };
        return cmocka_run_group_tests_name("sandbox/facilities", tests, NULL, NULL);
}
