"""What the inside of a session may try against the daemon: servers that do not speak HTTP as they should, reports that are forged, ends that come
at the worst moment. Whatever it is, each request gets one answer that is whole or visibly is not, and the daemon goes on."""
import base64
import concurrent.futures
import http.client
import json
import random
import socket
import threading
import time

import pytest
from brigd import Daemon, until
from session_client import Session

# Answers with the bytes that the request's path holds, so often as it says, and closes or waits.
SERVER = r'''
import base64, socket, socketserver, sys, urllib.parse

class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        line = self.rfile.readline().decode()
        while self.rfile.readline().strip():
            pass
        q = dict(urllib.parse.parse_qsl(line.split()[1].partition("?")[2]))
        try:
            self.wfile.write(base64.urlsafe_b64decode(q.get("head", "")))
            raw = base64.urlsafe_b64decode(q.get("raw", "")) * int(q.get("by", 1))
            for _ in range(int(q.get("times", 0))):
                self.wfile.write(raw)
            if "wait" in q:
                self.rfile.read(1)
        except OSError:
            pass

class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address, daemon_threads, request_queue_size = True, True, 128

Server(("127.0.0.1", 8000), Handler).serve_forever()
'''


class Raw(Session):
    def serve(self):
        text = base64.b64encode(SERVER.encode()).decode()
        self.out(f"echo {text} | base64 -d > /tmp/server.py; (setsid python3 /tmp/server.py >/tmp/server.log 2>&1 &)")
        until(lambda: self.says(b"HTTP/1.1 204 No\r\n\r\n")[0] == 204, "the server inside answers")
        return self

    def path_of(self, head, raw=b"", times=0, wait=False):
        def text(b):
            return base64.urlsafe_b64encode(b).decode()
        by = 65536 // len(raw) if times >= 1000 else 1           # at a time
        return f"/v1/sessions/{self.id}/ports/8000/?head={text(head)}&raw={text(raw)}&by={by}&times={times // by}" + ("&wait=1" if wait else "")

    def says(self, head, raw=b"", times=0, wait=False, connection=None, headers=()):
        """(status, body), or (status, None) where the answer breaks off."""
        d = self.daemon
        c = connection or http.client.HTTPConnection(d.host, d.port, timeout=120)
        try:
            c.request("GET", self.path_of(head, raw, times, wait), headers=dict(headers))
            answer = c.getresponse()
            try:
                body = b""
                while piece := answer.read(65536):
                    body += piece
                return answer.status, body if not answer.length else None
            except (http.client.HTTPException, OSError):
                return answer.status, None
        finally:
            if connection is None:
                c.close()

    @property
    def path(self):
        return f"/session/{self.id}"


