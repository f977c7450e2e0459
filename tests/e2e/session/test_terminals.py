"""Terminals of a session, by WebSocket."""
import json
import pathlib
import re
import sys

import pytest
from brigd import until

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "http"))

from harness import Peer  # noqa: E402
from ws import BINARY, CLOSE, TEXT, WebSocket  # noqa: E402


class Viewer:
    """One that looks at a terminal: what it has printed, what it was told."""

    def __init__(self, daemon, path, query="", *headers):
        self.peer = Peer((daemon.host, daemon.port))
        self.ws = WebSocket(self.peer, f"{path}/attach{query}", *headers)
        self.out, self.told, self.end = b"", [], None

    def step(self):
        """Takes one frame; false at the end."""
        opcode, data = self.ws.receive()
        if opcode == BINARY:
            self.out += data
        elif opcode == TEXT:
            self.told.append(json.loads(data))
        elif opcode == CLOSE:
            self.end = int.from_bytes(data[:2], "big"), data[2:].decode()
            return False
        return True

    def until(self, pattern):
        """Reads on until it has printed that; what came so far."""
        while not re.search(pattern, self.out):
            assert self.step(), f"it ended before {pattern!r}: {self.out[-500:]} {self.told} {self.end}"
        return self.out

    def type(self, text):
        self.ws.send(BINARY, text)
        return self

    def tell(self, **what):
        self.ws.send(TEXT, json.dumps(what))
        return self

    def told_of(self, kind):
        while not any(m["type"] == kind for m in self.told):
            assert self.step(), f"it ended before {kind}: {self.told} {self.end}"
        return next(m for m in self.told if m["type"] == kind)

    def to_the_end(self):
        while self.step():
            pass
        return self.end

    def leave(self):
        self.peer.sock.close()


class Terminals:
    def __init__(self, session):
        self.session, self.daemon = session, session.daemon
        self.path = f"/v1/sessions/{session.id}/terminals"
        self.viewers = []

    def open(self, **body):
        answer = self.daemon.call("POST", self.path, body)
        assert answer.status == 201, answer
        return f"{self.path}/{answer.json['id']}"

    def look(self, path, query="", *headers):
        self.viewers.append(Viewer(self.daemon, path, query, *headers))
        assert self.viewers[-1].ws.answer.status == 101, self.viewers[-1].ws.answer
        return self.viewers[-1]

    def get(self, path):
        answer = self.daemon.call("GET", path)
        assert answer.status == 200, answer
        return answer.json

    def delete(self, path):
        return self.daemon.call("DELETE", path)


@pytest.fixture(scope="module")
def standing(daemon):
    from session_client import Session
    s = Session(daemon).ready()
    yield s
    s.delete()


@pytest.fixture
def terminals(standing):
    t = Terminals(standing)
    yield t
    for v in t.viewers:
        v.leave()
    for one in t.get(t.path)["terminals"]:
        t.delete(f"{t.path}/{one['id']}")


CAT = {"argv": ["/bin/cat"]}


def sh(script):
    return {"argv": ["/bin/sh", "-c", script]}


def test_a_shell_answers_on_a_terminal(terminals):
    v = terminals.look(terminals.open(rows=30, cols=90))
    attached = v.told_of("attached")
    assert (attached["rows"], attached["cols"], attached["offset"]) == (30, 90, 0)
    v.type("stty size; tty; echo $TERM-$((6*7)); exit 3\r").until(rb"30 90\r\n/dev/pts/\d+\r\nxterm-256color-42\r\n")
    assert v.to_the_end() == (1000, "The program has ended")
    assert v.told_of("exit")["exit_code"] == 3


def test_a_resize_reaches_the_program_and_all_that_look(terminals):
    path = terminals.open(**sh("trap 'stty size' WINCH; echo up; while :; do sleep 0.05; done"))
    one, other = terminals.look(path), terminals.look(path)
    one.until(b"up")
    other.told_of("attached")
    one.tell(type="resize", rows=50, cols=132).until(b"50 132")
    assert other.told_of("size") == {"type": "size", "rows": 50, "cols": 132}
    assert (terminals.get(path)["rows"], terminals.get(path)["cols"]) == (50, 132)


