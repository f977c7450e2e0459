"""Drives src/score/python/launcher.py as score/run.c does, without a daemon: two pipes and a plan."""
import json
import os
import subprocess
import textwrap
import threading

import pytest

SOURCE = os.path.join(os.path.dirname(__file__), "..", "..", "..", "src", "score", "python")
PYTHON = os.environ.get("BRIG_TEST_PYTHON", "/usr/bin/python3")
NONCE = "0123456789abcdef0123456789abcdef"
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "LANG": "C.UTF-8", "TZ": "UTC"}


class Outcome(object):
    def __init__(self, status, events, out, err):
        self.status, self.events, self.out, self.err = status, events, out, err
        self.ids = [i for e in events if e["e"] == "ids" for i in e["ids"]]

    def of(self, kind):
        return [e for e in self.events if e["e"] == kind]

    @property
    def tests(self):
        """{id: phases}; the same id twice keeps both."""
        found = {}
        for e in self.of("test"):
            found[self.ids[e["i"]]] = found.get(self.ids[e["i"]], "") + e["p"]
        return found

    @property
    def missing(self):
        return [i for e in self.of("missing") for i in e["ids"]]

    @property
    def end(self):
        last = self.events[-1] if self.events else None
        return last if last and last["e"] == "end" else None


class Tree(object):
    def __init__(self, path):
        self.path, self.python = path, PYTHON

    def write(self, name, text):
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(textwrap.dedent(text))

    def run(self, *args, framework="pytest", env=None, options=("-S",), **plan):
        whole = {"nonce": NONCE, "framework": framework, "mode": "run", "args": list(args), "ids": [], "run": "ids", "tree": str(self.path),
                 "console": False, "redirects": [], "environment": {}, "base_config": [], "distrust": [], "tests": []}
        whole.update(plan)
        events, events_in = os.pipe()
        plan_out, plan_fd = os.pipe()
        os.write(plan_fd, json.dumps(whole).encode())
        os.close(plan_fd)
        argv = [self.python] + list(options) + [os.path.join(SOURCE, "launcher.py"), str(events_in), str(plan_out)]
        child = subprocess.Popen(argv, cwd=str(self.path), env=dict(ENVIRONMENT, **(env or {})), pass_fds=(events_in, plan_out),
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        os.close(events_in)
        os.close(plan_out)
        read = []

        def drain():
            with os.fdopen(events, "rb") as f:
                read.append(f.read())
        reader = threading.Thread(target=drain)
        reader.start()
        out, err = child.communicate(timeout=60)
        reader.join(60)
        lines = [json.loads(line) for line in read[0].decode("ascii").splitlines() if line.startswith("{")]
        ours = [e for e in lines if e.get("k") == NONCE]
        assert [e["n"] for e in ours] == list(range(len(ours))) or plan.get("forged")
        return Outcome(child.returncode, ours, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))


@pytest.fixture
def tree(tmp_path):
    path = tmp_path / "testbed"
    path.mkdir()
    return Tree(path)
