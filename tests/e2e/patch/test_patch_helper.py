"""The static helper's apply verb, run as the spawner runs it: descriptors at fixed numbers, a request in frames, a report back."""
import os
import struct
import subprocess

import pytest

HELPER = os.path.join(os.environ.get("BRIG_BUILD", "build"), "src", "helper", "brig-helper")
REQUEST = {"repo_path": 1, "mode": 2, "protect": 3, "allow": 4, "diff_max": 5, "memory": 6, "undo": 7}
REPORT = dict(enumerate(["rung", "rejected", "refused", "test_ok", "test_rejected", "touched", "test_file", "restored", "finding", "config", "module", "diff",
                         "diff_cut", "fault", "end", "no_tree"], 10))


def frames(pairs):
    return b"".join(struct.pack("<BI", REQUEST[kind], len(data)) + data for kind, data in pairs)


def parse(data):
    found, at = [], 0
    while at < len(data):
        kind, n = struct.unpack_from("<BI", data, at)
        found.append((REPORT[kind], data[at + 5:at + 5 + n]))
        at += 5 + n
    return found


def memfd(data):
    fd = os.memfd_create("x")
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def apply(live, base, patch=b"", test_patch=b"", request=None):
    pairs = [("repo_path", b"/testbed"), ("mode", b"0")] if request is None else request
    report = memfd(b"")
    wanted = [os.open(live, os.O_RDONLY), os.open(base, os.O_RDONLY), memfd(frames(pairs)), memfd(patch), memfd(test_patch), report]

    def place():
        high = [os.dup2(fd, 100 + i) for i, fd in enumerate(wanted)]
        for target, fd in zip([3, 4, 7, 8, 9, 10], high):
            os.dup2(fd, target)

    done = subprocess.run(["apply"], executable=HELPER, preexec_fn=place, close_fds=False, env={}, capture_output=True)
    for fd in wanted[:-1]:
        os.close(fd)
    data = os.pread(report, os.fstat(report).st_size, 0)
    os.close(report)
    return done, parse(data)


@pytest.fixture
def roots(tmp_path):
    for name in ("live", "base"):
        (tmp_path / name / "testbed").mkdir(parents=True)
        (tmp_path / name / "testbed" / "f.py").write_text("a\n")
    return tmp_path / "live", tmp_path / "base"


EDIT = b"--- a/f.py\n+++ b/f.py\n@@ -1 +1 @@\n-a\n+b\n"
NEW = b"diff --git a/t.py b/t.py\nnew file mode 100644\n--- /dev/null\n+++ b/t.py\n@@ -0,0 +1 @@\n+t\n"


def test_a_job_is_done_and_reported(roots):
    done, report = apply(*roots, EDIT, NEW, [("repo_path", b"/testbed"), ("mode", b"0"), ("diff_max", b"1000")])
    assert done.returncode == 0 and done.stderr == b""
    assert report == [("rung", b"1"), ("touched", b"f.py"), ("diff", b"diff --git a/f.py b/f.py\n" + EDIT), ("test_file", b"t.py"), ("test_ok", b""), ("end", b"")]
    assert (roots[0] / "testbed/f.py").read_text() == "b\n"
    assert (roots[0] / "testbed/t.py").read_text() == "t\n"
    assert (roots[1] / "testbed/f.py").read_text() == "a\n"


@pytest.mark.parametrize("request_frames", [
    [], [("mode", b"0")], [("repo_path", b"testbed")], [("repo_path", b"/testbed"), ("mode", b"7")],
    [("repo_path", b"/testbed"), ("protect", b"../etc")],
])
def test_a_bad_request_is_our_fault_and_touches_nothing(roots, request_frames):
    done, report = apply(*roots, EDIT, b"", request_frames)
    assert done.returncode == 0
    assert [kind for kind, _ in report] == ["fault", "end"]
    assert (roots[0] / "testbed/f.py").read_text() == "a\n"


@pytest.mark.parametrize("place", [b"/nowhere", b"/testbed/f.py", b"/link"])
def test_where_no_directory_is_there_is_no_tree_and_no_link_is_followed(roots, place):
    (roots[0] / "link").symlink_to("testbed")
    _, report = apply(*roots, EDIT, b"", [("repo_path", place), ("mode", b"0")])
    assert [kind for kind, _ in report] == ["no_tree", "end"] and place in report[0][1]
    assert (roots[0] / "testbed/f.py").read_text() == "a\n"


def test_a_full_disk_rejects_the_patch_and_runs_the_tests_at_base(tmp_path):
    live, base = tmp_path / "live", tmp_path / "base"
    for root in (live, base):
        root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(live)], check=True)
    try:
        for root in (live, base):
            (root / "testbed").mkdir()
            (root / "testbed" / "f.py").write_text("a\n")
        big = b"".join(b"+" + b"x" * 99 + b"\n" for _ in range(2300))
        patch = EDIT + b"--- /dev/null\n+++ b/big\n@@ -0,0 +1,2300 @@\n" + big
        tests = b"--- /dev/null\n+++ b/t.py\n@@ -0,0 +1,400 @@\n" + b"".join(b"+" + b"y" * 99 + b"\n" for _ in range(400))
        for agent in (patch, patch.replace(b"+1,2300", b"+1,4600") + big):
            _, report = apply(live, base, agent, tests)
            kinds = [kind for kind, _ in report]
            assert "rung" not in kinds and "fault" not in kinds and "test_ok" in kinds and kinds[-1] == "end"
            assert [d for k, d in report if k in ("refused", "rejected")]
            assert (live / "testbed/f.py").read_text() == "a\n"
            assert not (live / "testbed/big").exists()
            (live / "testbed/t.py").unlink()
    finally:
        subprocess.run(["umount", str(live)], check=True)


def test_a_patch_that_takes_too_much_memory_is_rejected(roots):
    patch = EDIT + b"--- /dev/null\n+++ b/big\n@@ -0,0 +1,3000000 @@\n" + b"+x\n" * 3000000
    _, report = apply(*roots, patch, NEW, [("repo_path", b"/testbed"), ("mode", b"0"), ("memory", b"%d" % (100 << 20))])
    assert [kind for kind, _ in report] == ["refused", "test_file", "test_ok", "end"]
    assert (roots[0] / "testbed/f.py").read_text() == "a\n" and (roots[0] / "testbed/t.py").exists() and not (roots[0] / "testbed/big").exists()
    _, report = apply(*roots, patch, NEW, [("repo_path", b"/testbed"), ("mode", b"0"), ("memory", b"%d" % (1 << 30))])
    assert report[0] == ("rung", b"1")
