"""Every way to a repository that an address may name, besides http with git behind it."""
import functools
import http.server
import os
import signal
import socket
import subprocess
import threading
import time

import pytest

from brigd import free_port
from tree_harness import GIT_ENV, WAIT


@pytest.mark.parametrize("packed", [False, True])
def test_http_server_of_plain_files(store, repo, place, packed):
    class Files(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    old = repo.commit({"a": "1", "deep/b": "1"})
    if packed:
        repo.git("repack", "-adq")
    tip = repo.commit({"a": "2"})
    if packed:
        repo.git("repack", "-dq")              # two packs: one needs the other
        repo.git("tag", "-a", "-m", "loose", "v1")
    repo.git("update-server-info")
    files = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Files, directory=place))
    threading.Thread(target=files.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{files.server_address[1]}/repo/.git"
        store.get(1, url, tip)
        assert store.out(1, "cd /testbed && cat a deep/b && git log --format=%H") == f"21{tip}\n"
        assert store.get(2, url, old).commit == old
        assert store.get(3, url, "main").commit == tip
        a = store.acquire(4, url, "f" * 40)
        assert (a.kind, a.code) == ("failed", "commit_not_found")
        a = store.acquire(5, url.replace("repo", "nowhere"), tip)
        assert (a.kind, a.code) == ("failed", "repo_unreachable") and "not found" in a.text
    finally:
        files.shutdown()
        files.server_close()


def until_listening(port, process):
    end = time.monotonic() + WAIT
    while time.monotonic() < end and process.poll() is None:
        try:
            return socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.02)
    raise AssertionError("the server does not listen")


@pytest.fixture
def git_daemon(place):
    port = free_port()
    daemon = subprocess.Popen(["git", "daemon", "--reuseaddr", "--listen=127.0.0.1", f"--port={port}", f"--base-path={place}", "--export-all"],
                              env={**GIT_ENV, "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"},
                              stderr=subprocess.DEVNULL, start_new_session=True)
    until_listening(port, daemon)
    yield f"git://127.0.0.1:{port}"
    os.killpg(daemon.pid, signal.SIGTERM)
    daemon.wait(WAIT)


def test_the_git_protocol(store, repo, git_daemon):
    commit = repo.commit({"a": "1"})
    store.get(1, f"{git_daemon}/repo", commit)
    assert store.out(1, "cat /testbed/a") == "1"
    assert store.get(2, f"{git_daemon}/repo", "main", path="/elsewhere").commit == commit
    a = store.acquire(3, f"{git_daemon}/nowhere", commit)
    assert (a.kind, a.code) == ("failed", "repo_unreachable")
