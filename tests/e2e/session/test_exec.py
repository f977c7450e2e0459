"""Commands in a session, in the executor's dialect."""
import concurrent.futures
import pathlib
import re
import time

import pytest
from brigd import until


def test_a_command_runs_in_a_login_shell(session):
    s = session()
    assert s.exec("echo out; echo err >&2; exit 3") == {"session_id": s.id, "exit_code": 3, "stdout": "out\n", "stderr": "err\n", "timed_out": False}
    assert s.out("shopt -q login_shell && echo login; echo $0") == "login\n/bin/bash\n"


def test_files_stay_and_shells_do_not(session):
    s = session()
    s.out("echo kept > /tmp/f; cd /tmp; x=1")
    assert s.out("cat /tmp/f; pwd; echo $x") == "kept\n/\n\n"


def test_the_environment_is_the_sessions(session):
    s = session(env={"GREETING": "hello", "PATH": "/usr/bin:/bin"})
    got = s.out("env -0 | tr '\\0' '\\n' | grep -v -e ^_= -e ^SHLVL= -e ^PWD= | sort").split("\n")
    assert "GREETING=hello" in got and "LANG=C.UTF-8" in got and "TZ=UTC" in got and "HOME=/root" in got
    assert not [line for line in got if "BRIG" in line or "API_" in line]


def test_cwd(session):
    s = session()
    s.out("mkdir -p /project/a; ln -s /project/a /project/link")
    assert s.out("pwd", cwd="/project/a") == "/project/a\n"
    assert s.out("pwd -P", cwd="/project/link") == "/project/a\n"
    assert s.out("pwd -P", cwd="project/a") == "/project/a\n"
    missing = s.exec("pwd", cwd="/nowhere")
    assert missing["exit_code"] == 127 and "/bin/bash" in missing["stderr"] and not missing["timed_out"]


@pytest.mark.parametrize("link", ["/proc/1/root", "/proc/self/root/..", "../../../..", "/project/out"])
def test_a_cwd_cannot_lead_out(session, link):
    s = session()
    s.out("mkdir -p /project; ln -sfn ../../../../../.. /project/out; touch /inside-marker")
    assert s.exec("ls -d inside-marker", cwd=link)["stdout"] in ("inside-marker\n", "")
    assert s.exec("ls home/*/brig.db var/lib/brig", cwd=link)["exit_code"] != 0


def test_a_timeout_keeps_what_was_printed(session):
    s = session()
    began = time.monotonic()
    got = s.exec("echo before; sleep 1000", timeout=3)
    assert got["exit_code"] == 124 and got["timed_out"] is True and got["stdout"] == "before\n"
    assert time.monotonic() - began > 2.9


def test_a_timeout_kills_only_its_own_commands_tree(session):
    s = session()
    s.out("setsid sleep 1111 >/dev/null 2>&1 &")
    got = s.exec("setsid sh -c 'sleep 2222; true' & disown; sleep 3333", timeout=0.5)
    assert got["timed_out"]
    def running():
        return s.exec("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '")["stdout"]
    until(lambda: "sleep 2222" not in running() and "sleep 3333" not in running(), "its own are gone")
    assert "sleep 1111" in running()


def test_a_background_child_that_holds_stdout_does_not_hold_the_answer(session):
    s = session()
    assert s.exec("sleep 5000 & echo started")["stdout"] == "started\n"
    assert "sleep\x005000" in s.out("cat /proc/[0-9]*/cmdline; true")


def test_two_commands_run_at_the_same_time(session):
    s = session()
    s.out("mkfifo /tmp/a /tmp/b")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        first = pool.submit(s.exec, "echo one > /tmp/a; cat /tmp/b")
        second = pool.submit(s.exec, "cat /tmp/a; echo two > /tmp/b")
        assert first.result()["stdout"] == "two\n" and second.result()["stdout"] == "one\n"


