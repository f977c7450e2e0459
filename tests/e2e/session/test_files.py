"""Files of a session, over the native surface. The sandbox's own processes are hostile: they plant links, pipes and worse."""
import base64
import http.client
import io
import os
import socket
import tarfile
import threading
import urllib.parse

import pytest
from brigd import until


class Files:
    def __init__(self, daemon):
        self.daemon = daemon
        answer = daemon.call("POST", "/v1/sessions?wait=60", {"image": "host", "network": "none"})
        assert answer.status == 201, answer
        self.id = answer.json["id"]

    def call(self, method, what="files", body=None, headers=(), **query):
        text = urllib.parse.urlencode({k: v for k, v in query.items() if v is not None})
        return self.daemon.call(method, f"/v1/sessions/{self.id}/{what}?{text}", body, headers)

    def ok(self, method, what="files", body=None, **query):
        answer = self.call(method, what, body, **query)
        assert answer.status == 200, answer
        return answer.json

    def refused(self, code, method, what="files", body=None, **query):
        answer = self.call(method, what, body, **query)
        assert answer.json["error"]["code"] == code, answer
        return answer.status

    def write(self, path, data, **query):
        return self.ok("PUT", path=path, body=data, **query)

    def read(self, path, **headers):
        answer = self.call("GET", path=path, headers=headers)
        assert answer.status in (200, 206), answer
        return answer.body

    def sh(self, command):
        answer = self.daemon.call("POST", f"/v1/sessions/{self.id}/exec", {"command": command})
        assert answer.status == 200 and answer.json["exit_code"] == 0, answer
        return answer.json["stdout"]

    def names(self, path, **query):
        return [e["name"] for e in self.ok("GET", "files/list", path=path, **query)["entries"]]

    def delete(self):
        self.daemon.call("DELETE", f"/v1/sessions/{self.id}")


@pytest.fixture(scope="module")
def shared(daemon):
    f = Files(daemon)
    yield f
    f.delete()


@pytest.fixture
def files(shared):
    """A directory of the test's own, /w, and nothing else left from others."""
    shared.sh("rm -rf /w; mkdir /w")
    return shared


# ---- one file ----

def test_what_is_written_is_read(files):
    data = bytes(range(256)) * 1000
    entry = files.write("/w/a", data, mode="0640")
    assert (entry["path"], entry["type"], entry["size"], entry["mode"], entry["written"]) == ("/w/a", "file", len(data), "0640", len(data))
    assert files.read("/w/a") == data
    assert files.sh("stat -c '%a %u:%g %s' /w/a; ls -A /w") == f"640 0:0 {len(data)}\na\n"
    assert files.write("/w/empty", b"")["size"] == 0 and files.read("/w/empty") == b""


def test_parts_are_read(files):
    files.write("/w/a", b"0123456789")
    for asked, status, body, told in (("bytes=2-4", 206, b"234", "bytes 2-4/10"), ("bytes=7-", 206, b"789", "bytes 7-9/10"), ("bytes=-3", 206, b"789", "bytes 7-9/10"),
                                      ("bytes=5-99", 206, b"56789", "bytes 5-9/10"), ("bytes=x", 200, b"0123456789", None), ("bytes=10-", 416, None, "bytes */10")):
        answer = files.call("GET", path="/w/a", headers={"Range": asked})
        assert answer.status == status and answer.headers["Content-Range"] == told, answer
        assert body is None or answer.body == body
    assert files.read("/w/a") == b"0123456789"


def test_a_file_is_replaced_whole_and_keeps_who_it_was(files):
    files.sh("echo old > /w/a; chmod 750 /w/a; chown 5:6 /w/a; ln /w/a /w/other; exec 3</w/a; (sleep 100 <&3 &)")
    files.write("/w/a", b"new")
    assert files.sh("cat /w/a; echo; stat -c '%a %u:%g' /w/a; cat /w/other") == "new\n750 5:6\nold\n"
    assert files.refused("exists", "PUT", path="/w/a", body=b"x", create="true") == 409
    assert files.write("/w/a", b"+", append="1")["size"] == 4
    assert files.read("/w/a") == b"new+"
    assert files.write("/w/log", b"first", append="1")["written"] == 5


