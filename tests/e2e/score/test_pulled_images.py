"""Tasks on images that have to be had first: pulled at first use, once for all who want them; or that there is no room for."""
import os
import pathlib
import subprocess
import sys
import tempfile

import brigd
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "registry"))

import images  # noqa: E402
from registries import Image, RealRegistry  # noqa: E402


@pytest.fixture(scope="module")
def registry():
    with RealRegistry() as r:
        yield r


@pytest.fixture(scope="module")
def daemon():
    with brigd.Daemon() as d:
        yield d


def test_an_image_is_pulled_at_first_use_and_then_here(daemon, registry, calc):
    name = registry.push("org/shell", Image([images.shell()], {"Env": ["FROM=registry", "PATH=/bin"], "User": "app", "WorkingDir": "/tmp"}), "1")
    ask = {"image": name, "test_command": "echo $FROM; id -u; pwd"}
    r = daemon.result(daemon.submit(calc.request(**ask)))
    assert r["outcome"] == "resolved" and r["stdout"] == "registry\n77\n/testbed\n", r
    registry.push("org/shell", Image([images.shell()], {"Env": ["FROM=later", "PATH=/bin"]}), "1")      # what it has now nobody asks
    again = daemon.result(daemon.submit(calc.request(**ask)))
    assert again["evidence"] == r["evidence"]
    r = daemon.result(daemon.submit({"mode": "image", "image": name, "entry_command": "true"}))
    assert r["outcome"] == "unresolved" and "/bin/bash" in r["stderr"], r            # it has none
    assert images.users(daemon, name) == 0


def test_tasks_that_want_it_at_once_share_the_pull(daemon, registry, calc):
    name = registry.push("org/shared", Image([images.shell(lambda t: t.add("shared", os.urandom(1 << 20)))], {}), "1")
    tasks = [daemon.submit(calc.request(image=name, test_command="test -e /shared")) for _ in range(6)]
    assert {daemon.result(t)["outcome"] for t in tasks} == {"resolved"}
    assert len([i for i in daemon.call("GET", "/v1/images").json["images"] if name in i["names"]]) == 1


def test_a_tag_that_the_registry_does_not_have(daemon, registry, calc):
    r = daemon.result(daemon.submit(calc.request(image=f"{registry.host}/org/nothing:1", test_command="true")))
    assert (r["outcome"], r["error"]["code"]) == ("infra_error", "image_not_found") and "org/nothing" in r["error"]["message"], r


def test_no_room_for_the_image(registry, calc):
    """A disk that has little left: the task says so, and the next one, on what is here, runs."""
    name = registry.push("org/big", Image([images.shell(lambda t: t.add("big", os.urandom(300 << 20)))], {}), "1")
    top = pathlib.Path(tempfile.mkdtemp(prefix="brig-full-", dir="/tmp"))
    (top / "home").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256M,mode=0755", "tmpfs", str(top / "home")], check=True)
    d = brigd.Daemon(top, BRIG_STORE_BALLAST="4M", BRIG_STORE_LOW_WATER="16M", BRIG_QUEUE_RUNNING_MAX="1")
    try:
        d.start()
        r = d.result(d.submit(calc.request(image=name, test_command="true")))
        assert (r["outcome"], r["error"]["code"]) == ("infra_error", "disk_full"), r
        brigd.until(lambda: d.call("GET", "/v1/images").json["images"] == [] and not [p for p in (d.home / "layers").iterdir() if len(p.stem) == 32], "nothing is left of it", 60)
        assert d.result(d.submit(calc.request(test_command="true")))["outcome"] == "resolved"
        d.stop()
    finally:
        if d.process.poll() is None:
            d.end(9)
        subprocess.run(["umount", "-l", str(top / "home")], check=True)
        subprocess.run(["rm", "-rf", str(top)], check=True)
