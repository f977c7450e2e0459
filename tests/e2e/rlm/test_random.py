"""Hosts that vanish at random or do anything in any order, and many sessions at a time. BRIG_SEED repeats a run; the seed is printed."""
import contextlib
import json
import os
import random
import socket
import sys
import threading

import pytest

import brigd

sys.path.insert(0, __file__.rsplit("/", 1)[0])

from rlm_client import Host, error  # noqa: E402

WORKERS, CALLS = 6, 8
TYPED = {"ok", "ToolError", "TimeoutError"}

# What the code knows of its calls: each ends once, with its own answer or with an error that has a type.
CODE = """
import collections, threading
ends = collections.defaultdict(list)
def work(i):
    for k in range(CALLS):
        try:
            ends[i, k].append('ok' if t(i, k) == ['true answer', i, k] else 'forged')
        except Exception as e:
            ends[i, k].append(type(e).__name__)
threads = [threading.Thread(target=work, args=(i,)) for i in range(WORKERS)]
for x in threads: x.start()
for x in threads: x.join()
"""
COUNT = """
for x in threads: x.join()
print(sorted((list(key), words) for key, words in ends.items()))
"""


class Cut(Exception):
    """The connection was ours to cut."""


class RandomHost:
    """Polls, settles and executes, and breaks off in the middle of any of it."""

    def __init__(self, daemon, turn, seed):
        self.daemon, self.turn, self.chance = daemon, turn, random.Random(seed)
        self.issued, self.settled, self.lost = {}, {}, set()
        self.lock, self.stop, self.cuts, self.wrong = threading.Lock(), threading.Event(), 0, []
        self.cutting = True

    def draw(self):
        with self.lock:
            return self.chance.random() if self.cutting else 1.0

    @staticmethod
    def request(method, path, body):
        body = b"" if body is None else json.dumps(body).encode()
        return f"{method} /v1/rlm{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body

    def connect(self):
        return socket.create_connection((self.daemon.host, self.daemon.port), timeout=120)

    @contextlib.contextmanager
    def sent(self, method, path, body):
        """A request whose answer nobody waits for: it is cut at the end of the block."""
        with self.connect() as s:
            s.sendall(self.request(method, path, body))
            yield

    def ask(self, method, path, body=None, at=1.0):
        """One request. `at` below 1: where it is cut; below 0.5 within what is sent, else within what is read."""
        request = self.request(method, path, body)
        with self.connect() as s:
            if at < 0.5:
                s.sendall(request[:int(len(request) * 2 * at)])
                self.cuts += 1
                raise Cut
            s.sendall(request)
            if at < 1:
                if at > 0.75:
                    s.recv(int(100 * at))
                self.cuts += 1
                raise Cut
            answer = b""
            while piece := s.recv(1 << 16):
                answer += piece
        head, _, rest = answer.partition(b"\r\n\r\n")
        return brigd.Answer(int(head.split()[1]), {}, rest)

    def settle(self, request):
        path, lease = self.turn.path + "/result", request["lease"]
        good = {"id": request["id"], "lease": lease, "result": ["true answer", *request["args"]]}
        if self.draw() < 0.2:
            forged = self.ask("POST", path, {**good, "lease": lease[::-1] + "0", "result": "forged"})
            if forged.status not in (409, 404):
                self.wrong.append(forged)
        tries = 0
        while True:
            tries += 1
            try:
                answer = self.ask("POST", path, good, at=self.draw() / 0.6)
            except Cut:
                continue                                # was it taken? Ask again: that is what the words are for
            if answer.status == 200:
                with self.lock:
                    self.settled[request["id"]] = self.settled.get(request["id"], 0) + 1
            elif error(answer)[1] not in ("duplicate_call", "duplicate_result", "turn_ended") or (error(answer)[1] == "duplicate_result" and tries == 1):
                self.wrong.append(answer)
            return

    def serve(self):
        while not self.stop.is_set():
            try:
                answer = self.ask("GET", self.turn.path + "/pending?wait=0.3", at=self.draw() / 0.4)
            except Cut:
                continue
            if answer.status != 200:
                self.wrong.append(answer)
                return
            for request in answer.json["requests"]:
                with self.lock:
                    self.issued[request["id"]] = self.issued.get(request["id"], 0) + 1
                self.settle(request)

    @contextlib.contextmanager
    def serving(self, n=3):
        threads = [threading.Thread(target=self.serve) for _ in range(n)]
        for t in threads:
            t.start()
        try:
            yield
        finally:
            self.stop.set()
            for t in threads:
                t.join(120)

    def until_idle(self):
        """No action executes, whoever asked for it. A poll would claim calls: the session's own word it is that an action refused is executing."""
        def idle():
            answer = self.turn.post_execute("pass")
            return answer if answer.status == 200 else None
        return brigd.until(idle, "the action ends")


