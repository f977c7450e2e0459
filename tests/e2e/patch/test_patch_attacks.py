"""Patches that want a verdict they did not earn, through the real daemon: the verdict is right, the finding is named, nothing outside is touched."""
import difflib
import os
import pathlib
import shutil
import sys
import tempfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import brigd  # noqa: E402

IDS = {"fail_to_pass": ["test_calc.py::test_add"], "pass_to_pass": ["test_calc.py::test_double"]}
FORGE = """\
import pytest


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    outcome.get_result().outcome = "passed"
"""


def new(path, text, mode="100644"):
    lines = text.splitlines()
    body = "".join(f"+{line}\n" for line in lines)
    if not text.endswith("\n"):
        body += "\\ No newline at end of file\n"
    return f"diff --git a/{path} b/{path}\nnew file mode {mode}\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1,{len(lines)} @@\n{body}"


def gone(path, text):
    lines = text.splitlines()
    return f"diff --git a/{path} b/{path}\ndeleted file mode 100644\n--- a/{path}\n+++ /dev/null\n@@ -1,{len(lines)} +0,0 @@\n" + "".join(f"-{line}\n" for line in lines)


def edit(path, old, text):
    return "".join(difflib.unified_diff(old.splitlines(True), text.splitlines(True), f"a/{path}", f"b/{path}"))


@pytest.fixture(scope="module")
def daemon():
    with brigd.Daemon() as d:
        yield d


@pytest.fixture(scope="module")
def bugged():
    """The test that shows the bug comes with the gold patch."""
    top = pathlib.Path(tempfile.mkdtemp(prefix="brig-repo-", dir="/tmp"))
    top.chmod(0o755)
    yield brigd.Repository(top / "repo", brigd.BASE_TESTS)
    shutil.rmtree(top, ignore_errors=True)


def score(daemon, repository, patch, **more):
    return daemon.result(daemon.submit(repository.request(**{**IDS, "test_patch": repository.test_patch, "patch": patch, **more})))


def findings(record):
    return {(f["kind"], f["path"]) for f in record["integrity"]["findings"]}


def test_the_right_patch_resolves_and_the_diff_leaves_the_gold_tests_out(daemon, bugged):
    record = score(daemon, bugged, bugged.right_patch, capture_diff=True, reference_patch=bugged.right_patch)
    assert record["outcome"] == "resolved", record
    assert record["patch_rung"] == "strict" and record["restored"] == [] and record["integrity"] == {"verdict": "clean", "findings": []}
    assert "+    return a + b" in record["patch_diff"] and "test_calc" not in record["patch_diff"]
    assert record["patch_similarity"] == 1.0


@pytest.mark.parametrize("mangled", [
    brigd.RIGHT.rstrip(), "```diff\n" + brigd.RIGHT + "```\n", brigd.RIGHT.replace("\n", "\r\n"), brigd.RIGHT.replace("-1,5 +1,5", "-1,9 +1,9"),
], ids=["trimmed", "fenced", "crlf", "counts"])
def test_a_mangled_right_patch_resolves(daemon, bugged, mangled):
    record = score(daemon, bugged, mangled)
    assert record["outcome"] == "resolved" and record["patch_rung"] in ("strict", "recount"), record


CHEATS = {
    "conftest": (new("conftest.py", FORGE), ("runner_config_changed", "conftest.py")),
    "ini": (new("pytest.ini", "[pytest]\npython_functions = nothing\naddopts = -p no:python\n"), ("runner_config_changed", "pytest.ini")),
    "shadowed runner": (new("pytest.py", "import os\nos._exit(0)\n"), ("shadowing_module", "pytest.py")),
    "startup": (new("sitecustomize.py", "import os\nos._exit(0)\n"), ("runner_config_changed", "sitecustomize.py")),
    "test emptied": (edit("test_calc.py", brigd.BASE_TESTS, "def test_add():\n    pass\n\n\ndef test_double():\n    pass\n"), ("test_file_edited", "test_calc.py")),
    "test deleted": (gone("test_calc.py", brigd.BASE_TESTS), ("test_file_edited", "test_calc.py")),
    "test a link": (gone("test_calc.py", brigd.BASE_TESTS) + new("test_calc.py", "/etc/passwd", "120000"), ("test_file_edited", "test_calc.py")),
    "test a directory": (gone("test_calc.py", brigd.BASE_TESTS) + new("test_calc.py/__init__.py", "x = 1\n"), ("test_file_edited", "test_calc.py")),
}


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_without_the_fix_is_unresolved_and_named(daemon, bugged, name):
    patch, finding = CHEATS[name]
    record = score(daemon, bugged, patch)
    assert (record["outcome"], record["resolved"]) == ("unresolved", False), record
    assert finding in findings(record) and finding[1] in record["restored"]
    assert record["tests"]["test_calc.py::test_add"] == "failed" and record["tests"]["test_calc.py::test_double"] == "passed"


