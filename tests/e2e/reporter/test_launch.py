"""launch.sh finds the interpreter of a console script without starting the script."""
import pathlib
import subprocess

import pytest

SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "src" / "score" / "python" / "launch.sh"


def fake(path, name):
    path.write_text(f"#!/bin/sh\necho {name} \"$@\"\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("head, started", [
    ("#!{bin}/python3.9\n", "own"),
    ("#! {bin}/python3.9 -E\n", "own -E"),
    ("#!/usr/bin/env python3\n", "path"),
    ("#!/bin/sh\n'''exec' {bin}/python3.9 \"$0\" \"$@\"\n' '''\n", "own"),
    ("#!/bin/sh\n'''exec' \"{bin}/python3.9\" \"$0\" \"$@\"\n' '''\n", "own"),
    ("#!/bin/bash\n", "path"),
    (None, "path"),
])
def test_the_interpreter_of_the_script_is_started(tmp_path, head, started):
    bin = tmp_path / "bin"
    bin.mkdir()
    fake(bin / "python3.9", "own")
    fake(bin / "python3", "path")
    if head is not None:
        (bin / "pytest").write_text(head.format(bin=bin) + "import sys\nsys.exit('the script itself ran')\n")
        (bin / "pytest").chmod(0o755)
    out = subprocess.run(["/bin/sh", str(SCRIPT), "pytest", "3", "4"], env={"PATH": f"relative:{bin}"}, cwd=tmp_path,
                         capture_output=True, text=True)
    assert out.stdout == f"{started} -S /run/brig/launcher.py 3 4\n", out.stderr


def test_a_script_in_the_tree_is_not_taken_for_it(tmp_path):
    (tmp_path / "relative").mkdir()
    fake(tmp_path / "relative" / "pytest", "tree")
    fake(tmp_path / "python3", "path")
    out = subprocess.run(["/bin/sh", str(SCRIPT), "pytest", "3", "4"], env={"PATH": f"relative:.::{tmp_path}"}, cwd=tmp_path / "relative",
                         capture_output=True, text=True)
    assert out.stdout == "path -S /run/brig/launcher.py 3 4\n"
