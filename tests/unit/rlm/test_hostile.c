/* Code that means harm: each ends with a named error, and the interpreter serves the next turn as if nothing had been. */
#include <signal.h>
#include <string.h>

#include "rlm/stage.h"

static struct stage stage;
static struct act act;

static int open_all(void **state) {
        int r = fixture_setup(state);
        if (r == 0)
                stage_open(*state, &stage);
        return r;
}

static int close_all(void **state) {
        stage_close(&stage);
        return fixture_teardown(state);
}

static int begin(void **state) {
        act_begin(&stage, &act, STAGE_SETUP);
        return 0;
}

/* Whatever it was: the next turn of the same interpreter works. */
static int next_works(void **state) {
        act_end(&act);
        assert_false(stage.lost);
        act_begin(&stage, &act, STAGE_SETUP);
        act_run(&act, "print(6 * 7)");
        assert_string_equal(act.out, "42\n");
        act_end(&act);
        return 0;
}

static void ends(const char *code, enum turn_end_reason reason, const char *text) {
        act_send(&act, code, NULL);
        act_wait_end(&act);
        assert_int_equal(act.end.reason, reason);
        if (!strstr(act.end.error.text, text))
                fail_msg("it said: %s", act.end.error.text);
}

static void fails(const char *code, const char *type, const char *text) {
        act_run(&act, code);
        assert_false(act.ended);
        assert_string_equal(act.type, type);
        if (!strstr(act.error, text))
                fail_msg("it said: %s", act.error);
}

static void says(const char *code, const char *text) {
        act_run(&act, code);
        assert_string_equal(act.error, "");
        assert_string_equal(act.out, text);
}

/* Its process ends of that by itself, or is killed for it: which comes first is nobody's promise. */
static void it_closes_every_descriptor(void **state) {
        act_send(&act, "import os\nos.closerange(0, 4096)", NULL);
        act_wait_end(&act);
        assert_true(act.end.reason == TURN_END_EXITED || act.end.reason == TURN_END_PROTOCOL);
        assert_true(strstr(act.end.error.text, "descriptors were closed") || strstr(act.end.error.text, "closed its control socket"));
}
static void it_closes_the_control_socket(void **state) { ends("import os, time\nos.close(3)\ntime.sleep(1000)", TURN_END_PROTOCOL, "control socket"); }

static void it_closes_the_standard_streams(void **state) {
        says("import os, sys\nsys.stdout.close()\nos.close(2)", "");
        says("print('again')", "again\n");
}

static void it_kills_its_parent(void **state) {
        fails("import os, signal\nos.kill(os.getppid(), signal.SIGKILL)", "PermissionError", "Operation not permitted");
        fails("os.kill(1, signal.SIGKILL)", "PermissionError", "Operation not permitted");
}

static void it_kills_all_it_can(void **state) { says("import os\nos.kill(-1, 9)\nprint('alone')", "alone\n"); }
static void it_kills_itself(void **state) { ends("import os\nos.kill(os.getpid(), 11)", TURN_END_EXITED, "signal 11"); }

/* Of those that are root inside, which a turn must not see into. */
static void it_looks_into_its_parent(void **state) {
        fails("import os\nopen(f'/proc/{os.getppid()}/mem', 'rb')", "PermissionError", "Permission denied");
        fails("open(f'/proc/{os.getppid()}/environ', 'rb').read()", "PermissionError", "Permission denied");
        fails("os.listdir(f'/proc/{os.getppid()}/fd')", "PermissionError", "Permission denied");
        fails("open(f'/proc/{os.getppid()}/maps').read()", "PermissionError", "Permission denied");
        says("import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nlibc.ptrace(16, os.getppid(), 0, 0), ctypes.get_errno()", "(-1, 1)\n");
        says("n = []\nfor p in os.listdir('/proc'):\n    if p.isdigit() and p != str(os.getpid()):\n        try: n.append(os.open(f'/proc/{p}/mem', os.O_RDONLY))\n        except OSError: pass\nprint(n)", "[]\n");
        says("pidfd = os.pidfd_open(os.getppid())\n[libc.syscall(438, pidfd, i, 0) for i in range(6)], ctypes.get_errno()", "([-1, -1, -1, -1, -1, -1], 1)\n");
}

static void it_forks_and_exits(void **state) {
        ends("import os\nif os.fork() == 0:\n    os.setsid()\n    while True: pass\nos._exit(0)", TURN_END_EXITED, "status 0");
}

static void its_fork_comes_to_the_end_of_the_action(void **state) {
        act_run(&act, "import os\nif os.fork() > 0: os.wait()\nprint('both')");
        assert_string_equal(act.out, "both\nboth\n");
        says("print('one')", "one\n");
}