def test_missing_directories_are_made_where_asked(files):
    assert files.refused("not_found", "PUT", path="/w/x/y/z", body=b"1") == 404
    files.write("/w/x/y/z", b"1", parents="true")
    assert files.sh("stat -c %a /w/x/y; cat /w/x/y/z") == "755\n1"


def test_relative_paths_begin_at_the_working_directory(files):
    files.sh("mkdir -p /w/here")
    assert files.refused("not_found", "GET", path="w/none") == 404
    files.write("w/here/a", b"x")
    assert files.sh("cat /w/here/a") == "x"


def test_an_upload_that_breaks_off_changes_nothing(files, daemon):
    files.write("/w/a", b"old")
    for head in ("Content-Length: 1000000", "Transfer-Encoding: chunked"):
        s = socket.create_connection((daemon.host, daemon.port))
        s.sendall(f"PUT /v1/sessions/{files.id}/files?path=/w/a HTTP/1.1\r\nHost: {daemon.host}:{daemon.port}\r\n{head}\r\n\r\n".encode())
        s.sendall(b"5\r\nhello\r\n" if "chunked" in head else b"hello" * 1000)
        until(lambda: ".brig-write" in files.sh("ls -A /w"), "the upload has begun")
        s.close()
        until(lambda: files.sh("ls -A /w") == "a\n", "nothing of it is left")
    assert files.read("/w/a") == b"old"


# ---- names ----

def test_names_that_are_no_text_travel(files):
    raw = b"/w/\xff\xfe n\xc3\xa4me"
    files.write(raw, b"odd")
    assert files.read(raw) == b"odd"
    entry, = files.ok("GET", "files/list", path="/w")["entries"]
    assert base64.b64decode(entry["name_b64"]) == raw[3:] and "\ufffd" in entry["name"]
    moved = files.ok("POST", "files/move", {"from_b64": base64.b64encode(raw).decode(), "to": "/w/plain"})
    assert moved["path"] == "/w/plain" and "path_b64" not in moved
    for odd in ("/w/new\nline", "/w/--", "/w/-n", "/w/a=b", "/w/ "):
        files.write(odd, odd.encode())
        assert files.read(odd) == odd.encode()
    assert files.refused("name_too_long", "PUT", path="/w/" + "x" * 256, body=b"") == 400
    assert files.call("GET", path="/" + "x/" * 3000).status in (400, 414)
    assert files.call("GET").status == 400


# ---- others ----

def test_lists_and_their_pages(files):
    files.sh("cd /w; mkdir -p d/e; touch a b.txt d/x d/e/y 'd.z'; ln -s /nowhere l; mkfifo p")
    entries = {e["name"]: e for e in files.ok("GET", "files/list", path="/w")["entries"]}
    assert list(entries) == ["a", "b.txt", "d", "d.z", "l", "p"]
    assert (entries["l"]["type"], entries["l"]["target"], entries["p"]["type"], entries["d"]["type"]) == ("link", "/nowhere", "fifo", "directory")
    whole = files.names("/w", depth=5)
    assert whole == ["a", "b.txt", "d", "d/e", "d/e/y", "d/x", "d.z", "l", "p"]
    seen, after = [], None
    while True:
        page = files.ok("GET", "files/list", path="/w", depth=5, limit=2, after=after)
        seen += [e["name"] for e in page["entries"]]
        if not page["more"]:
            break
        after = seen[-1]
    assert seen == whole
    assert files.refused("not_a_directory", "GET", "files/list", path="/w/a") == 409
    assert "proc" in files.names("/", depth=0) and not [n for n in files.names("/proc", depth=1) if "/" in n]


