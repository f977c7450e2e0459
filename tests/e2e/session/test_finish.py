"""The end of a session by its verifier."""
import base64
import concurrent.futures
import json
import uuid

import pytest
from brigd import until
from session_client import Session

HELLO = {"harness_files": {"test.sh": "echo verified; exit 5"}}


def test_the_verifier_runs_and_the_session_is_gone(session):
    s = session()
    s.out("echo done > /tmp/answer")
    got = s.finish(harness_files={"test.sh": "cat /tmp/answer; cat /verifier/data/x; echo 1 > /verifier/reward; exit 5", "data/x": {"b64": base64.b64encode(b"data\n").decode()}},
                   result_files=["/verifier/reward", "/tmp/answer", "/nowhere"])
    assert got.pop("execution_time") >= 0
    assert got == {"session_id": s.id, "exit_code": 5, "stdout": "done\ndata\n", "stderr": "", "timed_out": False, "error": None, "integrity": "live",
                   "result_files": {"/verifier/reward": "1\n", "/tmp/answer": "done\n", "/nowhere": None}, "stale_files": ["/tmp/answer"]}
    assert s.get().status == 404 and s.post("exec", {"command": "true"}).status == 404


def test_a_repeated_finish_gives_the_same_answer(session, daemon):
    s = session()
    first = s.finish(**HELLO)
    assert s.finish() == first and s.finish(harness_files={"test.sh": "exit 0"}) == first
    assert s.delete().status == 200
    assert s.post("finish").status == 404


def test_calls_that_come_meanwhile_wait_for_the_same_answer(session):
    s = session()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: s.finish(harness_files={"test.sh": "sleep 1; date +%N"}), range(4)))
    assert all(a == answers[0] for a in answers) and answers[0]["stdout"]


def test_exec_while_finishing(session):
    s = session()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        finishing = pool.submit(s.finish, harness_files={"test.sh": "sleep 2"})
        until(lambda: s.status() == "finishing", "it is finishing")
        answer = s.post("exec", {"command": "true"})
        assert answer.status == 409 and answer.json == {"error": "session not ready (status=finishing)"}
        assert finishing.result()["exit_code"] == 0


def test_an_empty_body_looks_for_a_test_that_is_not_there(session):
    got = session().post("finish").json
    assert got["exit_code"] == 127 and "/verifier/test.sh" in got["stderr"] and got["result_files"] == {}


def test_the_harness_is_private_and_covers_what_was_there(session):
    s = session()
    s.out("mkdir /verifier; echo forged > /verifier/test.sh; echo 'echo forged' > /verifier/extra")
    s.out("(while ! cat /verifier/secret >> /tmp/seen 2>/dev/null; do sleep 0.02; done) >/dev/null 2>&1 &")
    got = s.finish(harness_files={"test.sh": "sleep 0.5; ls /verifier; cat /verifier/secret; cat /tmp/seen", "secret": "the answer\n"})
    assert got["stdout"] == "secret\ntest.sh\nthe answer\n"


@pytest.mark.parametrize("trap", ["ln -s /etc /verifier", "touch /verifier", "mkfifo /verifier", "mkdir -p /x && ln -s /x /verifier && mkdir /x/test.sh"])
def test_what_stands_at_the_mount_beforehand(session, trap):
    s = session()
    s.out(trap)
    assert s.finish(**HELLO)["stdout"] == "verified\n"


def test_traps_in_profiles_do_not_reach_the_verifier(session):
    s = session(env={"MINE": "1"})
    s.out("echo 'echo trap; exit 0' | tee /etc/profile /root/.profile /root/.bashrc /root/.bash_profile >/dev/null")
    got = s.finish(harness_files={"test.sh": "echo MINE=$MINE BASH_ENV=$BASH_ENV"})
    assert got["stdout"] == "MINE=1 BASH_ENV=\n"


def test_agent_processes_are_kept(session):
    s = session()
    s.out("sleep 4321 >/dev/null 2>&1 &")
    got = s.finish(harness_files={"test.sh": "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"})
    assert "sleep 4321" in got["stdout"] and got["integrity"] == "live"


def test_or_killed_but_for_the_start_up_command(session):
    s = session(startup_command="exec sleep 8765")
    until(lambda: "sleep 8765" in s.out("cat /proc/[0-9]*/cmdline | tr '\\0' ' '"), "the start-up command runs")
    s.out("setsid sleep 4321 >/dev/null 2>&1 &")
    got = s.finish(agent_processes="kill", harness_files={"test.sh": "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"})
    assert "sleep 4321" not in got["stdout"] and "sleep 8765" in got["stdout"] and got["integrity"] is None


def test_a_loop_that_rewrites_the_results(session):
    """Frozen before they are read: what the verifier's last word was, or what the loop wrote before, whole; and never after."""
    s = session()
    s.out("nohup sh -c 'while :; do echo 1 > /tmp/reward.n; mv /tmp/reward.n /tmp/reward; done' >/dev/null 2>&1 &")
    got = s.finish(harness_files={"test.sh": "echo 0 > /verifier/reward; echo 0 > /tmp/reward"}, result_files=["/verifier/reward", "/tmp/reward"])
    assert got["result_files"]["/verifier/reward"] == "0\n" and got["result_files"]["/tmp/reward"] in ("0\n", "1\n") and got["integrity"] == "live"


