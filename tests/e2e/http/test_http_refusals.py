"""What must not be understood: smuggling, limits, slow and foreign peers."""
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

import pytest

from harness import WAIT

HOST = "Host: localhost\r\n"

SMUGGLING = {
    "both lengths": f"POST /echo HTTP/1.1\r\n{HOST}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "both lengths, reversed": f"POST /echo HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    "two lengths": f"POST /echo HTTP/1.1\r\n{HOST}Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
    "the same length twice": f"POST /echo HTTP/1.1\r\n{HOST}Content-Length: 4\r\nContent-Length: 4\r\n\r\nabcd",
    "list of lengths": f"POST /echo HTTP/1.1\r\n{HOST}Content-Length: 4, 4\r\n\r\nabcd",
    "signed length": f"POST /echo HTTP/1.1\r\n{HOST}Content-Length: +4\r\n\r\nabcd",
    "negative length": f"POST /echo HTTP/1.1\r\n{HOST}Content-Length: -1\r\n\r\n",
    "hex length": f"POST /echo HTTP/1.1\r\n{HOST}Content-Length: 0x4\r\n\r\nabcd",
    "empty length": f"POST /echo HTTP/1.1\r\n{HOST}Content-Length:\r\n\r\n",
    "overflowing length": f"POST /echo HTTP/1.1\r\n{HOST}Content-Length: 18446744073709551620\r\n\r\nabcd",
    "length with a space": f"POST /echo HTTP/1.1\r\n{HOST}Content-Length: 1 2\r\n\r\nabcd",
    "two transfer encodings": f"POST /echo HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked not last": f"POST /echo HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "chunked twice": f"POST /echo HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "chunked in 1.0": f"POST /echo HTTP/1.0\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunk size not hex": f"POST /echo HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\nxyz\r\nabc\r\n0\r\n\r\n",
    "chunk size with 0x": f"POST /echo HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n",
    "chunk size overflowing": f"POST /echo HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nabc\r\n0\r\n\r\n",
    "chunk longer than said": f"POST /echo HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
    "chunk size ended by LF": f"POST /echo HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n",
    "chunk data ended by LF": f"POST /echo HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\n0\r\n\r\n",
    "chunk extension with LF": f"POST /echo HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n3;a=b\nabc\r\n0\r\n\r\n",
    "folded field": f"GET /hello HTTP/1.1\r\n{HOST}X-A: b\r\n c\r\n\r\n",
    "folded first field": "GET /hello HTTP/1.1\r\n Host: localhost\r\n\r\n",
    "folded length": f"POST /echo HTTP/1.1\r\n{HOST}Content-Length:\r\n 4\r\n\r\nabcd",
    "space before colon": f"POST /echo HTTP/1.1\r\n{HOST}Content-Length : 4\r\n\r\nabcd",
    "space before colon of Transfer-Encoding": f"POST /echo HTTP/1.1\r\n{HOST}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "tab before colon": f"POST /echo HTTP/1.1\r\n{HOST}Transfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n",
    "field without colon": f"GET /hello HTTP/1.1\r\n{HOST}nonsense\r\n\r\n",
    "field without name": f"GET /hello HTTP/1.1\r\n{HOST}: x\r\n\r\n",
    "bare LF ends the request line": f"GET /hello HTTP/1.1\n{HOST}\r\n",
    "bare LF ends a field": "GET /hello HTTP/1.1\r\nHost: localhost\nX: y\r\n\r\n",
    "bare LF ends the head": "GET /hello HTTP/1.1\r\nHost: localhost\r\n\n",
    "only LFs": "GET /hello HTTP/1.1\nHost: localhost\n\n",
    "bare CR in a value": f"GET /hello HTTP/1.1\r\n{HOST}X: a\rb\r\n\r\n",
    "bare CR hides a field": f"POST /echo HTTP/1.1\r\n{HOST}X: a\rContent-Length: 4\r\n\r\n",
    "NUL in a value": f"GET /hello HTTP/1.1\r\n{HOST}X: a\0b\r\n\r\n",
    "control character in a value": f"GET /hello HTTP/1.1\r\n{HOST}X: a\x01b\r\n\r\n",
    "no Host": "GET /hello HTTP/1.1\r\n\r\n",
    "two Hosts": "GET /hello HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
    "empty Host": "GET /hello HTTP/1.1\r\nHost:\r\n\r\n",
    "Host with a path": "GET /hello HTTP/1.1\r\nHost: localhost/x\r\n\r\n",
    "Host with a space": "GET /hello HTTP/1.1\r\nHost: local host\r\n\r\n",
    "absolute form of another host": "GET http://example.org/hello HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "absolute form of another scheme": "GET ftp://localhost/hello HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "authority form": "GET localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "fragment": "GET /hello#x HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "raw byte in the target": b"GET /h\xc3\xa9 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "half an escape in the target": "GET /hello%2 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "NUL in the target": "GET /hello%00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "bad escape in the query": "GET /hello?q=%zz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "two spaces": "GET  /hello HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "space in the target": "GET /hello x HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "tab for a space": "GET\t/hello HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "leading space": " GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "no version": "GET /hello\r\nHost: localhost\r\n\r\n",
    "lower-case version": "GET /hello http/1.1\r\nHost: localhost\r\n\r\n",
    "version with more digits": "GET /hello HTTP/1.10\r\nHost: localhost\r\n\r\n",
    "two authorizations": f"GET /hello HTTP/1.1\r\n{HOST}Authorization: a\r\nAuthorization: b\r\n\r\n",
    "HTTP/2 preface": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
}
FOLLOWER = b"GET /task/smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize("name", SMUGGLING)
def test_ambiguous_requests_are_refused_and_end_the_connection(server, name):
    request = SMUGGLING[name]
    with server.peer() as p:
        p.send((request.encode() if isinstance(request, str) else request) + FOLLOWER)
        a = p.answer()
        assert a.status == (505 if name == "HTTP/2 preface" else 400), a
        assert a.headers["connection"] == "close"
        p.sock.shutdown(socket.SHUT_WR)
        assert p.closed(), "something behind the refused request was answered"


