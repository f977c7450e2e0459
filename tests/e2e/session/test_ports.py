"""Servers inside a session, reached from outside."""
import base64
import hashlib
import http.client
import json
import os
import pathlib
import socket
import sys
import threading

import pytest
from brigd import Daemon, until
from session_client import Session

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "http"))

from harness import Peer  # noqa: E402
from ws import BINARY, TEXT, WebSocket  # noqa: E402

SERVER = r'''
import base64, hashlib, http.server, json, socketserver, sys, time

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def say(self, body, status=200, **headers):
        self.send_response(status)
        for k, v in headers.items():
            self.send_header(k.replace("_", "-"), v)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def seen(self):
        self.say(json.dumps({"method": self.command, "path": self.path, "headers": {k.lower(): v for k, v in self.headers.items()}}).encode(),
                 Content_Type="application/json", Keep_Alive="timeout=5", Strict_Transport_Security="max-age=1", X_App="yes")

    def do_GET(self):
        if self.headers.get("Upgrade") == "websocket":
            return self.websocket()
        if self.path.startswith("/chunks"):
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for i in range(100):
                self.wfile.write(b"%x\r\n%s\r\n" % (10000, b"c" * 10000))
            self.wfile.write(b"0\r\n\r\n")
        elif self.path == "/until-close":
            self.wfile.write(b"HTTP/1.0 200 OK\r\n\r\nto the end")
            self.close_connection = True
        elif self.path == "/redirect":
            self.say(b"", 302, Location="/login?next=1")
        elif self.path == "/cookies":
            self.send_response(204)
            for cookie in "a=1", "b=2; Path=/app; HttpOnly", "c=3; domain=localhost; path=/; Max-Age=9", "d=4; Path=x;;; Secure", "e=5; Path=/../../../../", "f":
                self.send_header("Set-Cookie", cookie)
            self.end_headers()
        elif self.path == "/broken":
            self.wfile.write(b"what is HTTP?\r\n\r\n")
            self.close_connection = True
        elif self.path == "/cut":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this")
            self.close_connection = True
        elif self.path == "/nothing":
            self.send_response(204)
            self.end_headers()
        elif self.path == "/endless-head":
            self.wfile.write(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 5000 + b"\r\n")
            self.close_connection = True
        elif self.path == "/early":
            self.wfile.write(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
            self.say(b"then this")
        else:
            self.seen()
    do_HEAD = do_DELETE = do_OPTIONS = do_PATCH = do_GET

    def do_PUT(self):
        h, n = hashlib.sha256(), 0
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                data = self.rfile.read(size)
                h.update(data), self.rfile.readline()
                n += size
            self.rfile.readline()
        else:
            left = int(self.headers["Content-Length"])
            while left:
                data = self.rfile.read(min(left, 1 << 16))
                h.update(data)
                n += len(data)
                left -= len(data)
        self.say(b"%d %s" % (n, h.hexdigest().encode()))

    do_POST = do_PUT

    def websocket(self):
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()
        self.close_connection = True
        while True:  # unmasks and sends back
            head = self.rfile.read(2)
            if len(head) < 2:
                return
            n, more = head[1] & 127, b""
            if n == 126:
                more = self.rfile.read(2)
                n = int.from_bytes(more, "big")
            mask = self.rfile.read(4)
            data = self.rfile.read(n)
            data = bytes(b ^ mask[i % 4] for i, b in enumerate(data))
            self.wfile.write(head[:1] + bytes([head[1] & 127]) + more + data)
            if head[0] & 15 == 8:
                return

class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    if ":" in sys.argv[1]:
        import socket
        address_family = socket.AF_INET6
    def server_bind(self):
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "x", 1

Server((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
'''


class Served(Session):
    """A session in which the server runs."""

    def serve(self, address="127.0.0.1", port=8000):
        text = base64.b64encode(SERVER.encode()).decode()
        self.out(f"echo {text} | base64 -d > /tmp/server.py; (setsid python3 /tmp/server.py {address} {port} >/tmp/server.log 2>&1 &)")
        until(lambda: self.port_call("GET", "/", port=port).status == 200, "the server inside answers")
        return self

    def port_path(self, path, port=8000):
        return f"/v1/sessions/{self.id}/ports/{port}{path}"

    def port_call(self, method, path, body=None, port=8000, **headers):
        return self.daemon.call(method, self.port_path(path, port), body, {k.replace("_", "-"): v for k, v in headers.items()})


