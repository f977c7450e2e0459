"""A registry that lies, stalls, floods and sends elsewhere: each pull ends with a named failure, soon, and leaves nothing; one that is
only unwell is waited for."""
import contextlib
import json
import pathlib
import socket
import subprocess
import sys
import threading
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from registries import ARCHITECTURE, DOCKER, OCI, HostileRegistry, Image, Server, digest, index, tar_layer  # noqa: E402
from test_pull import TOOL, expected, layers_of, noise, pull  # noqa: E402


@pytest.fixture
def image():
    return Image([tar_layer({"a": noise(3 << 20)}), tar_layer({"b": noise(2000, 2)})])


@pytest.fixture
def registry(image):
    with HostileRegistry(image) as r:
        yield r


def ends(registry, tmp_path, failure, *words, flags=(), ref=None):
    status, events = pull(tmp_path, *flags, ref or registry.ref)
    assert status == 1 and events[-1]["done"] == failure, events[-1]
    for word in words:
        assert word in events[-1]["error"], events[-1]
    return events


def recovers(registry, tmp_path, *flags):
    status, events = pull(tmp_path, *flags, registry.ref)
    assert status == 0, events[-1]
    assert layers_of(events) == expected(registry.image)
    return events


def answers(status, body=b"", headers=None, length=None, times=None):
    def trick(request, _):
        request.answer(status, body, headers, length)
    trick.times = times
    return trick


def test_without_tricks_it_is_a_registry(registry, tmp_path):
    recovers(registry, tmp_path)


# ---- lies -------------------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("kind", ["blob", "config"])
def test_another_content_than_the_digest_s_is_refused(registry, tmp_path, kind):
    registry.tricks[kind] = lambda request, data: request.answer(200, data[:-1] + bytes([data[-1] ^ 1]))
    ends(registry, tmp_path, "registry_invalid", "digest")


def test_another_manifest_than_the_reference_s_digest_is_refused(registry, tmp_path):
    ends(registry, tmp_path, "registry_invalid", "digest", ref=f"{registry.ref}@{digest(b'another')}")


def test_another_manifest_than_the_index_s_digest_is_refused(registry, image, tmp_path):
    _, text = index([(ARCHITECTURE, Image([tar_layer({"x": b"y"})]))])
    kept = json.loads(text)["manifests"][0]["digest"]
    registry.tricks[f"/v2/{registry.name}/manifests/latest"] = answers(200, text, {"Content-Type": OCI + "index.v1+json"})
    registry.tricks[f"/v2/{registry.name}/manifests/{kept}"] = answers(200, image.manifest, {"Content-Type": image.media_type})
    ends(registry, tmp_path, "registry_invalid", "digest")


@pytest.mark.parametrize("kind", ["blob", "config"])
def test_a_body_longer_than_the_manifest_says_is_cut(registry, tmp_path, kind):
    registry.tricks[kind] = lambda request, data: request.answer(200, data + b"x")
    ends(registry, tmp_path, "registry_invalid", "more than")


def flood(request, _):
    request.send_response(200)
    request.send_header("Content-Type", DOCKER + "distribution.manifest.v2+json")
    request.send_header("Connection", "close")
    request.end_headers()
    request.close_connection = True
    with contextlib.suppress(OSError):
        while True:
            request.wfile.write(b" " * 65536)


@pytest.mark.parametrize("kind", ["manifest", "config", "blob"])
def test_an_endless_body_is_cut(registry, tmp_path, kind):
    registry.tricks[kind] = flood
    ends(registry, tmp_path, "registry_invalid", "more than")


def test_endless_headers_are_cut(registry, tmp_path):
    def trick(request, _):
        request.send_response(200)
        with contextlib.suppress(OSError):
            while True:
                request.send_header("X-More", "x" * 1000)
                request.flush_headers()
        request.close_connection = True
    registry.tricks["manifest"] = trick
    ends(registry, tmp_path, "registry_invalid", "does not end")


def test_an_endless_error_page_is_cut(registry, tmp_path):
    def trick(request, _):
        request.send_response(404)
        request.end_headers()
        request.close_connection = True
        with contextlib.suppress(OSError):
            while True:
                request.wfile.write(b" " * 65536)
    registry.tricks["manifest"] = trick
    ends(registry, tmp_path, "registry_invalid", "does not end")


# ---- manifests --------------------------------------------------------------------------------------------------------------------

def manifest(image, **more):
    return json.dumps({**image.document, **more}).encode()


