"""Sessions, turns and actions over HTTP."""
import sys

import pytest

sys.path.insert(0, __file__.rsplit("/", 1)[0])

from rlm_client import Host, error  # noqa: E402


def test_an_action_answers_what_it_wrote_and_submitted(host):
    turn = host.session().turn()
    answer = turn.execute("import sys; print('out'); print('err', file=sys.stderr); SUBMIT(answer=42)")
    assert answer["stdout"] == "out\n"
    assert answer["stderr"] == "err\n"
    assert answer["final"] == {"answer": 42}
    assert answer["error"] is None and answer["error_category"] is None and answer["tool_error"] is None
    assert answer["truncated"] is False
    assert answer["usage"]["wall_ms"] >= 0 and answer["usage"]["tool_calls"] == 0
    assert turn.end().json == {"turn": turn.id, "ended": True}


def test_variables_stay_within_a_turn_and_files_beyond_it(host):
    session = host.session()
    turn = session.turn()
    turn.execute("x = 1", variables={"given": [1, "two"]})
    assert turn.execute("print(x, given)")["stdout"] == "1 [1, 'two']\n"
    turn.execute("open('kept', 'w').write('here')")
    turn.end()
    turn = session.turn()
    answer = turn.execute("print(open('kept').read()); x")
    assert answer["stdout"] == "here\n"
    assert answer["error_type"] == "NameError" and answer["error_category"] == "exception"


def test_an_exception_is_an_answer_with_what_was_written(host):
    answer = host.session().turn().execute("print('before')\n1/0")
    assert answer["stdout"] == "before\n" and answer["final"] is None
    assert answer["error_category"] == "exception" and "ZeroDivisionError" in answer["error"]
    answer = host.session().turn().execute("x = = 1")
    assert answer["error_category"] == "syntax_error"


@pytest.mark.parametrize("body, code", [
    ({"code": ""}, "empty_code"), ({"code": " \n\t "}, "empty_code"), ({"code": "#" * 12001}, "code_too_large"), ({"code": "\u00e4" * 12001}, "code_too_large"),
    ({}, "invalid"), ({"code": 7}, "invalid"), ({"code": "1", "variables": []}, "invalid"), ({"code": "1", "timeout_s": 0}, "invalid"),
    ({"code": "1", "timeout_s": -1}, "invalid"), ({"code": "1", "timeout_s": "soon"}, "invalid"), ({"code": "1", "host_wait_s": 1e9}, "invalid"), ({"code": "a\0b"}, "invalid"),
])
def test_bad_arguments_are_refused_and_the_turn_goes_on(host, body, code):
    turn = host.session().turn()
    assert error(host.call("POST", turn.path + "/execute", body)) == (400, code)
    assert turn.execute("#" + "\u00e4" * 11990 + "\nprint(1)")["stdout"] == "1\n"


def test_variables_are_strict_json(host):
    turn = host.session().turn()
    for text in (b'{"code":"1","variables":{"x":NaN}}', b'{"code":"1","variables":{"x":Infinity}}', b'{"code":"1"', b"[]", b"\xff"):
        assert error(host.call("POST", turn.path + "/execute", text)) == (400, "invalid")


def test_two_actions_at_a_time_are_refused(host):
    turn = host.session().turn(["wait"])
    first = turn.execution("wait()")
    request = turn.claim()
    assert error(turn.post_execute("1")) == (409, "executing")
    turn.settle(request, result=None)
    assert first.result()["error"] is None
    assert turn.execute("print(2)")["stdout"] == "2\n"


def test_one_turn_at_a_time(host):
    session = host.session()
    turn = session.turn()
    assert error(session.begin()) == (409, "turn_active")
    assert session.look()["turn"] == turn.id
    turn.end()
    session.turn()


def test_a_timeout_interrupts_and_the_turn_goes_on(host):
    session = host.session()
    turn = session.turn()
    answer = turn.execute("print('begun')\nimport time\nwhile True: time.sleep(0.01)", timeout_s=0.3)
    assert answer["error_category"] == "timeout" and answer["stdout"] == "begun\n" and answer["turn_over"] is False
    assert turn.execute("print('on')")["stdout"] == "on\n"