@pytest.fixture(scope="module")
def inside(daemon):
    s = Served(daemon).ready()
    yield s.serve()
    s.delete()


def test_a_request_is_handed_on_and_answered(inside):
    a = inside.port_call("GET", "/a%20b/c?x=1&y=%2f", X_Mine="1", Cookie="a=b")
    assert a.status == 200
    seen = a.json
    assert (seen["method"], seen["path"]) == ("GET", "/a%20b/c?x=1&y=%2f")
    headers = seen["headers"]
    assert headers["host"] == "localhost:8000"
    assert headers["x-forwarded-prefix"] == inside.port_path("")
    assert headers["x-forwarded-host"] == f"{inside.daemon.host}:{inside.daemon.port}"
    assert (headers["x-mine"], headers["cookie"]) == ("1", "a=b")
    assert a.headers["x-app"] == "yes"
    assert a.headers["content-type"] == "application/json"
    assert a.headers["content-security-policy"].startswith("sandbox ")


@pytest.mark.parametrize("method", ["DELETE", "OPTIONS", "PATCH"])
def test_every_method_goes_through(inside, method):
    assert inside.port_call(method, "/").json["method"] == method


def test_head_has_the_length_and_no_body(inside):
    a = inside.port_call("HEAD", "/")
    assert (a.status, a.body) == (200, b"")
    assert int(a.headers["content-length"]) > 0


def test_hop_by_hop_fields_stay_on_their_hop(inside):
    a = inside.port_call("GET", "/", TE="trailers", Keep_Alive="1", X_Hop="secret", Connection="X-Hop, keep-alive", Proxy_Authorization="x")
    assert not {"te", "keep-alive", "x-hop", "proxy-authorization"} & set(a.json["headers"])
    assert a.json["headers"]["connection"] == "close"
    assert "keep-alive" not in a.headers
    assert "strict-transport-security" not in a.headers


def test_the_daemons_credentials_never_go_inside(inside):
    assert "authorization" not in inside.port_call("GET", "/", Authorization="Bearer anything").json["headers"]


def test_answers_in_chunks_or_up_to_the_end_are_whole(inside):
    assert inside.port_call("GET", "/chunks").body == b"c" * 1000000
    assert inside.port_call("GET", "/until-close").body == b"to the end"
    assert inside.port_call("GET", "/nothing").status == 204
    assert inside.port_call("GET", "/early").body == b"then this"


def test_bodies_of_any_framing_are_handed_on(inside):
    data = os.urandom(3 << 20)
    want = f"{len(data)} {hashlib.sha256(data).hexdigest()}".encode()
    assert inside.port_call("PUT", "/", data).body == want
    c = http.client.HTTPConnection(inside.daemon.host, inside.daemon.port, timeout=60)
    c.request("PUT", inside.port_path("/"), (data[i:i + 100000] for i in range(0, len(data), 100000)), encode_chunked=True,
              headers={"Transfer-Encoding": "chunked"})
    assert c.getresponse().read() == want
    c.close()


def test_a_redirect_stays_behind_the_prefix(inside):
    a = inside.port_call("GET", "/redirect")
    assert (a.status, a.headers["location"]) == (302, inside.port_path("/login?next=1"))


def test_cookies_stay_behind_the_prefix(inside):
    a = inside.port_call("GET", "/cookies")
    here = inside.port_path("")
    assert a.headers.get_all("set-cookie") == [f"a=1; Path={here}/", f"b=2; HttpOnly; Path={here}/app", f"c=3; Max-Age=9; Path={here}/", f"d=4; Secure; Path={here}/",
                                               f"e=5; Path={here}/../../../../", f"f; Path={here}/"]


@pytest.mark.parametrize("path", ["/broken", "/endless-head"])
def test_what_is_not_http_is_a_502(inside, path):
    a = inside.port_call("GET", path)
    assert (a.status, a.json["error"]["code"]) == (502, "port_failed")


def test_an_answer_that_breaks_off_breaks_off_here(inside):
    with pytest.raises(http.client.IncompleteRead):
        inside.port_call("GET", "/cut")


def test_where_nothing_listens_is_a_502_that_says_so(inside):
    a = inside.port_call("GET", "/", port=8001)
    assert (a.status, a.json["error"]["code"]) == (502, "port_refused")
    assert "nothing listens" in a.json["error"]["message"]


@pytest.mark.parametrize("port", ["0", "65536", "http", "-1", "08000"])
def test_what_is_no_port_is_a_400(inside, port):
    assert inside.port_call("GET", "/", port=port).status == 400


