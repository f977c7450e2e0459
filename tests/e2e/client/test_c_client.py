"""The C client: its calls by way of client_tool.c, and the example as a user would build it."""
import json
import os
import pathlib
import shutil
import subprocess
import threading

import pytest

TOP = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ.get("BRIG_BUILD", TOP / "build"))
SPEC = json.dumps({"test_command": "x"})


def tool(*arguments, **environment):
    done = subprocess.run([BUILD / "tests/e2e/client_tool", *arguments], capture_output=True, text=True, timeout=120,
                          env={**os.environ, **environment})
    assert done.stdout, (done.returncode, done.stderr)
    return json.loads(done.stdout)


def test_a_task_is_scored_and_its_record_read(brig, repository):
    d = brig()
    spec = json.dumps(repository.request(patch=repository.right_patch, fail_to_pass=["test_calc.py::test_add"]))
    r = tool("task", f"http://127.0.0.1:{d.port}", spec)
    assert (r["code"], r["status"], r["outcome"], r["resolved"], r["exit_code"]) == (0, "completed", "resolved", True, 0)
    assert r["json_len"] > 100 and d.rows() == 0


def test_the_example_builds_with_pkg_config_and_works(brig, repository, tmp_path):
    subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", tmp_path], check=True, capture_output=True)
    pc = next(tmp_path.rglob("brig.pc"))
    environment = {**os.environ, "PKG_CONFIG_PATH": str(pc.parent), "PKG_CONFIG_SYSROOT_DIR": str(tmp_path)}
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "brig"], env=environment, check=True, capture_output=True, text=True).stdout.split()
    program = tmp_path / "score"
    sanitize = ["-fsanitize=address,undefined"] if b"libasan" in subprocess.run(["ldd", BUILD / "tests/e2e/client_tool"], capture_output=True).stdout else []
    subprocess.run(["gcc", "-Wall", "-Werror", *sanitize, TOP / "lib/examples/score.c", "-o", program, *flags], check=True)
    (tmp_path / "spec.json").write_text(json.dumps(repository.request(test_command="exit 3")))
    done = subprocess.run([program, f"http://127.0.0.1:{brig().port}", tmp_path / "spec.json"], capture_output=True, text=True,
                          env={"LD_LIBRARY_PATH": str(pc.parent.parent)}, timeout=120)
    assert (done.returncode, done.stdout.split(":")[0]) == (1, "unresolved"), done
    shutil.rmtree(tmp_path, ignore_errors=True)


def test_only_the_documented_names_are_exported():
    library = next(p for p in (BUILD / "lib").glob("libbrig.so*") if p.is_file() and not p.is_symlink())
    names = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout.split()[2::3]
    header = (TOP / "include/brig/brig.h").read_text()
    assert names and all(n.startswith("brig_") and f"{n}(" in header for n in names if not n.startswith("__")), names


def test_errors_say_what_and_where(executors):
    e = executors(refuse=(400, {"error": "Missing required fields: ['repo_url']"}))
    r = tool("task", e.url, SPEC)
    assert (r["code"], r["http_status"]) == (-4, 400) and "repo_url" in r["message"]
    assert tool("task", e.url, "{")["code"] == -2
    assert tool("task", "ftp://x", SPEC)["code"] == -2
    assert tool("task", "http://127.0.0.1:1", SPEC)["code"] == -3


def test_a_lost_answer_is_asked_for_again_and_the_task_accepted_once(executors):
    e = executors(cut=2)
    assert tool("task", e.url, SPEC)["code"] == 0
    assert len(e.paths("POST")) == 3 and len(e.tasks) == 1


def test_a_task_that_does_not_end_in_time_is_cancelled(executors):
    e = executors()
    e.gate.clear()
    assert tool("task", e.url, SPEC, "0.3")["code"] == -6
    assert e.deleted == ["task-0"]


def test_results_are_held_back_or_polled(executors):
    for holds, fewest, most in ((True, 1, 1), (False, 3, 12)):
        e = executors(holds=holds)
        e.gate.clear()
        threading.Timer(0.5, e.gate.set).start()
        assert tool("task", e.url, SPEC)["code"] == 0
        assert fewest <= len(e.paths()) <= most


def test_the_token_comes_from_the_environment(brig):
    d = brig(API_TOKEN="sesame", BRIG_LISTEN="127.0.0.1:0")
    url = f"http://127.0.0.1:{d.port}"
    assert tool("task", url, SPEC, DOCKYARD_SANDBOX_API_TOKEN="wrong")["http_status"] == 401
    assert tool("task", url, SPEC, BRIG_API_TOKEN="sesame")["http_status"] == 400


def test_a_pool_gives_results_in_order_and_leaves_a_dead_endpoint_alone(executors):
    a, b = executors(slots=1), executors(slots=2)
    r = tool("pool", f"{a.url}, http://127.0.0.1:1 ,{b.url}", *[SPEC] * 20)
    assert r["seen"] == 20 and [o["code"] for o in r["outcomes"]] == [0] * 20
    assert len(a.tasks) + len(b.tasks) == 20 and a.running_most <= 2 and b.running_most <= 4
    assert tool("pool", "", SPEC, BRIG_URLS=a.url)["outcomes"][0]["code"] == 0
    assert tool("pool", "")["code"] == -2


@pytest.mark.parametrize("behaviour", [{"forgets": True}, {"refuse": (503, {"error": "full"})},
                                       {"record": {"status": "failed", "error": {"code": "disk_full"}}}])
def test_a_pool_gives_lost_work_to_another(executors, behaviour):
    bad, good = executors(**behaviour), executors()
    r = tool("pool", f"{bad.url},{good.url}", *[SPEC] * 6)
    assert [o["code"] for o in r["outcomes"]] == [0] * 6 and all(o["resolved"] for o in r["outcomes"])


def test_a_pool_does_not_repeat_a_refusal(executors):
    a, b = (executors(refuse=(400, {"error": "no"})) for _ in range(2))
    assert tool("pool", f"{a.url},{b.url}", SPEC)["outcomes"] == [{"code": -4, "http_status": 400}]
    assert len(a.paths("POST")) + len(b.paths("POST")) == 1


def test_a_session_runs_commands_and_finishes(brig):
    url = f"http://127.0.0.1:{brig().port}"
    r = tool("session", url, json.dumps({"image": "host", "network": "none"}), "echo out; echo err >&2; exit 3",
             json.dumps({"harness_files": {"test.sh": "echo verified; exit 4"}}))
    assert (r["code"], r["exit_code"], r["stdout"], r["stderr"], r["timed_out"]) == (0, 3, "out\n", "err\n", False)
    assert (r["finish"]["exit_code"], r["finish"]["stdout"]) == (4, "verified\n")
    assert tool("session", url, json.dumps({"image": "/nothing/here"}), "true", "{}")["code"] == -7
