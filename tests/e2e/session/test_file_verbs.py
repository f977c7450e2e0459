"""The helper's file operations, run directly on a directory as the sandbox's root: what its paths mean where somebody has laid traps."""
import json
import os
import pathlib
import socket
import stat
import subprocess

import pytest

HELPER = pathlib.Path(os.environ.get("BRIG_BUILD", "build")) / "src" / "helper" / "brig-helper"
HEAD = 512


def files(root, operation, *args, data=b"", commit=False):
    """Descriptor 3 is the root, 7 says whether what was written is whole. What it answers, and what came behind the head."""
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    out, into = os.pipe()
    if commit:
        os.write(into, b".")
    os.close(into)
    script = f"exec 30<&{fd} 31<&{out} 3<&30 7<&31; exec -a files {HELPER} \"$@\""
    try:
        run = subprocess.run(["bash", "-c", script, "sh", operation, *map(str, args)], pass_fds=(fd, out), input=data, capture_output=True, timeout=60)
    finally:
        os.close(fd)
        os.close(out)
    assert run.returncode in (0, 3), run
    if operation in ("read", "pack"):
        return json.loads(run.stdout[:HEAD]), run.stdout[HEAD:]
    return json.loads(run.stdout), b""


def error(*args, **more):
    return files(*args, **more)[0].get("error")


@pytest.fixture
def root(tmp_path):
    """A root with traps; beside it what nobody may reach."""
    top = tmp_path / "root"
    (top / "d" / "e").mkdir(parents=True)
    (top / "d" / "f").write_text("inside")
    (tmp_path / "secret").write_text("outside")
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "f").write_text("outside")
    os.symlink("../../secret", top / "d" / "up")
    os.symlink(tmp_path / "secret", top / "absolute")
    os.symlink("../beside", top / "dir-up")
    os.symlink("/d", top / "dir-in")
    os.symlink("b", top / "a")
    os.symlink("a", top / "b")
    os.mkfifo(top / "fifo")
    os.mknod(top / "zero", 0o600 | stat.S_IFCHR, os.makedev(1, 5))
    socket.socket(socket.AF_UNIX).bind(str(top / "socket"))
    yield top
    assert (tmp_path / "secret").read_text() == "outside"
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o644
    assert sorted(os.listdir(tmp_path / "beside")) == ["f"]
    assert (tmp_path / "beside" / "f").read_text() == "outside"
    assert sorted(os.listdir(tmp_path)) == ["beside", "root", "secret"]


OUT = ["/../secret", "../secret", "d/../../secret", "d/up", "absolute", "dir-up/f"]


@pytest.mark.parametrize("path", OUT)
def test_no_path_leads_out(root, path):
    assert error(root, "read", "--", path) == "not_found"
    assert error(root, "list", "--", path) == "not_found"
    assert error(root, "pack", "--", path) == "not_found"
    assert error(root, "search", "name=*", "--", path) == "not_found"
    assert error(root, "chmod", "mode=777", "--", path) == "not_found"


@pytest.mark.parametrize("path", OUT)
def test_nothing_is_written_moved_or_deleted_outside(root, path):
    files(root, "write", "parents", "replace", "--", path, data=b"x", commit=True)
    files(root, "mkdir", "parents", "--", path + "/new")
    files(root, "move", "replace", "--", "d/f", path)
    files(root, "move", "--", path, "got")
    files(root, "delete", "recursive", "--", path)
    assert os.path.islink(root / "got") or not (root / "got").exists() or (root / "got").read_bytes() in (b"x", b"inside")


def test_links_have_the_root_as_their_top(root):
    assert files(root, "read", "--", "dir-in/f", data=b"0 6\n")[1] == b"inside"
    assert files(root, "read", "--", "/../../d/f", data=b"0 6\n")[1] == b"inside"


def test_links_in_a_circle_end(root):
    assert error(root, "read", "--", "a") == "too_many_links"
    assert error(root, "write", "--", "a", data=b"x", commit=True) == "too_many_links"
    assert files(root, "stat", "--", "a")[0]["type"] == "link"


@pytest.mark.parametrize("name, kind", [("fifo", "fifo"), ("zero", "device"), ("socket", "socket")])
def test_what_is_no_file_is_not_opened(root, name, kind):
    assert files(root, "stat", "--", name)[0]["type"] == kind
    assert error(root, "read", "--", name) == "not_a_file"
    assert error(root, "write", "--", name, data=b"x", commit=True) == "not_a_file"
    assert error(root, "write", "append", "--", name, data=b"x", commit=True) == "not_a_file"
    assert error(root, "list", "--", name) == "not_a_directory"
    assert stat.S_IFMT(os.lstat(root / name).st_mode) != stat.S_IFREG


