"""Tasks on images of the store: what the image gives and wants is honoured, what it lacks is named, and it stays while it is used."""
import json
import subprocess
import textwrap

import brigd
import images
import pytest

from score_project import ADD, CALC, GOLD, PYTEST, RIGHT, ZERO, Project, kinds

IDS = {"fail_to_pass": [ADD], "pass_to_pass": [ZERO]}
LOOK = "echo GREETING=$GREETING B=$B HOME=$HOME USER=$USER; id -u; id -g; pwd"


@pytest.fixture(scope="module")
def daemon():
    with brigd.Daemon() as d:
        images.load(d, images.python(), name="py")
        images.load(d, images.with_configuration(images.python(), name="app:1", Env=["GREETING=hello", "B=image", "PATH=/usr/bin:/bin"], WorkingDir="/srv", User="app"))
        images.load(d, images.shell(), name="shell")
        yield d


@pytest.fixture
def run(daemon):
    return lambda project, *args, **more: daemon.result(daemon.submit(project.request(*args, **more)))


def test_a_verdict_on_an_imported_image(daemon, run, calc):
    r = run(calc, RIGHT, GOLD, image="py", capture_diff=True, **IDS)
    assert r["outcome"] == "resolved" and r["report_channel"] == "private", (r["error"], r["stdout"], r["stderr"])
    assert r["image"] == "py" and "return a + b" in r["patch_diff"] and "test_add" not in r["patch_diff"]
    assert r["provenance"]["image_digest"] == [i for i in daemon.call("GET", "/v1/images").json["images"] if "py:latest" in i["names"]][0]["digest"].replace("sha256:", "")
    again = run(calc, RIGHT, GOLD, image="py:latest", capture_diff=True, **IDS)
    assert again["evidence"] == r["evidence"]
    wrong = run(calc, {"calc.py": "def add(a, b):\n    return 0\n"}, GOLD, image="py", **IDS)
    assert wrong["outcome"] == "unresolved" and wrong["tests"][ADD] == "failed" and wrong["evidence"] != r["evidence"]


def test_the_image_is_named_by_its_digest_too(daemon, run, calc):
    digest = run(calc, RIGHT, GOLD, image="py", **IDS)["provenance"]["image_digest"]
    assert run(calc, RIGHT, GOLD, image="sha256:" + digest, **IDS)["outcome"] == "resolved"


def test_what_the_image_wants_is_honoured(run, calc):
    r = run(calc, image="app:1", test_command=LOOK, env={"B": "request"})
    assert r["stdout"] == "GREETING=hello B=request HOME=/home/app USER=app\n77\n78\n/testbed\n", r
    assert "GREETING=hello" in r["provenance"]["environment"] and "TZ=UTC" in r["provenance"]["environment"]


def test_the_request_may_say_another_user(run, calc):
    r = run(calc, image="app:1", test_command=LOOK, user=0)
    assert r["stdout"] == "GREETING=hello B=image HOME=/root USER=root\n0\n0\n/testbed\n", r
    r = run(calc, image="app:1", test_command=LOOK, user="1000:1001")
    assert r["stdout"] == "GREETING=hello B=image HOME=/tmp USER=user\n1000\n1001\n/testbed\n", r


def test_the_images_user_owns_the_cloned_tree(run, calc):
    r = run(calc, RIGHT, GOLD, image="app:1", test_command="touch here calc.py && echo could", **{k: [] for k in IDS})
    assert "could" in r["stdout"] and r["exit_code"] == 0, r


def test_a_set_up_runs_in_the_image_once_for_it(run, calc):
    setup = {"setup_command": "test ! -e /usr/bin/git && echo $GREETING > made && cat /etc/passwd > /usr/seen", "setup_network": "none"}
    command = "cat made; head -n 1 /usr/seen"
    first = run(calc, image="app:1", test_command=command, **setup)
    assert first["stdout"] == "hello\nroot:x:0:0::/root:/bin/sh\n", first
    # Another image is another set-up, and another verdict's evidence.
    other = run(calc, image="py", test_command=command, **setup)
    assert other["stdout"] == "\nroot:x:0:0::/root:/bin/sh\n"
    assert first["provenance"]["tree_hash"] == other["provenance"]["tree_hash"]
    assert first["provenance"]["image_digest"] != other["provenance"]["image_digest"]


