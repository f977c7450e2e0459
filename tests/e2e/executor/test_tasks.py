"""A task through the executor's calls: from its 202 to its record."""
import concurrent.futures
import time
import uuid

import pytest

KEYS = {
    "task_id", "status", "mode", "repo_url", "base_commit", "test_command", "image", "timeout", "exit_code", "stdout", "stderr", "tests_passed",
    "tests_failed", "lint_errors", "lint_output", "patch_diff", "patch_similarity", "execution_time", "patch_applied", "test_patch_applied",
    "result_files", "outcome", "limits_hit", "integrity", "error", "reason", "resolved", "timed_out", "tests", "fail_to_pass", "pass_to_pass", "unverified",
    "flaky", "cached", "patch_rung", "restored", "framework", "report_route", "report_channel", "usage", "timing", "log_url", "evidence", "provenance",
}


def test_the_right_patch_resolves(daemon, repository):
    task = daemon.submit(repository.request(patch=repository.right_patch, fail_to_pass=["test_calc.py::test_add"],
                                            pass_to_pass=["test_calc.py::test_double"]))
    assert str(uuid.UUID(task)) == task
    record = daemon.result(task)
    assert record["outcome"] == "resolved" and record["resolved"] is True, record
    assert (record["status"], record["exit_code"]) == ("completed", 0)
    assert (record["tests_passed"], record["tests_failed"]) == (2, 0)
    assert record["fail_to_pass"] == {"success": ["test_calc.py::test_add"], "failure": []}
    assert record["report_channel"] == "private"
    assert daemon.call("GET", f"/task/{task}").json == {"task_id": task, "status": "completed"}


def test_without_the_patch_it_does_not(daemon, repository):
    record = daemon.result(daemon.submit(repository.request(fail_to_pass=["test_calc.py::test_add"])))
    assert (record["outcome"], record["status"], record["exit_code"]) == ("unresolved", "completed", 1)
    assert record["tests"]["test_calc.py::test_add"] == "failed"


def test_every_record_has_every_key(daemon, repository):
    good = daemon.submit(repository.request())
    bad = daemon.submit(repository.request(base_commit="0" * 40))
    for task in (good, bad):
        record = daemon.result(task)
        assert set(record) == KEYS
        assert set(record["usage"]) == {"wall_ms", "cpu_ms", "memory_peak_bytes", "pids_peak", "disk_bytes", "network"}
        assert set(record["timing"]) == {"queued_ms", "prepare_ms", "apply_ms", "test_ms", "report_ms"}
    assert record["outcome"] == "infra_error" and record["error"]["code"] == "commit_not_found"
    assert record["status"] == "failed" and record["exit_code"] == -1 and record["stderr"]


def test_what_was_asked_is_repeated(daemon, repository):
    record = daemon.result(daemon.submit(repository.request(timeout="77")))
    assert record["repo_url"] == repository.url and record["base_commit"] == repository.commit
    assert record["test_command"] == "python3 -m pytest -q" and record["timeout"] == 77
    assert record["mode"] == "clone" and record["image"] is None and record["result_files"] is None


def test_the_same_key_is_the_same_task(daemon, repository):
    request = repository.request(timeout=50)
    first = daemon.submit(request, Idempotency_Key="k-same")
    assert daemon.submit(request, Idempotency_Key="k-same") == first
    reordered = dict(reversed(list(request.items())), timeout=50.0)
    assert daemon.submit(reordered, Idempotency_Key="k-same") == first
    assert daemon.submit(request, Idempotency_Key="k-other") != first
    daemon.result(first)
    assert daemon.submit(request, Idempotency_Key="k-same") == first


def test_the_same_key_with_another_body_is_a_conflict(daemon, repository):
    daemon.submit(repository.request(), Idempotency_Key="k-conflict")
    answer = daemon.call("POST", "/task/submit", repository.request(timeout=51), {"Idempotency-Key": "k-conflict"})
    assert answer.status == 409 and answer.json["code"] == "idempotency_conflict", answer


def test_a_key_is_a_tenants_own(daemon, repository):
    a = daemon.submit(repository.request(labels={"tenant": "a"}, idempotency_key="k-tenant"))
    b = daemon.submit(repository.request(labels={"tenant": "b"}, idempotency_key="k-tenant"))
    assert a != b


def test_a_key_survives_deletion(daemon, repository):
    request = repository.request(idempotency_key="k-deleted")
    task = daemon.submit(request)
    assert daemon.call("DELETE", f"/task/{task}").status == 200
    assert daemon.submit(request) == task
    assert daemon.call("GET", f"/task/{task}").status == 404


