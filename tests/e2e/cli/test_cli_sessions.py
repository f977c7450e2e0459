"""brig session, exec, ps, logs, kill, top."""
import hashlib
import json
import os
import signal
import subprocess

import pytest
from brigd import BRIG, until


def test_a_session_is_started_listed_and_removed(brig):
    session = brig("session", "start", "--network", "none", "--label", "who=cli", "--env", "COLOR=red", "--workdir", "/tmp", "--ttl", "600").strip()
    listed = brig("session", "ls")
    assert listed.startswith("SESSION  ") and session in listed and "who=cli" in listed and "ready" in listed
    assert session in brig("session", "ls", "-q").split()
    assert brig("session", "ls", "-q", "--label", "who=nobody") == ""
    [one] = brig.json("session", "ls", "--label", "who=cli")["sessions"]
    assert one["id"] == session and one["ttl_s"] == 600 and one["network"] == "none"
    assert brig("exec", session, "sh", "-c", "echo $COLOR; pwd") == "red\n/tmp\n"
    assert brig("session", "rm", session) == session + "\n"
    assert session not in brig("session", "ls", "-q")
    assert "no such session" in brig.run("session", "rm", session, status=1, text=True).stderr


def test_lists_of_many_pages_are_whole(brig):
    """Labels keep what other tests start out of the count."""
    made = [brig("session", "start", "--network", "none", "--label", "set=pages", "--no-wait").strip() for _ in range(3)]
    assert sorted(brig("session", "ls", "-q", "--label", "set=pages").split()) == sorted(made)
    assert len(brig("session", "rm", *made).split()) == 3


def test_a_session_that_fails_says_why(brig):
    failed = brig.run("session", "start", "/no/such/directory", status=None, text=True)
    assert failed.returncode in (1, 64) and "brig session start: " in failed.stderr


def test_what_a_session_is_refused_is_usage(brig):
    assert "--ttl wants a number" in brig.run("session", "start", "--ttl", "long", status=64, text=True).stderr
    assert "--label wants NAME=VALUE" in brig.run("session", "start", "--label", "x", status=64, text=True).stderr
    assert "capability" in brig.run("session", "start", "--cap-drop", "CAP_NONE_SUCH", status=64, text=True).stderr


# ---- exec -------------------------------------------------------------------------------------------------------------------


def test_output_and_status_are_the_commands(brig, standing):
    done = brig.run("exec", standing, "--", "sh", "-c", "echo out; echo err >&2; exit 7", status=7)
    assert (done.stdout, done.stderr) == (b"out\n", b"err\n")
    assert brig("exec", standing, "ls", "--version").startswith("ls (GNU coreutils)"), "what follows is the command's own"


@pytest.mark.parametrize("command, status", [(["sh", "-c", "kill -9 $$"], 137), (["no-such-program"], 127), (["false"], 1)])
def test_statuses(brig, standing, command, status):
    brig.run("exec", standing, *command, status=status)


def test_input_is_the_commands_as_it_comes(brig, standing):
    process = brig.start("exec", "-i", standing, "cat")
    for line in b"one\n", b"two\n":
        process.stdin.write(line)
        process.stdin.flush()
        assert process.stdout.readline() == line
    assert process.communicate(timeout=60) == (b"", b"") and process.returncode == 0


def test_input_of_any_bytes_and_size(brig, standing):
    data = bytes(range(256)) * (40 << 12)          # 40 MiB
    done = brig.run("exec", "-i", standing, "sha256sum", input=data)
    assert done.stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()


def test_no_input_at_all(brig, standing):
    assert brig.run("exec", "-i", standing, "wc", "-c", input=b"").stdout.strip() == b"0"
    done = subprocess.run([BRIG, "exec", "-i", standing, "wc", "-c"], env=brig.env, stdout=subprocess.PIPE, timeout=120, preexec_fn=lambda: os.close(0))
    assert (done.returncode, done.stdout.strip()) == (0, b"0")