def test_stat_move_delete_mkdir_chmod(files):
    assert files.ok("GET", "files/stat", path="/")["type"] == "directory"
    files.sh("ln -s a /w/l; echo 12345 > /w/a")
    assert files.ok("GET", "files/stat", path="/w/l")["type"] == "link"
    assert files.ok("GET", "files/stat", path="/w/l", follow="1")["size"] == 6
    assert files.ok("POST", "files/mkdir", {"path": "/w/d/e", "parents": True, "mode": "0700"})["mode"] == "0700"
    assert files.refused("exists", "POST", "files/mkdir", {"path": "/w/d"}) == 409
    files.ok("POST", "files/mkdir", {"path": "/w/d", "parents": True})
    assert files.refused("exists", "POST", "files/mkdir", {"path": "/w/a", "parents": True}) == 409
    assert files.ok("POST", "files/move", {"from": "/w/a", "to": "/w/d/b"})["size"] == 6
    assert files.refused("not_found", "POST", "files/move", {"from": "/w/a", "to": "/w/d/c"}) == 404
    files.write("/w/a", b"x")
    assert files.refused("exists", "POST", "files/move", {"from": "/w/a", "to": "/w/d/b"}) == 409
    files.ok("POST", "files/move", {"from": "/w/a", "to": "/w/d/b", "replace": True})
    assert files.ok("POST", "files/chmod", {"path": "/w/d/b", "mode": "4755", "uid": 7})["mode"] == "4755"
    assert files.sh("stat -c '%a %u:%g' /w/d/b") == "4755 7:0\n"
    assert files.refused("not_empty", "DELETE", path="/w/d") == 409
    assert files.refused("not_found", "DELETE", path="/w/none") == 404
    files.ok("DELETE", path="/w/d", recursive="1")
    files.ok("DELETE", path="/w/l")
    assert files.sh("ls -A /w") == ""
    for body in ({}, {"path": 1}, {"path": ""}, {"path": "/w/q", "mode": "9"}, {"path_b64": "?"}, {"path": "/w/q\0"}):
        assert files.call("POST", "files/mkdir", body).status == 400
    for path in ("/", "/w/.", "/w/.."):
        assert files.refused("not_a_file", "DELETE", path=path, recursive="1") == 409


def test_moves_between_file_systems_copy_files(files):
    files.sh("echo data > /usr/local/f; chmod 711 /usr/local/f; mkdir -p /usr/local/d")
    files.ok("POST", "files/move", {"from": "/usr/local/f", "to": "/w/f"})
    assert files.sh("cat /w/f; stat -c %a /w/f; ls /usr/local/f 2>&1 | wc -l; ls -A /w") == "data\n711\n1\nf\n"
    assert files.refused("cross_device", "POST", "files/move", {"from": "/usr/local/d", "to": "/w/d"}) == 409
    files.sh("rmdir /usr/local/d")


def test_search(files):
    files.sh("cd /w; mkdir s; printf 'one\\ntwo Needle\\nneedle three\\n' > s/a.py; printf 'needle' > s/b.txt; head -c 300000 /dev/zero > s/zero; ln -s /etc s/out; mkfifo s/p.py")
    found = files.ok("GET", "files/search", path="/w", text="needle")
    assert sorted((m["path"], m["line"], m["column"], m["text"]) for m in found["matches"]) == [("s/a.py", 3, 1, "needle three"), ("s/b.txt", 1, 1, "needle")]
    assert len(files.ok("GET", "files/search", path="/w", text="needle", ignore_case="1")["matches"]) == 3
    assert [m["line"] for m in files.ok("GET", "files/search", path="/w", text="^t.*e$", regex="1", name="*.py")["matches"]] == [2]
    assert sorted(m["path"] for m in files.ok("GET", "files/search", path="/w", name="*.py")["matches"]) == ["s/a.py", "s/p.py"]
    assert files.ok("GET", "files/search", path="/w", text="e", limit=1)["more"] is True
    assert files.ok("GET", "files/search", path="/w/s/b.txt", text="needle")["matches"][0]["line"] == 1
    assert files.refused("bad_pattern", "GET", "files/search", path="/w", text="(", regex="1") == 400
    assert not files.ok("GET", "files/search", path="/", name="self")["matches"]


