"""One daemon and small repositories, for the tests of scoring."""
import pathlib
import shutil
import sys
import tempfile

import brigd
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from score_project import ADD, CALC, GOLD, PYTEST, ZERO, Project  # noqa: E402


@pytest.fixture(scope="session")
def scorer():
    with brigd.Daemon() as d:
        yield d


@pytest.fixture(scope="session")
def place():
    """Readable by the daemon's user."""
    top = pathlib.Path(tempfile.mkdtemp(prefix="brig-score-", dir="/tmp"))
    top.chmod(0o755)
    yield top
    shutil.rmtree(top, ignore_errors=True)


@pytest.fixture
def project(place):
    """project(files) makes a repository."""
    def make(files):
        return Project(pathlib.Path(tempfile.mkdtemp(prefix="r", dir=place)) / "repo", files)

    def readable(files):
        made = make(files)
        made.path.parent.chmod(0o755)
        return made
    return readable


@pytest.fixture(scope="session")
def calc(place):
    return Project(place / "calc", CALC)


@pytest.fixture
def score(scorer):
    """score(project, ...) is the record."""
    def run(where, *args, **more):
        return scorer.result(scorer.submit(where.request(*args, **more)))
    return run


@pytest.fixture
def attack(score, calc):
    """The record of a patch that does not mend the bug but does what `files` do; everything else is as it should be. Never resolved."""
    def run(files, gold=GOLD, command=f"{PYTEST} {ADD} {ZERO}", **more):
        record = score(calc, files, gold, test_command=command, fail_to_pass=[ADD], pass_to_pass=[ZERO], **more)
        assert record["resolved"] is False and record["status"] == "completed", record
        return record
    return run
