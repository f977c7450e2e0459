"""What a verdict comes to, end to end."""
import pytest
from brigd import until

from score_project import ADD, GOLD, PYTEST, RIGHT, ZERO

IDS = dict(fail_to_pass=[ADD], pass_to_pass=[ZERO])


def test_the_right_patch_resolves_with_clean_integrity(score, calc):
    r = score(calc, RIGHT, GOLD, test_command=f"{PYTEST} '{ADD}' \"{ZERO}\" 2>&1", capture_diff=True, reference_patch=calc.patch(RIGHT), **IDS)
    assert r["resolved"] and r["outcome"] == "resolved" and r["exit_code"] == 0
    assert r["integrity"] == {"verdict": "clean", "findings": []}
    assert r["tests"] == {ADD: "passed", ZERO: "passed"} and r["report_channel"] == "private"
    assert "return a + b" in r["patch_diff"] and "test_add" not in r["patch_diff"] and r["patch_similarity"] == 1
    assert "2 passed" in r["stdout"] and len(r["evidence"]) == 64


def test_a_wrong_patch_does_not(score, calc):
    r = score(calc, {"calc.py": "def add(a, b):\n    return 0\n"}, GOLD, **IDS)
    assert r["outcome"] == "unresolved" and r["tests"] == {ADD: "failed", ZERO: "passed"} and r["exit_code"] == 1
    assert r["fail_to_pass"] == {"success": [], "failure": [ADD]}


def test_the_same_task_has_the_same_evidence(score, calc):
    a, b = (score(calc, RIGHT, GOLD, **IDS) for _ in range(2))
    assert a["evidence"] == b["evidence"] and not b["cached"]
    assert score(calc, {}, GOLD, **IDS)["evidence"] != a["evidence"]


def test_a_patch_that_does_not_apply_is_a_result(score, calc):
    r = score(calc, "--- a/calc.py\n+++ b/calc.py\n@@ -1,2 +1,2 @@\n def nothing():\n-    alike\n+    x\n", GOLD, **IDS)
    assert r["outcome"] == "patch_rejected" and r["status"] == "completed" and not r["patch_applied"] and not r["resolved"]
    assert r["tests"] == {ADD: "failed", ZERO: "passed"}


def test_a_gold_patch_that_does_not_apply_is_an_error(score, calc):
    r = score(calc, RIGHT, **dict(IDS, test_patch="--- a/tests/test_calc.py\n+++ b/tests/test_calc.py\n@@ -1 +1 @@\n-nothing\n+x\n"))
    assert r["outcome"] == "test_patch_rejected" and r["status"] == "failed" and r["exit_code"] == -1 and not r["test_patch_applied"]


def test_an_id_that_does_not_exist_is_missing_and_the_others_run(score, calc):
    gone = "tests/test_calc.py::test_gone"
    r = score(calc, RIGHT, GOLD, test_command=f"{PYTEST} {ADD} {gone} tests/test_nowhere.py::test_x", fail_to_pass=[ADD], pass_to_pass=[gone])
    assert r["tests"] == {ADD: "passed", gone: "missing", "tests/test_nowhere.py::test_x": "missing"} and r["outcome"] == "unresolved"
    r = score(calc, RIGHT, GOLD, test_command=f"{PYTEST} {ADD} {gone}")   # judged by the exit status
    assert (r["exit_code"], r["resolved"], r["integrity"]["verdict"]) == (4, False, "clean") and f"not found: {gone}" in r["stderr"], r
    assert r["tests"] == {ADD: "passed", gone: "missing"}, r


def test_nothing_collected(score, calc):
    r = score(calc, RIGHT, GOLD, test_command=f"{PYTEST} -k nothing_like_it")
    assert r["outcome"] == "no_tests_collected" and r["exit_code"] == 5


