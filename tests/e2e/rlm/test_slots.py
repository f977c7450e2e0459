"""Who gets a sandbox, who waits, and what is left of those that go."""
import http.client
import sys
import threading

import brigd

sys.path.insert(0, __file__.rsplit("/", 1)[0])

from rlm_client import Host, error  # noqa: E402


def one_root(brig, **more):
    """Two slots: one root, and the one that serves host I/O alone."""
    return Host(brig(BRIG_RUNTIME_MAX_ACTIVE_LEASES="2", **more))


def seen(host):
    return host.call("GET", "/sessions").json


def test_a_wait_that_ends_takes_nothing(brig):
    host = one_root(brig)
    turn = host.session().turn()
    other = host.session()
    assert error(other.begin(acquire_timeout_s=0.2)) == (503, "admission_timeout")
    assert seen(host)["waiting"] == 0 and seen(host)["slots_used"] == 1
    assert other.look()["turn"] is None
    turn.session.delete()
    assert other.turn().execute("print(1)")["stdout"] == "1\n"


def test_an_idle_root_is_stopped_for_who_waits(brig):
    host = one_root(brig)
    first, second = host.session(), host.session()
    first.turn().end()
    assert first.look()["root"] == "ready"
    turn = second.turn()                                       # at once, although the first root has 300 s
    assert first.look()["root"] is None
    turn.end()
    assert first.turn().execute("print(1)")["stdout"] == "1\n"


def test_a_turn_waits_for_its_slot(brig):
    host = one_root(brig)
    turn = host.session().turn()
    answers = []
    waiter = threading.Thread(target=lambda: answers.append(host.session().begin(acquire_timeout_s=60)))
    waiter.start()
    brigd.until(lambda: seen(host)["waiting"] == 1, "somebody waits")
    turn.end()
    waiter.join(60)
    assert answers[0].status == 201


def test_a_waiter_that_goes_away_gives_its_place_back(brig):
    daemon = brig(BRIG_RUNTIME_MAX_ACTIVE_LEASES="2")
    host = Host(daemon)
    turn = host.session().turn()
    other = host.session()
    c = http.client.HTTPConnection(daemon.host, daemon.port, timeout=60)
    c.request("POST", "/v1/rlm" + other.path + "/turns", b'{"acquire_timeout_s": 60}')
    brigd.until(lambda: seen(host)["waiting"] == 1, "somebody waits")
    c.close()
    brigd.until(lambda: seen(host)["waiting"] == 0, "nobody waits any more")
    turn.session.delete()
    assert other.turn().execute("print(1)")["stdout"] == "1\n"


def test_a_root_without_a_turn_is_stopped(brig):
    host = one_root(brig, BRIG_RUNTIME_IDLE_SECONDS="1")
    session = host.session()
    turn = session.turn()
    turn.execute("open('/tmp/mark', 'w').close()")
    turn.end()
    brigd.until(lambda: session.look()["root"] is None and seen(host)["slots_used"] == 0, "its root is stopped")
    assert session.turn().execute("import os; print(os.path.exists('/tmp/mark'))")["stdout"] == "False\n"


def test_more_slots_than_the_seed_need_the_flag(brig):
    daemon = brig(start=False, BRIG_RUNTIME_MAX_ACTIVE_LEASES="9")
    try:
        daemon.start()
        raise SystemError("it started")
    except AssertionError:
        assert "--max-active-leases" in daemon.stderr()
    del daemon.variables["BRIG_RUNTIME_MAX_ACTIVE_LEASES"]
    daemon.start("--max-active-leases", "9")
    assert seen(Host(daemon))["slots"] == 9


def test_a_fence_ends_everything_of_a_turn(brig):
    daemon = brig()
    host = Host(daemon)
    session = host.session()
    turn = session.turn()
    turn.execute("import os\nfor i in range(5):\n  if os.fork() == 0: os.execvp('sleep', ['sleep', '4343'])")
    turn.cancel()
    assert not [p for p in brigd.processes() if b"4343" in p[2]]
    assert seen(host)["slots_used"] == 0 and seen(host)["roots"] == 0


def test_a_stop_of_the_daemon_leaves_nothing(brig):
    daemon = brig()
    host = Host(daemon)
    turn = host.session().turn(["t"])
    action = turn.execution("t()")
    turn.claim()
    daemon.stop()
    action.thread.join(60)
    assert action.answer.json["error_category"] == "cancelled"


def test_sandboxes_are_kept_ready_from_the_first_session_on_and_hold_no_slot(brig):
    host = Host(brig(BRIG_RUNTIME_MAX_ACTIVE_LEASES="2", BRIG_RUNTIME_WARM_ROOTS="2"))
    assert seen(host)["warm"] == 0
    session = host.session()
    brigd.until(lambda: seen(host)["warm"] == 2, "two are ready")
    assert (seen(host)["slots_used"], seen(host)["roots"]) == (0, 0)
    turn = session.turn()
    assert (seen(host)["slots_used"], seen(host)["roots"]) == (1, 1)
    assert turn.execute("import os\nprint(os.getcwd(), os.environ['HOME'], os.getuid(), os.stat('.').st_uid)")["stdout"] == "/workspace /workspace 1000 1000\n"
    brigd.until(lambda: seen(host)["warm"] == 2, "the one that was taken is replaced")
    assert session.delete().status == 200
    assert (seen(host)["slots_used"], seen(host)["roots"]) == (0, 0)


def test_what_stands_ready_goes_when_nobody_wants_it(brig):
    host = Host(brig(BRIG_RUNTIME_IDLE_SECONDS="1", BRIG_RUNTIME_WARM_ROOTS="1"))
    session = host.session()
    brigd.until(lambda: seen(host)["warm"] == 1, "one is ready")
    brigd.until(lambda: seen(host)["warm"] == 0, "it is gone again")
    assert session.turn().execute("print(1)")["stdout"] == "1\n"


def test_without_warm_ones_roots_are_made_from_nothing(brig):
    host = Host(brig(BRIG_RUNTIME_WARM_ROOTS="0"))
    turn = host.session().turn(["add"])
    execution = turn.execution("print(add(1))")
    assert turn.settle(turn.claim(), result=3).status == 200
    assert execution.result()["stdout"] == "3\n"
    assert seen(host)["warm"] == 0


def test_no_root_finds_what_another_left(brig):
    """Whoever is served from the pool gets a sandbox that nobody has used."""
    host = Host(brig(BRIG_RUNTIME_WARM_ROOTS="1"))
    hosts = []
    for i in range(4):
        session = host.session()
        brigd.until(lambda: seen(host)["warm"] == 1, "one is ready")
        answer = session.turn().execute(
            "import os\nprint(os.listdir('.'), os.path.exists('/tmp/left'), os.path.exists('/dev/shm/left'))\n"
            "for p in 'left', '/tmp/left', '/dev/shm/left':\n    open(p, 'w').close()\n")
        assert answer["stdout"] == "[] False False\n", answer
        hosts.append(session)
    for session in hosts:
        session.delete()
