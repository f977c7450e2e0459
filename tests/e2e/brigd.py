"""A real daemon on a real socket, and what must be true of the machine after it.

    with Daemon() as d:
        task = d.submit(repository.request())
        record = d.result(task)

Leaving the block stops the daemon and asserts that it ended with status 0 and left nothing: no process, mount, loop device,
control group or network link of its instance.
"""
import http.client
import json
import os
import pathlib
import random
import re
import select
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import time
import uuid

BRIG = os.environ.get("BRIG", str(pathlib.Path(__file__).resolve().parents[2] / "build" / "brig"))
DEADLINE_S = 120                # for what comes in a moment, on a machine that has a lot else to do
SKELETONS_MAX = 8


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"<{self.status} {self.body[:300]!r}>"


def breathe():
    """Between two looks at something that sends no event: lets the others have the processor."""
    select.select([], [], [], 0.02)


def until(condition, what, seconds=DEADLINE_S):
    """Asks again and again, at most `seconds`: for state of the machine that sends no event."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"never: {what}"
        breathe()


def free_port():
    """For a server that wants a number: none of those which the kernel gives to others between this look and the server's start."""
    while True:
        port = random.SystemRandom().randrange(12000, 32000)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


def processes():
    """(pid, parent, command line) of every process."""
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parent = int(re.search(r"^PPid:\t(\d+)", (entry / "status").read_text(), re.M)[1])
            yield int(entry.name), parent, (entry / "cmdline").read_bytes().split(b"\0")
        except (OSError, TypeError):
            continue


