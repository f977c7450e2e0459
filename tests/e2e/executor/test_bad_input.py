"""Whatever a field holds that it must not hold: a 400 that names the field, and nothing is kept of the request."""
import json

import pytest

TOO_LONG_NAME = "x" * 5000
TEXT = [1, 1.5, True, [], {}, "\0"]
SECONDS = ["x", "", 0, -1, 1.5, True, [], {}, 10**30, 1e300]
LIST = [1, True, {}, "x", [1], [None], [[]], ["\0"], ["x" * 70000]]
PATHS = [*LIST, ["/abs"], ["../x"], ["a//b"], [""]]

BAD = {
    "mode": [1, True, [], {}, "", "fork", "\0"],
    "repo_url": [*TEXT, "-x", "ext::sh -c true", "http://x/\n", "ftp://example.com/r", TOO_LONG_NAME],
    "test_command": TEXT,
    "base_commit": [*TEXT, "-x", "a b", "a\nb", TOO_LONG_NAME],
    "patch": TEXT,
    "test_patch": TEXT,
    "timeout": SECONDS,
    "lint_command": TEXT,
    "capture_diff": [1, "true", [], {}],
    "reference_patch": TEXT,
    "fail_to_pass": LIST,
    "pass_to_pass": LIST,
    "test_framework": [*TEXT, "nosuch"],
    "run": [1, True, [], "all"],
    "image": [*TEXT, "-x", "a\nb", "/", "/a/../b", "/a//b", "a//b:1", "a b", ":1", TOO_LONG_NAME],
    "pull_timeout": SECONDS,
    "repo_path": [*TEXT, "x", "/", "/a/../b", "/proc/x", "/dev", TOO_LONG_NAME],
    "tree": [1, True, [], {}, "", "x", "\0"],
    "setup_command": TEXT,
    "setup_network": [1, True, "some", {}, ["a b"]],
    "setup_timeout": SECONDS,
    "env": [1, True, [], "x", {"A": 1}, {"A": None}, {"": "x"}, {"A=B": "x"}, {"1": "x"}, {"A": "\0"}, {"A": "x" * 200000}],
    "user": [-1, 65536, 1.5, True, [], "nobody", "1:", "1:2:3", "\0"],
    "network": [1, True, "some", "allow", {}, {"allow": "a.b"}, [1], ["http://a.b"], ["10.0.0.1/8"], ["a.b"] * 257],
    "limits": [1, True, [], "x", {"memory_mb": 0}, {"memory_mb": "x"}, {"cpus": -1}, {"cpus": "x"}, {"pids": -1}, {"disk_mb": 10**30},
               {"inodes": True}, {"output_bytes": 0}, {"wall_s": -5}],
    "patch_mode": [1, True, [], "lax"],
    "protect": PATHS,
    "allow_config": PATHS,
    "harness_files": [1, True, [], "x", {"a": 1}, {"a": {}}, {"a": {"b64": 1}}, {"a": {"b64": "*"}}, {"/abs": ""}, {"../x": ""}, {"a//b": ""}, {"": ""},
                      {str(i): "" for i in range(5000)}],
    "harness_mount": [*TEXT, TOO_LONG_NAME],
    "output_mount": [*TEXT, TOO_LONG_NAME],
    "entry_command": [*TEXT, "x" * 70000],
    "result_files": [*LIST, ["x"] * 300],
    "block_network": [1, "true", [], {}],
    "control": [1, True, [], "require", "x"],
    "gold_patch": [1, True, [], {}, "\0"],
    "priority": ["x", 1.5, True, [], {}, 101, -101, 10**30],
    "labels": [1, True, [], "x", {"tenant": 1}, {"a": "x" * 300}, {str(i): "" for i in range(100)}],
    "idempotency_key": [1, True, [], {}, "", "\0", "x" * 300],
}


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left(daemon, repository):
    rows, runs = daemon.rows(), daemon.run_directories()
    yield
    assert daemon.rows() == rows
    assert daemon.run_directories() == runs
    assert daemon.call("GET", "/healthz").status == 200


@pytest.mark.parametrize("field", BAD)
def test_a_bad_value_is_named(daemon, repository, field):
    for value in BAD[field]:
        answer = daemon.call("POST", "/task/submit", {**repository.request(), field: value})
        assert answer.status == 400, (value, answer)
        named = next(iter(value)) if field == "limits" and isinstance(value, dict) else field
        assert named in answer.json["error"], (value, answer)


def test_the_table_above_is_the_surfaces(document_fields):
    fields = {line.split("`")[1].split(".")[0] for line in document_fields.splitlines()[2:]}
    assert fields == set(BAD)


@pytest.mark.parametrize("field", [f for f in BAD if f not in ("repo_url", "test_command")])
def test_null_is_absence(daemon, repository, field):
    # Together with a fault elsewhere: so nothing is queued, and the null is not what is named.
    answer = daemon.call("POST", "/task/submit", {**repository.request(timeout=-1), field: None})
    assert answer.status == (202 if field == "timeout" else 400), answer
    if field == "timeout":
        assert daemon.call("DELETE", f"/task/{answer.json['task_id']}").status == 200
    else:
        assert "'timeout'" in answer.json["error"]


