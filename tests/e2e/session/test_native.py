"""The native surface: /v1/sessions."""
import base64
import concurrent.futures
import pathlib
import re
import threading
import time
import uuid

import pytest
from brigd import until

TIMES = ("created_at", "ready_at", "last_used_at")


class Native:
    def __init__(self, daemon, wait=60, **request):
        self.daemon = daemon
        answer = daemon.call("POST", f"/v1/sessions?wait={wait}", {"network": "none", **request})
        assert answer.status == 201, answer
        self.first, self.id = answer.json, answer.json["id"]

    def call(self, method, path="", body=None, **more):
        return self.daemon.call(method, f"/v1/sessions/{self.id}{path}", body, **more)

    def ok(self, method, path="", body=None, status=200):
        answer = self.call(method, path, body)
        assert answer.status == status, answer
        return answer.json

    def exec(self, **body):
        return self.ok("POST", "/exec", body)

    def start(self, **body):
        return self.ok("POST", "/commands", body, 201)["id"]

    def ended(self, cid):
        return until(lambda: (c := self.ok("GET", f"/commands/{cid}"))["state"] == "exited" and c, "the command ends")

    def output(self, cid, query=""):
        return self.ok("GET", f"/commands/{cid}/output{query}")


@pytest.fixture
def native(daemon):
    made = []

    def make(**request):
        made.append(Native(daemon, **request))
        return made[-1]

    yield make
    for s in made:
        s.call("DELETE")


def fault(answer, status, code):
    assert answer.status == status, answer
    assert set(answer.json) == {"error"} and set(answer.json["error"]) == {"code", "message", "hint"}
    assert answer.json["error"]["code"] == code, answer
    return answer.json["error"]["message"]


# ---- sessions -----------------------------------------------------------------------------------------------------------------


def test_a_session_from_nothing(daemon):
    answer = daemon.call("POST", "/v1/sessions?wait=60", b"")
    assert answer.status == 201 and answer.json["state"] == "ready" and answer.json["image"] == "host" and answer.json["network"] == "open"
    got = daemon.call("DELETE", f"/v1/sessions/{answer.json['id']}")
    assert got.json == {"id": answer.json["id"], "deleted": True}


def test_what_is_known(native):
    s = native(labels={"team": "a", "x": "ü=1"}, ttl_s=100, idle_timeout_s=50.5, owner_ttl_s=60)
    got = s.ok("GET")
    assert got == {**s.first, "lease_until": got["lease_until"]}
    assert got["state"] == "ready" and got["labels"] == {"team": "a", "x": "ü=1"} and got["error"] is None and got["uses"] == 0 and not got["paused"]
    assert (got["ttl_s"], got["idle_timeout_s"], got["owner_ttl_s"]) == (100, 50.5, 60) and got["ended_at"] is None
    assert all(got[t].endswith("Z") for t in TIMES) and got["lease_until"] > got["ready_at"]


def test_change(native):
    s = native(labels={"a": "1"})
    got = s.ok("PATCH", "", {"labels": {"b": "2"}, "ttl_s": 5000})
    assert got["labels"] == {"b": "2"} and got["ttl_s"] == 5000 and got["idle_timeout_s"] == 1800
    assert "'labels'" in fault(s.call("PATCH", "", {"labels": 3}), 400, "invalid")
    assert "'ttl_s'" in fault(s.call("PATCH", "", {"ttl_s": -1}), 400, "invalid")


