"""Frameworks by their machine-readable route. Where the tool itself is light it runs; for the others a program of its name stands in the tree that
writes what the tool wrote, and only if it was asked for it as it must be."""
import pathlib

import pytest

CORPUS = pathlib.Path(__file__).parents[2] / "fuzz/corpus/frameworks"


def recorded(name):
    return (CORPUS / name).read_bytes().split(b"\n", 1)[1]


def project_with_tool(project, name, report, script):
    made = project({"placeholder": "x\n"})
    made.write({f"bin/{name}": "#!/bin/sh\n" + script, "recorded": recorded(report), "src.txt": "base\n"})
    (made.path / "bin" / name).chmod(0o755)
    made.git("add", "-Af")
    made.git("commit", "-q", "-m", "tool")
    made.commit = made.git("rev-parse", "HEAD").strip()
    return made


NODE = {"a.test.js": """
    const {test, describe, it} = require('node:test');
    const assert = require('node:assert');
    const {add} = require('./add.js');
    describe('sums [1, 2]', () => { it('adds ü', () => assert.equal(add(1, 2), 3)); it.skip('later', () => {}); });
    test('zero', () => assert.equal(add(0, 0), 0));
    """, "add.js": "exports.add = (a, b) => a - b;\n"}
NODE_RIGHT = {"add.js": "exports.add = (a, b) => a + b;\n"}


def test_node_reports_beside_its_own_output(score, project):
    made = project(NODE)
    ids = {"fail_to_pass": ["sums [1, 2] > adds ü"], "pass_to_pass": ["zero"]}
    wrong = score(made, test_command="node --test a.test.js", **ids)
    assert not wrong["resolved"] and wrong["tests"]["sums [1, 2] > adds ü"] == "failed", wrong
    right = score(made, NODE_RIGHT, test_command="cd . && node --test a.test.js", **ids)
    assert right["resolved"] and right["framework"] == "node" and right["report_channel"] == "report", right
    assert right["report_route"] == "node --test-reporter=tap"
    assert right["tests"] == {"sums [1, 2] > adds ü": "passed", "sums [1, 2] > later": "skipped", "zero": "passed"}
    assert "adds ü" in right["stdout"]


def test_without_a_report_the_text_counts_and_is_marked(score, project):
    made = project(NODE)
    r = score(made, NODE_RIGHT, test_command="node --test --test-reporter=spec a.test.js; rm -f /tmp/.brig-report", fail_to_pass=["zero"])
    assert r["resolved"] and r["report_channel"] == "text" and r["report_route"] is None and r["framework"] == "node", r


CMAKE = """
    cmake_minimum_required(VERSION 3.19)
    project(t NONE)
    enable_testing()
    cmake_policy(SET CMP0110 NEW)
    add_test(NAME "reads the file" COMMAND grep -q right ${CMAKE_SOURCE_DIR}/src.txt)
    add_test(NAME nowhere COMMAND /nowhere/x)
    add_test(NAME fine COMMAND true)
    """


def test_ctest_reports_in_its_file(score, project):
    made = project({"CMakeLists.txt": CMAKE, "src.txt": "wrong\n"})
    command = "cmake -B build . && ctest --test-dir build"
    ids = {"fail_to_pass": ["reads the file"], "pass_to_pass": ["fine"]}
    wrong = score(made, test_command=command, **ids)
    assert not wrong["resolved"] and wrong["tests"] == {"reads the file": "failed", "nowhere": "error", "fine": "passed"}, wrong
    right = score(made, {"src.txt": "right\n"}, test_command=command, **ids)
    assert right["resolved"] and right["report_channel"] == "report" and right["report_route"] == "ctest --output-junit", right


