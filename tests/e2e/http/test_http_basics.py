"""What an ordinary client sees."""
import json
import time


def test_keep_alive_serves_many_requests_on_one_connection(server):
    with server.peer() as p:
        for _ in range(5):
            a = p.get("/hello")
            assert (a.status, a.body) == (200, b"hello\n")
            assert "connection" not in a.headers


def test_connection_close_is_honoured(server):
    with server.peer() as p:
        a = p.get("/hello", "Connection: close")
        assert a.headers["connection"] == "close"
        assert p.closed()


def test_pipelined_answers_come_in_order(server):
    with server.peer() as p:
        p.send(b"".join(f"GET /task/{i} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() for i in range(200)))
        ids = [json.loads(p.answer().body)["task_id"] for _ in range(200)]
    assert ids == [str(i) for i in range(200)]


def test_a_slow_request_holds_back_the_answers_behind_it(server):
    with server.peer() as p, server.peer() as other:
        p.send("GET /later HTTP/1.1\r\nHost: localhost\r\n\r\nGET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n")
        server.wait_counts(held=1)
        assert other.post("/release", b"").body == b"released\n"
        assert p.answer().body == b"later\n"
        assert p.answer().body == b"hello\n"


def test_head_has_the_length_and_no_body(server):
    with server.peer() as p:
        a = p.send("HEAD /hello HTTP/1.1\r\nHost: localhost\r\n\r\n").answer(head_only=True)
        assert (a.status, a.headers["content-length"]) == (200, "6")
        assert p.get("/hello").body == b"hello\n"


def test_head_of_a_stream_has_no_body(server):
    with server.peer() as p:
        a = p.send("HEAD /stream?bytes=100 HTTP/1.1\r\nHost: localhost\r\n\r\n").answer(head_only=True)
        assert (a.status, a.headers["transfer-encoding"]) == (200, "chunked")
        assert p.get("/hello").body == b"hello\n"


def test_http_1_0_closes_unless_asked(server):
    with server.peer() as p:
        a = p.send("GET /hello HTTP/1.0\r\n\r\n").answer()
        assert (a.status, a.body, a.headers["connection"]) == (200, b"hello\n", "close")
        assert p.closed()
    with server.peer() as p:
        a = p.send("GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").answer()
        assert a.headers["connection"] == "keep-alive"
        assert p.send("GET /hello HTTP/1.0\r\n\r\n").answer().status == 200


def test_http_1_0_gets_a_stream_unframed(server):
    with server.peer() as p:
        a = p.send("GET /stream?bytes=70000 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").answer()
        assert "transfer-encoding" not in a.headers
        assert a.body == b"s" * 70000


def test_chunked_request_body_is_joined(server):
    with server.peer() as p:
        a = p.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
                   "3;ext=1\r\nabc\r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n").answer()
        assert a.body == b"abc0123456789"
        assert p.get("/hello").status == 200


def test_a_request_in_single_bytes_is_understood(server):
    with server.peer() as p:
        for b in b"\r\nPOST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET /hello HTTP/1.1\r\nHost: x.localhost.\r\n\r\n":
            p.send(bytes([b]))
        assert p.answer().body == b"abc"
        assert p.answer().status == 403


def test_large_bodies_are_whole_in_both_directions(server):
    body = bytes(i % 251 for i in range(3_000_000))
    with server.peer() as p:
        assert p.post("/echo", body).body == body
        big = p.get("/big?bytes=5000000").body
        assert len(big) == 5_000_000 and big[:24] == b"abcdefghijklmnopqrstuvwa"


def test_a_spooled_body_is_followed_by_the_next_request(server):
    body = b"x" * 2_500_000
    with server.peer() as p:
        p.send(b"POST /digest HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2500000\r\n\r\n" + body + b"GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert p.answer().body.startswith(b"2500000 ")
        assert p.answer().body == b"hello\n"


def test_spooled_bodies_leave_memory_and_disk_alone(start, tmp_path):
    s = start("memory=65536", f"spool={tmp_path}")
    before = s.rss_kib()
    size = 60_000_000
    with s.peer() as p:
        p.send(f"POST /digest HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n")
        for _ in range(size // 1_000_000):
            p.send(b"y" * 1_000_000)
            assert s.rss_kib() - before < 16 * 1024
            assert list(tmp_path.iterdir()) == []
        assert p.answer().body.startswith(f"{size} ".encode())


def test_an_unwritable_spool_is_503(start):
    s = start("memory=1000", "spool=/nonexistent/dir")
    with s.peer() as p:
        assert p.post("/digest", b"z" * 200_000).status == 503
    assert s.counts()["held"] == 0


def test_expect_100_continue(server):
    with server.peer() as p:
        p.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
        assert p.answer().status == 100
        assert p.send("abc").answer().body == b"abc"


def test_expect_with_a_refused_request_gets_the_refusal_at_once(server):
    with server.peer() as p:
        p.send("POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
        assert p.answer().status == 404
        assert p.closed()


def test_other_expectations_are_417(server):
    with server.peer() as p:
        assert p.get("/hello", "Expect: 200-ok").status == 417
        assert p.get("/hello").status == 200


def test_unknown_path_is_404_and_the_connection_goes_on(server):
    with server.peer() as p:
        a = p.post("/nowhere", b"body that must be skipped")
        assert (a.status, json.loads(a.body)) == (404, {"error": "Not found"})
        assert p.get("/hello").status == 200


def test_unknown_methods_are_405_with_allow(server):
    for method in ("OPTIONS", "PUT", "PATCH", "TRACE", "POST"):
        with server.peer() as p:
            a = p.send(f"{method} /hello HTTP/1.1\r\nHost: localhost\r\n\r\n").answer()
            assert (a.status, a.headers["allow"]) == (405, "GET, HEAD, DELETE")
    with server.peer() as p:
        assert p.send("BREW /hello HTTP/1.1\r\nHost: localhost\r\n\r\n").answer().status == 405
    with server.peer() as p:
        assert p.send("OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n").answer().status == 405
    with server.peer() as p:
        assert p.send("CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n").answer().status == 400


def test_no_content_has_no_length(server):
    with server.peer() as p:
        a = p.send("DELETE /hello HTTP/1.1\r\nHost: localhost\r\n\r\n").answer()
        assert a.status == 204 and "content-length" not in a.headers
        assert p.get("/hello").status == 200


def test_paths_are_decoded_by_segment(server):
    with server.peer() as p:
        seen = json.loads(p.get("/inspect/a%2Fb/x/%c3%a9?q=1+%26&r=2", "X-Test:  spaced \t").body)
    assert (seen["a"], seen["b"], seen["q"], seen["x"]) == ("a/b", "é", "1 &", "spaced")


def test_dot_segments_match_nothing(server):
    with server.peer() as p:
        for path in ("/x/../hello", "/./hello", "/hello/", "//hello", "/hello/.", "/task/", "/inspect//x/y"):
            assert p.get(path).status == 404, path


def test_absolute_form_is_understood(server):
    with server.peer() as p:
        assert p.send("GET http://localhost/hello HTTP/1.1\r\nHost: localhost\r\n\r\n").answer().body == b"hello\n"


def test_request_id_is_echoed_or_made(server):
    with server.peer() as p:
        assert p.get("/hello", "X-Request-Id: abc-123").headers["x-request-id"] == "abc-123"
        made = {p.get("/hello").headers["x-request-id"] for _ in range(3)}
        assert len(made) == 3
        for bad in ("a b", "x" * 129, "é", '"'):
            assert p.get("/hello", f"X-Request-Id: {bad}").headers["x-request-id"] not in (bad, "")


def test_traceparent_keeps_the_trace_and_names_our_span(server):
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with server.peer() as p:
        out = p.get("/hello", f"traceparent: {parent}").headers["traceparent"]
        assert out[:36] == parent[:36] and out[52:] == "-01" and out != parent
        for bad in ("00-" + "0" * 32 + "-b7ad6b7169203331-01", "garbage", parent.upper(), parent + "-x", "01" + parent[2:]):
            assert "traceparent" not in p.get("/hello", f"traceparent: {bad}").headers


def test_a_handlers_header_cannot_split_the_answer(server):
    with server.peer() as p:
        a = p.get("/inspect/a/x/b")
        assert a.headers["x-extra"] == "yes"
        assert "x-split" not in a.headers and "x-evil" not in a.headers


def test_an_offer_to_upgrade_is_ignored(server):
    with server.peer() as p:
        a = p.get("/hello", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA")
        assert a.status == 200
        assert p.get("/hello").status == 200


def test_half_closed_peers_get_their_answers(server):
    import socket
    with server.peer() as p:
        p.send("GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\nGET /later HTTP/1.1\r\nHost: localhost\r\n\r\nGET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n")
        p.sock.shutdown(socket.SHUT_WR)
        assert p.answer().body == b"hello\n"
        server.wait_counts(held=1)
        with server.peer() as other:
            other.post("/release", b"")
        assert p.answer().body == b"later\n"
        assert p.answer().body == b"hello\n"
        assert p.closed()


def test_a_peer_that_vanishes_while_waiting_is_noticed(start):
    import socket
    import struct
    s = start()
    p = s.peer()
    p.send("GET /later HTTP/1.1\r\nHost: localhost\r\n\r\n")
    s.wait_counts(held=1)
    p.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    p.sock.close()
    s.wait_counts(held=0, closed=1, connections=1)


def test_a_peer_that_vanishes_in_the_middle_of_a_stream_is_noticed(start):
    s = start()
    p = s.peer()
    p.send("GET /stream?bytes=2000000000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
    p.until(b"\r\n\r\n")
    p.sock.close()
    s.wait_counts(closed=1, connections=1)


def test_a_stream_waits_for_its_reader(start):
    s = start()
    before = s.rss_kib()
    with s.peer() as p:
        p.send("GET /stream?bytes=100000000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        p.until(b"\r\n\r\n")
        streamed = s.counts()["streamed"]
        assert streamed < 20_000_000 and s.rss_kib() - before < 16 * 1024
        got = 0
        while got < 100_000_000:
            size = int(p.until(b"\r\n"), 16)
            p.exactly(size + 2)
            got += size
        assert p.exactly(5) == b"0\r\n\r\n"
        assert s.rss_kib() - before < 16 * 1024


def test_a_peer_that_does_not_read_its_pipelined_answers_is_not_served_ahead(start):
    s = start()
    before = s.rss_kib()
    with s.peer() as p:
        p.sock.setblocking(False)
        request = b"GET /big?bytes=15000 HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100
        sent, quiet_since = 0, time.monotonic()
        while time.monotonic() - quiet_since < 0.5 and sent < 50_000_000:
            try:
                sent += p.sock.send(request[sent % len(request):])
                quiet_since = time.monotonic()
            except BlockingIOError:
                pass
        assert sent < 50_000_000, "the server read everything"
        assert s.rss_kib() - before < 16 * 1024


def test_stop_answers_what_is_in_progress(start):
    import signal
    s = start()
    with s.peer() as idle, s.peer() as p:
        idle.get("/hello")
        p.send("GET /later HTTP/1.1\r\nHost: localhost\r\n\r\n")
        s.wait_counts(held=1)
        s.process.send_signal(signal.SIGTERM)
        assert idle.closed()
        assert p.closed()  # the grace of one second passed without an answer
        assert s.process.wait(60) == 0
