"""`brig eval`: whole benchmarks, from files as their authors write them to verdicts, a report and a page."""
import json
import os
import re
import signal
import subprocess

import pytest

import brigd
from brigd import BRIG, RIGHT, until

ADD, DOUBLE = "test_calc.py::test_add", "test_calc.py::test_double"
WRONG = RIGHT.replace("return a + b", "return a * b")


class Eval:
    """Datasets over one small repository, below the name o/calc."""

    def __init__(self, repository, top, *urls):
        self.top, self.repository, self.urls = top, repository, urls
        self.out = top / "out"
        (top / "repos" / "o").mkdir(parents=True)
        os.symlink(repository.path, top / "repos" / "o" / "calc")

    def record(self, name, **more):
        return {"instance_id": name, "repo": "o/calc", "base_commit": self.repository.commit, "patch": RIGHT, "test_patch": "", "version": "1",
                "FAIL_TO_PASS": json.dumps([ADD]), "PASS_TO_PASS": [DOUBLE], **more}

    def prediction(self, name, patch=RIGHT, **more):
        return {"instance_id": name, "model_name_or_path": "m", "model_patch": patch, **more}

    def file(self, name, content):
        path = self.top / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode() if isinstance(content, str) else json.dumps(content).encode())
        return path

    def command(self, dataset, predictions, *more):
        files = [f if isinstance(f, (os.PathLike, str)) else self.file(f"{n}.json", f) for n, f in (("dataset", dataset), ("predictions", predictions))]
        return [BRIG, "eval", "--dataset", files[0], "--predictions", files[1], "--repos", self.top / "repos", "--output", self.out, "--endpoints", ",".join(self.urls), *more]

    def raw(self, *args, **more):
        return subprocess.run(self.command(*args), capture_output=True, text=True, timeout=120, env={"PATH": os.environ["PATH"]}, **more)

    def __call__(self, *args, status=0):
        done = self.raw(*args, "-o", "json")
        assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
        self.said = done.stderr
        return json.loads(done.stdout)

    def report(self):
        return json.loads((self.out / "report.json").read_text())

    def saved(self, name):
        return json.loads((self.out / "records" / f"{name}.json").read_text())


@pytest.fixture(scope="module")
def daemon():
    with brigd.Daemon() as d:
        yield d


def url(d):
    return f"http://{d.host}:{d.port}"


@pytest.fixture
def evaluate(daemon, repository, tmp_path):
    return Eval(repository, tmp_path, url(daemon))


def test_verdicts_become_the_official_report(evaluate):
    data = [evaluate.record(n) for n in ("right", "wrong", "empty", "null", "absent", "unfit")]
    said = evaluate(data, [evaluate.prediction("right"), evaluate.prediction("wrong", WRONG), evaluate.prediction("empty", "\n"), evaluate.prediction("null", None),
                           evaluate.prediction("unfit", RIGHT.replace("return a - b", "return 7"))])
    assert evaluate.report() == {
        "total_instances": 6, "submitted_instances": 5, "completed_instances": 2, "resolved_instances": 1, "unresolved_instances": 1, "empty_patch_instances": 2, "error_instances": 1,
        "completed_ids": ["right", "wrong"], "incomplete_ids": ["absent"], "empty_patch_ids": ["empty", "null"], "submitted_ids": ["empty", "null", "right", "unfit", "wrong"],
        "resolved_ids": ["right"], "unresolved_ids": ["wrong"], "error_ids": ["unfit"], "schema_version": 2}
    assert (said["resolved"], said["total"], said["problems"]) == (1, 6, 0)
    assert evaluate.saved("unfit")["record"]["outcome"] == "patch_rejected"


@pytest.mark.parametrize("form", [lambda v: json.dumps(v), lambda v: json.dumps({r["instance_id"]: r for r in v}), lambda v: "\n".join(map(json.dumps, v)) + "\n",
                                  lambda v: "\ufeff" + "\r\n".join(map(json.dumps, v)) + "\r\n\r\n", lambda v: json.dumps(v, indent=1)],
                         ids=["list", "object", "lines", "windows", "indented"])
def test_every_form_of_a_file_is_read(evaluate, form):
    evaluate(evaluate.file("d", form([evaluate.record("a"), evaluate.record("b")])), evaluate.file("p", form([evaluate.prediction("a"), evaluate.prediction("b", WRONG)])))
    assert evaluate.report()["resolved_ids"] == ["a"] and evaluate.report()["unresolved_ids"] == ["b"]


