/* Turns: what code is given, what it says, and how a turn ends. */
#include <string.h>

#include "rlm/stage.h"

#define RUNS(a, code) do { act_run(a, code); assert_string_equal((a)->error, ""); } while (0)
#define SAYS(a, code, text) do { RUNS(a, code); assert_string_equal((a)->out, text); } while (0)
#define FAILS(a, code, type_, text) do { act_run(a, code); assert_string_equal((a)->type, type_); assert_non_null(strstr((a)->error, text)); } while (0)

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

static int end(void **state) {
        act_end(&act);
        return 0;
}

static void python_says_its_version(void **state) { assert_int_equal(strncmp(interpreter_version(stage.interpreter), "3.", 2), 0); }

static void names_persist_between_actions(void **state) {
        RUNS(&act, "x = 41");
        SAYS(&act, "print(x + 1)", "42\n");
}

static void the_last_expression_is_shown(void **state) {
        SAYS(&act, "y = 'a'\ny * 2", "'aa'\n");
        SAYS(&act, "None", "");
}

static void variables_become_names(void **state) {
        act_send(&act, "v['a'][1], w", "{\"v\":{\"a\":[1,2.5]},\"w\":\"\\u00e9\"}");
        act_wait(&act);
        assert_string_equal(act.out, "(2.5, '\xc3\xa9')\n");
}

static void a_turn_is_a_user_without_power(void **state) {
        SAYS(&act, "import os; os.getresuid(), os.getresgid(), os.getgroups()", "((1000, 1000, 1000), (1000, 1000, 1000), [1000])\n");
        SAYS(&act, "print([l.split()[1] for l in open('/proc/self/status') if l.startswith('Cap') and not l.startswith('CapBnd')])", "['0000000000000000', '0000000000000000', '0000000000000000', '0000000000000000']\n");
        SAYS(&act, "print([l.split()[1] for l in open('/proc/self/status') if l.startswith('NoNewPrivs')])", "['1']\n");
        FAILS(&act, "os.setuid(0)", "PermissionError", "Operation not permitted");
}

static void programs_output_is_captured(void **state) {
        RUNS(&act, "import subprocess\n_r = subprocess.run(['sh', '-c', 'echo out; echo err >&2'])");
        assert_string_equal(act.out, "out\n");
        assert_string_equal(act.err, "err\n");
}

static void output_is_there_before_the_action_is_done(void **state) {
        act_send(&act, "import time\nprint('now')\nwhile True: time.sleep(1)", NULL);
        fixture_until(stage.box.f, &act.heard);
        assert_false(act.done);
        assert_string_equal(act.out, "now\n");
}

static void an_unfinished_line_is_not_lost(void **state) {
        RUNS(&act, "print('half', end='')");
        assert_string_equal(act.out, "half");
}

static void a_traceback_shows_the_codes_own_lines(void **state) {
        FAILS(&act, "def f(d):\n    return 1 / d\n\nf(0)", "ZeroDivisionError", "line 2, in f\n    return 1 / d\n");
        assert_int_equal(act.kind, TURN_ERROR_EXCEPTION);
        assert_null(strstr(act.error, "<brig>"));
        RUNS(&act, "def g():\n    f(0)");
        FAILS(&act, "g()", "ZeroDivisionError", "return 1 / d\n");
}

static void output_before_an_error_is_kept(void **state) {
        FAILS(&act, "print('before')\nboom", "NameError", "name 'boom' is not defined");
        assert_string_equal(act.out, "before\n");
}

static void a_syntax_error_is_one(void **state) {
        FAILS(&act, "x = (1,\ny = 2", "SyntaxError", "line 1\n    x = (1,\n");
        assert_int_equal(act.kind, TURN_ERROR_SYNTAX);
        FAILS(&act, "eval('1 +')", "SyntaxError", "invalid syntax");
        assert_int_equal(act.kind, TURN_ERROR_EXCEPTION);
}

static void await_works_at_top_level(void **state) {
        SAYS(&act, "import asyncio\nasync def f(n):\n    await asyncio.sleep(0)\n    return n\n[await f(1), *(await asyncio.gather(f(2), f(3)))]", "[1, 2, 3]\n");
        RUNS(&act, "t = asyncio.ensure_future(f(4)) if False else None\nq = asyncio.Queue()\nawait q.put(5)");
        SAYS(&act, "await q.get()", "5\n");
        SAYS(&act, "asyncio.run(f(6))", "6\n");
        FAILS(&act, "await f(1 / 0)", "ZeroDivisionError", "await f(1 / 0)");
}

