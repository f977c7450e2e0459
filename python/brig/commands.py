"""Background commands of a session, through Brig's native API: started, and their output followed as it comes.

    from brig import start_command, follow_command
    command = start_command(url, session_id, "make test")
    for item in follow_command(url, session_id, command):
        if item.stream == "exit":
            print("ended with", item.exit_code)
        else:
            sys.stdout.buffer.write(item.data)

Arguments that brig.executor's functions have too mean the same. A connection that is lost is made again, and goes on where it broke off: nothing is
missed and nothing comes twice. `afollow_command` is the same for asyncio; each takes a thread while it is followed.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import socket
import threading
import time
from dataclasses import dataclass
from typing import Any, AsyncIterator, Dict, Iterator, List, Optional, Tuple, Union
from urllib.parse import quote

from . import _calls
from ._drive import drive
from ._effects import Answer, Exchange
from ._http import Target, Transport
from .errors import TaskExecutorError, TransportError

SILENCE_S = 60.0  # the daemon says something every 15 s
LINE_MAX = 1 << 20  # bytes of one line of a stream


@dataclass(frozen=True)
class CommandOutput:
    stream: str  # "stdout" or "stderr"
    data: bytes


@dataclass(frozen=True)
class CommandExit:
    exit_code: int
    timed_out: bool
    oom: bool
    output_limit: bool
    session_ended: bool
    stream: str = "exit"


CommandItem = Union[CommandOutput, CommandExit]


def start_command(
    base_url: str,
    session_id: str,
    command: str,
    *,
    timeout: Optional[float] = None,
    cwd: Optional[str] = None,
    login: bool = True,
    api_token: Optional[str] = None,
    request_timeout: float = 30.0,
) -> int:
    """Runs a command under bash -lc (login=False: bash -c) in the background; its id. timeout: None = none. Never sent twice."""
    body: Dict[str, Any] = {"command": command, "login": login}
    if timeout is not None:
        body["timeout_s"] = timeout
    if cwd is not None:
        body["cwd"] = cwd
    what = f"start a command in session {session_id} at {base_url}"
    path = f"/v1/sessions/{quote(session_id, safe='')}/commands"
    x = Exchange("POST", _calls.base_of(base_url), path, request_timeout, _calls.headers_of(api_token), body)

    def call() -> "_calls.Call[int]":
        answer = yield from _calls.exchange(x, what)
        value = _calls.json_object(_calls.expect(answer, 201, what), what).get("id")
        if not isinstance(value, int):
            raise TaskExecutorError(f"{what}: the answer has no id", status=answer.status)
        return value

    return drive(call())


def follow_command(
    base_url: str,
    session_id: str,
    command: int,
    *,
    stream: Optional[str] = None,
    offset: int = 0,
    api_token: Optional[str] = None,
    request_timeout: float = 30.0,
) -> Iterator[CommandItem]:
    """What the command has written from byte `offset` on (negative: from the end), then what it writes, then its end, which is a
    CommandExit and the last item. stream: "stdout" or "stderr", None = both, each in its own order."""
    yield from _Following(base_url, session_id, command, stream, offset, api_token, request_timeout)


async def afollow_command(base_url: str, session_id: str, command: int, **options: Any) -> AsyncIterator[CommandItem]:
    """As follow_command, for asyncio."""
    following = _Following(base_url, session_id, command, options.pop("stream", None), options.pop("offset", 0),
                           options.pop("api_token", None), options.pop("request_timeout", 30.0))
    if options:
        raise TypeError(f"unknown arguments: {', '.join(options)}")
    items = iter(following)
    loop = asyncio.get_running_loop()
    try:
        while True:
            item = await loop.run_in_executor(None, next, items, None)
            if item is None:
                return
            yield item
    finally:
        following.close()


class _Following:
    def __init__(self, base_url: str, session_id: str, command: int, stream: Optional[str], offset: int, api_token: Optional[str],
                 request_timeout: float) -> None:
        self._base, self._timeout, self._headers = _calls.base_of(base_url), request_timeout, _calls.headers_of(api_token)
        self._path = f"/v1/sessions/{quote(session_id, safe='')}/commands/{int(command)}/output?follow=true&encoding=base64&offset={int(offset)}"
        if stream is not None:
            self._path += f"&stream={quote(stream, safe='')}"
        self._what = f"follow command {command} of session {session_id} at {base_url}"
        self._last = ""  # id of the last event
        self._lock = threading.Lock()
        self._closed = False
        self._sock: Optional[socket.socket] = None

    def close(self) -> None:
        """From any thread: ends a wait in another."""
        with self._lock:
            self._closed = True
            if self._sock is not None:
                try:
                    self._sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def __iter__(self) -> Iterator[CommandItem]:
        rest, lost_at = _calls.RETRY_FIRST_S, None
        while not self._closed:
            try:
                for item in self._read():
                    yield item
                    rest, lost_at = _calls.RETRY_FIRST_S, None
                    if isinstance(item, CommandExit):
                        return
                raise TransportError("the stream broke off")
            except (OSError, http.client.HTTPException, TransportError) as e:
                if self._closed:
                    return
                lost_at = lost_at or time.monotonic()
                if time.monotonic() - lost_at > _calls.UNREACHABLE_MAX_S:
                    raise TaskExecutorError(f"{self._what}: {e}") from e
            time.sleep(rest)
            rest = min(2 * rest, 2.0)

    def _read(self) -> Iterator[CommandItem]:
        """One connection."""
        target = Target(self._base)
        connection = Transport._connect(target, self._timeout)
        sock = connection.sock
        with self._lock:
            self._sock = sock
        try:
            headers = {"Accept": "text/event-stream", **self._headers, **({"Last-Event-ID": self._last} if self._last else {})}
            connection.request("GET", target.prefix + self._path, headers=headers)
            response = connection.getresponse()
            if response.status != 200:
                names = {k.lower(): v for k, v in response.getheaders()}
                _calls.expect(Answer(response.status, names, response.read(_calls.TEXT_MAX * 4)), 200, self._what)
            sock.settimeout(SILENCE_S)
            for name, identity, data in _events(response):
                item = self._item(name, data)
                self._last = identity or self._last
                if item is not None:
                    yield item
        finally:
            with self._lock:
                self._sock = None
            connection.close()

    def _item(self, name: str, data: str) -> Optional[CommandItem]:
        if name not in ("stdout", "stderr", "exit"):
            return None
        try:
            value = json.loads(data)
            if name != "exit":
                return CommandOutput(name, base64.b64decode(value["data"], validate=True))
            flags = [bool(value.get(k)) for k in ("timed_out", "oom", "output_limit", "session_ended")]
            return CommandExit(int(value["exit_code"]), *flags)
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            raise TaskExecutorError(f"{self._what}: an event cannot be read: {data[:200]}") from e


def _events(response: http.client.HTTPResponse) -> Iterator[Tuple[str, str, str]]:
    name, identity, data = "", "", []  # type: str, str, List[str]
    while True:
        line = response.readline(LINE_MAX)
        if not line:
            return
        if not line.endswith(b"\n"):
            raise http.client.HTTPException("a line of the stream is too long, or cut")
        text = line.rstrip(b"\r\n").decode("utf-8", "replace")
        if not text:
            if data:
                yield name or "message", identity, "\n".join(data)
            name, identity, data = "", "", []
            continue
        field, _, value = text.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if field == "event":
            name = value
        elif field == "id":
            identity = value
        elif field == "data":
            data.append(value)
