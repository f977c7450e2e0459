"""Our patch code against git's and Python's own: random trees and edits, the same answers."""
import difflib
import os
import random
import subprocess

import pytest

TOOL = os.path.join(os.environ.get("BRIG_BUILD", "build"), "tests", "tools", "patch_tool")
CLEAN = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "LANG": "C.UTF-8"}
NAMES = ["a.py", "b.txt", "src/c.py", "src/deep/d.c", "with space.txt", "ü/é.txt", "t\tab", 'quo"te', "x/y/z/w", "run.sh", "src.py", "new/n1", "new/n2"]


def git(directory, *args, data=None):
    return subprocess.run(["git", "-c", "core.autocrlf=false", "-c", "user.name=t", "-c", "user.email=t@t", *args], cwd=directory, env=CLEAN, input=data, capture_output=True)


def ours(directory, patch, mode="strict"):
    return subprocess.run([TOOL, "apply", mode, str(directory)], input=patch, capture_output=True)


def snapshot(root):
    found = {}
    for base, dirs, files in os.walk(root):
        dirs[:] = [d for d in dirs if d != ".git"]
        for name in files + [d for d in dirs if os.path.islink(os.path.join(base, d))]:
            path = os.path.join(base, name)
            key = os.path.relpath(path, root)
            if os.path.islink(path):
                found[key] = ("link", os.readlink(path))
            else:
                with open(path, "rb") as f:
                    found[key] = (bool(os.stat(path).st_mode & 0o100), f.read())
    return found


