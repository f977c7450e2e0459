#!/usr/bin/env python3
"""Resident memory of the daemon: idle, and with 1,000 queued tasks.

Both are VmRSS of `brig serve` (the spawner, a second process, is given beside it). Idle is after a first task has run, so that whatever
the first one loads is counted. The queued tasks carry a patch of 8 KiB each; the only place of the running set is taken by a task that sleeps.
"""
import http.client
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

QUEUED = 1000


def rss(pid):
    """MiB."""
    return int(re.search(r"^VmRSS:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)[1]) / 1024


def spawner_of(pid):
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return next(int(c) for c in children if b"spawner" in pathlib.Path(f"/proc/{c}/cmdline").read_bytes())


class Daemon:
    def __init__(self, build, top):
        self.process = subprocess.Popen([os.path.join(build, "brig"), "serve", "--drain-grace=0", "--running-max=1"], stdout=subprocess.PIPE,
                                        stderr=open(top / "stderr", "wb"), env=dict(os.environ, BRIG_HOME=str(top / "home"), API_PORT="0"))
        line = self.process.stdout.readline().decode()
        if not line.startswith("ready "):
            raise RuntimeError(f"the daemon said {line!r}: {(top / 'stderr').read_text()[-2000:]}")
        host, port = line.split("//")[1].strip().rsplit(":", 1)
        self.connection = http.client.HTTPConnection(host, int(port), timeout=300)

    def call(self, method, path, body=None):
        self.connection.request(method, path, body=json.dumps(body) if body is not None else None)
        answer = self.connection.getresponse()
        return answer.status, json.loads(answer.read())

    def submit(self, task):
        status, answer = self.call("POST", "/task/submit", task)
        if status != 202:
            raise RuntimeError(f"submit: {status} {answer}")
        return answer["task_id"]

    def result(self, task):
        while True:
            status, record = self.call("GET", f"/task/{task}/result?wait=60")
            if status == 200:
                return record


def make_repo(path):
    path.mkdir()
    (path / "one.py").write_text("def one():\n    return 1\n")
    for args in (["init", "-q"], ["add", "-A"], ["-c", "user.name=b", "-c", "user.email=b@b", "commit", "-q", "-m", "base"]):
        subprocess.run(["git", "-C", str(path), *args], check=True)
    return {"repo_url": f"file://{path}", "base_commit": "HEAD"}


def row(bar, value, limit, detail):
    print(json.dumps({"bar": bar, "value": round(value, 1), "limit": limit, "better": "lower", "unit": "MiB", "detail": detail}), flush=True)


def main():
    top = pathlib.Path(tempfile.mkdtemp(prefix="brig-memory-", dir="/tmp"))
    top.chmod(0o755)
    try:
        base = make_repo(top / "repo")
        d = Daemon(sys.argv[1], top)
        pid = d.process.pid
        started = rss(pid)
        d.result(d.submit(dict(base, test_command="true")))
        row("resident memory, idle", rss(pid), 16, f"{started:.1f} MiB before the first task; the spawner {rss(spawner_of(pid)):.1f} MiB")
        d.submit(dict(base, test_command="sleep 600"))
        before = rss(pid)
        for i in range(QUEUED):
            patch = f"--- a/one.py\n+++ b/one.py\n@@ -1,2 +1,2 @@\n def one():\n-    return 1\n+    return {i}  # {'x' * 8000}\n"
            d.submit(dict(base, test_command="true", patch=patch))
        row(f"resident memory, {QUEUED:,} queued tasks", rss(pid), 64, f"{before:.1f} MiB with the running one only")
        d.process.terminate()
        if d.process.wait(60) != 0:
            raise RuntimeError("the daemon did not end well")
    finally:
        shutil.rmtree(top, ignore_errors=True)


if __name__ == "__main__":
    main()
