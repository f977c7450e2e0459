"""Children: sandboxes for the sub-agents of a turn, which go with it."""
import http.client
import sys
import threading

import brigd

sys.path.insert(0, __file__.rsplit("/", 1)[0])

from rlm_client import Host, Session, Turn, error  # noqa: E402


def post_child(turn, tools=(), headers=(), **body):
    return turn.host.call("POST", turn.path + "/children", {"tools": [{"name": t} for t in tools], **body}, headers)


def child_of(turn, tools=(), **body):
    answer = post_child(turn, tools, **body)
    assert answer.status == 201, answer
    session = Session(turn.host, answer.json["child"], answer.json)
    return Turn(session, answer.json["turn"], answer.json["generation"])


def listed(turn):
    return turn.host.call("GET", turn.path + "/children").json["children"]


def seen(host):
    return host.call("GET", "/sessions").json


def test_a_child_answers_what_its_parent_asks(host):
    """As a host does it: the code calls, a child is made, asks in its turn, submits, is deleted; then the call is settled."""
    turn = host.session().turn(["rlm_query"])
    action = turn.execution("print(rlm_query('how many?'))", timeout_s=60)
    request = turn.claim()
    child = child_of(turn, ["look"], outputs=[{"name": "answer", "type": "int"}])
    inner = child.execution("SUBMIT(answer=look(task) + 1)", variables={"task": request["args"][0]}, timeout_s=60)
    child.settle(child.claim(), result=41)
    final = inner.result()["final"]
    assert child.session.delete().json == {"session": child.session.id, "deleted": True}
    assert turn.settle(request, result=final["answer"]).status == 200
    assert action.result()["stdout"] == "42\n"
    assert listed(turn) == [] and seen(host)["slots_used"] == 1


def test_a_child_is_smaller_and_sees_neither_network_nor_workspace(brig):
    host = Host(brig(BRIG_RUNTIME_CHILD_MEMORY="300M", BRIG_RUNTIME_NETWORK="open"))
    turn = host.session().turn()
    turn.execute("open('mine', 'w').write('parent')")
    look = ("import os, socket\nprint(sorted(os.listdir('.')), [n for _, n in socket.if_nameindex()])\n"
            "try: bytearray(500 << 20); print('taken')\nexcept MemoryError: print('refused')")
    child = child_of(turn)
    answer = child.execute(look)
    assert answer["stdout"].startswith("[] ['lo']\n") or answer["error_category"] == "memory_limit", answer
    assert "taken" not in answer["stdout"]
    answer = turn.execute(look)
    assert answer["stdout"].startswith("['mine'] ") and "taken" in answer["stdout"]


def test_four_in_a_turn_and_no_more(host):
    turn = host.session().turn()
    for _ in range(2):
        child_of(turn).session.delete()
    children = [child_of(turn) for _ in range(2)]
    assert error(post_child(turn)) == (429, "too_many_children")
    assert {c["child"] for c in listed(turn)} == {c.session.id for c in children} and {c["state"] for c in listed(turn)} == {"ready"}
    assert [c.execute("print(1)")["stdout"] for c in children] == ["1\n", "1\n"]
    turn.end()
    assert child_of(turn.session.turn()).execute("print(2)")["stdout"] == "2\n"        # the next turn has its own


def test_a_child_has_none_of_its_own_and_one_turn(host):
    turn = host.session().turn()
    child = child_of(turn)
    assert error(post_child(child)) == (409, "child_depth")
    assert error(child.session.begin()) == (409, "turn_active")
    assert child.end().status == 200
    assert error(child.session.begin()) == (409, "turn_ended")
    brigd.until(lambda: seen(host)["slots_used"] == 1, "an ended child keeps no sandbox")


def test_a_child_without_a_slot_was_not_started_and_is_not_counted(brig):
    host = Host(brig(BRIG_RUNTIME_MAX_ACTIVE_LEASES="3", BRIG_RUNTIME_MAX_CHILDREN="1"))
    turn, other = host.session().turn(), host.session().turn()
    assert error(post_child(turn, acquire_timeout_s=0.2)) == (503, "admission_timeout")
    brigd.until(lambda: not listed(turn), "nothing of it is left")
    assert seen(host)["waiting"] == 0 and seen(host)["slots_used"] == 2
    other.session.delete()
    child_of(turn)
    assert error(post_child(turn)) == (429, "too_many_children")


def test_an_idle_root_makes_room_for_a_child(brig):
    host = Host(brig(BRIG_RUNTIME_MAX_ACTIVE_LEASES="3"))
    turn, other = host.session().turn(), host.session().turn()
    other.end()
    assert child_of(turn).execute("print(1)")["stdout"] == "1\n"
    assert other.session.look()["root"] is None