static void it_replaces_builtins_and_modules(void **state) {
        act_run(&act, "import builtins, json, threading, sys, os, signal, linecache\n"
                      "for m in (json, threading, os, linecache, signal):\n    for n in list(vars(m)):\n        if not n.startswith('__'): setattr(m, n, None)\n"
                      "for n in list(vars(builtins)):\n    if not n.startswith('__') and n not in ('len', 'print', 'SubmitError'): setattr(builtins, n, None)\n"
                      "sys.stdout = sys.stderr = None");
        assert_false(act.ended);
        fails("1 / 0", "ZeroDivisionError", "1 / 0");
        act_run(&act, "SUBMIT(answer=1)");
        assert_int_equal(act.submits, 1);
}

static void it_replaces_standard_output(void **state) {
        says("import sys\nclass Hole:\n    def write(self, s): raise SystemExit(9)\n    def flush(self): raise ValueError\nsys.stdout = Hole()", "");
        says("print('back')", "back\n");
}

static void it_writes_to_the_control_socket(void **state) { ends("import os\nos.write(3, b'garbage, and more of it')\nimport time\ntime.sleep(1000)", TURN_END_PROTOCOL, "no driver writes"); }
static void it_forges_a_long_frame(void **state) { ends("import os, time\nos.write(3, (0xffffffff).to_bytes(4, 'little') + b'S')\ntime.sleep(1000)", TURN_END_PROTOCOL, "no driver writes"); }
static void it_says_twice_that_it_is_done(void **state) {
        act_run(&act, "import os\nd = (1).to_bytes(8, 'little') + b'\\0' + bytes(12)\nos.write(3, len(d).to_bytes(4, 'little') + b'D' + d)\nimport time");
        act_wait_end(&act);
        assert_int_equal(act.end.reason, TURN_END_PROTOCOL);
}

static void it_sends_descriptors(void **state) {
        act_run(&act, "import socket, os\ns = socket.socket(fileno=os.dup(3))\nd = (1).to_bytes(8, 'little') + b'\\0' + bytes(12)\n"
                      "socket.send_fds(s, [len(d).to_bytes(4, 'little') + b'D' + d], [0, 1, 2])\nos._exit(0)");
        act_wait_end(&act);
}

static void it_recurses(void **state) {
        fails("def f(): f()\nf()", "RecursionError", "maximum recursion depth");
        ends("import sys\nsys.setrecursionlimit(1 << 30)\nclass A:\n    def __getattr__(self, n): return getattr(self, n)\nA().x", TURN_END_EXITED, "signal 11");
}

static void it_spins_with_signals_blocked(void **state) {
        act_send(&act, "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\nprint('on', flush=True)\nwhile True: pass", NULL);
        fixture_until(stage.box.f, &act.heard);
        assert_int_equal(turn_process_interrupt(act.process), 0);
        turn_process_kill(act.process);
        act_wait_end(&act);
        assert_int_equal(act.end.reason, TURN_END_KILLED);
        assert_int_equal(act.end.status, SIGKILL);
}

static void it_spins_in_c(void **state) {
        act_send(&act, "print('on', flush=True)\nsum(iter(int, 1))", NULL);
        fixture_until(stage.box.f, &act.heard);
        turn_process_interrupt(act.process);
        turn_process_kill(act.process);
        act_wait_end(&act);
        assert_int_equal(act.end.reason, TURN_END_KILLED);
}

static void it_prints_a_gigabyte(void **state) {
        act_run(&act, "import sys\nb = 'x' * (1 << 20)\nfor _ in range(1024): n = sys.stdout.write(b)");
        assert_string_equal(act.error, "");
        assert_int_equal(act.out_len, 1 << 30);
}

static void it_goes_on_after_its_submit(void **state) {
        ends("import signal\ntry:\n    SUBMIT(answer=1)\nexcept BaseException: pass\nsignal.signal(2, signal.SIG_IGN)\nwhile True: pass", TURN_END_SUBMIT, "went on after its SUBMIT");
        assert_int_equal(act.submits, 1);
}

static void it_submits_for_ever(void **state) {
        act_send(&act, "import os, time\nd = (1).to_bytes(8, 'little') + bytes(4) + b'[]'\nfor _ in range(2000): os.write(3, len(d).to_bytes(4, 'little') + b'S' + d)\ntime.sleep(1000)", NULL);
        act_wait_end(&act);
        assert_int_equal(act.end.reason, TURN_END_PROTOCOL);
}

static void its_error_cannot_be_told(void **state) {
        fails("class E(Exception):\n    def __str__(self): raise SystemExit(1)\n    __repr__ = __str__\nraise E()", "E", "E");
        fails("class E(Exception):\n    def __str__(self): return 'x' * (1 << 24)\nraise E()", "E", "... cut ...");
        fails("raise Exception('\\udc80')", "Exception", "\\udc80");
}

static void its_value_cannot_be_shown(void **state) {
        fails("class V:\n    def __repr__(self): raise KeyError('no')\nV()", "KeyError", "no");
}

static void it_fills_the_process_table(void **state) {
        act_run(&act, "import os, time\nn = 0\ntry:\n    while True:\n        if os.fork() == 0:\n            time.sleep(1000)\n            os._exit(0)\n        n += 1\nexcept BlockingIOError: print('full')");
        assert_string_equal(act.out, "full\n");
}

