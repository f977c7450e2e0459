"""Drives the HTTP test server over raw sockets: what is sent is exactly what stands in the test."""
import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ.get("BRIG_BUILD", "build"))
SERVER = (BUILD if BUILD.is_absolute() else ROOT / BUILD) / "tests/e2e/http_test_server"
WAIT = 60  # s: longer than anything here may take; reaching it fails the test


class Answer:
    def __init__(self, status, headers, body, raw_head):
        self.status, self.headers, self.body, self.raw_head = status, headers, body, raw_head

    def __repr__(self):
        return f"<{self.status} {self.headers} {self.body[:200]!r}>"


class Peer:
    """One connection. `send` is raw; `answer` reads one response, framed as RFC 9112 says."""

    def __init__(self, address):
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self.sock = socket.socket(family)
        self.sock.settimeout(WAIT)
        self.sock.connect(address)
        if family == socket.AF_INET:
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # what is sent apart should arrive apart
        self.buf = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def send(self, data):
        self.sock.sendall(data.encode() if isinstance(data, str) else data)
        return self

    def get(self, path, *headers, host="localhost"):
        lines = [f"GET {path} HTTP/1.1", f"Host: {host}", *headers, "", ""]
        return self.send("\r\n".join(lines)).answer()

    def post(self, path, body, *headers):
        lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *headers, "", ""]
        return self.send("\r\n".join(lines).encode() + body).answer()

    def more(self):
        data = self.sock.recv(65536)
        self.buf += data
        return bool(data)

    def until(self, mark):
        while mark not in self.buf:
            if not self.more():
                raise EOFError(f"connection ended after {self.buf[:300]!r}")
        head, self.buf = self.buf.split(mark, 1)
        return head

    def exactly(self, n):
        while len(self.buf) < n:
            if not self.more():
                raise EOFError(f"connection ended {n - len(self.buf)} bytes early")
        data, self.buf = self.buf[:n], self.buf[n:]
        return data

    def answer(self, head_only=False):
        raw = self.until(b"\r\n\r\n")
        lines = raw.decode("latin-1").split("\r\n")
        version, status, _ = lines[0].split(" ", 2)
        assert version == "HTTP/1.1", lines[0]
        headers = {}
        for line in lines[1:]:
            name, value = line.split(": ", 1)
            headers[name.lower()] = value
        status = int(status)
        if head_only or status in (204, 304) or status < 200:
            body = b""
        elif headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(self.until(b"\r\n"), 16):
                body += self.exactly(size)
                assert self.exactly(2) == b"\r\n"
            assert self.exactly(2) == b"\r\n"
        elif "content-length" in headers:
            body = self.exactly(int(headers["content-length"]))
        else:
            body = self.rest()
        return Answer(status, headers, body, raw)

    def rest(self):
        """Everything up to the end of the connection."""
        with contextlib.suppress(ConnectionResetError):
            while self.more():
                pass
        data, self.buf = self.buf, b""
        return data

    def closed(self):
        """Waits for the end of the connection; true if nothing else came."""
        return self.rest() == b""


class Server:
    def __init__(self, *options):
        listen = [] if any(o.startswith("listen=") for o in options) else ["listen=127.0.0.1:0"]
        self.process = subprocess.Popen([SERVER, *listen, *options], stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        assert line.startswith("port "), f"server did not start: {line!r}"
        self.port = int(line.split()[1])
        self.address = ("127.0.0.1", self.port)
        for option in options:
            if option.startswith("listen=unix:"):
                self.address = option.removeprefix("listen=unix:")

    def peer(self):
        return Peer(self.address)

    def counts(self):
        import json
        with self.peer() as p:
            return json.loads(p.get("/counts").body)

    def wait_counts(self, **want):
        """Asks until the server's counters are as wanted."""
        end = time.monotonic() + WAIT
        while True:
            have = self.counts()
            if all(have[k] == v for k, v in want.items()):
                return have
            assert time.monotonic() < end, f"{have} never became {want}"

    def rss_kib(self):
        for line in open(f"/proc/{self.process.pid}/status", encoding="ascii"):
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
        raise AssertionError("no VmRSS")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(WAIT)
        self.process.stdout.close()
        return status
