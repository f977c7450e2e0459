"""Whatever was accepted ends in exactly one record, whoever dies."""
import concurrent.futures
import os
import pathlib
import signal
import subprocess

from brigd import until

ONE_AT_A_TIME = {"BRIG_QUEUE_RUNNING_MAX": "1"}


def test_queued_and_running_tasks_end_in_one_record_after_kill_9(brig, repository):
    d = brig(**ONE_AT_A_TIME)
    tasks = [d.submit(repository.takes(2)) for _ in range(4)]
    d.until_running(tasks[0])
    d.kill()
    d.start()
    records = [d.result(task) for task in tasks]
    assert [r["status"] for r in records] == ["completed"] * 4
    assert d.query("SELECT count(*) FROM jobs") == [(4,)]
    assert d.query("SELECT count(*) FROM records") == [(4,)]


def test_a_task_that_was_running_twice_is_interrupted_and_the_rest_runs(brig, repository):
    d = brig(**ONE_AT_A_TIME)
    victim = d.submit(repository.takes(30))
    other = d.submit(repository.takes(0))
    for _ in range(2):
        d.until_running(victim)
        d.kill()
        d.start()
    record = d.result(victim)
    assert (record["outcome"], record["status"], record["exit_code"]) == ("infra_error", "failed", -1)
    assert record["error"]["code"] == "interrupted"
    assert d.result(other)["status"] == "completed"


def test_a_daemon_that_dies_leaves_nothing_and_the_neighbour_alone(brig, repository):
    dies, neighbour = brig(**ONE_AT_A_TIME), brig(**ONE_AT_A_TIME)
    theirs = neighbour.until_running(neighbour.submit(repository.takes(3)))
    dies.until_running(dies.submit(repository.takes(60)))
    assert dies.instance != neighbour.instance
    dies.kill()                            # asserts that nothing of it is left
    dies.start("--drain-grace=0")          # and its start sweeps only its own
    assert neighbour.result(theirs)["status"] == "completed"


def test_when_the_spawner_dies_what_ran_is_interrupted_and_the_daemon_ends(brig, repository):
    d = brig(**ONE_AT_A_TIME)
    victim = d.until_running(d.submit(repository.takes(60)))
    queued = d.submit(repository.takes(0))
    os.kill(d.spawner(), signal.SIGKILL)
    assert d.wait() not in (0, None)
    d.start()                              # sweeps what the spawner could not
    record = d.result(victim)
    assert (record["outcome"], record["error"]["code"]) == ("infra_error", "interrupted")
    assert d.result(queued)["status"] == "completed"


def waits_for_the_lock(d):
    """Somebody waits for the lock that a spawner of this home holds: /proc/locks says so by an arrow."""
    inode = f":{(d.home / 'spawner.lock').stat().st_ino} "
    return any("->" in line and inode in line for line in pathlib.Path("/proc/locks").read_text().splitlines())


def test_a_start_waits_until_the_last_spawner_has_removed_what_it_had(brig, repository):
    d = brig("--drain-grace=0")
    d.until_running(d.submit(repository.takes(60)))
    last = d.spawner()
    os.kill(last, signal.SIGSTOP)
    until(lambda: "State:\tT" in pathlib.Path(f"/proc/{last}/status").read_text(), "it stands still")
    before = groups(d)
    d.end(signal.SIGKILL)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        start = pool.submit(d.start, "--drain-grace=0")
        try:
            until(lambda: waits_for_the_lock(d), "the next spawner waits")
            assert groups(d) == before     # and has touched nothing
        finally:
            os.kill(last, signal.SIGCONT)
        start.result()
    assert not before & groups(d)


def groups(d):
    """Control groups of the daemon's sandboxes; a new one of an old name is another."""
    found = set()
    for root in [pathlib.Path("/sys/fs/cgroup"), *pathlib.Path("/sys/fs/cgroup").glob("*/")]:
        for top, inside, _ in os.walk(root):
            if top.endswith(f"/brig-{d.instance}"):
                found |= {(f"{top}/{name}", os.stat(f"{top}/{name}").st_ino) for name in inside}
    return found


def tables():
    return subprocess.run(["nft", "list", "tables"], check=True, capture_output=True, text=True).stdout



def test_the_next_start_removes_all_that_a_killed_spawner_left(brig, repository):
    d = brig(BRIG_QUEUE_RUNNING_MAX="3")
    kinds = [{}, {"network": "open"}, {"limits": {"disk_mb": 1 << 20}}]      # in memory, with a link, on a loop device
    for task in [d.submit(repository.takes(60, **kind)) for kind in kinds]:
        d.until_running(task)
    until(lambda: f"brig_{d.instance}" in tables() and any(what.startswith("link") for what in d.leftovers()), "the network is open")
    until(lambda: any(what.startswith("loop") for what in d.leftovers()), "the disk is there")
    before = groups(d)
    os.kill(d.spawner(), signal.SIGKILL)
    assert d.wait() not in (0, None)
    until(lambda: not any(what.startswith(("loop", "process")) for what in d.leftovers()), "what the kernel clears up by itself")
    assert before & groups(d) and f"brig_{d.instance}" in tables()
    d.variables["BRIG_QUEUE_RUNNING_MAX"] = "1"
    d.start("--drain-grace=0")
    assert not before & groups(d)
    assert f"brig_{d.instance}" not in tables()          # no task has asked for the network yet: they are recorded as interrupted


def test_a_second_start_sweeps_run_directories_without_a_task(brig):
    d = brig()
    d.stop()
    stray = d.home / "runs" / "11111111-1111-4111-8111-111111111111"
    stray.mkdir()
    os.chown(stray, (d.home / "runs").stat().st_uid, (d.home / "runs").stat().st_gid)
    d.start()
    until(lambda: not stray.exists(), "the stray directory goes")
