"""Images through the daemon: imported from every kind of archive, hostile ones refused with a name and nothing left, listed, named, removed."""
import gzip
import hashlib
import io
import json
import lzma
import os
import pathlib
import signal
import sys
import tarfile
import threading
import time
import urllib.parse

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import brigd  # noqa: E402

BUSYBOX = pathlib.Path("/bin/busybox").read_bytes()


@pytest.fixture(scope="module")
def daemon():
    # A name that is not here is asked for where nobody answers: nothing leaves the machine.
    with brigd.Daemon(BRIG_REGISTRY_DEFAULT="localhost:1") as d:
        yield d


# ---- archives -------------------------------------------------------------------------------------------------------------------


def entry(name, data=b"", **more):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    info.mode = 0o644
    for key, value in more.items():
        setattr(info, key, value)
    return info, data


def directory(name, mode=0o755):
    return entry(name, type=tarfile.DIRTYPE, mode=mode)


def link(name, target, kind=tarfile.SYMTYPE):
    return entry(name, type=kind, linkname=target)


def archive(*entries, format=tarfile.PAX_FORMAT):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as tar:
        for info, data in entries:
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


SHELL = (directory("bin"), entry("bin/busybox", BUSYBOX, mode=0o755), link("bin/sh", "busybox"), link("bin/cat", "busybox"), link("bin/ls", "busybox"), link("bin/stat", "busybox"))
BASE = archive(*SHELL)


def zstd(data):
    """A frame of raw blocks: valid zstd, made by hand."""
    out = bytearray(b"\x28\xb5\x2f\xfd\x00\x58")
    for at in range(0, len(data), 100000):
        block = data[at:at + 100000]
        out += ((len(block) << 3) | (at + 100000 >= len(data))).to_bytes(3, "little") + block
    return bytes(out)


def sha(data):
    return hashlib.sha256(data).hexdigest()


def configuration(layers, **config):
    return json.dumps({"architecture": "amd64", "os": "linux", "config": config, "rootfs": {"type": "layers", "diff_ids": ["sha256:" + sha(x) for x in layers]}}).encode()


def docker_save(layers, tags=("saved:1",), config=None, manifest=None):
    config = config or configuration(layers, Env=["FROM=docker"])
    names = [f"l{i}/layer.tar" for i in range(len(layers))]
    manifest = manifest or [{"Config": "c.json", "RepoTags": list(tags), "Layers": names}]
    return archive(entry("manifest.json", json.dumps(manifest).encode()), entry("c.json", config), *(entry(n, x) for n, x in zip(names, layers)))


def oci(layers, blobs=None, config=None, name="oci:1", **index):
    """The layers as they lie in the layout may be packed: `blobs`."""
    blobs = blobs or layers
    config = config or configuration(layers, Env=["FROM=oci"], WorkingDir="/data", User="app")
    manifest = json.dumps({"schemaVersion": 2, "config": {"digest": "sha256:" + sha(config), "size": len(config)},
                           "layers": [{"digest": "sha256:" + sha(b), "size": len(b)} for b in blobs]}).encode()
    top = json.dumps({"schemaVersion": 2, "manifests": [{"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": "sha256:" + sha(manifest), "size": len(manifest),
                                                         "annotations": {"org.opencontainers.image.ref.name": name}, **index}]}).encode()
    return archive(entry("oci-layout", b'{"imageLayoutVersion":"1.0.0"}'), entry("index.json", top),
                   *(entry("blobs/sha256/" + sha(b), b) for b in (manifest, config, *blobs)))


# ---- calls ----------------------------------------------------------------------------------------------------------------------


def do_import(daemon, body, status=200, **query):
    answer = daemon.call("POST", "/v1/images/import?" + urllib.parse.urlencode(query), body)
    assert answer.status == status, answer
    return answer.json


def refused(daemon, body, word, code="image_invalid", status=422, **query):
    error = do_import(daemon, body, status, **query)["error"]
    assert error["code"] == code and word in error["message"], error


def run(daemon, image, command, **more):
    session = daemon.call("POST", "/v1/sessions?wait=60", {"image": image, "network": "none", **more})
    assert session.status == 201 and session.json["state"] == "ready", session.json.get("error")
    try:
        answer = daemon.call("POST", f"/v1/sessions/{session.json['id']}/exec", {"argv": ["/bin/sh", "-c", command]})
        assert answer.status == 200 and answer.json["exit_code"] == 0, answer
        return answer.json["stdout"]
    finally:
        daemon.call("DELETE", f"/v1/sessions/{session.json['id']}")


