"""The tree stands where the request says, also below /usr and /opt, which are file systems of their own in a sandbox."""
import pytest

from score_project import ADD, GOLD, RIGHT, ZERO, kinds

SETUP = "printf 'VALUE = 1\\n' > made.py && printf 'def add(a, b):\\n    return a - b\\n# set up\\n' > calc.py && mkdir -p tests && printf '# ours\\n' > tests/helper.py"


@pytest.mark.parametrize("where", ["/opt/tree", "/usr/src/tree", "/srv/tree"])
@pytest.mark.parametrize("setup", ["", SETUP])
def test_restoring_and_diffing_work_wherever_the_tree_stands(score, calc, where, setup):
    patch = "--- a/calc.py\n+++ b/calc.py\n@@ -1,2 +1,2 @@\n def add(a, b):\n-    return a - b\n+    return a + b\n"
    patch += "--- /dev/null\n+++ b/conftest.py\n@@ -0,0 +1 @@\n+raise SystemExit(0)\n"
    r = score(calc, patch, GOLD, repo_path=where, setup_command=setup, setup_network="none", capture_diff=True, fail_to_pass=[ADD], pass_to_pass=[ZERO])
    assert r["outcome"] == "resolved", (r["outcome"], r["error"], r["stdout"][-500:], r["stderr"][-500:])
    assert "conftest.py" in str(r["restored"]) and "runner_config_changed" in kinds(r)
    assert "return a + b" in r["patch_diff"] and "test_add" not in r["patch_diff"]
    assert "made.py" not in r["patch_diff"] and "+# set up" not in r["patch_diff"]      # the set-up's, not the agent's


def test_a_set_up_that_fails_says_how_long_it_took(score, calc):
    r = score(calc, repo_path="/srv/tree", setup_command="sleep 1; exit 3", setup_network="none")
    assert r["error"]["code"] == "setup_failed" and 1000 <= r["timing"]["prepare_ms"] <= r["execution_time"] * 1000 + 1
