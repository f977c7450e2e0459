"""What can go wrong, as exceptions."""

from __future__ import annotations

from typing import Optional


class TaskExecutorError(RuntimeError):
    """An endpoint cannot be reached, answered with an error, or did not finish in time.

    status: the HTTP status of the answer, None where there was none.
    retry_after: seconds the endpoint asked to wait (503), None where it did not say.
    """

    def __init__(self, message: str, *, status: Optional[int] = None, retry_after: Optional[float] = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class TransportError(Exception):
    """No whole answer came: refused, cut, timed out, or not HTTP.

    sent: False when certainly nothing of the request reached the endpoint, so that it may be sent again whatever it is.
    """

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent
