"""Nothing waits for ever, nothing grows for ever."""
import os
import pathlib
import signal
import subprocess
import time

import brigd
from brigd import processes, until


def spawners_of(pid):
    return [child for child, parent, argv in processes() if parent == pid and b"spawner" in argv]


def test_a_killed_daemon_leaves_no_spawner_whatever_it_was_doing(brig, repository):
    """kill -9 in the middle of create, exec and destroy: the spawner ends by itself, and with it every sandbox."""
    d = brig(BRIG_QUEUE_RUNNING_MAX="4")
    for round_ in range(50):
        for _ in range(4):
            d.submit(repository.takes("0.0%d" % (round_ % 5)))
        spawner = d.spawner()
        deadline = time.monotonic() + 0.04 * (round_ % 12)      # a later moment of their lives each round
        while time.monotonic() < deadline:
            brigd.breathe()
        d.kill()                                           # asserts that nothing is left
        until(lambda: not any(pid == spawner for pid, _, argv in processes() if b"spawner" in argv), "the spawner ends")
        d.start("--drain-grace=0")


def test_a_score_whose_sandbox_does_not_go_ends_with_a_message(tmp_path_factory, repository):
    top = pathlib.Path(brigd.tempfile.mkdtemp(prefix="brig-bound-", dir="/tmp"))
    top.chmod(0o755)
    patch = top / "p"
    patch.write_text(repository.right_patch)
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "BRIG_HOME": str(top / "home"), "BRIG_URL": "", "API_PORT": "1"}
    p = subprocess.Popen([brigd.BRIG, "score", "--repo", str(repository.path), "--commit", repository.commit, "--patch", str(patch),
                          "--command", "sleep 600.25"], env=env, stdout=subprocess.DEVNULL, stderr=open(top / "said", "wb"))
    spawner = None
    try:
        until(lambda: any(argv[:2] == [b"sleep", b"600.25"] for _, _, argv in processes()), "the command runs")
        spawner = spawners_of(p.pid)[0]
        os.kill(spawner, signal.SIGSTOP)                   # it will confirm nothing
        p.send_signal(signal.SIGTERM)
        status, said = p.wait(60), (top / "said").read_text()   # not a pipe: the spawner holds its other end
        assert status == 2, (status, said)
        assert "was not gone" in said
    finally:
        if p.poll() is None:
            p.kill()
        if spawner:
            os.kill(spawner, signal.SIGCONT)
            until(lambda: not pathlib.Path(f"/proc/{spawner}").exists(), "the spawner ends")
        brigd.shutil.rmtree(top, ignore_errors=True)


def test_the_log_is_turned_over(brig):
    d = brig(BRIG_LOG_MAX="4K", BRIG_LOG_LEVEL="debug")
    log = d.home / "log" / "task_executor.log"
    for _ in range(3):
        d.stop()
        d.start()
    for _ in range(200):
        d.call("POST", "/task/submit", {"repo_url": "file:///nowhere", "base_commit": "0" * 40, "test_command": "true"})
    until(lambda: (d.home / "log" / "task_executor.log.1").exists(), "it becomes the old one")
    for file in log, d.home / "log" / "task_executor.log.1":
        assert file.stat().st_size < 4096 + 2048


def test_an_allowed_range_reaches_the_rules_and_a_wrong_one_stops_the_start(brig, repository):
    d = brig(BRIG_NETWORK_ALLOW="10.98.0.0/16,192.168.77.9/32")
    assert d.result(d.submit(repository.takes(0, network="open")))["outcome"] == "resolved"
    rules = subprocess.run(["nft", "list", "ruleset"], check=True, capture_output=True, text=True).stdout
    ours = rules[rules.index(f"brig_{d.instance}"):]
    assert "10.98.0.0/16" in ours and "192.168.77.9" in ours
    d.stop()
    env = {**d.variables, "BRIG_NETWORK_ALLOW": "10.98.0.1/16"}
    refused = subprocess.run([brigd.BRIG, "serve"], env=env, capture_output=True, text=True, timeout=60)
    assert refused.returncode != 0 and "10.98.0.1/16" in refused.stderr
    d.start()
