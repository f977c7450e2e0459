"""HTTP/1.1 for asyncio: what _http.py is for threads. One event loop; connections are kept."""

from __future__ import annotations

import asyncio
import http.client
import io
from typing import Dict, List, Tuple

from ._effects import Answer, Exchange
from ._http import ANSWER_MAX, IDLE_MAX, Target, encode
from .errors import TransportError

HEAD_MAX = 64 * 1024  # bytes of an answer's head, and of a chunk's size line


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def fresh(self) -> bool:
        """Nothing came while it rested: neither an end nor what nobody asked for."""
        unread: bytes = getattr(self.reader, "_buffer", None) or b"" # StreamReader has no other way to ask
        return not (self.reader.at_eof() or self.writer.is_closing() or unread)

    def close(self) -> None:
        self.writer.close()


class AsyncTransport:
    def __init__(self) -> None:
        self._idle: Dict[Tuple[str, str, int, str], List[_Connection]] = {}

    async def exchange(self, x: Exchange) -> Answer:
        target = Target(x.base_url)
        try:
            return await asyncio.wait_for(self._exchange(target, x), x.timeout)
        except asyncio.TimeoutError as e:
            raise TransportError("timed out") from e

    def close(self) -> None:
        for kept in self._idle.values():
            for connection in kept:
                connection.close()
        self._idle.clear()

    async def _exchange(self, target: Target, x: Exchange) -> Answer:
        connection = self._take(target) or await self._connect(target, x.timeout)
        try:
            body, headers = encode(x)
            connection.writer.write(self._head(target, x, headers, len(body)) + body)
            await connection.writer.drain()
            answer, keep = await self._answer(connection.reader, x.method)
        except BaseException as e:
            connection.close()
            if isinstance(e, (OSError, EOFError, ValueError, http.client.HTTPException, asyncio.LimitOverrunError)):
                raise TransportError(str(e) or type(e).__name__) from e
            raise
        if keep and len(self._idle.setdefault(target.key, [])) < IDLE_MAX:
            self._idle[target.key].append(connection)
        else:
            connection.close()
        return answer

    def _take(self, target: Target) -> "_Connection | None":
        kept = self._idle.get(target.key, [])
        while kept:
            connection = kept.pop()
            if connection.fresh():
                return connection
            connection.close()
        return None

    @staticmethod
    async def _connect(target: Target, timeout: float) -> _Connection:
        try:
            if target.scheme == "unix":
                streams = asyncio.open_unix_connection(target.socket_path, limit=HEAD_MAX)
            else:
                streams = asyncio.open_connection(target.host, target.port, ssl=target.scheme == "https" or None, limit=HEAD_MAX)
            return _Connection(*await asyncio.wait_for(streams, timeout))
        except (OSError, asyncio.TimeoutError) as e:
            raise TransportError(str(e) or type(e).__name__, sent=False) from e

    @staticmethod
    def _head(target: Target, x: Exchange, headers: Dict[str, str], length: int) -> bytes:
        path = target.prefix + x.path + x.query
        lines = [f"{x.method} {path} HTTP/1.1", f"Host: {target.authority}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if length or x.method == "POST":
            lines.append(f"Content-Length: {length}")
        head = "\r\n".join(lines)
        if any(c in line for line in lines for c in "\r\n\0") or " " in path:
            raise ValueError("control character in a request")
        return head.encode("latin-1") + b"\r\n\r\n"

    async def _answer(self, reader: asyncio.StreamReader, method: str) -> Tuple[Answer, bool]:
        while True:
            head = io.BytesIO(await reader.readuntil(b"\r\n\r\n"))
            version, _, rest = head.readline().decode("latin-1").strip().partition(" ")
            if not version.startswith("HTTP/1."):
                raise http.client.BadStatusLine(version)
            status = int(rest.split(" ", 1)[0])
            fields = {k.lower(): v for k, v in http.client.parse_headers(head).items()}
            if status >= 200:
                break
        keep = version == "HTTP/1.1" and fields.get("connection", "").lower() != "close"
        if method == "HEAD" or status in (204, 304):
            return Answer(status, fields, b""), keep
        if "chunked" in fields.get("transfer-encoding", "").lower():
            return Answer(status, fields, await self._chunks(reader)), keep
        if "content-length" in fields:
            length = int(fields["content-length"])
            if not 0 <= length <= ANSWER_MAX:
                raise ValueError(f"answer of {length} bytes")
            return Answer(status, fields, await reader.readexactly(length)), keep
        return Answer(status, fields, await self._rest(reader)), False

    @staticmethod
    async def _chunks(reader: asyncio.StreamReader) -> bytes:
        pieces: List[bytes] = []
        size = 0
        while True:
            length = int((await reader.readuntil(b"\r\n")).split(b";", 1)[0], 16)
            size += length
            if length < 0 or size > ANSWER_MAX:
                raise ValueError(f"answer over {ANSWER_MAX} bytes")
            if length == 0:
                while await reader.readuntil(b"\r\n") != b"\r\n":
                    pass
                return b"".join(pieces)
            pieces.append(await reader.readexactly(length))
            if await reader.readexactly(2) != b"\r\n":
                raise ValueError("a chunk without its end")

    @staticmethod
    async def _rest(reader: asyncio.StreamReader) -> bytes:
        pieces: List[bytes] = []
        size = 0
        while True:
            piece = await reader.read(1 << 20)
            if not piece:
                return b"".join(pieces)
            size += len(piece)
            if size > ANSWER_MAX:
                raise ValueError(f"answer over {ANSWER_MAX} bytes")
            pieces.append(piece)
