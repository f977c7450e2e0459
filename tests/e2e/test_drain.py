"""SIGTERM: what runs may end, what does not end is run again, the exit status is 0."""
import concurrent.futures
import signal

from brigd import until


def test_what_runs_ends_within_the_grace_and_new_work_is_refused(brig, repository):
    d = brig("--drain-grace=600")
    task = d.until_running(d.submit(repository.held()))
    d.process.send_signal(signal.SIGTERM)
    refused = until(lambda: (a := d.call("POST", "/task/submit", repository.request())).status == 503 and a, "submissions are refused")
    assert "Retry-After" in refused.headers
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        answer = pool.submit(d.result, task)            # HTTP still answers
        d.let_end(1)
        assert answer.result()["status"] == "completed"
    assert d.wait() == 0
    d.start()
    assert d.result(task)["status"] == "completed"


def test_after_the_grace_what_runs_is_stopped_and_runs_again_at_the_next_start(brig, repository):
    d = brig("--drain-grace=0")
    task = d.until_running(d.submit(repository.held()))
    for _ in range(3):                     # more often than a crash would be forgiven
        d.stop()
        d.start("--drain-grace=0")
        d.until_running(task)
    d.let_end(1)
    assert d.result(task)["status"] == "completed"


def test_queued_tasks_wait_for_the_next_start(brig, repository):
    d = brig(BRIG_QUEUE_RUNNING_MAX="1")
    first = d.until_running(d.submit(repository.takes(1)))
    second = d.submit(repository.takes(0))
    d.stop()
    assert d.query(f"SELECT state FROM jobs WHERE id='{first}'") == [(2,)]
    assert d.query(f"SELECT state FROM jobs WHERE id='{second}'") == [(0,)]
    d.start()
    assert d.result(second)["status"] == "completed"


def test_an_idle_daemon_stops_on_either_signal(brig):
    for sig in signal.SIGTERM, signal.SIGINT:
        d = brig()
        assert d.end(sig) == 0
        d.assert_nothing_left()


def test_a_second_signal_does_not_wait(brig, repository):
    d = brig("--drain-grace=600")
    d.until_running(d.submit(repository.takes(120)))
    d.process.send_signal(signal.SIGTERM)
    until(lambda: d.call("POST", "/task/submit", repository.request()).status == 503, "the drain has begun")
    assert d.end(signal.SIGTERM) == 128 + signal.SIGTERM
    d.assert_nothing_left()
