"""One daemon for the tests of a module that need nothing special of it; what a test makes in it is gone, confirmed, before the next."""
import sys

import pytest

import brigd

sys.path.insert(0, __file__.rsplit("/", 1)[0])

from rlm_client import Host  # noqa: E402


@pytest.fixture(scope="module")
def rlm_daemon():
    with brigd.Daemon() as d:
        yield d


@pytest.fixture
def host(rlm_daemon):
    host = Host(rlm_daemon)
    yield host
    for session in host.call("GET", "/sessions").json["sessions"]:
        host.call("DELETE", f"/sessions/{session['session']}")
    seen = host.call("GET", "/sessions").json
    assert (seen["sessions"], seen["slots_used"], seen["roots"]) == ([], 0, 0)
