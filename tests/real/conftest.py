"""The daemon of the end-to-end tests, and the tasks, made in parallel once a run."""
import concurrent.futures
import os
import pathlib
import shutil
import sys
import tempfile

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e")]

import brigd  # noqa: E402
import releases  # noqa: E402


@pytest.fixture(scope="session")
def tasks():
    """{name: Task or the exception that making it raised}"""
    work = pathlib.Path(tempfile.mkdtemp(prefix="brig-real-", dir="/tmp"))
    work.chmod(0o755)
    cache = pathlib.Path(os.environ.get("BRIG_REAL_CACHE", work / "archives"))

    def make(release):
        try:
            return releases.make(release, work, cache)
        except Exception as e:
            return e

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        made = dict(zip((r.name for r in releases.RELEASES), pool.map(make, releases.RELEASES)))
    yield made
    shutil.rmtree(work, ignore_errors=True)


@pytest.fixture(scope="session")
def daemon():
    with brigd.Daemon() as d:
        yield d
