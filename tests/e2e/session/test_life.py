"""Start, status, deletion; what becomes of sessions that nobody wants, and of all of them when the daemon goes."""
import concurrent.futures
import os
import signal
import uuid

import pytest
from brigd import until

from session_client import Session


def test_unknown_ids(daemon):
    for ident in (str(uuid.uuid4()), "x", "..%2f..%2fetc", "%00", "a" * 5000, "'; DROP TABLE jobs; --".replace(" ", "%20"), "%ff%fe"):
        for method, path, text in (("GET", "", "Session not found"), ("DELETE", "", "Session not found"), ("POST", "/exec", "session not found"), ("POST", "/finish", "session not found")):
            answer = daemon.call(method, f"/session/{ident}{path}")
            assert answer.status in (404, 400) and (answer.status == 400 or answer.json == {"error": text}), (ident, method, path, answer)


def test_a_task_is_no_session_and_a_session_no_task(daemon, session):
    s = session()
    assert daemon.call("GET", f"/task/{s.id}").status == 404
    assert daemon.call("DELETE", f"/task/{s.id}").status == 404
    assert s.status() == "ready"


def test_deleted_at_once(daemon):
    s = Session(daemon)
    answer = s.delete()
    assert answer.status == 200 and answer.json == {"session_id": s.id, "deleted": True}
    assert s.get().status == 404 and s.delete().status == 404


def test_deleted_while_a_command_runs(session):
    s = session()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(s.post, "exec", {"command": "echo begun; sleep 100"})
        until(lambda: "sleep" in s.exec("cat /proc/[0-9]*/comm")["stdout"], "the command runs")
        assert s.delete().status == 200
        answer = waiting.result()
    assert answer.status == 200 and answer.json["exit_code"] == 137 and answer.json["stdout"] == "begun\n"


def test_an_image_that_is_not_there(daemon):
    for image in ("/nowhere", "127.0.0.1:1/no/such:image"):
        s = Session(daemon, image=image)
        until(lambda: s.status() == "failed", "the session fails")
        got = s.get().json
        assert got == {"session_id": s.id, "status": "failed", "image": image, "error": got["error"]} and image in got["error"]
        answer = s.post("exec", {"command": "true"})
        assert answer.status == 409 and answer.json == {"error": "session not ready (status=failed)"}
        assert s.post("finish").json == {"error": "session not ready (status=failed)"}
        assert s.delete().status == 200 and s.get().status == 404


def test_capabilities_are_dropped(session):
    s, t = session(cap_drop=["CHOWN", "cap_setuid"]), session()
    assert s.exec("touch /tmp/f; chown 1:1 /tmp/f")["exit_code"] != 0
    assert t.exec("touch /tmp/f; chown 1:1 /tmp/f")["exit_code"] == 0


def test_a_start_up_command_runs_in_the_background(session):
    s = session(startup_command="echo up > /tmp/up; exec sleep 1000")
    until(lambda: s.exec("cat /tmp/up")["stdout"] == "up\n", "the start-up command has run")


def test_block_network(session):
    links = "tail -n +3 /proc/net/dev | cut -d: -f1"
    assert session(network=None, block_network=True).out(links).split() == ["lo"]
    assert len(session(network=None, block_network=False).out(links).split()) == 2


def test_idempotency_key(daemon):
    key = str(uuid.uuid4())
    s, t = Session(daemon, idempotency_key=key), Session(daemon, idempotency_key=key)
    assert s.id == t.id
    other = daemon.call("POST", "/session/start", {"image": "host", "idempotency_key": key})
    assert other.status == 409 and other.json["code"] == "idempotency_conflict"
    by_header = daemon.call("POST", "/session/start", {"image": "host", "network": "none"}, {"Idempotency-Key": key + "h"})
    again = daemon.call("POST", "/session/start", {"image": "host", "network": "none"}, {"Idempotency-Key": key + "h"})
    assert by_header.json == again.json
    for ident in (s.id, again.json["session_id"]):
        daemon.call("DELETE", f"/session/{ident}")


@pytest.mark.parametrize("body, error", [
    ({}, "Missing required fields: ['image']"), ({"image": ""}, "Missing required fields: ['image']"), ({"image": None}, "Missing required fields: ['image']"),
    ({"mode": "build"}, "Missing required fields: ['dockerfile']"), ({"mode": "what", "image": "host"}, "Unsupported mode: 'what'"),
    ({"image": 3}, "Invalid value for 'image': expected a string, not number"),
    ({"image": "host", "env": {"A": 1}}, "Invalid value for 'env': the value of 'A' is number, not a string"),
    ({"image": "host", "cap_drop": ["FLY"]}, "Invalid value for 'cap_drop': 'FLY' is not a capability"),
    ({"image": "host", "block_network": "yes"}, "Invalid value for 'block_network': expected a boolean, not string"),
])
def test_bad_requests(daemon, body, error):
    answer = daemon.call("POST", "/session/start", body)
    assert answer.status == 400 and answer.json["error"] == error


@pytest.mark.parametrize("raw", [b"", b"x", b"[]", b"null"])
def test_no_json(daemon, raw):
    answer = daemon.call("POST", "/session/start", raw)
    assert answer.status == 400 and answer.json == {"error": "Request body must be valid JSON"}


