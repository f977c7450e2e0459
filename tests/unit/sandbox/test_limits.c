/* Limits fire, with the right name, and end only what they should. */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "sandbox/cgroup.h"
#include "sandbox/fixture.h"

static void only(const struct box *b, enum limit_kind kind) {
        for (int i = 0; i < LIMIT_KIND_MAX; i++)
                assert_int_equal(b->end.hit[i], i == (int)kind);
}

static void too_much_memory_is_oom(void **state) {
        struct box b;
        struct run r;
        struct sandbox_spec spec = box_spec();
        spec.limits.memory_bytes = 32 << 20;
        spec.limits.disk_bytes = 8 << 20;
        box_create(*state, &b, &spec);
        run_sh(&b, &r, "(setsid sleep 600 &); /usr/bin/python3 -c 'x = bytearray(200 << 20)'; echo \"status $?\"; sleep 600");
        /* What is left of the run is ended with it. */
        assert_true(WIFSIGNALED(r.end.status) && r.end.sandbox_ended);
        assert_true(b.limit[LIMIT_MEMORY]);
        run_release(&r);
        box_destroy(&b);
        only(&b, LIMIT_MEMORY);
}

static void memory_is_limited_beside_a_large_upper_in_memory(void **state) {
        struct box b;
        struct run r;
        struct sandbox_spec spec = box_spec();
        spec.limits.memory_bytes = 32 << 20;
        spec.limits.disk_bytes = 1 << 30;
        box_create(*state, &b, &spec);
        run_sh(&b, &r, "/usr/bin/python3 -c 'import time; x = b\"x\" * (200 << 20); time.sleep(600)'");
        assert_true(WIFSIGNALED(r.end.status) && r.end.sandbox_ended);
        assert_true(b.limit[LIMIT_MEMORY]);
        run_release(&r);
        box_destroy(&b);
        only(&b, LIMIT_MEMORY);
}

static void what_is_written_is_not_memory(void **state) {
        struct box b;
        struct run r;
        struct sandbox_spec spec = box_spec();
        spec.limits.memory_bytes = 32 << 20;
        spec.limits.disk_bytes = 256 << 20;
        box_create(*state, &b, &spec);
        run_sh(&b, &r, "dd if=/dev/zero of=/tmp/fill bs=1M count=150 2>/dev/null; sleep 0.4; echo fits");
        assert_string_equal(run_out(&r), "fits");
        run_release(&r);
        box_destroy(&b);
        only(&b, LIMIT_KIND_MAX);
}

static void oom_of_pid_1_itself_is_told(void **state) {
        struct fixture *f = *state;
        struct box b;
        struct run r;
        struct sandbox_spec spec = box_spec();
        spec.limits.memory_bytes = 32 << 20;
        spec.limits.disk_bytes = 8 << 20;
        const char *const argv[] = { "/usr/bin/python3", "-c", "x = bytearray(200 << 20)", NULL };
        box_run_direct(f, &b, &r, &spec, argv);
        assert_true(WIFSIGNALED(r.end.status) && WTERMSIG(r.end.status) == SIGKILL);
        run_release(&r);
        box_destroy(&b);
        only(&b, LIMIT_MEMORY);
}

/* What the kernel holds for sockets that nobody reads: no run takes more than a bounded part of the machine's memory with it. */
static void full_socket_buffers_are_limited(void **state) {
        static const char script[] =
                "import socket\n"
                "sent, kept = 0, []\n"
                "listener = socket.create_server(('127.0.0.1', 0), backlog=400)\n"
                "for i in range(300):\n"
                "    a = socket.create_connection(listener.getsockname())\n"
                "    a.setblocking(False)\n"
                "    kept += [a, listener.accept()[0]]\n"
                "    try:\n"
                "        while True: sent += a.send(b'x' * 65536)\n"
                "    except BlockingIOError: pass\n"
                "print('bounded' if sent < 160 << 20 else sent >> 20)\n";
        struct box b;
        struct run r;
        struct sandbox_spec spec = box_spec();
        spec.limits.memory_bytes = 256 << 20;
        box_create(*state, &b, &spec);
        char command[2048];
        snprintf(command, sizeof command, "/usr/bin/python3 -c \"%s\"", script);
        run_sh(&b, &r, command);
        /* With v2 they count as the sandbox's memory: either it was told in time to send no more, or that limit ended it. */
        bool counted = cgroup_detect() == CGROUP_V2;
        bool ended = counted && run_out(&r)[0] == 0, much = counted && !ended && run_out(&r)[0] != 'b';
        if (much)
                assert_in_range(strtol(run_out(&r), NULL, 10), 160, 256 + 64);
        else
                assert_string_equal(run_out(&r), ended ? "" : "bounded");
        run_release(&r);
        box_destroy(&b);
        if (!much)
                only(&b, ended ? LIMIT_MEMORY : LIMIT_KIND_MAX);
}