def test_a_command_need_not_read_its_input(brig, standing):
    process = brig.start("exec", "-i", standing, "sh", "-c", "exit 3")       # whose input stays open
    assert process.wait(timeout=60) == 3
    assert brig.run("exec", "-i", standing, "head", "-c", "5", input=b"hello" + bytes(8 << 20)).stdout == b"hello"


def test_input_that_cannot_be_read_is_our_failure(brig, standing):
    directory = os.open("/", os.O_RDONLY)
    done = subprocess.run([BRIG, "exec", "-i", standing, "cat"], env=brig.env, stdin=directory, capture_output=True, timeout=120)
    os.close(directory)
    assert done.returncode == 125 and b"read standard input" in done.stderr


def test_bytes_come_as_they_are(brig, standing):
    assert brig.run("exec", standing, "printf", r"\377\000\n\200").stdout == b"\xff\x00\n\x80"


def test_a_lot_of_output_is_whole(brig, standing):
    assert brig.run("exec", standing, "seq", "300000").stdout == b"".join(b"%d\n" % i for i in range(1, 300001))


def test_standard_input_where_it_is_asked_for(brig, standing):
    data = os.urandom(300000)
    assert brig.run("exec", "-i", standing, "cat", input=data).stdout == data
    assert brig.run("exec", standing, "cat", input=data).stdout == b""


def test_environment_directory_user_and_shell(brig, standing):
    assert brig("exec", "--env", "A=b c", "--workdir", "/usr", "--shell", standing, "echo $A; pwd | cat") == "b c\n/usr\n"
    assert brig("exec", "--user", "1000:1000", standing, "id", "-u") == "1000\n"
    brig.run("exec", "--shell", standing, "echo", "two", status=125)


def test_output_comes_while_the_command_runs(brig, standing):
    run = brig.start("exec", standing, "sh", "-c", "mkfifo /tmp/go; echo one; read x < /tmp/go; echo two")
    assert run.stdout.readline() == b"one\n"
    brig("exec", standing, "sh", "-c", "echo > /tmp/go; rm /tmp/go")
    assert run.communicate(timeout=60) == (b"two\n", b"") and run.returncode == 0


def test_an_interrupt_kills_the_command(brig, standing):
    run = brig.start("exec", standing, "sh", "-c", "echo up; exec sleep 98761")
    assert run.stdout.readline() == b"up\n"
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=60)
    assert run.returncode == 130
    until(lambda: brig.run("exec", standing, "pgrep", "-f", "sleep 9876[1]", status=None).returncode == 1, "it is killed")


def test_a_timeout_is_124_and_says_so(brig, standing):
    assert b"timed out" in brig.run("exec", "--timeout", "0.3", standing, "sleep", "100", status=124).stderr


def test_what_was_not_run_is_125(brig, standing):
    assert b"no such session" in brig.run("exec", "no-such-session", "true", status=125).stderr
    brig.run("exec", "../x", "true", status=125)
    brig.run("exec", "--no-such-option", standing, "true", status=125)
    brig.run("exec", "--user", "nobody:", standing, "true", status=125)
    brig.run("exec", "--url", "http://127.0.0.1:1", standing, "true", status=125)


def test_a_session_that_ends_meanwhile_is_125(brig):
    session = brig("session", "start", "--network", "none").strip()
    run = brig.start("exec", session, "sh", "-c", "echo up; exec sleep 1000")
    assert run.stdout.readline() == b"up\n"
    brig("session", "rm", session)
    assert b"session has ended" in run.communicate(timeout=60)[1] and run.returncode == 125


def test_json_is_the_answer_and_the_status_stays(brig, standing):
    answer = json.loads(brig("exec", "-o", "json", standing, "sh", "-c", "echo a; exit 3", status=3))
    assert (answer["exit_code"], answer["stdout"]) == (3, "a\n")


# ---- in the background ------------------------------------------------------------------------------------------------------