# ---- what is planted ----

def test_links_lead_where_they_lead_inside(files):
    files.sh("mkdir /w/d; ln -s /etc/hostname /w/abs; ln -s ../../../../../etc/hostname /w/up; ln -s d /w/dir; ln -s loop2 /w/loop; ln -s loop /w/loop2; ln -s d/new /w/to-new")
    inside = files.sh("cat /etc/hostname").encode()
    assert files.read("/w/abs") == files.read("/w/up") == files.read("/../../etc/hostname") == inside
    files.write("/w/dir/f", b"through")
    files.write("/w/to-new", b"made")
    assert files.sh("cat /w/d/f /w/d/new; readlink /w/to-new") == "throughmaded/new\n"
    for method in ("GET", "PUT"):
        assert files.refused("too_many_links", method, path="/w/loop", body=b"" if method == "PUT" else None) == 409
    files.write("/w/abs", b"brig\n")
    assert files.sh("cat /etc/hostname; readlink /w/abs") == "brig\n/etc/hostname\n"


def test_nothing_outside_is_touched(files, daemon):
    secret = daemon.top / "secret"
    secret.write_text("secret")
    secret.chmod(0o644)
    files.sh(f"ln -s /proc/1/root{secret} /w/root; ln -s /proc/self/cwd/../../..{secret} /w/cwd; ln -s {secret} /w/plain; ln -s /proc/1/fd/0 /w/fd")
    for name in ("root", "cwd", "plain", "fd"):
        assert files.call("GET", path=f"/w/{name}").status in (403, 404, 409)
        files.call("PUT", path=f"/w/{name}", body=b"overwritten")
        files.call("DELETE", path=f"/w/{name}/x")
    assert secret.read_text() == "secret"


def test_what_is_no_file_is_refused_and_nobody_waits(files):
    files.sh("mkfifo /w/fifo; mkdir /w/dir; python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('/w/socket')\"")
    for path in ("/w/fifo", "/w/socket", "/dev/zero", "/dev/null", "/proc/self/mem", "/proc/1/environ", "/proc/meminfo", "/sys/kernel/notes"):
        assert files.call("GET", path=path).status in (403, 404, 409), path
    for path in ("/w/fifo", "/w/socket", "/dev/null", "/proc/sys/kernel/hostname"):
        assert files.call("PUT", path=path, body=b"x").status in (403, 404, 409), path
        assert files.call("PUT", path=path, body=b"x", append="1").status in (403, 404, 409), path
    assert files.refused("is_a_directory", "GET", path="/w/dir") == 409
    assert files.refused("is_a_directory", "PUT", path="/w/dir", body=b"x") == 409
    assert files.refused("not_a_directory", "PUT", path="/w/fifo/x", body=b"x") == 409
    assert files.sh("ls -A /w | sort | tr '\\n' ' '") == "dir fifo socket "


def test_a_full_disk_is_named_and_leaves_nothing(daemon):
    answer = daemon.call("POST", "/v1/sessions?wait=60", {"image": "host", "network": "none", "limits": {"disk_mb": 8}})
    small = Files.__new__(Files)
    small.daemon, small.id = daemon, answer.json["id"]
    try:
        assert small.refused("disk_full", "PUT", path="/big", body=b"x" * (20 << 20)) == 507
        assert small.sh("ls -A / | grep -c brig- || true") == "0\n"
    finally:
        small.delete()


