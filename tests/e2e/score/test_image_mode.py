"""Tasks of image mode: a harness that only the run sees, a command in the image, files read back, and nothing left."""
import base64
import textwrap

import brigd
import images
import pytest

from score_project import ADD, CALC, GOLD, PYTEST, RIGHT, ZERO


@pytest.fixture(scope="module")
def daemon():
    with brigd.Daemon() as d:
        work = images.Tar().directory("project").directory("project/tests").add("harness/old", b"the image's own").add("out/stale", b"the image's own")
        for name, text in CALC.items():
            work.add("project/" + name, textwrap.dedent(text).encode())
        body = images.with_configuration(images.python(), work.done(), name="work:1", WorkingDir="/project", Env=["GREETING=hello", "PATH=/usr/bin:/bin"])
        images.load(d, body)
        images.load(d, images.with_configuration(images.python(), name="app:1", User="app", WorkingDir="/tmp"))
        images.load(d, images.shell(), name="shell")
        yield d


@pytest.fixture
def run(daemon):
    def ask(entry=None, image="work:1", **more):
        request = {"mode": "image", "image": image, **more}
        if entry is not None:
            request["entry_command"] = entry
        return daemon.result(daemon.submit(request))
    return ask


def test_an_entry_script_reads_its_harness_and_leaves_results(run):
    script = "cat /harness/data/in.txt > /out/result.txt; mkdir /out/sub; echo '{\"a\": 1}' > /out/sub/out.json; echo said; echo complained >&2; exit 5"
    r = run(harness_files={"entryscript.sh": script, "data/in.txt": {"b64": base64.b64encode(b"bytes \xff\n").decode()}}, result_files=["result.txt", "sub/out.json", "absent", "sub"])
    assert (r["status"], r["exit_code"], r["outcome"], r["resolved"]) == ("completed", 5, "unresolved", False), r
    assert r["result_files"] == {"result.txt": "bytes \ufffd\n", "sub/out.json": '{"a": 1}\n', "absent": None, "sub": None}
    assert (r["stdout"], r["stderr"]) == ("said\n", "complained\n")
    assert (r["mode"], r["image"]) == ("image", "work:1")
    for key in ("repo_url", "base_commit", "test_command", "patch_applied", "test_patch_applied", "patch_diff", "lint_errors", "patch_rung"):
        assert r[key] is None, key
    assert r["provenance"]["argv"] == ["/bin/bash", "-c", "bash /harness/entryscript.sh"]


def test_the_command_runs_as_the_image_says(run):
    r = run("pwd; echo $GREETING $PATH; id -u; echo $0 $BASH_VERSION | grep -c bash || echo $BASH_VERSION", env={"PATH": "/bin"})
    assert r["stdout"].startswith("/project\nhello /bin\n0\n") and r["outcome"] == "resolved", r
    r = run("pwd; id -u; id -g; echo $HOME; echo mine > /out/mine", image="app:1", result_files=["mine"])
    assert r["stdout"] == "/tmp\n77\n78\n/home/app\n" and r["result_files"] == {"mine": "mine\n"}, r
    assert run("id -u", image="app:1", user=0)["stdout"] == "0\n"


def test_the_harness_is_read_only_and_the_output_empty(run):
    r = run("ls -A /harness /out; (echo x > /harness/a) 2>/dev/null || echo closed; (rm /harness/a) 2>/dev/null || echo kept; cat /harness/a", harness_files={"a": "A"})
    assert r["stdout"] == "/harness:\na\n\n/out:\nclosed\nkept\nA", r
    r = run("ls -A /harness /out", result_files=["stale"])         # none of the image's own, though it has some there
    assert r["stdout"] == "/harness:\n\n/out:\n" and r["result_files"] == {"stale": None}, r


def test_other_places(run):
    r = run(harness_files={"entryscript.sh": "pwd > /srv/results/x; ls /verify"}, harness_mount="/verify", output_mount="/srv/results/", result_files=["x"])
    assert r["stdout"] == "entryscript.sh\n" and r["result_files"] == {"x": "/project\n"}, r
    # A place that is a file of the image makes room; what is above it must be a directory.
    r = run("ls /etc/passwd", harness_mount="/etc/passwd", harness_files={"in": ""})
    assert r["stdout"] == "in\n", r
    r = run("true", harness_mount="/etc/passwd/below")
    assert (r["outcome"], r["status"]) == ("unresolved", "completed") and r["exit_code"] in (126, 127) and "view" in r["stderr"], r


def test_the_alias_of_the_field(run):
    assert run("cat /harness/a", workspace_files={"a": "A"})["stdout"] == "A"


@pytest.mark.parametrize("plant", ["ln -s /etc/passwd /out/x", "mkdir /out/x", "mkfifo /out/x 2>/dev/null || busybox mkfifo /out/x", "ln -s / /out/d", "head -c 20000000 /dev/zero > /out/x"])
def test_only_regular_files_of_the_output_are_read(run, plant):
    r = run(plant, result_files=["x", "d/etc/passwd"])
    assert r["result_files"] == {"x": None, "d/etc/passwd": None} and r["status"] == "completed", r