@pytest.mark.parametrize("body", [b"", b"x", b"[]", b"null", b'"x"', b"{", b"{'a':1}", b'{"a":1} {}', b'{"repo_url":"\xff"}', b"\xff\xfe{}",
                                  b'{"repo_url":"https://example.com/r","test_command":"y","n":1e999}', b"[" * 100000],
                         ids=lambda b: repr(b[:20]))
def test_a_body_must_be_an_object(daemon, body):
    for path in ("/task/submit", "/task/batch"):
        answer = daemon.call("POST", path, body)
        if path == "/task/batch" and b"1e999" in body:
            continue
        assert (answer.status, answer.json) == (400, {"error": "Request body must be valid JSON"}), (path, answer)


@pytest.mark.parametrize("request_, missing", [
    ({}, "['repo_url', 'test_command']"),
    ({"repo_url": "", "test_command": ""}, "['repo_url', 'test_command']"),
    ({"repo_url": None, "test_command": "x"}, "['repo_url']"),
    ({"repo_url": "x"}, "['test_command']"),
    ({"repo_url": "x", "fail_to_pass": []}, "['test_command']"),
])
def test_missing_fields_are_listed(daemon, request_, missing):
    answer = daemon.call("POST", "/task/submit", request_)
    assert (answer.status, answer.json) == (400, {"error": f"Missing required fields: {missing}"})


@pytest.mark.parametrize("fields", [{"test_framework": "cargo"}, {"fail_to_pass": ["weird"]}])
def test_what_no_command_can_be_built_from_is_refused(daemon, repository, fields):
    answer = daemon.call("POST", "/task/submit", repository.request(test_command=None, **fields))
    assert answer.status == 400 and "'test_command'" in answer.json["error"], answer


def test_the_content_type_does_not_matter(daemon):
    for kind in ("text/plain", "application/x-www-form-urlencoded", "nonsense"):
        answer = daemon.call("POST", "/task/submit", {}, {"Content-Type": kind})
        assert answer.json["error"].startswith("Missing required fields")


def test_what_is_huge_is_refused(daemon, repository):
    for field in ("patch", "test_command", "repo_url"):
        answer = daemon.call("POST", "/task/submit", {**repository.request(), field: "x" * (129 << 20)})
        assert answer.status == 400 and f"'{field}'" in answer.json["error"], answer
    answer = daemon.call("POST", "/task/submit", {**repository.request(), "fail_to_pass": ["x"] * 50001})
    assert answer.status == 400 and "'fail_to_pass'" in answer.json["error"], answer


@pytest.mark.parametrize("value", ["", "-1", "x", "1s", "1e3", "nan"])
def test_wait_is_seconds(daemon, value):
    answer = daemon.call("GET", f"/task/00000000-0000-4000-8000-000000000000/result?wait={value}")
    assert (answer.status, answer.json) == (400, {"error": "Invalid value for 'wait': expected seconds"})


@pytest.mark.parametrize("task", ["x", "00000000-0000-4000-8000-000000000000", "..%2f..", "%00", "a" * 1000, "%ff"])
@pytest.mark.parametrize("method, rest", [("GET", ""), ("GET", "/result"), ("DELETE", ""), ("GET", "/log"), ("GET", "/log/stdout")])
def test_an_unknown_task_is_404(daemon, task, method, rest):
    answer = daemon.call(method, f"/task/{task}{rest}")
    assert answer.status in (404, 400), answer
    if task[0] in "x0a":
        assert (answer.status, answer.json) == (404, {"error": "Task not found"})


@pytest.mark.parametrize("tasks", [None, {}, 7, "x", [{}] * 1001])
def test_a_batch_needs_a_list(daemon, tasks):
    answer = daemon.call("POST", "/task/batch", {"tasks": tasks})
    assert answer.status == 400 and "tasks" in answer.json["error"], answer


def test_the_key_in_the_header_is_checked(daemon, repository):
    for key in ("", "x" * 300):
        answer = daemon.call("POST", "/task/submit", repository.request(), {"Idempotency-Key": key})
        assert answer.status == 400 and "Idempotency-Key" in answer.json["error"], answer
    answer = daemon.call("POST", "/task/submit", repository.request(idempotency_key="a"), {"Idempotency-Key": "b"})
    assert answer.status == 400 and "idempotency_key" in answer.json["error"], answer


def test_duplicate_members_are_judged_by_the_last(daemon):
    answer = daemon.call("POST", "/task/submit", json.dumps({"repo_url": "x", "test_command": "y", "timeout": 5})[:-1].encode() + b',"timeout":-1}')
    assert answer.status == 400 and "'timeout'" in answer.json["error"]
