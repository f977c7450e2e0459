"""The Python client from the tree, and an endpoint that misbehaves on purpose."""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "python"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import fake_executor  # noqa: E402


@pytest.fixture
def executors():
    """Makes endpoints: executors() is one."""
    made = []

    def make(**behaviour):
        made.append(fake_executor.FakeExecutor(**behaviour))
        return made[-1]

    yield make
    for e in made:
        e.close()