def test_signals_and_control_characters(terminals):
    v = terminals.look(terminals.open(**sh("trap 'echo usr1' USR1; trap 'echo int; exit 5' INT; echo up; while :; do sleep 0.05; done")))
    v.until(b"up")
    v.tell(type="signal", signal=10).until(b"usr1")
    v.type("\x03").until(b"int")
    v.to_the_end()
    assert v.told_of("exit")["exit_code"] == 5


def test_what_was_printed_while_nobody_looked_is_shown(terminals):
    path = terminals.open(**sh("read x; echo one; read y; echo two; cat"))
    first = terminals.look(path)
    first.type("a\r").until(b"one")
    first.leave()
    until(lambda: terminals.get(path)["viewers"] == 0, "it has left")
    assert terminals.get(path)["state"] == "running"
    second = terminals.look(path)
    assert b"one" in second.until(b"one")
    second.type("b\r").until(b"two")
    at = terminals.get(path)["next_offset"]
    third = terminals.look(path, f"?from={at}")
    assert third.told_of("attached")["offset"] == at
    second.type("new\r")
    assert third.until(b"new").startswith(b"new")


def test_kept_output_is_bounded_and_late_viewers_start_at_what_is_left(terminals):
    path = terminals.open(**sh("seq 1 200000; echo done; cat"))
    printed = sum(len(str(i)) + 2 for i in range(1, 200001)) + len("done\r\n")
    until(lambda: terminals.get(path)["next_offset"] == printed, "all is printed")
    view = terminals.get(path)
    assert view["next_offset"] - view["first_offset"] == 256 * 1024
    v = terminals.look(path)
    out = v.until(b"done")
    assert v.told_of("attached")["offset"] == view["first_offset"]
    assert len(out) <= 256 * 1024
    assert out.endswith(b"199999\r\n200000\r\ndone\r\n")
    assert not [m for m in v.told if m["type"] == "lost"]


def test_a_viewer_gets_everything_however_much_there_is(terminals):
    path = terminals.open(**sh("read x; seq 1 300000; echo done; cat"))
    v = terminals.look(path)
    v.told_of("attached")
    v.type("\r")
    out = v.until(b"done\r\n")
    assert out.split(b"\r\n")[1:-2] == [str(i).encode() for i in range(1, 300001)]
    assert not [m for m in v.told if m["type"] == "lost"]


def test_one_that_does_not_read_holds_nobody_else_back(terminals):
    path = terminals.open(**sh("read x; seq 1 600000; echo done; cat"))
    slow, fast = terminals.look(path), terminals.look(path)
    fast.told_of("attached")
    fast.type("\r").until(b"done")
    assert b"600000" in fast.out
    slow.until(b"done")
    lost = sum(m["bytes"] for m in slow.told if m["type"] == "lost")
    assert len(slow.out) + lost >= len(fast.out)
    assert slow.out.endswith(b"600000\r\ndone\r\n")


def test_several_type_and_all_see_it(terminals):
    path = terminals.open(**CAT)
    one, other = terminals.look(path), terminals.look(path)
    one.type("from one\r")
    other.until(b"from one\r\nfrom one\r\n")
    other.tell(type="input", data="from other\r")
    one.until(b"from other\r\nfrom other\r\n")
    assert terminals.get(path)["viewers"] == 2


def test_one_that_only_looks_cannot_type(terminals):
    path = terminals.open(**CAT)
    reader, writer = terminals.look(path, "?read_only=true"), terminals.look(path)
    reader.type("no\r").tell(type="resize", rows=5, cols=5)
    writer.type("yes\r")
    assert b"no" not in reader.until(b"yes\r\nyes\r\n")
    assert terminals.get(path)["rows"] == 24