def test_output_beyond_the_limit_keeps_head_and_tail(session):
    s = session()
    got = s.out("printf 'HEAD'; head -c 100000 /dev/zero | tr '\\0' x; printf 'TAIL'", output_limit=100)
    assert got.startswith("HEADx") and got.endswith("xTAIL") and "\n[... 99908 bytes left out ...]\n" in got
    assert len(got) < 200


@pytest.mark.parametrize("limit", [0, -1, "0", None])
def test_an_output_limit_of_nothing_is_the_servers(session, limit):
    s = session()
    got = s.out("head -c 70000 /dev/zero | tr '\\0' x", output_limit=limit)
    assert got.count("x") == 65536 and "4464 bytes left out" in got


def test_bytes_that_are_not_utf8_are_carried(session):
    s = session()
    assert s.exec("printf 'a\\xff\\xfeb'")["stdout"] == "a\ufffd\ufffdb"


def test_a_signal_is_an_exit_code(session):
    assert session().exec("kill -9 $$")["exit_code"] == 137


def test_an_empty_body_runs_nothing(session):
    s = session()
    assert s.post("exec").json == {"session_id": s.id, "exit_code": 0, "stdout": "", "stderr": "", "timed_out": False}


@pytest.mark.parametrize("body, field", [
    ({"command": 3}, "command"), ({"command": "true", "timeout": "soon"}, "timeout"), ({"command": "true", "timeout": -1}, "timeout"),
    ({"command": "true", "cwd": []}, "cwd"), ({"command": "true", "output_limit": "much"}, "output_limit"), ({"command": "a\0b"}, "command"),
    ({"command": "x" * 200000}, "command"),
])
def test_a_wrong_field_is_named(session, body, field):
    answer = session().post("exec", body)
    assert answer.status == 400 and f"'{field}'" in answer.json["error"]


@pytest.mark.parametrize("raw", [b"x", b"[]", b"3", b"{"])
def test_a_body_that_is_no_object_is_refused(session, raw):
    answer = session().post("exec", raw)
    assert answer.status == 400 and answer.json == {"error": "Request body must be valid JSON"}


def test_numbers_may_come_as_text(session):
    assert session().exec("sleep 30", timeout="1")["timed_out"]


def test_a_long_command(session):
    s = session()
    assert s.out("cat <<'E' | wc -c\n" + "y" * 100000 + "\nE") == "100001\n"


def test_memory_gone_ends_the_command_and_not_the_session(session):
    s = session(limits={"memory_mb": 64, "disk_mb": 64})
    got = s.exec("python3 -c 'x = bytearray(300 << 20)'; echo $?")
    assert got["exit_code"] != 0 or "137" in got["stdout"]
    assert s.out("echo alive") == "alive\n"


def test_the_client_that_goes_away_leaves_the_command_running(session, daemon):
    s = session()
    with pytest.raises(TimeoutError):
        s.post("exec", {"command": "sleep 2; echo done > /tmp/done"}, timeout=0.5)
    until(lambda: s.exec("cat /tmp/done")["stdout"] == "done\n", "the command goes on")


def test_commands_that_are_waited_for_cost_no_thread(daemon, session):
    """And hardly any memory: two pipes and a small object each."""
    a, b = session(), session()

    def threads():
        return int(re.search(r"^Threads:\s+(\d+)$", pathlib.Path(f"/proc/{daemon.process.pid}/status").read_text(), re.M)[1])

    before, memory = threads(), daemon.usage()
    with concurrent.futures.ThreadPoolExecutor(300) as pool:
        waiting = [pool.submit((a, b)[i % 2].exec, "exec sleep 1000.300", timeout=0) for i in range(300)]
        until(lambda: len(daemon.inside("sleep", "1000.300")) == 300, "all run")
        assert threads() <= before + 4, "the pool, which may not have been there yet"
        assert daemon.usage() - memory < 32 << 20
        for s in (a, b):
            s.delete()
        assert {w.result()["exit_code"] for w in waiting} == {137}
