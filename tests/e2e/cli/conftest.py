"""The command line against one real daemon: brig("session", "ls") runs the program."""
import json
import os
import subprocess

import pytest
from brigd import BRIG, Daemon


class Brig:
    def __init__(self, daemon):
        self.daemon = daemon
        self.env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "TERM": "xterm", "BRIG_URL": f"http://{daemon.host}:{daemon.port}"}

    def __call__(self, *words, status=0, **more):
        """Standard output as text; the exit status must be `status`."""
        return self.run(*words, status=status, text=True, **more).stdout

    def run(self, *words, status=0, **more):
        done = subprocess.run([BRIG, *map(str, words)], env=self.env, capture_output=True, timeout=120, **more)
        assert status is None or done.returncode == status, (words, done)
        return done

    def json(self, *words, **more):
        return json.loads(self(*words, "-o", "json", **more))

    def start(self, *words):
        return subprocess.Popen([BRIG, *map(str, words)], env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.fixture(scope="session")
def daemon():
    with Daemon() as d:
        yield d


@pytest.fixture(scope="session")
def brig(daemon):
    return Brig(daemon)


@pytest.fixture(scope="module")
def standing(brig):
    """A session for all tests of a file."""
    session = brig("session", "start", "--network", "none").strip()
    yield session
    brig("session", "rm", session)


@pytest.fixture
def local(tmp_path):
    os.chmod(tmp_path, 0o755)
    return tmp_path
