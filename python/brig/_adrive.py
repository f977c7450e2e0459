"""Runs a call (see _effects.py) to its end as a coroutine."""

from __future__ import annotations

import asyncio
import time
import weakref
from typing import Any, Optional, TypeVar

from ._ahttp import AsyncTransport
from ._effects import Call, Clock, Effect, Exchange, Rest

T = TypeVar("T")

#: Connections belong to their event loop, and go with it.
_transports: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncTransport]" = weakref.WeakKeyDictionary()


def transport_of_loop() -> AsyncTransport:
    return _transports.setdefault(asyncio.get_running_loop(), AsyncTransport())


async def adrive(call: Call[T], transport: Optional[AsyncTransport] = None) -> T:
    value: Any = None
    error: Optional[BaseException] = None
    carrier = transport or transport_of_loop()
    while True:
        try:
            effect = call.send(value) if error is None else call.throw(error)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        value, error = None, None
        try:
            value = await _perform(effect, carrier)
        except BaseException as e:  # the call decides, a cancellation included: it may have something to clean up
            error = e


async def _perform(effect: Effect, carrier: AsyncTransport) -> Any:
    if isinstance(effect, Exchange):
        return await carrier.exchange(effect)
    if isinstance(effect, Rest):
        await asyncio.sleep(effect.seconds)
        return None
    assert isinstance(effect, Clock)
    return time.monotonic()
