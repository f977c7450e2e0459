import os
import pathlib
import shutil
import sys
import tempfile
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from tree_harness import WAIT, GitServer, Repository, Store  # noqa: E402


def make_place():
    """A directory that the daemon's user may enter."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="brig-tree-", dir="/tmp"))
    path.chmod(0o755)
    return path


@pytest.fixture
def place():
    path = make_place()
    yield path
    shutil.rmtree(path)


@pytest.fixture
def repo(place):
    return Repository(place / "repo")


def loop_devices(place):
    found = []
    for p in pathlib.Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            if str(place) in p.read_text():
                found.append(str(p))
        except OSError:
            pass                        # gone while we looked
    return found


def check_nothing_left(store, place):
    """Closed well, and no mount, loop device or unpublished image left."""
    store.close()
    # What a template of empty images is kept for is the next image.
    assert [n for n in os.listdir(store.home / "layers") if n.startswith(".") and not n.startswith(".template-")] == []
    # The kernel lets a loop device go after its last unmount, in its own time, and has no event for it.
    end = time.monotonic() + WAIT
    while loop_devices(place) and time.monotonic() < end:
        time.sleep(0.02)
    assert loop_devices(place) == []


@pytest.fixture
def open_store(place):
    started = []

    def start(home="home", **options):
        started.append(Store(place / home, **options))
        return started[-1]

    yield start
    for s in started:
        s.close()
    for s in started:
        check_nothing_left(s, place)


@pytest.fixture
def fresh(open_store):
    """A store for this test alone."""
    return open_store()


@pytest.fixture(scope="module")
def store():
    """One store for all tests that look at their own trees only."""
    place = make_place()
    s = Store(place / "home")
    yield s
    check_nothing_left(s, place)
    shutil.rmtree(place)


@pytest.fixture
def serve(place):
    servers = []

    def start(**options):
        servers.append(GitServer(place, **options))
        return servers[-1]

    yield start
    for s in servers:
        s.stop()
