"""brig cp, diff, fork, snapshot create, image build."""
import http.server
import io
import os
import subprocess
import tarfile
import threading

import pytest
from brigd import BRIG


def test_files_go_both_ways(brig, standing, local):
    data = os.urandom(3_000_000)
    (local / "in.bin").write_bytes(data)
    (local / "in.bin").chmod(0o755)
    brig("cp", local / "in.bin", f"{standing}:/tmp/out.bin")
    assert brig("exec", standing, "stat", "-c", "%a %s", "/tmp/out.bin") == "755 3000000\n"
    brig("cp", local / "in.bin", f"{standing}:/tmp")
    brig("exec", standing, "cmp", "/tmp/in.bin", "/tmp/out.bin")
    brig("cp", f"{standing}:/tmp/out.bin", local)
    assert (local / "out.bin").read_bytes() == data
    assert brig.run("cp", f"{standing}:/tmp/out.bin", "-").stdout == data
    brig.run("cp", "-", f"{standing}:/tmp/piped", input=b"typed")
    assert brig("exec", standing, "cat", "/tmp/piped") == "typed"


def test_trees_go_both_ways(brig, standing, local):
    tree = local / "tree"
    (tree / "a/b").mkdir(parents=True)
    (tree / "a/b/file").write_text("deep")
    (tree / "a/run").write_text("#!/bin/sh\n")
    (tree / "a/run").chmod(0o755)
    (tree / "link").symlink_to("a/b/file")
    (tree / "empty").mkdir()
    brig("cp", tree, f"{standing}:/tmp/new")
    brig("cp", tree, f"{standing}:/tmp/new")
    assert brig("exec", standing, "cat", "/tmp/new/link", "/tmp/new/tree/a/b/file") == "deepdeep"
    brig("cp", f"{standing}:/tmp/new/tree", local / "back")
    assert sorted(str(p.relative_to(local / "back")) for p in (local / "back").rglob("*")) == ["a", "a/b", "a/b/file", "a/run", "empty", "link"]
    assert (local / "back/a/run").stat().st_mode & 0o777 == 0o755 and os.readlink(local / "back/link") == "a/b/file"


def test_links_that_lead_out_are_left_out(brig, standing, local):
    brig("exec", "--shell", standing, "mkdir -p /tmp/l/d; cd /tmp/l; ln -s /etc/passwd abs; ln -s ../../x up; ln -s d/../.. tricky; ln -s ../f d/in; echo f > f; chmod 6755 f")
    done = brig.run("cp", f"{standing}:/tmp/l", local / "l", text=True)
    assert sorted(os.listdir(local / "l")) == ["d", "f"] and (local / "l/d/in").read_text() == "f\n" and "left out: 3" in done.stderr
    assert (local / "l/f").stat().st_mode & 0o7000 == 0
    brig("cp", "--links", f"{standing}:/tmp/l", local / "all")
    assert os.readlink(local / "all/abs") == "/etc/passwd"


def test_holes_stay_holes_in_a_tree(brig, standing, local):
    brig("exec", "--shell", standing, "mkdir /tmp/holes; cd /tmp/holes; truncate -s 64M f; printf end | dd of=f bs=1 seek=40M conv=notrunc status=none")
    brig("cp", f"{standing}:/tmp/holes", local / "holes")
    there = local / "holes/f"
    with there.open("rb") as f:
        f.seek(40 << 20)
        assert f.read(4) == b"end\0"
    assert there.stat().st_size == 64 << 20 and there.stat().st_blocks * 512 < 8 << 20


def test_a_tree_that_is_too_deep_is_a_failure(brig, standing, local):
    brig("exec", "--shell", standing, "mkdir -p /tmp/deep/$(printf 'n/%.0s' $(seq 257))")
    assert brig.run("cp", f"{standing}:/tmp/deep", local / "deep", status=2, text=True).stderr.startswith("brig cp: http://127.0.0.1:")


def test_what_is_not_there_is_said(brig, standing, local):
    assert "there is nothing" in brig.run("cp", f"{standing}:/tmp/none", local, status=1, text=True).stderr
    assert "no such session" in brig.run("cp", "none-such:/tmp/x", local, status=2, text=True).stderr.lower()
    brig.run("cp", local / "none", f"{standing}:/tmp", status=64)
    brig.run("cp", local, local, status=64)


