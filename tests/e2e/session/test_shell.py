"""Persistent shells."""
import base64
import concurrent.futures

import pytest
from brigd import until
from test_native import Native, fault


class Shell:
    def __init__(self, session, **body):
        self.session = session
        self.id = session.ok("POST", "/shells", body, 201)["id"]

    def call(self, **body):
        return self.session.call("POST", f"/shells/{self.id}/exec", body)

    def run(self, command, **body):
        answer = self.call(command=command, **body)
        assert answer.status == 200, answer
        return answer.json

    def out(self, command):
        got = self.run(command)
        assert got["exit_code"] == 0 and got["stderr"] == "", got
        return got["stdout"]


@pytest.fixture
def session(daemon):
    s = Native(daemon)
    yield s
    s.call("DELETE")


@pytest.fixture
def shell(session):
    return Shell(session)


def test_state_stays(shell):
    shell.out("cd /tmp; x='a  b'; export Y=2; arr=(1 '2 3'); f() { echo \"f $1\"; }; alias ll='echo aliased'; shopt -s nullglob")
    assert shell.out("pwd; echo \"$x\"; printenv Y; echo ${arr[1]}; f z; ll; shopt -q nullglob && echo glob") == "/tmp\na  b\n2\n2 3\nf z\naliased\nglob\n"
    assert shell.run("cd /usr; false") | {"wall_ms": 0} == {"exit_code": 1, "stdout": "", "stderr": "", "cwd": "/usr", "timed_out": False, "restarted": False, "session_ended": False, "wall_ms": 0}


def test_streams_are_the_commands_own(shell):
    got = shell.run("echo out; echo err >&2")
    assert (got["stdout"], got["stderr"]) == ("out\n", "err\n")
    got = shell.run("printf 'no newline'; printf '\\000\\377' >&2", encoding="base64")
    assert base64.b64decode(got["stdout"]) == b"no newline" and base64.b64decode(got["stderr"]) == b"\0\xff"
    assert shell.run("cat; echo $?")["stdout"] == "0\n"        # standard input is empty


def test_prompts_and_traces_change_nothing(shell):
    shell.out("PS1='$ '; PS2='> '; PROMPT_COMMAND='echo prompt'; stty -echo 2>/dev/null; true")
    assert shell.out("echo one") == "one\n"
    got = shell.run("set -x; echo traced")
    assert got["stdout"] == "traced\n" and got["stderr"] == "++ echo traced\n"
    assert shell.run("echo again")["stdout"] == "again\n"


def test_exit_is_a_command_that_ends(shell):
    shell.out("cd /tmp; kept=yes; g() { echo g; }")
    got = shell.run("echo last; exit 3")
    assert got["exit_code"] == 3 and got["stdout"] == "last\n" and got["restarted"]
    assert shell.out("pwd; echo $kept; g") == "/tmp\nyes\ng\n"


def test_exec_and_kill_go_back_to_the_last_state(shell):
    shell.out("v=1; cd /usr")
    assert shell.run("v=2; exec sh -c 'echo replaced; exit 4'")["exit_code"] == 4
    assert shell.out("echo $v; pwd") == "1\n/usr\n"
    assert shell.run("kill -9 $$")["exit_code"] == 137
    assert shell.out("echo $v; pwd") == "1\n/usr\n"


def test_errexit_means_what_it_says(shell):
    got = shell.run("set -e; echo before; false; echo after")
    assert got["exit_code"] == 1 and got["stdout"] == "before\n" and got["restarted"]
    assert shell.run("false; echo not reached")["stdout"] == ""
    assert shell.run("set +e; false; echo reached")["stdout"] == "reached\n"


def test_a_timeout(session, shell):
    shell.out("cd /tmp; w=1")
    got = shell.run("echo begun; setsid sleep 6543 & sleep 6542", timeout_s=3)
    assert got["exit_code"] == 124 and got["timed_out"] and got["restarted"] and got["stdout"] == "begun\n"
    assert shell.out("pwd; echo $w") == "/tmp\n1\n"
    until(lambda: "654" not in session.exec(command="cat /proc/[0-9]*/cmdline")["stdout"], "what it had started is gone")


