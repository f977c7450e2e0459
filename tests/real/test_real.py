"""Each pair of releases: resolved with the gold patch, not without it, not with half of it; and nothing held against an honest patch."""
import pytest

import releases


@pytest.fixture(params=[r.name for r in releases.RELEASES])
def task(request, tasks):
    made = tasks[request.param]
    if isinstance(made, Exception):
        raise made
    return made


def score(daemon, task, patch):
    request = {
        "repo_url": str(task.repo), "base_commit": task.commit, "patch": patch.decode("utf-8", "surrogateescape"),
        "test_patch": task.test_patch.decode("utf-8", "surrogateescape"), "test_framework": "pytest", "test_command": task.command,
        "fail_to_pass": task.fail_to_pass, "pass_to_pass": task.pass_to_pass, "env": {"PYTHONPATH": task.pythonpath},
    }
    return daemon.result(daemon.submit(request), 300)


def wrong(record):
    """What to look at when a verdict surprises."""
    return {k: record[k] for k in ("outcome", "error", "patch_applied", "patch_rung", "test_patch_applied", "exit_code", "integrity", "report_channel")} | {
        "failure": [(i, record["tests"].get(i)) for i in (record["fail_to_pass"]["failure"] + record["pass_to_pass"]["failure"])[:10]],
        "stdout": record["stdout"][-1500:], "stderr": record["stderr"][-1500:]}


def test_the_gold_patch_resolves(daemon, task):
    record = score(daemon, task, task.patch)
    assert record["outcome"] == "resolved" and record["resolved"] is True, wrong(record)
    assert record["report_channel"] == "private", wrong(record)
    assert record["integrity"] == {"verdict": "clean", "findings": []}, wrong(record)


def test_without_a_patch_it_is_unresolved(daemon, task):
    record = score(daemon, task, b"")
    assert record["outcome"] == "unresolved" and record["resolved"] is False, wrong(record)
    assert sorted(record["fail_to_pass"]["failure"]) == sorted(task.fail_to_pass), wrong(record)
    assert record["pass_to_pass"]["failure"] == [], wrong(record)


def test_half_of_the_gold_patch_is_unresolved(daemon, task):
    record = score(daemon, task, task.half)
    assert record["patch_applied"] is True, wrong(record)
    assert record["outcome"] == "unresolved" and record["resolved"] is False, wrong(record)
