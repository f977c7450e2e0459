"""The command line: what a person types, what is printed, and the exit status."""
import json
import os
import pty
import re
import signal
import subprocess

import pytest

import brigd
from brigd import BRIG, RIGHT

ADD, DOUBLE = "test_calc.py::test_add", "test_calc.py::test_double"


class Score:
    """Runs `brig score` with an environment of its own."""

    def __init__(self, repository, top, **variables):
        self.repository, self.top = repository, top
        self.variables = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **variables}
        self.patch = top / "right.diff"
        self.patch.write_text(RIGHT)
        (top / "empty.diff").write_text("")

    def raw(self, *args, **more):
        return subprocess.run([BRIG, "score", *map(str, args)], env=self.variables, capture_output=True, text=True, timeout=120, **more)

    def __call__(self, *args, patch=None):
        return self.raw("--repo", self.repository.path, "--commit", self.repository.commit, "--patch", patch or self.patch,
                        "--fail-to-pass", ADD, "--pass-to-pass", DOUBLE, *args)


@pytest.fixture(scope="module")
def daemon():
    with brigd.Daemon() as d:
        yield d


@pytest.fixture
def score(daemon, repository, tmp_path):
    """`brig score` against a daemon that BRIG_URL names."""
    s = Score(repository, tmp_path, BRIG_URL=f"http://{daemon.host}:{daemon.port}")
    s.daemon = daemon
    return s


@pytest.fixture
def alone(repository, tmp_path):
    """`brig score` where no daemon answers."""
    d = brigd.Daemon(API_PORT="1")
    s = Score(repository, tmp_path, BRIG_HOME=str(d.home), API_PORT="1")
    s.daemon = d
    yield s
    d.assert_nothing_left()
    brigd.shutil.rmtree(d.top, ignore_errors=True)


def test_version_and_help():
    version = subprocess.run([BRIG, "--version"], capture_output=True, text=True, check=True).stdout
    assert re.fullmatch(r"brig \d+\.\d+\.\d+\n", version)
    assert subprocess.run([BRIG, "version"], capture_output=True, text=True, check=True).stdout == version
    text = subprocess.run([BRIG, "help"], capture_output=True, text=True, check=True).stdout
    for verb in ("serve", "score", "doctor", "config"):
        assert re.search(rf"^  {verb} ", text, re.M), text
        assert subprocess.run([BRIG, verb, "--help"], capture_output=True, check=True).stdout.startswith(b"usage: brig " + verb.encode())


def test_no_verb_and_unknown_verbs_are_usage_errors():
    assert subprocess.run([BRIG], capture_output=True).returncode == 64
    done = subprocess.run([BRIG, "sail"], capture_output=True, text=True)
    assert done.returncode == 64 and "no verb 'sail'" in done.stderr


def test_resolved_is_exit_status_0_and_a_table(score):
    done = score()
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "RESOLVED" and "test patch" not in done.stdout
    assert f"  commit        {score.repository.commit}" in lines
    assert "  fail_to_pass  1 of 1" in lines and "  pass_to_pass  1 of 1" in lines
    assert any(re.fullmatch(r"  evidence      [0-9a-f]{64}", line) for line in lines)
    assert done.stderr == ""


def test_not_resolved_is_exit_status_1_and_names_the_test(score):
    done = score(patch=score.top / "empty.diff")
    assert done.returncode == 1
    assert done.stdout.startswith("NOT RESOLVED: unresolved\n")
    assert f"not passed: {ADD}" in done.stdout
    assert "    | " in done.stdout and "assert -1 == 5" in done.stdout


def test_our_fault_is_exit_status_2(score):
    done = score("--commit", "0" * 40)
    assert done.returncode == 2
    assert done.stdout.startswith("NOT RESOLVED: infra_error\n") and "commit_not_found" in done.stdout


def test_json_is_the_whole_record(score):
    done = score("-o", "json", "--diff")
    assert done.returncode == 0
    record = json.loads(done.stdout)
    assert record["resolved"] is True and record["tests"] == {ADD: "passed", DOUBLE: "passed"}
    assert "+    return a + b" in record["patch_diff"]
    assert score.daemon.call("GET", f"/task/{record['task_id']}/result").json == record


def test_options_reach_the_request(score):
    done = score("-o", "json", "--command", "python3 -c 'import os; print(os.environ[\"COLOUR\"])'", "--env", "COLOUR=a=b", "--timeout", "77",
                 "--repo-path", "/box/tree")
    record = json.loads(done.stdout)
    assert record["stdout"] == "a=b\n" and record["timeout"] == 77


