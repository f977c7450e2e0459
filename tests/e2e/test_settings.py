"""Settings as a user meets them: the environment, the flags, the messages."""
import os
import pathlib
import subprocess

import pytest

import brigd


def serve(*flags, **variables):
    """Runs a daemon that is expected to refuse to start."""
    return subprocess.run([brigd.BRIG, "serve", *flags], env={"PATH": "/usr/bin:/bin", **variables}, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("flags, variables, words", [
    ([], {"API_PORT": "eighty"}, ["http.port", "API_PORT", "eighty"]),
    ([], {"TASK_MAX_AGE": "-1"}, ["task.max_age", "TASK_MAX_AGE"]),
    ([], {"BRIG_LISTEN": "0.0.0.0:0"}, ["token", "--insecure-open"]),
    (["--low-water=much"], {}, ["store.low_water", "--low-water", "much"]),
    (["--nonsense"], {}, ["unknown option", "--nonsense"]),
])
def test_a_bad_setting_is_named_and_nothing_starts(tmp_path, flags, variables, words):
    done = serve(*flags, BRIG_HOME=str(tmp_path / "home"), **variables)
    assert done.returncode == 64
    assert done.stdout == ""
    assert all(word in done.stderr for word in words), done.stderr
    assert not (tmp_path / "home").exists()


def test_a_second_daemon_says_who_holds_the_home(brig):
    d = brig()
    done = serve(BRIG_HOME=str(d.home), API_PORT="0")
    assert done.returncode == 1
    assert f"process {d.process.pid}" in done.stderr
    assert d.call("GET", "/task/x").status == 404       # the first one did not notice


def test_a_home_that_the_daemons_user_cannot_reach_is_an_error(tmp_path):
    tmp_path.chmod(0o700)
    done = serve(BRIG_HOME=str(tmp_path / "home"), API_PORT="0")
    assert done.returncode == 1
    assert f"cannot reach {tmp_path}/home" in done.stderr


def test_ready_is_the_only_line_on_standard_output(brig):
    d = brig()
    d.process.send_signal(15)
    assert d.process.stdout.read() == ""
    assert d.wait() == 0


def test_a_port_in_use_is_an_error_and_leaves_nothing(brig):
    first = brig()
    second = brigd.Daemon()
    done = serve(BRIG_HOME=str(second.home), API_PORT=str(first.port))
    assert done.returncode == 1
    assert str(first.port) in done.stderr
    second.assert_nothing_left()


def test_the_daemon_has_no_privilege(brig):
    d = brig()
    status = pathlib.Path(f"/proc/{d.process.pid}/status").read_text()
    for line in ("CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "CapInh:\t0000000000000000", "NoNewPrivs:\t1"):
        assert line in status
    assert "Uid:\t0" not in status and "Gid:\t0" not in status


def test_the_token_is_needed_and_stays_out_of_the_spawner(brig):
    d = brig(API_TOKEN="hunter2-token", BRIG_LISTEN="127.0.0.1:0")
    assert d.call("GET", "/task/x").status == 401
    assert d.call("GET", "/task/x", headers={"Authorization": "Bearer hunter2-token"}).status == 404
    assert b"hunter2" not in pathlib.Path(f"/proc/{d.spawner()}/environ").read_bytes()
    assert "hunter2" not in d.stderr()


def test_task_base_dir_takes_the_log_and_the_runs(brig, repository, tmp_path_factory):
    base = pathlib.Path("/tmp") / f"brig-base-{os.getpid()}"
    try:
        d = brig(TASK_BASE_DIR=str(base))
        task = d.submit(repository.takes(0))
        d.result(task)
        assert task in (base / "task_executor.log").read_text()
        assert (base / f"runs-{d.instance}" / task / "stdout.log").exists()
        assert d.run_directories() == []
    finally:
        subprocess.run(["rm", "-rf", str(base)], check=True)


def test_activity_is_logged(brig, repository):
    d = brig()
    task = d.submit(repository.takes(0))
    d.result(task)
    log = (d.home / "log" / "task_executor.log").read_text()
    assert all(f"{event} task={task}" in log for event in ("task.submitted", "task.started", "task.finished"))
