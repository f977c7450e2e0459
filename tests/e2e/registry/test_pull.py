"""The registry client against a real registry server: what it fetches is what was pushed, whatever the format and the authentication."""
import hashlib
import json
import os
import pathlib
import random
import subprocess
import sys
import urllib.parse

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from registries import ARCHITECTURE, Image, RealRegistry, TokenServer, digest, index, tar_layer  # noqa: E402

TOOL = os.path.join(os.environ.get("BRIG_BUILD", "build"), "tests", "tools", "registry_tool")


def pull(directory, *args, timeout=60):
    """(exit status, events); the directory is empty afterwards."""
    done = subprocess.run([TOOL, *args[:-1], str(directory), args[-1]] if isinstance(args[-1], str) else [TOOL, *args[:-1], str(directory), *args[-1]],
                          capture_output=True, text=True, timeout=timeout)
    assert list(pathlib.Path(directory).iterdir()) == []
    assert done.returncode in (0, 1), done
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def layers_of(events):
    return {e["layer"]: e["sha256"] for e in events if "layer" in e}


def expected(image):
    return {i: hashlib.sha256(blob).hexdigest() for i, blob in enumerate(image.blobs)}


def noise(n, seed=1):
    return random.Random(seed).randbytes(n)


@pytest.fixture(scope="module")
def registry():
    with RealRegistry() as r:
        yield r


@pytest.mark.parametrize("oci", [True, False])
@pytest.mark.parametrize("compress", [True, False])
def test_every_layer_comes_as_it_was_pushed(registry, tmp_path, oci, compress):
    image = Image([tar_layer({"a": noise(300000, i), f"b{i}": b"x"}) for i in range(6)], oci=oci, compress=compress)
    ref = registry.push(f"plain/o{int(oci)}c{int(compress)}", image)
    status, events = pull(tmp_path, ref)
    assert status == 0, events
    assert layers_of(events) == expected(image)
    resolved = next(e for e in events if "resolved" in e)
    assert resolved["resolved"] == image.digest and resolved["layers"] == 6 and resolved["config"] == len(image.config)
    assert events[-1] == {"ref": ref, "done": "ok", "error": None}


def test_progress_ends_at_what_was_wanted(registry, tmp_path):
    image = Image([tar_layer({"a": noise(2 << 20, i)}) for i in range(3)])
    status, events = pull(tmp_path, registry.push("progress", image))
    assert status == 0
    steps = [e["progress"] for e in events if "progress" in e]
    assert steps[0] == [0, 3, 0, sum(map(len, image.blobs))] and steps[-1] == [3, 3, *[sum(map(len, image.blobs))] * 2]
    assert all(a[2] <= b[2] for a, b in zip(steps, steps[1:]))


def test_layers_that_are_known_are_not_fetched(registry, tmp_path):
    image = Image([tar_layer({"a": noise(1000, i)}) for i in range(4)])
    status, events = pull(tmp_path, "-s", "3", registry.push("known", image))
    assert status == 0 and set(layers_of(events)) == {3}


@pytest.mark.parametrize("oci", [True, False])
def test_the_index_entry_for_this_machine_is_taken(registry, tmp_path, oci):
    other = Image([tar_layer({"arch": b"other"})], architecture="s390x", oci=oci)
    mine = Image([tar_layer({"arch": b"mine"})], oci=oci)
    name = f"multi{int(oci)}"
    registry.push(name, other, "other")
    ref = registry.push(name, mine, "both", index([("s390x", other), (ARCHITECTURE, mine)], oci))
    status, events = pull(tmp_path, ref)
    assert status == 0 and layers_of(events) == expected(mine)
    assert next(e for e in events if "resolved" in e)["resolved"] == mine.digest


def test_an_index_without_this_machine_is_not_found(registry, tmp_path):
    other = Image([tar_layer({"arch": b"other"})], architecture="s390x")
    status, events = pull(tmp_path, registry.push("foreign", other, "t", index([("s390x", other)])))
    assert status == 1 and events[-1]["done"] == "image_not_found" and f"linux/{ARCHITECTURE}" in events[-1]["error"]


