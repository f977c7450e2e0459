"""A disk that is really full: a small tmpfs as the home."""
import os
import pathlib
import subprocess
import tempfile

import pytest

import brigd
from brigd import until

MIB = 1 << 20


@pytest.fixture
def small(brig):
    """A daemon whose home is a file system of its own, and a way to fill it."""
    top = pathlib.Path(tempfile.mkdtemp(prefix="brig-full-", dir="/tmp"))
    (top / "home").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512M,mode=0755", "tmpfs", str(top / "home")], check=True)
    d = brigd.Daemon(top, BRIG_STORE_BALLAST="8M", BRIG_STORE_LOW_WATER="32M", BRIG_QUEUE_RUNNING_MAX="1", BRIG_DRAIN_GRACE="0")
    try:
        d.start()
        yield d
        d.stop()
    finally:
        if d.process.poll() is None:
            d.end(9)
        subprocess.run(["umount", "-l", str(top / "home")], check=True)
        subprocess.run(["rm", "-rf", str(top)], check=True)


def fill(d):
    with open(d.home / "filler", "wb", buffering=0) as f:
        size = MIB
        while size:
            try:
                f.write(b"x" * size)
            except OSError:
                size //= 2


def unfill(d):
    os.unlink(d.home / "filler")


def test_a_full_disk_refuses_new_work_and_takes_it_again(small, repository):
    fill(small)
    refused = small.call("POST", "/task/submit", repository.request())
    assert refused.status == 503 and refused.json["code"] == "disk_full"
    assert "Retry-After" in refused.headers
    assert small.call("GET", "/task/x").status == 404    # alive
    unfill(small)
    accepted = until(lambda: (a := small.call("POST", "/task/submit", repository.takes(0))).status == 202 and a, "work is accepted again")
    assert small.result(accepted.json["task_id"])["status"] == "completed"


def squeeze(d, leave):
    """Fills the home until `leave` bytes are free."""
    v = os.statvfs(d.home)
    with open(d.home / "filler", "ab") as f:
        os.posix_fallocate(f.fileno(), f.tell(), v.f_bavail * v.f_frsize - leave)


def free(d):
    v = os.statvfs(d.home)
    return v.f_bavail * v.f_frsize


def test_old_logs_and_then_unused_layers_go_before_anything_is_refused(small, repository):
    loud = repository.request(test_command="head -c 40000000 /dev/zero")
    tasks = [small.submit(loud) for _ in range(2)]
    for task in tasks:
        small.result(task)
    assert len(small.run_directories()) == 2
    squeeze(small, 50 * MIB)                             # below twice the low-water mark, above the mark
    until(lambda: not small.run_directories(), "the logs go")
    assert "layer.evicted" not in small.stderr()
    assert all(small.result(task)["outcome"] for task in tasks)  # the records are kept
    assert small.call("POST", "/task/submit", repository.takes(0)).status == 202
    until(lambda: small.query("SELECT count(*) FROM jobs WHERE state=2") == [(3,)], "it ends")
    squeeze(small, 50 * MIB)
    until(lambda: "layer.evicted" in small.stderr(), "the unused layer goes")
    until(lambda: free(small) > 50 * MIB, "there is more room")
    assert small.result(small.submit(repository.takes(0)))["status"] == "completed"      # and is made again


def test_what_runs_when_the_disk_fills_is_recorded(small, repository):
    small.result(small.submit(repository.takes(0)))      # the tree is prepared
    task = small.until_running(small.submit(repository.takes(3)))
    fill(small)
    record = small.result(task)
    assert record["status"] in ("completed", "failed")
    assert record["outcome"] in ("resolved", "infra_error"), record
    if record["outcome"] == "infra_error":
        assert record["error"]["code"] == "disk_full"
    unfill(small)
    next_one = until(lambda: (a := small.call("POST", "/task/submit", repository.takes(0))).status == 202 and a, "work is accepted again")
    assert small.result(next_one.json["task_id"])["status"] == "completed"