def layers_on_disk(daemon):
    return sorted(p.name for p in (daemon.home / "layers").iterdir() if p.name != "mnt" and not p.name.startswith(".template"))


# ---- what is imported -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress, zstd, lambda b: gzip.compress(b[:700]) + gzip.compress(b[700:])], ids=["plain", "gzip", "xz", "zstd", "gzip-members"])
def test_a_root_file_system_in_any_packing_is_the_same_image(daemon, pack):
    image = do_import(daemon, pack(BASE), name="shell")
    assert image["names"] == ["shell:latest"] and image["layers"] == 1 and image["origin"] == "import"
    assert image["digest"] == do_import(daemon, BASE, name="shell")["digest"]
    assert run(daemon, "shell", "echo $((6*7))") == "42\n"


def test_what_an_archive_says_of_its_files_is_kept(daemon):
    body = archive(*SHELL, directory("home/me", 0o700), entry("home/me/f", b"x", uid=1000, gid=1001, mode=0o4750, mtime=1234567890.25), entry("ünïcode/" + "n" * 200, b"long"),
                   link("home/me/g", "home/me/f", tarfile.LNKTYPE), entry("far", b"", uid=70000000, gid=5))
    do_import(daemon, body, name="kept")
    assert run(daemon, "kept", "stat -c '%u %g %a %h %Y' /home/me/f; cat /*/nnn*; stat -c '%u %g' /far") == "1000 1001 4750 2 1234567890\nlong65534 5\n"


def test_what_docker_save_writes_is_an_image_with_its_layers_and_names(daemon):
    top = archive(entry("bin/.wh.ls"), entry("new", b"new"))
    image = do_import(daemon, docker_save([BASE, top], tags=["saved:1", "saved:two"]))
    assert image["names"] == ["saved:1", "saved:two"] and image["layers"] == 2
    assert run(daemon, "saved:two", "echo $FROM; cat /new; /bin/busybox ls /bin") == "docker\nnewbusybox\ncat\nsh\nstat\n"


def test_an_oci_layout_is_an_image_and_its_configuration_is_honoured(daemon):
    top = archive(directory("data"), entry("etc/passwd", b"root:x:0:0::/root:/bin/sh\napp:x:77:78::/data:/bin/sh\n"), entry("etc/group", b"root:x:0:\n"))
    config = configuration([BASE, top], Env=["FROM=oci"], WorkingDir="/data", User="app")
    image = do_import(daemon, oci([BASE, top], blobs=[gzip.compress(BASE, mtime=0), zstd(top)], config=config))
    assert image["names"] == ["oci:1"] and image["digest"] == sha(config)
    assert run(daemon, "oci:1", "echo $FROM; pwd; /bin/busybox id -u; /bin/busybox id -g") == "oci\n/data\n77\n78\n"


def test_what_an_image_may_lack_is_there(daemon):
    do_import(daemon, BASE, name="bare")
    assert run(daemon, "bare", "cat /etc/hosts; ls -d /dev/null /proc/self /tmp; hostname 2>/dev/null || /bin/busybox hostname").split() == [
        "127.0.0.1", "localhost", "brig", "::1", "localhost", "ip6-localhost", "ip6-loopback", "/dev/null", "/proc/self", "/tmp", "brig"]


def test_layers_are_shared_between_images(daemon):
    base, before = archive(*SHELL, entry("base", b"of these two")), set(layers_on_disk(daemon))
    do_import(daemon, docker_save([base, archive(entry("one", b"1"))], tags=["one:1"]))
    # An image file and a manifest each; the layer that held the archive goes after the answer.
    brigd.until(lambda: len(set(layers_on_disk(daemon)) - before) == 4, "two layers are there")
    do_import(daemon, docker_save([base, archive(entry("two", b"2"))], tags=["two:1"]))
    brigd.until(lambda: len(set(layers_on_disk(daemon)) - before) == 6, "one more is there")
    assert run(daemon, "two:1", "cat /two; ls /one 2>/dev/null || echo none") == "2none\n"


def test_of_several_images_one_is_selected(daemon):
    a, b = archive(*SHELL, entry("who", b"a")), archive(*SHELL, entry("who", b"b"))
    manifest = [{"Config": "c.json", "RepoTags": ["a:1"], "Layers": ["l0/layer.tar"]}, {"Config": "d.json", "RepoTags": ["b:1"], "Layers": ["l1/layer.tar"]}]
    body = archive(entry("manifest.json", json.dumps(manifest).encode()), entry("c.json", configuration([a])), entry("d.json", configuration([b])), entry("l0/layer.tar", a), entry("l1/layer.tar", b))
    refused(daemon, body, "a:1, b:1", "image_too_large", 413)
    do_import(daemon, body, select="b:1")
    assert run(daemon, "b:1", "cat /who") == "b"


