"""The host library from the tree against one daemon."""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "python"))

import brigd  # noqa: E402
from brig.rlm import Session  # noqa: E402


@pytest.fixture(scope="module")
def rlm_url():
    with brigd.Daemon() as d:
        yield f"http://{d.host}:{d.port}"


@pytest.fixture
def session(rlm_url):
    with Session(rlm_url) as s:
        yield s