def test_background_commands_are_listed_read_and_killed(brig, standing):
    command = brig("exec", "-d", standing, "sh", "-c", "echo hello; echo oops >&2; exec sleep 1000").strip()
    until(lambda: brig("logs", standing, command) == "hello\n", "it has written")
    until(lambda: brig("logs", standing, command, "--stderr") == "oops\n", "it has written")
    assert brig("logs", standing, command, "--tail", "3") == "lo\n"
    assert command in brig("ps", standing, "-q").split()
    row = next(line for line in brig("ps", standing).splitlines() if line.startswith(command + " "))
    assert "running" in row and "6 B" in row
    brig("kill", standing, command)
    until(lambda: "exited" in brig("ps", standing), "it is killed")
    [one] = [c for c in brig.json("ps", standing)["commands"] if str(c["id"]) == command]
    assert one["exit_code"] == 137
    brig("kill", standing, command)
    assert command not in brig("ps", standing, "-q").split(), "what has ended is forgotten"
    assert b"no such command" in brig.run("logs", standing, command, status=2).stderr


def test_logs_are_followed(brig, standing):
    command = brig("exec", "-d", "--shell", standing, "mkfifo /tmp/follow; echo one; echo no >&2; read x < /tmp/follow; echo two").strip()
    early, errors = brig.start("logs", "-f", standing, command), brig.start("logs", "-f", "--stderr", standing, command)
    assert early.stdout.readline() == b"one\n"
    assert errors.stdout.readline() == b"no\n"
    end = brig.start("logs", "-f", "--tail", "0", standing, command)
    brig("exec", "--shell", standing, "echo > /tmp/follow; rm /tmp/follow")
    assert early.communicate(timeout=60)[0] == b"two\n" and early.returncode == 0
    assert errors.communicate(timeout=60)[0] == b"" and errors.returncode == 0
    assert end.communicate(timeout=60)[0] in (b"two\n", b""), "it may have come late"
    assert brig("logs", "-f", standing, command) == "one\ntwo\n"
    assert brig("logs", "-f", "--tail", "3", standing, command) == "wo\n"
    last = [json.loads(line) for line in brig("logs", "-f", "-o", "json", standing, command).splitlines()][-1]
    assert last["exit_code"] == 0 and last["stdout_bytes"] == 8


def test_long_logs_are_whole(brig, standing):
    command = brig("exec", "-d", standing, "seq", "400000").strip()
    until(lambda: brig.json("ps", standing)["commands"][0]["state"] == "exited", "it ends")
    assert brig.run("logs", standing, command).stdout == b"".join(b"%d\n" % i for i in range(1, 400001))


def test_a_commands_name_cannot_write_to_the_terminal(brig, standing):
    brig("exec", "-d", standing, "sh", "-c", "true \033]0;evil\007")
    assert "\033" not in brig("ps", standing) and "?]0;evil?" in brig("ps", standing)


# ---- top, and what all have in common ------------------------------------------------------------------------------------------


def test_top_shows_what_a_session_uses(brig, standing):
    shown = brig("top")
    assert shown.startswith("SESSION ") and standing in shown and "MiB" in shown
    [one] = [s for s in brig.json("top")["sessions"] if s["id"] == standing]
    assert one["memory_bytes"] > 0


def test_ids_of_sessions_are_completed(brig, standing):
    script = f"""PATH={os.path.dirname(BRIG)}:$PATH; {brig("completion", "bash")}
COMP_WORDS=(brig exec {standing[:2]}); COMP_CWORD=2; _brig; printf '%s\\n' "${{COMPREPLY[@]}}" """
    offered = subprocess.run(["bash", "-c", script], env=brig.env, capture_output=True, text=True, check=True).stdout.split()
    assert standing in offered


def test_no_daemon_is_told_with_what_to_do(brig, standing):
    done = subprocess.run([BRIG, "session", "ls"], env={**brig.env, "BRIG_URL": "", "API_PORT": "1"}, capture_output=True, text=True)
    assert done.returncode == 2 and "brig serve" in done.stderr


def test_arguments_that_requests_cannot_hold_are_refused(brig, standing):
    done = brig.run("exec", standing, "printf", "%s", b"\xff".decode("utf-8", "surrogateescape"), status=125, text=True)
    assert "argument 3 is not UTF-8" in done.stderr and done.stdout == ""