def test_much_input_is_taken_as_fast_as_the_program_reads(terminals):
    path = terminals.open(**sh("stty raw -echo; echo up; sleep 0.3; head -c 1000000 | wc -c"))
    v = terminals.look(path)
    v.until(b"up")
    for _ in range(20):
        v.type(b"x" * 50000)
    v.until(b"1000000")


def test_closing_one_kills_its_program_and_tells_who_looks(terminals):
    path = terminals.open(**sh("echo pid $$; sleep 1000"))
    v = terminals.look(path)
    pid = re.search(rb"pid (\d+)", v.until(rb"pid \d+\r")).group(1).decode()
    assert terminals.delete(path).json["deleted"] is True
    assert v.to_the_end() == (4404, "The terminal is closed")
    assert terminals.daemon.call("GET", path).status == 404
    until(lambda: "gone" in terminals.session.out(f"kill -0 {pid} 2>/dev/null || echo gone"), "it is dead")


def test_an_ended_terminal_can_still_be_read(terminals):
    path = terminals.open(**sh("echo last words; exit 9"))
    until(lambda: terminals.get(path)["state"] == "exited", "it ends")
    assert terminals.get(path)["exit_code"] == 9
    v = terminals.look(path)
    v.to_the_end()
    assert v.out == b"last words\r\n"
    assert v.told_of("exit")["exit_code"] == 9


def test_there_is_a_bound_on_terminals_and_on_those_who_look(terminals):
    paths = [terminals.open(**CAT) for _ in range(16)]
    answer = terminals.daemon.call("POST", terminals.path, CAT)
    assert (answer.status, answer.json["error"]["code"]) == (503, "too_many_commands")
    for _ in range(16):
        terminals.look(paths[0])
    assert Viewer(terminals.daemon, paths[0]).ws.answer.status == 503


@pytest.mark.parametrize("body", [{"rows": 0}, {"cols": 1001}, {"argv": []}, {"argv": "x"}, {"cwd": 5}])
def test_bad_requests_are_named(terminals, body):
    answer = terminals.daemon.call("POST", terminals.path, body)
    assert (answer.status, answer.json["error"]["code"]) == (400, "invalid")


@pytest.mark.parametrize("message", ["[]", "{", '{"type":"fly"}', '{"type":"resize","rows":0,"cols":5}', '{"type":"signal","signal":99}', '{"type":"input"}'])
def test_bad_messages_end_the_socket_not_the_terminal(terminals, message):
    path = terminals.open(**CAT)
    v = terminals.look(path)
    v.ws.send(TEXT, message)
    assert v.to_the_end()[0] == 1008
    assert terminals.get(path)["state"] == "running"


def test_what_is_not_there_is_a_404(terminals):
    for path in (f"{terminals.path}/99", f"{terminals.path}/x", f"{terminals.path}/99/attach", "/v1/sessions/none/terminals/1"):
        assert terminals.daemon.call("GET", path).status == 404
    path = terminals.open(**CAT)
    answer = terminals.daemon.call("GET", f"{path}/attach")
    assert answer.status == 426


def test_a_session_that_ends_ends_its_terminals(session):
    s = session()
    terminals = Terminals(s)
    v = terminals.look(terminals.open(**CAT))
    v.type("x\r").until(b"x")
    assert s.delete().status == 200
    assert v.to_the_end()[0] == 4404


def test_nobody_looking_the_session_is_idle(daemon):
    answer = daemon.call("POST", "/v1/sessions?wait=60", {"image": "host", "network": "none", "idle_timeout_s": 4})
    assert answer.status == 201, answer
    sid = answer.json["id"]
    path = f"/v1/sessions/{sid}/terminals"
    tid = daemon.call("POST", path, CAT).json["id"]
    v = Viewer(daemon, f"{path}/{tid}")
    v.told_of("attached")
    v.leave()
    until(lambda: daemon.call("GET", f"/v1/sessions/{sid}").json["state"] == "expired", "it expires although its terminal is open")
    daemon.call("DELETE", f"/v1/sessions/{sid}")