def test_layers_above_layers(daemon, run, calc):
    """What an upper layer removes is gone below the tree, and what it has at the tree's place is hidden."""
    top = images.Tar().add("etc/.wh.group").add("testbed/old.py", b"old").add("testbed/calc.py", b"old").done()
    images.load(daemon, images.with_configuration(images.python(), top, name="two:1"))
    r = run(calc, image="two:1", test_command="ls; cat /etc/group || echo gone; cat calc.py")
    assert r["stdout"] == "calc.py\ntests\ngone\n\ndef add(a, b):\n    return a - b\n", r


def test_a_built_image_over_the_hosts(daemon, run, calc):
    built = daemon.call("POST", "/v1/images/build", {"dockerfile": "FROM host\nENV BUILT=yes\nRUN echo made > /usr/made\nUSER 5:6\n", "names": ["built"], "network": "none"})
    assert built.status == 200, built
    r = run(calc, RIGHT, GOLD, image="built", **IDS)
    assert r["outcome"] == "resolved", (r["stdout"], r["stderr"], r["error"])
    assert run(calc, image="built", test_command="cat /usr/made; echo $BUILT; id -u")["stdout"] == "made\nyes\n5\n"


def test_a_snapshot_of_a_session_is_an_image(daemon, run, calc):
    session = daemon.call("POST", "/v1/sessions?wait=60", {"image": "py", "network": "none"}).json["id"]
    assert daemon.call("POST", f"/v1/sessions/{session}/exec", {"argv": ["/bin/sh", "-c", "echo kept > /srv-note"]}).json["exit_code"] == 0
    made = daemon.call("POST", f"/v1/sessions/{session}/snapshots", {"name": "snap"})
    assert made.status == 200, made
    daemon.call("DELETE", f"/v1/sessions/{session}")
    assert run(calc, image="snap", test_command="cat /srv-note")["stdout"] == "kept\n"
    assert run(calc, RIGHT, GOLD, image="snap", **IDS)["outcome"] == "resolved"


class TestATreeOfTheImage:
    @pytest.fixture(scope="class")
    def tree(self, daemon):
        t = images.Tar().directory("work").directory("work/tests")
        for name, text in CALC.items():
            t.add("work/" + name, textwrap.dedent(text).encode())
        t.add("work/notes", b"untouched\n")
        images.load(daemon, images.with_configuration(images.python(), t.done(), name="tree:1", WorkingDir="/work"))
        return {"tree": "image", "image": "tree:1", "repo_path": "/work", "test_command": PYTEST}

    def ask(self, daemon, **request):
        return daemon.result(daemon.submit(request))

    def test_is_patched_tested_and_compared(self, daemon, tree, calc):
        r = self.ask(daemon, **tree, patch=calc.patch(RIGHT), test_patch=calc.patch(GOLD), capture_diff=True, **IDS)
        assert r["outcome"] == "resolved", (r["error"], r["stdout"], r["stderr"])
        assert r["repo_url"] is None and r["base_commit"] is None
        assert "return a + b" in r["patch_diff"] and "test_add" not in r["patch_diff"]

    def test_gold_files_go_back_to_the_images(self, daemon, tree, calc):
        cheat = calc.patch({"tests/test_calc.py": "def test_add():\n    pass\n", "conftest.py": "raise SystemExit(0)\n"})
        r = self.ask(daemon, **tree, patch=cheat, test_patch=calc.patch(GOLD), **IDS)
        assert r["outcome"] == "unresolved" and set(r["restored"]) == {"conftest.py", "tests/test_calc.py"}, r
        assert {"test_file_edited", "runner_config_changed"} <= kinds(r)

    def test_the_next_task_finds_it_as_it_was(self, daemon, tree, calc):
        self.ask(daemon, **{**tree, "test_command": "echo dirt > notes; rm -r tests"})
        assert self.ask(daemon, **{**tree, "test_command": "cat notes; ls"})["stdout"] == "untouched\ncalc.py\nnotes\ntests\n"

    def test_a_place_that_is_not_there(self, daemon, tree):
        r = self.ask(daemon, **{**tree, "repo_path": "/nowhere"})
        assert r["error"]["code"] == "environment_broken" and "/nowhere" in r["error"]["message"], r["error"]


