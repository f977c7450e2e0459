"""A daemon that stops while images are pulled, built and imported: whoever waits gets an answer, and nothing is left."""
import http.client
import json
import pathlib
import signal
import sys
import threading

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "registry"))

import brigd  # noqa: E402
from registries import HostileRegistry, Image, digest, tar_layer  # noqa: E402


def asked(daemon, path, body):
    connection = http.client.HTTPConnection(daemon.host, daemon.port, timeout=120)
    connection.request("POST", path, json.dumps(body))
    return connection


@pytest.mark.parametrize("stream", [False, True])
def test_whoever_waits_for_an_image_is_answered(stream):
    image = Image([tar_layer({"a": b"x"})])
    with HostileRegistry(image) as registry, brigd.Daemon() as d:
        release = threading.Event()
        registry.tricks["blob"] = lambda request, data: release.wait(60)
        waiting = [asked(d, "/v1/images/pull", {"name": registry.ref, "stream": stream}) for _ in range(3)]
        brigd.until(lambda: registry.count(digest(image.blobs[0])) == 1, "the layer is asked for")
        waiting += [asked(d, "/v1/images/build", {"dockerfile": "FROM host\nRUN sleep 1001", "network": "none", "stream": stream})]
        brigd.until(lambda: any(argv[:2] == [b"sleep", b"1001"] for _, _, argv in brigd.processes()), "the build runs")
        d.process.send_signal(signal.SIGTERM)
        for connection in waiting:
            answer = connection.getresponse()
            text = answer.read().decode()
            assert "the daemon is stopping" in text and ("event: error" in text if stream else answer.status == 409), (answer.status, text)
        release.set()
        assert d.wait() == 0, d.stderr()[-2000:]
        d.assert_nothing_left()