def test_list(brig):
    d = brig()
    made = [Native(d, labels={"n": str(i), "even": str(i % 2 == 0)}) for i in range(5)]
    def ids(query):
        answer = d.call("GET", f"/v1/sessions{query}")
        assert answer.status == 200, answer
        return [s["id"] for s in answer.json["sessions"]], answer.json["next"]
    every = [s.id for s in made]
    assert ids("") == (every, None)
    assert ids("?label=even=True") == (every[::2], None) and ids("?label=even=True,n=2") == ([every[2]], None) and ids("?label=n=9") == ([], None)
    first, after = ids("?limit=2")
    second, later = ids(f"?limit=2&after={after}")
    third, none = ids(f"?limit=2&after={later}")
    assert first + second + third == every and none is None
    d.call("POST", f"/session/{every[1]}/finish", {"test_command": "true"})
    made[3].call("DELETE")
    failed = Native(d, image="/nowhere").id
    assert ids("")[0] == [every[0], every[2], every[4]]
    until(lambda: ids("?state=failed")[0] == [failed], "it is recorded")
    assert ids("?state=finished")[0] == [every[1]] and ids("?state=all")[0] == [every[0], every[1], every[2], every[4], failed]
    assert ids("?state=finished,ready&label=n=1")[0] == [every[1]]
    assert d.call("GET", "/v1/sessions?state=odd").json["error"]["code"] == "invalid"
    assert d.call("GET", "/v1/sessions?label=odd").status == 400 and d.call("GET", "/v1/sessions?limit=x").status == 400


def test_failed_and_finished(daemon):
    s = Native(daemon, image="/nowhere")
    assert s.first["state"] == "failed" and s.first["error"] == "image /nowhere: not below a directory of the setting image.roots"
    assert "failed" in fault(s.call("POST", "/exec", {"command": "true"}), 409, "not_ready")
    t = Native(daemon)
    daemon.call("POST", f"/session/{t.id}/finish", {"test_command": "true"})
    assert t.ok("GET")["state"] == "finished" and t.ok("GET")["ended_at"]
    for one in (s, t):
        assert one.call("DELETE").status == 200
        fault(one.call("GET"), 404, "not_found")


def test_unknown(daemon):
    for ident in (str(uuid.uuid4()), "x", "a" * 3000):
        for method, path, body in (("GET", "", None), ("DELETE", "", None), ("PATCH", "", {}), ("POST", "/heartbeat", None), ("POST", "/exec", {"command": "true"}), ("GET", "/usage", None),
                                   ("POST", "/pause", None), ("GET", "/commands", None), ("POST", "/commands", {"command": "true"}), ("GET", "/commands/1", None)):
            fault(daemon.call(method, f"/v1/sessions/{ident}{path}", body), 404, "not_found")


def test_a_lease_that_is_not_renewed(brig):
    d = brig()
    kept, lost = Native(d, owner_ttl_s=5), Native(d, owner_ttl_s=1.5)
    end = time.monotonic() + 7
    while time.monotonic() < end:
        assert kept.ok("POST", "/heartbeat")["lease_until"]
        time.sleep(0.2)
    assert kept.ok("GET")["state"] == "ready"
    got = until(lambda: (g := lost.ok("GET"))["state"] == "expired" and g, "the lease is over")
    assert "owner" in got["error"]
    fault(lost.call("POST", "/heartbeat"), 409, "not_ready")


def test_time_to_live(brig):
    s = Native(brig(), ttl_s=4)
    assert s.exec(command="sleep 300")["exit_code"] == 137
    assert "time to live" in until(lambda: (g := s.ok("GET"))["state"] == "expired" and g, "its time is over")["error"]


# ---- exec ----------------------------------------------------------------------------------------------------------------------


def test_argv_has_no_shell(native):
    got = native().exec(argv=["printf", "%s|", "$HOME", "a b", "*"])
    assert got["stdout"] == "$HOME|a b|*|" and got["exit_code"] == 0 and got["stderr"] == "" and got["stdout_bytes"] == 12
    assert not got["timed_out"] and not got["oom"] and got["wall_ms"] >= 0 and got["cpu_ms"] >= 0


def test_command_is_a_shell_without_profile(native):
    assert native().exec(command="shopt -q login_shell || echo plain; exit 7") | {"wall_ms": 0, "cpu_ms": 0} == {
        "exit_code": 7, "stdout": "plain\n", "stderr": "", "stdout_bytes": 6, "stderr_bytes": 0, "timed_out": False, "oom": False, "session_ended": False, "wall_ms": 0, "cpu_ms": 0}