def test_background_jobs_stay(session, shell):
    shell.out("sleep 4545 >/dev/null 2>&1 &")
    assert shell.out("jobs -r | wc -l; kill %1; wait %1 2>/dev/null; jobs -r | wc -l") == "1\n0\n"
    shell.out("(sleep 0.3; echo late) &")
    until(lambda: "late" in shell.run("sleep 0.1")["stdout"], "its output comes with a later command")


def test_syntax_errors_and_odd_texts(shell):
    got = shell.run("if then")
    assert got["exit_code"] != 0 and "syntax error" in got["stderr"] and not got["restarted"]
    assert shell.out("cat <<'E'\n$x `y`\nE\n") == "$x `y`\n"
    assert shell.out("") == "" and shell.out("# nothing") == ""
    assert shell.out("echo 'quo\"tes' \\\n  two") == 'quo"tes two\n'
    big = "x" * 500000
    assert shell.out(f"echo '{big}' | wc -c") == "500001\n"


def test_descriptors_are_not_there(shell):
    assert shell.out("exec 3>/tmp/f; echo a >&3; ls /proc/self/fd | sort -n | tr '\\n' ' '").split()[:3] == ["0", "1", "2"]
    assert shell.run("echo 0 >&205; echo 1 >&200")["exit_code"] != 0
    assert shell.out("echo fine") == "fine\n"


def test_descriptors_that_are_closed_do_not_silence_it(shell):
    """By number, and for good: `exec` is not undone at the end of a command."""
    for number in range(200, 206):
        shell.run(f"exec {number}>&-")
        assert shell.out("echo heard") == "heard\n", number
    assert shell.run("exit 3")["exit_code"] == 3
    assert shell.out("echo still") == "still\n"


def test_many_commands_that_end_it_at_once(session):
    """The next process is started while the one before is still being taken down."""
    shells = [Shell(session) for _ in range(3)]
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        said = [pool.submit(shells[i % 3].call, command="kill -9 $$" if i % 2 else "true") for i in range(600)]
    assert {s.result().status for s in said} <= {200, 409}
    for shell in shells:
        assert shell.out("echo well") == "well\n"


def test_hostile_state(shell):
    shell.run("readonly locked=1; IFS=x; declare() { echo trap; }; printf() { echo trap; }; cd() { echo trap; }")
    assert shell.call(command="echo on").status == 200
    shell.run("echo 'garbage (' > /proc/self/fd/202; kill -9 $$")
    assert shell.run("echo still")["stdout"] == "still\n"


@pytest.mark.parametrize("text", ["builtin() { return 0; }", "builtin() { false; }", "builtin() { echo mine; }", "eval() { :; }; read() { :; }; printf() { :; }; declare() { :; }",
                                  "alias builtin=false eval=false read=false", "builtin() { command builtin \"$@\"; }", "eval() { :; }; builtin() { :; }; set -e"])
def test_names_of_the_shells_own_may_be_taken(shell, text):
    assert shell.run(f"x=kept; alias ll='echo listed'; {text}", timeout=20)["timed_out"] is False
    got = shell.run("set +e; \\echo $x; ll", timeout=20)
    assert got["stdout"] == "kept\nlisted\n" and not got["timed_out"], got
    assert shell.run("x=$(false; echo on); [ -z \"$POSIXLY_CORRECT\" ] && shopt -q expand_aliases && ! shopt -q inherit_errexit", timeout=20)["exit_code"] == 0


SELF = "builtin() { if [ $1 = eval ]; then command builtin \"$@\"; fi; }"


@pytest.mark.parametrize("text", ["enable -n read", "enable -n eval printf", "enable -n builtin", "enable -n declare shopt alias set", SELF, "builtin() { command builtin \"$@\"; }; eval() { :; }; enable -n read"],
                         ids=["read", "eval", "builtin", "declare", "eval alone", "all"])
def test_what_the_shell_needs_is_put_back(shell, text):
    assert shell.run(f"x=kept; {text}", timeout=20)["timed_out"] is False
    got = shell.run("echo $x", timeout=20)
    assert (got["stdout"], got["timed_out"], got["restarted"]) == ("kept\n", False, False), got


