"""The helper's side of COPY and ADD, run directly on directories: what is taken, under which names, and what cannot be named."""
import hashlib
import io
import os
import pathlib
import shutil
import socket
import subprocess
import tarfile

import pytest

HELPER = pathlib.Path(os.environ.get("BRIG_BUILD", "build")) / "src" / "helper" / "brig-helper"


def helper(root, verb, *args, out=None):
    """The verb with descriptor 3 the root and 7 the output."""
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    sink = os.open(out, os.O_RDWR | os.O_CREAT | os.O_TRUNC) if out else os.open("/dev/null", os.O_RDWR)
    script = f"exec 30<&{fd} 31>&{sink} 3<&30 7>&31; exec -a {verb} {HELPER} \"$@\""
    try:
        return subprocess.run(["bash", "-c", script, "sh", *map(str, args)], pass_fds=(fd, sink), capture_output=True, text=True, timeout=60)
    finally:
        for x in (fd, sink):
            os.close(x)


class Taken:
    def __init__(self, result, data):
        self.result, self.data = result, data
        self.kind, self.hash, self.entries, self.bytes = result.stdout.split()

    @property
    def tar(self):
        return tarfile.open(fileobj=io.BytesIO(self.data))

    @property
    def names(self):
        return self.tar.getnames()

    def text(self, name):
        return self.tar.extractfile(name).read().decode()


@pytest.fixture
def root(tmp_path):
    top = tmp_path / "root"
    for name in ("context/a.txt", "context/b.txt", "context/d/e/f.txt", "context/d/g.log", "context/x y", "secret"):
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return top


@pytest.fixture
def take(root, tmp_path):
    def run(*args):
        out = tmp_path / "out"
        result = helper(root, "copy-out", *args, out=out)
        assert result.returncode == 0, result
        return Taken(result, out.read_bytes())
    return run


@pytest.fixture
def fails(root, tmp_path):
    def run(word, *args, status=1):
        result = helper(root, "copy-out", *args, out=tmp_path / "out")
        assert result.returncode == status and word in result.stderr, result
    return run


def test_a_file_goes_under_its_name_or_the_one_given(take):
    assert take("top=context", "--", "a.txt").names == ["a.txt"]
    taken = take("top=context", "leaf=z", "--", "./d//e/f.txt")
    assert taken.kind == "file" and taken.names == ["z"] and taken.text("z") == "context/d/e/f.txt"


def test_a_directory_gives_its_contents_in_order(take):
    taken = take("top=context", "--", ".")
    assert taken.kind == "tree" and taken.names == ["a.txt", "b.txt", "d", "d/e", "d/e/f.txt", "d/g.log", "x y"]
    assert take("top=context", "--", "d").names == ["e", "e/f.txt", "g.log"]


def test_patterns_are_matched_level_by_level(take, fails):
    assert take("top=context", "--", "*.txt").names == ["a.txt", "b.txt"]
    assert take("top=context", "--", "*/*/f.*").names == ["f.txt"]
    assert take("top=context", "--", "[ab].txt", "x y").names == ["a.txt", "b.txt", "x y"]
    fails("nothing matches", "top=context", "--", "*.none")


@pytest.mark.parametrize("source", ["none", "a.txt/b", "../../secret/none", "d/none"])
def test_what_is_not_there_is_named(fails, source):
    fails("no such file", "top=context", "--", source)


@pytest.mark.parametrize("source", ["../secret", "/../secret", "d/../../secret", "../../../../etc/passwd"])
def test_nothing_above_the_context_can_be_named(fails, source):
    fails("no such file", "top=context", "--", source)


def test_links_do_not_lead_out(root, take, fails):
    (root / "context/out").symlink_to("../secret")
    (root / "context/abs").symlink_to("/secret")
    (root / "context/up").symlink_to("../..")
    (root / "context/in").symlink_to("/a.txt")
    (root / "context/loop").symlink_to("loop")
    for source in ("out", "abs", "up/secret"):
        fails("no such file", "top=context", "--", source)
    fails("too many links", "top=context", "--", "loop")
    assert take("top=context", "leaf=x", "--", "in").text("x") == "context/a.txt"
    links = {m.name: m.linkname for m in take("top=context", "--", ".").tar if m.issym()}
    assert links == {"out": "../secret", "abs": "/secret", "up": "../..", "in": "/a.txt", "loop": "loop"}
    assert take("top=context", "--", "up").names[0] == "a.txt", "above the top is the top"


def test_the_hash_is_of_what_is_copied_and_not_of_times(root, take):
    first = take("top=context", "root", "--", ".").hash
    os.utime(root / "context/a.txt", (1, 1))
    assert take("top=context", "root", "--", ".").hash == first
    (root / "context/a.txt").chmod(0o600)
    mode = take("top=context", "root", "--", ".").hash
    (root / "context/a.txt").write_text("context/a.tx?")
    content = take("top=context", "root", "--", ".").hash
    (root / "context/a.txt").rename(root / "context/aa.txt")
    assert len({first, mode, content, take("top=context", "root", "--", ".").hash}) == 4


def test_owners_and_modes(root, take):
    os.chown(root / "context/a.txt", 12, 34)
    (root / "context/a.txt").chmod(0o4711)
    kept = take("top=context", "--", "a.txt").tar.getmember("a.txt")
    assert (kept.uid, kept.gid, kept.mode) == (12, 34, 0o4711)
    given = take("top=context", "root", "mode=750", "--", "a.txt").tar.getmember("a.txt")
    assert (given.uid, given.gid, given.mode) == (0, 0, 0o750)