@pytest.mark.parametrize("name", CHEATS)
def test_the_fix_resolves_whatever_comes_with_it(daemon, bugged, name):
    record = score(daemon, bugged, bugged.right_patch + CHEATS[name][0])
    assert record["outcome"] == "resolved", record
    assert record["integrity"]["verdict"] == "suspect"


REFUSED = {
    "escape": new("../../etc/evil", "x\n"), "absolute": new("/etc/evil", "x\n").replace("b//etc", "/etc"), "git": new(".git/hooks/post-checkout", "x\n"),
    "git spelt": new(".GIT /config", "x\n"), "through a link": new("out", "/tmp", "120000") + new("out/brig-evil", "x\n"),
    "bomb": "diff --git a/b b/b\nnew file mode 100644\nGIT binary patch\nliteral 99999999999\nHcmV?d00001\n\n",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_patch_may_do_is_rejected_and_the_tests_run_at_base(daemon, bugged, name):
    record = score(daemon, bugged, bugged.right_patch + REFUSED[name])
    assert (record["outcome"], record["status"], record["patch_applied"]) == ("patch_rejected", "completed", False), record
    assert record["tests"]["test_calc.py::test_add"] == "failed" and record["tests"]["test_calc.py::test_double"] == "passed"
    assert not os.path.exists("/etc/evil") and not os.path.exists("/tmp/brig-evil")


def test_a_gold_patch_that_does_not_apply_is_our_callers_fault(daemon, bugged):
    record = score(daemon, bugged, bugged.right_patch, test_patch=edit("test_calc.py", "nothing\nlike\nit\n", "at\nall\n"))
    assert (record["outcome"], record["status"], record["test_patch_applied"], record["exit_code"]) == ("test_patch_rejected", "failed", False, -1), record


def test_a_patch_too_large_for_the_sandbox_is_the_patchs_fault(daemon, bugged):
    """The helper that applies it is killed at the memory limit; a second one goes on without it."""
    record = score(daemon, bugged, bugged.right_patch + new("big.txt", "x\n" * 3000000), limits={"memory_mb": 96, "disk_mb": 64})
    assert record["outcome"] == "patch_rejected", record
    assert record["tests"]["test_calc.py::test_double"] == "passed"


def test_protected_paths_are_put_back(daemon, bugged):
    record = score(daemon, bugged, bugged.right_patch, protect=["calc.py"])
    assert record["outcome"] == "unresolved" and record["restored"] == ["calc.py"]
    assert ("protected_path_edited", "calc.py") in findings(record)


def test_allowed_configuration_stays(daemon, bugged):
    record = score(daemon, bugged, bugged.right_patch + new("conftest.py", "def pytest_configure(config):\n    print('mine')\n"), allow_config=["conftest.py"])
    assert record["outcome"] == "resolved" and record["restored"] == [], record
    assert "mine" in record["stdout"]


def test_the_ladder_applies_what_the_default_does_not(daemon, bugged):
    fuzzy = brigd.RIGHT.replace(" def add(a, b):", " def add(left, b):").replace(" def double(a):", " def double(left):")
    assert score(daemon, bugged, fuzzy)["outcome"] == "patch_rejected"
    record = score(daemon, bugged, fuzzy, patch_mode="ladder")
    assert record["outcome"] == "resolved" and record["patch_rung"] in ("three_way", "fuzzy"), record


@pytest.mark.parametrize("path", ["../x", "/etc", ".git/config", "a//b", "C:/x", "d/" * 65 + "f"])
def test_a_protected_path_out_of_the_tree_is_a_bad_request(daemon, bugged, path):
    for field in ("protect", "allow_config"):
        answer = daemon.call("POST", "/task/submit", bugged.request(**{field: [path]}))
        assert answer.status == 400 and field in answer.json["error"]


def test_a_protected_directory_may_end_in_a_slash(daemon, bugged):
    record = score(daemon, bugged, bugged.right_patch + new("data/x", "x\n"), protect=["data/"])
    assert record["outcome"] == "resolved" and record["restored"] == ["data"], record


def test_little_memory_is_enough_to_apply(daemon, bugged):
    record = score(daemon, bugged, bugged.right_patch, limits={"memory_mb": 16, "disk_mb": 16}, test_command="true")
    assert record["patch_applied"] and record["test_patch_applied"], record