static void exit_ends_the_action(void **state) {
        RUNS(&act, "import sys\nprint(1)\nsys.exit()\nprint(2)");
        assert_string_equal(act.out, "1\n");
        FAILS(&act, "sys.exit('bad')", "SystemExit", "bad");
}

/* What an action costs must not grow with those before it: only its own source is put where it is looked for. */
static void sources_are_published_once(void **state) {
        act_run(&act, "import linecache");
        act_run(&act, "x = 1");
        act_run(&act, "first = sorted(linecache.cache)[0]\ndel linecache.cache[first]");
        SAYS(&act, "print(first in linecache.cache, len(linecache.cache) > 1)", "False True\n");
}

static void main_is_a_module(void **state) {
        SAYS(&act, "import pickle\nclass A: pass\npickle.loads(pickle.dumps(A)) is A", "True\n");
        SAYS(&act, "import inspect\ndef f():\n    pass\nimport linecache\nprint(inspect.getsource(f), end='')", "def f():\n    pass\n");
}

static void modules_of_the_directory_are_found(void **state) {
        RUNS(&act, "open('brig_mine.py', 'w').write('v = 7')");
        SAYS(&act, "import brig_mine, os\nos.unlink('brig_mine.py')\nbrig_mine.v", "7\n");
}

/* ---- SUBMIT ---- */

static void submit_ends_the_action(void **state) {
        RUNS(&act, "SUBMIT(answer={'a': [1, None, 'x']}, note='n')\nprint('not here')");
        assert_string_equal(act.submitted, "{\"answer\":{\"a\":[1,null,\"x\"]},\"note\":\"n\"}");
        assert_string_equal(act.out, "");
        SAYS(&act, "print('the turn goes on')", "the turn goes on\n");
}

static void positional_outputs_get_their_names(void **state) {
        RUNS(&act, "SUBMIT(5)");
        assert_string_equal(act.submitted, "{\"answer\":5}");
        FAILS(&act, "SUBMIT(1, 2)", "TypeError", "1 positional");
        FAILS(&act, "SUBMIT(1, answer=2)", "TypeError", "twice");
}

static void a_refused_submit_can_be_tried_again(void **state) {
        act.refuse = "answer: not a number";
        RUNS(&act, "try:\n    SUBMIT(answer='x')\nexcept SubmitError as e:\n    print(e)\nSUBMIT(answer=1)");
        assert_string_equal(act.out, "answer: not a number\n");
        assert_int_equal(act.submits, 2);
        act.refuse = "no";
        FAILS(&act, "SUBMIT(answer='x')", "SubmitError", "no");
}

static void what_is_no_strict_json_is_refused_by_name(void **state) {
        FAILS(&act, "SUBMIT(answer=float('nan'))", "SubmitError", "NaN and Infinity are not JSON");
        FAILS(&act, "SUBMIT(answer=[float('-inf')])", "SubmitError", "NaN and Infinity are not JSON");
        FAILS(&act, "a = []\na.append({'b': a})\nSUBMIT(answer=a)", "SubmitError", "contains itself");
        FAILS(&act, "SUBMIT(answer='\\udc80')", "SubmitError", "lone surrogate");
        FAILS(&act, "SUBMIT(answer=[{1: 2}])", "SubmitError", "keys must be strings");
        FAILS(&act, "SUBMIT(answer={'a': {2}})", "SubmitError", "a value of type set is not JSON");
        FAILS(&act, "d = 1\nfor _ in range(5000): d = [d]\nSUBMIT(answer=d)", "SubmitError", "nested too deeply");
        FAILS(&act, "d = 1\nfor _ in range(70): d = [d]\nSUBMIT(answer=d)", "SubmitError", "nest");
        FAILS(&act, "SUBMIT(answer='x' * (3 << 20))", "SubmitError", "at most");
        assert_int_equal(act.submits, 0);
}

static void a_submit_that_is_swallowed_stands(void **state) {
        RUNS(&act, "try:\n    SUBMIT(answer=1)\nexcept BaseException:\n    pass\nSUBMIT(answer=2)\nprint('not here')");
        assert_int_equal(act.submits, 1);
        assert_string_equal(act.submitted, "{\"answer\":1}");
        assert_string_equal(act.out, "");
}

static void a_submit_of_a_thread_ends_the_action(void **state) {
        RUNS(&act, "import threading, time\nt = threading.Thread(target=lambda: SUBMIT(answer=1))\nt.start()\nwhile True: time.sleep(0.01)");
        assert_int_equal(act.submits, 1);
        assert_string_equal(act.err, "");
}

