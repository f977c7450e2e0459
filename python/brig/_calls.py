"""The task executor's protocol, call by call, as generators (see _effects.py).

`native`: our own transport runs the call, so it may ask the endpoint to hold an answer back (?wait=) and may send again what
is safe to send twice. With a caller's own session every request is exactly the reference client's, and nothing is repeated.
"""

from __future__ import annotations

import os
import uuid
from typing import Any, Dict, List, Mapping, Optional, cast

from ._effects import Answer, Call, Clock, Exchange, Rest
from .errors import TaskExecutorError, TransportError
from .bodies import ExecResult, FinishResult, SessionStartSpec, TaskResult, TaskSpec

TOKEN_VARIABLES = ("BRIG_API_TOKEN", "DOCKYARD_SANDBOX_API_TOKEN")
TEXT_MAX = 512  # characters of an answer quoted in an error
WAIT_S = 20.0  # an answer is held back at most this long
TRIES = 3  # of an exchange that may be repeated
RETRY_FIRST_S = 0.1  # rest before the second try; doubles
UNREACHABLE_MAX_S = 30.0  # how long a poll forgives an endpoint that does not answer: a restart
POLL_FIRST_S = 0.02  # rest between polls where the endpoint does not hold back; doubles up to poll_interval


def headers_of(api_token: Optional[str]) -> Dict[str, str]:
    token = api_token
    if token is None:
        token = next((os.environ[v] for v in TOKEN_VARIABLES if os.environ.get(v)), "")
    return {"Authorization": f"Bearer {token}"} if token else {}


def base_of(base_url: str) -> str:
    return base_url.rstrip("/")


def _retry_after(answer: Answer) -> Optional[float]:
    try:
        return max(0.0, float(answer.headers.get("retry-after", "")))
    except ValueError:
        return None


def expect(answer: Answer, status: int, what: str) -> Answer:
    if answer.status == status:
        return answer
    raise TaskExecutorError(
        f"{what}: HTTP {answer.status}: {answer.text[:TEXT_MAX]}", status=answer.status, retry_after=_retry_after(answer)
    )


def json_object(answer: Answer, what: str) -> Dict[str, Any]:
    try:
        value = answer.json()
    except ValueError as e:
        raise TaskExecutorError(f"{what}: the answer is not JSON: {answer.text[:TEXT_MAX]}", status=answer.status) from e
    if not isinstance(value, dict):
        raise TaskExecutorError(f"{what}: the answer is not an object: {answer.text[:TEXT_MAX]}", status=answer.status)
    return value


def _member(answer: Answer, name: str, what: str) -> str:
    value = json_object(answer, what).get(name)
    if not isinstance(value, str) or not value:
        raise TaskExecutorError(f"{what}: the answer has no {name}: {answer.text[:TEXT_MAX]}", status=answer.status)
    return value


def exchange(x: Exchange, what: str, tries: int = 1) -> Call[Answer]:
    """The answer; asked for up to `tries` times. A request that certainly never left may always be sent again."""
    rest, attempt = RETRY_FIRST_S, 0
    while True:
        attempt += 1
        try:
            return cast(Answer, (yield x))
        except TransportError as e:
            if attempt >= (tries if e.sent else TRIES):
                raise TaskExecutorError(f"{what}: {e}") from e
        yield Rest(rest)
        rest *= 2


# ---- tasks ---------------------------------------------------------------------------------------------------------------


def submit_task(base_url: str, spec: TaskSpec, api_token: Optional[str], request_timeout: float, native: bool) -> Call[str]:
    what = f"submit to {base_url}"
    headers = headers_of(api_token)
    ours = native and not spec.get("idempotency_key")
    if ours:
        headers["Idempotency-Key"] = str(uuid.uuid4())
    x = Exchange("POST", base_of(base_url), "/task/submit", request_timeout, headers, dict(spec))
    try:
        answer = yield from exchange(x, what, TRIES if native else 1)
    except (GeneratorExit, TaskExecutorError):
        raise
    except BaseException:  # given up while the answer was on its way: the task may be there, and nobody knows its name
        if ours:
            yield from _withdraw(x, api_token)
        raise
    return _member(expect(answer, 202, what), "task_id", what)


def _withdraw(x: Exchange, api_token: Optional[str]) -> Call[None]:
    """Deletes what was submitted under a key of ours: by the same key the endpoint tells its name."""
    try:
        answer = yield from exchange(x, "withdraw")
        yield from delete_task(x.base_url, _member(answer, "task_id", "withdraw"), api_token, x.timeout)
    except TaskExecutorError:
        pass