def test_the_answer_to_a_refused_head_carries_only_its_id(server):
    with server.peer() as p:
        p.send("GET /hello HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: r1\r\nHost: localhost\r\nX-Echo: 1\r\n\r\n")
        a = p.answer()
        assert (a.status, a.headers["x-request-id"]) == (400, "r1")
        assert "host" not in a.headers and "x-echo" not in a.headers


def test_unknown_transfer_codings_are_501(server):
    for coding in ("gzip", "gzip, chunked", "identity", "xchunked"):
        with server.peer() as p:
            p.send(f"POST /echo HTTP/1.1\r\n{HOST}Transfer-Encoding: {coding}\r\n\r\n")
            assert p.answer().status == 501, coding
            p.sock.shutdown(socket.SHUT_WR)
            assert p.closed()


def test_other_versions_are_505(server):
    for version in ("1.2", "2.0", "0.9", "3.0"):
        with server.peer() as p:
            assert p.send(f"GET /hello HTTP/{version}\r\n{HOST}\r\n").answer().status == 505


def test_a_request_line_over_its_limit_is_414(start):
    s = start("line=100")
    with s.peer() as p:
        path = "/" + "a" * (100 - len("GET / HTTP/1.1"))
        assert p.get(path).status == 404
        assert p.get(path + "a").status == 414
    with s.peer() as p:
        assert p.send("G" * 102).answer().status == 414  # without waiting for a line's end


def test_header_fields_over_their_limit_are_431(start):
    s = start("header=200")
    fixed = len(HOST) + len("X: \r\n")
    with s.peer() as p:
        assert p.get("/hello", "X: " + "a" * (200 - fixed)).status == 200
        assert p.get("/hello", "X: " + "a" * (201 - fixed)).status == 431
    with s.peer() as p:
        assert p.send(f"GET /hello HTTP/1.1\r\n{HOST}X: " + "a" * 300).answer().status == 431


def test_too_many_header_fields_are_431(server):
    with server.peer() as p:
        assert p.get("/hello", *[f"X-{i}: y" for i in range(99)]).status == 200
        assert p.get("/hello", *[f"X-{i}: y" for i in range(100)]).status == 431


def test_too_many_query_parameters_are_400(server):
    with server.peer() as p:
        assert p.get("/hello?" + "&".join(f"a{i}=1" for i in range(32))).status == 200
        assert p.get("/hello?" + "&".join(f"a{i}=1" for i in range(33))).status == 400


