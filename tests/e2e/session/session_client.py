"""A session, as a client of the executor's dialect sees it."""
from brigd import until


class Session:
    def __init__(self, daemon, **request):
        self.daemon = daemon
        answer = daemon.call("POST", "/session/start", {"image": "host", "network": "none", **request})
        assert answer.status == 202, answer
        assert answer.json["status"] == "starting"
        self.id = answer.json["session_id"]

    @property
    def path(self):
        return f"/session/{self.id}"

    def get(self):
        return self.daemon.call("GET", self.path)

    def status(self):
        answer = self.get()
        return answer.json["status"] if answer.status == 200 else answer.status

    def ready(self):
        until(lambda: self.status() != "starting", "the session is ready")
        assert self.status() == "ready", self.get()
        return self

    def post(self, verb, body=None, **more):
        return self.daemon.call("POST", f"{self.path}/{verb}", body, **more)

    def exec(self, command, **more):
        answer = self.post("exec", {"command": command, **more})
        assert answer.status == 200, answer
        return answer.json

    def out(self, command, **more):
        result = self.exec(command, **more)
        assert result["exit_code"] == 0, result
        return result["stdout"]

    def finish(self, **body):
        answer = self.post("finish", body)
        assert answer.status == 200, answer
        return answer.json

    def delete(self):
        return self.daemon.call("DELETE", self.path)