@pytest.fixture(scope="module")
def inside(daemon):
    s = Raw(daemon).ready()
    yield s.serve()
    s.delete()


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize("what, head, raw, times, wait", [
    ("endless fields", OK, b"X-Field: value\r\n", 4 << 20, True),
    ("one endless field", OK + b"X: ", b"y", 1 << 26, True),
    ("an endless status line", b"HTTP/1.1 200 ", b"y", 1 << 26, True),
    ("an endless name", OK, b"y", 1 << 26, True),
    ("white space before all", b"", b"\r\n", 4 << 20, False),
    ("101 that nobody asked for", b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", b"x" * 100, 3, True),
    ("two lengths", OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", b"", 0, False),
    ("a length and chunks", OK + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"", 0, False),
    ("a length below nothing", OK + b"Content-Length: -1\r\n\r\n", b"", 0, False),
    ("a length beyond numbers", OK + b"Content-Length: 99999999999999999999\r\n\r\n", b"", 0, False),
    ("a version of its own", b"HTTP/7.3 200 OK\r\n\r\n", b"", 0, False),
    ("a status of its own", b"HTTP/1.1 999 No\r\nContent-Length: 0\r\n\r\n", b"", 0, False),
    ("a status that is none", b"HTTP/1.1 -20 No\r\n\r\n", b"", 0, False),
    ("bytes of zero", OK + b"X: a\0b\r\nContent-Length: 0\r\n\r\n", b"", 0, False),
    ("a request", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"", 0, False),
    ("nothing", b"", b"", 0, False),
    ("half a head", OK + b"Content-", b"", 0, False),
], ids=lambda v: v.replace(" ", "-") if isinstance(v, str) else "")
def test_what_is_not_an_answer_is_a_502(inside, what, head, raw, times, wait):
    status, body = inside.says(head, raw, times, wait)
    assert status == 502 and json.loads(body)["error"]["code"] == "port_failed", (what, status, body)


@pytest.mark.parametrize("what, head, raw, times", [
    ("a chunk beyond numbers", OK + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nabc", b"", 0),
    ("a chunk below nothing", OK + b"Transfer-Encoding: chunked\r\n\r\n-1\r\nabc", b"", 0),
    ("a huge chunk that ends early", OK + b"Transfer-Encoding: chunked\r\n\r\n7fffffff\r\nabc", b"", 0),
    ("a chunk's end that is none", OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabcHTTP/1.1 200 OK\r\n\r\n", b"", 0),
    ("no last chunk", OK + b"Transfer-Encoding: chunked\r\n\r\n", b"3\r\nabc\r\n", 10),
    ("less than its length", OK + b"Content-Length: 1000\r\n\r\n", b"abc", 3),
    ("a length of half a machine", OK + b"Content-Length: 922337203685477580\r\n\r\n", b"abc", 3),
], ids=lambda v: v.replace(" ", "-") if isinstance(v, str) else "")
def test_a_body_that_is_not_whole_is_not_taken_for_one(inside, what, head, raw, times):
    status, body = inside.says(head, raw, times)
    assert (status, body) == (200, None), (what, status, body)


def test_more_than_one_answer_is_one(inside):
    """And the next answer on the client's connection is the next request's."""
    second = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nforged it"
    d = inside.daemon
    for head in (OK + b"Content-Length: 2\r\n\r\nok" + second, OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n" + second,
                 b"HTTP/1.1 204 No\r\n\r\n" + second, b"HTTP/1.1 304 No\r\nContent-Length: 9\r\n\r\nforged it", b"HTTP/1.1 304 No\r\nContent-Length: 9\r\n\r\n", b"HTTP/1.1 100 Go on\r\n\r\n" + OK + b"Content-Length: 2\r\n\r\nok" + second):
        c = http.client.HTTPConnection(d.host, d.port, timeout=60)
        status, body = inside.says(head, connection=c)
        assert (status, body) in ((200, b"ok"), (204, b""), (304, b"")), (head, status, body)
        c.request("GET", f"/session/{inside.id}")
        answer = c.getresponse()
        assert json.loads(answer.read())["session_id"] == inside.id, head
        c.close()


def test_an_answer_to_head_has_no_body_whatever_is_sent(inside):
    d = inside.daemon
    c = http.client.HTTPConnection(d.host, d.port, timeout=60)
    c.request("HEAD", inside.path_of(OK + b"Content-Length: 5\r\n\r\nforged"))
    assert c.getresponse().read() == b""
    c.request("GET", f"/session/{inside.id}")
    assert json.loads(c.getresponse().read())["session_id"] == inside.id
    c.close()


def test_fields_cannot_reach_beyond_their_line(inside):
    d = inside.daemon
    head = OK + b"X-A: one\rX-Forged: yes\r\nX-B: two\nX-Forged: yes\r\nContent-Length: 2\r\nConnection: X-C\r\nX-C: hop\r\nTransfer-Foo: y\r\n\r\nok"
    c = http.client.HTTPConnection(d.host, d.port, timeout=60)
    c.request("GET", inside.path_of(head))
    answer = c.getresponse()
    answer.read()
    assert answer.status == 502 or "x-c" not in {k.lower() for k, _ in answer.getheaders()}
    assert answer.getheader("X-Forged") is None or answer.status == 502
    c.close()


def test_random_answers_end_and_harm_nobody(inside):
    random.seed(7)
    parts = [b"HTTP/1.1 ", b"200 OK", b"\r\n", b"\r\n\r\n", b"\n", b"\r", b"Content-Length: ", b"5", b"Transfer-Encoding: chunked", b"0\r\n\r\n", b"ffff\r\n", b":", b" ", b"\0", b"\xff",
             b"Upgrade: x", b"Connection: upgrade", b"101 S", b"100 C", b"304 N", b"hello", b"Location: /", b"X: y"]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = [b"HTTP/1.1 200 OK\r\n" * (i % 2) + b"".join(random.choice(parts) for _ in range(random.randrange(1, 25))) for i in range(400)]
        for status, _ in pool.map(lambda a: inside.says(a, headers=[("Upgrade", "x"), ("Connection", "Upgrade")] if a[-1] & 1 else []), answers):
            assert 100 <= status <= 599
    assert inside.out("echo alive") == "alive\n"
    until(lambda: inside.daemon.call("GET", f"/v1/sessions/{inside.id}").json["uses"] == 0, "no connection is left")


def test_answers_before_the_answer_are_few(inside):
    hints = b"HTTP/1.1 103 Early\r\nLink: </x>\r\n\r\n"
    assert inside.says(b"", hints, 100)[0] == 502, "none came then"
    assert inside.says(hints * 20 + OK + b"Content-Length: 2\r\n\r\nok") == (200, b"ok")
    status, body = inside.says(b"", hints, 1 << 20, True)
    assert status == 502 and "does not begin" in json.loads(body)["error"]["message"]


def test_a_client_that_leaves_a_silent_server_leaves_no_connection(inside):
    d = inside.daemon
    s = socket.create_connection((d.host, d.port))
    s.sendall(f"GET {inside.path_of(b'HTTP/1.1 103 Early', wait=True)} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    until(lambda: d.call("GET", f"/v1/sessions/{inside.id}").json["uses"] == 1, "it is under way")
    s.close()
    until(lambda: d.call("GET", f"/v1/sessions/{inside.id}").json["uses"] == 0, "it ends with its client")
