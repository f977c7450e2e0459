"""What is said to be gone is gone; what cannot be confirmed keeps its slot and is seen; stops and restarts in every state."""
import contextlib
import http.client
import os
import re
import signal
import sys
import threading

import brigd
import pytest

sys.path.insert(0, __file__.rsplit("/", 1)[0])

from rlm_client import Host, error  # noqa: E402


def seen(host):
    return host.call("GET", "/sessions").json


def metric(daemon, name):
    return float(re.search(rf"^{name} (\S+)$", daemon.call("GET", "/metrics").body.decode(), re.M)[1])


@contextlib.contextmanager
def nothing_is_confirmed(daemon):
    """The spawner stands still: sandboxes neither end nor begin."""
    spawner = daemon.spawner()
    os.kill(spawner, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(spawner, signal.SIGCONT)


class Call:
    """A call that waits for what the test brings about."""

    def __init__(self, f, *arguments, **more):
        self.answers = []
        self.thread = threading.Thread(target=self.run, args=(f, arguments, more), daemon=True)
        self.thread.start()

    def run(self, f, arguments, more):
        with contextlib.suppress(OSError, http.client.HTTPException):      # the daemon may be killed meanwhile
            self.answers.append(f(*arguments, **more))

    @property
    def waits(self):
        return self.thread.is_alive()

    def answer(self):
        self.thread.join(120)
        return self.answers[0]


def test_a_delete_is_answered_when_it_has_happened_and_the_slot_is_held_until_then(brig):
    daemon = brig(BRIG_RUNTIME_MAX_ACTIVE_LEASES="2", BRIG_RUNTIME_WARM_ROOTS="0")
    host = Host(daemon)
    session, other = host.session(), host.session()
    session.turn()
    with nothing_is_confirmed(daemon):
        deleted = Call(session.delete)
        brigd.until(lambda: seen(host)["ending"] == 1, "it is being deleted")
        assert error(other.begin(acquire_timeout_s=0.3)) == (503, "admission_timeout")
        assert error(host.call("GET", session.path)) == (404, "not_found")
        assert (seen(host)["slots_used"], seen(host)["roots"], seen(host)["ending"]) == (1, 1, 1)
        assert [metric(daemon, f"brig_rlm_{n}") for n in ("slots_used", "sandboxes", "sandboxes_ending", "waiting")] == [1, 1, 1, 0]
        again = Call(session.delete)                            # who asks again waits too
        assert deleted.waits
    assert deleted.answer().json == {"session": session.id, "deleted": True}
    assert again.answer().status in (200, 404)
    assert (seen(host)["slots_used"], seen(host)["roots"], seen(host)["ending"]) == (0, 0, 0)
    assert other.turn().execute("print(1)")["stdout"] == "1\n"


def test_a_fence_takes_authority_away_before_anything_is_confirmed(brig):
    daemon = brig(BRIG_RUNTIME_WARM_ROOTS="0")
    host = Host(daemon)
    turn = host.session().turn(["t"])
    action = turn.execution("t()", timeout_s=60)
    request = turn.claim()
    with nothing_is_confirmed(daemon):
        fenced = Call(turn.cancel)
        assert action.result()["error_category"] == "cancelled"         # who waited hears at once
        assert error(turn.settle(request, result=1)) == (409, "stale_generation")
        assert error(turn.post_execute("1")) == (409, "stale_generation")
        assert error(host.call("GET", turn.path + "/pending")) == (409, "stale_generation")
        assert error(turn.session.begin(acquire_timeout_s=0.3)) == (503, "admission_timeout")      # the old root blocks its replacement
        assert turn.session.look()["generation"] == turn.generation + 1
        assert fenced.waits and seen(host)["ending"] == 1
    assert fenced.answer().json["generation"] == turn.generation + 1
    assert seen(host)["slots_used"] == 0
    assert turn.session.turn().execute("print(1)")["stdout"] == "1\n"


def test_a_turn_is_over_when_its_processes_are_confirmed_dead(brig):
    daemon = brig(BRIG_RUNTIME_WARM_ROOTS="0")
    turn = Host(daemon).session().turn()
    with nothing_is_confirmed(daemon):
        ended = Call(turn.end)
        brigd.until(lambda: turn.session.look()["turn"] is None, "it has no authority any more")
        began = Call(turn.session.begin, acquire_timeout_s=60)
        assert error(turn.post_execute("1")) == (409, "turn_ended") and ended.waits and began.waits
    assert ended.answer().json == {"turn": turn.id, "ended": True}
    assert began.answer().status == 201


def test_a_child_that_cannot_be_deleted_holds_up_its_parents_end(brig):
    daemon = brig(BRIG_RUNTIME_WARM_ROOTS="0")
    host = Host(daemon)
    turn = host.session().turn()
    child = host.call("POST", turn.path + "/children", {}).json["child"]
    with nothing_is_confirmed(daemon):
        ended = Call(turn.end)
        brigd.until(lambda: seen(host)["ending"] == 1, "the child is being deleted")
        assert turn.session.look()["children"] == 1
        assert error(host.call("GET", f"/sessions/{child}")) == (404, "not_found")
        assert ended.waits
    assert ended.answer().status == 200
    assert turn.session.look()["children"] == 0 and seen(host)["slots_used"] <= 1


def test_a_sandbox_that_comes_after_its_session_is_gone_is_deleted(brig):
    daemon = brig(BRIG_RUNTIME_WARM_ROOTS="0")
    host = Host(daemon)
    session = host.session()
    with nothing_is_confirmed(daemon):
        began = Call(session.begin)
        brigd.until(lambda: session.look()["root"] == "starting", "it is being made")
        deleted = Call(session.delete)
        assert error(began.answer()) == (409, "cancelled")
    assert deleted.answer().status == 200
    assert (seen(host)["slots_used"], seen(host)["roots"]) == (0, 0)


def test_while_it_stops_new_work_is_refused_and_it_is_over_when_nothing_is_left(brig):
    daemon = brig(BRIG_RUNTIME_WARM_ROOTS="0")
    host = Host(daemon)
    idle = host.session()
    turn = host.session().turn(["t"])
    action = turn.execution("t()", timeout_s=60)
    turn.claim()
    with nothing_is_confirmed(daemon):
        daemon.process.send_signal(signal.SIGTERM)
        assert action.result()["error_category"] == "cancelled"
        assert error(host.call("POST", "/sessions", {})) == (503, "draining")
        assert error(idle.begin()) == (503, "draining")
        assert daemon.call("GET", "/readyz").status == 503
        assert daemon.process.poll() is None and seen(host)["roots"] == 1
    assert daemon.wait() == 0
    daemon.assert_nothing_left()


def test_while_it_stops_roots_wait_for_their_children(brig):
    daemon = brig(BRIG_RUNTIME_WARM_ROOTS="0")
    host = Host(daemon)
    turn = host.session().turn()
    assert host.call("POST", turn.path + "/children", {}).status == 201
    host.session().turn().end()                                 # an idle root: it waits, too
    with nothing_is_confirmed(daemon):
        daemon.process.send_signal(signal.SIGTERM)
        brigd.until(lambda: seen(host)["ending"] > 0, "something ends")
        assert (seen(host)["roots"], seen(host)["ending"]) == (3, 1)
    assert daemon.wait() == 0
    daemon.assert_nothing_left()


# ---- a restart in every state ---------------------------------------------------------------------------------------------------------------

def no_turn(host, session):
    pass


def waiting(host, session):
    """Behind the one that has the slot."""
    first = host.session()
    first.turn()
    Call(session.begin, acquire_timeout_s=60)
    brigd.until(lambda: seen(host)["waiting"] == 1, "it waits")


def starting(host, session):
    Call(session.begin)
    brigd.until(lambda: session.look()["turn"], "there is a turn")


def executing(host, session):
    turn = session.turn(["t"])
    Call(turn.post_execute, "import os\nif os.fork() == 0: os.execvp('sleep', ['sleep', '4646'])\nt()", timeout_s=60)
    turn.claim()
    return turn


def with_an_idle_root(host, session):
    turn = session.turn()
    turn.end()
    return turn


def fenced(host, session):
    turn = session.turn()
    assert turn.cancel().json["generation"] > turn.generation
    return turn


@pytest.mark.parametrize("end", ["kill", "stop"])
@pytest.mark.parametrize("state", [no_turn, waiting, starting, executing, with_an_idle_root, fenced])
def test_a_restart_in_every_state(brig, state, end):
    """Nothing of it is left (kill and stop look), sessions are there with a higher generation, older turns are stale, and it goes on."""
    daemon = brig(BRIG_RUNTIME_MAX_ACTIVE_LEASES="2", BRIG_RUNTIME_WARM_ROOTS="0")
    host = Host(daemon)
    session = host.session()
    turn = state(host, session)
    before = {s["session"]: s["generation"] for s in seen(host)["sessions"]}
    getattr(daemon, end)()
    daemon.start()
    after = {s["session"]: s["generation"] for s in seen(host)["sessions"]}
    assert before.keys() == after.keys() and all(after[s] > before[s] for s in before)
    assert (seen(host)["slots_used"], seen(host)["roots"], seen(host)["waiting"]) == (0, 0, 0)
    if turn:
        assert error(turn.post_execute("1")) == (409, "stale_generation")
    fresh = session.turn()
    assert fresh.generation == after[session.id] and fresh.execute("print(1)")["stdout"] == "1\n"


def test_a_session_that_was_being_deleted_is_gone_or_there_after_a_kill_and_never_half(brig):
    daemon = brig(BRIG_RUNTIME_WARM_ROOTS="0")
    host = Host(daemon)
    session, kept = host.session(), host.session()
    session.turn()
    with nothing_is_confirmed(daemon):
        Call(session.delete)
        brigd.until(lambda: seen(host)["ending"] == 1, "it is being deleted")
        daemon.process.send_signal(signal.SIGKILL)
        daemon.wait()
    daemon.assert_nothing_left()
    daemon.start()
    there = {s["session"] for s in seen(host)["sessions"]}
    assert kept.id in there
    if session.id in there:                                     # it was never said to be deleted
        assert session.turn().execute("print(1)")["stdout"] == "1\n"
        assert session.delete().status == 200