def restore(root, state):
    subprocess.run(["rm", "-rf", str(root)], check=True)
    os.makedirs(root)
    for name, (kind, data) in state.items():
        path = os.path.join(root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if kind == "link":
            os.symlink(data, path)
        else:
            with open(path, "wb") as f:
                f.write(data)
            os.chmod(path, 0o755 if kind else 0o644)


def random_text(rng):
    if rng.random() < 0.1:
        return bytes(rng.randrange(256) for _ in range(rng.randrange(1, 3000)))
    end = b"\r\n" if rng.random() < 0.1 else b"\n"
    lines = [rng.choice([b"", b"{", b"}", b"    return", b"line %d" % rng.randrange(40), b"-- x", b"++ y", "ü".encode()]) for _ in range(rng.randrange(0, 60))]
    text = b"".join(line + end for line in lines)
    return text[:-len(end)] if lines and rng.random() < 0.2 else text


def edit_text(rng, data):
    lines = data.splitlines(True)
    for _ in range(rng.randrange(1, 5)):
        at = rng.randrange(0, len(lines) + 1)
        kind = rng.random()
        if kind < 0.4:
            lines[at:at] = [b"added %d\n" % rng.randrange(9)] * rng.randrange(1, 4)
        elif kind < 0.7:
            del lines[at:at + rng.randrange(1, 4)]
        elif at < len(lines):
            lines[at] = b"changed " + lines[at]
    return b"".join(lines)


def mutate(rng, state):
    """Random changes of a tree: edits, new and deleted files, renames, modes, links."""
    state = dict(state)
    for _ in range(rng.randrange(1, 5)):
        names = sorted(state)
        kind = rng.random()
        name = rng.choice(names) if names else None
        if name is None or kind < 0.15:
            fresh = rng.choice(NAMES)
            if fresh not in state:
                state[fresh] = ("link", rng.choice(["a.py", "../x", "nowhere"])) if rng.random() < 0.15 else (rng.random() < 0.3, random_text(rng))
        elif kind < 0.25:
            del state[name]
        elif kind < 0.35:
            fresh = rng.choice(NAMES)
            if fresh not in state:
                state[fresh] = state.pop(name)
        elif state[name][0] == "link":
            state[name] = ("link", "elsewhere")
        elif kind < 0.45:
            state[name] = (not state[name][0], state[name][1])
        else:
            state[name] = (state[name][0], edit_text(rng, state[name][1]))
    return state


def make_patch(rng, work, before, after):
    restore(work, before)
    git(work, "init", "-q")
    git(work, "add", "-A", "-f")
    git(work, "commit", "-qm", "x", "--allow-empty")
    for name in os.listdir(work):
        if name != ".git":
            subprocess.run(["rm", "-rf", os.path.join(work, name)], check=True)
    for name, (kind, data) in after.items():
        path = os.path.join(work, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if kind == "link":
            os.symlink(data, path)
        else:
            with open(path, "wb") as f:
                f.write(data)
            os.chmod(path, 0o755 if kind else 0o644)
    git(work, "add", "-A", "-f")
    flags = ["--binary", "--full-index"] if rng.random() < 0.9 else []
    flags += rng.choice([[], ["-M"], ["-M", "-C", "--find-copies-harder"], ["--no-renames"]])
    flags += rng.choice([[], [], ["-U1"], ["-U0"], ["-U10"], ["--patience"]])
    return git(work, "diff", "--cached", *flags, "HEAD").stdout, "-U0" in flags


@pytest.mark.parametrize("seed", range(60))
def test_the_strict_rung_accepts_what_git_apply_accepts_with_the_same_result(tmp_path, seed):
    rng = random.Random(seed)
    base = {name: (rng.random() < 0.2, random_text(rng)) for name in rng.sample(NAMES, rng.randrange(1, 8))}
    base = {k: v for k, v in base.items() if not any(o.startswith(k + "/") for o in base)}
    after = mutate(rng, base)
    patch, bare = make_patch(rng, tmp_path / "work", base, after)
    # Onto the tree it was made from, then onto trees that moved on.
    for target in [base, mutate(rng, base), mutate(rng, base)]:
        restore(tmp_path / "theirs", target)
        restore(tmp_path / "ours", target)
        theirs, mine = git(tmp_path / "theirs", "apply", data=patch), ours(tmp_path / "ours", patch)
        if b"Binary files" in patch:
            continue
        if not patch:
            assert mine.returncode == 0
            continue
        if bare and mine.returncode:   # without context git puts lines at the end of the file: not a thing to agree with
            if target is base:
                assert ours(tmp_path / "ours", patch, "repair").returncode == 0
                assert snapshot(tmp_path / "ours") == after
            continue
        assert (theirs.returncode == 0) == (mine.returncode == 0), f"git: {theirs.stderr.decode()}\nours: {mine.stderr.decode()}\n{patch.decode(errors='replace')}"
        assert snapshot(tmp_path / "theirs") == snapshot(tmp_path / "ours")
        if target is base:
            assert snapshot(tmp_path / "ours") == after
            assert mine.returncode == 0, mine.stderr


def mangle(rng, patch):
    """One of the harmless things that happen to a patch on its way."""
    text = patch.decode()
    return rng.choice([
        lambda: text.rstrip("\n"),
        lambda: "Sure!\n\n```diff\n" + text.rstrip("\n") + "\n```\nDone.\n",
        lambda: text.replace("\n", "\r\n"),
        lambda: "From 1234 Mon Sep 17 00:00:00 2001\nSubject: x\n\n---\n f | 2 +-\n\n" + text + "-- \n2.39.5\n",
        lambda: "\n".join("" if line == " " else line for line in text.split("\n")),
        lambda: "\n".join("@@ -%s,99 +%s,99 @@" % (line.split()[1][1:].split(",")[0], line.split()[2][1:].split(",")[0]) if line.startswith("@@ ") else line for line in text.split("\n")),
    ])().encode()


@pytest.mark.parametrize("seed", range(60))
def test_a_mangled_patch_is_repaired_to_the_same_result(tmp_path, seed):
    rng = random.Random(seed)
    body = [b"line %d\n" % i for i in range(60)]
    for i in rng.sample(range(60), 6):
        body[i] = b"\n"
    base = {"src/x.py": (False, b"".join(body))}
    edited = list(body)
    for i in sorted(rng.sample(range(60), 3), reverse=True):
        edited[i:i + 1] = rng.choice([[b"changed\n"], [b"one\n", b"two\n"], []])
    after = {"src/x.py": (False, b"".join(edited))}
    restore(tmp_path / "work", base)
    git(tmp_path / "work", "init", "-q")
    git(tmp_path / "work", "add", "-A")
    (tmp_path / "work/src/x.py").write_bytes(after["src/x.py"][1])
    patch = mangle(rng, git(tmp_path / "work", "diff").stdout)
    restore(tmp_path / "ours", base)
    done = ours(tmp_path / "ours", patch, "repair")
    assert done.returncode == 0, done.stderr.decode() + patch.decode()
    assert snapshot(tmp_path / "ours") == after


@pytest.mark.parametrize("seed", range(40))
def test_our_diff_is_one_that_git_applies(tmp_path, seed):
    rng = random.Random(seed)
    old, new = (random_text(rng).replace(b"\0", b"") for _ in range(2))
    if seed % 2:
        new = edit_text(rng, old)
    (tmp_path / "old").write_bytes(old)
    (tmp_path / "new").write_bytes(new)
    name = rng.choice(NAMES)
    diff = subprocess.run([TOOL, "diff", name, str(tmp_path / "old"), str(tmp_path / "new")], capture_output=True, check=True).stdout
    restore(tmp_path / "tree", {name: (False, old)})
    if old == new:
        assert diff == b""
        return
    done = git(tmp_path / "tree", "apply", data=diff)
    assert done.returncode == 0, done.stderr.decode() + diff.decode(errors="replace")
    assert snapshot(tmp_path / "tree") == {name: (False, new)}


def kept(text):
    return [line for line in text.splitlines() if not line.startswith(("diff", "index", "---", "+++", "@@"))]


def expected_similarity(a, b):
    x, y = kept(a), kept(b)
    if not x and not y:
        return 1.0
    return round(difflib.SequenceMatcher(None, x, y).ratio(), 4)


@pytest.mark.parametrize("seed", range(80))
def test_similarity_is_difflibs(tmp_path, seed):
    rng = random.Random(seed)
    size, alphabet = rng.choice([0, 1, 5, 30, 250, 900]), rng.choice([2, 5, 40, 400])
    ends = ["\n", "\r\n", "\r", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"] if seed % 2 else ["\n"]
    make = lambda n: [rng.choice("+- ") + f"{rng.randrange(alphabet)}" if rng.random() < 0.95 else rng.choice(["@@ -1 +1 @@", "diff --git a b", "--- a", "", "index 1..2"]) for _ in range(n)]
    first = make(size)
    second = make(rng.choice([0, size])) if seed % 3 == 0 else [line for line in first if rng.random() < 0.8] + make(size // 4)
    a, b = ("".join(line + rng.choice(ends) for line in lines) for lines in (first, second))
    (tmp_path / "a").write_bytes(a.encode())
    (tmp_path / "b").write_bytes(b.encode())
    got = subprocess.run([TOOL, "similarity", str(tmp_path / "a"), str(tmp_path / "b")], capture_output=True, check=True).stdout
    assert float(got) == expected_similarity(a, b)


def test_similarity_of_too_many_lines_is_null(tmp_path):
    (tmp_path / "a").write_text("+x\n" * 20001)
    (tmp_path / "b").write_text("+x\n" * 20000)
    run = lambda *names: subprocess.run([TOOL, "similarity", *(str(tmp_path / n) for n in names)], capture_output=True, check=True).stdout
    assert run("a", "b") == b"null\n"
    assert run("b", "b") == b"1\n"