def test_a_link_is_deleted_not_what_it_leads_to(root):
    assert error(root, "delete", "recursive", "--", "dir-in") is None
    assert not os.path.lexists(root / "dir-in") and (root / "d" / "f").exists()
    assert error(root, "delete", "recursive", "--", "dir-up") is None
    assert not os.path.lexists(root / "dir-up")


def test_a_tree_is_deleted_without_following_its_links(root):
    os.symlink("../../../beside", root / "d" / "e" / "out")
    assert error(root, "delete", "--", "d") in ("not_empty", "is_a_directory")
    assert error(root, "delete", "recursive", "--", "d") is None
    assert not (root / "d").exists()


def test_the_root_and_dots_are_not_deleted_or_moved(root):
    for path in ("/", "", ".", "d/..", "d/."):
        assert error(root, "delete", "recursive", "--", path) is not None, path
        assert error(root, "move", "--", path, "new") is not None, path
    assert (root / "d" / "f").exists()


def test_a_move_takes_the_link_itself_and_does_not_replace_unasked(root):
    assert error(root, "move", "--", "d/up", "up") is None
    assert os.readlink(root / "up") == "../../secret"
    assert error(root, "move", "--", "up", "absolute") == "exists"
    assert error(root, "move", "replace", "--", "up", "absolute") is None
    assert os.readlink(root / "absolute") == "../../secret"


def test_without_the_last_byte_nothing_is_changed(root):
    assert error(root, "write", "--", "d/f", data=b"x", commit=True) == "exists"
    assert error(root, "write", "replace", "--", "d/f", data=b"half") == "cancelled"
    assert (root / "d" / "f").read_text() == "inside"
    assert error(root, "write", "--", "d/new", data=b"half") == "cancelled"
    assert sorted(os.listdir(root / "d")) == ["e", "f", "up"]
    assert error(root, "write", "replace", "--", "d/f", data=b"whole", commit=True) is None
    assert (root / "d" / "f").read_text() == "whole"


def test_a_search_passes_over_what_is_no_file(root):
    found = files(root, "search", "text=side", "--", "/")[0]
    assert [match["path"] for match in found["matches"]] == ["d/f"]


def test_an_archive_holds_links_as_links_and_no_device(root):
    import io
    import tarfile

    head, data = files(root, "pack", "--", "/")
    assert "error" not in head
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        kinds = {m.name.removeprefix("./"): m.type for m in tar}
    assert kinds["dir-up"] == tarfile.SYMTYPE and kinds["d/f"] == tarfile.REGTYPE
    assert not {"fifo", "zero", "socket", "dir-up/f"} & set(kinds)


def packed(top):
    run = subprocess.run(["bash", "-c", f"exec 3<{top}; exec -a files {HELPER} pack -- /"], capture_output=True, timeout=60)
    return run.returncode, run.stderr.decode()


def test_an_archive_of_a_tree_that_is_too_deep_says_which(tmp_path):
    """256 directories, one below the other, are the most; what a name holds besides text is not shown."""
    top = tmp_path / "deep"
    deepest = top / ("\x1b" + "/n" * 255)
    deepest.mkdir(parents=True)
    assert packed(top) == (0, "")
    (deepest / "last").mkdir()
    status, said = packed(top)
    assert status == 3 and said.startswith("the tree is too deep, more than 256 directories: ./?/n/n/") and said.endswith("/n/last/\n")


def test_an_archive_with_a_path_that_is_too_long_says_below_what(tmp_path):
    top = tmp_path / "long"
    top.mkdir()
    here = os.open(top, os.O_RDONLY)
    for _ in range(17):
        os.mkdir("x" * 250, dir_fd=here)
        below = os.open("x" * 250, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    status, said = packed(top)
    assert status == 3 and said.startswith("a path is too long, below: ./xxx")


def test_names_that_are_too_long_are_refused(root):
    for path in ("x" * 256, "d/" * 2500 + "x"):
        assert error(root, "read", "--", path) == "name_too_long"
        assert error(root, "write", "parents", "--", path, data=b"x", commit=True) == "name_too_long"
    assert error(root, "mkdir", "parents", "--", "n/" + "x" * 256) == "name_too_long"
