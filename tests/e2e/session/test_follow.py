"""Output of background commands as server-sent events: late, early, many at once, from any place."""
import base64
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


def start(session, **body):
    answer = session.daemon.call("POST", f"/v1/sessions/{session.id}/commands", body)
    assert answer.status == 201, answer
    return answer.json["id"]


def command(session, cid, method="GET"):
    return session.daemon.call(method, f"/v1/sessions/{session.id}/commands/{cid}").json


class Follower:
    def __init__(self, session, cid, query="", last_id=None, status=200):
        d = session.daemon
        self.connection = http.client.HTTPConnection(d.host, d.port, timeout=120)
        self.connection.request("GET", f"/v1/sessions/{session.id}/commands/{cid}/output?follow=true{query}",
                                headers={"Last-Event-ID": last_id} if last_id else {})
        self.answer = self.connection.getresponse()
        assert self.answer.status == status, self.answer.read()
        self.last_id = last_id

    def leave(self):
        self.answer.close()
        self.connection.close()

    def event(self):
        name, data = "message", []
        while line := self.answer.readline().decode():
            line = line.rstrip("\n")
            if not line and data:
                return name, json.loads("\n".join(data))
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("id: "):
                self.last_id = line[4:]
            elif line.startswith("data: "):
                data.append(line[6:])
        return None

    def until(self, name, text):
        got = ""
        while text not in got:
            e = self.event()
            assert e, f"it ended before {text!r}: {got!r}"
            if e[0] == name:
                got += e[1]["data"]
        return got

    def all(self):
        """What each stream said, and the exit event, which must be the last."""
        out = {"stdout": [], "stderr": []}
        while e := self.event():
            if e[0] == "exit":
                assert self.event() is None
                return "".join(out["stdout"]), "".join(out["stderr"]), e[1]
            out[e[0]].append(e[1]["data"])
        raise AssertionError(f"no exit event: {out}")


def test_it_begins_at_the_beginning_and_follows(standing):
    cid = start(standing, command="mkfifo /tmp/a; echo one; echo oops >&2; read x < /tmp/a; echo two; exit 7")
    early = Follower(standing, cid)
    assert early.answer.getheader("content-type") == "text/event-stream"
    assert early.until("stdout", "one\n") == "one\n"
    late = Follower(standing, cid)
    assert late.until("stdout", "one\n") == "one\n", "one who comes late misses nothing"
    standing.out("echo > /tmp/a")
    for f in early, late:
        out, _, end = f.all()
        assert out == "two\n"
        assert (end["exit_code"], end["timed_out"], end["session_ended"], end["stdout_bytes"], end["stderr_bytes"]) == (7, False, False, 8, 5)
    after = Follower(standing, cid)
    assert after.all()[:2] == ("one\ntwo\n", "oops\n"), "nor does one who comes after the end"


def test_one_stream_and_a_place(standing):
    cid = start(standing, command="printf 0123456789; printf abcdef >&2")
    until(lambda: command(standing, cid)["state"] == "exited", "it has ended")
    assert Follower(standing, cid, "&stream=stdout&offset=4").all()[:2] == ("456789", "")
    assert Follower(standing, cid, "&stream=stderr&offset=-2").all()[:2] == ("", "ef")
    assert Follower(standing, cid, "&offset=99999").all()[:2] == ("", "")


def test_who_comes_back_gets_the_rest_and_nothing_twice(standing):
    cid = start(standing, command="mkfifo /tmp/b; seq 1 50000; echo e1 >&2; read x < /tmp/b; seq 50001 100000; echo e2 >&2")
    f = Follower(standing, cid)
    got = f.until("stdout", "\n900\n")
    f.leave()
    standing.out("echo > /tmp/b")
    out, err, _ = Follower(standing, cid, last_id=f.last_id).all()
    assert got + out == "".join(f"{i}\n" for i in range(1, 100001))
    assert err.endswith("e2\n")


@pytest.mark.parametrize("query, last", [("&stream=both", None), ("&offset=x", None), ("&encoding=latin1", None), ("", "1"), ("", "1,2,3"), ("", "-1,0"), ("", "1,99999999999999999999")])
def test_what_is_wrong_is_refused(standing, query, last):
    cid = start(standing, argv=["true"])
    Follower(standing, cid, query, last_id=last, status=400)


def test_bytes_and_characters_arrive_whole(standing):
    cid = start(standing, command="mkfifo /tmp/c; printf '\\342\\202'; read x < /tmp/c; printf '\\254\\377'")
    text, raw = Follower(standing, cid), Follower(standing, cid, "&encoding=base64")
    assert raw.event()[1] == {"data": base64.b64encode(b"\xe2\x82").decode()}
    standing.out("echo > /tmp/c")
    assert text.all()[0] == "\N{EURO SIGN}\N{REPLACEMENT CHARACTER}", "no character is cut"


def test_merged_output_comes_once(standing):
    cid = start(standing, command="echo a; echo b >&2; echo c", merge_stderr=True)
    assert Follower(standing, cid).all()[:2] == ("a\nb\nc\n", "")


def test_a_lot_for_many_at_once_costs_no_memory(standing):
    cid = start(standing, argv=["seq", "1", "1500000"])
    before = standing.daemon.usage()
    followers = [Follower(standing, cid) for _ in range(8)]
    expected = "".join(f"{i}\n" for i in range(1, 1500001))
    for f in followers:            # all but the first are slow
        assert f.all()[0] == expected
    assert standing.daemon.usage() - before < 32 << 20


def test_more_than_32_are_refused(standing):
    cid = start(standing, argv=["sleep", "1000"])
    followers = [Follower(standing, cid) for _ in range(32)]
    refused = Follower(standing, cid, status=503)
    assert b"Too many follow" in refused.answer.read()
    followers.pop().leave()

    def room():
        d = standing.daemon
        c = http.client.HTTPConnection(d.host, d.port, timeout=60)
        c.request("GET", f"/v1/sessions/{standing.id}/commands/{cid}/output?follow=true")
        followers.append(c)
        return c.getresponse().status == 200

    until(room, "one that leaves makes room")
    command(standing, cid, "DELETE")
    assert followers[0].all()[2]["exit_code"] == 137


def test_a_command_that_is_forgotten_is_read_to_its_end(standing):
    """The reader has taken nothing yet when the command and its logs go."""
    cid = start(standing, argv=["seq", "1", "1000000"])
    f = Follower(standing, cid)
    until(lambda: command(standing, cid)["state"] == "exited", "it has ended")
    assert command(standing, cid, "DELETE")["deleted"]
    out, _, end = f.all()
    assert out == "".join(f"{i}\n" for i in range(1, 1000001)) and end["exit_code"] == 0


def test_the_sessions_end_is_told(session):
    s = session()
    cid = start(s, command="echo hello; sleep 1000")
    f = Follower(s, cid)
    f.until("stdout", "hello\n")
    assert s.delete().status == 200
    _, _, end = f.all()
    assert end["session_ended"] is True