def test_a_body_over_its_limit_is_413(start):
    s = start("body=1000")
    with s.peer() as p:
        assert p.post("/digest", b"a" * 1000).status == 200
        assert p.send(f"POST /digest HTTP/1.1\r\n{HOST}Content-Length: 1001\r\n\r\n").answer().status == 413
        p.sock.shutdown(socket.SHUT_WR)
        assert p.closed()
    with s.peer() as p:
        p.send(f"POST /digest HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n" + "3E8\r\n" + "a" * 1000 + "\r\n1\r\n")
        assert p.send("a").answer().status == 413


def test_the_refusal_of_a_large_body_reaches_a_peer_that_goes_on_sending(start):
    s = start("body=1000")
    with s.peer() as p:
        p.send(f"POST /digest HTTP/1.1\r\n{HOST}Content-Length: 20000000\r\n\r\n" + "a" * 20_000_000)
        assert p.answer().status == 413


def test_chunk_extensions_and_trailers_have_a_limit(server):
    with server.peer() as p:
        p.send(f"POST /echo HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n3;" + "e" * 20_000)
        assert p.answer().status == 431
    with server.peer() as p:
        p.send(f"POST /echo HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n0\r\n" + "T: x\r\n" * 4000)
        assert p.answer().status == 431


def test_a_head_that_does_not_end_is_408(start):
    s = start("head_ms=300")
    with s.peer() as p:
        begin = time.monotonic()
        p.send("GET /hello HTTP/1.1\r\n")
        end = begin + WAIT
        p.sock.settimeout(0.05)
        while not p.buf and time.monotonic() < end:  # a byte now and then does not buy time
            try:
                p.send("X")
                p.more()
            except (TimeoutError, socket.timeout):
                pass
        p.sock.settimeout(WAIT)
        assert p.answer().status == 408
        assert 0.25 < time.monotonic() - begin < WAIT


def test_a_body_that_trickles_is_408(start):
    s = start("body_ms=300")
    with s.peer() as p:
        begin = time.monotonic()
        p.send(f"POST /digest HTTP/1.1\r\n{HOST}Content-Length: 5000\r\n\r\n")
        p.sock.settimeout(0.05)
        while not p.buf and time.monotonic() - begin < WAIT:
            try:
                p.send("X")
                p.more()
            except (TimeoutError, socket.timeout):
                pass
        p.sock.settimeout(WAIT)
        assert p.answer().status == 408
        assert time.monotonic() - begin < WAIT


def test_idle_connections_are_closed_without_a_word(start):
    s = start("idle_ms=200")
    with s.peer() as p, s.peer() as silent:
        assert p.get("/hello").status == 200
        assert p.closed()
        assert silent.closed()


def test_a_peer_that_does_not_read_is_cut_off(start):
    s = start("write_ms=300")
    with s.peer() as p:
        p.send(f"GET /big?bytes=30000000 HTTP/1.1\r\n{HOST}\r\n")
        s.wait_counts(connections=1)
        with pytest.raises(EOFError):
            p.answer()


def test_connections_over_the_cap_are_told_503(start):
    s = start("connections=3")
    peers = [s.peer() for _ in range(3)]
    for p in peers:
        assert p.get("/hello").status == 200
    with s.peer() as p:
        assert p.answer().status == 503
        p.sock.shutdown(socket.SHUT_WR)
        assert p.closed()
    peers.pop().sock.close()
    end = time.monotonic() + WAIT
    while time.monotonic() < end:
        with s.peer() as p:
            if p.get("/hello").status == 200:
                break
    else:
        raise AssertionError("a freed place was not given away")
    for p in peers:
        assert p.get("/hello").status == 200
        p.sock.close()


def test_the_token_is_needed_but_for_open_routes(start):
    s = start("token=sesame")
    with s.peer() as p:
        a = p.get("/hello")
        assert (a.status, a.body, a.headers["www-authenticate"]) == (401, b'{"error":"Unauthorized"}', "Bearer")
        for wrong in ("Bearer sesam", "Bearer sesamee", "Bearer", "Basic sesame", "sesame", "Bearer sesame x"):
            assert p.get("/hello", f"Authorization: {wrong}").status == 401, wrong
        assert p.get("/nowhere").status == 401
        a = p.send(f"PUT /hello HTTP/1.1\r\n{HOST}\r\n").answer()
        assert a.status == 401 and "allow" not in a.headers
        assert p.get("/open").status == 200
        assert p.get("/hello", "Authorization: Bearer sesame").status == 200
        assert p.get("/hello", "authorization: bearer sesame", host="example.org").status == 200