def test_progress_is_told_as_events(daemon):
    answer = daemon.call("POST", "/v1/images/import?stream=1&name=told", docker_save([BASE]))
    assert answer.status == 200 and answer.headers["Content-Type"].startswith("text/event-stream")
    assert "event: image" in answer.body.decode() and '"told:latest"' in answer.body.decode()


# ---- what is refused ------------------------------------------------------------------------------------------------------------------

FRESH = archive(*SHELL, entry("fresh", b"in no other image"))
HOSTILE = {
    "absolute": (archive(entry("/etc/x", b"x")), "absolute"),
    "climbs": (archive(entry("a/../../x", b"x")), ".."),
    "link-out": (archive(link("l", "../../../../tmp"), entry("l/x", b"x")), "leads out"),
    "hard-link-out": (archive(link("h", "../../etc/passwd", tarfile.LNKTYPE)), ".."),
    "device": (archive(entry("n", type=tarfile.CHRTYPE, devmajor=1, devminor=3)), "device"),
    "overlay": (archive(entry("f", b"x", pax_headers={"SCHILY.xattr.trusted.overlay.opaque": "y"})), "overlay"),
    "cut-off": (BASE[:-20000], "too early"),
    "broken-gzip": (gzip.compress(BASE)[:-3000], "too early"),
    "no-archive": (b"this is no archive at all" * 100, "tar archive"),
    "bzip2": (b"BZh91AY&SY" + b"x" * 100, "bzip2"),
    "docker-wrong-diff-id": (docker_save([BASE], config=configuration([BASE + b"x"])), "digest"),
    "docker-missing-layer": (docker_save([FRESH], manifest=[{"Config": "c.json", "RepoTags": [], "Layers": ["no/layer.tar"]}]), "layer 1"),
    "docker-climbing-layer": (docker_save([BASE], manifest=[{"Config": "c.json", "RepoTags": [], "Layers": ["../../etc/shadow"]}]), "manifest.json"),
    "layer-count": (docker_save([BASE], config=configuration([BASE, BASE])), "layers"),
    "oci-other-machine": (oci([BASE], config=configuration([BASE]).replace(b"amd64", b"s390x")), "s390x"),
    "oci-wrong-blob": (oci([FRESH]).replace(b"in no other", b"in an other"), "digest"),
    "hostile-layer": (docker_save([archive(entry("/abs", b"x"))]), "absolute"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_archive_is_refused_by_name_and_leaves_nothing(daemon, case):
    body, word = HOSTILE[case]
    before = daemon.call("GET", "/v1/images").json["images"]
    refused(daemon, body, word, name="evil")
    assert [i["digest"] for i in daemon.call("GET", "/v1/images").json["images"]] == [i["digest"] for i in before]
    assert daemon.call("GET", "/v1/images/evil").status == 404
    assert not [n for n in layers_on_disk(daemon) if n.startswith(".")]


def test_a_small_file_that_unpacks_to_too_much_is_refused(daemon):
    zeros = gzip.compress(bytes(1 << 20), 9)
    # A header that promises a petabyte, then gzip members of zeros: the size of the disk is not asked for.
    head = tarfile.TarInfo("bomb")
    head.size = 1 << 50
    body = gzip.compress(head.tobuf(tarfile.GNU_FORMAT)) + zeros * 64
    refused(daemon, body, "too early")


def test_a_sparse_file_costs_what_is_in_it(daemon):
    # GNU 1.0: a map in front of the data.
    data, size = b"end", 1 << 33
    numbers = f"1\n{size - 3}\n3\n".encode().ljust(512, b"\0")
    body = archive(*SHELL, entry("GNUSparseFile.0/hole", numbers + data, pax_headers={"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "hole", "GNU.sparse.realsize": str(size)}))
    image = do_import(daemon, body, name="sparse")
    assert image["bytes"] < 1 << 26
    assert run(daemon, "sparse", "stat -c %s /hole; /bin/busybox tail -c 3 /hole") == f"{size}\nend"


def test_a_client_that_leaves_takes_its_import_along(daemon):
    """Also one whose archive is all there. Whether the image came is looked at when a later import is over."""
    import socket
    s = socket.create_connection((daemon.host, daemon.port))
    body = gzip.compress(archive(*(entry(f"d{i % 50}/f{i}", b"x" * 100) for i in range(60000))), 1)
    s.sendall(f"POST /v1/images/import?name=left HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    brigd.until(lambda: [n for n in layers_on_disk(daemon) if n.startswith(".")], "the import has begun")
    s.close()
    brigd.until(lambda: not [n for n in layers_on_disk(daemon) if n.startswith(".")], "nothing of it is left")
    do_import(daemon, archive(*SHELL, entry("x", b"later")), name="later")
    assert daemon.call("GET", "/v1/images/left").status == 404


def test_nothing_is_no_archive(daemon):
    """What a pipe brings whose writer has failed."""
    refused(daemon, b"", "empty", name="empty")
    assert daemon.call("GET", "/v1/images/empty").status == 404


# ---- names, removal ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["host", "scratch", "/etc", "0123456789ab", "sha256:0123456789ab"])
def test_a_name_that_means_something_else_is_refused(daemon, name):
    """It would hide the image, or the image it."""
    digest = do_import(daemon, archive(*SHELL, entry("x", b"refused")))["digest"]
    session = daemon.call("POST", "/v1/sessions?wait=60", {"image": "host", "network": "none"}).json["id"]
    answers = [daemon.call("POST", f"/v1/images/{digest}/tag", {"name": name}), daemon.call("POST", f"/v1/sessions/{session}/snapshots", {"name": name}),
               daemon.call("POST", "/v1/images/import?name=" + urllib.parse.quote(name, safe=""), archive(*SHELL))]
    daemon.call("DELETE", f"/v1/sessions/{session}")
    assert [(a.status, "cannot be named" in a.json["error"]["message"]) for a in answers] == [(400, True)] * 3, answers


def test_images_are_named_listed_and_removed(daemon):
    digest = do_import(daemon, archive(*SHELL, entry("x", b"named")), name="named:1")["digest"]
    tagged = daemon.call("POST", f"/v1/images/{digest[:16]}/tag", {"name": "registry.example/group/named"})
    assert tagged.status == 200 and tagged.json["names"] == ["named:1", "registry.example/group/named:latest"], tagged
    listed = {i["digest"]: i for i in daemon.call("GET", "/v1/images").json["images"]}
    assert listed[digest]["names"] == tagged.json["names"] and "config" not in listed[digest]
    assert daemon.call("GET", "/v1/images/registry.example%2Fgroup%2Fnamed").json["digest"] == digest
    assert daemon.call("DELETE", "/v1/images/named:1").status == 200
    assert daemon.call("GET", "/v1/images/named:1").status == 404
    session = daemon.call("POST", "/v1/sessions?wait=60", {"image": digest, "network": "none"}).json
    busy = daemon.call("DELETE", f"/v1/images/{digest}")
    assert busy.status == 409 and busy.json["error"]["code"] == "image_in_use"
    daemon.call("DELETE", f"/v1/sessions/{session['id']}")
    assert daemon.call("DELETE", f"/v1/images/{digest}").json == {"ref": digest, "deleted": True}
    assert daemon.call("GET", f"/v1/images/{digest}").status == 404
    assert daemon.call("DELETE", f"/v1/images/{digest}").status == 404
    assert daemon.call("POST", "/v1/images/import?name=-x", BASE).status == 400


def test_images_outlive_the_daemon_and_a_kill_in_the_middle_leaves_nothing():
    with brigd.Daemon(BRIG_REGISTRY_DEFAULT="localhost:1") as d:
        do_import(d, BASE, name="kept")
        big = gzip.compress(archive(*(entry(f"d{i % 50}/f{i}", b"x" * 100) for i in range(60000))), 1)
        thread = threading.Thread(target=lambda: pytest.raises(Exception, d.call, "POST", "/v1/images/import?name=half", big))
        thread.start()
        brigd.until(lambda: [n for n in layers_on_disk(d) if n.startswith(".")], "the import has begun")
        d.process.send_signal(signal.SIGKILL)
        thread.join()
        d.process.wait()
        d.start()
        brigd.until(lambda: d.call("GET", "/v1/images").status == 200, "the images are read")
        assert [i["names"] for i in d.call("GET", "/v1/images").json["images"]] == [["kept:latest"]]
        assert not [n for n in layers_on_disk(d) if n.startswith(".")]
        assert run(d, "kept", "echo here") == "here\n"