@pytest.mark.parametrize("text", ["builtin() { :; }; readonly -f builtin", f"{SELF}; readonly -f builtin", "enable -n builtin enable", "unset() { :; }; builtin() { :; }; enable -n unset", "readonly __brig_command=1",
                                  "builtin() { :; }; readonly -f builtin; exit 3"],
                         ids=["readonly", "eval alone", "enable", "unset", "variable", "exit"])
def test_a_shell_that_cannot_be_mended_ends_and_says_so(shell, text):
    shell.run("x=before")
    got = shell.run(f"echo said; x=after; {text}", timeout=20)
    assert got["stdout"] == "said\n" and ("no working builtins" in got["stderr"] or got["exit_code"] == 3) and got["restarted"] and not got["timed_out"], got
    assert shell.run("echo $x", timeout=20)["stdout"] == "before\n"


def test_a_command_that_the_shell_did_not_read_runs_in_the_next_one(shell):
    """The shell ends when it looks for the next command, which may be on its way then."""
    for i in range(30):
        shell.run(f"x={i}; trap 'case $BASH_COMMAND in *\"-u 200\"*) exit 9;; esac' DEBUG")
        got = shell.run("echo $x", timeout=20)
        assert got["stdout"] == f"{i}\n" and got["exit_code"] == 0, got


def test_one_command_at_a_time(session, shell):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(shell.run, "sleep 1; echo first")
        until(lambda: session.ok("GET", f"/shells/{shell.id}")["busy"], "it is busy")
        fault(shell.call(command="echo second"), 409, "conflict")
        assert first.result()["stdout"] == "first\n"
    assert shell.out("echo second") == "second\n"


def test_shells_are_apart(session):
    a, b = Shell(session, cwd="/tmp", env={"NAME": "a"}), Shell(session, user="1000")
    assert a.out("x=1; echo $NAME; pwd") == "a\n/tmp\n" and b.out("echo $x$NAME; id -u") == "\n1000\n"
    got = session.ok("GET", "/shells")["shells"]
    assert [(g["id"], g["cwd"], g["commands"], g["busy"]) for g in got] == [(b.id, "/", 1, False), (a.id, "/tmp", 1, False)]
    assert session.ok("DELETE", f"/shells/{a.id}") == {"id": a.id, "deleted": True}
    fault(a.call(command="true"), 404, "not_found")
    assert b.out("echo b") == "b\n"
    for _ in range(15):
        Shell(session)
    fault(session.call("POST", "/shells", {}), 503, "too_many_commands")


def test_closing_takes_what_runs(session, shell):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(shell.run, "echo a; exec sleep 3131")
        until(lambda: "3131" in session.exec(command="cat /proc/[0-9]*/cmdline")["stdout"], "it runs")
        session.ok("DELETE", f"/shells/{shell.id}")
        assert waiting.result()["exit_code"] == 137
    until(lambda: "3131" not in session.exec(argv=["sh", "-c", "cat /proc/[0-9]*/cmdline"])["stdout"], "it is gone")


def test_the_session_goes_with_its_shells(daemon):
    s = Native(daemon)
    shell = Shell(s)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(shell.run, "echo a; sleep 100")
        until(lambda: s.ok("GET", f"/shells/{shell.id}")["busy"], "it runs")
        s.call("DELETE")
        assert waiting.result()["session_ended"]
    fault(shell.call(command="true"), 404, "not_found")


def test_a_client_that_goes_away(session, shell):
    shell.out("n=5")
    with pytest.raises(TimeoutError):
        session.call("POST", f"/shells/{shell.id}/exec", {"command": "sleep 2727"}, timeout=0.5)
    until(lambda: not session.ok("GET", f"/shells/{shell.id}")["busy"], "the command is killed")
    assert shell.out("echo $n") == "5\n"


def test_wrong_fields(session, shell):
    for body in ({}, {"command": 1}, {"command": "x", "timeout_s": "y"}, {"command": "x", "encoding": "z"}):
        fault(shell.call(**body), 400, "invalid")
    fault(session.call("POST", "/shells", {"user": "nobody"}), 400, "invalid")
