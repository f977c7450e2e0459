"""What each field of a request does, seen from the record."""
import pytest


@pytest.fixture
def run(daemon, repository):
    def run(**fields):
        return daemon.result(daemon.submit(repository.request(**fields)))
    return run


def test_diff_and_similarity(run, repository):
    record = run(patch=repository.right_patch, capture_diff=True, reference_patch=repository.right_patch)
    assert "+    return a + b" in record["patch_diff"]
    assert record["patch_similarity"] == 1
    record = run(patch=repository.right_patch, reference_patch="")
    assert record["patch_diff"] is None


def test_lint_is_counted_and_changes_nothing(run, repository):
    record = run(patch=repository.right_patch, lint_command="echo calc.py:1:1: E111 one; echo calc.py:2:1: W222 two; exit 1 # flake8")
    assert record["lint_output"].startswith("calc.py:1:1: E111 one\n")
    assert record["lint_errors"] == 2
    assert record["outcome"] == "resolved"


def test_of_an_unknown_linter_there_is_output_and_no_count(run):
    record = run(lint_command="echo calc.py:1:1: E111 one")
    assert (record["lint_errors"], record["lint_output"]) == (None, "calc.py:1:1: E111 one\n")
    record = run(lint_command="flake8-that-is-not-there .")
    assert record["lint_errors"] is None and "not found" in record["lint_output"]


def test_the_environment_is_clean_and_env_is_added(run):
    record = run(test_command="env", env={"FOO": "bär", "PATH": "/usr/bin:/bin"})
    lines = dict(line.split("=", 1) for line in record["stdout"].splitlines())
    lines.pop("PWD", None), lines.pop("_", None)
    assert lines == {"FOO": "bär", "PATH": "/usr/bin:/bin", "HOME": "/root", "USER": "root", "LANG": "C.UTF-8", "TZ": "UTC"}
    assert record["provenance"]["environment"] == sorted(f"{k}={v}" for k, v in lines.items())


def test_user(run):
    assert run(test_command="id -u; id -g")["stdout"] == "0\n0\n"
    assert run(test_command="id -u; id -g", user=1234)["stdout"] == "1234\n1234\n"
    assert run(test_command="id -u; id -g", user="5:6")["stdout"] == "5\n6\n"


WRITES = """\
set -e
stat -c %u:%g . calc.py .git/index package test_new.py made/by/setup
echo >> calc.py; echo > new; mkdir -p package/deep; rm test_new.py; chmod 0600 calc.py; touch -d @0 made/by/setup
git status --porcelain | sort
"""


def test_a_user_owns_the_tree(run, repository):
    new = "diff --git a/package/new.py b/package/new.py\nnew file mode 100644\n--- /dev/null\n+++ b/package/new.py\n@@ -0,0 +1 @@\n+x = 1\n"
    fields = {"user": "1234:99", "patch": new, "test_patch": new.replace("package/new.py", "test_new.py"), "test_command": WRITES,
              "setup_command": "mkdir -p made/by; echo made > made/by/setup; git log -1 --format=%H >/commit; echo >> test_calc.py"}
    for _ in range(2):
        record = run(**fields)
        assert record["exit_code"] == 0, record
        assert record["stdout"].split("\n")[:6] == ["1234:99"] * 6
        assert record["stdout"].split("\n")[6:] == [" M calc.py", " M test_calc.py", "?? made/", "?? new", "?? package/", ""], record
    record = run(test_command="stat -c %u:%g . calc.py .git/index")
    assert record["stdout"] == "0:0\n" * 3                                   # whose tree is another one
    record = run(user=1234, test_command="stat -c %u:%g calc.py; touch /usr/x /etc/x /x")
    assert record["stdout"] == "1234:1234\n" and record["stderr"].count("Permission denied") == 3, record


def test_a_users_set_up_that_fails_says_its_own_status(run):
    record = run(user=1234, setup_command="echo the-reason >&2; exit 3")
    assert record["error"]["code"] == "setup_failed" and "status 3" in record["error"]["message"] and "the-reason" in record["error"]["message"]


def test_setup_runs_once_and_stays(run):
    fields = {"setup_command": "echo $RANDOM$$ > made; date +%s%N >> made; mkdir -p /opt/made", "test_command": "cat made; ls -d /opt/made"}
    first, second = run(**fields), run(**fields)
    assert first["exit_code"] == second["exit_code"] == 0
    assert first["stdout"] == second["stdout"] and second["timing"]["prepare_ms"] < first["timing"]["prepare_ms"] and second["cached"] is False


@pytest.mark.parametrize("fields, code", [
    ({"setup_command": "echo the-reason >&2; exit 3"}, "setup_failed"),
    ({"setup_command": "false"}, "setup_failed"),
    ({"setup_command": "sleep 1000", "setup_timeout": 1}, "setup_timeout"),
    ({"image": "/nonexistent"}, "image_not_found"),
    ({"image": "nosuch:latest"}, "image_not_found"),
    ({"image": "/var/tmp"}, "image_not_found"),   # there, and not for us: the operator names no place for images
    ({"base_commit": "nosuchbranch"}, "commit_not_found"),
    ({"base_commit": "f" * 40}, "commit_not_found"),
    ({"repo_url": "http://127.0.0.1:1/r.git"}, "repo_unreachable"),
    ({"repo_url": "/tmp/there/is/no/such/repository"}, "repo_unreachable"),
])
def test_what_is_not_there_has_a_name(run, daemon, fields, code):
    record = run(**fields)
    assert (record["outcome"], record["status"], record["exit_code"]) == ("infra_error", "failed", -1), record
    assert record["error"]["code"] == code and record["error"]["message"], record
    assert record["error"]["message"] in record["stderr"]
    if code == "setup_failed":
        assert ("the-reason" if "reason" in fields["setup_command"] else "status 1 and said nothing") in record["stderr"]


