"""Mirrors are kept within a bound: the least recently used go, never one in use."""
import pathlib
import shutil
import tempfile

import brigd
import pytest


@pytest.fixture
def repositories():
    top = pathlib.Path(tempfile.mkdtemp(prefix="brig-repo-", dir="/tmp"))
    top.chmod(0o755)
    yield [brigd.Repository(top / name) for name in ("a", "b", "c")]
    shutil.rmtree(top, ignore_errors=True)


def mirrors(d):
    """Names of the mirrors on disk, quarantines left out."""
    return {path.parent.name for path in (d.home / "mirrors").glob("*/repo.git")}


def score(d, repository, **more):
    record = d.result(d.submit(repository.request(test_command="true", **more)))
    assert record["status"] == "completed", record


def test_beyond_the_bound_the_least_recently_used_mirror_goes_and_comes_back(brig, repositories):
    a, b, c = repositories
    d = brig()
    score(d, a)
    of_a = mirrors(d)
    size = int((d.home / "trees" / f"{next(iter(of_a))}.size").read_text()) * 1024
    assert size > 0
    d.stop()
    d.start(BRIG_STORE_MIRROR_CACHE=str(size * 5 // 2))    # two fit
    score(d, b)
    of_b = mirrors(d) - of_a
    score(d, a, repo_path="/another/place")                # a was used last
    score(d, c)
    brigd.until(lambda: not mirrors(d) & of_b, "the mirror of b goes")
    assert of_a < mirrors(d) and len(mirrors(d)) == 2
    score(d, b, repo_path="/another/place")                # and is made again when it is asked for
    assert of_b < mirrors(d)


def test_a_bound_too_small_for_any_mirror_harms_no_task(brig, repositories):
    d = brig(BRIG_STORE_MIRROR_CACHE="1")
    tasks = [d.submit(r.request(test_command="true", repo_path=f"/place/{i}")) for i in range(2) for r in repositories]
    assert [d.result(t)["status"] for t in tasks] == ["completed"] * 6
    brigd.until(lambda: not mirrors(d), "all mirrors go")