def test_an_unauthorized_body_is_not_taken(start, tmp_path):
    s = start("token=sesame", f"spool={tmp_path}", "memory=1000")
    with s.peer() as p:
        p.send(f"POST /digest HTTP/1.1\r\n{HOST}Content-Length: 100000000\r\n\r\n")
        assert p.answer().status == 401  # before any of it was sent


def test_without_a_token_the_host_must_be_this_machine(server):
    with server.peer() as p:
        for good in ("localhost", "LOCALHOST:9090", "127.0.0.1", "127.1.2.3:80", "[::1]", "[::1]:9090"):
            assert p.get("/hello", host=good).status == 200, good
        for bad in ("example.org", "127.0.0.1.example.org", "localhost.example.org", "0.0.0.0", "[::2]", "128.0.0.1", "127.0.0.1:80:80x", "1"):
            assert p.get("/hello", host=bad).status == (403 if bad != "127.0.0.1:80:80x" else 200), bad


def test_without_a_token_a_foreign_origin_is_refused(server):
    with server.peer() as p:
        assert p.get("/hello", "Origin: http://localhost:9", host="localhost:9").status == 200
        for bad in ("http://example.org", "null", "http://localhost:8", "https://localhost:9", "http://localhost"):
            assert p.get("/hello", f"Origin: {bad}", host="localhost:9").status == 403, bad


def test_an_open_listener_takes_any_host_but_no_foreign_origin(start):
    s = start("any_host=1")
    with s.peer() as p:
        assert p.get("/hello", host="example.org").status == 200
        assert p.get("/hello", "Origin: http://evil.example", host="example.org").status == 403


CLIENT = """
import os, socket, sys
os.setgid(int(sys.argv[3])); os.setuid(int(sys.argv[3]))
s = socket.socket(socket.AF_UNIX if sys.argv[1] == "unix" else socket.AF_INET)
s.settimeout(20)
s.connect(sys.argv[2] if sys.argv[1] == "unix" else ("127.0.0.1", int(sys.argv[2])))
s.sendall(b"GET /hello HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n")
print(s.recv(4096).split()[1].decode())
"""


def status_as(uid, kind, where):
    out = subprocess.run([sys.executable, "-c", CLIENT, kind, str(where), str(uid)], capture_output=True, text=True, timeout=WAIT, check=True)
    return int(out.stdout)


def test_local_peers_of_the_denied_users_are_refused(start):
    assert os.geteuid() == 0, "needs root: it speaks as other users"
    s = start("deny=700000:1000")
    assert status_as(0, "tcp", s.port) == 200
    assert status_as(699999, "tcp", s.port) == 200
    assert status_as(700000, "tcp", s.port) == 403
    assert status_as(700999, "tcp", s.port) == 403
    assert status_as(701000, "tcp", s.port) == 200


@pytest.fixture
def open_place():
    """A directory that every user may enter: pytest's own is root's alone."""
    with tempfile.TemporaryDirectory(prefix="brig-http-", dir="/tmp") as name:
        os.chmod(name, 0o755)
        yield pathlib.Path(name)


def test_a_unix_socket_serves_and_knows_its_peers(start, open_place):
    path = open_place / "brig.sock"
    s = start(f"listen=unix:{path}", "deny=700000:1000")
    with s.peer() as p:
        assert p.get("/hello", host="anything").status == 200
    assert path.stat().st_mode & 0o777 == 0o660
    path.chmod(0o666)
    assert status_as(0, "unix", path) == 200
    assert status_as(700005, "unix", path) == 403


def test_a_stale_socket_file_is_replaced_and_a_live_one_is_not(start, tmp_path):
    from harness import SERVER
    path = tmp_path / "brig.sock"
    leftover = socket.socket(socket.AF_UNIX)
    leftover.bind(str(path))
    leftover.close()
    start(f"listen=unix:{path}")
    second = subprocess.run([SERVER, f"listen=unix:{path}"], capture_output=True, text=True, timeout=WAIT)
    assert second.returncode == 1 and "in use" in second.stderr
    other = tmp_path / "file"
    other.write_text("mine")
    third = subprocess.run([SERVER, f"listen=unix:{other}"], capture_output=True, text=True, timeout=WAIT)
    assert third.returncode == 1 and other.read_text() == "mine"
