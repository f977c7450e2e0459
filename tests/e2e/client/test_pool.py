"""Pools of endpoints: where work goes, and what happens when an endpoint fails."""
import asyncio
import signal
import threading

import brigd
import pytest

from brig import AsyncPool, Pool, TaskExecutorError

SPEC = {"test_command": "x"}


def closed_port():
    import socket
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{s.getsockname()[1]}"


def test_a_pool_over_two_daemons_scores_in_order(brig, repository):
    urls = [f"http://127.0.0.1:{brig().port}" for _ in range(2)]
    seen = []
    with Pool(urls) as pool:
        specs = [repository.request(test_command=f"exit {i}") for i in range(8)]
        results = list(pool.map(specs, progress=lambda done, total, r: seen.append((done, total))))
    assert [r["exit_code"] for r in results] == list(range(8))
    assert seen == [(i, 8) for i in range(1, 9)]


def test_endpoints_come_from_the_environment(executors, monkeypatch):
    e = executors()
    monkeypatch.setenv("DOCKYARD_SANDBOX_URLS", f" {e.url}/ ,")
    with Pool() as pool:
        assert pool.run_task(SPEC)["exit_code"] == 0
        assert [s["url"] for s in pool.status()] == [e.url]
    monkeypatch.setenv("DOCKYARD_SANDBOX_URLS", "")
    with pytest.raises(ValueError, match="BRIG_URLS"):
        Pool()


def test_work_goes_where_there_is_room(executors):
    small, large = executors(slots=1), executors(slots=3)
    for e in (small, large):
        e.gate.clear()
    with Pool([small.url, large.url]) as pool:
        brigd.until(lambda: [s["capacity"] for s in pool.status()] == [2, 6], "the endpoints say what they run")
        futures = [pool.submit(SPEC) for _ in range(20)]
        brigd.until(lambda: (len(small.tasks), len(large.tasks)) == (2, 6), "both are full")
        small.gate.set(), large.gate.set()
        assert all(f.result(30)["exit_code"] == 0 for f in futures)
    assert small.running_most <= 2 and large.running_most <= 6


def test_max_in_flight_bounds_the_whole_pool(executors):
    e, other = executors(), executors()
    with Pool([e.url, other.url], max_in_flight=3) as pool:
        assert len([r for r in pool.map([SPEC] * 30) if r["exit_code"] == 0]) == 30
    assert e.running_most + other.running_most <= 6 and max(e.running_most, other.running_most) <= 3


def test_an_endpoint_that_is_down_gets_nothing(executors):
    e = executors()
    with Pool([closed_port(), e.url]) as pool:
        assert all(r["exit_code"] == 0 for r in pool.map([SPEC] * 10))
        brigd.until(lambda: [s["well"] for s in pool.status()] == [False, True], "one is known to be down")
    assert len(e.tasks) == 10


def test_an_endpoint_that_is_full_is_rested_and_another_does_the_work(executors):
    full, e = executors(refuse=(503, {"error": "queue full", "code": "queue_full"})), executors()
    with Pool([full.url, e.url]) as pool:
        assert all(r["exit_code"] == 0 for r in pool.map([SPEC] * 10))
    assert len(e.tasks) == 10


def test_work_that_an_endpoint_forgot_is_given_to_another(executors):
    forgetful, e = executors(forgets=True), executors()
    with Pool([forgetful.url, e.url]) as pool:
        assert all(r["exit_code"] == 0 for r in pool.map([SPEC] * 10))


def test_a_record_that_blames_the_infrastructure_is_tried_elsewhere(executors):
    record = {"status": "failed", "exit_code": -1, "error": {"code": "disk_full", "message": "no space"}}
    broken, e = executors(record=record), executors()
    with Pool([broken.url, e.url]) as pool:
        assert all(r["exit_code"] == 0 for r in pool.map([SPEC] * 6))
    with Pool([broken.url], attempts=2) as pool:
        assert pool.run_task(SPEC)["error"]["code"] == "disk_full"  # nobody could do better: the record is the answer


def test_a_record_that_blames_the_task_is_the_answer(executors):
    record = {"status": "failed", "exit_code": -1, "error": {"code": "commit_not_found", "message": "?"}}
    a, b = executors(record=record), executors(record=record)
    with Pool([a.url, b.url]) as pool:
        assert pool.run_task(SPEC)["error"]["code"] == "commit_not_found"
    assert len(a.tasks) + len(b.tasks) == 1


def test_a_refusal_is_not_retried(executors):
    a, b = (executors(refuse=(400, {"error": "Missing required fields: ['repo_url']"})) for _ in range(2))
    with Pool([a.url, b.url]) as pool:
        with pytest.raises(TaskExecutorError, match="repo_url"):
            pool.run_task(SPEC)
        outcome, = pool.map([SPEC])
        assert isinstance(outcome, TaskExecutorError) and outcome.status == 400
    assert len(a.paths("POST")) + len(b.paths("POST")) == 2


def test_a_daemon_that_dies_loses_no_work(brig, repository):
    dying, other = brig(), brig()
    with Pool([f"http://127.0.0.1:{d.port}" for d in (dying, other)], attempts=5) as pool:
        futures = [pool.submit(repository.request(test_command="sleep 0.3; exit 7")) for _ in range(8)]
        brigd.until(lambda: dying.rows() > 0, "it has work")
        dying.end(signal.SIGKILL)
        dying.start()  # on another port: to the pool it stays dead
        assert [f.result(120)["exit_code"] for f in futures] == [7] * 8


def test_closing_a_pool_cancels_what_runs(executors):
    e = executors()
    e.gate.clear()
    pool = Pool([e.url])
    futures = [pool.submit(SPEC) for _ in range(3)]
    brigd.until(lambda: len(e.tasks) == 3, "all are submitted")
    pool.close()
    assert all(f.cancelled() for f in futures) and sorted(e.deleted) == ["task-0", "task-1", "task-2"]


def test_closing_a_pool_cancels_what_is_being_submitted(executors):
    """The endpoint has the task, its answer has not come."""
    e = executors()
    e.answered.clear()
    e.gate.clear()
    pool = Pool([e.url])
    future = pool.submit(SPEC)
    brigd.until(lambda: len(e.tasks) == 1, "it is submitted")
    pool.close()
    assert future.cancelled() and e.deleted == ["task-0"] and len(e.tasks) == 1


def test_leaving_a_loop_over_completions_cancels_the_rest(executors):
    quick, slow = executors(), executors()
    slow.gate.clear()

    async def first_only():
        async with AsyncPool([quick.url, slow.url], per_endpoint=1) as pool:
            results = pool.as_completed([SPEC] * 2)
            async for index, result in results:
                assert result["exit_code"] == 0
                break
            await results.aclose()

    asyncio.run(first_only())
    assert len(slow.deleted) == len(slow.tasks) == 1


@pytest.mark.parametrize("arguments", [{"per_endpoint": 0}, {"max_in_flight": 0}, {"attempts": 0}])
def test_bounds_are_at_least_one(arguments):
    with pytest.raises(ValueError, match="at least 1"):
        Pool(["http://h:1"], **arguments)


def test_threads_share_a_pool(executors):
    e = executors()
    results = []
    with Pool([e.url]) as pool:
        threads = [threading.Thread(target=lambda: results.append(pool.run_task(SPEC)["exit_code"])) for _ in range(8)]
        [t.start() for t in threads]
        [t.join(30) for t in threads]
    assert results == [0] * 8