def test_repo_path(run):
    assert run(test_command="pwd")["stdout"] == "/testbed\n"
    assert run(test_command="pwd; ls calc.py", repo_path="/box/deep/tree")["stdout"] == "/box/deep/tree\ncalc.py\n"


@pytest.mark.parametrize("limits, command, outcome", [
    ({"memory_mb": 64, "disk_mb": 16}, "python3 -c 'x = b\"x\" * (900 << 20)'", "oom"),
    ({"memory_mb": 64}, "python3 -c 'import time; x = b\"x\" * (300 << 20); time.sleep(600)'", "oom"),   # beside the default disk_mb
    ({"memory_mb": 64}, "python3 -c 'import mmap, time; x = mmap.mmap(-1, 300 << 20); x.write(bytes(300 << 20)); time.sleep(600)'", "oom"),   # shared
    ({"pids": 20}, "for i in $(seq 100); do sleep 5 & done; wait; false", "pids_limit"),
    ({"disk_mb": 20}, "head -c 50000000 /dev/zero > f", "disk_limit"),
    ({"inodes": 1000}, "for i in $(seq 3000); do : > f$i || exit 1; done", "disk_limit"),
    ({"output_bytes": 1000}, "yes", "output_limit"),
    ({"wall_s": 2}, "sleep 1000", "timeout"),
])
def test_each_limit_is_an_outcome(run, limits, command, outcome):
    record = run(limits=limits, test_command=command)
    assert record["outcome"] == outcome, record
    assert record["limits_hit"] == [outcome]
    assert record["status"] == ("failed" if outcome == "timeout" else "completed")


def test_cpus(run):
    record = run(limits={"cpus": 0.2}, test_command="python3 -c 'import time; a=time.time(); s=time.process_time()\nwhile time.time()-a < 1: pass\nprint(time.process_time()-s)'")
    assert float(record["stdout"]) < 0.6, record


def test_files_may_take_what_is_for_files(run):
    record = run(limits={"memory_mb": 64, "disk_mb": 1024}, test_command="head -c 300000000 /dev/zero >big && head -c 100000000 /dev/zero >/dev/shm/big && sleep 0.3")
    assert record["outcome"] == "resolved" and record["limits_hit"] == [], record


def test_a_timeout_keeps_the_output(run):
    record = run(test_command="echo begun; echo oops >&2; sleep 1000", timeout=3)
    assert (record["outcome"], record["exit_code"], record["timed_out"], record["stdout"]) == ("timeout", -1, True, "begun\n")
    assert record["limits_hit"] == ["timeout"]
    assert record["stderr"] == "oops\nTimed out after 3 s"


def test_network(run):
    assert run(test_command="cat /proc/net/dev | tail -n +3 | cut -d: -f1 | tr -d ' '")["stdout"] == "lo\n"
    assert "eth0" in run(test_command="cat /proc/net/dev", network="open")["stdout"]


def test_ids_decide(run):
    record = run(fail_to_pass=["test_calc.py::test_double"], pass_to_pass="[]")
    assert record["outcome"] == "resolved" and record["exit_code"] == 1   # test_add fails, and nobody asked for it
    record = run(fail_to_pass=["test_calc.py::test_double", "test_calc.py::test_gone"])
    assert record["outcome"] == "unresolved" and record["tests"]["test_calc.py::test_gone"] == "missing"
    assert record["fail_to_pass"] == {"success": ["test_calc.py::test_double"], "failure": ["test_calc.py::test_gone"]}


def test_the_command_may_be_built_from_ids(run):
    record = run(test_command=None, fail_to_pass=["test_calc.py::test_double"])
    assert record["outcome"] == "resolved" and record["tests"] == {"test_calc.py::test_double": "passed"}
    record = run(test_command=None, fail_to_pass=["test_calc.py::test_double"], run="files")
    assert record["tests"] == {"test_calc.py::test_add": "failed", "test_calc.py::test_double": "passed"}


def test_patch_mode(run, repository):
    crooked = repository.right_patch.replace("@@ -1,5 +1,5 @@", "@@ -1,9 +1,9 @@").rstrip("\n")
    record = run(patch=crooked)
    assert record["patch_applied"] and record["patch_rung"] == "recount" and record["outcome"] == "resolved", record
    record = run(patch=crooked, patch_mode="strict")
    assert not record["patch_applied"] and record["outcome"] == "patch_rejected" and record["reason"], record
    assert record["status"] == "completed" and record["exit_code"] == 1


def test_protect_puts_back(run, repository):
    record = run(patch=repository.right_patch, protect=["calc.py"])
    assert record["restored"] == ["calc.py"] and record["outcome"] == "unresolved"
    assert record["integrity"]["verdict"] == "suspect"


def test_a_signal_is_128_and_its_number(run):
    assert run(test_command="kill -9 $$")["exit_code"] == 137


def test_the_evidence_is_of_what_the_record_says(run, repository):
    """Computed again from the record alone: keys sorted, nothing between them."""
    import hashlib
    import json
    record = run(patch=repository.right_patch, test_command="python3 -m pytest -q")
    p = record["provenance"]
    text = json.dumps({"v": 1, "tree_hash": p["tree_hash"], "image_digest": p["image_digest"], "patch_rung": record["patch_rung"],
                       "restored": record["restored"], "argv": p["argv"], "environment": p["environment"],
                       "tests": [list(t) for t in record["tests"].items()], "outcome": record["outcome"]},
                      sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert record["evidence"] == hashlib.sha256(text.encode()).hexdigest()
    again = run(patch=repository.right_patch, test_command="python3 -m pytest -q")
    assert again["evidence"] == record["evidence"]