def test_login(native):
    assert native().exec(command="shopt -q login_shell && echo login", login=True)["stdout"] == "login\n"


def test_stdin(native):
    s = native()
    assert s.exec(argv=["cat"], stdin="hällo")["stdout"] == "hällo"
    data = bytes(range(256)) * 5000
    assert s.exec(argv=["sha256sum"], stdin={"b64": base64.b64encode(data).decode()})["stdout"][:64] == __import__("hashlib").sha256(data).hexdigest()
    assert s.exec(argv=["cat"])["stdout"] == ""


def test_env_cwd_user(native):
    s = native(env={"A": "1", "B": "1"}, workdir="/tmp", user="1000:1001")
    assert s.exec(command="echo $A $B $C; pwd; id -u; id -g", env={"B": "2", "C": "3"})["stdout"] == "1 2 3\n/tmp\n1000\n1001\n"
    assert s.exec(command="pwd; id -u", cwd="/usr", user=0)["stdout"] == "/usr\n0\n"


def test_output_as_it_is(native):
    s = native()
    got = s.exec(argv=["printf", "\\377\\0\\376"], encoding="base64")
    assert base64.b64decode(got["stdout"]) == b"\xff\0\xfe"
    assert s.exec(argv=["printf", "\\377\\0\\376"])["stdout"] == "\ufffd\0\ufffd"


def test_merged(native):
    got = native().exec(command="echo 1; echo 2 >&2; echo 3", merge_stderr=True)
    assert got["stdout"] == "1\n2\n3\n" and got["stderr"] == ""


def test_a_program_that_is_not_there(native):
    got = native().exec(argv=["no-such-program"])
    assert got["exit_code"] == 127 and "no-such-program" in got["stderr"]


def test_timeout(native):
    got = native().exec(argv=["sleep", "100"], timeout_s=0.3)
    assert got["exit_code"] == 124 and got["timed_out"]


def test_a_client_that_goes_away_takes_its_command_with_it(native):
    s = native()
    with pytest.raises(TimeoutError):
        s.call("POST", "/exec", {"command": "exec sleep 7654"}, timeout=0.5)
    until(lambda: "7654" not in s.exec(command="cat /proc/[0-9]*/cmdline")["stdout"], "the command is killed")


@pytest.mark.parametrize("body, text", [
    ({}, "Exactly one"), ({"argv": ["true"], "command": "true"}, "Exactly one"), ({"argv": []}, "'argv'"), ({"argv": [""]}, "'argv'"), ({"argv": [1]}, "'argv'"),
    ({"command": "true", "env": {"1": "x"}}, "'env'"), ({"command": "true", "user": "me"}, "'user'"), ({"command": "true", "stdin": 3}, "'stdin'"),
    ({"command": "true", "encoding": "latin1"}, "'encoding'"), ({"command": "true", "stdin": "x", "keep_input": True}, "'keep_input'"),
    ({"argv": ["x"], "login": True}, "'login'"), ({"argv": ["y" * 130000]}, "'argv'"),
])
def test_faults_name_the_field(native, body, text):
    assert text in fault(native().call("POST", "/exec", body), 400, "invalid")


# ---- background ----------------------------------------------------------------------------------------------------------------


def test_a_command_in_the_background(native):
    s = native()
    cid = s.start(command="echo out; echo err >&2; exit 4")
    got = s.ended(cid)
    assert got["exit_code"] == 4 and got["command"] == "echo out; echo err >&2; exit 4" and got["stdout_bytes"] == 4 and got["started_at"] and got["ended_at"]
    assert s.output(cid) == {"stream": "stdout", "offset": 0, "next_offset": 4, "size": 4, "eof": True, "data": "out\n"}
    assert s.output(cid, "?stream=stderr")["data"] == "err\n"
    assert [c["id"] for c in s.ok("GET", "/commands")["commands"]] == [cid]


