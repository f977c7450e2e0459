"""Pulling through the daemon: what a registry has becomes what a session stands on, byte for byte; nothing is fetched twice."""
import base64
import contextlib
import http.client
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import threading

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "registry"))

import brigd  # noqa: E402
from registries import ARCHITECTURE, HostileRegistry, Image, RealRegistry, TokenServer, digest, index, tar_layer  # noqa: E402

BUSYBOX = pathlib.Path("/bin/busybox").read_bytes()


@pytest.fixture(scope="module")
def daemon():
    with brigd.Daemon() as d:
        yield d


@pytest.fixture(scope="module")
def real():
    with RealRegistry() as r:
        yield r


class Entry(tarfile.TarInfo):
    """With its `data`."""


def entry(name, kind=tarfile.REGTYPE, link="", data=b"", **more):
    info = Entry(name)
    info.type, info.linkname, info.data, info.mode = kind, link, data, 0o644
    for key, value in more.items():
        setattr(info, key, value)
    return info


def layer(*entries):
    return tar_layer({i: e for i, e in enumerate(entries)})


def link(name, target, kind=tarfile.SYMTYPE):
    return entry(name, kind, target)


def directory(name, mode=0o755):
    return entry(name, tarfile.DIRTYPE, mode=mode)


SHELL = layer(directory("bin"), entry("bin/busybox", data=BUSYBOX, mode=0o755), *(link(f"bin/{n}", "busybox") for n in ("sh", "cat", "ls", "stat", "test", "id")))
APP = layer(entry("app", data=b"app"))


def pull(daemon, name, status=200, **more):
    answer = daemon.call("POST", "/v1/images/pull", {"name": name, **more})
    assert answer.status == status, answer
    return answer.json


def refused(daemon, name, code, word, status=422, **more):
    before = state(daemon)
    error = pull(daemon, name, status, **more)["error"]
    assert error["code"] == code and word in error["message"], error
    assert state(daemon) == before, "nothing is left"


def state(daemon):
    return (sorted(i["digest"] for i in daemon.call("GET", "/v1/images").json["images"]),
            [p.name for p in (daemon.home / "layers").iterdir() if p.name.startswith(".") and not p.name.startswith(".template")])


def run(daemon, image, command):
    session = daemon.call("POST", "/v1/sessions?wait=60", {"image": image, "network": "none"})
    assert session.status == 201 and session.json["state"] == "ready", session.json.get("error")
    try:
        answer = daemon.call("POST", f"/v1/sessions/{session.json['id']}/exec", {"argv": ["/bin/sh", "-c", command]})
        assert answer.status == 200 and answer.json["exit_code"] == 0, answer
        return answer.json["stdout"]
    finally:
        daemon.call("DELETE", f"/v1/sessions/{session.json['id']}")


# ---- what is unpacked -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("oci", [True, False], ids=["oci", "docker"])
def test_layers_lie_above_each_other(daemon, real, oci):
    """Whiteouts, opaque directories, hard links, attributes, owners, set-id bits, and the configuration."""
    low = layer(directory("d"), entry("d/gone", data=b"1"), entry("d/kept", data=b"2"), directory("o"), entry("o/old", data=b"3"), directory("o/below"), entry("o/below/old"),
                entry("file-to-dir", data=b"f"), directory("dir-to-file"), entry("dir-to-file/x"), entry("one", data=b"same"), link("two", "one", tarfile.LNKTYPE), entry("low", data=b"l"))
    high = layer(entry("d/.wh.gone"), entry("o/new", data=b"4"), entry("o/.wh..wh..opq"), directory("file-to-dir"), entry("file-to-dir/in", data=b"g"), entry("dir-to-file", data=b"h"),
                 link("high", "low", tarfile.LNKTYPE), entry("owned", data=b"o", uid=123, gid=456, mode=0o4751, mtime=1234567890),
                 entry("marked", data=b"m", pax_headers={"SCHILY.xattr.user.brig": "mark"}),
                 entry("etc/passwd", data=b"root:x:0:0::/root:/bin/sh\napp:x:77:78::/srv:/bin/sh\n"), directory("srv"))
    image = Image([SHELL, low, high], {"Env": ["FROM=registry", "PATH=/bin"], "WorkingDir": "/srv", "User": "app"}, oci=oci)
    name = real.push(f"tree/o{int(oci)}", image)
    assert pull(daemon, name)["layers"] == 3
    assert run(daemon, name, "ls /d /o; cat /file-to-dir/in /dir-to-file") == "/d:\nkept\n\n/o:\nnew\ngh"
    assert run(daemon, name, "test /one -ef /two && test /low -ef /high && ! test /one -ef /low && stat -c '%u %g %a %Y' /owned") == "123 456 4751 1234567890\n"
    assert run(daemon, name, "echo $FROM; pwd; id -u; id -g") == "registry\n/srv\n77\n78\n"


