"""One endpoint of a pool: what is known of its health and its room."""

from __future__ import annotations

import time
from typing import Optional

from ._calls import headers_of
from ._effects import Call, Exchange
from .errors import TransportError

PROBE_EVERY_S = 5.0  # of an endpoint that is well
PROBE_TIMEOUT_S = 5.0
DOWN_FIRST_S = 0.25  # rest after the first failure; doubles up to DOWN_MAX_S
DOWN_MAX_S = 30.0
SLOTS_UNKNOWN = 8  # work given at once to an endpoint that does not say how much it runs
AHEAD = 2  # work given to an endpoint, per slot: one runs, one waits in its queue


class Endpoint:
    def __init__(self, url: str, per_endpoint: Optional[int]) -> None:
        self.url = url
        self.fixed = per_endpoint
        self.slots: Optional[int] = None
        self.in_flight = 0
        self.down_until = 0.0  # monotonic; 0 = well
        self.failures = 0
        self.last_error: Optional[str] = None

    @property
    def capacity(self) -> int:
        if self.fixed is not None:
            return self.fixed
        return AHEAD * (self.slots or SLOTS_UNKNOWN)

    @property
    def free(self) -> int:
        return self.capacity - self.in_flight

    @property
    def well(self) -> bool:
        return self.down_until == 0.0

    def failed(self, why: str, rest: Optional[float] = None) -> None:
        """It did not answer, or asked for a rest; it gets nothing until a probe after that finds it well."""
        self.failures += 1
        self.last_error = why
        seconds = min(DOWN_FIRST_S * 2 ** min(self.failures - 1, 10), DOWN_MAX_S) if rest is None else min(rest, DOWN_MAX_S)
        self.down_until = time.monotonic() + seconds

    def next_probe(self) -> float:
        """Seconds until it should be asked again."""
        return PROBE_EVERY_S if self.well else max(0.0, self.down_until - time.monotonic())


def probe(endpoint: Endpoint, api_token: Optional[str]) -> Call[None]:
    """Asks how it is. An executor that does not know the question but answers is well."""
    x = Exchange("GET", endpoint.url, "/readyz", PROBE_TIMEOUT_S, headers_of(api_token))
    try:
        answer = yield x
    except TransportError as e:
        endpoint.failed(str(e))
        return
    if answer.status == 503:
        endpoint.failed(answer.text[:200])
        return
    try:
        slots = answer.json().get("slots") if answer.status == 200 else None
        endpoint.slots = slots if isinstance(slots, int) and slots > 0 else endpoint.slots
    except (ValueError, AttributeError):
        pass
    endpoint.failures, endpoint.down_until, endpoint.last_error = 0, 0.0, None