def test_output_in_pieces_while_it_runs(native):
    s = native()
    cid = s.start(command="seq 1 20000; exec sleep 1000")
    until(lambda: s.output(cid, "?limit=0")["size"] == 108894, "all is written")
    at, data = 0, ""
    while at < 108894:
        piece = s.output(cid, f"?offset={at}&limit=10000")
        assert not piece["eof"] and piece["offset"] == at
        at, data = piece["next_offset"], data + piece["data"]
    assert data == "".join(f"{i}\n" for i in range(1, 20001))
    assert s.output(cid, "?offset=-6")["data"] == "20000\n" and s.output(cid, "?offset=999999")["data"] == ""
    assert base64.b64decode(s.output(cid, "?limit=4&encoding=base64")["data"]) == b"1\n2\n"
    assert s.ok("DELETE", f"/commands/{cid}") == {"id": cid, "killed": True, "deleted": False}
    assert s.ended(cid)["exit_code"] == 137 and s.output(cid, "?offset=-6")["eof"]
    assert s.ok("DELETE", f"/commands/{cid}") == {"id": cid, "killed": False, "deleted": True}
    fault(s.call("GET", f"/commands/{cid}"), 404, "not_found")
    for query in ("?offset=x", "?stream=both", "?encoding=utf16", "?limit=-1"):
        cid = s.start(argv=["true"])
        fault(s.call("GET", f"/commands/{cid}/output{query}"), 400, "invalid")


def test_stdin_of_a_command(native):
    s = native()
    cid = s.start(argv=["cat"], keep_input=True)
    assert s.ok("POST", f"/commands/{cid}/stdin", b"one\n") == {"id": cid, "bytes": 4}
    until(lambda: s.output(cid)["data"] == "one\n", "it has read")
    big = b"x" * 3000000
    assert s.ok("POST", f"/commands/{cid}/stdin?close=1", big)["bytes"] == len(big)
    assert s.ended(cid)["stdout_bytes"] == 4 + len(big)
    fault(s.call("POST", f"/commands/{cid}/stdin", b"x"), 409, "input_closed")
    fault(s.call("POST", f"/commands/{s.start(argv=['sleep', '9'])}/stdin", b"x"), 409, "no_input")


def test_signals(native):
    s = native()
    cid = s.start(command="trap 'echo got; exit 9' TERM; echo set; while :; do sleep 0.05; done")
    until(lambda: s.output(cid)["size"] > 0, "the trap is set")
    assert s.ok("POST", f"/commands/{cid}/signal", {"signal": 15}) == {"id": cid, "signal": 15}
    assert s.ended(cid)["exit_code"] == 9
    fault(s.call("POST", f"/commands/{cid}/signal", {"signal": 15}), 409, "ended")
    fault(s.call("POST", f"/commands/{cid}/signal", {"signal": 99}), 400, "invalid")


def test_killing_takes_what_it_started(native):
    s = native()
    cid = s.start(command="setsid sleep 5555 & setsid sh -c 'sleep 5556; true' & wait")
    until(lambda: "5556" in s.exec(command="cat /proc/[0-9]*/cmdline")["stdout"], "they run")
    s.ok("DELETE", f"/commands/{cid}")
    s.ended(cid)
    until(lambda: "555" not in s.exec(argv=["sh", "-c", "cat /proc/[0-9]*/cmdline"])["stdout"], "they are gone")


def test_the_oldest_of_many_is_forgotten(native):
    s = native()
    ids = []
    for _ in range(70):
        ids.append(s.start(argv=["true"]))
        s.ended(ids[-1])
    assert [c["id"] for c in s.ok("GET", "/commands")["commands"]] == ids[:-65:-1]