BAD_MANIFESTS = {
    "not JSON": (lambda i: b"{", "not valid"),
    "an array": (lambda i: b"[]", "not an object"),
    "nested a million times": (lambda i: b"[" * 1000000, "not valid"),
    "too many layers": (lambda i: manifest(i, layers=i.document["layers"][:1] * 128), "more than 127"),
    "layers without a size": (lambda i: manifest(i, layers=[{"mediaType": OCI + "layer.v1.tar", "digest": digest(b"")}]), "size"),
    "a negative size": (lambda i: manifest(i, layers=[{**i.document["layers"][0], "size": -1}]), "size"),
    "petabytes": (lambda i: manifest(i, layers=[{**i.document["layers"][0], "size": 1 << 50}]), "larger than"),
    "a sum that overflows": (lambda i: manifest(i, layers=[{**i.document["layers"][0], "size": (1 << 63) - 1}] * 3), "larger than"),
    "a digest that is a path": (lambda i: manifest(i, config={**i.document["config"], "digest": "sha256:../../../../etc/passwd"}), "digest"),
    "another hash": (lambda i: manifest(i, config={**i.document["config"], "digest": "md5:" + "0" * 64}), "digest"),
    "a huge configuration": (lambda i: manifest(i, config={**i.document["config"], "size": 9 << 20}), "configuration is larger"),
    "an artefact": (lambda i: manifest(i, config={**i.document["config"], "mediaType": "application/x-helm"}), "something else"),
    "a foreign layer": (lambda i: manifest(i, layers=[{**i.document["layers"][0], "urls": ["http://127.0.0.1/"]}]), "foreign"),
    "an unknown layer": (lambda i: manifest(i, layers=[{**i.document["layers"][0], "mediaType": "application/x-zip"}]), "unknown type"),
    "schema 1": (lambda i: b'{"schemaVersion":1,"fsLayers":[]}', "schema 1"),
    "too many entries": (lambda i: json.dumps({"mediaType": OCI + "index.v1+json", "manifests": [{}] * 1001}).encode(), "entries"),
    "no layers": (lambda i: manifest(i, layers=None), "no layers"),
}


@pytest.mark.parametrize("name", BAD_MANIFESTS)
def test_a_bad_manifest_is_refused(registry, image, tmp_path, name):
    make, word = BAD_MANIFESTS[name]
    text = make(image)
    media_type = OCI + "index.v1+json" if b"index.v1" in text else "application/json" if b"schemaVersion\":1" in text else image.media_type
    registry.tricks["manifest"] = answers(200, text, {"Content-Type": media_type})
    ends(registry, tmp_path, "registry_invalid", word)


def test_an_index_that_leads_to_indexes_is_followed_twice(registry, image, tmp_path):
    text, media_type = image.manifest, image.media_type
    for _ in range(4):
        entry = {"mediaType": media_type, "digest": digest(text), "size": len(text), "platform": {"os": "linux", "architecture": ARCHITECTURE}}
        registry.tricks[f"/v2/{registry.name}/manifests/{digest(text)}"] = answers(200, text, {"Content-Type": media_type})
        media_type = OCI + "index.v1+json"
        text = json.dumps({"mediaType": media_type, "manifests": [entry]}).encode()
    registry.tricks[f"/v2/{registry.name}/manifests/latest"] = answers(200, text, {"Content-Type": media_type})
    ends(registry, tmp_path, "registry_invalid", "indexes")
    assert registry.count("/manifests/") == 3


def test_a_configuration_that_names_other_layers_is_refused(tmp_path):
    image = Image([tar_layer({"a": b"x"})])
    config = json.loads(image.config)
    config["rootfs"]["diff_ids"] = []
    image.config = json.dumps(config).encode()
    image.document["config"].update(digest=digest(image.config), size=len(image.config))
    with HostileRegistry(image) as registry:
        ends(registry, tmp_path, "registry_invalid", "does not name its 1 layers")


# ---- elsewhere --------------------------------------------------------------------------------------------------------------------

def test_a_redirect_to_another_loopback_server_is_followed_without_credentials(registry, image, tmp_path):
    with HostileRegistry(image) as store:
        def check(request, _):
            if request.headers.get("Authorization") != "Basic bWU6c2VjcmV0":
                request.answer(401, b"", {"WWW-Authenticate": 'Basic realm="x"'})
            elif "/blobs/" in request.path:
                request.answer(307, b"", {"Location": f"http://{store.host}{request.path}"})
            else:
                request.answer(200, image.manifest, {"Content-Type": image.media_type})
        for kind in ("manifest", "config", "blob"):
            registry.tricks[kind] = check
        status, events = pull(tmp_path, "-u", "me:secret", registry.ref)
        assert status == 0 and layers_of(events) == expected(image)
        assert len(store.seen) == 3 and not any("Authorization" in headers for _, headers in store.seen)