def test_without_ids_the_frameworks_own_verdict_holds(score, calc):
    assert score(calc, RIGHT, GOLD)["outcome"] == "resolved"
    assert score(calc, {}, GOLD)["outcome"] == "unresolved"


def test_ids_without_a_command_run(score, calc):
    r = score(calc, RIGHT, GOLD, test_command="", fail_to_pass=[ADD])
    assert r["tests"] == {ADD: "passed"} and r["resolved"]
    r = score(calc, RIGHT, GOLD, test_command="", fail_to_pass=[ADD], run="files")
    assert r["tests"] == {ADD: "passed", ZERO: "passed"}


def test_many_ids_do_not_make_the_command_line_too_long(score, project):
    p = project({"test_many.py": "import pytest\n@pytest.mark.parametrize('v', range(4000))\ndef test_%s(v): pass\n" % ("long" * 40)})
    ids = [f"test_many.py::test_{'long' * 40}[{i}]" for i in range(4000)]
    r = score(p, test_command=PYTEST + " " + " ".join(f"'{i}'" for i in ids), fail_to_pass=ids)
    assert r["resolved"] and r["tests_passed"] == 4000


def test_what_finished_before_a_timeout_is_kept_and_everything_dies(score, project):
    p = project({"test_a.py": "import subprocess, time\ndef test_ok(): pass\ndef test_hang():\n    subprocess.Popen(['sleep', '1000'])\n    time.sleep(1000)\n"})
    r = score(p, timeout=2, pass_to_pass=["test_a.py::test_ok"])
    assert r["outcome"] == "timeout" and r["status"] == "failed" and r["exit_code"] == -1 and r["timed_out"]
    assert r["tests"] == {"test_a.py::test_ok": "passed"} and "imed out" in r["stderr"]
    assert r["integrity"]["verdict"] == "clean"


def test_a_child_that_keeps_the_output_open_does_not_delay(score, project):
    p = project({"test_a.py": "import subprocess\ndef test_ok():\n    subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"})
    r = score(p, timeout=60)
    assert r["resolved"] and r["execution_time"] < 30


def test_memory_and_processes_have_limits(score, project):
    p = project({"test_a.py": "def test_eat():\n    x = []\n    while True: x.append(bytearray(1 << 20) + b'x' * (1 << 20))\n",
                 "test_b.py": "import os, time\ndef test_fork():\n    for _ in range(200):\n        if os.fork() == 0:\n            time.sleep(100)\n            os._exit(0)\n"})
    r = score(p, test_command=f"{PYTEST} test_a.py", limits={"memory_mb": 200, "disk_mb": 64})
    assert r["outcome"] == "oom" and "oom" in r["limits_hit"] and r["status"] == "completed"
    r = score(p, test_command=f"{PYTEST} test_b.py", limits={"pids": 50})
    assert r["outcome"] == "pids_limit" and r["status"] == "completed"


def test_output_has_a_limit_and_ends_in_the_record(score, project):
    p = project({"test_a.py": "import os\ndef test_x():\n    while True: os.write(1, b'x' * 100000)\n"})
    r = score(p, test_command=f"{PYTEST} -s", limits={"output_bytes": 1 << 20})
    assert r["outcome"] == "output_limit" and "output_limit" in r["limits_hit"] and r["stdout"].startswith("x")


def test_output_that_is_not_text_is_carried(score, project):
    p = project({"test_a.py": "import os\ndef test_x(): os.write(1, b'\\xff\\x00\\xfe')\n"})
    r = score(p, test_command=f"{PYTEST} -s")
    assert r["resolved"] and "\ufffd" in r["stdout"]


