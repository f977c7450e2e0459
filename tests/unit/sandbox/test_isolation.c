/* What hostile code inside may see and do. */
#include <string.h>
#include <sys/wait.h>

#include "sandbox/fixture.h"

static const char *sh(void **state, const char *script) {
        static char said[4096];
        struct box b;
        struct run r;
        const struct sandbox_spec spec = box_spec();
        box_create(*state, &b, &spec);
        run_sh(&b, &r, script);
        snprintf(said, sizeof said, "%s", run_out(&r));
        run_release(&r);
        box_destroy(&b);
        return said;
}

static void nothing_private_of_the_host_is_there(void **state) {
        assert_string_equal(sh(state, "ls -A /home; ls -A /root | grep -v '^\\.bashrc$\\|^\\.profile$\\|^\\.bash_logout$'; "
                                      "for f in /etc/shadow /etc/gshadow /etc/ssh /etc/sudoers /etc/ssl/private /var/lib/brig /boot /etc/apt/auth.conf; do "
                                      "[ -e $f ] && echo $f; done; find /etc -name '*shadow*' -o -name '*_key'"), "");
}

static void only_its_own_processes_are_seen(void **state) {
        assert_string_equal(sh(state, "ls -d /proc/[0-9]* | wc -l | { read n; [ $n -le 6 ] && echo few || echo $n; }; cat /proc/1/comm"), "few\ninit");
}

static void mounts_and_namespaces_are_refused(void **state) {
        assert_string_equal(sh(state, "mount -t tmpfs x /mnt 2>/dev/null && echo mounted; umount /proc 2>/dev/null && echo unmounted; "
                                      "unshare -U true 2>/dev/null && echo user; unshare -m true 2>/dev/null && echo mnt; unshare -n true 2>/dev/null && echo net; "
                                      "mount -o remount,rw /proc/sys 2>/dev/null && echo remounted; mount --bind / /mnt 2>/dev/null && echo bound; "
                                      "nsenter -t 1 -m true 2>/dev/null && echo entered; hostname other 2>/dev/null; hostname"), "brig");
}

static void proc_is_masked_and_sys_read_only(void **state) {
        assert_string_equal(sh(state, "for f in /proc/sysrq-trigger /proc/sys/kernel/core_pattern /proc/sys/vm/drop_caches /proc/sys/kernel/hostname /proc/irq/default_smp_affinity; do "
                                      "[ -e $f ] && (echo x > $f) 2>/dev/null && echo wrote $f; done; cat /proc/kcore /proc/keys /proc/timer_list /proc/kmsg 2>/dev/null | wc -c; grep -v '^0000000000000000 ' /proc/kallsyms | head -1; "
                                      "(mkdir /sys/fs/cgroup/x) 2>/dev/null; ls /sys/firmware /sys/kernel/debug 2>/dev/null; grep -c ' /proc/sys proc ro' /proc/self/mounts"), "0\n1");
}

static void there_are_no_devices_but_the_usual(void **state) {
        assert_string_equal(sh(state, "ls /dev | tr '\\n' ' '; mknod /tmp/sda b 8 0 2>/dev/null && echo made; (echo x > /dev/new) 2>/dev/null; [ -e /dev/new ] && echo new; "
                                      "echo; echo x > /dev/null; head -c 3 /dev/zero | wc -c"),
                            "fd full mqueue null ptmx pts random shm stderr stdin stdout tty urandom zero \n3");
}

static void there_is_no_network_but_loopback(void **state) {
        assert_string_equal(sh(state, "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '; wc -l < /proc/net/route; /usr/bin/python3 -c \"import socket\n"
                                      "s=socket.socket(); s.bind(('127.0.0.1',80)); s.listen(); c=socket.create_connection(('127.0.0.1',80)); print('loop')\""), "lo\n1\nloop");
}

static void the_cgroup_paths_are_its_own(void **state) {
        assert_string_equal(sh(state, "cut -d: -f3 /proc/self/cgroup | grep -v '^/' | head -1; grep -c brig /proc/self/cgroup"), "0");
}

