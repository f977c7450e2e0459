import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import Server  # noqa: E402


@pytest.fixture(scope="module")
def server():
    """One server with default limits for all tests of a file that do not disturb it."""
    s = Server()
    yield s
    assert s.stop() == 0


@pytest.fixture
def start():
    """Starts servers with options; each must still be alive and end well."""
    started = []

    def start(*options):
        started.append(Server(*options))
        return started[-1]

    yield start
    for s in started:
        assert s.stop() == 0