static void too_many_processes_is_pids_limit(void **state) {
        struct box b;
        struct run r;
        struct sandbox_spec spec = box_spec();
        spec.limits.pids = 16;
        box_create(*state, &b, &spec);
        run_sh(&b, &r, "i=0; while [ $i -lt 40 ]; do sleep 600 & i=$((i+1)); done; exit 0");
        run_release(&r);
        box_destroy(&b);
        only(&b, LIMIT_PIDS);
}

static void a_full_disk_is_disk_limit(void **state) {
        struct box b;
        struct run r;
        struct sandbox_spec spec = box_spec();
        spec.limits.disk_bytes = 4 << 20;
        box_create(*state, &b, &spec);
        run_sh(&b, &r, "dd if=/dev/zero of=/tmp/fill bs=64k count=1000 2>/dev/null; echo $?");
        assert_string_equal(run_out(&r), "1");
        run_release(&r);
        box_destroy(&b);
        only(&b, LIMIT_DISK);
}

static void no_inodes_is_disk_limit(void **state) {
        struct box b;
        struct run r;
        struct sandbox_spec spec = box_spec();
        spec.limits.inodes = 100;
        box_create(*state, &b, &spec);
        run_sh(&b, &r, "i=0; while true > /tmp/f$i; do i=$((i+1)); done 2>/dev/null; [ $i -lt 100 ] && echo full");
        assert_string_equal(run_out(&r), "full");
        run_release(&r);
        box_destroy(&b);
        only(&b, LIMIT_DISK);
}

static void too_much_output_kills_the_exec_alone(void **state) {
        struct box b;
        struct run r, again;
        struct sandbox_spec spec = box_spec();
        spec.limits.output_bytes = 1 << 20;
        box_create(*state, &b, &spec);
        run_sh(&b, &r, "echo first; yes 0123456789");
        assert_true(r.end.output_limit);
        assert_true(WIFSIGNALED(r.end.status));
        assert_memory_equal(run_out(&r), "first\n0123456789\n", 17);
        assert_true(r.out.total > 1 << 20 && r.out.total < 256 << 20);
        run_sh(&b, &again, "echo still here");
        assert_string_equal(run_out(&again), "still here");
        run_release(&r);
        run_release(&again);
        box_destroy(&b);
        only(&b, LIMIT_OUTPUT);
}

static void the_wall_is_timeout(void **state) {
        struct box b;
        struct run r;
        struct sandbox_spec spec = box_spec();
        spec.limits.wall_ms = 400;
        box_create(*state, &b, &spec);
        run_sh(&b, &r, "trap '' TERM INT; echo up; sleep 600; sleep 600");
        assert_true(WIFSIGNALED(r.end.status) && r.end.sandbox_ended);
        assert_true(b.limit[LIMIT_WALL]);
        assert_string_equal(run_out(&r), "up");
        run_release(&r);
        box_destroy(&b);
        only(&b, LIMIT_WALL);
}

static void cpu_is_shared_out(void **state) {
        struct box b;
        struct run r;
        struct sandbox_spec spec = box_spec();
        spec.limits.cpu_milli = 200;
        box_create(*state, &b, &spec);
        run_sh(&b, &r, "exec /usr/bin/python3 -c \"import time\nt=time.monotonic(); c=time.process_time()\nwhile time.monotonic()-t<1: pass\nprint(time.process_time()-c < 0.6)\"");
        assert_string_equal(run_out(&r), "True");
        run_release(&r);
        box_destroy(&b);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(too_much_memory_is_oom),
                cmocka_unit_test(memory_is_limited_beside_a_large_upper_in_memory),
                cmocka_unit_test(what_is_written_is_not_memory),
                cmocka_unit_test(oom_of_pid_1_itself_is_told),
                cmocka_unit_test(full_socket_buffers_are_limited),
                cmocka_unit_test(too_many_processes_is_pids_limit),
                cmocka_unit_test(a_full_disk_is_disk_limit),
                cmocka_unit_test(no_inodes_is_disk_limit),
                cmocka_unit_test(too_much_output_kills_the_exec_alone),
                cmocka_unit_test(the_wall_is_timeout),
                cmocka_unit_test(cpu_is_shared_out),
        };
        return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
