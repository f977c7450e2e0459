"""One daemon for all tests of the executor's surface, and a small repository with one failing test."""
import os
import pathlib
import subprocess

import pytest
from brigd import BRIG, Daemon, Repository


@pytest.fixture(scope="session")
def daemon():
    with Daemon() as d:
        yield d


@pytest.fixture(scope="session")
def repository(daemon):
    return Repository(daemon.top / "repo")


@pytest.fixture(scope="session")
def document_fields():
    """The table of fields as the program prints it from the tables that decode them."""
    build = pathlib.Path(os.environ.get("BRIG_BUILD", pathlib.Path(BRIG).parent))
    return subprocess.run([build / "tests" / "unit" / "document-fields"], check=True, capture_output=True, text=True).stdout
