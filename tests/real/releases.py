"""Real tasks, made at test time from two consecutive releases of a package whose source archive carries its tests.

base       = the older release, as a git repository of one commit
gold patch = the difference of the sources between the two
test patch = the difference of the tests
ids        = what an ordinary pytest, outside Brig, says of base + test patch against the newer release

Nothing of these packages is kept in this project.
"""
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import xml.etree.ElementTree

PYTHON = "/usr/bin/python3"  # the interpreter of the host image: what a sandbox sees


@dataclasses.dataclass(frozen=True)
class Release:
    package: str
    older: str
    newer: str
    tests: str  # pattern of the paths that are tests, relative to the root of the archive
    sources: str  # pattern of the paths that are sources
    run: tuple  # test files or directories given to pytest
    pythonpath: str = "."
    command: str = ""  # where the project's own options ask for plugins that the host image has not

    @property
    def name(self):
        return f"{self.package}-{self.newer}"


RELEASES = (
    Release("parse", "1.19.1", "1.20.0", r"^tests?/|^test_", r"^parse\.py$", ("tests",)),
    Release("boltons", "23.0.0", "23.1.1", r"^tests/", r"^boltons/", ("tests",)),
    Release("sqlparse", "0.4.3", "0.4.4", r"^tests/", r"^sqlparse/", ("tests",)),
    Release("sqlparse", "0.5.0", "0.5.1", r"^tests/", r"^sqlparse/", ("tests",)),
    Release("xmltodict", "0.12.0", "0.13.0", r"^tests/", r"^xmltodict\.py$", ("tests",)),
    Release("jsonpointer", "2.1", "2.2", r"^tests\.py$", r"^jsonpointer\.py$", ("tests.py",)),
    Release("more-itertools", "9.0.0", "9.1.0", r"^tests/", r"^more_itertools/", ("tests",)),
    Release("pathspec", "0.11.0", "0.11.1", r"^tests/", r"^pathspec/", ("tests",)),
    Release("wcwidth", "0.2.8", "0.2.9", r"^tests/", r"^wcwidth/", ("tests",), command="python3 -m pytest -q -o addopts= tests"),
    Release("tomlkit", "0.11.7", "0.11.8", r"^tests/", r"^tomlkit/", ("tests",)),
)


def git(tree, *args):
    return subprocess.run(
        ["git", "-C", str(tree), "-c", "user.name=t", "-c", "user.email=t@t", "-c", "core.autocrlf=false", *args],
        check=True, stdout=subprocess.PIPE, env={"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null", "HOME": "/"},
    ).stdout


def download(package, version, cache):
    """The source archive of one release, by pip; kept in `cache`."""
    into = cache / f"{package}-{version}"
    if not list(into.glob("*.tar.gz")):
        subprocess.run([PYTHON, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", str(into),
                        f"{package}=={version}"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300)
    return next(into.glob("*.tar.gz"))


def unpack(archive, into):
    into.mkdir(parents=True)
    subprocess.run(["tar", "--no-same-owner", "--no-same-permissions", "-xf", str(archive), "-C", str(into)], check=True)
    (root,) = [p for p in into.iterdir() if p.is_dir()]
    return root


def outcomes(tree, release):
    """{node id: passed|failed|error|skipped} from pytest's own JUnit report."""
    report = tree.parent / (tree.name + ".xml")
    env = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/nonexistent", "PYTHONPATH": release.pythonpath, "TZ": "UTC",
           "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "junit_family=xunit1", f"--junitxml={report}",
                    "-o", "addopts=", "--rootdir", str(tree), *release.run], cwd=tree, env=env, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL, timeout=300)
    found = {}
    if not report.exists():
        return found
    for case in xml.etree.ElementTree.parse(report).getroot().iter("testcase"):
        file, name, classname = case.get("file"), case.get("name"), case.get("classname") or ""
        if not file:
            continue
        inner = classname[len(file[:-3].replace("/", ".")):].lstrip(".") if classname.startswith(file[:-3].replace("/", ".")) else ""
        node = "::".join([file, *([inner.replace(".", "::")] if inner else []), name])
        kinds = {child.tag for child in case}
        status = "failed" if "failure" in kinds else "error" if "error" in kinds else "skipped" if "skipped" in kinds else "passed"
        if found.get(node, "passed") == "passed":
            found[node] = status
    return found