TOOLS = [
    ("go", "go-text-json", 'case "$*" in *-json*) cat recorded;; esac; exit 1\n', "bin/go test ./...", "go test -json",
     ["TestOk", "TestSub/a_b_(x)"], "TestPanic"),
    ("jest", "jest-report", 'for w; do case $w in --outputFile=*) cat recorded >"${w#*=}";; esac; done; exit 1\n', "CI=1 bin/jest a", "jest --json",
     ["outer [1, 2] > inner > adds ü \"q\"", "top"], "fails"),
    ("vitest", "vitest-report", 'for w; do case $w in --outputFile.json=*) cat recorded >"${w#*=}";; esac; done; exit 1\n', "bin/vitest run",
     "vitest --reporter=json", ["a.test.mjs > top"], "a.test.mjs > outer [1, 2] > inner > fails"),
    ("mocha", "mocha-report", 'for w; do case $w in output=*) cat recorded >"${w#*=}";; esac; done; exit 1\n', "bin/mocha", "mocha --reporter json",
     ["outer [1, 2] inner adds ü \"q\""], "outer [1, 2] inner fails"),
    ("mvn", "maven-report", "mkdir -p m/target/surefire-reports; cat recorded >m/target/surefire-reports/TEST-p.ATest.xml; exit 1\n", "bin/mvn -q test", "JUnit XML",
     ["p.ATest.ok", "ATest.takes(String)[1]"], "p.ATest#bad"),
    ("unit", "gtest-report", 'mkdir -p "${GTEST_OUTPUT#xml:}"; cat recorded >"${GTEST_OUTPUT#xml:}/unit.xml"; exit 1\n', "bin/unit", "GTEST_OUTPUT=xml",
     ["Plain.Works", "All/P.Takes/0"], "Plain.Fails"),
]


@pytest.mark.parametrize("name, report, script, command, route, good, bad", TOOLS, ids=[t[0] for t in TOOLS])
def test_a_framework_is_asked_for_its_report(score, project, name, report, script, command, route, good, bad):
    made = project_with_tool(project, name, report, script)
    more = {"test_framework": "gtest"} if name == "unit" else {}
    right = score(made, test_command=command, fail_to_pass=good, **more)
    assert right["resolved"] and right["report_channel"] == "report" and right["report_route"] == route, (right["report_channel"], right["tests"], right["stdout"], right["stderr"])
    wrong = score(made, test_command=command, fail_to_pass=[bad], **more)
    assert not wrong["resolved"] and wrong["tests"][bad] == "failed", wrong["tests"]


def test_a_status_of_the_command_stays_where_reports_are_gathered(score, project):
    made = project_with_tool(project, "mvn", "maven-report", "exit 7\n")
    made.write({"target/surefire-reports/TEST-old.xml": recorded("maven-report")})
    made.git("add", "-Af")
    made.git("commit", "-q", "-m", "old")
    made.commit = made.git("rev-parse", "HEAD").strip()
    r = score(made, test_command="bin/mvn test")
    assert r["exit_code"] == 7 and r["tests"] == {} and r["report_channel"] == "text" and not r["resolved"], r


@pytest.mark.parametrize("trap", ["mkfifo /tmp/.brig-report", "ln -s /etc/passwd /tmp/.brig-report", "mkdir /tmp/.brig-report", "truncate -s 1T /tmp/.brig-report",
                                  "echo '<!DOCTYPE a>' >/tmp/.brig-report"])
def test_a_report_that_is_a_trap_is_none(score, project, trap):
    made = project({"CMakeLists.txt": CMAKE, "src.txt": "right\n", "ctest": f"#!/bin/sh\n{trap}\necho 'Test project /x'\necho '1/1 Test #1: fine ....   Passed    0.00 sec'\n"})
    r = score(made, test_command="sh ctest; : ; true ctest", fail_to_pass=["fine"], test_framework="ctest")
    assert r["outcome"] in ("resolved", "unresolved") and r["tests"].get("fine") == "passed" and r["report_channel"] == "text", r


def test_more_outcomes_than_are_looked_at_are_told(score, project):
    made = project({"a": "x\n"})
    r = score(made, test_command="yes 'ok - same' | head -n 400001; echo 'not ok - same'", test_framework="tap", fail_to_pass=["same"])
    assert {"report_limit"} <= {f["kind"] for f in r["integrity"]["findings"]} and r["integrity"]["verdict"] == "suspect", r["integrity"]