class Hostile(http.server.BaseHTTPRequestHandler):
    """A daemon whose archive is whatever the test wants."""
    entries = []

    def do_GET(self):
        body, kind = b'{"type":"directory"}', "application/json"
        if "/archive" in self.path:
            out = io.BytesIO()
            with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
                for info, data in self.entries:
                    tar.addfile(info, io.BytesIO(data) if data is not None else None)
            body, kind = out.getvalue(), "application/x-tar"
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def entry(name, kind=tarfile.REGTYPE, link="", data=b"evil"):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, 0o6777
    info.size = len(data) if kind == tarfile.REGTYPE else 0
    return info, data if kind == tarfile.REGTYPE else None


@pytest.mark.parametrize("entries", [
    [entry("../outside")], [entry("a/../../outside")], [entry("/{top}/outside")],
    [entry("out", tarfile.SYMTYPE, "{top}"), entry("out/outside")], [entry("up", tarfile.SYMTYPE, ".."), entry("up/outside")],
    [entry("d", tarfile.DIRTYPE), entry("d", tarfile.SYMTYPE, ".."), entry("d/outside")],
    [entry("h", tarfile.LNKTYPE, "../secret"), entry("h")], [entry("h", tarfile.LNKTYPE, "{top}/secret")],
    [entry("l", tarfile.SYMTYPE, "../secret"), entry("h", tarfile.LNKTYPE, "l"), entry("h")], [entry("l", tarfile.SYMTYPE, "../secret"), entry("l")],
    [entry("dev", tarfile.CHRTYPE), entry("fifo", tarfile.FIFOTYPE)],
])
@pytest.mark.parametrize("links", [(), ("--links",)])
def test_an_archive_writes_nothing_outside_of_its_target(local, entries, links):
    (local / "secret").write_text("secret")
    for info, _ in entries:
        info.name, info.linkname = info.name.replace("{top}", str(local)), info.linkname.replace("{top}", str(local))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("H", (Hostile,), {"entries": entries}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        done = subprocess.run([BRIG, "cp", *links, "--url", f"http://127.0.0.1:{server.server_port}", "s:/x", local / "target"], capture_output=True, timeout=60)
    finally:
        server.shutdown()
        server.server_close()
    assert done.returncode in (0, 2), done
    assert sorted(os.listdir(local)) == ["secret", "target"] and (local / "secret").read_text() == "secret"
    assert (local / "secret").stat().st_nlink == 1
    for path in (local / "target").rglob("*"):
        assert path.is_symlink() or (path.is_file() and path.stat().st_mode & 0o7000 == 0) or path.is_dir(), path


# ---- snapshots and images -------------------------------------------------------------------------------------------------------


def test_changes_are_listed_and_forked(brig):
    session = brig("session", "start", "--network", "none").strip()
    brig("exec", session, "sh", "-c", "echo kept > /opt/kept")
    assert "A /opt/kept\n" in brig("diff", session)
    assert any(c["path"] == "/opt/kept" for c in brig.json("diff", session)["changes"])
    forks = brig("fork", session, "--count", "2").split()
    for fork in forks:
        brig("exec", fork, "sh", "-c", "grep -q kept /opt/kept && echo other > /opt/kept")
    assert brig("exec", session, "cat", "/opt/kept") == "kept\n"
    assert brig("snapshot", "create", session, "--name", "mine:1") == "mine:1\n"
    again = brig("session", "start", "mine:1", "--network", "none").strip()
    assert brig("exec", again, "cat", "/opt/kept") == "kept\n"
    brig("session", "rm", session, again, *forks)


def test_an_image_is_built_from_a_directory(brig, local):
    context = local / "context"
    context.mkdir()
    (context / "Dockerfile").write_text("FROM host\nCOPY . /opt/app/\nRUN echo built; echo \"$WHO\" > /opt/app/who\n".replace("RUN", "ARG WHO\nRUN"))
    (context / "data").write_text("data")
    (context / "secret").write_text("secret")
    (context / ".dockerignore").write_text("secret\n")
    done = brig.run("image", "build", context, "--name", "app:1", "--network", "none", "--build-arg", "WHO=me", text=True)
    assert len(done.stdout.strip()) == 64 and "built" in done.stderr
    session = brig("session", "start", "app:1", "--network", "none").strip()
    assert brig("exec", "--shell", session, "cd /opt/app; cat data who; test -e secret || echo none") == "datame\nnone\n"
    brig("session", "rm", session)
    (context / "Dockerfile").write_text("FROM host\nRUN exit 3\n")
    assert brig.run("image", "build", context, "--network", "none", status=2, text=True).stderr