def overlay(target, source, pattern):
    """Makes the paths of `target` that match `pattern` the same as in `source`."""
    for root in (target, source):
        for path in list(root.rglob("*")):
            rel = path.relative_to(root).as_posix()
            if rel.startswith(".git/") or not path.is_file() or not re.search(pattern, rel) or "egg-info" in rel:
                continue
            if root is target:
                path.unlink()
            else:
                (target / rel).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, target / rel)


def halves(patch):
    """Candidates for "half of the patch": every other hunk, counted from the first or from the second."""
    files = re.split(rb"(?m)^(?=diff --git )", patch)
    for parity in (0, 1):
        out, n = b"", 0
        for text in files:
            head, *hunks = re.split(rb"(?m)^(?=@@ )", text)
            kept = []
            for hunk in hunks:
                if n % 2 == parity:
                    kept.append(hunk)
                n += 1
            if kept:
                out += head + b"".join(kept)
        if out and out != patch:
            yield out


@dataclasses.dataclass
class Task:
    name: str
    repo: pathlib.Path
    commit: str
    patch: bytes
    half: bytes
    test_patch: bytes
    fail_to_pass: list
    pass_to_pass: list
    pythonpath: str
    command: str


def make(release, work, cache):
    """A Task, or a ValueError that says why this pair of releases does not make one."""
    base = work / release.name
    shutil.rmtree(base, ignore_errors=True)
    tree = unpack(download(release.package, release.older, cache), base / "old")
    new = unpack(download(release.package, release.newer, cache), base / "new")
    git(tree, "init", "-q", "-b", "main")
    git(tree, "add", "-A", "-f")
    git(tree, "commit", "-q", "-m", "base")
    commit = git(tree, "rev-parse", "HEAD").decode().strip()

    overlay(tree, new, release.tests)
    git(tree, "add", "-A", "-f")
    test_patch = git(tree, "diff", "--cached", "--binary", "HEAD")
    before = outcomes(tree, release)
    git(tree, "stash", "-q")
    overlay(tree, new, release.sources)
    git(tree, "add", "-A", "-f")
    patch = git(tree, "diff", "--cached", "--binary", "HEAD")
    overlay(tree, new, release.tests)
    after = outcomes(tree, release)
    passing = [i for i, s in after.items() if s == "passed"]
    fail_to_pass = sorted(i for i in passing if before.get(i, "missing") != "passed")
    pass_to_pass = sorted(i for i in passing if before.get(i) == "passed")
    if not (patch and test_patch and fail_to_pass):
        raise ValueError(f"{release.package}: patch {len(patch)} B, test patch {len(test_patch)} B, fail_to_pass {len(fail_to_pass)}")
    half = next((h for h in halves(patch) if not _resolves(tree, release, new, h, fail_to_pass + pass_to_pass)), None)
    if half is None:
        raise ValueError(f"{release.package}: no half of the patch fails")
    git(tree, "reset", "-q", "--hard", "HEAD")
    git(tree, "clean", "-q", "-fdx")
    return Task(release.name, tree, commit, patch, half, test_patch, fail_to_pass, pass_to_pass, release.pythonpath, release.command)


def _resolves(tree, release, new, patch, ids):
    git(tree, "reset", "-q", "--hard", "HEAD")
    git(tree, "clean", "-q", "-fdx")
    applied = subprocess.run(["git", "-C", str(tree), "apply", "--recount"], input=patch, stderr=subprocess.DEVNULL)
    if applied.returncode != 0:
        return True  # not a usable half
    overlay(tree, new, release.tests)
    found = outcomes(tree, release)
    return all(found.get(i) == "passed" for i in ids)

