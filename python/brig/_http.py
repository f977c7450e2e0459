"""HTTP/1.1 for threads: connections are kept and shared, a whole answer is bounded. Thread-safe."""

from __future__ import annotations

import http.client
import json
import select
import socket
import threading
import time
import urllib.parse
from typing import Dict, List, Tuple

from ._effects import Answer, Exchange
from .errors import TransportError

ANSWER_MAX = 2 << 30  # bytes of one body
IDLE_MAX = 64  # connections kept per endpoint


class Target:
    """Where a base URL leads: http://HOST[:PORT][/PREFIX], https://..., or unix:/PATH of a socket."""

    def __init__(self, base_url: str) -> None:
        self.socket_path = ""
        if base_url.startswith("unix:"):
            self.scheme, self.host, self.port, self.prefix = "unix", "localhost", 0, ""
            self.socket_path = base_url[len("unix:"):].rstrip("/")
            return
        parts = urllib.parse.urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise TransportError(f"not an http, https or unix URL: {base_url!r}", sent=False)
        try:
            port = parts.port
        except ValueError as e:
            raise TransportError(f"bad port in {base_url!r}: {e}", sent=False) from e
        self.scheme, self.host = parts.scheme, parts.hostname
        self.port = port or (443 if parts.scheme == "https" else 80)
        self.prefix = parts.path.rstrip("/")

    @property
    def key(self) -> Tuple[str, str, int, str]:
        return (self.scheme, self.host, self.port, self.socket_path)

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port in (0, 443 if self.scheme == "https" else 80) else f"{host}:{self.port}"


def encode(x: Exchange) -> Tuple[bytes, Dict[str, str]]:
    """The body and the header fields of a request."""
    headers = {"Accept": "application/json", **x.headers}
    if x.body is None:
        return b"", headers
    return json.dumps(x.body).encode(), {"Content-Type": "application/json", **headers}


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Transport:
    """Keeps connections; one for the process is enough."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: Dict[Tuple[str, str, int, str], List[http.client.HTTPConnection]] = {}

    def exchange(self, x: Exchange) -> Answer:
        target = Target(x.base_url)
        body, headers = encode(x)
        connection = self._take(target)
        deadline = time.monotonic() + x.timeout
        try:
            if connection is None:
                connection = self._connect(target, x.timeout)
            assert connection.sock is not None
            connection.sock.settimeout(x.timeout)
            connection.request(x.method, target.prefix + x.path + x.query, body or None, headers)
            response = connection.getresponse()
            data = self._read(connection, response, deadline)
        except (OSError, http.client.HTTPException) as e:
            if connection is not None:
                connection.close()
            raise TransportError(str(e) or type(e).__name__) from e
        except BaseException:
            if connection is not None:
                connection.close()
            raise
        if response.will_close:
            connection.close()
        else:
            self._keep(target, connection)
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, data)

    def close(self) -> None:
        with self._lock:
            connections = [c for kept in self._idle.values() for c in kept]
            self._idle.clear()
        for c in connections:
            c.close()

    @staticmethod
    def _read(connection: http.client.HTTPConnection, response: http.client.HTTPResponse, deadline: float) -> bytes:
        """The body; a peer that drips cannot hold the caller beyond the deadline."""
        expected = response.length  # None: chunked, or until the end of the connection
        pieces: List[bytes] = []
        size = 0
        while expected is None or size < expected:
            left = deadline - time.monotonic()
            if left <= 0:
                raise socket.timeout("timed out")
            if connection.sock is not None:
                connection.sock.settimeout(left)
            piece = response.read1(min(1 << 20, (expected or ANSWER_MAX) - size) or 1)
            if not piece:
                break
            pieces.append(piece)
            size += len(piece)
            if size > ANSWER_MAX:
                raise http.client.HTTPException(f"answer over {ANSWER_MAX} bytes")
        if expected is not None and size < expected:  # what the head promised did not come
            raise http.client.IncompleteRead(b"", expected - size)
        response.close()
        return b"".join(pieces)

    @staticmethod
    def _connect(target: Target, timeout: float) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection
        if target.scheme == "unix":
            connection = _UnixConnection(target.socket_path, timeout)
        elif target.scheme == "https":
            connection = http.client.HTTPSConnection(target.host, target.port, timeout=timeout)
        else:
            connection = http.client.HTTPConnection(target.host, target.port, timeout=timeout)
        try:
            connection.connect()
        except OSError as e:
            connection.close()
            raise TransportError(str(e) or type(e).__name__, sent=False) from e
        if target.scheme != "unix":
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _take(self, target: Target) -> "http.client.HTTPConnection | None":
        while True:
            with self._lock:
                kept = self._idle.get(target.key)
                connection = kept.pop() if kept else None
            if connection is None:
                return None
            # A kept connection that is readable was closed by the peer while it rested (or says what nobody asked).
            if connection.sock is not None:
                look = select.poll()
                look.register(connection.sock, select.POLLIN)
                if not look.poll(0):
                    return connection
            connection.close()

    def _keep(self, target: Target, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            kept = self._idle.setdefault(target.key, [])
            if len(kept) < IDLE_MAX:
                kept.append(connection)
                return
        connection.close()
