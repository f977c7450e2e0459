"""Calls of the RLM runtime, as a host makes them: see docs/rlm.md."""
import contextlib
import http.client
import json
import threading


class Host:
    """One daemon's /v1/rlm."""

    def __init__(self, daemon, token=None):
        self.daemon, self.token = daemon, token

    def call(self, method, path, body=None, headers=(), timeout=120):
        headers = dict(headers)
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        return self.daemon.call(method, "/v1/rlm" + path, body, headers, timeout)

    def session(self, **body):
        answer = self.call("POST", "/sessions", body)
        assert answer.status == 201, answer
        return Session(self, answer.json["session"], answer.json)


class Session:
    def __init__(self, host, id, seen):
        self.host, self.id, self.seen = host, id, seen
        self.path = f"/sessions/{id}"

    def look(self):
        answer = self.host.call("GET", self.path)
        assert answer.status == 200, answer
        return answer.json

    def begin(self, **body):
        return self.host.call("POST", self.path + "/turns", body)

    def turn(self, tools=(), **body):
        answer = self.begin(tools=[t if isinstance(t, dict) else {"name": t} for t in tools], **body)
        assert answer.status == 201, answer
        return Turn(self, answer.json["turn"], answer.json["generation"])

    def delete(self):
        return self.host.call("DELETE", self.path)


class Turn:
    def __init__(self, session, id, generation):
        self.session, self.host, self.id, self.generation = session, session.host, id, generation
        self.path = f"{session.path}/turns/{id}"

    def post_execute(self, code, **more):
        return self.host.call("POST", self.path + "/execute", {"code": code, **more})

    def execute(self, code, **more):
        answer = self.post_execute(code, **more)
        assert answer.status == 200, answer
        return answer.json

    def execution(self, code, **more):
        """An action that runs while the test goes on."""
        return Execution(self, code, more)

    def pending(self, wait=30):
        answer = self.host.call("GET", f"{self.path}/pending?wait={wait}")
        assert answer.status == 200, answer
        return answer.json

    def claim(self):
        """The one call that comes next."""
        requests = self.pending()["requests"]
        assert len(requests) == 1, requests
        return requests[0]

    def settle(self, request, **what):
        return self.host.call("POST", self.path + "/result", {"id": request["id"], "lease": request["lease"], **what})

    def cancel(self):
        return self.host.call("POST", self.path + "/cancel")

    def end(self):
        return self.host.call("DELETE", self.path)

    @contextlib.contextmanager
    def events(self):
        """Yields a function that gives the next event, (name, data)."""
        connection = http.client.HTTPConnection(self.host.daemon.host, self.host.daemon.port, timeout=60)
        connection.request("GET", "/v1/rlm" + self.path + "/events")
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()

        def following():
            name = data = None
            while True:
                line = answer.readline().decode().rstrip("\n")
                if line.startswith("event: "):
                    name = line[7:]
                elif line.startswith("data: "):
                    data = json.loads(line[6:])
                elif name and not line:
                    return name, data
                elif not line and answer.isclosed():
                    return None, None
        try:
            yield following
        finally:
            connection.close()


class Execution:
    def __init__(self, turn, code, more):
        self.answer = None
        self.thread = threading.Thread(target=self.run, args=(turn, code, more), daemon=True)
        self.thread.start()

    def run(self, turn, code, more):
        self.answer = turn.post_execute(code, **more)

    def result(self):
        self.thread.join(60)
        assert self.answer is not None, "the action did not end"
        assert self.answer.status == 200, self.answer
        return self.answer.json


def error(answer):
    """(status, code) of a refusal."""
    return answer.status, answer.json["error"]["code"]
