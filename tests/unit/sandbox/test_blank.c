/* Sandboxes made ahead of need: that one is taken, becomes what was asked for, and is never missed. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "sandbox/facilities.h"
#include "sandbox/fixture.h"

#define MANY 64
#define POOL 4              /* full: any other one could be taken instead */
struct blanks { int pid[MANY]; int n; };

static bool proc_file_has(int pid, const char *file, const char *text) {
        char path[64];
        _cleanup_buf_ struct buf b = BUF_INIT(65536);
        snprintf(path, sizeof path, "/proc/%d/%s", pid, file);
        return fs_read_file(AT_FDCWD, path, &b) == 0 && strstr(buf_str(&b), text);
}

static bool is_blank(int pid) { return proc_file_has(pid, "comm", "brig-blank") && proc_file_has(pid, "cgroup", fixture_instance()); }

static struct blanks find(void) {
        struct blanks found = { .n = 0 };
        DIR *d = opendir("/proc");
        for (struct dirent *de; (de = readdir(d));) {
                int pid = (int)strtol(de->d_name, NULL, 10);
                if (pid > 0 && found.n < MANY && is_blank(pid))
                        found.pid[found.n++] = pid;
        }
        closedir(d);
        return found;
}

static struct blanks await(int n) {
        uint64_t deadline = now_ms() + 30000;
        struct blanks found = find();
        while (found.n < n && now_ms() < deadline)
                found = find();
        assert_true(found.n >= n);
        return found;
}

/* How many of them are blanks no more. */
static int taken(const struct blanks *before) {
        int n = 0;
        for (int i = 0; i < before->n; i++)
                n += !is_blank(before->pid[i]);
        return n;
}

static void one_is_taken_and_becomes_what_was_asked_for(void **state) {
        struct box b;
        struct run r;
        struct sandbox_spec spec = box_spec();
        spec.hostname = "claimed";
        spec.limits.disk_bytes = 12 << 20;
        spec.limits.inodes = 777;
        spec.limits.open_files = 99;
        const struct blanks before = await(POOL);
        box_create(*state, &b, &spec);
        /* Its first process has executed, and has yet to give itself a name. */
        const uint64_t deadline = now_ms() + 30000;
        while (taken(&before) == 0 && now_ms() < deadline)
                ;
        assert_int_equal(taken(&before), 1);
        run_sh(&b, &r, "hostname; ulimit -Hn; df -P / | awk 'NR == 2 { print $2 }'; df -Pi / | awk 'NR == 2 { print $2 }'; "
                       "grep -E '^(Seccomp|CapBnd):' /proc/1/status | tr -d '\\n\\t'; echo; set -- /proc/[0-9]*; echo $#");
        assert_string_equal(run_out(&r), "claimed\n99\n12288\n777\nCapBnd:0000000000000020Seccomp:2\n2");
        run_release(&r);
        box_destroy(&b);
}

static void each_is_used_once(void **state) {
        struct box b, b2;
        struct run r;
        const struct sandbox_spec spec = box_spec();
        await(1);
        box_create(*state, &b, &spec);
        run_sh(&b, &r, "echo mine > /etc/left; echo mine > /usr/left; echo mine > /dev/shm/left");
        assert_int_equal(r.end.status, 0);
        run_release(&r);
        box_destroy(&b);
        await(1);
        box_create(*state, &b2, &spec);
        run_sh(&b2, &r, "cat /etc/left /usr/left /dev/shm/left 2>/dev/null; ls -A /dev/shm /tmp | tr -d '\\n'; hostname");
        assert_string_equal(run_out(&r), "/dev/shm:/tmp:brig");
        run_release(&r);
        box_destroy(&b2);
}

static void what_is_not_plain_takes_none(void **state) {
        struct box b;
        struct run r;
        struct sandbox_spec spec = box_spec();
        const struct sandbox_file file = { .name = "f", .fd = fs_memfd("f", "text", 4), .mode = 0444 };
        spec.files = &file;
        spec.n_files = 1;
        const struct blanks before = await(1);
        box_create(*state, &b, &spec);
        assert_int_equal(taken(&before), 0);
        run_sh(&b, &r, "cat /run/brig/f");
        assert_string_equal(run_out(&r), "text");
        run_release(&r);
        box_destroy(&b);
        close(file.fd);
}

static void one_that_dies_is_replaced(void **state) {
        struct box b;
        const struct sandbox_spec spec = box_spec();
        const struct blanks before = await(1);
        for (int i = 0; i < before.n; i++)
                assert_int_equal(kill(before.pid[i], SIGKILL), 0);
        /* Dead, but not all reaped: a create may meet one whose death is not known yet. */
        for (int i = 0; i < before.n; i++) {
                while (is_blank(before.pid[i]) && !proc_file_has(before.pid[i], "status", "State:\tZ"))
                        ;
        }
        box_create(*state, &b, &spec);
        box_destroy(&b);
        await(1);
        assert_int_equal(taken(&before), before.n);
}

/* Where overlays over detached mounts cannot be, there are no blanks: each sandbox is made on request. */
static void without_the_means_there_are_none(void **state) {
        struct box b;
        struct run r;
        const struct sandbox_spec spec = box_spec();
        for (int i = 0; i < 2; i++) {
                box_create(*state, &b, &spec);
                run_sh(&b, &r, "cat /etc/left; echo mine > /etc/left");
                assert_string_equal(run_out(&r), "");
                run_release(&r);
                assert_int_equal(find().n, 0);
                box_destroy(&b);
        }
}

int main(void) {
        const struct CMUnitTest without[] = { cmocka_unit_test(without_the_means_there_are_none) };
        if (!facility_ok(FACILITY_DETACHED_SOURCE))
                return cmocka_run_group_tests(without, fixture_setup, fixture_teardown);
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(one_is_taken_and_becomes_what_was_asked_for),
                cmocka_unit_test(each_is_used_once),
                cmocka_unit_test(what_is_not_plain_takes_none),
                cmocka_unit_test(one_that_dies_is_replaced),
        };
        return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