def seeds():
    given = os.environ.get("BRIG_SEED")
    return [int(given)] if given else [11, 12]


@pytest.mark.parametrize("seed", seeds())
def test_whatever_is_cut_no_call_is_lost_doubled_or_forged(host, rlm_daemon, seed):
    print("BRIG_SEED", seed)
    turn = host.session().turn(["t"])
    r = RandomHost(rlm_daemon, turn, seed)
    code = CODE.replace("WORKERS", str(WORKERS)).replace("CALLS", str(CALLS))
    with r.serving():
        with r.sent("POST", turn.path + "/execute", {"code": code, "timeout_s": 2}):
            brigd.until(lambda: r.issued or r.wrong, "the action calls")
            assert not r.wrong
        r.until_idle()                                          # its answer is nobody's; it went on
        r.cutting = False                                       # what is left is called and answered in peace
        answer = turn.execute(COUNT, timeout_s=60)
    assert answer["error"] is None, answer
    ends = dict((tuple(key), words) for key, words in eval(answer["stdout"]))  # pylint: disable=eval-used
    assert not r.wrong
    assert set(ends) == {(i, k) for i in range(WORKERS) for k in range(CALLS)}      # none is lost
    assert all(len(words) == 1 for words in ends.values())                          # none has ended twice
    assert {words[0] for words in ends.values()} <= TYPED, ends                     # none was forged
    assert r.issued and set(r.issued.values()) == {1} and set(r.settled.values()) <= {1}
    assert r.cuts > 0 and [w for w in ends.values() if w == ["ok"]]
    turn.end()
    assert turn.session.turn().execute("print('usable')")["stdout"] == "usable\n"


SESSIONS, ROUNDS = 64, 3


def test_sixty_four_sessions_call_their_tools_at_once(brig):
    """One host's thread for each. Memory is looked at from round to round: what one leaves behind would be there sixty-four times."""
    daemon = brig(start=False)
    daemon.start("--max-active-leases", str(SESSIONS + 1))
    host = Host(daemon)
    failures, memory, together = [], [], threading.Barrier(SESSIONS + 1, timeout=240)

    def one(i):
        turn = host.session().turn(["t"], acquire_timeout_s=200)
        for n in range(ROUNDS):
            together.wait()
            action = turn.execution(f"print([t({i}, k) for k in range(4)])", timeout_s=120)
            ids = []
            while len(ids) < 4:
                for request in turn.pending()["requests"]:
                    ids.append(request["id"])
                    answer = turn.settle(request, result=[n, *request["args"]])
                    assert answer.status == 200, answer
            assert action.result()["stdout"] == f"{[[n, i, k] for k in range(4)]}\n" and len(set(ids)) == 4
            together.wait()
        assert turn.end().status == 200

    def guarded(i):
        try:
            one(i)
        except Exception as e:  # pylint: disable=broad-except
            failures.append(repr(e))
            together.abort()

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(SESSIONS)]
    for t in threads:
        t.start()
    with contextlib.suppress(threading.BrokenBarrierError):
        for _ in range(ROUNDS):
            together.wait()
            together.wait()
            memory.append(daemon.usage())
    for t in threads:
        t.join(240)
    assert not failures, failures[:3]
    seen = host.call("GET", "/sessions").json
    assert (len(seen["sessions"]), seen["slots"]) == (SESSIONS, SESSIONS + 1) and all(s["turn"] is None for s in seen["sessions"])
    assert memory[-1] - memory[0] < 8 << 20, memory