/* What belongs to no process is not to be had. */
static void it_asks_for_memory_that_would_last(void **state) {
        says("import ctypes, errno\nlibc = ctypes.CDLL(None, use_errno=True)\n"
             "def call(name, *args):\n    ctypes.set_errno(0)\n    return getattr(libc, name)(*args), errno.errorcode[ctypes.get_errno()]\n"
             "print({call('shmget', 0x7001, 4096, 0o1600), call('msgget', 0x7002, 0o1600), call('semget', 0x7003, 1, 0o1600), call('mq_open', b'/left', 0o102, 0o600, None)})",
             "{(-1, 'ENOSYS')}\n");
}

/* By the call itself, from a program it starts. */
static void it_asks_for_it_in_another_program(void **state) {
        says("import subprocess\nprint(subprocess.run(['/usr/bin/python3', '-c', 'import ctypes; libc = ctypes.CDLL(None, use_errno=True); "
             "print([libc.syscall(n, 0x7001, 4096, 0o1600) for n in (29, 68, 64, 240)], ctypes.get_errno())'], capture_output=True, text=True).stdout, end='')",
             "[-1, -1, -1, -1] 38\n");
}

static void it_leaves_memory_behind(void **state) {
        says("import os, signal\nos.makedirs('/dev/shm/a/b/c')\nopen('/dev/shm/a/b/c/file', 'w').close()\nos.symlink('/workspace', '/dev/shm/a/link')\n"
             "os.symlink('/', '/dev/shm/root')\nos.mkfifo('/dev/shm/fifo')\nos.mkdir('/dev/shm/closed', 0)\nopen(b'/dev/shm/\\xff', 'w').close()\nos.mkdir('/dev/shm/a.b')\n"
             "from multiprocessing import Semaphore, shared_memory\ns = Semaphore(1)\nm = shared_memory.SharedMemory('left', True, 4096)\n"
             "print(s.acquire(), os.path.exists('/dev/shm/left'))\n"
             "os.kill(os.getpid(), signal.SIGKILL)", "True True\n");
        act_wait_end(&act);
        act_begin(&stage, &act, STAGE_SETUP);
        says("import os\nprint(os.listdir('/dev/shm'), os.path.exists('/etc/passwd'))", "[] True\n");
}

/* Deeper than a path, or python's calls, reach. */
static void it_leaves_directories_without_end(void **state) {
        says("import os\nos.chdir('/dev/shm')\nfor i in range(5000):\n    os.mkdir('d' * 100)\n    os.chdir('d' * 100)\nopen('file', 'w').close()\nprint('deep')", "deep\n");
        act_end(&act);
        act_begin(&stage, &act, STAGE_SETUP);
        says("import os\nprint(os.listdir('/dev/shm'))", "[]\n");
}

/* Semaphores and memory of the library's own, by which processes of one turn work together. */
static void multiprocessing_works(void **state) {
        says("import multiprocessing\nfrom multiprocessing import Pool, Semaphore, shared_memory\nm = shared_memory.SharedMemory(create=True, size=64)\nlock = multiprocessing.Lock()\n"
             "def add(i):\n    with lock:\n        m.buf[0] += i\n"
             "with Pool(2) as p:\n    p.map(add, range(10))\nprint(m.buf[0])\nm.close()\nm.unlink()", "45\n");
}

static void it_stops_itself(void **state) {
        act_send(&act, "import os, signal\nprint('on', flush=True)\nos.kill(os.getpid(), signal.SIGSTOP)", NULL);
        fixture_until(stage.box.f, &act.heard);
        turn_process_kill(act.process);
        act_wait_end(&act);
}

#define T(f) cmocka_unit_test_setup_teardown(f, begin, next_works)
int main(void) {
        const struct CMUnitTest tests[] = {
                T(it_closes_every_descriptor), T(it_closes_the_control_socket), T(it_closes_the_standard_streams), T(it_kills_its_parent), T(it_kills_all_it_can),
                T(it_kills_itself), T(it_looks_into_its_parent), T(it_forks_and_exits), T(its_fork_comes_to_the_end_of_the_action),
                T(it_replaces_builtins_and_modules), T(it_replaces_standard_output), T(it_writes_to_the_control_socket), T(it_forges_a_long_frame),
                T(it_says_twice_that_it_is_done), T(it_sends_descriptors), T(it_recurses), T(it_spins_with_signals_blocked), T(it_spins_in_c),
                T(it_prints_a_gigabyte), T(it_goes_on_after_its_submit), T(it_submits_for_ever), T(its_error_cannot_be_told), T(its_value_cannot_be_shown),
                T(it_fills_the_process_table), T(it_leaves_memory_behind), T(it_leaves_directories_without_end), T(it_asks_for_memory_that_would_last),
                T(it_asks_for_it_in_another_program), T(multiprocessing_works), T(it_stops_itself),
        };
        return cmocka_run_group_tests(tests, open_all, close_all);
}
