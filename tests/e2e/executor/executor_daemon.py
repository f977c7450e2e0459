"""The real daemon on a real socket, and a repository to score in."""
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time

import pytest

BRIG = os.environ.get("BRIG", str(pathlib.Path(__file__).resolve().parents[3] / "build" / "brig"))
READY_S = 60


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"<{self.status} {self.body[:300]!r}>"


class Daemon:
    """`with Daemon() as d`: a daemon with a home of its own; d.call("GET", "/task/x") speaks to it."""

    def __init__(self, **variables):
        # Not below pytest's own directory: that is root's alone, and the daemon is somebody else.
        self.top = pathlib.Path(tempfile.mkdtemp(prefix="brig-e2e-", dir="/var/tmp"))
        self.top.chmod(0o755)
        self.home = self.top / "home"
        self.home.mkdir()
        self.variables = {"BRIG_HOME": str(self.home), "API_PORT": "0", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **variables}
        self.process = None

    def start(self):
        self.log = open(self.top / "stderr", "ab")
        self.process = subprocess.Popen([BRIG, "serve"], env=self.variables, stdout=subprocess.PIPE, stderr=self.log, text=True)
        line = self.process.stdout.readline()
        ready = re.fullmatch(r"ready http://([^:]+):(\d+)\n", line)
        if not ready:
            self.stop()
            pytest.fail(f"the daemon did not say it is ready but {line!r}; {self.stderr()[-2000:]}")
        self.host, self.port = ready[1], int(ready[2])
        return self

    def stop(self, sig=signal.SIGTERM):
        if self.process and self.process.poll() is None:
            self.process.send_signal(sig)
            try:
                return self.process.wait(READY_S)
            finally:
                if self.process.poll() is None:
                    self.process.kill()
        return self.process.returncode if self.process else None

    def stderr(self):
        return (self.top / "stderr").read_text(errors="replace")

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        status, said = self.stop(), self.stderr()
        shutil.rmtree(self.top, ignore_errors=True)
        assert status == 0, f"the daemon ended with {status}: {said[-4000:]}"

    def call(self, method, path, body=None, headers=(), timeout=120):
        """body: bytes as they are, anything else as JSON."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        try:
            if body is not None and not isinstance(body, bytes):
                body = json.dumps(body).encode()
            connection.request(method, path, body=body, headers=dict(headers))
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def submit(self, request, **headers):
        answer = self.call("POST", "/task/submit", request, {k.replace("_", "-"): v for k, v in headers.items()})
        assert answer.status == 202, answer
        assert answer.json["status"] == "pending"
        return answer.json["task_id"]

    def result(self, task, seconds=120):
        deadline = time.monotonic() + seconds
        while True:
            answer = self.call("GET", f"/task/{task}/result?wait=60")
            if answer.status != 202:
                assert answer.status == 200, answer
                return answer.json
            assert time.monotonic() < deadline, f"task {task} does not end: {answer}"

    def rows(self):
        """Number of tasks in the ledger."""
        with sqlite3.connect(f"file:{self.home}/brig.db?mode=ro", uri=True) as db:
            return db.execute("SELECT count(*) FROM jobs").fetchone()[0]

    def run_directories(self):
        return sorted(p.name for p in (self.home / "runs").glob("*"))


CALC = """\
def add(a, b):
    return a - b


def double(a):
    return a * 2
"""
TESTS = """\
from calc import add, double


def test_add():
    assert add(2, 3) == 5


def test_double():
    assert double(4) == 8
"""
RIGHT = """\
diff --git a/calc.py b/calc.py
--- a/calc.py
+++ b/calc.py
@@ -1,5 +1,5 @@
 def add(a, b):
-    return a - b
+    return a + b
 
 
 def double(a):
"""


class Repository:
    right_patch = RIGHT

    def __init__(self, path):
        self.path = path
        path.mkdir()
        (path / "calc.py").write_text(CALC)
        (path / "test_calc.py").write_text(TESTS)
        for command in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "base"]):
            subprocess.run(["git", "-C", path, "-c", "user.name=t", "-c", "user.email=t@example.com", *command], check=True)
        self.commit = subprocess.run(["git", "-C", path, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()

    @property
    def url(self):
        return f"file://{self.path}"

    def request(self, **more):
        return {"repo_url": self.url, "base_commit": self.commit, "test_command": "python3 -m pytest -q", **more}