STEPS = 60


class Life:
    """One host that does anything to its session in any order, and cuts some of it. Every answer must be one that the page names."""

    KNOWN = {"turn_active", "turn_ended", "executing", "not_ready", "cancelled", "stale_generation", "not_found", "admission_timeout", "too_many_children", "child_depth"}

    def __init__(self, daemon, seed):
        self.daemon, self.chance, self.wrong, self.done = daemon, random.Random(seed), [], 0
        self.host = RandomHost(daemon, None, seed)
        self.host.cutting = False
        self.session, self.turns = None, []

    def ask(self, method, path, body=None):
        at = self.chance.random() / 0.15
        try:
            answer = self.host.ask(method, path, body, at=at)
        except Cut:
            return None
        if answer.status >= 300 and error(answer)[1] not in self.KNOWN:
            self.wrong.append((method, path, answer))
        self.done += answer.status < 300
        return answer.json if answer.status < 300 else None

    def step(self):
        turn = self.chance.choice(self.turns[-3:]) if self.turns else None
        path = f"/sessions/{turn[0]}/turns/{turn[1]}" if turn else None
        what = self.chance.choice(["begin", "begin", "execute", "execute", "execute", "child", "child", "end", "cancel", "forget", "poll"])
        if what == "forget" and turn and (turn[0] != self.session or self.chance.random() < 0.3):
            self.ask("DELETE", f"/sessions/{turn[0]}")
        elif what == "begin" or not turn:
            made = self.ask("POST", f"/sessions/{self.session}/turns", {"tools": [{"name": "t"}], "acquire_timeout_s": self.chance.choice([0.01, 0.1, 0.5])})
            self.turns += [(self.session, made["turn"])] if made else []
        elif what == "child":
            made = self.ask("POST", path + "/children", {"acquire_timeout_s": self.chance.choice([0.01, 0.1, 0.5])})
            self.turns += [(made["child"], made["turn"])] if made else []
        elif what == "execute":
            self.ask("POST", path + "/execute", {"code": self.chance.choice(["x = 1", "t()", "import os; os._exit(1)", "while True: pass"]), "timeout_s": 0.1})
        elif what == "poll":
            self.ask("GET", path + "/pending?wait=0.05")
        else:
            self.ask("DELETE" if what == "end" else "POST", path + ("" if what == "end" else "/cancel"))

    def run(self):
        for _ in range(STEPS):
            if not self.session or self.chance.random() < 0.05:
                made = self.ask("POST", "/sessions", {})
                self.session = made["session"] if made else self.session
            if self.session:
                self.step()


@pytest.mark.parametrize("seed", seeds()[:1])
def test_whatever_hosts_do_in_whatever_order_nothing_is_left(brig, seed):
    """Eight of them want five sandboxes."""
    print("BRIG_SEED", seed)
    daemon = brig(BRIG_RUNTIME_MAX_ACTIVE_LEASES="6")
    host = Host(daemon)
    lives = [Life(daemon, seed * 100 + i) for i in range(8)]
    threads = [threading.Thread(target=life.run) for life in lives]
    for t in threads:
        t.start()
    for t in threads:
        t.join(240)
    assert not any(t.is_alive() for t in threads)
    assert not [w for life in lives for w in life.wrong]
    assert sum(life.done for life in lives) > len(lives)
    for session in host.call("GET", "/sessions").json["sessions"]:
        assert host.call("DELETE", f"/sessions/{session['session']}").status in (200, 404)
    seen = host.call("GET", "/sessions").json
    assert (seen["sessions"], seen["slots_used"], seen["roots"], seen["waiting"]) == ([], 0, 0, 0)
    assert host.session().turn().execute("print('usable')")["stdout"] == "usable\n"