def test_what_is_written_after_the_end_does_not_count(run):
    r = run("echo first > /out/x; (while :; do echo late >> /out/x; done) & sleep 0.2; echo done", result_files=["x"], timeout=60)
    assert r["result_files"]["x"].startswith("first\n") and r["stdout"] == "done\n" and r["outcome"] == "resolved", r["outcome"]


def test_a_timeout_keeps_output_and_results(run):
    r = run("echo begun; echo part > /out/x; sleep 100", result_files=["x"], timeout=2)
    assert (r["outcome"], r["status"], r["exit_code"], r["timed_out"]) == ("timeout", "failed", -1, True)
    assert r["stdout"] == "begun\n" and r["result_files"] == {"x": "part\n"}


def test_a_limit_is_named(run):
    r = run("echo part > /out/x; python3 -c 'x = bytearray(1 << 30); x[::4096] = b\"x\" * len(x[::4096])'", result_files=["x"], limits={"memory_mb": 64, "disk_mb": 64})
    assert (r["outcome"], r["status"]) == ("oom", "completed") and set(r["result_files"]) == {"x"}, r


def test_output_that_would_burst_the_record_is_left_out(run):
    """Each byte is six in JSON: an agent must not be able to make a fault of ours of it."""
    r = run("for i in 1 2 3 4; do head -c 16000000 /dev/zero > /out/$i; done", result_files=["1", "2", "3", "4"], limits={"disk_mb": 256})
    assert r["outcome"] == "resolved" and r["error"] is None
    assert r["result_files"]["1"] is not None and r["result_files"]["4"] is None


def test_tests_are_read_from_the_output(run):
    r = run(f"cd /project && {PYTEST.replace('-q', '-v')}", fail_to_pass=[ZERO])
    assert r["outcome"] == "resolved" and r["report_channel"] == "text" and r["tests"] == {ZERO: "passed"}, (r["stdout"], r["stderr"])
    assert (r["tests_passed"], r["tests_failed"]) == (1, 0)


def test_the_evidence_knows_the_harness(run):
    one = run("true", harness_files={"a": "A"})
    assert run("true", harness_files={"a": {"b64": "QQ=="}})["evidence"] == one["evidence"]
    assert run("true", harness_files={"a": "B"})["evidence"] != one["evidence"]
    assert run("true", harness_files={"b": "A"})["evidence"] != one["evidence"]
    assert one["provenance"]["tree_hash"] and run("true")["provenance"]["tree_hash"] is None


def test_what_needs_a_tree_is_ignored_without_one(run):
    r = run("ls /project", patch="no patch at all", test_patch="nor this", test_command="exit 9", repo_url="file:///nonexistent", setup_command="false", lint_command="ruff", capture_diff=True)
    assert r["outcome"] == "resolved" and r["stdout"] == "calc.py\ntests\n" and r["lint_errors"] is None, r


def test_the_network_is_the_operators_unless_the_request_says(run):
    def links(**more):
        return [line.split(":")[0].strip() for line in run("cat /proc/net/dev", **more)["stdout"].splitlines()[2:]]
    for more in ({}, {"block_network": True}, {"network": "none"}, {"block_network": False, "network": "none"}):
        assert links(**more) == ["lo"], more
    assert len(links(block_network=False)) == 2


def test_the_hosts_image_works_too(run):
    r = run(image="host", harness_files={"entryscript.sh": "python3 -c 'print(6*7)' > /out/n"}, result_files=["n"])
    assert r["result_files"] == {"n": "42\n"} and r["outcome"] == "resolved", r


class TestWithATree:
    """`tree: image`: what clone mode does to a tree, and the harness beside it."""
    TREE = {"tree": "image", "repo_path": "/project"}

    def test_is_patched_tested_and_compared(self, run, calc):
        r = run(**self.TREE, patch=calc.patch(RIGHT), test_patch=calc.patch(GOLD), test_command=PYTEST + " && cp calc.py /out", fail_to_pass=[ADD], pass_to_pass=[ZERO],
                capture_diff=True, result_files=["calc.py"])
        assert "return a + b" in r["result_files"]["calc.py"] and "return a + b" in r["patch_diff"] and "test_add" not in r["patch_diff"], r
        assert r["patch_applied"] and r["test_patch_applied"] and r["outcome"] == "resolved"

    def test_the_launcher_reports(self, run, calc):
        r = run(**self.TREE, patch=calc.patch(RIGHT), test_patch=calc.patch(GOLD), test_command=PYTEST, fail_to_pass=[ADD], pass_to_pass=[ZERO])
        assert r["outcome"] == "resolved" and r["report_channel"] == "private" and r["integrity"]["verdict"] == "clean", r

    def test_the_entry_runs_over_the_patched_tree(self, run, calc):
        r = run("cat calc.py > /out/seen; cat tests/test_calc.py > /out/gold", **self.TREE, patch=calc.patch({**RIGHT, **{"tests/test_calc.py": "cheat = 1\n"}}),
                test_patch=calc.patch(GOLD), result_files=["seen", "gold"])
        assert "return a + b" in r["result_files"]["seen"] and "test_add" in r["result_files"]["gold"] and "cheat" not in r["result_files"]["gold"]
        assert r["restored"] == ["tests/test_calc.py"] and r["patch_rung"] == "strict"

    def test_a_patch_that_does_not_apply(self, run):
        r = run("cat calc.py", **self.TREE, patch="--- a/calc.py\n+++ b/calc.py\n@@ -1 +1 @@\n-nothing like it\n+x\n")
        assert r["outcome"] == "patch_rejected" and "return a - b" in r["stdout"], r