def test_an_image_for_another_machine_is_not_found(registry, tmp_path):
    status, events = pull(tmp_path, registry.push("foreign2", Image([tar_layer({"a": b"x"})], architecture="s390x")))
    assert status == 1 and events[-1]["done"] == "image_not_found"


def test_a_digest_names_the_image(registry, tmp_path):
    old, new = Image([tar_layer({"a": b"old"})]), Image([tar_layer({"a": b"new"})])
    registry.push("moved", old)
    registry.push("moved", new)
    status, events = pull(tmp_path, f"{registry.host}/moved:latest@{old.digest}")
    assert status == 0 and layers_of(events) == expected(old)


@pytest.mark.parametrize("ref", ["nothing/here", "plain2:nope", "plain2@" + digest(b"nope")])
def test_what_is_not_there_is_not_found(registry, tmp_path, ref):
    registry.push("plain2", Image([tar_layer({"a": b"x"})]))
    status, events = pull(tmp_path, f"{registry.host}/{ref}")
    assert status == 1 and events[-1]["done"] == "image_not_found"


def test_many_pulls_at_a_time_all_end(registry, tmp_path):
    refs = []
    for i in range(20):
        refs.append(registry.push(f"many/{i}", Image([tar_layer({"a": noise(50000, i)}), tar_layer({"b": noise(1000, i)})])))
    status, events = pull(tmp_path, refs)
    assert status == 0 and sorted(e["ref"] for e in events if e.get("done") == "ok") == sorted(refs)


def test_an_image_without_layers_is_an_image(registry, tmp_path):
    status, events = pull(tmp_path, registry.push("empty", Image([])))
    assert status == 0 and layers_of(events) == {}


def test_a_registry_on_loopback_only_where_it_is_allowed(registry, tmp_path):
    done = subprocess.run([TOOL, "-n", str(tmp_path), f"{registry.host}/plain"], capture_output=True, text=True)
    assert done.returncode == 2 and "loopback" in done.stderr


class TestTokens:
    @pytest.fixture(scope="class")
    def private(self):
        with TokenServer({"me": "pass:word"}) as tokens, RealRegistry(tokens) as registry:
            image = Image([tar_layer({"a": noise(400000, i)}) for i in range(5)])
            yield registry, registry.push("secret/image", image), image

    def test_credentials_of_the_request_get_a_token(self, private, tmp_path):
        registry, ref, image = private
        before = len(registry.token_server.seen)
        status, events = pull(tmp_path, "-u", "me:pass:word", ref)
        assert status == 0 and layers_of(events) == expected(image)
        asked = registry.token_server.seen[before:]
        assert len(asked) == 1, "one token serves the whole pull"
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(asked[0][0]).query)
        assert query == {"service": ["test-registry"], "scope": ["repository:secret/image:pull"]}

    def test_nobody_is_denied(self, private, tmp_path):
        status, events = pull(tmp_path, private[1])
        assert status == 1 and events[-1]["done"] == "image_denied"

    def test_a_wrong_password_is_denied_and_shown_nowhere(self, private, tmp_path):
        status, events = pull(tmp_path, "-u", "me:xyzzy", private[1])
        assert status == 1 and events[-1]["done"] == "image_denied" and "xyzzy" not in json.dumps(events)

    def test_the_operator_s_credentials_are_used(self, private, tmp_path):
        registry, ref, image = private
        store = tmp_path / "auth.json"
        empty = tmp_path / "d"
        empty.mkdir()
        store.write_text(json.dumps({"auths": {registry.host: {"auth": "bWU6cGFzczp3b3Jk"}}}))
        status, events = pull(empty, "-c", str(store), ref)
        assert status == 0 and layers_of(events) == expected(image)
        store.write_text(json.dumps({"auths": {"127.0.0.1:1": {"username": "me", "password": "pass:word"}}}))
        status, events = pull(empty, "-c", str(store), ref)
        assert status == 1 and events[-1]["done"] == "image_denied"
