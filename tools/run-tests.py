#!/usr/bin/env python3
"""Runs Brig's tests and closes with one line: N passed, N failed.

usage: run-tests.py [--build DIR] [unit|e2e|real]...     (default: all three)

unit  cmocka programs and replayed fuzz corpora, by meson
e2e   pytest against the real daemon on a real socket
real  tasks made from releases of well-known packages

Both e2e and unit need root: a privileged test that would have to skip is a failure, so skips count as failures here.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import xml.etree.ElementTree

TOP = pathlib.Path(__file__).resolve().parent.parent


def count_junit(path):
    """(passed, names of what did not) of a JUnit file; a skipped test did not pass."""
    passed, bad = 0, []
    for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error", "skipped"}:
            bad.append(f"{case.get('classname')}::{case.get('name')} ({', '.join(sorted(kinds - {'system-out', 'system-err'}))})")
        else:
            passed += 1
    return passed, bad


def run_unit(build):
    subprocess.run(["ninja", "-C", build], check=True, stdout=subprocess.DEVNULL)
    report = pathlib.Path(build) / "meson-logs" / "testlog.junit.xml"
    report.unlink(missing_ok=True)
    done = subprocess.run(["meson", "test", "-C", build, "--no-rebuild", "--print-errorlogs", "-q"])
    if not report.exists():
        return 0, [f"meson test wrote no report (exit status {done.returncode})"]
    return count_junit(report)


def run_pytest(build, directory, *options):
    report = pathlib.Path(build) / f"{directory.name}.junit.xml"
    report.unlink(missing_ok=True)
    env = dict(os.environ, BRIG=str(pathlib.Path(build).resolve() / "brig"), BRIG_BUILD=str(pathlib.Path(build).resolve()))
    done = subprocess.run(["/usr/bin/python3", "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, f"--junitxml={report}", str(directory)], env=env, cwd=TOP)
    if not report.exists():
        return 0, [f"{directory}: pytest wrote no report (exit status {done.returncode})"]
    passed, bad = count_junit(report)
    if done.returncode != 0 and not bad:
        bad.append(f"{directory}: pytest exit status {done.returncode}")
    return passed, bad


def main():
    parser = argparse.ArgumentParser(description="run Brig's tests")
    parser.add_argument("--build", default="build")
    parser.add_argument("suites", nargs="*", choices=["unit", "e2e", "real", []])
    args = parser.parse_args()
    passed, bad = 0, []
    for suite in args.suites or ["unit", "e2e", "real"]:
        if suite == "unit":
            n, failed = run_unit(args.build)
        elif suite == "e2e":  # a file's tests share a daemon: a worker takes whole files
            n, failed = run_pytest(args.build, TOP / "tests" / "e2e", "-n", str((os.cpu_count() or 1) + 1), "--dist", "loadfile")
        else:
            n, failed = run_pytest(args.build, TOP / "tests" / "real")
        passed += n
        bad += [f"{suite}: {name}" for name in failed]
    for name in bad:
        print("FAILED", name)
    print(f"{passed} passed, {len(bad)} failed")
    return 1 if bad or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
