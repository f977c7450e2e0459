"""Control runs: what is known of an instance without the agent's patch, and what a verdict makes of it."""
import os
import signal

import brigd
import pytest

from score_project import ADD, CALC, GOLD, PYTEST, RIGHT, ZERO, kinds

WRONG = {"calc.py": "def add(a, b): return a * b\n"}


@pytest.fixture
def controlled(score):
    """The record of a patch, with control runs by the right one."""
    def run(where, patch, gold=GOLD, right=RIGHT, **more):
        return score(where, patch, gold, gold_patch=where.patch(right), **{"fail_to_pass": [ADD], "pass_to_pass": [ZERO], **more})
    return run


def outcomes(record):
    return record["outcome"], record["provenance"]["controlled"]


def test_a_verdict_rests_on_control_runs(controlled, project):
    where = project(CALC)
    assert outcomes(controlled(where, RIGHT)) == ("resolved", True)
    assert outcomes(controlled(where, WRONG)) == ("unresolved", True)


def test_without_a_gold_patch_there_is_none(score, calc):
    assert outcomes(score(calc, RIGHT, GOLD, fail_to_pass=[ADD])) == ("resolved", False)
    assert outcomes(score(calc, RIGHT, GOLD, fail_to_pass=[ADD], control="auto")) == ("resolved", False)


def test_control_off_leaves_the_gold_patch_alone(controlled, project):
    assert outcomes(controlled(project(CALC), RIGHT, control="off")) == ("resolved", False)


def test_require_needs_a_gold_patch(scorer, calc):
    answer = scorer.call("POST", "/task/submit", calc.request(RIGHT, GOLD, control="require", fail_to_pass=[ADD]))
    assert answer.status == 400 and answer.json == {"error": "Invalid value for 'control': require needs gold_patch"}


@pytest.mark.parametrize("right, gold, more, why", [
    ({"other.py": "x = 1\n"}, GOLD, {}, f"the gold patch is not resolved but unresolved: {ADD}"),
    (RIGHT, GOLD, {"test_command": "sleep 60", "timeout": 1}, "the gold patch is not resolved but timeout"),
    (RIGHT, GOLD, {"fail_to_pass": [ZERO]}, f"{ZERO} of fail_to_pass passes without a patch"),
    (RIGHT, GOLD, {"fail_to_pass": [], "pass_to_pass": [], "test_command": "true"}, "the tests pass without a patch"),
    ("--- a/calc.py\n+++ b/calc.py\n@@ -1 +1 @@\n-nothing\n+at all\n", GOLD, {}, "the gold patch is not resolved but patch_rejected"),
], ids=["gold fails", "gold hangs", "base passes", "base passes without ids", "gold does not apply"])
def test_a_broken_environment_is_our_fault_and_not_the_patchs(score, project, right, gold, more, why):
    where = project(CALC)
    r = score(where, WRONG, gold, gold_patch=right if isinstance(right, str) else where.patch(right), **{"fail_to_pass": [ADD], **more})
    assert (r["outcome"], r["error"]["code"], r["error"]["message"]) == ("infra_error", "environment_broken", f"control run: {why}"), r
    assert r["resolved"] is False and r["patch_applied"] is False


def test_our_fault_in_a_control_run_is_that_fault(controlled, project):
    r = controlled(project(CALC), RIGHT, setup_command="exit 3")
    assert (r["outcome"], r["error"]["code"]) == ("infra_error", "setup_failed") and r["error"]["message"].startswith("control run: ")


SKIPS = {"tests/test_calc.py": "import calc, pytest\ndef test_add(): assert calc.add(1, 2) == 3\ndef test_zero():\n    if calc.SKIP: pytest.skip('no')\n"}


def test_a_skip_is_tolerated_only_where_base_skipped_it(controlled, project):
    code = "SKIP = {}\ndef add(a, b): return a {} b\n".format
    at_base, new = project({"calc.py": code(True, "-")}), project({"calc.py": code(False, "-")})
    r = controlled(at_base, {"calc.py": code(True, "+")}, SKIPS, {"calc.py": code(True, "+")})
    assert outcomes(r) == ("resolved", True) and r["unverified"] == [], r
    r = controlled(new, {"calc.py": code(True, "+")}, SKIPS, {"calc.py": code(False, "+")})
    assert outcomes(r) == ("unresolved", True) and r["pass_to_pass"]["failure"] == [ZERO], r