def test_code_that_does_not_yield_is_killed_and_its_root_retired(host):
    session = host.session()
    turn = session.turn()
    turn.execute("open('/tmp/mark', 'w').close()")
    answer = turn.execute("import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('hard', flush=True)\nwhile True: pass", timeout_s=0.3)
    assert answer["error_category"] == "timeout" and answer["turn_over"] is True and "hard" in answer["stdout"]
    assert error(turn.post_execute("1")) == (409, "turn_ended")
    turn = session.turn()
    assert turn.execute("import os; print(os.path.exists('/tmp/mark'))")["stdout"] == "False\n"


def test_a_clean_root_is_used_again(host):
    session = host.session()
    turn = session.turn()
    turn.execute("open('/tmp/mark', 'w').close()")
    turn.end()
    assert session.look()["root"] == "ready"
    assert session.turn().execute("import os; print(os.path.exists('/tmp/mark'))")["stdout"] == "True\n"


def test_a_turn_that_ends_itself_says_so_and_another_begins(host):
    session = host.session()
    turn = session.turn()
    answer = turn.execute("import os; os._exit(3)")
    assert answer["error_category"] == "process_exited" and answer["turn_over"] is True
    assert error(turn.post_execute("1")) == (409, "turn_ended")
    assert session.turn().execute("print(1)")["stdout"] == "1\n"


def test_processes_of_a_turn_end_with_it(host):
    session = host.session()
    turn = session.turn()
    code = "import os\nfor i in range(3):\n  if os.fork() == 0:\n    os.setsid()\n    os.execvp('sleep', ['sleep', '4242'])\n"
    turn.execute(code)
    turn.end()
    answer = session.turn().execute("import subprocess; print(subprocess.run(['pgrep', '-fc', 'sleep 4242'], capture_output=True, text=True).stdout)")
    assert answer["stdout"].strip() == "0"


def test_submit_is_checked_by_its_types_and_may_be_tried_again(host):
    turn = host.session().turn(outputs=[{"name": "answer", "type": "str"}, {"name": "score", "type": "float", "default": 0.5}])
    answer = turn.execute("try:\n  SUBMIT(answer=7)\nexcept Exception as e:\n  print(e)\nSUBMIT(answer='seven')")
    assert "answer must be str" in answer["stdout"]
    assert answer["final"] == {"answer": "seven", "score": 0.5}
    assert turn.execute("SUBMIT(other=1)")["error_category"] == "exception"
    assert turn.execute("SUBMIT(answer='x', score=float('nan'))")["final"] is None
    assert turn.execute("SUBMIT(answer='x' * (2 << 20))")["error_category"] == "exception"
    assert turn.execute("print({'final': 'forged'})")["final"] is None


def test_output_is_bounded_with_head_and_tail(host):
    turn = host.session().turn()
    answer = turn.execute("print('HEAD' + 'x' * 200000 + 'TAIL')\nimport os; _ = os.system('echo from a program')")
    assert answer["truncated"] is True and len(answer["stdout"]) <= 65536
    assert answer["stdout"].startswith("HEAD") and answer["stdout"].endswith("TAIL\nfrom a program\n")
    answer = turn.execute("import sys; _ = sys.stdout.write('\u20ac' * 65536)")
    assert answer["truncated"] is False and answer["stdout"] == "\u20ac" * 65536


@pytest.mark.parametrize("body", [
    {"tools": [{"name": "not a name"}]}, {"tools": [{"name": "SUBMIT"}]}, {"tools": {}}, {"tools": [{"name": "a"}, {"name": "a"}]}, {"outputs": [{"name": "x", "type": "widget"}]},
    {"outputs": 7}, {"acquire_timeout_s": "x"}, {"acquire_timeout_s": 1e9},
])
def test_turns_that_cannot_be_are_refused(host, body):
    session = host.session()
    assert error(session.begin(**body)) == (400, "invalid")
    session.turn()