def test_standard_input_may_be_the_patch(score):
    done = score.raw("--repo", score.repository.path, "--patch", "-", "--fail-to-pass", ADD, input=RIGHT)
    assert done.returncode == 0, done.stderr


def test_usage_errors_are_64_and_name_what_is_wrong(repository, tmp_path):
    score = Score(repository, tmp_path, BRIG_URL="http://127.0.0.1:1")
    good = ["--repo", repository.path, "--patch", score.patch, "--command", "true"]
    bad = tmp_path / "bad.json"
    bad.write_text("{not json")
    for args, text in (
        ([], "--repo is missing"),
        (good[:2], "--patch is missing"),
        (good[:4], "nothing to run"),
        ([*good, "--patch"], "--patch wants FILE"),
        ([*good, "--patch", "/nonexistent"], "/nonexistent"),
        ([*good, "--colour"], "unknown option '--colour'"),
        ([*good, "stray"], "unknown argument 'stray'"),
        ([*good, "-o", "xml"], "-o wants json or text"),
        ([*good, "-o"], "-o wants json|text"),
        ([*good, "--env", "X"], "--env wants NAME=VALUE"),
        ([*good, "--prediction", bad], "--prediction needs --instance"),
        ([*good, "--instance", bad], "neither JSON nor JSON lines"),
        (["--repo", "./nosuch", *good[2:]], "--repo: ./nosuch"),
        ([*good, "--url", "ftp://x"], "not the address of a daemon"),
    ):
        done = score.raw(*args)
        assert (done.returncode, done.stdout) == (64, ""), (args, done)
        assert text in done.stderr, (args, done.stderr)


def test_a_request_that_the_daemon_refuses_is_a_usage_error(score):
    done = score("--timeout", "soon")
    assert done.returncode == 64 and "timeout" in done.stderr


def test_a_daemon_that_was_named_must_answer(repository, tmp_path):
    done = Score(repository, tmp_path, BRIG_URL="http://127.0.0.1:1")()
    assert done.returncode == 2 and "127.0.0.1:1" in done.stderr


def test_a_daemon_may_listen_on_a_unix_socket(brig, repository, tmp_path):
    daemon = brig(start=False)
    url = f"unix:{daemon.home}/socket"
    daemon.start(BRIG_LISTEN=url)
    done = Score(repository, tmp_path, BRIG_URL=url)("-o", "json")
    assert done.returncode == 0 and json.loads(done.stdout)["log_url"].startswith("/task/"), done.stderr
    assert Score(repository, tmp_path)("--url", url).returncode == 0
    daemon.stop()
    done = Score(repository, tmp_path, BRIG_URL=url)()
    assert done.returncode == 2 and url in done.stderr


def test_the_token_comes_from_the_environment(brig, repository, tmp_path):
    daemon = brig(API_TOKEN="sesame", BRIG_LISTEN="127.0.0.1:0")
    url = f"http://{daemon.host}:{daemon.port}"
    assert Score(repository, tmp_path, BRIG_URL=url, BRIG_API_TOKEN="sesame")().returncode == 0
    assert Score(repository, tmp_path, BRIG_URL=url, API_TOKEN="sesame")().returncode == 0
    done = Score(repository, tmp_path, BRIG_URL=url, API_TOKEN="other")()
    assert done.returncode == 64 and "401" in done.stderr


def test_a_local_daemon_is_found_by_its_port(score):
    score.variables = {**score.variables, "API_PORT": str(score.daemon.port)}
    del score.variables["BRIG_URL"]
    done = score("-o", "json")
    assert done.returncode == 0, done.stderr
    assert score.daemon.status(json.loads(done.stdout)["task_id"]) == "completed"


def test_without_a_daemon_the_engine_runs_inside(alone):
    first, second = alone("-o", "json"), alone("-o", "json")
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert json.loads(first.stdout)["log_url"] is None           # nobody would answer there
    assert json.loads(first.stdout)["evidence"] == json.loads(second.stdout)["evidence"]
    assert alone(patch=alone.top / "empty.diff").returncode == 1
    assert alone("--commit", "0" * 40).returncode == 2
    assert alone("--timeout", "soon").returncode == 64


