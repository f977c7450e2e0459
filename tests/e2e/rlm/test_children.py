"""Children: sandboxes for the sub-agents of a turn, which go with it."""
import hashlib
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


# ---- files ----------------------------------------------------------------------------------------------------------------------------------

def copied(turn, child, way, paths):
    return turn.host.call("POST", f"{turn.path}/children/{child.session.id}/{way}", {"paths": paths})


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def test_inputs_go_in_and_results_come_out_with_their_hashes(host):
    turn = host.session().turn()
    turn.execute("import os\nos.makedirs('deep/er')\nopen('a.txt', 'w').write('one')\nopen('deep/er/b.bin', 'wb').write(bytes(range(256)) * 8192)\nopen('empty', 'w').close()")
    child = child_of(turn)
    answer = copied(turn, child, "inputs", ["a.txt", "deep/er/b.bin", "empty"])
    assert answer.status == 200 and answer.json["files"] == [
        {"path": "a.txt", "to": "a.txt", "size": 3, "sha256": sha256(b"one")},
        {"path": "deep/er/b.bin", "to": "deep/er/b.bin", "size": 2 << 20, "sha256": sha256(bytes(range(256)) * 8192)},
        {"path": "empty", "to": "empty", "size": 0, "sha256": sha256(b"")}], answer
    said = child.execute("import hashlib\nprint(open('a.txt').read(), hashlib.sha256(open('deep/er/b.bin', 'rb').read()).hexdigest())\n"
                         "_ = open('a.txt', 'a').write(' two'); os = __import__('os'); os.makedirs('out/x'); _ = open('out/x/r.json', 'w').write('{}')")
    assert said["stdout"] == f"one {sha256(bytes(range(256)) * 8192)}\n" and said["error"] is None
    to = f"children/{child.session.id}/"
    assert copied(turn, child, "results", ["out/x/r.json", "a.txt"]).json["files"] == [
        {"path": "out/x/r.json", "to": to + "out/x/r.json", "size": 2, "sha256": sha256(b"{}")},
        {"path": "a.txt", "to": to + "a.txt", "size": 7, "sha256": sha256(b"one two")}]
    child.session.delete()
    answer = turn.execute(f"print(open('{to}out/x/r.json').read(), open('{to}a.txt').read(), open('a.txt').read())\nos.remove('{to}a.txt')")
    assert answer["stdout"] == "{} one two one\n" and answer["error"] is None        # the copies are the turn's own


def test_links_and_what_is_no_file_are_refused(host):
    turn = host.session().turn()
    turn.execute("import os\nos.mkdir('d'); open('d/f', 'w').write('x')\nos.symlink('d/f', 'link'); os.symlink('d', 'dirlink'); os.symlink('/etc/passwd', 'out'); os.mkfifo('fifo')")
    child = child_of(turn)
    for path, wanted in (("link", (400, "link")), ("dirlink/f", (400, "link")), ("out", (400, "link")), ("d", (400, "not_a_file")), ("fifo", (400, "not_a_file")),
                         ("d/f/x", (400, "not_a_file")), ("absent", (404, "file_not_found"))):
        assert error(copied(turn, child, "inputs", [path])) == wanted, path
    for path in ("../etc/passwd", "/etc/passwd", "a/../b", "a\\b", "", ".", "a//b"):
        assert error(copied(turn, child, "inputs", [path])) == (400, "invalid"), path
    child.execute("import os\nos.symlink('/', 'root'); open('r', 'w').write('r')")
    assert error(copied(turn, child, "results", ["root/etc/passwd"])) == (400, "link")
    turn.execute("os.mkdir('children'); os.symlink('/tmp', 'children/" + child.session.id + "')")
    assert error(copied(turn, child, "results", ["r"])) == (400, "link")        # nor is anything written through one
    assert turn.execute("print(os.path.exists('/tmp/r'))")["stdout"] == "False\n"


def test_files_are_counted_and_weighed(host):
    turn = host.session().turn()
    turn.execute("import os\nfor n, m in (('most', 16), ('more', 16)): open(n, 'wb').truncate((m << 20) + (n == 'more'))\nopen('big', 'wb').truncate((64 << 20) + 1)\nopen('one', 'w').write('1')")
    child = child_of(turn)
    assert error(copied(turn, child, "inputs", ["big"])) == (413, "too_large")
    assert error(copied(turn, child, "inputs", [])) == (400, "invalid") and error(copied(turn, child, "inputs", ["one"] * 257)) == (400, "invalid")
    assert copied(turn, child, "inputs", ["most", "more", "one"]).status == 200
    assert copied(turn, child, "results", ["most"]).json["files"][0]["size"] == 16 << 20
    assert error(copied(turn, child, "results", ["more"])) == (413, "too_large")
    assert error(copied(turn, child, "results", ["most", "one"])) == (413, "too_large")
    assert error(copied(turn, child, "results", ["one"] * 17)) == (400, "invalid")
    assert len(copied(turn, child, "results", ["one"] * 16).json["files"]) == 16


def test_files_of_children_that_are_not_there(host):
    turn = host.session().turn()
    turn.execute("open('one', 'w').write('1')")
    child, other = child_of(turn), host.session().turn()
    assert error(copied(other, child, "inputs", ["one"])) == (404, "not_found")        # somebody else's
    child.end()
    assert error(copied(turn, child, "inputs", ["one"])) == (409, "turn_ended")
    child.session.delete()
    assert error(copied(turn, child, "results", ["one"])) == (404, "not_found")


def test_a_copy_ends_with_its_child(host):
    """Whatever moment it is: an answer, and nothing left."""
    turn = host.session().turn()
    turn.execute("open('big', 'wb').truncate(60 << 20)")
    child = child_of(turn)
    answers = []
    copy = threading.Thread(target=lambda: answers.append(copied(turn, child, "inputs", ["big"] * 1)))
    copy.start()
    assert child.session.delete().status == 200
    copy.join(120)
    assert answers[0].status in (200, 404) or error(answers[0]) == (409, "turn_ended"), answers
    assert turn.execute("print(1)")["stdout"] == "1\n" and seen(host)["slots_used"] == 1