SHOW = """
#include <stdio.h>
#include <sys/xattr.h>
int main(int argc, char **argv) {
        char value[256];
        for (int i = 2; i < argc; i++) {
                ssize_t n = getxattr(argv[1], argv[i], value, sizeof value);
                for (ssize_t k = 0; k < n; k++)
                        printf("%02x", (unsigned char)value[k]);
                printf(n < 0 ? "none\\n" : "\\n");
        }
}
"""


def test_attributes_of_files_are_kept(daemon, real, tmp_path):
    (tmp_path / "show.c").write_text(SHOW)
    subprocess.run(["cc", "-static", "-o", tmp_path / "show", tmp_path / "show.c"], check=True)
    capability = bytes.fromhex("0100000200040000000000000000000000000000")      # cap_net_bind_service=ep
    marked = entry("marked", data=b"m", pax_headers={"SCHILY.xattr.user.brig": "mark", "SCHILY.xattr.security.capability": capability.decode("ascii")})
    name = real.push("attributes", Image([SHELL, layer(marked, entry("show", data=(tmp_path / "show").read_bytes(), mode=0o755))]))
    pull(daemon, name)
    assert run(daemon, name, "/show /marked user.brig security.capability user.none").split() == [b"mark".hex(), capability.hex(), "none"]


