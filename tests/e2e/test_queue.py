"""Which task is next, and what happens when too many ask."""
import time

from brigd import until


def run_in_order(d, repository, requests):
    """Ids of the requests in the order in which they ended; a first task holds the only place until all are queued."""
    holder = d.until_running(d.submit(repository.held()))
    tasks = [d.submit(r) for r in requests]
    d.let_end(1)
    for task in tasks:
        d.result(task)
    order = d.ended_order()
    assert order[0] == holder
    return [tasks.index(task) for task in order[1:]]


def test_one_tenants_tasks_run_in_order(brig, repository):
    d = brig(BRIG_QUEUE_RUNNING_MAX="1")
    assert run_in_order(d, repository, [repository.takes(0)] * 4) == [0, 1, 2, 3]


def test_priority_goes_first(brig, repository):
    d = brig(BRIG_QUEUE_RUNNING_MAX="1")
    requests = [repository.takes(0, priority=p) for p in (0, -5, 10, 0)]
    assert run_in_order(d, repository, requests) == [2, 0, 3, 1]


def test_tenants_take_turns(brig, repository):
    d = brig(BRIG_QUEUE_RUNNING_MAX="1")
    requests = [repository.takes(0, labels={"tenant": t}) for t in "aaabbc"]
    assert run_in_order(d, repository, requests) == [0, 3, 5, 1, 4, 2]


def test_a_full_queue_answers_503_with_retry_after(brig, repository):
    d = brig("--drain-grace=0", BRIG_QUEUE_RUNNING_MAX="1", BRIG_QUEUE_QUEUED_MAX="1")
    d.until_running(d.submit(repository.takes(60)))
    queued = d.submit(repository.takes(0))
    refused = d.call("POST", "/task/submit", repository.request())
    assert refused.status == 503 and refused.json["code"] == "queue_full"
    assert int(refused.headers["Retry-After"]) > 0
    assert d.call("DELETE", f"/task/{queued}").status == 200
    d.submit(repository.takes(0))          # there is room again


def test_no_more_run_than_the_setting_says(brig, repository):
    d = brig("--drain-grace=0", BRIG_QUEUE_RUNNING_MAX="2")
    tasks = [d.submit(repository.takes(60)) for _ in range(4)]
    for task in tasks[:2]:
        d.until_running(task)
    assert [d.status(task) for task in tasks] == ["running", "running", "pending", "pending"]


def test_the_wait_in_the_queue_is_reported(brig, repository):
    d = brig(BRIG_QUEUE_RUNNING_MAX="1")
    first = d.until_running(d.submit(repository.held()))
    second = d.submit(repository.takes(0))
    began = time.monotonic()
    until(lambda: time.monotonic() > began + 1, "a second has passed")
    waited_ms = (time.monotonic() - began) * 1000
    d.let_end(1)
    assert d.result(second)["timing"]["queued_ms"] >= int(waited_ms)
    assert d.result(first)["timing"]["queued_ms"] < d.result(second)["timing"]["queued_ms"]