def test_a_background_command_is_a_use(brig):
    d = brig()
    s = Native(d, idle_timeout_s=3)
    cid = s.start(argv=["sleep", "4.5"])
    s.ended(cid)
    assert s.ok("GET")["state"] == "ready"
    until(lambda: s.ok("GET")["state"] == "expired", "it is idle")
    until(lambda: not d.run_directories(), "its logs are removed")


# ---- state ---------------------------------------------------------------------------------------------------------------------


def test_usage(native):
    s = native()
    s.exec(command="head -c 5000000 /dev/zero > /tmp/f; exec sleep 0.1")
    got = s.ok("GET", "/usage")
    assert got["id"] == s.id and got["disk_bytes"] >= 5000000 and got["pids"] >= 1 and got["memory_bytes"] > 0 and not got["paused"]


def test_pause_and_resume(native):
    s = native()
    cid = s.start(command="while :; do echo x; sleep 0.02; done")
    until(lambda: s.output(cid)["size"] > 10, "it writes")
    assert s.ok("POST", "/pause") == {"id": s.id, "paused": True} and s.ok("GET")["paused"]
    assert "paused" in fault(s.call("POST", "/exec", {"command": "true"}), 409, "conflict")
    assert "paused" in s.daemon.call("POST", f"/session/{s.id}/exec", {"command": "true"}).json["error"]
    def stands_still():
        before = s.output(cid)["size"]
        time.sleep(0.3)
        return s.output(cid)["size"] == before
    until(stands_still, "what was written before has been read, and nothing comes after it")
    size = s.output(cid)["size"]
    assert s.ok("POST", "/resume") == {"id": s.id, "paused": False} and not s.ok("GET")["paused"]
    until(lambda: s.output(cid)["size"] > size + 10, "it goes on")


def test_a_pause_and_a_resume_at_once_are_both_answered_by_name(native):
    s = native()
    s.start(command="for i in $(seq 200); do sleep 1000 & done; wait")
    until(lambda: s.ok("GET", "/usage")["pids"] > 200, "many processes have to come to stand")
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for _ in range(40):
            pauses = [pool.submit(s.call, "POST", "/pause") for _ in range(2)]
            resumes = [pool.submit(s.call, "POST", "/resume") for _ in range(2)]
            assert all(r.result().status == 200 for r in resumes)
            for p in (p.result() for p in pauses):
                assert p.status == 200 or "resumed" in fault(p, 409, "conflict"), p.body
    s.ok("POST", "/resume")
    assert s.exec(argv=["true"])["exit_code"] == 0


def test_a_command_that_meets_a_pause_runs_or_is_refused_by_name(native):
    """Never 126: either it was there before, stands still and goes on, or the answer says why it is not."""
    s = native()
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        for _ in range(6):
            ends = threading.Event()

            def run():
                seen = []
                while not ends.is_set():
                    answer = s.call("POST", "/exec", {"argv": ["/bin/true"]})
                    seen.append((answer.status, answer.json.get("exit_code")))
                return seen

            runs = [pool.submit(run) for _ in range(10)]
            s.ok("POST", "/pause")
            s.ok("POST", "/resume")
            ends.set()
            for r in runs:
                assert set(r.result()) <= {(200, 0), (409, None)}, r.result()
    assert s.exec(argv=["true"])["exit_code"] == 0


def test_a_list_does_not_read_what_verifiers_said(daemon, native):
    """Six records of 8 MiB each."""
    made = [native(labels={"set": "big"}) for _ in range(6)]
    for s in made:
        s.ok("POST", "/finish", {"test_command": "head -c 8M /dev/zero | tr '\\0' x; echo -n '\",\"finish\":{' > /r", "result_files": ["/r"], "output_limit": 8 << 20})

    def read():
        return int(re.search(r"^rchar: (\d+)$", pathlib.Path(f"/proc/{daemon.process.pid}/io").read_text(), re.M)[1])

    before = read()
    answer = daemon.call("GET", "/v1/sessions?state=all&label=set=big&limit=1000")
    assert len(answer.json["sessions"]) == 6 and {s["state"] for s in answer.json["sessions"]} == {"finished"}
    assert made[0].ok("GET")["ready_at"] and made[0].ok("GET")["labels"] == {"set": "big"}
    assert read() - before < 4 << 20
    again = made[0].ok("POST", "/finish")
    assert len(again["stdout"]) == 8 << 20 and again["result_files"]["/r"] == '","finish":{', "the answer itself is whole"
    assert read() - before > 8 << 20, "what is read is seen"