def test_unittest_with_both_spellings(score, project):
    p = project({"pkg/__init__.py": "", "pkg/test_a.py": """
        import unittest
        class T(unittest.TestCase):
            def test_ok(self): pass
            def test_bad(self): self.fail()
            @unittest.skip("x")
            def test_skip(self): pass
        """})
    r = score(p, test_command="python3 -m unittest -v pkg.test_a", fail_to_pass=["test_ok (pkg.test_a.T)"],
              pass_to_pass=["pkg.test_a.T.test_ok", "test_skip (pkg.test_a.T.test_skip)"])
    assert r["fail_to_pass"]["success"] and not r["pass_to_pass"]["failure"] and r["unverified"] == ["test_skip (pkg.test_a.T.test_skip)"]
    assert r["resolved"] and r["exit_code"] == 1 and r["report_channel"] == "private"


def test_a_shell_command_is_read_from_its_text(score, calc):
    r = score(calc, RIGHT, GOLD, test_command=f"cd tests && cd .. && {PYTEST} -rA", **IDS)
    assert r["report_channel"] == "text" and r["tests"] == {ADD: "passed", ZERO: "passed"} and r["resolved"]


@pytest.mark.parametrize("ids", [{}, {"fail_to_pass": [ADD], "pass_to_pass": [ZERO]}], ids=["without ids", "with ids"])
@pytest.mark.parametrize("command", ["cd . && python3 -m pytest -q", "X=1 python3 -m pytest", "python3 -m pytest -q 2>&1 | tee /tmp/log", "PYTEST_ADDOPTS= python3 -m pytest -rA"])
def test_a_shell_command_that_names_no_test_itself(score, calc, command, ids):
    right = score(calc, RIGHT, GOLD, test_command=command, **ids)
    assert right["resolved"] and right["tests"] == {ADD: "passed", ZERO: "passed"} and right["report_channel"] == "text", (right["stdout"], right["tests"])
    wrong = score(calc, None, GOLD, test_command=command, **ids)
    assert wrong["outcome"] == "unresolved" and wrong["tests"] == {ADD: "failed", ZERO: "passed"}, (wrong["stdout"], wrong["tests"])


def test_options_of_the_request_are_added_to_ours(score, calc):
    r = score(calc, RIGHT, GOLD, test_command="cd . && python3 -m pytest -q", env={"PYTEST_ADDOPTS": "-k zero"})
    assert r["tests"] == {ZERO: "passed"} and "PYTEST_ADDOPTS=-rfEsxXp -k zero" in r["provenance"]["environment"]


def test_a_last_line_alone_does_not_pass_for_a_command_that_names_its_tests(score, calc):
    cheat = {"calc.py": "import os\nos.write(1, b'2 passed in 0.01s\\n')\nos._exit(0)\n"}
    assert not score(calc, cheat, GOLD, test_command="cd . && python3 -m pytest -q")["resolved"]


@pytest.mark.parametrize("command, resolved", [
    ("cd tests && PYTHONPATH=.. python3 -m unittest test_case", True), ("sh run", True), ("cd tests && PYTHONPATH=.. python3 -m unittest -k nothing test_case", False)])
def test_output_without_names_is_believed_as_a_whole(score, project, command, resolved):
    p = project({"tests/test_case.py": "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): pass\n", "run": "python3 -m pytest tests"})
    r = score(p, None, test_command=command)
    assert r["resolved"] is resolved and r["tests"] == {} and r["report_channel"] == "text", (r["outcome"], r["stdout"], r["stderr"])


def test_an_unknown_command_is_judged_by_its_status(score, calc):
    r = score(calc, RIGHT, test_command="grep -q 'a + b' calc.py")
    assert r["report_channel"] == "exit" and r["resolved"] and r["tests"] == {}
    assert score(calc, test_command="grep -q 'a + b' calc.py")["outcome"] == "unresolved"
    assert score(calc, test_command="exit 7")["exit_code"] == 7
    assert score(calc, test_command="kill -9 $$")["exit_code"] == 137


def test_a_program_that_is_not_there_is_no_fault_of_ours(score, calc):
    r = score(calc, test_command="/no/such/python3 -m pytest")
    assert r["exit_code"] == 127 and r["status"] == "completed" and r["outcome"] == "no_tests_collected" and "/no/such/python3" in r["stderr"]


