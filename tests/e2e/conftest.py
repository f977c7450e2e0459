"""Fixtures of the end-to-end tests: see brigd.py."""
import os
import pathlib
import shutil
import sys
import tempfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import brigd  # noqa: E402


def pytest_configure(config):
    """One place for all workers, who inherit its name: see Daemon.take_skeleton."""
    if "BRIG_E2E_SKELETONS" not in os.environ:
        config.skeletons = os.environ["BRIG_E2E_SKELETONS"] = tempfile.mkdtemp(prefix="brig-skeletons-", dir="/tmp")


def pytest_unconfigure(config):
    if hasattr(config, "skeletons"):
        shutil.rmtree(config.skeletons, ignore_errors=True)


@pytest.fixture(scope="session")
def repository():
    """Outside every home, readable by the daemon's user."""
    top = pathlib.Path(tempfile.mkdtemp(prefix="brig-repo-", dir="/tmp"))
    top.chmod(0o755)
    yield brigd.Repository(top / "repo")
    shutil.rmtree(top, ignore_errors=True)


@pytest.fixture
def brig():
    """Makes daemons: brig(VARIABLE="value") starts one; all are stopped, and checked, at the end."""
    made = []

    def make(*flags, start=True, top=None, **variables):
        d = brigd.Daemon(top, **variables)
        made.append(d)
        return d.start(*flags) if start else d

    yield make
    failures = []
    for d in made:
        try:
            d.__exit__(None)
        except AssertionError as e:
            failures.append(str(e))
    assert not failures, failures
