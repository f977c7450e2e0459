"""GET /events: what happens to tasks and sessions, as it happens."""
import concurrent.futures
import http.client
import json

import pytest
from brigd import until


class Listener:
    def __init__(self, d, query="", last=None):
        self.connection = http.client.HTTPConnection(d.host, d.port, timeout=60)
        self.connection.request("GET", f"/events{query}", headers={"Last-Event-ID": last} if last else {})
        self.answer = self.connection.getresponse()
        self.last = last

    def next(self):
        """(name, data)"""
        name, data = "", None
        while line := self.answer.readline().decode().rstrip("\n") or (data is None and " "):
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("id: "):
                self.last = line[4:]
            elif line.startswith("data: "):
                data = json.loads(line[6:])
        return name, data

    def until(self, name):
        seen = []
        while True:
            seen.append(self.next())
            if seen[-1][0] == name:
                return seen

    def close(self):
        self.answer.close()
        self.connection.close()


def test_a_task_from_its_submission_to_its_deletion(brig, repository):
    d = brig(BRIG_LOG_LEVEL="error")           # what is logged is another matter
    everything = Listener(d)
    assert everything.answer.status == 200 and everything.answer.getheader("Content-Type") == "text/event-stream"
    task = d.submit(repository.request(test_command="exit 3"))
    d.result(task)
    d.call("DELETE", f"/task/{task}")
    seen = everything.until("task.deleted")
    assert [name for name, data in seen if data.get("task") == task] == ["task.submitted", "task.started", "task.finished", "task.deleted"]
    finished = dict(seen)["task.finished"]
    assert finished["outcome"] == "unresolved" and finished["at"].endswith("Z")
    first = seen[0]
    again = Listener(d, last="1")
    assert again.next() == seen[1] != first, "who comes back misses nothing"


def test_of_one_alone(brig, repository):
    d = brig()
    one = d.submit(repository.request(test_command="true"))
    mine = Listener(d, f"?id={one}", last="0")
    d.result(d.submit(repository.request(test_command="true")))
    d.result(one)
    assert [data["task"] for _, data in mine.until("task.finished")] == [one] * 3


def test_a_session(brig):
    d = brig()
    listener = Listener(d)
    session = d.call("POST", "/session/start", {"image": "host"}).json["session_id"]
    d.call("DELETE", f"/session/{session}")
    assert [(name, data["session"]) for name, data in listener.until("session.deleted")][0] == ("session.started", session)


def test_who_is_slow_is_told_what_went_by(brig):
    d = brig()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: d.call("POST", "/session/start", {"image": "/nowhere"}).status, range(600))) <= {202, 503}
    until(lambda: not d.call("GET", "/v1/sessions").json["sessions"], "all have failed")
    name, data = Listener(d, last="0").next()
    assert name == "lost" and data["events"] >= 100


def test_bounds(brig):
    d = brig(API_TOKEN="sesame", BRIG_LISTEN="127.0.0.1:0")
    assert d.call("GET", "/events").status == 401
    d = brig()
    assert Listener(d, last="x").answer.status == 400
    listeners = [Listener(d) for _ in range(64)]
    assert Listener(d).answer.status == 503
    listeners.pop().close()
    until(lambda: Listener(d).answer.status == 200, "one that leaves makes room")
    before = d.usage()
    for x in listeners:
        x.close()
    assert d.usage() - before < 8 << 20
