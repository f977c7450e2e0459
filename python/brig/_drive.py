"""Runs a call (see _effects.py) to its end in this thread."""

from __future__ import annotations

import time
from typing import Any, Optional, TypeVar

from ._effects import Answer, Call, Clock, Effect, Exchange, Rest
from ._http import Transport
from .errors import TransportError

T = TypeVar("T")

_transport = Transport()


def drive(call: Call[T], session: Optional[Any] = None) -> T:
    """`session`: a caller's HTTP session, used by its get, post and delete; None = our own transport."""
    value: Any = None
    error: Optional[BaseException] = None
    while True:
        try:
            effect = call.send(value) if error is None else call.throw(error)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        value, error = None, None
        try:
            value = _perform(effect, session)
        except BaseException as e:  # the call decides, an interrupt included: it may have something to clean up
            error = e


def _perform(effect: Effect, session: Optional[Any]) -> Any:
    if isinstance(effect, Exchange):
        return _transport.exchange(effect) if session is None else _borrowed(effect, session)
    if isinstance(effect, Rest):
        time.sleep(effect.seconds)
        return None
    assert isinstance(effect, Clock)
    return time.monotonic()


def _borrowed(x: Exchange, session: Any) -> Answer:
    arguments: dict[str, Any] = {"headers": dict(x.headers), "timeout": x.timeout}
    if x.method == "POST":
        arguments["json"] = x.body
    try:
        response = getattr(session, x.method.lower())(x.base_url + x.path, **arguments)
        return _Borrowed(response)
    except Exception as e:  # whatever its library raises
        raise TransportError(str(e) or type(e).__name__) from e


class _Borrowed(Answer):
    """A response of somebody else's library: only .status_code, .text and .json() are asked for."""

    def __init__(self, response: Any) -> None:
        headers = getattr(response, "headers", None)
        try:
            names = {str(k).lower(): str(v) for k, v in dict(headers or {}).items()}
        except (TypeError, ValueError):
            names = {}
        super().__init__(int(response.status_code), names, b"")
        object.__setattr__(self, "_response", response)

    @property
    def text(self) -> str:
        return str(self._response.text)  # type: ignore[attr-defined]

    def json(self) -> Any:
        return self._response.json()  # type: ignore[attr-defined]