static void no_submit_without_an_action(void **state) {
        /* Between two actions the main thread waits for the next. */
        RUNS(&act, "import threading, sys, time\nsaid = []\ndef f():\n    while sys._current_frames()[threading.main_thread().ident].f_code.co_name != 'receive': time.sleep(0.001)\n"
                   "    try: SUBMIT(answer=1)\n    except SubmitError as e:\n        said.append(str(e))\n        print('refused', flush=True)\nt = threading.Thread(target=f)\nt.start()");
        act.heard = act.out_len > 0;
        fixture_until(stage.box.f, &act.heard);
        SAYS(&act, "t.join()\nprint(said)", "['no action is executing']\n");
        assert_int_equal(act.submits, 0);
}

static void no_submit_from_a_fork(void **state) {
        RUNS(&act, "import os, sys\npid = os.fork()\nif pid == 0:\n    try: SUBMIT(answer=1)\n    except SubmitError as e:\n        print(e)\n        sys.stdout.flush()\n        os._exit(0)\n_w = os.waitpid(pid, 0)");
        assert_non_null(strstr(act.out, "not in a fork of it"));
        assert_int_equal(act.submits, 0);
}

/* ---- interrupts and ends ---- */

static void an_interrupt_reaches_the_code(void **state) {
        /* One line: it may arrive while what was printed is still being written. */
        act_send(&act, "print('on') or all(True for _ in iter(int, 1))", NULL);
        fixture_until(stage.box.f, &act.heard);
        assert_int_equal(turn_process_interrupt(act.process), 0);
        act_wait(&act);
        assert_int_equal(act.kind, TURN_ERROR_INTERRUPTED);
        assert_non_null(strstr(act.error, "iter(int, 1)"));
        SAYS(&act, "print('goes on')", "goes on\n");
}

static void an_interrupt_ends_a_programs_wait(void **state) {
        act_send(&act, "import subprocess\nsubprocess.run('echo on; sleep 1000', shell=True)", NULL);
        fixture_until(stage.box.f, &act.heard);
        turn_process_interrupt(act.process);
        act_wait(&act);
        assert_int_equal(act.kind, TURN_ERROR_INTERRUPTED);
}

static void an_interrupt_without_an_action_does_nothing(void **state) {
        RUNS(&act, "1");
        assert_int_equal(turn_process_interrupt(act.process), 0);
        SAYS(&act, "print(2)", "2\n");
}

static void an_action_right_behind_an_interrupt_is_not_hit_by_it(void **state) {
        for (int i = 0; i < 50 && !act.ended; i++) {
                act_send(&act, "pass", NULL);
                turn_process_interrupt(act.process);
                act_wait(&act);
                SAYS(&act, "print(3)", "3\n");
        }
}

static void one_action_at_a_time(void **state) {
        struct error e;
        act_send(&act, "import time\ntime.sleep(0.05)", NULL);
        assert_int_equal(turn_process_execute(act.process, 99, "1", 1, NULL, 0, &e), -EBUSY);
        act_wait(&act);
}

static void code_is_checked(void **state) {
        struct error e;
        assert_int_equal(turn_process_execute(act.process, 99, "", 0, NULL, 0, &e), -ENODATA);
        assert_int_equal(turn_process_execute(act.process, 99, "1\0", 2, NULL, 0, &e), -EINVAL);
        assert_int_equal(turn_process_execute(act.process, 99, "'\xff'", 3, NULL, 0, &e), -EINVAL);
        char *big = calloc(1, TURN_CODE_MAX + 1);
        memset(big, '#', TURN_CODE_MAX + 1);
        assert_int_equal(turn_process_execute(act.process, 99, big, TURN_CODE_MAX + 1, NULL, 0, &e), -EFBIG);
        assert_int_equal(turn_process_execute(act.process, ++act.action, big, TURN_CODE_MAX, NULL, 0, &e), 0);
        act.done = false;
        act_wait(&act);
        free(big);
}

static void nothing_of_a_turn_is_left(void **state) {
        RUNS(&act, "import subprocess, os, signal\n_p = subprocess.Popen(['setsid', 'sleep', '1000'])\nif os.fork() == 0:\n    os.setsid()\n    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\n    signal.signal(15, signal.SIG_IGN)\n    while True: pass");
        assert_int_equal(act_number(&act, "len([p for p in os.listdir('/proc') if p.isdigit() and os.stat('/proc/' + p).st_uid == 1000 or p == str(os.getpid())])") > 0, true);
        act_end(&act);
        assert_int_equal(act.end.reason, TURN_END_KILLED);
        assert_true(act.end.cpu_us > 0);
        act_begin(&stage, &act, STAGE_SETUP);
        assert_int_equal(act_number(&act, "import os\nn = 0\nfor p in os.listdir('/proc'):\n    if p.isdigit() and p != str(os.getpid()):\n        try: n += ' 1000' in [l for l in open(f'/proc/{p}/status').read().replace('\\t', ' ').split('\\n') if l.startswith('Uid:')][0]\n        except OSError: pass\nprint(n)"), 0);
}

