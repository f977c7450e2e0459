"""With one place to run in: what happens to those who wait."""
import shutil

import pytest
from brigd import Daemon, Repository


@pytest.fixture(scope="module")
def one():
    with Daemon(BRIG_QUEUE_RUNNING_MAX="1", BRIG_QUEUE_QUEUED_MAX="3") as d:
        yield d


@pytest.fixture
def blocker(one):
    repository = Repository(one.top / "blocker")
    task = one.submit(repository.request(test_command="sleep 1000"))
    yield lambda: one.call("DELETE", f"/task/{task}")
    one.call("DELETE", f"/task/{task}")
    shutil.rmtree(repository.path)


def test_a_repository_that_went_meanwhile_is_unreachable(one, blocker):
    gone = Repository(one.top / "gone")
    task = one.submit(gone.request())
    assert one.call("GET", f"/task/{task}").json["status"] == "pending"
    shutil.rmtree(gone.path)
    blocker()
    record = one.result(task)
    assert record["outcome"] == "infra_error" and record["error"]["code"] == "repo_unreachable", record


def test_a_full_queue_says_when_to_come_back(one, blocker):
    repository = Repository(one.top / "many")
    tasks = [one.submit(repository.request(test_command="true")) for _ in range(3)]
    answer = one.call("POST", "/task/submit", repository.request())
    assert answer.status == 503 and answer.json["code"] == "queue_full" and int(answer.headers["Retry-After"]) > 0, answer
    refused = one.call("POST", "/task/batch", {"tasks": [repository.request()]})
    assert refused.status == 202 and refused.json["tasks"][0]["code"] == "queue_full"
    blocker()
    assert [one.result(t)["outcome"] for t in tasks] == ["resolved"] * 3
    assert one.result(tasks[2])["timing"]["queued_ms"] > 0


def test_priority_goes_first(one, blocker):
    repository = Repository(one.top / "ranked")
    low = one.submit(repository.request(test_command="date +%s%N", priority=-5))
    high = one.submit(repository.request(test_command="date +%s%N", priority="7"))
    blocker()
    assert int(one.result(high)["stdout"]) < int(one.result(low)["stdout"])