def test_ids_are_read_as_the_benchmarks_write_them(evaluate):
    multi = {"org": "o", "repo": "calc", "number": 7, "base": {"sha": evaluate.repository.commit}, "fix_patch": RIGHT, "test_patch": "",
             "fixed_tests": {ADD: {"run": "NONE"}}, "p2p_tests": {DOUBLE: {}}}
    pro = {**evaluate.record("pro"), "fail_to_pass": f"['{ADD}']", "pass_to_pass": f"[\"{DOUBLE}\"]"}
    del pro["FAIL_TO_PASS"], pro["PASS_TO_PASS"]
    evaluate([multi, pro], "gold")
    assert evaluate.report()["resolved_ids"] == ["o__calc-7", "pro"]
    assert list(evaluate.saved("o__calc-7")["record"]["tests"]) == [ADD, DOUBLE]


def test_a_prediction_may_be_keyed_by_id_and_be_the_patch_itself(evaluate):
    evaluate([evaluate.record("a"), evaluate.record("b")], {"a": RIGHT, "b": None})
    assert evaluate.report()["resolved_ids"] == ["a"] and evaluate.report()["empty_patch_ids"] == ["b"]


def test_what_is_broken_is_named_and_the_rest_is_run(evaluate):
    lines = [json.dumps(evaluate.record("a")), "{broken", json.dumps({"repo": "o/calc"}), json.dumps(evaluate.record("a")), "7", json.dumps(evaluate.record("list", FAIL_TO_PASS="x")),
             json.dumps(evaluate.record("far", repo="o/nobody")), json.dumps(evaluate.record("up", repo="../o/calc")), json.dumps(evaluate.record("b"))]
    predictions = [evaluate.prediction(n) for n in ("a", "b", "list", "far", "up", "unknown")] + [evaluate.prediction("b", WRONG)]
    said = evaluate(evaluate.file("d.jsonl", "\n".join(lines)), evaluate.file("p.jsonl", "\n".join(map(json.dumps, predictions))), status=1)
    assert evaluate.report()["resolved_ids"] == ["a", "b"] and evaluate.report()["error_ids"] == ["far", "list", "up"]
    for line, why in (("d.jsonl:2", "not JSON"), ("d.jsonl:3", "instance_id"), ("d.jsonl:4", "a second record of a (the first: line 1)"), ("d.jsonl:5", "not an object"),
                      ("d.jsonl:6", "list: 'FAIL_TO_PASS' of the record"), ("d.jsonl:7", "no repository of o/nobody"), ("d.jsonl:8", "no name for --repos"),
                      ("p.jsonl:6", "no such instance in the dataset: unknown"), ("p.jsonl:7", "a second record of b (the first: line 2)")):
        assert re.search(rf"/{re.escape(line)}: .*{re.escape(why)}", evaluate.said), (line, evaluate.said)
    assert said["problems"] == 9 and "no repository of o/nobody" in (evaluate.out / "report.html").read_text()


@pytest.mark.parametrize("dataset, why", [("", "neither JSON"), ("[{]", "neither JSON"), ("[]", "no records"), ("\ufeff".encode("utf-16"), "UTF-16"), ("3", "no records")])
def test_a_file_that_is_no_dataset_is_a_usage_error(evaluate, dataset, why):
    done = evaluate.raw(evaluate.file("d", dataset), "gold")
    assert done.returncode == 64 and f"{evaluate.top}/d" in done.stderr and why in done.stderr, done.stderr


def test_usage_errors(evaluate):
    data = evaluate.file("d", [evaluate.record("a")])
    for more, why in (((data, "gold", "--jobs", "0"), "--jobs"), ((data, "gold", "--only", "b"), "no such instance in the dataset: b"), ((evaluate.top / "none", "gold"), "none")):
        done = evaluate.raw(*more)
        assert done.returncode == 64 and why in done.stderr, (more, done.stderr)
    assert subprocess.run([BRIG, "eval", "--dataset", data], capture_output=True).returncode == 64


def test_what_has_a_verdict_is_not_run_again(evaluate, daemon):
    data, predictions = [evaluate.record(n) for n in "abc"], [evaluate.prediction(n) for n in "abc"]
    assert evaluate(data, predictions, "--only", "a", "b")["from_before"] == 0
    first = {n: evaluate.saved(n)["record"]["task_id"] for n in "ab"}
    predictions[1] = evaluate.prediction("b", WRONG)
    assert evaluate(data, predictions)["from_before"] == 1
    assert evaluate.saved("a")["record"]["task_id"] == first["a"] and evaluate.saved("b")["record"]["task_id"] != first["b"]
    assert evaluate.report()["resolved_ids"] == ["a", "c"] and evaluate.report()["unresolved_ids"] == ["b"]