static void ids_of_two_sandboxes_differ(void **state) {
        struct box a, b;
        struct run ra, rb;
        const struct sandbox_spec spec = box_spec();
        box_create(*state, &a, &spec);
        box_create(*state, &b, &spec);
        run_sh(&a, &ra, "cat /proc/self/uid_map");
        char first[256];
        snprintf(first, sizeof first, "%s", run_out(&ra));
        run_sh(&b, &rb, "cat /proc/self/uid_map");
        unsigned inside = 1, host_a = 0, host_b = 0, n = 0;
        assert_int_equal(sscanf(first, "%u %u %u", &inside, &host_a, &n), 3);
        assert_int_equal(inside, 0);
        assert_int_equal(n, 65536);
        assert_int_equal(sscanf(run_out(&rb), "%u %u", &inside, &host_b), 2);
        assert_true(host_a != host_b && host_a >= 0x40000000u && host_a % 65536 == 0);
        run_release(&ra);
        run_release(&rb);
        box_destroy(&a);
        box_destroy(&b);
}

static void nested_user_namespaces_are_counted_out(void **state) {
        assert_string_equal(sh(state, "cat /proc/sys/user/max_user_namespaces"), "0");
}

static void core_files_are_off_and_files_bounded(void **state) {
        assert_string_equal(sh(state, "ulimit -c; ulimit -Hc; ulimit -Hn"), "0\n0\n4096");
}

/* Before the program runs, the process still is the spawner's: its descriptors must not be found through the sandbox's links. */
static void links_to_descriptors_lead_nowhere(void **state) {
        struct box b;
        struct run r;
        const struct sandbox_spec spec = box_spec();
        box_create(*state, &b, &spec);
        run_sh(&b, &r, "i=3; while [ $i -lt 700 ]; do ln -s /proc/self/fd/$i /tmp/l$i; i=$((i+1)); done; ln -s /proc/self/cwd /tmp/cwd");
        run_release(&r);
        for (int i = 3; i < 700; i += i == 80 ? 431 : 1) {     /* the low ones, and those where descriptors are parked */
                char cwd[32];
                const char *const argv[] = { "/bin/pwd", NULL };
                snprintf(cwd, sizeof cwd, "/tmp/l%d", i);
                if (i >= 540)
                        break;
                struct exec_spec x = run_spec(&r, argv);
                x.cwd = cwd;
                run_start(&b, &r, &x);
                run_wait(&b, &r);
                assert_false(r.end.started);
                assert_int_equal(r.end.error.code, -ENOENT);
                run_release(&r);
                const char *const program[] = { cwd, NULL };
                x = run_spec(&r, program);
                run_start(&b, &r, &x);
                run_wait(&b, &r);
                assert_false(r.end.started);
                run_release(&r);
        }
        box_destroy(&b);
}

/* The root covers the seed's: whoever may chroot, and climbs, comes down again in the sandbox. */
static void climbing_out_of_a_chroot_ends_in_the_sandbox(void **state) {
        struct box b;
        struct run r;
        struct sandbox_spec spec = box_spec();
        spec.profile = PROFILE_SETUP;
        box_create(*state, &b, &spec);
        run_sh(&b, &r, "touch /tmp/inside; exec /usr/bin/python3 -c \"import os\n"
                       "fd = os.open('/', os.O_RDONLY)\nos.mkdir('/tmp/j')\nos.chroot('/tmp/j')\nos.fchdir(fd)\n"
                       "for i in range(100): os.chdir('..')\n"
                       "os.chroot('.')\nprint(os.path.exists('/tmp/inside'), os.path.exists('/d'), sorted(os.listdir('/'))[:3])\"");
        assert_string_equal(run_err(&r), "");
        assert_string_equal(run_out(&r), "True False ['bin', 'dev', 'etc']");
        run_release(&r);
        box_destroy(&b);
}

static void terminals_work(void **state) {
        assert_string_equal(sh(state, "/usr/bin/python3 -c \"import os; m,s=os.openpty(); print(os.ttyname(s))\""), "/dev/pts/0");
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(nothing_private_of_the_host_is_there),
                cmocka_unit_test(only_its_own_processes_are_seen),
                cmocka_unit_test(mounts_and_namespaces_are_refused),
                cmocka_unit_test(proc_is_masked_and_sys_read_only),
                cmocka_unit_test(there_are_no_devices_but_the_usual),
                cmocka_unit_test(there_is_no_network_but_loopback),
                cmocka_unit_test(the_cgroup_paths_are_its_own),
                cmocka_unit_test(ids_of_two_sandboxes_differ),
                cmocka_unit_test(nested_user_namespaces_are_counted_out),
                cmocka_unit_test(core_files_are_off_and_files_bounded),
                cmocka_unit_test(links_to_descriptors_lead_nowhere),
                cmocka_unit_test(climbing_out_of_a_chroot_ends_in_the_sandbox),
                cmocka_unit_test(terminals_work),
        };
        return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