class TestBrigScore:
    """The command line, with records of the SWE-bench family."""
    @pytest.fixture
    def brig_score(self, daemon, calc, tmp_path):
        record = {"instance_id": "calc-1", "repo": "x/calc", "base_commit": calc.commit, "patch": calc.patch(RIGHT), "test_patch": calc.patch(GOLD),
                  "version": "1", "FAIL_TO_PASS": json.dumps([ADD]), "PASS_TO_PASS": [ZERO]}
        (tmp_path / "record.json").write_text(json.dumps(record))

        def run(*words):
            done = subprocess.run([brigd.BRIG, "score", "--instance", tmp_path / "record.json", "-o", "json", "--quiet", *map(str, words)], text=True, capture_output=True, timeout=120,
                                  env={"BRIG_URL": f"http://{daemon.host}:{daemon.port}", "PATH": "/usr/bin:/bin"}, check=False)
            return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr
        return run

    def test_a_record_on_a_stored_image(self, brig_score, calc):
        status, r = brig_score("--repo", calc.path, "--image", "py", "--prediction", "gold")
        assert status == 0 and r["outcome"] == "resolved" and r["image"] == "py", r
        status, r = brig_score("--repo", calc.path, "--image", "py", "--patch", "/dev/null")
        assert status == 1 and r["outcome"] == "unresolved" and r["tests"][ADD] == "failed", r

    def test_a_record_whose_tree_is_in_its_image(self, daemon, brig_score):
        """As the family's own images have it: no repository is asked for."""
        t = images.Tar().directory("testbed").directory("testbed/tests")
        for name, text in CALC.items():
            t.add("testbed/" + name, textwrap.dedent(text).encode())
        images.load(daemon, images.with_configuration(images.python(), t.done(), name="swe:1"))
        status, r = brig_score("--tree", "image", "--image", "swe:1", "--prediction", "gold")
        assert status == 0 and r["outcome"] == "resolved" and r["repo_url"] is None, r

    def test_an_image_that_is_not_there(self, brig_score, calc):
        status, r = brig_score("--repo", calc.path, "--image", "nosuch", "--prediction", "gold")
        assert status == 2 and r["error"]["code"] == "image_not_found", r


# ---- what is missing -------------------------------------------------------------------------------------------------------------


def test_no_python_in_the_image_is_no_infra_error(run, calc):
    r = run(calc, RIGHT, GOLD, image="shell", **IDS)
    assert (r["outcome"], r["status"], r["exit_code"]) == ("no_tests_collected", "completed", 127), r
    assert "python3" in r["stderr"] and r["tests"] == {ADD: "missing", ZERO: "missing"}


def test_no_shell_in_the_image_is_no_infra_error(daemon, run, calc):
    images.load(daemon, images.Tar().add("etc/passwd", images.USERS).done(), name="empty")
    r = run(calc, image="empty", test_command="echo a; echo b")
    assert (r["outcome"], r["status"], r["exit_code"]) == ("unresolved", "completed", 127), r
    assert "sh: " in r["stderr"]
    r = run(calc, image="empty", test_command="echo a; echo b", setup_command="true", setup_network="none")
    assert r["error"]["code"] == "setup_failed" and "/bin/sh" in r["error"]["message"], r["error"]