def test_a_session_that_is_not_there_is_a_404(daemon):
    a = daemon.call("GET", "/v1/sessions/no-such/ports/80/")
    assert (a.status, a.json["error"]["code"]) == (404, "not_found")


def test_a_websocket_inside_is_reached(inside):
    with Peer((inside.daemon.host, inside.daemon.port)) as p:
        ws = WebSocket(p, inside.port_path("/socket"))
        assert ws.answer.status == 101
        assert ws.send(TEXT, "hello").receive() == (TEXT, b"hello")
        data = os.urandom(60000)
        assert ws.send(BINARY, data).receive() == (BINARY, data)
        assert ws.close(1000) == (1000, "")
        assert p.closed()


def test_many_at_once(inside):
    bad = []

    def talk(i):
        for k in range(5):
            a = inside.port_call("GET", f"/{i}/{k}")
            if a.status != 200 or a.json["path"] != f"/{i}/{k}":
                bad.append((i, k, a))

    threads = [threading.Thread(target=talk, args=(i,)) for i in range(40)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not bad


def test_a_server_on_ipv6_only_is_reached(inside):
    inside.serve("::1", 8006)
    assert inside.port_call("GET", "/six", port=8006).json["path"] == "/six"


def test_the_hosts_own_ports_are_not_reached(inside):
    assert inside.port_call("GET", "/healthz", port=inside.daemon.port).status == 502


def test_a_session_that_ends_ends_its_connections(daemon):
    s = Served(daemon).ready().serve()
    with Peer((daemon.host, daemon.port)) as p:
        ws = WebSocket(p, s.port_path("/socket"))
        assert ws.send(TEXT, "x").receive() == (TEXT, b"x")
        assert s.delete().status == 200
        assert p.closed()
    assert s.port_call("GET", "/").status == 404


def test_a_client_that_vanishes_lets_the_session_go(daemon):
    s = Served(daemon).ready().serve()
    p = Peer((daemon.host, daemon.port))
    ws = WebSocket(p, s.port_path("/socket"))
    assert ws.send(TEXT, "x").receive() == (TEXT, b"x")
    p.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset, not a farewell
    p.sock.close()
    until(lambda: "ESTAB" not in s.out("cat /proc/net/tcp | awk 'NR>1 && $4==\"01\" {print \"ESTAB\"}'"), "the connection inside ends")
    assert s.delete().status == 200


def test_a_large_upload_and_download_cost_constant_memory(inside):
    d = inside.daemon
    inside.port_call("GET", "/")
    before, n, piece = d.usage(), 64 << 20, bytes(1 << 20)
    c = http.client.HTTPConnection(d.host, d.port, timeout=60)
    c.request("PUT", inside.port_path("/"), (piece for _ in range(n // len(piece))), headers={"Content-Length": str(n)})
    assert c.getresponse().read().split()[0] == str(n).encode()
    assert d.usage() - before < 8 << 20
    c.close()


def test_the_ports_own_token():
    with Daemon(API_TOKEN="daemons") as d:
        bearer = {"Authorization": "Bearer daemons"}
        plain = d.call
        d.call = lambda method, path, body=None, headers=(), **more: plain(method, path, body, {**bearer, **dict(headers)}, **more)
        s = Served(d).ready().serve()
        answer = d.call("POST", f"/v1/sessions/{s.id}/ports", {"port": 8000})
        assert answer.status == 200
        token, url = answer.json["token"], answer.json["url"]
        assert url == s.port_path("/")
        assert plain("GET", url).status == 401
        assert plain("GET", url + "?token=" + "0" * 32).status == 401
        assert plain("GET", url, headers={"X-Brig-Port-Token": token[:-1]}).status == 401
        a = plain("GET", url + f"app?a=1&token={token}&b=2")
        assert (a.status, a.json["path"]) == (200, "/app?a=1&b=2")
        a = plain("GET", url, headers={"X-Brig-Port-Token": token})
        assert a.status == 200
        assert token not in json.dumps(a.json)
        assert plain("GET", s.port_path("/", 8001) + f"?token={token}").status == 401, "of another port"
        assert plain("GET", f"/v1/sessions/{s.id}?token={token}").status == 401, "for ports only"
        a = plain("GET", url, headers=bearer)
        assert a.status == 200
        assert "daemons" not in a.body.decode()
        for body in ({}, {"port": 0}, {"port": 70000}, {"port": "x"}):
            assert d.call("POST", f"/v1/sessions/{s.id}/ports", body).status == 400
        assert s.delete().status == 200