HOSTILE = {
    "a device": (entry("null", tarfile.CHRTYPE, devmajor=1, devminor=3), "device"),
    "a block device": (entry("disk", tarfile.BLKTYPE, devmajor=8), "device"),
    "a name that climbs": (entry("a/../../x"), ".."),
    "an absolute name": (entry("/etc/x"), "absolute"),
    "a hard link out": (link("l", "../../etc/passwd", tarfile.LNKTYPE), ".."),
    "a hard link to nothing": (link("l", "none", tarfile.LNKTYPE), "not there"),
    "an overlay's attribute": (entry("x", pax_headers={"SCHILY.xattr.trusted.overlay.redirect": "/etc"}), "overlay"),
    "an attribute that is none": (entry("x", pax_headers={"SCHILY.xattr.security.capability": "junk"}), "attribute"),
    "an attribute with a long name": (entry("x", pax_headers={"SCHILY.xattr.user." + "n" * 300: "x"}), "attribute"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_layer_is_refused_by_name(daemon, case):
    what, word = HOSTILE[case]
    with HostileRegistry(Image([SHELL, layer(what)])) as registry:
        refused(daemon, registry.ref, "image_invalid", word)


def test_a_link_is_followed_within_the_image_only(daemon):
    for target in ("..", "../../..", "/proc/1/root", "/proc/self/fd/4"):
        with HostileRegistry(Image([SHELL, layer(link("l", target), entry("l/brig-was-here", data=b"x"))])) as registry:
            refused(daemon, registry.ref, "image_invalid", "l/brig-was-here")
    with HostileRegistry(Image([SHELL, layer(directory("in"), link("l", "/in"), entry("l/x", data=b"inside"))])) as registry:
        pull(daemon, registry.ref)
        assert run(daemon, registry.ref, "cat /in/x") == "inside"


def test_what_a_sandbox_mounts_itself_is_left_alone(daemon):
    """A layer may remove, replace and fill /proc and /dev as it likes: those of a sandbox are its own."""
    for top in (layer(entry(".wh.proc"), entry(".wh.dev")), layer(entry("proc", data=b"x"), link("dev", "/tmp")), layer(entry("dev/mapper/control", tarfile.CHRTYPE, devmajor=10), entry("proc/1/x"), entry("dev/a/b/c")),
                layer(directory("bin"), entry("bin/sh", data=BUSYBOX, mode=0o755), entry("bin/cat", data=BUSYBOX, mode=0o755), entry("bin/test", data=BUSYBOX, mode=0o755), entry(".wh..wh..opq"))):
        with HostileRegistry(Image([SHELL, top])) as registry:
            pull(daemon, registry.ref)
            assert run(daemon, registry.ref, "test -c /dev/null && test -d /proc/self && echo well") == "well\n"


def test_a_tree_of_any_depth_is_removed_by_a_layer_above(daemon):
    with HostileRegistry(Image([SHELL, layer(entry("/".join(["d"] * 2000) + "/f"), entry("wide/" + "/".join(["w"] * 90) + "/f"), entry("wide/kept")), layer(entry(".wh.d"), entry("wide/.wh.w"))])) as registry:
        pull(daemon, registry.ref)
        assert run(daemon, registry.ref, "ls /wide; test -e /d || echo gone") == "kept\ngone\n"
    with HostileRegistry(Image([SHELL, layer(entry("/".join(["d"] * 2000) + "/f"), entry(".wh..wh..opq"))])) as registry:
        refused(daemon, registry.ref, "image_invalid", "too deep")


def test_zeros_take_no_room(daemon):
    with HostileRegistry(Image([SHELL, layer(entry("zeros", data=bytes(64 << 20)), entry("mixed", data=b"a" + bytes(3 << 20) + b"b"))])) as registry:
        assert pull(daemon, registry.ref)["bytes"] < 16 << 20
        assert run(daemon, registry.ref, "stat -c %s /zeros /mixed; /bin/busybox tr -d '\\000' </mixed; /bin/busybox tr -d '\\000' </zeros") == f"{64 << 20}\n{(3 << 20) + 2}\nab"


# ---- what is wrong with an image is said ---------------------------------------------------------------------------------------------


def with_config(**config):
    image = Image([APP])
    document = json.loads(image.config)
    document["config"] = config
    image.config = json.dumps(document).encode()
    image.document["config"].update(digest=digest(image.config), size=len(image.config))
    return image


@pytest.mark.parametrize("config, word", [
    ({"Env": ["=x"]}, "Env"), ({"Env": "A=b"}, "Env"), ({"WorkingDir": "relative"}, "WorkingDir"), ({"Cmd": {}}, "Cmd"), ({"Labels": []}, "Labels"),
    ({"Env": [f"A{i}=x" for i in range(5000)]}, "Env"), ({"Labels": {f"k{i}": "v" * 1000 for i in range(6000)}}, "too much"),
])
def test_a_bad_configuration_is_refused_with_its_reason(daemon, config, word):
    with HostileRegistry(with_config(**config)) as registry:
        refused(daemon, registry.ref, "image_invalid", word)


def test_more_layers_than_a_sandbox_takes_are_refused(daemon):
    with HostileRegistry(Image([tar_layer({f"f{i}": b""}) for i in range(125)])) as registry:
        refused(daemon, registry.ref, "image_invalid", "125 layers")
        assert registry.count("/blobs/") == 1, "no layer is fetched"


def test_a_configuration_too_large_for_the_answer_is_left_out_of_it(daemon):
    with HostileRegistry(with_config(Labels={"long": "x" * 100000})) as registry:
        image = pull(daemon, registry.ref)
        assert "config" not in image and image["names"] == [registry.ref + ":latest"]
        assert len(daemon.call("GET", f"/v1/images/{image['digest']}").json["config"]["Labels"]["long"]) == 100000


# ---- nothing twice -------------------------------------------------------------------------------------------------------------------


class Gate:
    """Holds back the answers of a registry until so many requests wait for theirs, or somebody opens it."""

    def __init__(self, registry, kind, parties):
        self.barrier, self.registry, self.waiting = threading.Barrier(parties), registry, 0
        registry.tricks[kind] = self

    def __call__(self, request, data):
        self.waiting += 1
        with contextlib.suppress(threading.BrokenBarrierError):
            self.barrier.wait(60)
        request.answer(200, data)


def test_layers_come_side_by_side(daemon):
    image = Image([tar_layer({f"f{i}": os.urandom(1000)}) for i in range(3)])
    with HostileRegistry(image) as registry:
        gate = Gate(registry, "blob", 3)
        pull(daemon, registry.ref)
        assert gate.waiting == 3 and not gate.barrier.broken


def test_pulls_of_one_image_at_a_time_are_one(daemon):
    image = Image([tar_layer({"f": os.urandom(1000)})])
    with HostileRegistry(image) as registry:
        opened = threading.Event()

        def hold(request, data):
            opened.wait(60)
            request.answer(200, data)
        registry.tricks["blob"] = hold
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(pull(daemon, registry.ref))) for _ in range(5)]
        for t in threads:
            t.start()
        brigd.until(lambda: registry.count("/blobs/" + digest(image.blobs[0])) == 1, "the layer is asked for")
        opened.set()
        for t in threads:
            t.join(60)
        assert len({a["digest"] for a in answers}) == 1 and len(answers) == 5
        assert registry.count("/blobs/" + digest(image.blobs[0])) == 1