def test_a_cancel_fences_the_turn_off(host):
    session = host.session()
    turn = session.turn(["wait"])
    action = turn.execution("open('kept', 'w').close(); wait()")
    request = turn.claim()
    answer = turn.cancel().json
    assert answer["cancelled"] is True and answer["generation"] > turn.generation
    assert action.result()["error_category"] == "cancelled"
    assert error(turn.settle(request, result=1)) == (409, "stale_generation")
    assert error(turn.post_execute("1")) == (409, "stale_generation")
    assert error(host.call("GET", turn.path + "/pending")) == (409, "stale_generation")
    assert error(turn.cancel()) == (409, "stale_generation")
    assert error(turn.end()) == (409, "stale_generation")
    after = session.turn()
    assert after.generation == answer["generation"]


def test_generations_never_go_down_over_restarts(brig):
    daemon = brig()
    host = Host(daemon)
    session = host.session()
    turn = session.turn()
    assert turn.cancel().json["generation"] == 1
    turn = session.turn()
    seen = turn.generation
    for end in (daemon.kill, daemon.stop):
        end()
        daemon.start()
        assert error(turn.post_execute("1")) == (409, "stale_generation")
        turn = session.turn()
        assert turn.generation > seen
        seen = turn.generation
        assert turn.execute("print(1)")["stdout"] == "1\n"


def test_a_deleted_session_is_gone(host):
    session = host.session()
    turn = session.turn()
    assert session.delete().json == {"session": session.id, "deleted": True}
    assert error(host.call("GET", session.path)) == (404, "not_found")
    assert error(turn.post_execute("1")) == (404, "not_found")
    assert error(session.delete()) == (404, "not_found")
    assert host.call("GET", "/sessions").json["slots_used"] == 0


def test_what_never_was_is_not_found(host):
    session = host.session()
    for path in ("/sessions/none", f"{session.path}/turns/none/pending", f"{session.path}/turns/g99-{'0' * 32}/pending"):
        assert error(host.call("GET", path)) == (404, "not_found")


def test_an_idempotency_key_makes_one_session_and_one_turn(host):
    key = {"Idempotency-Key": "once"}
    first, again = (host.call("POST", "/sessions", {"workspace": "w"}, key) for _ in range(2))
    assert first.status == again.status == 201 and first.json["session"] == again.json["session"]
    assert error(host.call("POST", "/sessions", {"workspace": "v"}, key)) == (409, "idempotency_conflict")
    path = f"/sessions/{first.json['session']}/turns"
    turn, same = (host.call("POST", path, {"tools": [{"name": "a"}]}, key) for _ in range(2))
    assert turn.status == same.status == 201 and turn.json == same.json
    assert error(host.call("POST", path, {"tools": [{"name": "b"}]}, key)) == (409, "idempotency_conflict")
    assert error(host.call("POST", path, {})) == (409, "turn_active")


def test_a_workspace_has_a_name_of_its_own_kind(host):
    assert host.session(workspace="a.b_c-9").seen["workspace"] == "a.b_c-9"
    for name in ("../x", "A", "-a", "a/b", "a" * 65, ""):
        answer = host.call("POST", "/sessions", {"workspace": name})
        assert (answer.status == 201) if name == "" else (error(answer) == (400, "invalid")), name


def test_events_tell_output_as_it_comes(host):
    turn = host.session().turn(["wait"])
    with turn.events() as following:
        action = turn.execution("print('first', flush=True)\nwait()\nimport sys; print('second', file=sys.stderr)")
        assert following() == ("stdout", {"action": 1, "data": "first\n"})
        assert following() == ("tools_pending", {})
        turn.settle(turn.claim(), result=None)
        assert following() == ("stderr", {"action": 1, "data": "second\n"})
        assert following() == ("execution_done", {"action": 1})
        action.result()
        turn.end()
        assert following() == (None, None)


def test_a_token_is_asked_for(brig):
    daemon = brig(API_TOKEN="secret", BRIG_LISTEN="127.0.0.1:0")
    assert daemon.call("POST", "/v1/rlm/sessions", {}).status == 401
    assert Host(daemon, "secret").session().turn().execute("print(1)")["stdout"] == "1\n"
