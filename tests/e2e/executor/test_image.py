"""A directory as the image: below a place that the operator names, and nowhere else."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import pytest
from brigd import Daemon, Repository


def add_program(root, program):
    """Copies a program with the libraries it needs."""
    needed = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    for path in [program, *re.findall(r"(/\S+) \(", needed)]:
        to = root / path.lstrip("/")
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, to)


@pytest.fixture(scope="module")
def images():
    top = pathlib.Path(tempfile.mkdtemp(prefix="brig-images-", dir="/tmp"))
    top.chmod(0o755)
    (top / "small").mkdir()
    for program in ("/bin/sh", "/bin/cat"):
        add_program(top / "small", program)
    (top / "small" / "marker").write_text("of the image\n")
    yield top
    shutil.rmtree(top)


def test_a_directory_is_the_root_of_the_run_and_stays_as_it_is(images):
    with Daemon(BRIG_IMAGE_ROOTS=str(images)) as d:
        repo = Repository(d.top / "repo")
        command = "cat /marker calc.py && echo changed > /marker && cat /marker; cat /usr/bin/python3"
        record = d.result(d.submit(repo.request(image=str(images / "small"), test_command=command)))
        assert record["stdout"].startswith("of the image\ndef add") and record["stdout"].endswith("changed\n"), record
        assert "No such file" in record["stderr"] and record["exit_code"] == 1
        assert (images / "small" / "marker").read_text() == "of the image\n"
        for outside in (images.parent, f"{images}-other"):
            record = d.result(d.submit(repo.request(image=str(outside), test_command="true")))
            assert record["error"]["code"] == "image_not_found", record


# ---- a tree that comes with the image -------------------------------------------------------------------------------------

ADD = "add() { echo $(($1 - $2)); }\n"
CHECK = '. ./add.sh\nx=$(add 1 1)\n[ "$x" = 2 ] || { echo "1 + 1 = $x"; exit 1; }\n'
RIGHT = "--- a/add.sh\n+++ b/add.sh\n@@ -1 +1 @@\n-add() { echo $(($1 - $2)); }\n+add() { echo $(($1 + $2)); }\n"
CHEAT = "--- a/check.sh\n+++ b/check.sh\n@@ -1,3 +1 @@\n" + "".join(f"-{line}\n" for line in CHECK.splitlines()) + "+exit 0\n"
GOLD = "--- a/check.sh\n+++ b/check.sh\n@@ -1,3 +1,4 @@\n" + "".join(f" {line}\n" for line in CHECK.splitlines()) + "+echo gold\n"


@pytest.fixture(scope="module")
def with_tree(images):
    tree = images / "small" / "srv" / "tree"
    tree.mkdir(parents=True)
    (tree / "add.sh").write_text(ADD)
    (tree / "check.sh").write_text(CHECK)
    (images / "small" / "srv" / "link").symlink_to("tree")
    with Daemon(BRIG_IMAGE_ROOTS=str(images)) as d:
        yield d
    assert (tree / "add.sh").read_text() == ADD and (tree / "check.sh").read_text() == CHECK


def of_image(images, **more):
    return {"tree": "image", "image": str(images / "small"), "repo_path": "/srv/tree", "test_command": "sh ./check.sh; exit $?", **more}


def test_a_tree_of_the_image_is_the_base(with_tree, images):
    base = with_tree.result(with_tree.submit(of_image(images)))
    assert base["outcome"] == "unresolved" and base["stdout"] == "1 + 1 = 0\n", base
    right = with_tree.result(with_tree.submit(of_image(images, patch=RIGHT, capture_diff=True)))
    assert right["outcome"] == "resolved" and right["patch_applied"] and "+add() { echo $(($1 + $2)); }" in right["patch_diff"], right
    assert right["patch_diff"].count("diff --git") == 1
    assert right["repo_url"] is None and right["base_commit"] is None and len(right["evidence"]) == 64
    assert right["provenance"]["tree_hash"] == base["provenance"]["tree_hash"] and len(right["provenance"]["tree_hash"]) == 64
    assert right["provenance"]["image_digest"] != right["provenance"]["tree_hash"]
    again = with_tree.result(with_tree.submit(of_image(images, patch=RIGHT)))
    assert again["evidence"] == right["evidence"] != base["evidence"]


def test_the_gold_tests_of_an_images_tree_are_reset_to_the_image(with_tree, images):
    cheat = with_tree.result(with_tree.submit(of_image(images, patch=CHEAT)))
    assert cheat["exit_code"] == 0, cheat          # without a gold patch nobody knows that it is a test
    cheat = with_tree.result(with_tree.submit(of_image(images, patch=CHEAT, test_patch=GOLD)))
    assert cheat["outcome"] == "unresolved" and cheat["restored"] == ["check.sh"] and cheat["stdout"] == "1 + 1 = 0\n", cheat
    right = with_tree.result(with_tree.submit(of_image(images, patch=RIGHT, test_patch=GOLD)))
    assert right["outcome"] == "resolved" and right["stdout"] == "gold\n", right


@pytest.mark.parametrize("path", ["/srv/absent", "/marker", "/srv/link", "/testbed"])
def test_a_path_that_is_no_directory_of_the_image_is_named(with_tree, images, path):
    record = with_tree.result(with_tree.submit(of_image(images, repo_path=path)))
    assert record["outcome"] == "infra_error" and record["error"]["code"] == "environment_broken", record
    assert path in record["error"]["message"] and record["stdout"] == ""


def test_a_tree_of_an_image_that_is_not_there(with_tree, images):
    for absent in (images / "absent", images.parent):
        record = with_tree.result(with_tree.submit(of_image(images, image=str(absent))))
        assert record["error"]["code"] == "image_not_found" and str(absent) in record["error"]["message"], record


def test_the_hosts_own_files_can_be_the_tree(with_tree):
    library = pathlib.Path("/usr/lib/python3")
    patch = "--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1 @@\n+new\n"
    request = {"tree": "image", "repo_path": str(library), "test_command": "cat new.txt; ls -d dist-packages", "patch": patch, "capture_diff": True}
    record = with_tree.result(with_tree.submit(request))
    assert record["exit_code"] == 0 and record["stdout"] == "new\ndist-packages\n", record
    assert record["patch_diff"].count("diff --git") == 1 and "+new" in record["patch_diff"]
    assert not (library / "new.txt").exists()


def test_files_of_an_image_keep_their_owners(with_tree, images):
    os.chown(images / "small" / "srv" / "tree" / "add.sh", 1234, 4321)
    command = "for f in add.sh check.sh; do [ -O $f ] && [ -G $f ] && echo $f; done; exit 0"
    for user, owned in (("1234:4321", "add.sh\n"), (0, "check.sh\n"), (1235, "")):
        record = with_tree.result(with_tree.submit(of_image(images, patch=RIGHT, user=user, test_command=command)))
        assert record["patch_applied"] and record["stdout"] == owned, (user, record)


def test_what_does_not_go_with_a_tree_of_the_image(with_tree, images):
    answer = with_tree.call("POST", "/task/submit", of_image(images, setup_command="true"))
    assert answer.status == 400 and answer.json["code"] == "unsupported" and "'setup_command'" in answer.json["error"]
    answer = with_tree.call("POST", "/task/submit", of_image(images, repo_url="ext::sh -c true"))
    assert answer.status == 400 and "'repo_url'" in answer.json["error"]


def test_pytest_runs_in_a_tree_of_the_image(images):
    """With a Python of the image's own: launcher, reporter and collection stand on it too."""
    image = images / "python"
    python = pathlib.Path("/usr/bin/python3").resolve()
    add_program(image, str(python))
    (image / "usr" / "bin" / "python3").symlink_to(python.name)
    add_program(image, "/bin/sh")
    packages = [f"python3/dist-packages/{name}" for name in ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "attr", "py")]
    for library in [python.name, *packages]:
        if pathlib.Path("/usr/lib", library).is_dir():
            shutil.copytree(f"/usr/lib/{library}", image / "usr/lib" / library, ignore=shutil.ignore_patterns("__pycache__", "test", "config-*"))
    repo = Repository(image / "testbed")
    request = {"tree": "image", "image": str(image), "test_command": "python3 -m pytest -q", "fail_to_pass": ["test_calc.py::test_add"],
               "pass_to_pass": ["test_calc.py::test_double"]}
    with Daemon(BRIG_IMAGE_ROOTS=str(images)) as d:
        wrong, right = (d.result(d.submit({**request, "patch": patch})) for patch in ("", repo.right_patch))
    assert wrong["outcome"] == "unresolved" and wrong["report_channel"] == "private", wrong
    assert wrong["tests"] == {"test_calc.py::test_add": "failed", "test_calc.py::test_double": "passed"}
    assert right["outcome"] == "resolved" and right["integrity"]["verdict"] == "clean", right
