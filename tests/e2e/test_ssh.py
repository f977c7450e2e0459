"""Repositories are fetched by ssh with the operator's key, and from servers that the operator knows."""
import os
import pathlib
import pwd
import shutil
import socket
import subprocess
import tempfile

import pytest

from brigd import DEADLINE_S, free_port, until

SSHD = "/usr/sbin/sshd"


class Server:
    """An sshd of the test's own, on loopback, that takes one key and shows its host key."""

    def __init__(self):
        self.top = pathlib.Path(tempfile.mkdtemp(prefix="brig-sshd-", dir="/tmp"))
        for name in ("host", "client", "stranger"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "x", "-f", self.top / name], check=True)
        (self.top / "authorized").write_text((self.top / "client.pub").read_text())
        self.port = free_port()
        (self.top / "config").write_text(
            f"ListenAddress 127.0.0.1:{self.port}\nHostKey {self.top}/host\nAuthorizedKeysFile {self.top}/authorized\nPidFile none\nStrictModes no\n"
            "UsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n"
            "SetEnv GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0=*\n")
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
        self.process = subprocess.Popen([SSHD, "-D", "-e", "-f", self.top / "config"], stderr=subprocess.DEVNULL)
        until(self.listens, "sshd listens")
        self.known(self.top / "host.pub")

    def listens(self):
        assert self.process.poll() is None
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
            return True
        except OSError:
            return False

    def known(self, key):
        (self.top / "known").write_text(f"[127.0.0.1]:{self.port} {key.read_text()}")

    def url(self, repository):
        return f"ssh://{pwd.getpwuid(os.getuid()).pw_name}@127.0.0.1:{self.port}{repository.path}"

    def settings(self, key="client"):
        return {"BRIG_REPO_SSH_KEY": str(self.top / key), "BRIG_REPO_SSH_KNOWN_HOSTS": str(self.top / "known")}

    def stop(self):
        self.process.terminate()
        self.process.wait(DEADLINE_S)
        shutil.rmtree(self.top)


@pytest.fixture(scope="module")
def server():
    s = Server()
    yield s
    s.stop()


def score(d, server, repository):
    return d.result(d.submit(repository.request(repo_url=server.url(repository), test_command="true")))


def test_the_operators_key_opens_a_repository_and_is_kept_nowhere(brig, server, repository):
    d = brig(**server.settings())
    record = score(d, server, repository)
    assert record["outcome"] == "resolved", record
    secret = (server.top / "client").read_text().splitlines()[1][:60]
    found = subprocess.run(["grep", "-rlF", secret, d.home / "trees", d.home / "log", d.home / "runs", d.home / "brig.db", d.top / "stderr"], capture_output=True, text=True)
    assert (found.stdout, found.returncode) == ("", 1)


def test_another_key_is_not_let_in(brig, server, repository):
    record = score(brig(**server.settings("stranger")), server, repository)
    assert record["error"]["code"] == "repo_unreachable" and "Permission denied" in record["error"]["message"], record


def test_a_server_that_is_not_known_is_not_fetched_from(brig, server, repository):
    server.known(server.top / "stranger.pub")
    try:
        record = score(brig(**server.settings()), server, repository)
    finally:
        server.known(server.top / "host.pub")
    assert record["error"]["code"] == "repo_unreachable" and "Host key verification failed" in record["error"]["message"], record


def test_without_a_key_ssh_says_that_it_was_not_let_in(brig, server, repository):
    record = score(brig(), server, repository)
    assert record["error"]["code"] == "repo_unreachable" and "Permission denied" in record["error"]["message"], record