def test_a_batch_answers_in_order(daemon, repository):
    answer = daemon.call("POST", "/task/batch", {"tasks": [repository.request(), {}, repository.request(mode="x"), repository.request()]})
    assert answer.status == 202
    first, missing, mode, last = answer.json["tasks"]
    assert missing == {"error": "Missing required fields: ['repo_url', 'test_command']"}
    assert mode == {"error": "Unsupported mode: 'x'"}
    assert first["status"] == last["status"] == "pending" and first["task_id"] != last["task_id"]
    assert daemon.result(last["task_id"])["task_id"] == last["task_id"]


def test_waiting_answers_when_the_task_ends(daemon, repository):
    task = daemon.submit(repository.request(test_command="sleep 2"))
    began = time.monotonic()
    answer = daemon.call("GET", f"/task/{task}/result?wait=100")
    assert answer.status == 200 and answer.json["outcome"] == "resolved", answer
    assert time.monotonic() - began < 60


def test_waiting_ends_with_the_time(daemon, repository):
    task = daemon.submit(repository.request(test_command="sleep 100"))
    answer = daemon.call("GET", f"/task/{task}/result?wait=0.3")
    assert answer.status == 202
    assert answer.json["message"] == "Task not yet complete — poll again shortly"
    assert answer.json["status"] in ("pending", "running")
    assert daemon.call("DELETE", f"/task/{task}").json == {"task_id": task, "deleted": True}


def test_a_waiter_learns_of_the_deletion(daemon, repository):
    task = daemon.submit(repository.request(test_command="sleep 100"))
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = pool.submit(daemon.call, "GET", f"/task/{task}/result?wait=60")
        time.sleep(0.2)   # so that it waits; if it has not yet, it is 404 as well
        assert daemon.call("DELETE", f"/task/{task}").status == 200
        assert waiting.result(60).status == 404


def wait_until_running(daemon, task):
    deadline = time.monotonic() + 60
    while daemon.call("GET", f"/task/{task}").json["status"] != "running":
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("running", [False, True], ids=["at once", "running"])
def test_deletion_leaves_nothing(daemon, repository, running):
    task = daemon.submit(repository.request(test_command="sleep 1000"))
    if running:
        wait_until_running(daemon, task)
    assert daemon.call("DELETE", f"/task/{task}").json == {"task_id": task, "deleted": True}
    assert task not in daemon.run_directories()
    for rest in ("", "/result", "/log/stdout"):
        assert daemon.call("GET", f"/task/{task}{rest}").status == 404
    assert daemon.call("DELETE", f"/task/{task}").status == 404


def test_deletion_of_a_finished_task(daemon, repository):
    task = daemon.submit(repository.request())
    daemon.result(task)
    assert daemon.call("DELETE", f"/task/{task}").status == 200
    assert daemon.call("GET", f"/task/{task}/result").status == 404


def test_the_whole_output_is_downloaded(daemon, repository):
    task = daemon.submit(repository.request(test_command="yes 0123456789 | head -c 5000000; echo done >&2"))
    record = daemon.result(task)
    assert len(record["stdout"]) < 5000000
    assert record["log_url"] == f"/task/{task}/log"
    index = daemon.call("GET", record["log_url"]).json
    assert index["stdout"]["bytes"] == 5000000
    assert daemon.call("GET", index["stdout"]["url"]).body == (b"0123456789\n" * 454546)[:5000000]
    assert daemon.call("GET", index["stderr"]["url"]).body == b"done\n"


def test_bytes_that_are_not_utf8_are_carried(daemon, repository):
    task = daemon.submit(repository.request(test_command=r"printf 'a\377b\n'"))
    record = daemon.result(task)
    assert record["outcome"] == "resolved" and record["stdout"] == "a\ufffdb\n"
    assert daemon.call("GET", f"/task/{task}/log/stdout").body == b"a\xffb\n"


def test_activity_is_logged_without_secrets(daemon, repository):
    secret = "s3cr3t-of-the-url"
    task = daemon.submit(repository.request(repo_url=f"https://user:{secret}@127.0.0.1:1/r.git", env={"TOKEN": "s3cr3t-of-env"}))
    record = daemon.result(task)
    assert record["outcome"] == "infra_error" and record["error"]["code"] == "repo_unreachable", record
    assert secret not in str(record)
    daemon.call("DELETE", f"/task/{task}")
    log = next(daemon.home.rglob("task_executor.log")).read_text()
    lines = [line for line in log.splitlines() if task in line]
    assert any("task.submitted" in line for line in lines) and any("task.finished" in line for line in lines)
    assert any("task.deleted" in line for line in lines)
    assert secret not in log and "s3cr3t-of-env" not in log and secret not in daemon.stderr()


def test_unknown_fields_are_ignored(daemon, repository):
    record = daemon.result(daemon.submit(repository.request(harness_files={}, whatever=[1, {"a": None}])))
    assert record["status"] == "completed"
