"""Output of exec as server-sent events."""
import base64
import hashlib
import http.client
import json

import pytest
from brigd import until
from session_client import Session


@pytest.fixture(scope="module")
def standing(daemon):
    s = Session(daemon).ready()
    yield s
    s.delete()


class Stream:
    """An exec whose answer is read event by event."""

    def __init__(self, session, **body):
        d = session.daemon
        self.connection = http.client.HTTPConnection(d.host, d.port, timeout=60)
        self.connection.request("POST", f"/v1/sessions/{session.id}/exec", json.dumps({"stream": True, **body}))
        self.answer = self.connection.getresponse()

    def leave(self):
        self.answer.close()
        self.connection.close()

    def event(self):
        """(name, data) of the next event; None at the end."""
        name, data = "message", []
        while line := self.answer.readline().decode():
            line = line.rstrip("\n")
            if not line and data:
                return name, json.loads("\n".join(data))
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                data.append(line[6:])
        return None

    def until(self, name, text):
        """Reads on until that stream has said it."""
        got = ""
        while text not in got:
            e = self.event()
            assert e, f"it ended before {text!r}: {got!r}"
            if e[0] == name:
                got += e[1]["data"]
        return got

    def all(self):
        """What each stream said, and the exit event, which must be the last."""
        out = {"stdout": "", "stderr": ""}
        while e := self.event():
            if e[0] == "exit":
                assert self.event() is None
                return out["stdout"], out["stderr"], e[1]
            out[e[0]] += e[1]["data"]
        raise AssertionError(f"no exit event: {out}")


def test_output_comes_while_the_command_runs(standing):
    s = Stream(standing, command="mkfifo /tmp/go; echo one; read x < /tmp/go; echo two >&2; exit 7")
    assert s.answer.status == 200
    assert s.answer.getheader("content-type") == "text/event-stream"
    assert s.until("stdout", "one\n") == "one\n"
    standing.out("echo > /tmp/go; rm /tmp/go")
    out, err, end = s.all()
    assert (out, err) == ("", "two\n")
    assert (end["exit_code"], end["timed_out"], end["stdout_bytes"], end["stderr_bytes"]) == (7, False, 4, 4)


def test_a_lot_of_output_is_whole_and_costs_no_memory(standing):
    before = standing.daemon.usage()
    out, err, end = Stream(standing, argv=["seq", "1", "1500000"]).all()
    assert out == "".join(f"{i}\n" for i in range(1, 1500001))
    assert (err, end["exit_code"], end["stdout_bytes"]) == ("", 0, len(out))
    assert standing.daemon.usage() - before < 12 << 20


def test_a_slow_reader_makes_the_program_wait(standing):
    s = Stream(standing, command="yes | head -c 20000000; true")
    s.event()
    assert standing.out("ps -o args= -C head | grep -c 'head -c 20000000'") == "1\n"
    standing.out("sleep 0.3")
    assert standing.out("ps -o args= -C head | grep -c 'head -c 20000000'") == "1\n", "it waits for its reader"
    out, _, end = s.all()
    assert (end["exit_code"], end["stdout_bytes"]) == (0, 20000000)


def test_characters_are_not_cut_between_events(standing):
    out, _, _ = Stream(standing, argv=["/usr/bin/python3", "-c", "import os\nb = '€ž𝄞'.encode()\nfor i in range(len(b)): os.write(1, b[i:i+1])\nos.write(1, b'\\xe2\\x82')"]).all()
    assert out == "€ž𝄞\ufffd"
    out, _, _ = Stream(standing, argv=["/usr/bin/python3", "-c", "import sys\nsys.stdout.write('€' * 100000)"]).all()
    assert out == "€" * 100000


def test_bytes_as_they_are(standing):
    out, _, end = Stream(standing, argv=["printf", r"\377\000\n"], encoding="base64").all()
    assert base64.b64decode(out) == b"\xff\0\n"


def test_stderr_may_go_where_stdout_goes(standing):
    out, err, _ = Stream(standing, command="echo a; echo b >&2", merge_stderr=True).all()
    assert (out, err) == ("a\nb\n", "")


def test_a_timeout_and_a_program_that_is_not_there_are_told_at_the_end(standing):
    out, _, end = Stream(standing, command="echo before; sleep 1000", timeout_s=3).all()
    assert (out, end["timed_out"], end["exit_code"]) == ("before\n", True, 124)
    _, err, end = Stream(standing, argv=["no-such-program"]).all()
    assert end["exit_code"] == 127
    assert "no-such-program" in err


def test_a_client_that_goes_away_takes_the_command_with_it(standing):
    s = Stream(standing, command="echo $$; exec sleep 12345")
    s.event()
    s.leave()
    until(lambda: standing.exec("pgrep -f 'sleep 1234[5]'")["exit_code"] == 1, "it is killed")


def test_a_session_that_ends_ends_the_stream(session):
    s = session()
    stream = Stream(s, command="echo up; sleep 1000")
    stream.until("stdout", "up")
    assert s.delete().status == 200
    assert stream.all()[2]["session_ended"] is True


def test_a_bad_request_is_an_ordinary_answer(standing):
    s = Stream(standing, command="x", argv=["y"])
    assert s.answer.status == 400
    assert json.loads(s.answer.read())["error"]["code"] == "invalid"


# ---- standard input --------------------------------------------------------------------------------------------------------------


def write(session, cid, data, close=False):
    return session.daemon.call("POST", f"/v1/sessions/{session.id}/commands/{cid}/stdin" + ("?close=true" if close else ""), data)


def test_input_is_taken_as_it_comes(standing):
    s = Stream(standing, argv=["cat"], keep_input=True)
    name, data = s.event()
    assert name == "started"
    assert write(standing, data["id"], b"one\n").json == {"id": data["id"], "bytes": 4}
    assert s.until("stdout", "one\n") == "one\n"
    assert write(standing, data["id"], b"two\n", close=True).status == 200
    out, _, end = s.all()
    assert (out, end["exit_code"]) == ("two\n", 0)
    assert write(standing, data["id"], b"x").status == 404


def test_a_lot_of_input_any_bytes(standing):
    s = Stream(standing, argv=["sha256sum"], keep_input=True)
    cid = s.event()[1]["id"]
    piece = bytes(range(256)) * 4096
    for _ in range(20):
        assert write(standing, cid, piece).status == 200
    write(standing, cid, b"", close=True)
    assert s.all()[0].split()[0] == hashlib.sha256(piece * 20).hexdigest()


def test_input_that_nobody_reads(standing):
    s = Stream(standing, command="exec <&-; mkfifo /tmp/in; read x < /tmp/in", keep_input=True)
    cid = s.event()[1]["id"]
    until(lambda: write(standing, cid, b"x").json.get("error", {}).get("code") == "input_closed", "the input is closed")
    standing.out("echo > /tmp/in; rm /tmp/in")
    assert s.all()[2]["exit_code"] == 0


def test_input_stays_open_only_where_somebody_streams(standing):
    answer = standing.daemon.call("POST", f"/v1/sessions/{standing.id}/exec", {"argv": ["cat"], "keep_input": True})
    assert answer.status == 400 and "keep_input" in answer.json["error"]["message"]
    s = Stream(standing, argv=["true"])
    assert s.event()[0] == "exit", "who does not ask for input is not told of it"
