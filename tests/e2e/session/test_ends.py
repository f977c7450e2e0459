"""Ends that come at the worst moment: the daemon's in every state of a session, a session's own in every call."""
import concurrent.futures
import http.client
import json
import pathlib
import random
import signal
import socket
import sys
import threading

import pytest
from brigd import until
from session_client import Session

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "http"))

from harness import Peer  # noqa: E402
from ws import WebSocket  # noqa: E402


def post(d, path, body=None, method="POST"):
    """The answer, or None where the daemon went away."""
    try:
        return d.call(method, path, body)
    except (OSError, http.client.HTTPException):
        return None


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_daemon_ends_in_every_state(brig, how):
    d = brig(BRIG_DRAIN_GRACE="1")
    ready, paused, running, uploading, terminal, finishing, snapshot, streaming = [Session(d) for _ in range(8)]
    for s in (ready, paused, running, uploading, terminal, finishing, snapshot, streaming):
        s.ready()
    v1 = {s: f"/v1/sessions/{s.id}" for s in (ready, paused, running, uploading, terminal, finishing, snapshot, streaming)}
    snapshot.exec("head -c 50000000 /dev/urandom > /big")
    cid = d.call("POST", f"{v1[running]}/commands", {"command": "echo x; sleep 1000"}).json["id"]
    tid = d.call("POST", f"{v1[terminal]}/terminals", {"argv": ["cat"]}).json["id"]
    seen = WebSocket(Peer((d.host, d.port)), f"{v1[terminal]}/terminals/{tid}/attach")
    follow = http.client.HTTPConnection(d.host, d.port, timeout=60)
    follow.request("GET", f"{v1[running]}/commands/{cid}/output?follow=true")
    assert follow.getresponse().status == 200
    upload = socket.create_connection((d.host, d.port))
    upload.sendall(f"PUT {v1[uploading]}/files?path=/half HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n".encode() + b"x" * 1000)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(post, d, f"{v1[running]}/exec", {"command": "touch /begun; sleep 1000"}), pool.submit(post, d, f"{v1[finishing]}/finish", {"test_command": "touch /begun; sleep 1000"}),
                 pool.submit(post, d, f"{v1[streaming]}/exec", {"command": "touch /begun; yes", "stream": True}), pool.submit(post, d, f"{v1[paused]}/pause")]
        for s in (running, streaming):
            until(lambda s=s: s.exec("test -e /begun")["exit_code"] == 0, "its command runs")
        until(lambda: finishing.status() == "finishing", "it is finishing")
        until(lambda: d.call("GET", v1[paused]).json["paused"], "it is paused")
        calls += [pool.submit(post, d, f"{v1[snapshot]}/snapshots", {"name": "half"}), pool.submit(post, d, "/session/start", {"image": "host"})]
        d.end(how)
        for call in calls:
            call.result()
    for c in (upload, follow, seen.peer.sock):
        c.close()
    d.assert_nothing_left()
    d.start()
    for s in v1:
        got = s.get().json
        assert (got["status"], got["error"]) == ("failed", "daemon restarted"), got
        assert s.post("exec", {"command": "true"}).json == {"error": "session not ready (status=failed)"}
        assert d.call("GET", f"{v1[s]}/commands").status == 409
    listed = d.call("GET", "/v1/sessions?state=all").json["sessions"]
    assert {s["state"] for s in listed} == {"failed"} and len(listed) in (8, 9)
    until(lambda: not d.run_directories(), "their logs are gone")
    fresh = Session(d).ready()
    assert fresh.out("echo well") == "well\n"


CALLS = [
    ("POST", "/exec", {"command": "sleep 0.05; echo x"}), ("POST", "/exec", {"command": "echo x", "stream": True}), ("POST", "/commands", {"command": "sleep 0.2"}), ("POST", "/snapshots", {"name": "race"}),
    ("POST", "/fork", {"count": 2}), ("POST", "/finish", {"test_command": "true"}), ("POST", "/pause", None), ("POST", "/resume", None), ("POST", "/heartbeat", None), ("PATCH", "", {"labels": {"a": "b"}}),
    ("GET", "/usage", None), ("GET", "/files/list?path=/etc", None), ("PUT", "/files?path=/tmp/f", b"y" * 100000), ("GET", "/archive?path=/etc", None), ("POST", "/terminals", {"argv": ["cat"]}),
    ("POST", "/shells", {}), ("POST", "/ports", {"port": 80}), ("GET", "/ports/80/", None), ("GET", "/diff", None), ("GET", "/network", None), ("GET", "", None),
]


@pytest.mark.parametrize("end", ["ttl_s", "idle_timeout_s", "owner_ttl_s", "delete"])
def test_a_session_ends_in_the_middle_of_every_call(brig, end):
    """Every answer is one that the page of the call has; afterwards nothing is left of what ended by itself, and the daemon is well."""
    d = brig()
    random.seed(end)
    wrong = []

    def one(i):
        body = {"network": {"allow": ["x.test"]}} if i % 3 == 0 else {"network": "none"}
        if end != "delete":
            body[end] = random.choice([0.05, 0.2, 0.5, 1])
        s = d.call("POST", "/v1/sessions?wait=60", body)
        if s.status != 201:
            wrong.append(("start", s.status, s.body))
            return
        at = f"/v1/sessions/{s.json['id']}"
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            calls = [(c, pool.submit(post, d, at + c[1], c[2], c[0])) for c in random.sample(CALLS, 12)]
            if end == "delete":
                calls.append((("DELETE", "", None), pool.submit(d.call, "DELETE", at)))
            for c, call in calls:
                a = call.result()
                if a is None and "/archive" in c[1]:
                    continue                           # it had begun, and broke off
                if a is None or a.status not in (200, 201, 404, 409, 502, 503, 504) or (a.status >= 400 and not a.json["error"]["code"]):
                    wrong.append((c, a))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(8)))
    assert not wrong, wrong

    def forks():
        live = d.call("GET", "/v1/sessions").json["sessions"]
        for s in live:
            d.call("DELETE", f"/v1/sessions/{s['id']}")
        return not live

    until(forks, "all are gone")
    until(lambda: not d.run_directories(), "their logs are gone")
    assert Session(d).ready().out("echo well") == "well\n"
    d.stop()
