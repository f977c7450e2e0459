"""Signals that whoever started the daemon had ignored."""
import brigd
import pytest
from brigd import Daemon
from session_client import Session

IGNORED = "import signal; print([s.name for s in signal.valid_signals() if s not in (9, 19) and isinstance(s, signal.Signals) and signal.getsignal(s) == signal.SIG_IGN])"


@pytest.fixture
def daemon(monkeypatch, tmp_path):
    program = tmp_path / "brig"
    program.write_text(f"#!/bin/sh\ntrap '' INT QUIT HUP USR1\nexec {brigd.BRIG} \"$@\"\n")
    program.chmod(0o755)
    monkeypatch.setattr(brigd, "BRIG", str(program))
    with Daemon() as d:
        yield d


def test_a_command_ignores_no_signal_that_the_daemon_did(daemon):
    """python3 ignores two of its own will."""
    session = Session(daemon).ready()
    own = "['SIGPIPE', 'SIGXFSZ']"
    for command in f'python3 -c "{IGNORED}"', f'exec python3 -c "{IGNORED}"':         # joining, then by the launcher
        assert session.out(command).strip() == own