def test_races_with_links_stay_inside(files, daemon):
    """A process swaps a directory and a link to /etc all the time, while files are written below it."""
    files.sh("mkdir /w/real; ln -s /etc /w/link; cp /etc/passwd /w/before")
    command = "import os\nwhile True:\n    try:\n        os.rename('/w/real', '/w/t'); os.rename('/w/link', '/w/real'); os.rename('/w/t', '/w/link')\n    except OSError: pass\n"
    started = daemon.call("POST", f"/v1/sessions/{files.id}/commands", {"argv": ["python3", "-c", command]}).json["id"]
    try:
        for i in range(30):
            assert files.call("PUT", path=f"/w/real/race{i}", body=b"x").status in (200, 404, 409)
            files.call("DELETE", path=f"/w/real/race{i}")
            assert files.call("GET", "files/list", path="/w/real").status in (200, 404, 409)
    finally:
        daemon.call("DELETE", f"/v1/sessions/{files.id}/commands/{started}")
    assert not os.path.exists("/etc/race0")


# ---- archives ----

def unpacked(data):
    return tarfile.open(fileobj=io.BytesIO(data))


def test_archives_come_down_whole(files):
    files.sh("cd /w; mkdir -p d/" + "long" * 30 + "/" + "deep" * 30 + "; echo hello > d/f; chmod 750 d/f; chown 3:4 d/f; ln d/f d/hard; ln -s f d/soft; mkfifo d/pipe; "
             "truncate -s 3G d/sparse; printf end | dd of=d/sparse bs=1 seek=1G conv=notrunc status=none; echo deep > d/" + "long" * 30 + "/" + "deep" * 30 + "/" + "n" * 200)
    raw = b"/w/d/\xff"
    files.write(raw, b"raw")
    for form, mode in (("tar", "r:"), ("tar.gz", "r:gz")):
        answer = files.call("GET", "archive", path="/w/d", format=form)
        assert answer.status == 200 and len(answer.body) < 1 << 20
        tar = tarfile.open(fileobj=io.BytesIO(answer.body), mode=mode, errors="surrogateescape")
        members = {m.name: m for m in tar.getmembers()}
        f = members["./f"] if members["./f"].isreg() else members["./hard"]
        assert (f.mode, f.uid, f.gid, tar.extractfile(f).read()) == (0o750, 3, 4, b"hello\n")
        assert sum(m.islnk() for m in members.values()) == 1
        assert members["./soft"].linkname == "f" and "./pipe" not in members
        assert tar.extractfile(next(m for n, m in members.items() if n.endswith("n" * 200))).read() == b"deep\n"
        assert members["./sparse"].size == 3 << 30
        data = tar.extractfile(members["./sparse"])
        data.seek(1 << 30)
        assert data.read(4) == b"end\0"
        assert tar.extractfile(members[os.fsdecode(b"./\xff")]).read() == b"raw"
    one = unpacked(files.call("GET", "archive", path="/w/d/f").body)
    assert [m.name for m in one.getmembers()] == ["f"]
    assert files.refused("not_found", "GET", "archive", path="/w/none") == 404
    assert files.refused("not_a_file", "GET", "archive", path="/w/d/pipe") == 409
    assert files.call("GET", "archive", path="/w", format="zip").status == 400


def archive(mode, *entries):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as tar:
        for name, content, *rest in entries:
            info = tarfile.TarInfo(name)
            info.type = rest[0] if rest else tarfile.REGTYPE
            if info.type in (tarfile.SYMTYPE, tarfile.LNKTYPE):
                info.linkname, content = content, b""
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


@pytest.mark.parametrize("mode", ["w:", "w:gz", "w:xz"])
def test_archives_go_up(files, mode):
    answer = files.ok("PUT", "archive", archive(mode, ("a/b", b"one"), ("c", b"two")), path="/w/new")
    assert answer["entries"] >= 2
    assert files.sh("cat /w/new/a/b /w/new/c; stat -c %u:%g /w/new/c") == "onetwo0:0\n"


