import os
import pathlib
import shutil
import sys
import tempfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from tree_harness import GitServer, Repository, Store  # noqa: E402


@pytest.fixture
def place():
    """A directory that the daemon's user may enter."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="brig-tree-", dir="/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def repo(place):
    return Repository(place / "repo")


@pytest.fixture
def open_store(place):
    """Starts stores; each must close well and leave no mount, loop device or unpublished image."""
    started = []

    def start(home="home", **options):
        started.append(Store(place / home, **options))
        return started[-1]

    yield start
    for s in started:
        s.close()
        left = [n for n in os.listdir(s.home / "layers") if n.startswith(".")]
        assert left == []
    loops = [p for p in pathlib.Path("/sys/block").glob("loop*/loop/backing_file") if str(place) in p.read_text()]
    assert loops == []


@pytest.fixture
def store(open_store):
    return open_store()


@pytest.fixture
def serve(place):
    servers = []

    def start(**options):
        servers.append(GitServer(place, **options))
        return servers[-1]

    yield start
    for s in servers:
        s.stop()
