"""brig snapshot create|check --profile, and the targets of the Makefile."""
import json
import os
import pathlib
import platform
import subprocess

import images
import pytest
from brigd import BRIG

TOP = pathlib.Path(__file__).resolve().parents[3]


@pytest.fixture
def made(brig):
    """Names that a test has made, and that go after it; no session of theirs may be left."""
    names = []
    before = set(brig("session", "ls", "-q").split())
    yield names
    for name in names:
        brig("snapshot", "rm", name)
    assert set(brig("session", "ls", "-q").split()) == before


def test_a_profile_is_made_of_the_host_and_checked(brig, made):
    done = brig.run("snapshot", "create", "--profile", "session", text=True)
    made.append("fleet-rlm-python313-v7")
    assert done.stdout == "fleet-rlm-python313-v7\n"
    said = "its name says python 3.13, it has " in done.stderr
    good = brig("snapshot", "check", "--profile", "session")
    assert good.startswith("fleet-rlm-python313-v7 is as its manifest says: from host, python ") and "uid 1000, /workspace, 8 GiB" in good
    assert said == ("python 3.13." not in good)
    facts = brig.json("snapshot", "check")
    assert facts["manifest"]["packages"] == facts["packages"] and facts["manifest"]["name"] == "fleet-rlm-python313-v7" and facts["uid"] == 1000


def test_a_name_that_is_there_is_left_as_it_is(brig, made):
    brig("snapshot", "create", "--profile", "semantic-child")
    made.append("fleet-rlm-python313-child-v2")

    def digest():
        return next(i["digest"] for i in brig.json("snapshot", "ls")["images"] if "fleet-rlm-python313-child-v2:latest" in i["names"])

    before = digest()
    done = brig.run("snapshot", "create", "--profile", "semantic-child", text=True)
    assert done.stdout == "fleet-rlm-python313-child-v2\n" and "is there already" in done.stderr
    assert digest() == before
    assert "4 GiB" in brig("snapshot", "check", "--profile", "semantic-child")
    assert "profile is semantic-child, and should be session" in brig.run("snapshot", "check", "--name", "fleet-rlm-python313-child-v2", status=1, text=True).stderr


def test_a_profile_of_an_imported_image(brig, made, local):
    (local / "python.tar").write_bytes(images.python())
    brig("image", "import", local / "python.tar", "--name", "profile-base", "-q")
    brig("snapshot", "create", "--profile", "session", "--from", "profile-base", "--name", "mine-v1")
    made += ["mine-v1"]
    assert "from profile-base" in brig("snapshot", "check", "--name", "mine-v1")
    brig("image", "rm", "profile-base")                         # what was made of it stays
    assert "from profile-base" in brig("snapshot", "check", "--name", "mine-v1")


def test_what_is_not_there_is_said_and_not_made(brig):
    done = brig.run("snapshot", "check", "--name", "absent-v1", status=1, text=True)
    assert "there is no absent-v1; brig snapshot create --profile session makes it" in done.stderr and done.stdout == ""
    assert brig.run("snapshot", "create", "--profile", "session", "--name", "never-v1", "--from", "/no/such/directory", status=None).returncode in (2, 64)
    brig.run("snapshot", "check", "--name", "never-v1", status=1)


def test_what_was_changed_does_not_pass(brig, made):
    session = brig("session", "start", "--network", "none").strip()
    brig("snapshot", "create", session, "--name", "plain-v1")
    made.append("plain-v1")
    assert "the manifest is missing" in brig.run("snapshot", "check", "--name", "plain-v1", status=1, text=True).stderr
    manifest = {"name": "other-v1", "profile": "session", "python": "3.0.0", "packages": ["x==1"], "uid": 1000, "workdir": "/workspace", "cpus": 4, "memory_gib": 8, "disk_gib": 8}
    brig("exec", "-i", "--shell", session, "mkdir -p /workspace; cat >/etc/brig-snapshot.json", input=json.dumps(manifest))
    brig("snapshot", "create", session, "--name", "changed-v1")
    made.append("changed-v1")
    brig("session", "rm", session)
    said = brig.run("snapshot", "check", "--name", "changed-v1", status=1, text=True).stderr
    assert "name is other-v1, and should be changed-v1" in said and "python is " in said and "and should be 3.0.0" in said and "packages is " in said
    assert "working directory is read-only" in said and "uid is" not in said


@pytest.mark.parametrize("name", ["latest", "Big-v1", "a", "a-v0", "a-v01", "a-v", "-v1", "a_b-v1", "a-v1:latest", "a" * 128 + "-v1"])
def test_names_without_a_version_are_refused(brig, name):
    brig.run("snapshot", "create", "--profile", "session", f"--name={name}", status=64)


def test_words_that_do_not_go_together_are_refused(brig):
    for words in (("create",), ("create", "x", "--profile", "session"), ("create", "x", "--from", "host"), ("create", "--profile", "other"), ("check", "--profile", "other")):
        brig.run("snapshot", *words, status=64)


def test_the_environment_names_them_and_the_name_while_it_is_made_comes_first(brig, made):
    brig.env.update(FLEET_DAYTONA_SNAPSHOT="fleet-env-v3")
    try:
        assert "fleet-env-v3" in brig.run("snapshot", "check", status=1, text=True).stderr
        brig.env.update(DAYTONA_SNAPSHOT_NAME="build-env-v4")
        assert brig("snapshot", "create", "--profile", "session") == "build-env-v4\n"
        made.append("build-env-v4")
    finally:
        brig.env.pop("FLEET_DAYTONA_SNAPSHOT")
        brig.env.pop("DAYTONA_SNAPSHOT_NAME", None)


def test_the_makefiles_targets_start_a_daemon_where_none_answers(local):
    """As on a fresh machine: nothing is there but the program."""
    home = pathlib.Path("/var/tmp") / f"brig-e2e-profile-{os.getpid()}"
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "BRIG": BRIG, "BRIG_HOME": str(home), "API_PORT": "1", "BRIG_REGISTRY_DEFAULT": "localhost:1"}

    def target(*words):
        return subprocess.run([TOP / "tools/with-daemon.sh", "snapshot", *words], env=env, capture_output=True, text=True, timeout=120, check=False)

    try:
        assert target("check", "--profile", "session").returncode == 1
        assert target("create", "--profile", "session").stdout == "fleet-rlm-python313-v7\n"
        done = target("check", "--profile", "session")
        assert done.returncode == 0 and f"python {platform.python_version()}" in done.stdout
        rows = subprocess.run(["make", "-n", "BUILD=nowhere", "daytona-snapshot-check", "daytona-child-snapshot-create", "FROM=base"], cwd=TOP, capture_output=True, text=True, check=True).stdout
        assert "with-daemon.sh snapshot check --profile session\n" in rows and "snapshot create --profile semantic-child --from base\n" in rows
    finally:
        subprocess.run(["rm", "-rf", home], check=True)