def test_inside_a_directory_may_be_named_whatever_the_operators_roots(alone):
    alone.variables["BRIG_REPO_ROOTS"] = "/opt"
    assert alone().returncode == 0
    done = alone.raw("--repo", alone.repository.url, "--patch", alone.patch, "--fail-to-pass", ADD)
    assert done.returncode == 0, done.stderr


SECONDS = f"1{os.getpid()}"         # no other test's sleep on this machine


def interrupted(score, ready):
    process = subprocess.Popen([BRIG, "score", "--repo", score.repository.path, "--patch", score.patch, "--command", f"sleep {SECONDS}"],
                               env=score.variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    ready()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "interrupted" in err


def test_an_interrupt_cancels_the_task_at_the_daemon(score):
    interrupted(score, lambda: brigd.until(lambda: score.daemon.query("SELECT id FROM jobs WHERE state=1"), "the task runs"))
    assert score.daemon.query("SELECT count(*) FROM jobs WHERE state<2") == [(0,)]


def test_an_interrupt_ends_the_engine_inside(alone):
    def runs():
        return [argv for _, _, argv in brigd.processes() if argv[:2] == [b"sleep", SECONDS.encode()]]
    interrupted(alone, lambda: brigd.until(runs, "the command runs"))
    assert not runs()


def test_progress_is_shown_on_a_terminal_only(score):
    main, side = pty.openpty()
    process = subprocess.Popen([BRIG, "score", "--repo", score.repository.path, "--patch", score.patch, "--command", "sleep 3"],
                               env=score.variables, stdout=subprocess.PIPE, stderr=side, text=True)
    os.close(side)
    out, _ = process.communicate(timeout=60)
    shown = os.read(main, 65536).decode()
    os.close(main)
    assert process.returncode == 0 and "running, 1 s" in shown and "running" not in out


def test_output_of_the_tests_cannot_drive_the_terminal(score):
    done = score.raw("--repo", score.repository.path, "--patch", score.patch, "--command",
                     r"printf '\033[2J\033]0;owned\007\302\23331m\377\nRESOLVED\n'; exit 1")
    assert done.returncode == 1
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", done.stdout), ascii(done.stdout)
    assert "\nRESOLVED" not in done.stdout and "    | RESOLVED" in done.stdout


# ---- records of the SWE-bench family -----------------------------------------------------------------------------------------

def record(repository, **more):
    return {"instance_id": "demo__calc-1", "repo": "demo/calc", "base_commit": repository.commit, "patch": RIGHT, "test_patch": "",
            "version": "1.0", "FAIL_TO_PASS": [ADD], "PASS_TO_PASS": [DOUBLE], **more}


def prediction(patch, instance="demo__calc-1"):
    return {"instance_id": instance, "model_name_or_path": "m", "model_patch": patch}


def score_instance(score, instance, predictions, *args):
    (score.top / "instance.json").write_text(instance if isinstance(instance, str) else json.dumps(instance))
    named = score.top / "predictions.json"
    named.write_text(predictions if isinstance(predictions, str) else json.dumps(predictions))
    return score.raw("--instance", score.top / "instance.json", "--repo", score.repository.path, "--prediction", named, *args)


def test_every_form_of_ids_and_predictions(score, repository):
    other = prediction("garbage", "demo__calc-2")
    ids = [
        {},
        {"FAIL_TO_PASS": json.dumps([ADD]), "PASS_TO_PASS": json.dumps([DOUBLE])},
        {"FAIL_TO_PASS": repr([ADD]), "PASS_TO_PASS": repr([DOUBLE])},
    ]
    for form in ids:
        done = score_instance(score, record(repository, **form), [other, prediction(RIGHT)], "-o", "json")
        assert done.returncode == 0, done.stderr
        got = json.loads(done.stdout)
        assert got["fail_to_pass"]["success"] == [ADD] and got["pass_to_pass"]["success"] == [DOUBLE]
    predictions = [
        {"demo__calc-1": prediction(RIGHT), "demo__calc-2": other},
        {"demo__calc-1": RIGHT},
        prediction(RIGHT),
        json.dumps(other) + "\n\n" + json.dumps(prediction(RIGHT)) + "\n",
    ]
    for form in predictions:
        assert score_instance(score, record(repository), form).returncode == 0, form


def test_a_prediction_without_a_patch_is_the_empty_patch(score, repository):
    assert score_instance(score, record(repository), [prediction(None)]).returncode == 1


def test_lower_case_names_and_several_records(score, repository):
    r = record(repository)
    lower = {**{k: v for k, v in r.items() if not k.isupper()}, "fail_to_pass": repr([ADD]), "pass_to_pass": "[]"}
    many = [lower, record(repository, instance_id="demo__calc-2")]
    lines = "\n".join(json.dumps(m) for m in many)
    for form in (many, lines):
        done = score_instance(score, form, [prediction(RIGHT)])
        assert done.returncode == 64 and "--id" in done.stderr
        assert score_instance(score, form, [prediction(RIGHT)], "--id", "demo__calc-1").returncode == 0


def test_the_gold_patch_is_a_prediction(score, repository):
    (score.top / "instance.json").write_text(json.dumps(record(repository)))
    done = score.raw("--instance", score.top / "instance.json", "--repo", repository.path, "--prediction", "gold")
    assert done.returncode == 0, done.stderr


def test_records_that_cannot_be_used_are_usage_errors(score, repository):
    for instance, predictions, text in (
        (record(repository), [prediction(RIGHT, "other")], "no prediction for demo__calc-1"),
        (record(repository), [{"instance_id": "demo__calc-1"}], "no 'model_patch'"),
        (record(repository, FAIL_TO_PASS="['unfinished"), [prediction(RIGHT)], "list of ids"),
        (record(repository, FAIL_TO_PASS=7), [prediction(RIGHT)], "list of ids"),
        (record(repository, base_commit=7), [prediction(RIGHT)], "'base_commit'"),
        ([], [prediction(RIGHT)], "no record"),
    ):
        done = score_instance(score, instance, predictions)
        assert done.returncode == 64 and text in done.stderr, (text, done)


@pytest.fixture
def kept(score):
    """A verdict that was kept, and what `--replay` says of it."""
    score("--save", score.top / "kept.json")
    return score.top / "kept.json"


def replay(score, path, status):
    done = score.raw("--replay", path, "-o", "json")
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    return json.loads(done.stdout)


def test_a_kept_verdict_is_reproduced(score, kept):
    assert set(json.loads(kept.read_text())) == {"request", "record"}
    assert replay(score, kept, 0) == {"differences": [], "same": True}
    assert score.raw("--replay", kept).stdout == "THE SAME\n"


def test_a_kept_verdict_is_reproduced_without_a_daemon(alone):
    alone("--save", alone.top / "kept.json")
    assert replay(alone, alone.top / "kept.json", 0)["same"]


@pytest.mark.parametrize("change, what, was", [
    (lambda k: k["record"].update(outcome="unresolved"), "outcome", "unresolved"),
    (lambda k: k["record"].update(exit_code=1), "exit_code", 1),
    (lambda k: k["record"]["provenance"].update(tree_hash="0"), "provenance.tree_hash", "0"),
    (lambda k: k["record"]["provenance"].update(argv=["x"]), "provenance.argv", ["x"]),
    (lambda k: k["record"]["tests"].update({ADD: "failed"}), f"tests:{ADD}", "failed"),
    (lambda k: k["record"]["tests"].update(gone="passed"), "tests:gone", "passed"),
    (lambda k: k["record"]["tests"].pop(DOUBLE), f"tests:{DOUBLE}", None),
], ids=["outcome", "status", "tree", "argv", "test", "test of before", "new test"])
def test_what_differs_is_named(score, kept, change, what, was):
    data = json.loads(kept.read_text())
    change(data)
    kept.write_text(json.dumps(data))
    got = replay(score, kept, 1)
    assert [(d["what"], d["was"]) for d in got["differences"]] == [(what, was)] and not got["same"]
    assert f"  {what}: " in score.raw("--replay", kept).stdout


def test_a_request_that_changed_is_seen_in_what_came_of_it(score, kept):
    data = json.loads(kept.read_text())
    data["request"]["patch"] = ""
    kept.write_text(json.dumps(data))
    assert {"outcome", f"tests:{ADD}"} <= {d["what"] for d in replay(score, kept, 1)["differences"]}


def test_what_is_no_kept_verdict_is_a_usage_error(score, kept):
    for text, why in (("{", "not JSON"), ("{}", "no 'request'"), ("[]", "no 'request'")):
        kept.write_text(text)
        done = score.raw("--replay", kept)
        assert done.returncode == 64 and str(kept) in done.stderr and why in done.stderr
    assert "--replay has all" in score("--replay", kept).stderr
