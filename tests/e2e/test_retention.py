"""A result lives for TASK_MAX_AGE from the end of its task; DELETE is at once; nothing of either is left."""
from brigd import until


def test_an_old_result_goes_with_its_logs_and_its_key(brig, repository):
    d = brig(TASK_MAX_AGE="1")
    task = d.submit(repository.takes(0), Idempotency_Key="k")
    until(lambda: d.status(task) == 404, "the result expires")
    until(lambda: not d.run_directories(), "its logs go")
    assert d.query("SELECT count(*) FROM keys") == [(0,)]
    assert d.submit(repository.takes(0), Idempotency_Key="k") != task


def test_age_counts_from_the_end(brig, repository):
    d = brig(TASK_MAX_AGE="2")
    task = d.submit(repository.takes(4))
    assert d.result(task)["status"] == "completed"


def test_what_is_old_at_start_goes_at_start(brig, repository):
    d = brig()
    task = d.submit(repository.takes(0))
    d.result(task)
    d.stop()
    d.start(TASK_MAX_AGE="1")
    until(lambda: d.status(task) == 404, "the result expires")


def test_a_running_task_that_is_deleted_leaves_nothing(brig, repository):
    d = brig()
    task = d.until_running(d.submit(repository.takes(120)))
    answer = d.call("DELETE", f"/task/{task}")
    assert (answer.status, answer.json) == (200, {"task_id": task, "deleted": True})
    assert d.run_directories() == []
    assert d.query("SELECT count(*) FROM jobs") == [(0,)]
    assert d.status(task) == 404
    assert d.call("DELETE", f"/task/{task}").status == 404