def test_an_entry_that_breaks_off_leaves_nothing(files):
    whole = archive("w:", ("first", b"one"), ("second", os.urandom(100000)))
    assert files.refused("bad_archive", "PUT", "archive", whole[:50000], path="/w/broken") == 400
    assert files.sh("ls /w/broken") == "first\n"


def test_hostile_archives_are_refused(files):
    files.sh("ln -s /etc /w/etc")
    for bad in (archive("w:", ("/abs", b"x")), archive("w:", ("../up", b"x")), b"not a tar at all" * 100, archive("w:gz", ("a", os.urandom(100000)))[:50000],
                archive("w:", ("l", "/etc", tarfile.SYMTYPE), ("l/../../x", b"x")), archive("w:", ("l", "/w", tarfile.SYMTYPE), ("l/x", b"x")), b""):
        assert files.refused("bad_archive", "PUT", "archive", bad, path="/w/bad") == 400, bad[:40]
    assert files.sh("ls /abs /up /x 2>/dev/null | wc -l") == "0\n"
    assert not os.path.exists("/abs")


def test_a_tree_goes_round(files):
    files.sh("mkdir /w/a; cp -r /usr/lib/python3/dist-packages/_pytest /w/a/; ln -s x /w/a/l")
    data = files.call("GET", "archive", path="/w/a", format="tar.gz").body
    files.ok("PUT", "archive", data, path="/w/b")
    assert files.sh("diff -r /w/a /w/b 2>&1 | grep -v 'No such file' || true") == ""


# ---- size ----

def test_big_files_need_no_memory(files, daemon):
    size, piece = 192 << 20, os.urandom(1 << 20)
    before = daemon.usage()
    peak = [before]
    done = threading.Event()

    def watch():
        while not done.wait(0.02):
            peak[0] = max(peak[0], daemon.usage())
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        connection = http.client.HTTPConnection(daemon.host, daemon.port, timeout=120)
        connection.request("PUT", f"/v1/sessions/{files.id}/files?path=/w/big", body=(piece for _ in range(size >> 20)), headers={"Content-Length": str(size)})
        assert connection.getresponse().read()
        connection.request("GET", f"/v1/sessions/{files.id}/files?path=/w/big")
        answer, got = connection.getresponse(), 0
        while data := answer.read(1 << 20):
            assert data == piece
            got += len(data)
        assert got == size
    finally:
        done.set()
        watcher.join()
    assert peak[0] - before < 16 << 20, (before, peak[0])


def test_a_client_that_goes_away_leaves_nobody_behind(files, daemon):
    files.sh("truncate -s 2G /w/huge")
    s = socket.create_connection((daemon.host, daemon.port))
    s.sendall(f"GET /v1/sessions/{files.id}/files?path=/w/huge HTTP/1.1\r\nHost: {daemon.host}:{daemon.port}\r\n\r\n".encode())
    assert s.recv(100).startswith(b"HTTP/1.1 200")
    s.close()
    until(lambda: daemon.call("GET", f"/v1/sessions/{files.id}/usage").json["pids"] <= files.daemon.call("GET", f"/v1/sessions/{files.id}/usage").json["pids_peak"], "usage answers")
    assert files.read("/w/huge", Range="bytes=0-9") == b"\0" * 10


def test_what_ends_meanwhile_says_so(daemon):
    f = Files(daemon)
    f.delete()
    assert f.call("GET", path="/etc/hostname").status == 404
    assert f.call("PUT", path="/x", body=b"1").status == 404


def test_many_small_archives_at_once(files):
    """The helper's first word and its end come in one turn of the loop: it is heard once."""
    files.sh("mkdir -p /small && echo a > /small/a")
    wrong = []

    def fetch():
        for _ in range(40):
            answer = files.call("GET", "archive", path="/small")
            if answer.status != 200 or tarfile.open(fileobj=io.BytesIO(answer.body)).getnames()[-1] not in ("a", "./a"):
                wrong.append(answer)

    threads = [threading.Thread(target=fetch) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong, wrong[0]
    assert files.sh("echo well") == "well\n"