@pytest.mark.parametrize("where, failure, word", [
    ("/same", "registry_invalid", "circles"),
    ("http://192.0.2.1/x", "registry_invalid", "plain HTTP"),
    ("http://169.254.169.254/latest/meta-data", "registry_invalid", "plain HTTP"),
    ("https://169.254.169.254/latest/meta-data", "registry_unreachable", "address"),
    ("https://10.0.0.1/x", "registry_unreachable", "address"),
    ("https://[::ffff:10.0.0.1]/x", "registry_unreachable", "address"),
    ("file:///etc/passwd", "registry_invalid", "elsewhere"),
    ("gopher://127.0.0.1/x", "registry_invalid", "elsewhere"),
    ("http://u:p@127.0.0.1/x", "registry_invalid", "user"),
    ("http://127.0.0.1:99999/x", "registry_invalid", "URL"),
    ("", "registry_invalid", "nowhere"),
    ("http://127.0.0.1/" + "x" * 9000, "registry_invalid", "nowhere"),
])
def test_a_redirect_is_followed_by_rule(registry, tmp_path, where, failure, word):
    def trick(request, _):
        request.answer(302, b"", {"Location": request.path if where == "/same" else where})
    registry.tricks["blob"] = trick
    ends(registry, tmp_path, failure, word)
    assert len([1 for path, _ in registry.seen if "/blobs/" in path]) <= 1 + 2 * 6


@pytest.mark.parametrize("ref", ["10.0.0.1/a", "192.168.1.1:5000/a", "169.254.169.254/a", "[fd00::1]/a", "[::ffff:127.0.0.1]/a", "0.0.0.0/a", "100.64.0.1/a"])
def test_a_private_address_is_not_connected_to(tmp_path, ref):
    status, events = pull(tmp_path, "-t", "5000", ref)
    assert status == 1 and events[-1]["done"] == "registry_unreachable" and "address" in events[-1]["error"]


def test_the_realm_of_tokens_is_held_to_the_rules_too(registry, tmp_path):
    registry.tricks["manifest"] = answers(401, b"", {"WWW-Authenticate": 'Bearer realm="http://192.0.2.1/token",service="x"'})
    events = ends(registry, tmp_path, "registry_invalid", "token server", flags=("-u", "me:secret"))
    assert "secret" not in json.dumps(events)


@pytest.mark.parametrize("header", ["Bearer", "Bearer realm=", 'Bearer realm="x', "Digest realm=x", "", 'Bearer service="a"', "Bearer " + "a" * 4000])
def test_a_challenge_that_makes_no_sense_is_a_denial(registry, tmp_path, header):
    registry.tricks["manifest"] = answers(401, b"", {"WWW-Authenticate": header})
    ends(registry, tmp_path, "image_denied")


def test_a_registry_that_never_likes_its_own_tokens_is_left(registry, tmp_path):
    with Server() as tokens:
        tokens.handle = lambda request: request.answer(200, b'{"token":"abc"}')
        registry.tricks["manifest"] = answers(401, b"", {"WWW-Authenticate": f'Bearer realm="{tokens.url}",service="x"'})
        ends(registry, tmp_path, "image_denied")
        assert len(tokens.seen) <= 2


@pytest.mark.parametrize("answer", [b"", b"{}", b'{"token":1}', b'{"token":"a\\r\\nX: y"}', b'{"token":"' + b"x" * 20000 + b'"}', b"[" * 60000, b" " * 100000])
def test_a_token_server_s_nonsense_is_refused(registry, tmp_path, answer):
    with Server() as tokens:
        tokens.handle = lambda request: request.answer(200, answer)
        registry.tricks["manifest"] = answers(401, b"", {"WWW-Authenticate": f'Bearer realm="{tokens.url}",service="x"'})
        ends(registry, tmp_path, "registry_invalid", "token")


# ---- unwell -----------------------------------------------------------------------------------------------------------------------

