"""One daemon for all tests of sessions."""
import pathlib
import sys

import pytest
from brigd import Daemon

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from session_client import Session  # noqa: E402


@pytest.fixture(scope="session")
def daemon():
    with Daemon() as d:
        yield d


@pytest.fixture
def session(daemon):
    """Makes sessions that are ready; what is left of them goes afterwards."""
    made = []

    def make(**request):
        s = Session(daemon, **request)
        made.append(s)
        return s.ready()

    yield make
    for s in made:
        s.delete()