static void a_turn_knows_nothing_of_the_one_before(void **state) {
        RUNS(&act, "secret = 1\nimport os, builtins, json\nos.environ['LEFT'] = '1'\nbuiltins.left = 1\njson.left = 1\nos.umask(0)");
        act_end(&act);
        act_begin(&stage, &act, STAGE_SETUP);
        SAYS(&act, "import os, builtins, json\n('secret' in globals(), 'LEFT' in os.environ, hasattr(builtins, 'left'), hasattr(json, 'left'))", "(False, False, False, False)\n");
}

static void one_turn_at_a_time(void **state) {
        struct turn_process *t;
        struct error e;
        const struct turn_spec spec = { .secret = "s", .broker = "unix:/x", .cwd = "/" };
        const struct turn_callbacks cb = { 0 };
        assert_int_equal(turn_process_start(stage.interpreter, &spec, &cb, NULL, &t, &e), -EBUSY);
}

static void the_end_of_the_process_is_the_end_of_the_turn(void **state) {
        act_run(&act, "import os\nos._exit(3)");
        act_wait_end(&act);
        assert_int_equal(act.end.reason, TURN_END_EXITED);
        assert_string_equal(act.end.error.text, "the turn's process exited with status 3");
}

static bool counted;
static int64_t cpu;
static void on_usage(struct turn_process *t, int64_t cpu_us, void *user) {
        counted = true;
        cpu = cpu_us;
}
static void usage_is_counted_by_the_kernel(void **state) {
        RUNS(&act, "import time\nt = time.process_time()\nwhile time.process_time() < t + 0.05: pass");
        counted = false;
        assert_int_equal(turn_process_usage(act.process, on_usage, NULL), 0);
        fixture_until(stage.box.f, &counted);
        assert_true(cpu >= 40000);
}

static void a_directory_that_is_not_there_is_named(void **state) {
        act_end(&act);
        act_start(&stage, &act, STAGE_SETUP, "unix:/x", "/nowhere");
        act_wait_end(&act);
        assert_int_equal(act.end.reason, TURN_END_START);
        assert_non_null(strstr(act.end.error.text, "'/nowhere'"));
}

static void code_may_come_before_it_has_begun(void **state) {
        act_end(&act);
        act_start(&stage, &act, STAGE_SETUP, "unix:/x", "/tmp");
        act_run(&act, "print('early')");
        assert_string_equal(act.out, "early\n");
}

#define T(f) cmocka_unit_test_setup_teardown(f, begin, end)
int main(void) {
        const struct CMUnitTest tests[] = {
                T(python_says_its_version), T(names_persist_between_actions), T(the_last_expression_is_shown), T(variables_become_names),
                T(a_turn_is_a_user_without_power), T(programs_output_is_captured), T(output_is_there_before_the_action_is_done),
                T(an_unfinished_line_is_not_lost), T(a_traceback_shows_the_codes_own_lines), T(output_before_an_error_is_kept), T(a_syntax_error_is_one),
                T(await_works_at_top_level), T(exit_ends_the_action), T(sources_are_published_once), T(main_is_a_module), T(modules_of_the_directory_are_found),
                T(submit_ends_the_action), T(positional_outputs_get_their_names), T(a_refused_submit_can_be_tried_again),
                T(what_is_no_strict_json_is_refused_by_name), T(a_submit_that_is_swallowed_stands), T(a_submit_of_a_thread_ends_the_action),
                T(no_submit_without_an_action), T(no_submit_from_a_fork),
                T(an_interrupt_reaches_the_code), T(an_interrupt_ends_a_programs_wait), T(an_interrupt_without_an_action_does_nothing),
                T(an_action_right_behind_an_interrupt_is_not_hit_by_it), T(one_action_at_a_time), T(code_is_checked),
                T(nothing_of_a_turn_is_left), T(a_turn_knows_nothing_of_the_one_before), T(one_turn_at_a_time),
                T(the_end_of_the_process_is_the_end_of_the_turn), T(usage_is_counted_by_the_kernel), T(a_directory_that_is_not_there_is_named),
                T(code_may_come_before_it_has_begun),
        };
        return cmocka_run_group_tests(tests, open_all, close_all);
}