CASES = "import calc, pytest\n@pytest.mark.parametrize('n', calc.CASES)\ndef test_add(n): assert calc.add(n, 'x') == n + 'x'\n"


def test_a_cut_off_id_stands_for_all_that_the_gold_run_has(controlled, score, project):
    """The patch drops the case that it fails."""
    code = "CASES = {}\ndef add(a, b): return a{}\n".format
    where, tests, ids = project({"calc.py": code(["a b", "a c"], "")}), {"tests/test_calc.py": CASES}, ["tests/test_calc.py::test_add[a"]
    cheat = {"calc.py": "CASES = ['a b']\ndef add(a, b): return a + b if a == 'a b' else a\n"}
    right = {"calc.py": code(["a b", "a c"], " + b")}
    assert outcomes(controlled(where, cheat, tests, right, fail_to_pass=ids, pass_to_pass=[])) == ("unresolved", True)
    assert outcomes(controlled(where, right, tests, right, fail_to_pass=ids, pass_to_pass=[])) == ("resolved", True)
    assert outcomes(score(where, cheat, tests, fail_to_pass=ids)) == ("resolved", False)


CONFIGURED = {"conftest.py": "import pytest\n@pytest.fixture\ndef three(): return 3\n"}
USES = {"tests/test_calc.py": "import calc\ndef test_zero(): pass\ndef test_add(three): assert calc.add(1, 2) == three\n"}


def test_configuration_that_the_gold_patch_changes_too_stays(controlled, score, project):
    where = project({**CALC, "conftest.py": "x = 1\n"})
    r = controlled(where, {**RIGHT, **CONFIGURED}, USES, {**RIGHT, **CONFIGURED})
    assert outcomes(r) == ("resolved", True) and r["restored"] == [], r
    r = score(where, {**RIGHT, **CONFIGURED}, USES, fail_to_pass=[ADD])
    assert r["outcome"] == "unresolved" and r["restored"] == ["conftest.py"], r


def test_nothing_of_the_gold_patch_is_where_the_agents_patch_runs(controlled, project):
    """It looks for a word of it everywhere that it can read."""
    word = "zz_only_in_gold"
    look = ("import subprocess\nhits = subprocess.run(['grep', '-rlsa', ''.join(['zz_only_', 'in_gold']), '/testbed', '/tmp', '/run', '/root', '/proc/self/environ', '/proc/1/environ', '/proc/1/cmdline'], capture_output=True, text=True).stdout\n"
            "def add(a, b):\n    assert not hits, hits\n    return a + b\n")
    r = controlled(project(CALC), {"calc.py": look}, right={"calc.py": f"def add(a, b): return a + b  # {word}\n"})
    assert outcomes(r) == ("resolved", True), (r["stdout"], r["tests"])


def test_an_instance_is_run_once_for_all_its_tasks(brig, project):
    d, where = brig(), project(CALC)
    known = lambda: d.stderr().count("control.known")
    request = where.request(WRONG, GOLD, gold_patch=where.patch(RIGHT), fail_to_pass=[ADD])
    ids = [d.submit({**request, "labels": {"n": str(n)}}) for n in range(5)]
    assert [outcomes(d.result(i)) for i in ids] == [("unresolved", True)] * 5 and known() == 1
    assert outcomes(d.result(d.submit({**request, "patch": where.patch(RIGHT)}))) == ("resolved", True) and known() == 1
    d.result(d.submit({**request, "test_command": f"{PYTEST} -x"}))
    assert known() == 2


def test_a_task_that_is_deleted_during_its_control_run_leaves_it_to_the_next(brig, project):
    d, where = brig(BRIG_TASK_EXECUTOR_THREADS="4"), project(CALC)
    request = where.request(RIGHT, gold_patch=where.patch(RIGHT), test_command="sleep 86400.7 || grep -q + calc.py", fail_to_pass=[])
    first = d.submit(request)
    brigd.until(lambda: d.inside("sleep", "86400.7"), "the control run runs")
    second = d.until_running(d.submit({**request, "labels": {"n": "2"}}))
    assert d.call("DELETE", f"/task/{first}").status == 200

    def push():
        for pid in d.inside("sleep", "86400.7"):
            os.kill(pid, signal.SIGKILL)
        return d.status(second) != "running"
    brigd.until(push, "its three runs have ended")
    assert outcomes(d.result(second)) == ("resolved", True)
