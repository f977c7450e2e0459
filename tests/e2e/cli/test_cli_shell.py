"""brig shell on a real terminal: raw while it runs, as it was afterwards, whatever ends it."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import pytest
from brigd import BRIG


class Terminal:
    """A program of ours on a terminal of its own."""

    def __init__(self, brig, *words, rows=30, cols=100):
        self.ours, self.its = pty.openpty()
        self.size(rows, cols)
        self.before = termios.tcgetattr(self.its)
        self.seen = b""
        self.process = subprocess.Popen([BRIG, *words], env=brig.env, stdin=self.its, stdout=self.its, stderr=self.its, start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))

    def size(self, rows, cols):
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def type(self, text):
        os.write(self.ours, text.encode())

    def until(self, pattern, seconds=120):
        """Reads on until it is there; what follows the match is for the next call."""
        deadline = time.monotonic() + seconds
        while not (m := re.search(pattern.encode(), self.seen)):
            ready, _, _ = select.select([self.ours], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"never {pattern!r} in {self.seen!r}"
            self.seen += os.read(self.ours, 65536)
        self.seen = self.seen[m.end():]
        return m

    def is_as_before(self):
        return termios.tcgetattr(self.its) == self.before

    def wait(self):
        """The exit status; nothing reads the terminal meanwhile, and what it prints at its end is short."""
        return self.process.wait(120)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.ours)
        os.close(self.its)


@pytest.fixture
def terminal(brig):
    made = []

    def make(*words, **more):
        made.append(Terminal(brig, *words, **more))
        return made[-1]

    yield make
    for t in made:
        t.close()


def ready(t):
    """It is at a prompt and has echoed what we typed: the terminal here is raw then."""
    t.type("echo re''ady\r")
    t.until("ready\r\n")
    assert not t.is_as_before()
    return t


def test_a_shell_and_its_exit_status(terminal, standing, brig):
    t = ready(terminal("shell", standing))
    t.type("tty; exit 7\r")
    t.until("/dev/pts/")
    assert t.wait() == 7
    assert t.is_as_before()
    listed = brig.daemon.call("GET", f"/v1/sessions/{standing}/terminals").json
    assert listed["terminals"] == [], "one that has ended is closed"


def test_the_size_is_told_and_follows(terminal, standing):
    t = terminal("shell", standing, "--", "sh", "-c", "stty size; trap 'stty size; exit' WINCH; echo up; while sleep 0.05; do :; done", rows=33, cols=111)
    t.until("33 111")
    t.until("up")
    t.size(44, 122)
    t.until("44 122")


def test_keys_are_the_programs(terminal, standing):
    t = ready(terminal("shell", standing))
    t.type("sh -c 'echo sl\"\"eeps; sleep 1000'\r")
    t.until("sleeps")
    t.type("\x03")
    t.until("# ")
    t.type("echo a''live $?\r")
    t.until("alive 130")


def test_a_program_with_arguments_environment_and_directory(terminal, standing):
    t = terminal("shell", "--env", "WHO=me", "--workdir", "/usr", standing, "--", "sh", "-c", "echo $WHO:$PWD:$TERM; exit 3")
    t.until("me:/usr:xterm\r\n")
    assert t.wait() == 3


def test_left_and_come_back_to(terminal, standing):
    t = ready(terminal("shell", standing))
    t.type("echo kept=$((6*7))\r")
    t.until("kept=42")
    t.type("\x1d")
    number = t.until(r"brig shell --attach (\d+) ")[1].decode()
    assert t.wait() == 0 and t.is_as_before()
    again = terminal("shell", "--attach", number, standing)
    again.until("kept=42")
    ready(again)
    again.type("exit\r")
    assert again.wait() == 0


def test_another_key_to_leave_by(terminal, standing):
    t = ready(terminal("shell", "--detach-key", "ctrl-b", standing))
    t.type("\x02")
    assert t.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_leaves_the_terminal_as_it_was(terminal, standing, number):
    t = ready(terminal("shell", standing))
    t.process.send_signal(number)
    t.until("goes back")
    assert t.wait() == 130 and t.is_as_before()


def test_a_session_that_ends_leaves_the_terminal_as_it_was(terminal, brig):
    session = brig("session", "start", "--network", "none").strip()
    t = ready(terminal("shell", session))
    brig("session", "rm", session)
    t.until("the terminal was closed, or its session has ended")
    assert t.wait() == 125 and t.is_as_before()


def test_input_from_a_pipe(brig, standing):
    done = brig.run("shell", standing, "--", "sh", input=b"echo pi''ped; exit 5\n", status=5)
    assert b"piped" in done.stdout


def test_the_end_of_input_ends_a_login_shell(brig, standing):
    brig.run("shell", standing, stdin=subprocess.DEVNULL, status=None)


def test_the_end_of_input_is_said_to_who_threw_it_away(brig, standing):
    """As a shell does that only now makes the terminal its own."""
    forget = "import termios; termios.tcflush(0, termios.TCIFLUSH)"
    p = brig.start("shell", standing, "--", "sh", "-c", f"until [ -e /tmp/late ]; do sleep 0.1; done; python3 -c '{forget}'; cat; exit 3")
    p.stdin.close()
    brig.run("exec", standing, "touch", "/tmp/late")
    assert p.wait(120) == 3


def test_a_lot_of_output_is_whole(brig, standing):
    done = brig.run("shell", standing, "--", "sh", "-c", "stty -onlcr; seq 100000", stdin=subprocess.DEVNULL)
    assert done.stdout.replace(b"^D\b\b", b"") == b"".join(b"%d\n" % i for i in range(1, 100001))


def test_what_cannot_be_opened_is_125(brig, standing):
    assert b"no such session" in brig.run("shell", "none-such", status=125, stdin=subprocess.DEVNULL).stderr
    assert b"no such terminal" in brig.run("shell", "--attach", "4711", standing, status=125, stdin=subprocess.DEVNULL).stderr
    assert b"--detach-key" in brig.run("shell", "--detach-key", "x", standing, status=125, stdin=subprocess.DEVNULL).stderr
