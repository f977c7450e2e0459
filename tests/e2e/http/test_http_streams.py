"""Uploads and downloads of any size, server-sent events, WebSocket, other protocols behind an Upgrade."""
import hashlib
import threading

import pytest
from ws import BINARY, PING, PONG, TEXT, WebSocket

BIG = 256 << 20
GROWTH_KIB = 8 << 10  # what the server may grow by, whatever the size


@pytest.fixture(scope="module")
def big_file(tmp_path_factory):
    """A file of BIG bytes that takes no room, but for its ends."""
    path = tmp_path_factory.mktemp("files") / "big"
    with open(path, "wb") as f:
        f.write(b"first")
        f.seek(BIG - 4)
        f.write(b"last")
    return path


def test_a_large_upload_costs_constant_memory(server):
    piece = bytes(1 << 20)
    with server.peer() as p:
        p.get("/hello")
        before = server.rss_kib()
        p.send(f"PUT /upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: {BIG}\r\n\r\n")
        for _ in range(BIG // len(piece)):
            p.send(piece)
        n, digest = p.answer().body.split()
        assert int(n) == BIG
        h = hashlib.sha256()
        for _ in range(BIG // len(piece)):
            h.update(piece)
        assert digest.decode() == h.hexdigest()
        assert server.rss_kib() - before < GROWTH_KIB
        assert p.get("/hello").status == 200


def test_a_chunked_upload_that_breaks_off_is_heard_of(server):
    closed = server.counts()["closed"]
    with server.peer() as p:
        p.send("PUT /upload HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
        assert server.counts()["closed"] == closed
    server.wait_counts(closed=closed + 1)


def test_continue_is_said_when_the_route_takes_the_body(server):
    with server.peer() as p:
        p.send("PUT /upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert p.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue"
        assert p.send("ok").answer().body.startswith(b"2 ")


def test_the_limit_of_a_route_is_its_own(server):
    with server.peer() as p:
        a = p.send("PUT /upload/small HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1001\r\nExpect: 100-continue\r\n\r\n").answer()
        assert a.status == 413
    with server.peer() as p:
        p.send("PUT /upload/small HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        p.send(b"3e8\r\n" + b"x" * 1000 + b"\r\n1\r\nx\r\n")
        assert p.answer().status == 413


def test_a_large_file_costs_constant_memory_however_slow_the_reader(start, big_file):
    s = start(f"file={big_file}")
    with s.peer() as p:
        p.get("/hello")
        before = s.rss_kib()
        p.send("GET /file HTTP/1.1\r\nHost: localhost\r\n\r\n")
        p.until(b"\r\n\r\n")
        first = p.exactly(1 << 20)
        s.counts()  # the server goes on serving while this reader sleeps
        assert first.startswith(b"first")
        left = BIG - len(first) - len(p.buf)
        last, p.buf = p.buf, b""
        while left:
            last = p.sock.recv(1 << 20)
            left -= len(last)
        assert last.endswith(b"last")
        assert s.rss_kib() - before < GROWTH_KIB


@pytest.mark.parametrize("range_, status, body, content_range", [
    ("bytes=0-4", 206, b"first", f"bytes 0-4/{BIG}"),
    ("bytes=-4", 206, b"last", f"bytes {BIG - 4}-{BIG - 1}/{BIG}"),
    (f"bytes={BIG - 4}-", 206, b"last", f"bytes {BIG - 4}-{BIG - 1}/{BIG}"),
    (f"bytes={BIG}-", 416, None, f"bytes */{BIG}"),
])
def test_ranges(start, big_file, range_, status, body, content_range):
    s = start(f"file={big_file}")
    with s.peer() as p:
        a = p.get("/file", f"Range: {range_}")
        assert (a.status, a.headers["content-range"]) == (status, content_range)
        assert body is None or a.body == body
        assert p.get("/hello").status == 200


def test_events_and_where_a_client_comes_back(server):
    with server.peer() as p:
        a = p.get("/events?n=2")
        assert a.headers["content-type"] == "text/event-stream"
        assert a.body == b"event: tick\nid: 1\ndata: line 1\ndata: of two\n\nevent: tick\nid: 2\ndata: line 2\ndata: of two\n\n"
        assert p.get("/events?n=3", "Last-Event-ID: 2").body.startswith(b"event: tick\nid: 3\n")


def test_websocket_echoes_every_size_both_ways(server):
    with server.peer() as p:
        ws = WebSocket(p, "/ws", "Sec-WebSocket-Protocol: other, echo")
        assert ws.answer.headers["sec-websocket-protocol"] == "echo"
        for n in (0, 1, 125, 126, 65535, 65536, 1 << 20):
            data = bytes(i % 251 for i in range(n))
            assert ws.send(BINARY, data).receive() == (BINARY, data)
        assert ws.send(TEXT, "žluťoučký").receive() == (TEXT, "žluťoučký".encode())
        assert ws.send(PING, "p").receive() == (PONG, b"p")
        assert ws.close(4000, "enough") == (4000, "")
        assert p.closed()
    server.wait_counts(last=4000)


def test_websocket_says_why_it_ends(server):
    with server.peer() as p:
        ws = WebSocket(p, "/ws")
        assert ws.send(TEXT, "close 4321 go away").receive_close() == (4321, "go away")
        ws.send(8, b"\x10\xe1")
        assert p.closed()
    with server.peer() as p:
        assert WebSocket(p, "/ws").send(TEXT, b"\xff").receive_close() == (1007, "Text is not UTF-8")
        assert p.closed()
    with server.peer() as p:
        assert WebSocket(p, "/ws").send(BINARY, bytes((1 << 20) + 1)).receive_close() == (1009, "Message is too large")


def test_many_websockets_at_once(server):
    def talk(i, bad):
        with server.peer() as p:
            ws = WebSocket(p, "/ws")
            for k in range(20):
                if ws.send(TEXT, f"{i} {k}").receive() != (TEXT, f"{i} {k}".encode()):
                    bad.append((i, k))
            ws.close()

    bad = []
    threads = [threading.Thread(target=talk, args=(i, bad)) for i in range(30)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not bad


def test_a_websocket_needs_the_token_as_every_request(start):
    s = start("token=secret")
    with s.peer() as p:
        assert WebSocket(p, "/ws").answer.status == 401
    with s.peer() as p:
        assert WebSocket(p, "/ws", "Authorization: Bearer secret").answer.status == 101


def test_a_page_of_another_site_opens_no_websocket(server):
    with server.peer() as p:
        assert WebSocket(p, "/ws", "Origin: http://evil.example").answer.status == 403


def test_another_protocol_behind_an_upgrade(server):
    with server.peer() as p:
        p.send("GET /shout HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: shout\r\n\r\nearly")
        assert b"101 Switching Protocols" in p.until(b"\r\n\r\n")
        assert p.exactly(5) == b"EARLY"
        p.send("later")
        assert p.exactly(5) == b"LATER"


def test_an_upgrade_that_nobody_wants_is_an_ordinary_request(server):
    with server.peer() as p:
        a = p.get("/hello", "Connection: Upgrade", "Upgrade: h2c")
        assert (a.status, a.body) == (200, b"hello\n")