def test_what_ends_the_turn_ends_its_children(host):
    for end in (lambda t: t.end(), lambda t: t.cancel(), lambda t: t.session.delete()):
        turn = host.session().turn()
        child = child_of(turn, ["wait"])
        action = child.execution("import os\nif os.fork() == 0: os.execvp('sleep', ['sleep', '4545'])\nwait()", timeout_s=60)
        request = child.claim()
        assert end(turn).status == 200
        assert not [p for p in brigd.processes() if b"4545" in p[2]]        # confirmed before it was said
        assert action.result()["error_category"] == "cancelled"
        assert error(child.settle(request, result=1)) == (404, "not_found")
        assert seen(host)["roots"] <= 1
        turn.session.delete()
        assert seen(host)["roots"] == 0


def test_a_turn_that_ends_by_itself_leaves_no_child(host):
    turn = host.session().turn()
    child_of(turn)
    assert turn.execute("import os; os._exit(3)")["turn_over"] is True
    brigd.until(lambda: seen(host)["roots"] <= 1, "the child is gone")
    assert error(post_child(turn)) == (409, "turn_ended")
    assert turn.session.turn().execute("print(1)")["stdout"] == "1\n"


def test_a_fence_of_a_child_leaves_its_parent_alone(host):
    turn = host.session().turn()
    child = child_of(turn)
    assert child.cancel().json["generation"] > turn.generation
    assert error(child.post_execute("1")) == (409, "stale_generation")
    assert turn.execute("print(1)")["stdout"] == "1\n" and seen(host)["slots_used"] == 1
    assert child.session.delete().status == 200 and listed(turn) == []


def test_a_retried_request_gets_the_same_child(host):
    turn = host.session().turn()
    key = {"Idempotency-Key": "once"}
    first, again = (post_child(turn, ["a"], key) for _ in range(2))
    assert first.status == again.status == 201 and first.json == again.json
    assert error(post_child(turn, ["b"], key)) == (409, "idempotency_conflict")
    assert len(listed(turn)) == 1


def test_who_goes_away_while_a_child_is_made_leaves_none(brig):
    daemon = brig(BRIG_RUNTIME_MAX_ACTIVE_LEASES="3")
    host = Host(daemon)
    turn, _ = host.session().turn(), host.session().turn()
    c = http.client.HTTPConnection(daemon.host, daemon.port, timeout=60)
    c.request("POST", "/v1/rlm" + turn.path + "/children", b"{}")
    brigd.until(lambda: seen(host)["waiting"] == 1, "it waits")
    c.close()
    brigd.until(lambda: not listed(turn) and seen(host)["waiting"] == 0, "nobody waits any more")


def test_bad_requests_make_no_child(host):
    turn = host.session().turn()
    assert error(post_child(turn, ["SUBMIT"])) == (400, "invalid")
    assert error(host.call("POST", turn.path + "/children", b"[")) == (400, "invalid")
    brigd.until(lambda: not listed(turn), "nothing of it is left")
    assert seen(host)["slots_used"] == 1
    for _ in range(4):
        child_of(turn).session.delete()


def test_four_children_at_once(host):
    turn = host.session().turn()
    answers = []

    def one(i):
        child = child_of(turn)
        answers.append(child.execute(f"print({i})")["stdout"])
        assert child.session.delete().status == 200

    threads = [threading.Thread(target=one, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    assert sorted(answers) == ["0\n", "1\n", "2\n", "3\n"]


def test_children_go_before_roots_when_the_daemon_stops(brig):
    daemon = brig()
    host = Host(daemon)
    turn = host.session().turn(["t"])
    child = child_of(turn, ["t"])
    actions = [x.execution("t()", timeout_s=60) for x in (turn, child)]
    for x in (turn, child):
        x.claim()
    daemon.stop()                                               # nothing is left: it looks
    for action in actions:
        assert action.result()["error_category"] == "cancelled"


def test_children_do_not_outlive_a_daemon_that_was_killed(brig):
    daemon = brig()
    host = Host(daemon)
    turn = host.session().turn()
    child = child_of(turn)
    daemon.kill()
    daemon.start()
    assert error(child.post_execute("1")) == (404, "not_found")
    assert error(turn.post_execute("1")) == (409, "stale_generation")
    assert len(seen(host)["sessions"]) == 1
    assert child_of(turn.session.turn()).execute("print(1)")["stdout"] == "1\n"