def cut(at):
    """Sends that many bytes of what is asked for, then closes."""
    def trick(request, data):
        asked = request.headers.get("Range")
        start = int(asked.partition("=")[2].rstrip("-")) if asked else 0
        headers = {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"} if asked else {}
        request.answer(206 if asked else 200, data[start:start + at], headers, len(data) - start)
    return trick


def test_a_cut_layer_goes_on_where_it_was_cut(registry, image, tmp_path):
    trick = cut(2 << 20)
    trick.times = 1
    key = f"/v2/{registry.name}/blobs/{digest(image.blobs[0])}"
    registry.tricks[key] = trick
    recovers(registry, tmp_path)
    assert [headers.get("Range") for path, headers in registry.seen if path == key] == [None, f"bytes={2 << 20}-"]


def test_progress_is_what_lets_a_cut_pull_go_on(registry, image, tmp_path):
    """Six cuts, each after more than a megabyte, are no failure; six after less are."""
    image = Image([tar_layer({"a": noise(9 << 20)})], compress=False)
    registry.image = image
    registry.tricks["blob"] = cut((1 << 20) + 4096)
    recovers(registry, tmp_path)
    registry.tricks["blob"] = cut(4096)
    ends(registry, tmp_path, "registry_unreachable")


def test_a_server_without_ranges_begins_anew_and_is_believed_only_by_the_digest(registry, image, tmp_path):
    def trick(request, data):
        request.answer(200, data[:1 << 20] if trick.cuts else data, {}, len(data))
        trick.cuts -= 1
    trick.cuts = 1
    key = f"/v2/{registry.name}/blobs/{digest(image.blobs[0])}"
    registry.tricks[key] = trick
    recovers(registry, tmp_path)


def test_another_range_than_was_asked_for_is_refused(registry, image, tmp_path):
    def trick(request, data):
        if "Range" in request.headers:
            request.answer(206, data[5:], {"Content-Range": f"bytes 5-{len(data) - 1}/{len(data)}"})
        else:
            request.answer(200, data[:1 << 20], {}, len(data))
    registry.tricks[f"/v2/{registry.name}/blobs/{digest(image.blobs[0])}"] = trick
    ends(registry, tmp_path, "registry_invalid", "another part")


@pytest.mark.parametrize("kind", ["manifest", "config", "blob"])
@pytest.mark.parametrize("status", [429, 503, 500])
def test_a_busy_registry_is_asked_again(registry, tmp_path, kind, status):
    registry.tricks[kind] = answers(status, b"busy", {"Retry-After": "0"}, times=2)
    recovers(registry, tmp_path)


def test_retry_after_is_waited_for(registry, tmp_path):
    registry.tricks["manifest"] = answers(429, b"", {"Retry-After": "2"}, times=1)
    began = time.monotonic()
    recovers(registry, tmp_path)
    assert time.monotonic() - began >= 2


def test_a_registry_that_asks_to_come_back_tomorrow_is_left(registry, tmp_path):
    registry.tricks["manifest"] = answers(503, b"", {"Retry-After": "86400"})
    ends(registry, tmp_path, "registry_unreachable", "much later")
    assert registry.count("/manifests/") == 1


def test_a_registry_that_stays_busy_is_left(registry, tmp_path):
    registry.tricks["manifest"] = answers(503, b"", {"Retry-After": "0"})
    ends(registry, tmp_path, "registry_unreachable", "503")
    assert registry.count("/manifests/") == 5


def test_nobody_listens(tmp_path):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        ends(None, tmp_path, "registry_unreachable", ref=f"127.0.0.1:{s.getsockname()[1]}/a")


def drip(registry, n=0):
    """n bytes at once, then one after the other."""
    def trick(request, data):
        request.send_response(200)
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        with contextlib.suppress(OSError):
            request.wfile.write(data[:n])
            for i in range(n, n + 200):
                request.wfile.write(data[i:i + 1])
                registry.drip.wait(0.1)
    registry.drip = threading.Event()
    return trick


def test_a_drip_ends_with_the_pull_s_time(registry, tmp_path):
    registry.tricks["blob"] = drip(registry)
    began = time.monotonic()
    ends(registry, tmp_path, "pull_timeout", flags=("-t", "1500"))
    assert 1.4 < time.monotonic() - began < 15      # all of it would take 20
    registry.drip.set()


def test_a_cancelled_pull_leaves_nothing(registry, tmp_path):
    registry.tricks["blob"] = drip(registry, 1 << 20)
    done = subprocess.run([TOOL, "-p", "1500", str(tmp_path), registry.ref], capture_output=True, text=True, timeout=120)
    registry.drip.set()
    assert done.returncode == 0 and "layer" in done.stdout and "done" not in done.stdout.replace("layers_done", "") and done.stderr == ""


# ---- TLS --------------------------------------------------------------------------------------------------------------------------

class TestTls:
    @pytest.fixture(scope="class")
    def certificate(self, tmp_path_factory):
        top = tmp_path_factory.mktemp("tls")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", top / "key", "-out", top / "cert", "-days", "2",
                        "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
        return str(top / "cert"), str(top / "key")

    def test_a_registry_with_a_known_certificate(self, image, tmp_path, certificate):
        with HostileRegistry(image, tls=certificate) as registry:
            recovers(registry, tmp_path, "-C", certificate[0])

    def test_a_stranger_s_certificate_is_refused_and_plain_http_not_tried(self, image, tmp_path, certificate):
        with HostileRegistry(image, tls=certificate) as registry:
            ends(registry, tmp_path, "registry_unreachable", "certificate")
            assert registry.seen == []

    def test_another_host_s_certificate_is_refused(self, image, tmp_path, certificate):
        with HostileRegistry(image, tls=certificate) as registry:
            ends(registry, tmp_path, "registry_unreachable", flags=("-C", certificate[0]), ref=f"localhost:{registry.port}/evil/image")
