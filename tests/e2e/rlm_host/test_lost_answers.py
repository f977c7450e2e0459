"""What a tool host does when the daemon's answers are lost, late or refused: the function runs once, whatever happens to its result."""
import http.server
import json
import threading

import pytest

from brig.rlm import Session
from brigd import until

CALL = {"id": "c1", "lease": "l1", "tool_name": "f", "args": [], "kwargs": {}}


class Daemon(http.server.ThreadingHTTPServer):
    """Speaks as much of /v1/rlm as a turn with one call needs. results: what is answered to each post of the result: (status, code), or None for a cut connection."""
    daemon_threads = True

    def __init__(self, *results, polls=()):
        super().__init__(("127.0.0.1", 0), Handler)
        self.results, self.polls, self.posted, self.issued, self.over = list(results), list(polls), [], False, threading.Event()
        self.guard = threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        pass


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def refuse(self, status, code):
        self.answer(status, {"error": {"code": code, "message": code, "hint": None}})

    def cut(self):
        self.close_connection = True

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        if self.path.endswith("/result"):
            with self.server.guard:
                self.server.posted.append(body)
                what = self.server.results.pop(0)
            return self.cut() if what is None else self.answer(200, {"settled": True}) if what[0] == 200 else self.refuse(*what)
        self.answer(201, {"session": "s", "turn": "t", "generation": 1})

    def do_GET(self):
        with self.server.guard:
            poll = self.server.polls.pop(0) if self.server.polls else "answer"
            first = poll == "answer" and not self.server.issued
            self.server.issued |= first
        if poll != "answer":
            return self.cut() if poll is None else self.refuse(*poll)
        if first:
            return self.answer(200, {"requests": [CALL], "remaining_s": 60})
        self.server.over.wait(30)
        self.refuse(404, "not_found")

    def do_DELETE(self):
        self.server.over.set()
        self.answer(200, {})

    def log_message(self, *_):
        pass


@pytest.fixture
def run():
    """Serves the one call against a daemon that answers so; gives the host, and how often the function ran."""
    made = []

    def serve(*results, function=None, **more):
        daemon = Daemon(*results, **more)
        made.append(daemon)
        ran = []

        def f():
            ran.append(1)
            return function() if function else 7
        with Session(f"http://127.0.0.1:{daemon.server_address[1]}") as session, session.turn([f]) as turn:
            until(lambda: not daemon.results, "every answer was given")
        return turn.host, len(ran), daemon.posted
    yield serve
    for d in made:
        d.over.set()
        d.shutdown()
        d.server_close()


def test_a_result_whose_answer_is_lost_is_posted_again_and_not_made_again(run):
    host, ran, posted = run(None, None, (200, ""))
    assert ran == 1 and posted == [{"id": "c1", "lease": "l1", "result": 7}] * 3 and host.settled == 1 and host.failures == []


def test_a_late_result_is_benign(run):
    host, ran, posted = run((409, "duplicate_call"))
    assert (ran, len(posted), host.settled, host.failures) == (1, 1, 0, [])


@pytest.mark.parametrize("refused", [(409, "stale_lease"), (409, "duplicate_result"), (404, "unknown_call"), (409, "stale_generation"), (500, "internal")])
def test_nothing_else_is(run, refused):
    host, ran, posted = run(refused)
    assert (ran, len(posted), host.settled) == (1, 1, 0) and refused[1] in host.failures[0] and "c1" in host.failures[0]


def test_a_lost_answer_then_a_duplicate_is_not_taken_for_settled(run):
    host, ran, posted = run(None, (409, "duplicate_result"))
    assert (ran, len(posted), host.settled) == (1, 2, 0) and "duplicate_result" in host.failures[0]


def test_a_result_that_is_too_large_becomes_an_error(run):
    host, ran, posted = run((413, "ToolResultTooLarge"), (200, ""))
    assert ran == 1 and posted[1]["tool_error"]["category"] == "ToolResultTooLarge" and host.settled == 1


def test_a_function_that_fails_in_any_way_settles_its_call(run):
    def leave():
        raise SystemExit("no more")
    host, ran, posted = run((200, ""), function=leave)
    assert ran == 1 and posted[0]["tool_error"] == {"category": "SystemExit", "message": "no more"} and host.settled == 1


def test_polls_that_are_cut_or_refused_are_made_again(run):
    host, ran, posted = run((200, ""), polls=[None, (503, "busy"), None])
    assert (ran, host.settled) == (1, 1)
