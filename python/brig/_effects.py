"""A call of the protocol is a generator that yields what it needs from the world, so that it is written once and run by
threads, by asyncio, and against a caller's own HTTP session alike:

    answer = yield Exchange(...)     an HTTP request and its whole answer; raises TransportError here when none came
    yield Rest(seconds)              time to pass
    now = yield Clock()              a monotonic time, in seconds
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Generator, Mapping, Optional, TypeVar, Union

T = TypeVar("T")


@dataclass(frozen=True)
class Exchange:
    method: str  # "GET", "POST" or "DELETE"
    base_url: str
    path: str  # from "/"
    timeout: float  # seconds for the whole exchange
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Optional[Mapping[str, Any]] = None  # sent as JSON
    query: str = ""  # what only our own transport adds: a caller's session sees the bare path


@dataclass(frozen=True)
class Rest:
    seconds: float


@dataclass(frozen=True)
class Clock:
    pass


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        return json.loads(self.body)


Effect = Union[Exchange, Rest, Clock]
Call = Generator[Effect, Any, T]