def test_many_calls_at_once(native):
    s = native()
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        got = list(pool.map(lambda i: s.exec(argv=["echo", str(i)])["stdout"], range(100)))
    assert got == [f"{i}\n" for i in range(100)]


def test_memory_that_was_gone_once(native):
    s = native(limits={"memory_mb": 64, "disk_mb": 64})
    assert s.exec(argv=["python3", "-c", "x = bytearray(300 << 20)"])["oom"]
    got = s.exec(command="echo fine")
    assert got["stdout"] == "fine\n" and not got["oom"]
    assert s.ok("POST", "/finish", {"test_command": "echo checked"})["error"] is None


def test_arguments_beyond_all_bounds(native):
    s = native()
    fault(s.call("POST", "/exec", {"argv": ["true", *["y" * 60000] * 150]}), 413, "too_large")
    got = s.exec(argv=["true", *["y" * 60000] * 50])
    assert got["exit_code"] == 126 and "long" in got["stderr"]
    assert s.exec(argv=["true"])["exit_code"] == 0


def test_finish_kills_the_agent_first(native):
    s = native()
    s.exec(command="setsid sleep 1717 >/dev/null 2>&1 &")
    got = s.ok("POST", "/finish", {"harness_files": {"test.sh": "cat /proc/[0-9]*/cmdline | tr '\\0' ' '; echo 1 > /verifier/r"}, "result_files": ["/verifier/r"]})
    assert "1717" not in got["stdout"] and got["result_files"] == {"/verifier/r": "1\n"} and got["integrity"] is None
    assert s.ok("POST", "/finish") == got and s.ok("GET")["state"] == "finished"
    fault(native().call("POST", "/finish", {"timeout": []}), 400, "invalid")
    fault(s.call("POST", "/exec", {"command": "true"}), 409, "not_ready")


# ---- description ---------------------------------------------------------------------------------------------------------------


def test_openapi(daemon):
    got = daemon.call("GET", "/v1/openapi.json").json
    assert got["openapi"].startswith("3.1") and got["info"]["title"] == "Brig"
    operations = [(path, method, op) for path, item in got["paths"].items() for method, op in item.items()]
    names = [op["operationId"] for _, _, op in operations]
    assert len(set(names)) == len(names) >= 18
    for path, _, op in operations:
        wanted = [part[1:-1] for part in path.split("/") if part.startswith("{")]
        assert [p["name"] for p in op["parameters"] if p["in"] == "path"] == wanted
    create = got["paths"]["/v1/sessions"]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]
    assert create["image"]["type"] == "string" and create["limits"]["properties"]["memory_mb"]["minimum"] == 16


def test_what_http_refuses_has_the_shape_of_the_calls(native, daemon):
    s = native()
    for method, path, headers, status, code in (("GET", "/v1/sessions?state=%00", {}, 400, "invalid"), ("GET", "/v1/nosuch", {}, 404, "not_found"), ("GET", "/v1", {}, 404, "not_found"), ("PUT", "/v1/sessions", {}, 405, "method_not_allowed"),
                                                ("GET", f"/v1/sessions/{s.id}/files?path=/etc/passwd", {"Range": "bytes=99999999-"}, 416, "range")):
        fault(s.daemon.call(method, path, None, headers), status, code)
    for path in ("/nosuch", "/v11"):
        assert s.daemon.call("GET", path).json == {"error": "Not found"}
