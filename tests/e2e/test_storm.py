"""Many tasks, deletions at any moment, a daemon that is killed twice: every one ends in a record, or was deleted."""
import random

from brigd import until

TASKS = 200


def test_a_storm_of_tasks_deletes_and_kills_ends_in_one_record_each(brig, repository):
    chance = random.Random(7)
    d = brig(BRIG_QUEUE_RUNNING_MAX="8")
    answer = d.call("POST", "/task/batch", {"tasks": [repository.takes("0.0%d" % (i % 3)) for i in range(TASKS)]})
    assert answer.status == 202
    tasks = [t["task_id"] for t in answer.json["tasks"]]
    assert len(set(tasks)) == TASKS
    doomed = chance.sample(tasks, 60)
    deleted = set()
    for kill in range(3):
        for task in doomed[kill * 20:kill * 20 + 20]:
            assert d.call("DELETE", f"/task/{task}").status == 200
            deleted.add(task)
        if kill < 2:
            done = 10 * (kill + 1)
            until(lambda: d.query("SELECT count(*) FROM jobs WHERE state=2")[0][0] >= done, "some have ended")
            d.kill()                       # asserts that nothing is left on the machine
            d.start("--drain-grace=0")
    kept = [t for t in tasks if t not in deleted]
    until(lambda: d.query("SELECT count(*) FROM jobs WHERE state<>2") == [(0,)], "all have ended", 120)
    for task in kept:
        record = d.result(task, 1)
        assert record["outcome"] in ("resolved", "infra_error"), record
        if record["outcome"] == "infra_error":
            assert record["error"]["code"] == "interrupted", record
    for task in deleted:
        assert d.call("GET", f"/task/{task}").status == 404
    assert d.query("SELECT count(*) FROM records") == [(len(kept),)]
    assert d.rows() == len(kept)
    assert not deleted & set(d.run_directories())
