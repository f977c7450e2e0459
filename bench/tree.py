#!/usr/bin/env python3
"""What a prepared tree of 5,000 files adds to a task: a sandbox with the layer against one without, pairs in random order,
each from create to confirmed gone. Then the ways to have the tree that Brig replaces. usage: bench/tree.py [BUILD]"""
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
if len(sys.argv) > 1:
    os.environ["BRIG_BUILD"] = sys.argv[1]
sys.path.insert(0, str(ROOT / "tests/e2e/tree"))
from tree_harness import GIT_ENV, Repository, Store  # noqa: E402

FILES, PAIRS, COPIES = 5000, 150, 5


def sandbox_ms(store, n, command):
    """From create to gone, as the tool saw it."""
    store.send("exec", n, command)
    f = store.line(lambda f: f[0] == "ran" and f[1] == str(n))
    assert f[2] == "0", f
    return int(f[4]) / 1000


def paired(store, command):
    bare, layered = [], []
    for _ in range(PAIRS):
        order = [(-1, bare), (1, layered)]
        random.shuffle(order)
        for n, times in order:
            times.append(sandbox_ms(store, n, command))
    added = statistics.median(b - a for a, b in zip(bare, layered))
    return statistics.median(bare), statistics.median(layered), added


def timed(*argv):
    began = time.monotonic()
    subprocess.run([str(a) for a in argv], check=True, env=GIT_ENV, stdout=subprocess.DEVNULL)
    return (time.monotonic() - began) * 1000


def alternatives(repo, place):
    copies, worktrees = [], []
    for i in range(COPIES):
        copies.append(timed("cp", "-a", repo.path, place / f"copy{i}"))
        worktrees.append(timed("git", "-C", repo.path, "worktree", "add", "-q", "--detach", place / f"worktree{i}"))
    return statistics.median(copies), statistics.median(worktrees)


def main():
    place = pathlib.Path(tempfile.mkdtemp(prefix="brig-bench-", dir="/tmp"))
    place.chmod(0o755)
    repo = Repository(place / "repo")
    commit = repo.commit({f"package{i % 50}/module{i}.py": f"VALUE = {i}\n" * 20 for i in range(FILES)})
    store = Store(place / "home")
    try:
        tree = store.get(1, repo.path, commit)
        for n in (-1, 1, -1, 1):
            sandbox_ms(store, n, "true")
        bare, layered, added = paired(store, "true")
        copy, worktree = alternatives(repo, place)
        print(json.dumps({"bar": "prepared tree of 5,000 files, added to a sandbox", "limit": 10, "value": round(added, 2), "unit": "ms",
                          "better": "lower", "detail": f"sandbox {bare:.1f} ms, with the tree {layered:.1f} ms; made once in {tree.ms} ms; "
                          f"cp -a {copy:.0f} ms, git worktree add {worktree:.0f} ms"}))
    finally:
        store.close()
        shutil.rmtree(place)


if __name__ == "__main__":
    main()