def test_no_git_in_the_image_is_needed(run, calc):
    """The tree has its own .git all the same."""
    r = run(calc, RIGHT, GOLD, image="shell", test_command="cat .git/HEAD; cat calc.py", **{k: [] for k in IDS})
    assert calc.commit in r["stdout"] and "return a + b" in r["stdout"]


def test_a_pytest_too_few(daemon, run, calc):
    """A python without pytest: nothing was collected, and the output says why."""
    images.load(daemon, images.with_configuration(images.python(), images.Tar().add("usr/lib/python3/dist-packages/.wh.pytest").add("usr/lib/python3/dist-packages/.wh._pytest").done(), name="bare:1"))
    r = run(calc, RIGHT, GOLD, image="bare:1", **IDS)
    assert (r["outcome"], r["status"]) == ("no_tests_collected", "completed") and "pytest" in r["stdout"] + r["stderr"], r


@pytest.mark.parametrize("image", ["nosuch", "localhost:1/nosuch:1", "sha256:" + "0" * 64])
def test_an_image_that_cannot_be_had(run, calc, image):
    r = run(calc, RIGHT, image=image, pull_timeout=20)
    assert (r["outcome"], r["status"], r["error"]["code"]) == ("infra_error", "failed", "image_not_found"), r
    assert image.split("@")[0] in r["error"]["message"] and r["image"] == image


def test_a_user_that_the_image_does_not_know(daemon, run, calc):
    images.load(daemon, images.with_configuration(images.shell(), name="lost:1", User="nobody-here"))
    r = run(calc, image="lost:1", test_command="id")
    assert r["error"]["code"] == "image_not_found" and "nobody-here" in r["error"]["message"], r["error"]


# ---- use ----------------------------------------------------------------------------------------------------------------------------


def test_an_image_in_use_is_not_removed(daemon, calc):
    images.load(daemon, images.with_configuration(images.shell(), name="busy:1", Env=["X=1"]))
    task = daemon.submit(calc.request(image="busy:1", test_command="echo begun; sleep 60", timeout=120))
    brigd.until(lambda: images.users(daemon, "busy:1") == 1 and b"begun" in daemon.call("GET", f"/task/{task}/log/stdout").body, "it runs", 60)
    refused = daemon.call("DELETE", "/v1/images/busy:1")
    assert refused.status == 409 and refused.json["error"]["code"] == "image_in_use", refused
    assert daemon.call("DELETE", f"/task/{task}").status == 200
    assert images.users(daemon, "busy:1") == 0
    assert daemon.call("DELETE", "/v1/images/busy:1").status in (200, 204)
    r = daemon.result(daemon.submit(calc.request(image="busy:1", test_command="true")))
    assert r["error"]["code"] == "image_not_found"


def test_every_end_gives_the_image_back(daemon, run, calc):
    for request in ({"test_command": "exit 3"}, {"test_command": "sleep 60", "timeout": 1}, {"test_command": "true", "repo_path": "/bin/busybox"},
                    {"test_command": "true", "setup_command": "exit 1", "setup_network": "none"}, {"test_command": "true", "base_commit": "0" * 40},
                    {"test_command": "true", "patch": "--- a/no\n+++ b/no\n@@ -1 +1 @@\n-x\n+y\n"}):
        run(calc, image="shell", **request)
    assert images.users(daemon, "shell:latest") == 0


def test_a_task_is_run_again_after_a_crash(place):
    project = Project(place / "again", CALC)
    d = brigd.Daemon()
    with d:
        images.load(d, images.python(), name="py")
        task = d.submit(project.request(RIGHT, GOLD, image="py", test_command=f"test -e /tmp/slow || sleep 3; {PYTEST}", timeout=120))
        d.until_running(task)
        d.kill()
        d.start()
        r = d.result(task, 120)
        assert r["outcome"] == "resolved", r
        assert images.users(d, "py:latest") == 0