def get_result(
    base_url: str, task_id: str, api_token: Optional[str], request_timeout: float, wait: float = 0.0, tries: int = 1
) -> Call[Optional[TaskResult]]:
    what = f"result of task {task_id} at {base_url}"
    query = f"?wait={wait:g}" if wait > 0 else ""
    x = Exchange("GET", base_of(base_url), f"/task/{task_id}/result", request_timeout + wait, headers_of(api_token), query=query)
    answer = yield from exchange(x, what, tries)
    if answer.status == 202:
        return None
    return cast(TaskResult, json_object(expect(answer, 200, what), what))


def delete_task(base_url: str, task_id: str, api_token: Optional[str], request_timeout: float) -> Call[None]:
    x = Exchange("DELETE", base_of(base_url), f"/task/{task_id}", request_timeout, headers_of(api_token))
    try:
        yield from exchange(x, "delete")
    except TaskExecutorError:
        pass


class Poll:
    """When to ask again. Native: the endpoint holds the answer back; one that does not is asked at growing intervals."""

    def __init__(self, poll_interval: float, native: bool, deadline: float, start: float) -> None:
        self.interval, self.native, self.deadline = poll_interval, native, deadline
        self.rest = min(POLL_FIRST_S, poll_interval) if native else poll_interval
        self.asked = self.answered = start

    def wait(self) -> float:
        return min(WAIT_S, max(0.0, self.deadline - self.asked)) if self.native else 0.0

    def pause(self, held: float) -> float:
        """Seconds to rest after an answer that says `not yet` and took `held` seconds."""
        if self.native and held >= min(1.0, self.wait() / 2) > 0:
            return 0.0
        rest = min(self.rest, max(0.0, self.deadline - self.answered) or self.rest)
        self.rest = min(self.rest * 2, self.interval) if self.native else self.interval
        return rest


def wait_result(
    base_url: str,
    task_id: str,
    api_token: Optional[str],
    poll_interval: float,
    overall_timeout: float,
    native: bool,
    grace: float = UNREACHABLE_MAX_S,
) -> Call[TaskResult]:
    start = cast(float, (yield Clock()))
    poll = Poll(poll_interval, native, start + overall_timeout, start)
    while True:
        poll.asked = cast(float, (yield Clock()))
        try:
            result = yield from get_result(base_url, task_id, api_token, 30.0, poll.wait())
        except TaskExecutorError as e:
            now = cast(float, (yield Clock()))
            forgiven = native and (e.status is None or e.status == 503)
            if not forgiven or now - poll.answered > grace or now >= poll.deadline:
                raise
            yield Rest(min(e.retry_after or 1.0, 5.0, grace or 1.0))
            continue
        if result is not None:
            return result
        poll.answered = cast(float, (yield Clock()))
        if poll.answered >= poll.deadline:
            raise TaskExecutorError(f"task {task_id} did not finish within {overall_timeout:.0f}s")
        pause = poll.pause(poll.answered - poll.asked)
        if pause > 0:
            yield Rest(pause)


def task_timeout(spec: TaskSpec) -> float:
    """How long a task may take in all: its command's time, set-up and pull, and two minutes for the rest."""
    seconds = float(spec.get("timeout") or 300) + 120.0
    if spec.get("mode") == "image" or spec.get("image"):
        seconds += float(spec.get("pull_timeout") or 1800)
    if spec.get("setup_command"):
        seconds += float(spec.get("setup_timeout") or 1800)
    return seconds


def run_task(
    base_url: str,
    spec: TaskSpec,
    api_token: Optional[str],
    poll_interval: float,
    overall_timeout: Optional[float],
    cleanup: bool,
    native: bool,
    grace: float = UNREACHABLE_MAX_S,
) -> Call[TaskResult]:
    limit = task_timeout(spec) if overall_timeout is None else overall_timeout
    task_id = yield from submit_task(base_url, spec, api_token, 30.0, native)
    try:
        result = yield from wait_result(base_url, task_id, api_token, poll_interval, limit, native, grace)
    except GeneratorExit:  # the caller is gone: nothing more can be asked for here, the driver cleans up
        raise
    except BaseException:
        if cleanup:
            yield from delete_task(base_url, task_id, api_token, 30.0)
        raise
    if cleanup:
        yield from delete_task(base_url, task_id, api_token, 30.0)
    return result


# ---- sessions ------------------------------------------------------------------------------------------------------------


def get_session_status(
    base_url: str, session_id: str, api_token: Optional[str], request_timeout: float, wait: float = 0.0
) -> Call[Dict[str, Any]]:
    what = f"status of session {session_id} at {base_url}"
    query = f"?wait={wait:g}" if wait > 0 else ""
    x = Exchange("GET", base_of(base_url), f"/session/{session_id}", request_timeout + wait, headers_of(api_token), query=query)
    answer = yield from exchange(x, what)
    return json_object(expect(answer, 200, what), what)


def delete_session(base_url: str, session_id: str, api_token: Optional[str], request_timeout: float) -> Call[None]:
    x = Exchange("DELETE", base_of(base_url), f"/session/{session_id}", request_timeout, headers_of(api_token))
    try:
        yield from exchange(x, "delete")
    except TaskExecutorError:
        pass