def test_a_shared_layer_is_fetched_once(daemon):
    base = tar_layer({"base": os.urandom(1000)})
    one, two = Image([base, tar_layer({"one": b"1"})]), Image([base, tar_layer({"two": b"2"})])
    with HostileRegistry(one, "group/one") as first, HostileRegistry(two, "group/two") as second:
        pull(daemon, first.ref)
        pull(daemon, second.ref)
        assert first.count(digest(one.blobs[0])) == 1 and second.count(digest(two.blobs[0])) == 0 and second.count(digest(two.blobs[1])) == 1
        pull(daemon, second.ref)
        assert second.count(digest(two.blobs[1])) == 1


class Several(HostileRegistry):
    """Of images by name."""

    def __init__(self, images):
        super().__init__(None)
        self.images = images

    def body(self, path):
        name, _, what = path[len("/v2/"):].replace("/blobs/", "/manifests/").rpartition("/manifests/")
        image = self.images[name]
        if "/manifests/" in path:
            return "manifest", image.manifest, image.media_type
        return what, image.everything()[what], "application/octet-stream"


@pytest.fixture
def sharing():
    base = tar_layer({"base": os.urandom(1000)})
    one, two = Image([base, tar_layer({"one": os.urandom(10)})]), Image([base, tar_layer({"two": os.urandom(10)})])
    with Several({"one": one, "two": two}) as registry:
        registry.base, registry.one, registry.two = digest(one.blobs[0]), digest(one.blobs[1]), digest(two.blobs[1])
        registry.open = threading.Event()
        yield registry
        registry.open.set()


def test_a_layer_that_another_pull_fetches_is_waited_for(daemon, sharing):
    def hold(request, data):
        sharing.open.wait(60)
        request.answer(200, data)
    sharing.tricks[sharing.base] = hold
    answers = []
    threads = [threading.Thread(target=lambda name=name: answers.append(pull(daemon, f"{sharing.host}/{name}"))) for name in ("one", "two")]
    for t in threads:
        t.start()
    brigd.until(lambda: sharing.count(sharing.one) and sharing.count(sharing.two), "both pulls are at their layers")
    sharing.open.set()
    for t in threads:
        t.join(60)
    assert len(answers) == 2 and sharing.count(sharing.base) == 1


def test_a_layer_whose_pull_is_given_up_is_fetched_by_who_waited(daemon, sharing):
    def hold(request, data):
        if sharing.count(sharing.base) == 1:
            sharing.open.wait(60)
        request.answer(200, data)
    sharing.tricks[sharing.base] = hold
    first = http.client.HTTPConnection(daemon.host, daemon.port, timeout=60)
    first.request("POST", "/v1/images/pull", json.dumps({"name": f"{sharing.host}/one"}))
    brigd.until(lambda: sharing.count(sharing.base) and sharing.count(sharing.one), "it is fetched")
    answers = []
    second = threading.Thread(target=lambda: answers.append(pull(daemon, f"{sharing.host}/two")))
    second.start()
    brigd.until(lambda: sharing.count(sharing.two), "another waits for it")
    assert sharing.count(sharing.base) == 1
    first.close()
    second.join(60)
    assert len(answers) == 1 and sharing.count(sharing.base) == 2


