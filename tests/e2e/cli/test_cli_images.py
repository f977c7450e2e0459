"""brig image import, ls, rm; brig snapshot ls, rm."""
import json
import socket
import subprocess
import tarfile


def small_root(top):
    (top / "etc").mkdir(parents=True)
    (top / "etc/mark").write_text("mine\n")
    (top / "bin").mkdir()
    subprocess.run(["cp", "/bin/busybox", top / "bin/busybox"], check=True)
    for name in ("sh", "bash", "cat"):
        (top / "bin" / name).symlink_to("busybox")
    return top


def test_a_directory_and_an_archive_become_images(brig, local):
    top = small_root(local / "root")
    with tarfile.open(local / "root.tar.gz", "w:gz") as t:
        t.add(top, ".")
    assert brig("image", "import", top, "--name", "cli-dir", "-q") == "cli-dir:latest\n"
    assert brig("image", "import", local / "root.tar.gz", "--name", "cli-tar", "-q") == "cli-tar:latest\n"
    assert {"cli-dir:latest", "cli-tar:latest"} <= set(brig("image", "ls", "-q").split())
    for name in ("cli-dir", "cli-tar"):
        session = brig("session", "start", name, "--network", "none").strip()
        assert brig("exec", session, "/bin/cat", "/etc/mark") == "mine\n"
        brig("session", "rm", session)
    brig("image", "rm", "cli-dir", "cli-tar")
    assert not {"cli-dir:latest", "cli-tar:latest"} & set(brig("image", "ls", "-q").split())


def test_two_names_of_a_file_stay_one_file(brig, local):
    top = small_root(local / "root")
    (top / "etc/first").write_text("one\n")
    (top / "etc/second").hardlink_to(top / "etc/first")
    (top / "bin/another").hardlink_to(top / "etc/first")
    brig("image", "import", top, "--name", "cli-links", "-q")
    session = brig("session", "start", "cli-links", "--network", "none").strip()
    assert brig("exec", session, "/bin/busybox", "stat", "-c", "%h %s", "/etc/first", "/etc/second", "/bin/another") == "3 4\n" * 3
    brig("session", "rm", session)
    brig("image", "rm", "cli-links")


def test_a_name_that_no_image_can_have_is_refused_before_anything_is_sent(brig, local):
    with socket.create_server(("127.0.0.1", 0)) as never_answers:
        for name in ("Bad Name", "host", "a@b", "/x"):
            said = brig.run("image", "import", local, "--name", name, "--url", f"http://127.0.0.1:{never_answers.getsockname()[1]}", status=64, text=True).stderr
            assert name in said


def test_images_as_a_table_and_as_json(brig, local):
    brig("image", "import", small_root(local / "root"), "--name", "cli-list", "-q")
    table = brig("image", "ls").splitlines()
    assert table[0].split() == ["NAME", "FROM", "DIGEST", "LAYERS", "SIZE", "AGE"]
    row = next(line.split() for line in table if line.startswith("cli-list:latest"))
    image = next(i for i in json.loads(brig("image", "ls", "-o", "json"))["images"] if "cli-list:latest" in i["names"])
    assert row[1:4] == ["import", image["digest"][:12], "1"]
    brig("image", "rm", image["digest"])


def test_snapshots_are_listed_and_removed(brig, standing):
    brig("snapshot", "create", standing, "--name", "cli-snap")
    assert brig("snapshot", "ls", "-q").split().count("cli-snap:latest") == 1
    assert all(i["origin"] == "snapshot" for i in json.loads(brig("snapshot", "ls", "-o", "json"))["images"])
    brig("snapshot", "rm", "cli-snap")
    assert "cli-snap:latest" not in brig("snapshot", "ls", "-q").split()


def test_what_is_removed_is_said_as_json(brig, local):
    brig("image", "import", small_root(local / "root"), "--name", "cli-gone", "-q")
    assert json.loads(brig("image", "rm", "cli-gone", "-o", "json")) == {"ref": "cli-gone", "deleted": True}


def test_a_step_of_a_build_that_is_known_is_said(brig, local):
    (local / "Dockerfile").write_text("FROM host\nRUN : known\n")
    brig("image", "build", local, "--network", "none")
    shown = brig.run("image", "build", local, "--network", "none", text=True).stderr.splitlines()
    assert [line.split(" ")[0] for line in shown] == ["[1/2]", "[2/2]", "[2/2]"] and shown[2].strip() == "[2/2] cached"


def test_what_is_no_image_is_said(brig, local):
    (local / "junk").write_bytes(b"not a tar at all" * 100)
    assert brig.run("image", "import", local / "junk", "-q", status=2, text=True).stderr.startswith("brig image import: ")
    brig.run("image", "import", local / "none", status=64)
    assert "no such image" in brig.run("image", "rm", "nothing-here", status=2, text=True).stderr