def test_a_console_script_runs_under_the_reporter(score, calc):
    r = score(calc, RIGHT, GOLD, test_command="pytest -q --rootdir . -p no:cacheprovider", env={"PYTHONPATH": "."}, **IDS)
    assert r["report_channel"] == "private" and r["resolved"], r


def test_redirections_are_done(score, calc):
    r = score(calc, RIGHT, GOLD, test_command=f"{PYTEST} > out.txt 2>&1", **IDS)
    assert r["resolved"] and r["stdout"] == ""


def test_the_environment_is_clean(score, project):
    p = project({"test_a.py": """
        import os
        def test_x():
            for key in os.environ:
                assert key in ("PATH", "HOME", "USER", "LANG", "TZ", "MINE", "PYTEST_CURRENT_TEST", "PYTEST_VERSION"), key
            assert os.environ["MINE"] == "1" and os.environ["TZ"] == "UTC" and os.getcwd() == "/testbed"
        """})
    r = score(p, env={"MINE": "1"})
    assert r["resolved"], r["stdout"]


def test_the_linter_counts_and_changes_nothing(score, calc):
    r = score(calc, RIGHT, GOLD, lint_command="echo 'a.py:1:1: E501 long'; exit 1 # as flake8", **IDS)
    assert r["lint_errors"] == 1 and "E501" in r["lint_output"] and r["resolved"]


@pytest.mark.parametrize("body", ["import nothing_like_it\n", "raise SystemExit(0)\n", "import os\nos.kill(os.getpid(), 11)\n"])
def test_a_file_that_cannot_be_imported_fails_its_ids(score, project, body):
    p = project({"test_a.py": body + "def test_x(): pass\n", "test_b.py": "def test_y(): pass\n"})
    r = score(p, test_command=f"{PYTEST} --continue-on-collection-errors test_b.py test_a.py", fail_to_pass=["test_a.py::test_x"])
    assert r["outcome"] in ("unresolved", "no_tests_collected") and r["fail_to_pass"]["failure"] == ["test_a.py::test_x"] and r["status"] == "completed"


def test_the_same_instance_many_times_at_once(scorer, calc):
    """They share one collection run; one of them is deleted, as a rule while it runs."""
    tasks = [scorer.submit(calc.request(RIGHT, GOLD, env={"ROUND": "1"}, **IDS)) for _ in range(6)]
    until(lambda: scorer.status(tasks[0]) != "pending", "it has begun")      # on a busy machine it has ended
    assert scorer.call("DELETE", f"/task/{tasks[0]}").json["deleted"] is True
    for task in tasks[1:]:
        r = scorer.result(task)
        assert r["resolved"] and r["integrity"]["verdict"] == "clean", r


def test_a_parameter_cut_off_in_the_data_matches_by_prefix(score, project):
    p = project({"test_a.py": "import pytest\n@pytest.mark.parametrize('v', ['a b', 'a c'])\ndef test_p(v): pass\ndef test_q(): pass\n"})
    r = score(p, test_command="", fail_to_pass=["test_a.py::test_p[a ", "[100%]"])
    assert r["fail_to_pass"] == {"success": ["test_a.py::test_p[a "], "failure": ["[100%]"]}
    assert sorted(r["tests"]) == ["[100%]", "test_a.py::test_p[a b]", "test_a.py::test_p[a c]"]


def test_a_suite_of_many_outcomes_is_whole(score, project):
    p = project({"test_a.py": "import pytest\n@pytest.mark.parametrize('v', range(3000))\ndef test_p(v): assert v % 100\n"})
    r = score(p, test_command=f"{PYTEST} --tb=no -r N", timeout=280)
    assert r["tests_passed"] == 2970 and r["tests_failed"] == 30 and r["integrity"]["verdict"] == "clean"