def test_a_cut_layer_is_gone_on_with(daemon):
    data = os.urandom(3 << 20)
    image = Image([tar_layer({"f": data})], compress=False)
    asked = []

    def cut(request, body):
        start = int((request.headers.get("Range") or "bytes=0-")[6:-1])
        asked.append(start)
        end = len(body) if start else 2 << 20
        request.answer(206 if start else 200, body[start:end], {"Content-Range": f"bytes {start}-{len(body) - 1}/{len(body)}"} if start else {}, len(body) - start)
    with HostileRegistry(image) as registry:
        registry.tricks["blob"] = cut
        pull(daemon, registry.ref)
        assert asked == [0, 2 << 20]


# ---- who asks, and whom ------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    top = tmp_path_factory.mktemp("tls")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", top / "key", "-out", top / "cert", "-days", "2",
                    "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    return top / "cert", top / "key"


def test_over_tls_with_the_operator_s_authority_only(daemon, certificate, tmp_path):
    with HostileRegistry(Image([APP]), tls=tuple(map(str, certificate))) as registry:
        refused(daemon, registry.ref, "registry_unreachable", "certificate", 502)
        assert registry.seen == []
        d = brigd.Daemon()
        (d.top / "ca.pem").write_bytes(certificate[0].read_bytes())
        d.variables["BRIG_REGISTRY_CA_FILE"] = str(d.top / "ca.pem")
        with d:
            assert pull(d, registry.ref)["layers"] == 1


def test_credentials_of_the_request_and_of_the_operator(daemon):
    with TokenServer({"me": "pass:word"}) as tokens, RealRegistry(tokens) as registry:
        name = registry.push("secret/app", Image([SHELL, APP]))
        refused(daemon, name, "registry_unauthorized", "denies", 403)
        refused(daemon, name, "registry_unauthorized", "denies", 403, auth={"username": "me", "password": "wrong"})
        assert pull(daemon, name, auth={"username": "me", "password": "pass:word"})["layers"] == 2
        assert "pass:word" not in daemon.stderr() and "wrong" not in daemon.stderr()
        d = brigd.Daemon()
        (d.top / "auth.json").write_text(json.dumps({"auths": {registry.host: {"auth": base64.b64encode(b"me:pass:word").decode()}}}))
        (d.top / "auth.json").chmod(0o600)
        d.variables["BRIG_REGISTRY_CREDENTIALS"] = str(d.top / "auth.json")
        with d:
            assert pull(d, name)["layers"] == 2
            assert run(d, name, "cat /app") == "app"


def test_the_index_s_entry_for_this_machine(daemon, real):
    other = Image([SHELL, tar_layer({"who": b"other"})], architecture="s390x")
    mine = Image([SHELL, tar_layer({"who": b"mine"})])
    real.push("multi", other, "other")
    name = real.push("multi", mine, "both", index([("s390x", other), (ARCHITECTURE, mine)]))
    pull(daemon, name)
    assert run(daemon, name, "cat /who") == "mine"


def test_a_session_pulls_what_is_not_here(daemon, real):
    name = real.push("asked/for", Image([SHELL, tar_layer({"who": b"pulled"})]))
    assert run(daemon, name, "cat /who") == "pulled"


# ---- eviction --------------------------------------------------------------------------------------------------------------------------------


def test_the_least_used_goes_when_the_limit_is_reached_and_never_what_is_used(real):
    def image(i):
        return Image([SHELL, tar_layer({"big": os.urandom(12 << 20), "which": b"%d" % i})], compress=False)
    names = [real.push(f"evict/{i}", image(i)) for i in range(4)]
    with brigd.Daemon(BRIG_STORE_LAYER_CACHE="48M") as d:
        held = pull(d, names[0]) and d.call("POST", "/v1/sessions?wait=60", {"image": names[0], "network": "none"}).json["id"]
        for name in names[1:3]:
            pull(d, name)
        run(d, names[1], "cat /which")
        pull(d, names[3])

        def here():
            return {n for i in d.call("GET", "/v1/images").json["images"] for n in i["names"]}
        brigd.until(lambda: names[2] not in here(), "the least used goes")
        assert {names[0], names[1], names[3]} <= here()
        d.call("DELETE", f"/v1/sessions/{held}")