class Daemon:
    def __init__(self, top=None, **variables):
        # Not below pytest's own directory: that is root's alone, and the daemon is somebody else.
        self.top = top or pathlib.Path(tempfile.mkdtemp(prefix="brig-e2e-", dir="/tmp"))
        self.top.chmod(0o755)
        self.home = self.top / "home"
        self.home.mkdir(exist_ok=True)
        self.variables = {"BRIG_HOME": str(self.home), "API_PORT": "0", "BRIG_REGISTRY_DEFAULT": "localhost:1", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **variables}
        self.process = None

    # ---- its life -----------------------------------------------------------------------------------------------------

    # The copy of the host's /etc and package database, which a first start makes and syncs, is some four thousand files: more work
    # than most tests ask for. It is the same for all, and nobody may change it: who is done with his leaves it to the next.

    def take_skeleton(self):
        images, kept = self.home / "images", os.environ.get("BRIG_E2E_SKELETONS")
        if not kept or images.exists():
            return
        for one in pathlib.Path(kept).iterdir():
            images.mkdir(exist_ok=True)
            try:
                one.rename(images / one.name.partition(".")[2])
                return
            except OSError:                             # another worker has it; or the home is a file system of its own
                continue

    def leave_skeleton(self):
        kept = os.environ.get("BRIG_E2E_SKELETONS")
        for one in (self.home / "images").glob("host-*") if kept and len(os.listdir(kept)) < SKELETONS_MAX else []:
            try:
                one.rename(f"{kept}/{uuid.uuid4()}.{one.name}")
            except OSError:
                continue

    def start(self, *flags, **variables):
        self.variables.update(variables)
        self.take_skeleton()
        with open(self.top / "stderr", "ab") as log:
            self.process = subprocess.Popen([BRIG, "serve", *flags], env=self.variables, stdout=subprocess.PIPE, stderr=log, text=True)
        line = self.process.stdout.readline()
        ready = re.fullmatch(r"ready http://([^:]+):(\d+)\n", line)
        if line.startswith("ready unix:/"):             # its calls are made by others
            return self
        if not ready:
            self.end(signal.SIGKILL)
            raise AssertionError(f"the daemon did not say it is ready but {line!r}; {self.stderr()[-2000:]}")
        self.host, self.port = ready[1], int(ready[2])
        return self

    def end(self, sig):
        """Sends the signal and waits; the exit status as subprocess has it."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(sig)
        return self.wait()

    def wait(self):
        try:
            return self.process.wait(DEADLINE_S)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            self.process.stdout.close()

    def stop(self):
        status = self.end(signal.SIGTERM)
        assert status == 0, f"exit status {status}; {self.stderr()[-2000:]}"
        self.assert_nothing_left()

    def kill(self):
        self.end(signal.SIGKILL)
        self.assert_nothing_left()

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, *_):
        try:
            if kind is None and self.process.poll() is None:
                self.stop()
            elif self.process.poll() is None:
                self.end(signal.SIGKILL)
                until(lambda: not self.leftovers(), "the spawner cleans up")
            if kind is None:
                self.leave_skeleton()
        finally:
            shutil.rmtree(self.top, ignore_errors=True)

    def stderr(self):
        return (self.top / "stderr").read_text(errors="replace")

    # ---- what it is on the machine ------------------------------------------------------------------------------------

    @property
    def instance(self):
        return (self.home / "instance").read_text().strip()

    def spawner(self):
        return next(pid for pid, parent, argv in processes() if parent == self.process.pid and b"spawner" in argv)

    def inside(self, *argv):
        """Pids of that very command line in this daemon's sandboxes."""
        def ours(pid):
            try:
                return f"brig-{self.instance}" in pathlib.Path(f"/proc/{pid}/cgroup").read_text()
            except OSError:
                return False
        wanted = [word.encode() for word in argv] + [b""]
        return [pid for pid, _, said in processes() if said == wanted and ours(pid)]

    def let_end(self, held):
        """Ends what Repository.held(held) holds, once it has begun."""
        for pid in until(lambda: self.inside("sleep", f"86400.{held}"), "it is held"):
            os.kill(pid, signal.SIGKILL)

    def leftovers(self):
        """Everything on the machine that carries the instance's name."""
        home, instance, found = str(self.home), self.instance, []
        for pid in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if f"brig-{instance}" in (pid / "cgroup").read_text():
                    found.append(f"process {pid.name} in its control groups")
            except OSError:
                continue
        with open("/proc/self/mountinfo", encoding="utf-8") as mounts:
            found += [f"mount {line.split()[4]}" for line in mounts if home + "/" in line]
        for backing in pathlib.Path("/sys/block").glob("loop*/loop/backing_file"):
            try:
                if backing.read_text().startswith(home + "/"):
                    found.append(f"loop device {backing.parts[3]}")
            except OSError:
                continue
        for root in [pathlib.Path("/sys/fs/cgroup"), *pathlib.Path("/sys/fs/cgroup").glob("*/")]:
            for group, inside, _ in os.walk(root):  # not glob: groups of others vanish under it
                if group.endswith(f"/brig-{instance}"):
                    found += [f"control group {group}/{name}" for name in inside]
        found += [f"link {link.name}" for link in pathlib.Path("/sys/class/net").iterdir() if instance in self.alias(link)]
        return found

    @staticmethod
    def alias(link):
        try:
            return link.name + (link / "ifalias").read_text()
        except OSError:
            return link.name

    def assert_nothing_left(self):
        """Nothing within a few seconds: a killed daemon's spawner needs a moment for what it had."""
        deadline = time.monotonic() + DEADLINE_S
        while self.leftovers():
            assert time.monotonic() < deadline, f"left behind: {self.leftovers()[:10]}"
            breathe()

    def usage(self):
        """VmRSS in bytes."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"^VmRSS:\s+(\d+) kB", status, re.M)[1]) * 1024

    # ---- its calls -------------------------------------------------------------------------------------------------------

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

    def status(self, task):
        answer = self.call("GET", f"/task/{task}")
        return answer.json["status"] if answer.status == 200 else answer.status

    def until_running(self, task):
        """Its attempt is on disk then, and a drain lets it end."""
        until(lambda: self.status(task) == "running", f"task {task} runs")
        return task

    def result(self, task, seconds=120):
        deadline = time.monotonic() + seconds
        while True:
            answer = self.call("GET", f"/task/{task}/result?wait=60")
            if answer.status != 202:
                assert answer.status == 200, answer
                return answer.json
            assert time.monotonic() < deadline, f"task {task} does not end: {answer}"

    # ---- what it keeps -----------------------------------------------------------------------------------------------------

    def query(self, sql):
        with sqlite3.connect(f"file:{self.home}/brig.db?mode=ro", uri=True) as db:
            return db.execute(sql).fetchall()

    def rows(self):
        """Number of tasks in the ledger."""
        return self.query("SELECT count(*) FROM jobs")[0][0]

    def ended_order(self):
        return [row[0] for row in self.query("SELECT id FROM jobs WHERE state=2 ORDER BY ended_ms, seq")]

    def run_directories(self):
        return sorted(p.name for p in (self.home / "runs").glob("*-*"))


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
# The tests that show the bug, as a gold patch: at base only test_double is there.
BASE_TESTS = """\
from calc import double


def test_double():
    assert double(4) == 8
"""
TEST_PATCH = """\
diff --git a/test_calc.py b/test_calc.py
--- a/test_calc.py
+++ b/test_calc.py
@@ -1,4 +1,8 @@
-from calc import double
+from calc import add, double
+
+
+def test_add():
+    assert add(2, 3) == 5
 
 
 def test_double():
"""


class Repository:
    """A small library with a bug, the patch that mends it, and the tests that show it."""
    right_patch, test_patch = RIGHT, TEST_PATCH

    def __init__(self, path, tests=TESTS):
        self.path = path
        path.mkdir()
        (path / "calc.py").write_text(CALC)
        (path / "test_calc.py").write_text(tests)
        for command in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "base"]):
            subprocess.run(["git", "-C", path, "-c", "user.name=t", "-c", "user.email=t@example.com", *command], check=True)
        self.commit = subprocess.run(["git", "-C", path, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()

    @property
    def url(self):
        return f"file://{self.path}"

    def request(self, **more):
        return {"repo_url": self.url, "base_commit": self.commit, "test_command": "python3 -m pytest -q", **more}

    def takes(self, seconds, **more):
        """A task that does nothing for that long."""
        return self.request(test_command=f"sleep {seconds}", **more)

    def held(self, number=1, **more):
        """A task that runs until Daemon.let_end(number), and is resolved then."""
        return self.request(test_command=f"sleep 86400.{number} || true", **more)