def test_results_through_links_are_not_read(session):
    s = session()
    s.out("ln -s /etc/passwd /tmp/link; mkdir /tmp/d; echo x > /tmp/d/f; ln -s /tmp/d /tmp/dl; mkfifo /tmp/fifo; mkdir /tmp/dir; truncate -s 17M /tmp/big")
    paths = ["/tmp/link", "/tmp/dl/f", "/tmp/fifo", "/tmp/dir", "/tmp/big", "/proc/1/environ", "/tmp/../tmp/d/f", "/tmp/d/f", "/dev/zero"]
    got = s.finish(harness_files={"test.sh": "true"}, result_files=paths)["result_files"]
    assert got["/tmp/d/f"] == "x\n"
    assert [p for p in paths if got[p] is not None] in (["/tmp/../tmp/d/f", "/tmp/d/f"], ["/tmp/d/f"])


def test_stale_files(session):
    s = session()
    s.out("echo old > /tmp/old; echo old > /tmp/rewritten; echo old > /tmp/replaced")
    got = s.finish(harness_files={"test.sh": "echo new > /tmp/rewritten; rm /tmp/replaced; echo old > /tmp/replaced; echo n > /tmp/new"},
                   result_files=["/tmp/old", "/tmp/rewritten", "/tmp/replaced", "/tmp/new", "/tmp/none"])
    assert got["stale_files"] == ["/tmp/old"]
    assert got["result_files"] == {"/tmp/old": "old\n", "/tmp/rewritten": "new\n", "/tmp/replaced": "old\n", "/tmp/new": "n\n", "/tmp/none": None}


def test_bytes_that_are_not_utf8(session):
    got = session().finish(harness_files={"test.sh": "printf '\\377x'; printf '\\377y' > /tmp/r"}, result_files=["/tmp/r"])
    assert got["stdout"] == "\ufffdx" and got["result_files"]["/tmp/r"] == "\ufffdy"


def test_a_timeout(session):
    got = session().finish(harness_files={"test.sh": "echo begun; echo part > /tmp/r; sleep 1000"}, timeout=3, result_files=["/tmp/r"])
    assert got["exit_code"] == 124 and got["timed_out"] and got["stdout"] == "begun\n" and got["result_files"]["/tmp/r"] == "part\n"


def test_output_limit_and_command(session):
    got = session().finish(test_command="head -c 1000 /dev/zero | tr '\\0' x; cat /v/a", harness_mount="/v", harness_files={"a": "A"}, output_limit=10)
    assert got["stdout"].startswith("xxxxx\n[... 991 bytes left out") and got["stdout"].endswith("A")


@pytest.mark.parametrize("body, field", [
    ({"harness_files": {"../x": ""}}, "harness_files"), ({"harness_files": {"/abs": ""}}, "harness_files"), ({"harness_files": {"a/../../b": ""}}, "harness_files"),
    ({"harness_files": {"": ""}}, "harness_files"), ({"harness_files": {"a": 3}}, "harness_files"), ({"harness_files": {"a": {"b64": "@"}}}, "harness_files"),
    ({"harness_files": []}, "harness_files"), ({"harness_mount": "relative"}, "harness_mount"), ({"harness_mount": "/a/../b"}, "harness_mount"),
    ({"harness_mount": "/"}, "harness_mount"), ({"result_files": ["/" + "x" * 5000]}, "result_files"), ({"result_files": ["rel"]}, "result_files"), ({"result_files": "x"}, "result_files"),
    ({"agent_processes": "love"}, "agent_processes"), ({"timeout": {}}, "timeout"),
])
def test_a_wrong_field_is_named_and_the_session_goes_on(daemon, session, body, field):
    s = session()
    answer = s.post("finish", body)
    assert answer.status == 400 and f"'{field}'" in answer.json["error"], answer
    assert s.out("echo on") == "on\n"


def test_no_json(session):
    s = session()
    for raw in (b"[", b"[]", b"1", b"x" * 100000):
        answer = s.post("finish", raw)
        assert answer.status == 400 and answer.json == {"error": "Request body must be valid JSON"}
    assert s.status() == "ready"


def test_a_big_harness(session):
    data = base64.b64encode(bytes(range(256)) * 40000).decode()
    got = session().finish(harness_files={"test.sh": "wc -c < /verifier/big; cp /verifier/big /tmp/r", "big": {"b64": data}}, result_files=["/tmp/r"])
    assert got["stdout"] == "10240000\n" and len(got["result_files"]["/tmp/r"]) > 5000000


def test_deleted_while_it_finishes(session):
    s = session()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        finishing = pool.submit(s.post, "finish", {"harness_files": {"test.sh": "sleep 100"}})
        until(lambda: s.status() == "finishing", "it is finishing")
        assert s.delete().status == 200
        answer = finishing.result()
    assert answer.status == 404 and answer.json == {"error": "session not found"}


def test_the_answer_outlives_the_daemon(brig):
    d = brig()
    s = Session(d).ready()
    first = s.finish(**HELLO)
    d.stop()
    d.start()
    assert s.finish() == first and s.get().status == 404


def test_the_answer_goes_with_its_time(brig):
    d = brig(TASK_MAX_AGE="1")
    s = Session(d).ready()
    s.finish(**HELLO)
    until(lambda: s.post("finish").status == 404, "the record is forgotten")


def test_finish_is_not_lost_with_its_client(session):
    s = session()
    with pytest.raises(TimeoutError):
        s.post("finish", {"harness_files": {"test.sh": "sleep 1; echo heard"}}, timeout=0.3)
    assert s.finish()["stdout"] == "heard\n"


def test_nobody_to_finish(daemon):
    answer = daemon.call("POST", f"/session/{uuid.uuid4()}/finish", json.dumps(HELLO).encode())
    assert answer.status == 404 and answer.json == {"error": "session not found"}
