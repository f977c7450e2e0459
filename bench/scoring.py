#!/usr/bin/env python3
"""Scoring against pytest alone: what Brig adds to the time of a task.

Blocks alternate on the same machine: 20 tasks through the daemon, two at a time; then 20 bare `python3 -m pytest` of the same test in a
checkout of the same tree, two at a time. The value is the median over blocks of (Brig's time ÷ bare time).
"""
import concurrent.futures
import http.client
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

TASKS, BLOCK, WORKERS = 200, 20, 2
COMMAND = "python3 -m pytest -p no:cacheprovider -q tests/test_one.py::test_one"
PATCH = """\
diff --git a/one.py b/one.py
--- a/one.py
+++ b/one.py
@@ -1,2 +1,2 @@
 def one():
-    return 2
+    return 1
"""


def git(tree, *args):
    return subprocess.run(["git", "-C", str(tree), "-c", "user.name=b", "-c", "user.email=b@b", *args], check=True, stdout=subprocess.PIPE).stdout


def make_repo(where, files=0):
    where.mkdir(parents=True)
    (where / "tests").mkdir()
    (where / "one.py").write_text("def one():\n    return 2\n")
    (where / "tests" / "test_one.py").write_text("from one import one\n\n\ndef test_one():\n    assert one() == 1\n")
    for i in range(files):
        d = where / "data" / f"d{i // 100}"
        d.mkdir(parents=True, exist_ok=True)
        (d / f"f{i}.txt").write_text(f"file {i}\n" * 20)
    git(where, "init", "-q")
    git(where, "add", "-A")
    git(where, "commit", "-q", "-m", "base")
    return git(where, "rev-parse", "HEAD").decode().strip()


class Daemon:
    def __init__(self, build, home, **env):
        self.process = subprocess.Popen([os.path.join(build, "brig"), "serve"], stdout=subprocess.PIPE, stderr=open(home / "stderr.log", "wb"),
                                        env=dict(os.environ, BRIG_HOME=str(home / "brig"), API_PORT="0", **env))
        line = self.process.stdout.readline().decode()
        if not line.startswith("ready "):
            raise RuntimeError(f"the daemon said {line!r}: {(home / 'stderr.log').read_text()[-2000:]}")
        self.host, self.port = line.split("//")[1].strip().rsplit(":", 1)

    def call(self, method, path, body=None):
        c = http.client.HTTPConnection(self.host, int(self.port), timeout=300)
        try:
            c.request(method, path, body=json.dumps(body) if body is not None else None)
            r = c.getresponse()
            return r.status, json.loads(r.read())
        finally:
            c.close()

    def score(self, task):
        status, answer = self.call("POST", "/task/submit", task)
        if status != 202:
            raise RuntimeError(f"submit: {status} {answer}")
        while True:
            status, record = self.call("GET", f"/task/{answer['task_id']}/result?wait=60")
            if status == 200:
                if not record["resolved"]:
                    raise RuntimeError(f"not resolved: {json.dumps(record)[:2000]}")
                return record

    def stop(self):
        self.process.terminate()
        return self.process.wait(60)


def timed(n, workers, job):
    start = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        list(pool.map(lambda _: job(), range(n)))
    return time.perf_counter() - start


def main():
    build = sys.argv[1]
    work = pathlib.Path(tempfile.mkdtemp(prefix="brig-bench-"))
    os.chmod(work, 0o755)
    try:
        small, large = work / "small", work / "large"
        commit, commit_large = make_repo(small), make_repo(large, 5000)
        bare_tree = work / "bare"
        shutil.copytree(small, bare_tree)
        (bare_tree / "one.py").write_text("def one():\n    return 1\n")
        task = {"repo_url": str(small), "base_commit": commit, "patch": PATCH, "test_command": COMMAND, "fail_to_pass": ["tests/test_one.py::test_one"]}
        task_large = dict(task, repo_url=str(large), base_commit=commit_large)
        bare_env = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
        argv = ["/usr/bin/python3", *COMMAND.split()[1:]]

        def bare():
            subprocess.run(argv, cwd=bare_tree, env=bare_env, check=True, stdout=subprocess.DEVNULL)

        daemon = Daemon(build, work)
        try:
            daemon.score(task), daemon.score(task_large), bare()
            ratios, ours, theirs = [], [], []
            for _ in range(TASKS // BLOCK):
                a = timed(BLOCK, WORKERS, lambda: daemon.score(task))
                b = timed(BLOCK, WORKERS, bare)
                ratios.append(a / b), ours.append(a / BLOCK), theirs.append(b / BLOCK)
            extra = []
            for _ in range(15):  # one at a time, alternating: what 5,000 files more cost
                a = timed(1, 1, lambda: daemon.score(task_large))
                b = timed(1, 1, lambda: daemon.score(task))
                extra.append((a - b) * 1000)
            phases = {k: statistics.median(daemon.score(task)["timing"][k] for _ in range(10)) for k in ("prepare_ms", "apply_ms", "test_ms", "report_ms")}
        finally:
            code = daemon.stop()
        if code != 0:
            raise RuntimeError(f"the daemon exited with {code}")
        print(json.dumps({"bar": "scoring: a task against python + pytest alone", "value": round(statistics.median(ratios), 2), "limit": 1.25, "better": "lower",
                          "unit": "ratio", "detail": f"{TASKS} tasks, {WORKERS} at a time: {statistics.median(ours) * 1000:.0f} ms against "
                          f"{statistics.median(theirs) * 1000:.0f} ms a task; phases {phases}"}))
        print(json.dumps({"bar": "scoring: what a prepared tree of 5,000 files adds to a task", "value": round(statistics.median(extra), 1), "limit": 10, "better": "lower",
                          "unit": "ms", "detail": "15 pairs, against the small tree"}))
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