def test_what_was_our_fault_is_run_again(evaluate):
    data = [evaluate.record("a", base_commit="0" * 40)]
    assert evaluate(data, "gold", status=1)["error"] == 1
    assert evaluate.saved("a")["attempt"] == 0 and evaluate.saved("a")["record"]["outcome"] == "infra_error"
    evaluate(data, "gold", status=1)
    assert evaluate.saved("a")["attempt"] == 1


def start(evaluate, *args):
    return subprocess.Popen(evaluate.command(*args), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={"PATH": os.environ["PATH"]}, start_new_session=True)


def held(evaluate, n):
    return evaluate.record("held", FAIL_TO_PASS=[], PASS_TO_PASS=[]), ["--command", f"sleep 86400.{n} || true"]


def test_an_interrupted_run_cancels_what_runs_writes_its_report_and_goes_on(evaluate, brig):
    d = brig()
    evaluate.urls = [url(d)]
    record, command = held(evaluate, 1)
    p = start(evaluate, [record], "gold", *command)
    until(lambda: d.inside("sleep", "86400.1"), "the task runs")
    p.send_signal(signal.SIGINT)
    assert p.wait(30) == 130 and "goes on" in p.stderr.read()
    until(lambda: not d.inside("sleep", "86400.1"), "the task was cancelled")
    assert evaluate.report()["error_ids"] == ["held"]
    p = start(evaluate, [record], "gold", *command)
    until(lambda: d.inside("sleep", "86400.1"), "it runs again")
    d.let_end(1)
    assert p.wait(30) == 0, p.stderr.read()


def test_a_killed_run_finds_its_task_again(evaluate, brig):
    d = brig()
    evaluate.urls = [url(d)]
    record, command = held(evaluate, 2)
    p = start(evaluate, [record], "gold", *command)
    until(lambda: d.inside("sleep", "86400.2"), "the task runs")
    p.kill()
    p.wait()
    p = start(evaluate, [record], "gold", *command)
    d.let_end(2)                       # a second task of that kind would never end
    assert p.wait(30) == 0, p.stderr.read()
    assert re.search(r"^brig_tasks_submitted_total 1$", d.call("GET", "/metrics").body.decode(), re.M)


def test_two_runs_in_one_directory_are_refused(evaluate, brig):
    d = brig()
    evaluate.urls = [url(d)]
    record, command = held(evaluate, 3)
    p = start(evaluate, [record], "gold", *command)
    until(lambda: d.inside("sleep", "86400.3"), "the task runs")
    done = evaluate.raw([record], "gold", *command)
    d.let_end(3)
    assert p.wait(30) == 0 and done.returncode == 2 and "another run is in" in done.stderr, done.stderr


def test_an_endpoint_that_is_not_there_leaves_its_work_to_the_others(evaluate, daemon):
    evaluate.urls = ["http://127.0.0.1:1", url(daemon)]
    assert evaluate([evaluate.record(n) for n in "abcd"], "gold", "--jobs", "4")["resolved"] == 4


def test_no_endpoint_is_our_fault_before_anything_runs(evaluate):
    evaluate.urls = ["http://127.0.0.1:1"]
    done = evaluate.raw([evaluate.record("a")], "gold")
    assert done.returncode == 2 and "127.0.0.1:1" in done.stderr and not (evaluate.out / "report.json").exists()


def test_the_page_holds_hostile_text_as_text(evaluate):
    evil = "</script><script>alert(1)</script>"
    evaluate([evaluate.record("a/../b c" + evil)], {"a/../b c" + evil: WRONG}, "--command", f"echo '{evil}'; python3 -m pytest -rA")
    page = (evaluate.out / "report.html").read_text()
    assert evil not in page and page.count("</script>") == 2
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])
    assert data["instances"][0]["id"] == "a/../b c" + evil and evil in data["instances"][0]["stdout"] and [ADD, "failed"] in data["instances"][0]["tests"]
    assert [n.name for n in (evaluate.out / "records").iterdir()] == ["a%2F..%2Fb%20c%3C%2Fscript%3E%3Cscript%3Ealert%281%29%3C%2Fscript%3E.json"]


def test_a_record_can_be_replayed(evaluate, daemon):
    evaluate([evaluate.record("a")], "gold")
    done = subprocess.run([BRIG, "score", "--replay", evaluate.out / "records" / "a.json", "--url", url(daemon)], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "THE SAME\n"), done.stderr


def test_control_runs_take_the_datasets_gold_patch(evaluate):
    broken = evaluate.record("broken", patch=WRONG)
    said = evaluate([evaluate.record("a"), broken], [evaluate.prediction("a"), evaluate.prediction("broken")], "--control", "require", status=1)
    assert (said["resolved"], said["error"]) == (1, 1) and evaluate.saved("a")["record"]["provenance"]["controlled"]
    assert evaluate.saved("broken")["record"]["error"]["code"] == "environment_broken"