def test_what_lived_when_the_daemon_stopped_is_failed(brig):
    for end in (signal.SIGKILL, signal.SIGTERM):
        d = brig()
        s = Session(d, labels={"a": "b"}).ready()
        starting = Session(d)
        d.end(end)
        d.assert_nothing_left()
        d.start()
        for one in (s, starting):
            assert one.get().json == {"session_id": one.id, "status": "failed", "image": "host", "error": "daemon restarted"}
        assert s.post("exec", {"command": "true"}).status == 409
        assert s.delete().status == 200 and s.get().status == 404


def test_what_was_changed_is_known_after_a_restart(brig):
    d = brig()
    s = Session(d, labels={"a": "b"}).ready()
    at = f"/v1/sessions/{s.id}"
    for change in {"labels": {"c": "d"}}, {"ttl_s": 5000}, {"idle_timeout_s": 600, "owner_ttl_s": 700}:
        assert d.call("PATCH", at, change).status == 200
    before = d.call("GET", at).json
    d.end(signal.SIGKILL)
    d.start()
    after = d.call("GET", at).json
    assert after["state"] == "failed" and after["error"] == "daemon restarted"
    for member in "labels", "ttl_s", "idle_timeout_s", "owner_ttl_s":
        assert after[member] == before[member]
    assert after["labels"] == {"c": "d"} and after["ttl_s"] == 5000
    assert [one["id"] for one in d.call("GET", "/v1/sessions?state=failed&label=c=d").json["sessions"]] == [s.id]
    answer = d.call("PATCH", at, {"ttl_s": 1})
    assert answer.status == 409 and answer.json["error"]["code"] == "not_ready"


def test_a_drain_lets_a_command_end(brig):
    d = brig()
    s, idle = Session(d).ready(), Session(d).ready()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(s.post, "exec", {"command": "touch /tmp/begun; sleep 1; echo whole"})
        until(lambda: s.exec("ls /tmp/begun")["exit_code"] == 0, "the command runs")
        d.process.send_signal(signal.SIGTERM)
        assert waiting.result().json["stdout"] == "whole\n"
    assert d.wait() == 0
    d.assert_nothing_left()


def test_idle_time_counts_from_the_end_of_the_last_use(brig):
    d = brig(DOCKYARD_SESSION_MAX_AGE="3")
    s = Session(d).ready()
    assert s.exec("sleep 4.5; echo here")["stdout"] == "here\n"   # longer than the idle time
    assert s.status() == "ready"
    until(lambda: s.status() == 404, "the idle session is removed")


def test_more_sessions_than_may_live(brig):
    d = brig(BRIG_SESSION_MAX="2")
    two = [Session(d).ready() for _ in range(2)]
    answer = d.call("POST", "/session/start", {"image": "host"})
    assert answer.status == 503 and answer.json["code"] == "too_many_sessions" and answer.headers["Retry-After"]
    assert two[0].delete().status == 200
    Session(d).ready()


def test_calls_beyond_the_bound_wait(brig):
    d = brig(DOCKYARD_TASK_EXECUTOR_THREADS="2")
    s = Session(d).ready()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda i: s.exec(f"mkdir /tmp/lock-{i}; ls -d /tmp/lock-* | wc -l; sleep 0.2; rmdir /tmp/lock-{i}"), range(8)))
    assert all(a["exit_code"] == 0 and int(a["stdout"]) <= 2 for a in answers)


def test_finishes_count_as_calls(brig):
    d = brig(DOCKYARD_TASK_EXECUTOR_THREADS="1")
    some = [Session(d).ready() for _ in range(3)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        slow = pool.submit(some[0].exec, "sleep 1.25; date +%s%N")
        until(lambda: d.inside("sleep", "1.25"), "it has its turn")
        finishes = [pool.submit(s.finish, test_command="date +%s%N; sleep 0.2") for s in some[1:]]
        first = int(slow.result()["stdout"])
        assert all(int(f.result()["stdout"]) >= first for f in finishes)
    waiting = Session(d).ready()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        slow = pool.submit(some[0].exec, "sleep 1000.5 || true")
        sleeper = until(lambda: d.inside("sleep", "1000.5"), "it has its turn")
        deleted = pool.submit(waiting.post, "finish", {"test_command": "true"})
        until(lambda: waiting.status() == "finishing", "it waits its turn")
        assert waiting.delete().status == 200 and deleted.result().status == 404
        os.kill(sleeper[0], signal.SIGKILL)
        assert slow.result()["exit_code"] == 0


def test_the_operators_bounds_of_commands(brig):
    d = brig(DOCKYARD_SESSION_EXEC_TIMEOUT="1", DOCKYARD_SESSION_OUTPUT_MAX_BYTES="100")
    s = Session(d).ready()
    assert s.exec("sleep 50")["timed_out"]
    assert "[... 900 bytes left out ...]" in s.exec("head -c 1000 /dev/zero | tr '\\0' x")["stdout"]


def test_200_sessions_at_once(brig):
    d = brig()
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        sessions = list(pool.map(lambda _: Session(d), range(200)))
        list(pool.map(Session.ready, sessions))
        out = list(pool.map(lambda s: s.out(f"echo {s.id} | tee /tmp/mine"), sessions))
        assert out == [f"{s.id}\n" for s in sessions]
        assert [s.out("cat /tmp/mine") for s in sessions[::20]] == out[::20]
        assert all(a.status == 200 for a in pool.map(Session.delete, sessions))
    assert not [s for s in sessions if s.get().status != 404]
    assert d.rows() == 0