# ---- what is missing ----------------------------------------------------------------------------------------------------------------


def test_no_bash_in_the_image(run):
    r = run("echo hi", image="shell", result_files=["x"])
    assert (r["outcome"], r["status"], r["exit_code"]) == ("unresolved", "completed", 127) and "/bin/bash" in r["stderr"], r
    assert r["result_files"] == {"x": None}


def test_no_entry_script(run):
    r = run()
    assert (r["outcome"], r["exit_code"]) == ("unresolved", 127) and "entryscript.sh" in r["stderr"], r


def test_no_such_image(run):
    r = run("true", image="nosuch", result_files=["x"], pull_timeout=20)
    assert (r["outcome"], r["error"]["code"], r["result_files"]) == ("infra_error", "image_not_found", {"x": None}), r


def test_a_workdir_that_is_not_there(daemon, run):
    images.load(daemon, images.with_configuration(images.python(), name="lost:1", WorkingDir="/no/where"))
    r = run("pwd", image="lost:1")
    assert r["status"] == "completed" and r["outcome"] == "unresolved" and r["exit_code"] in (126, 127), r


@pytest.mark.parametrize("request_, named", [
    ({}, "Missing required fields: ['image']"),
    ({"image": ""}, "Missing required fields: ['image']"),
    ({"image": "x", "harness_files": {"../x": ""}}, "harness_files"),
    ({"image": "x", "harness_files": {"/x": ""}}, "harness_files"),
    ({"image": "x", "harness_files": ["x"]}, "harness_files"),
    ({"image": "x", "result_files": ["../x"]}, "result_files"),
    ({"image": "x", "result_files": ["/etc/passwd"]}, "result_files"),
    ({"image": "x", "output_mount": "/harness/out"}, "output_mount"),
    ({"image": "x", "harness_mount": "/dev"}, "harness_mount"),
    ({"image": "x", "tree": "clone", "repo_url": "file:///x"}, "tree"),
    ({"image": "x", "entry_command": "x" * 70000}, "entry_command"),
    ({"image": "a b"}, "image"),
])
def test_bad_requests(daemon, request_, named):
    answer = daemon.call("POST", "/task/submit", {"mode": "image", **request_})
    assert answer.status == 400 and named in answer.json["error"], answer


def test_many_long_names(run):
    names = [f"{i:03}" + "n" * 200 for i in range(256)]
    r = run(f"echo x > /out/{names[255]}", result_files=names)
    assert r["result_files"] == {**{n: None for n in names}, names[255]: "x\n"}


# ---- ends ------------------------------------------------------------------------------------------------------------------------------


def test_a_task_deleted_while_it_runs(daemon):
    task = daemon.submit({"mode": "image", "image": "work:1", "entry_command": "echo begun; sleep 60", "timeout": 100, "result_files": ["x"]})
    brigd.until(lambda: b"begun" in daemon.call("GET", f"/task/{task}/log/stdout").body, "it runs", 60)
    assert daemon.call("DELETE", f"/task/{task}").status == 200
    assert images.users(daemon, "work:1") == 0 and daemon.status(task) == 404


def test_a_task_is_run_again_after_a_crash():
    with brigd.Daemon() as d:
        images.load(d, images.python(), name="py")
        task = d.submit({"mode": "image", "image": "py", "harness_files": {"entryscript.sh": "sleep 3; echo made > /out/x"}, "result_files": ["x"], "timeout": 100})
        d.until_running(task)
        d.kill()
        d.start()
        r = d.result(task)
        assert r["outcome"] == "resolved" and r["result_files"] == {"x": "made\n"}, r


def test_nothing_of_one_run_is_in_the_next(run):
    run("echo dirt > /project/dirt; echo dirt > /out/dirt; echo dirt > /tmp/dirt")
    assert run("ls /project /out /tmp")["stdout"] == "/out:\n\n/project:\ncalc.py\ntests\n\n/tmp:\n"