def start_session(
    base_url: str,
    spec: SessionStartSpec,
    api_token: Optional[str],
    poll_interval: float,
    overall_timeout: Optional[float],
    request_timeout: float,
    native: bool,
) -> Call[str]:
    what = f"session start at {base_url}"
    if overall_timeout is None:
        first = spec.get("build_timeout") if spec.get("mode") == "build" else spec.get("pull_timeout")
        overall_timeout = float(first or 1800) + 120.0
    headers = headers_of(api_token)
    if native and not spec.get("idempotency_key"):
        headers["Idempotency-Key"] = str(uuid.uuid4())
    x = Exchange("POST", base_of(base_url), "/session/start", request_timeout, headers, dict(spec))
    answer = yield from exchange(x, what, TRIES if native else 1)
    session_id = _member(expect(answer, 202, what), "session_id", what)
    try:
        yield from _wait_ready(base_url, session_id, api_token, poll_interval, overall_timeout, native)
    except GeneratorExit:
        raise
    except BaseException:
        yield from delete_session(base_url, session_id, api_token, 30.0)
        raise
    return session_id


def _wait_ready(
    base_url: str, session_id: str, api_token: Optional[str], poll_interval: float, overall_timeout: float, native: bool
) -> Call[None]:
    start = cast(float, (yield Clock()))
    poll = Poll(poll_interval, native, start + overall_timeout, start)
    while True:
        poll.asked = cast(float, (yield Clock()))
        record = yield from get_session_status(base_url, session_id, api_token, 30.0, poll.wait())
        status = record.get("status")
        if status == "ready":
            return
        if status == "failed":
            raise TaskExecutorError(f"session {session_id} failed to start: {record.get('error')}")
        poll.answered = cast(float, (yield Clock()))
        if poll.answered >= poll.deadline:
            raise TaskExecutorError(f"session {session_id} not ready within {overall_timeout:.0f}s")
        pause = poll.pause(poll.answered - poll.asked)
        if pause > 0:
            yield Rest(pause)


def _session_post(
    base_url: str, session_id: str, call: str, body: Mapping[str, Any], api_token: Optional[str], request_timeout: float
) -> Call[Dict[str, Any]]:
    """Not repeated: it may have begun."""
    what = f"session {call} in {session_id} at {base_url}"
    x = Exchange("POST", base_of(base_url), f"/session/{session_id}/{call}", request_timeout, headers_of(api_token), body)
    answer = yield from exchange(x, what)
    return json_object(expect(answer, 200, what), what)


def session_exec(
    base_url: str,
    session_id: str,
    command: str,
    timeout: int,
    cwd: Optional[str],
    output_limit: Optional[int],
    api_token: Optional[str],
    request_timeout: Optional[float],
) -> Call[ExecResult]:
    body: Dict[str, Any] = {"command": command, "timeout": int(timeout)}
    if cwd:
        body["cwd"] = cwd
    if output_limit is not None:
        body["output_limit"] = int(output_limit)
    limit = float(timeout) + 30.0 if request_timeout is None else request_timeout
    answer = yield from _session_post(base_url, session_id, "exec", body, api_token, limit)
    return cast(ExecResult, answer)


def session_export(
    base_url: str, session_id: str, path: str, timeout: int, api_token: Optional[str], request_timeout: Optional[float]
) -> Call[str]:
    limit = float(timeout) + 30.0 if request_timeout is None else request_timeout
    body = {"path": path, "timeout": int(timeout)}
    answer = yield from _session_post(base_url, session_id, "export", body, api_token, limit)
    data = answer.get("tar_b64")
    if not isinstance(data, str) or not data:
        raise TaskExecutorError(f"session export of {session_id}: the answer has no tar_b64")
    return data


def session_finish(
    base_url: str,
    session_id: str,
    harness_files: Optional[Mapping[str, Any]],
    harness_mount: Optional[str],
    test_command: Optional[str],
    result_files: Optional[List[str]],
    timeout: int,
    output_limit: Optional[int],
    api_token: Optional[str],
    request_timeout: Optional[float],
) -> Call[FinishResult]:
    body: Dict[str, Any] = {"timeout": int(timeout)}
    if harness_files is not None:
        body["harness_files"] = harness_files
    if harness_mount:
        body["harness_mount"] = harness_mount
    if test_command:
        body["test_command"] = test_command
    if result_files is not None:
        body["result_files"] = result_files
    if output_limit is not None:
        body["output_limit"] = int(output_limit)
    limit = float(timeout) + 60.0 if request_timeout is None else request_timeout
    answer = yield from _session_post(base_url, session_id, "finish", body, api_token, limit)
    return cast(FinishResult, answer)