def test_dockerignore_is_honoured(root, take, fails):
    (root / "context/.dockerignore").write_text("# x\n**/*.log\nd\n!d/e/f.txt\nb.*\n")
    assert take("top=context", "ignore", "--", ".").names == [".dockerignore", "a.txt", "d/e/f.txt", "x y"]
    assert take("top=context", "ignore", "--", "*.txt").names == ["a.txt"]
    fails("left out by .dockerignore", "top=context", "ignore", "--", "b.txt")
    (root / "context/link").symlink_to("b.txt")
    fails("left out by .dockerignore", "top=context", "ignore", "--", "link")
    (root / "context/.dockerignore").write_text("[x")
    fails(".dockerignore line 1", "top=context", "ignore", "--", ".")


def test_a_dockerignore_that_is_a_link_or_huge(root, take, fails):
    (root / "context/.dockerignore").symlink_to("/etc/passwd")
    assert len(take("top=context", "ignore", "--", ".").names) == 8
    (root / "context/.dockerignore").unlink()
    (root / "context/.dockerignore").write_text("a\n" * 200000)
    fails(".dockerignore", "top=context", "ignore", "--", ".")


def test_special_files_are_left_out(root, take):
    os.mkfifo(root / "context/fifo")
    s = socket.socket(socket.AF_UNIX)
    s.bind(str(root / "context/socket"))
    os.mknod(root / "context/null", 0o20666, os.makedev(1, 3))
    names = take("top=context", "--", ".").names
    s.close()
    assert not {"fifo", "socket", "null"} & set(names)


def test_a_special_file_by_name_is_refused(root, fails):
    os.mkfifo(root / "context/fifo")
    fails("neither a file nor a directory", "top=context", "--", "fifo")


def test_an_archive_comes_as_it_is(root, take, fails):
    with tarfile.open(root / "context/x.tar.gz", "w:gz") as tar:
        tar.add(root / "secret", "s")
    data = (root / "context/x.tar.gz").read_bytes()
    taken = take("top=context", "archive", "--", "x.tar.gz")
    assert taken.kind == "archive" and taken.data == data and taken.hash == hashlib.sha256(data).hexdigest()
    assert take("top=context", "--", "x.tar.gz").kind == "file"
    fails("an ADD of its own", "top=context", "archive", "--", "a.txt", "x.tar.gz")
    (root / "context/no.tar").write_text("not a tar")
    assert take("top=context", "archive", "--", "no.tar").kind == "file"


def test_there_are_limits(root, fails):
    fails("more bytes", "top=context", "bytes=10", "--", "a.txt")
    fails("more files", "top=context", "entries=3", "--", ".")
    with open(root / "context/sparse", "wb") as f:
        f.truncate(1 << 43)
    fails("more bytes", "top=context", "--", "sparse")


def test_depth_is_limited(root, fails):
    fd = os.open(root / "context", os.O_RDONLY)
    for _ in range(300):
        os.mkdir("n", dir_fd=fd)
        below = os.open("n", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    fails("too deep", "top=context", "--", ".")


def test_long_names_survive(root, take):
    name = "ü" * 100
    (root / "context" / name).write_text("long")
    assert take("top=context", "--", name).text(name) == "long"
    deep = root / "context" / ("p" * 200) / ("q" * 200)
    deep.mkdir(parents=True)
    (deep / "r").symlink_to("t" * 150)
    assert next(m for m in take("top=context", "--", "p" * 200).tar if m.issym()).linkname == "t" * 150


def test_other_file_systems_are_left_out(root, take, fails):
    where = root / "context/mounted"
    where.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", where], check=True)
    try:
        (where / "x").write_text("x")
        assert not [n for n in take("top=context", "--", ".").names if n.startswith("mounted")]
        fails("not a file of the image", "top=context", "--", "mounted/x")
    finally:
        subprocess.run(["umount", where], check=True)


def look(root, *args):
    result = helper(root, "look", *args)
    return result.stdout.split() if result.returncode == 0 else (result.returncode, result.stderr)


def test_users_are_those_of_the_image(root):
    (root / "etc").mkdir()
    (root / "etc/passwd").write_text("root:x:0:0::/:\nbuild:x:1001:1002::/home:/bin/sh\nbroken\nnan:x:x:y\n")
    (root / "etc/group").write_text("staff:x:50:\n")
    assert look(root, "user=build") == ["1001", "1002", "none"]
    assert look(root, "user=build:staff") == ["1001", "50", "none"]
    assert look(root, "user=7") == ["7", "7", "none"]
    assert look(root, "user=7:8") == ["7", "8", "none"]
    for user in ("nobody", "nan", "broken", ""):
        assert look(root, f"user={user}") == (1, f"no such user in the image: {user}\n")
    assert look(root, "user=build:none") == (1, "no such group in the image: none\n")


def test_a_passwd_that_leads_out_is_none(root):
    (root / "etc").mkdir()
    (root / "etc/passwd").symlink_to("../../../../etc/passwd")
    assert look(root, "user=root")[0] == 1
    shutil.rmtree(root / "etc")
    (root / "etc").mkdir()
    os.mkfifo(root / "etc/passwd")
    assert look(root, "user=root")[0] == 1


def test_what_stands_at_a_path(root):
    (root / "link").symlink_to("/context/d")
    assert [look(root, f"path={p}")[2] for p in ("/context", "/secret", "/none", "/link", "/")] == ["dir", "file", "none", "dir", "dir"]
