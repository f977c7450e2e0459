"""The task executor's calls, one function each; safe from any thread.

base_url: "http://host:9090", also https, also "unix:/path/of/socket". api_token: sent as a bearer token; None takes
BRIG_API_TOKEN or DOCKYARD_SANDBOX_API_TOKEN of the environment, "" sends none. session: an HTTP session of the caller's
(anything with get, post and delete whose responses have status_code, text and json(), such as requests.Session); None uses
this module's own connections, which are kept, lets the endpoint hold answers back instead of asking every poll_interval, and
sends again what is safe to send twice. Times are seconds. Failures are TaskExecutorError.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional

from . import _calls
from ._drive import drive
from .bodies import ExecResult, FinishResult, SessionStartSpec, TaskResult, TaskSpec


def submit_task(
    base_url: str,
    spec: TaskSpec,
    *,
    api_token: Optional[str] = None,
    session: Optional[Any] = None,
    request_timeout: float = 30.0,
) -> str:
    """Submits a task; its id. Raises unless it was accepted."""
    return drive(_calls.submit_task(base_url, spec, api_token, request_timeout, session is None), session)


def get_result(
    base_url: str,
    task_id: str,
    *,
    api_token: Optional[str] = None,
    session: Optional[Any] = None,
    request_timeout: float = 30.0,
) -> Optional[TaskResult]:
    """The record of a task that has ended, None while it is pending or running. Does not wait."""
    return drive(_calls.get_result(base_url, task_id, api_token, request_timeout), session)


def delete_task(
    base_url: str,
    task_id: str,
    *,
    api_token: Optional[str] = None,
    session: Optional[Any] = None,
    request_timeout: float = 30.0,
) -> None:
    """Removes a task's record, and cancels it if it has not ended. Never raises for what the endpoint does or does not say."""
    drive(_calls.delete_task(base_url, task_id, api_token, request_timeout), session)


def run_task(
    base_url: str,
    spec: TaskSpec,
    *,
    api_token: Optional[str] = None,
    session: Optional[Any] = None,
    poll_interval: float = 2.0,
    overall_timeout: Optional[float] = None,
    cleanup: bool = True,
) -> TaskResult:
    """Submits a task and waits for its record.

    overall_timeout: None = the task's own `timeout` and 120 s more; in image mode also `pull_timeout` (1800). A task that has
    not ended by then raises. cleanup: the record is deleted afterwards, whatever happened, which also cancels the task.
    poll_interval: between two questions where the endpoint does not hold its answer back; an upper bound otherwise.
    """
    call = _calls.run_task(base_url, spec, api_token, poll_interval, overall_timeout, cleanup, session is None)
    return drive(call, session)


def start_session(
    base_url: str,
    spec: SessionStartSpec,
    *,
    api_token: Optional[str] = None,
    session: Optional[Any] = None,
    poll_interval: float = 2.0,
    overall_timeout: Optional[float] = None,
    request_timeout: float = 30.0,
) -> str:
    """Starts a session and waits until it is ready; its id. One that fails, or is not ready within overall_timeout (None = the
    time for the pull or the build, and 120 s more), is deleted, and this raises."""
    call = _calls.start_session(base_url, spec, api_token, poll_interval, overall_timeout, request_timeout, session is None)
    return drive(call, session)


def get_session_status(
    base_url: str,
    session_id: str,
    *,
    api_token: Optional[str] = None,
    session: Optional[Any] = None,
    request_timeout: float = 30.0,
) -> Dict[str, Any]:
    """{"session_id", "status", "image", "error"}; status is "starting", "ready", "finishing" or "failed"."""
    return drive(_calls.get_session_status(base_url, session_id, api_token, request_timeout), session)


def session_exec(
    base_url: str,
    session_id: str,
    command: str,
    *,
    timeout: int = 60,
    cwd: Optional[str] = None,
    output_limit: Optional[int] = None,
    api_token: Optional[str] = None,
    session: Optional[Any] = None,
    request_timeout: Optional[float] = None,
) -> ExecResult:
    """Runs one command under bash -lc. output_limit: bytes kept of each stream. request_timeout: None = timeout + 30."""
    call = _calls.session_exec(base_url, session_id, command, timeout, cwd, output_limit, api_token, request_timeout)
    return drive(call, session)


def session_export(
    base_url: str,
    session_id: str,
    *,
    path: str = "/workspace",
    timeout: int = 300,
    api_token: Optional[str] = None,
    session: Optional[Any] = None,
    request_timeout: Optional[float] = None,
) -> str:
    """A gzipped tar of `path`, as base64 text. The session goes on."""
    return drive(_calls.session_export(base_url, session_id, path, timeout, api_token, request_timeout), session)


def session_finish(
    base_url: str,
    session_id: str,
    *,
    harness_files: Optional[Mapping[str, Any]] = None,
    harness_mount: Optional[str] = None,
    test_command: Optional[str] = None,
    result_files: Optional[List[str]] = None,
    timeout: int = 600,
    output_limit: Optional[int] = None,
    api_token: Optional[str] = None,
    session: Optional[Any] = None,
    request_timeout: Optional[float] = None,
) -> FinishResult:
    """Brings the verifier in, runs it, reads result_files (absolute paths) back, and ends the session. request_timeout: None =
    timeout + 60."""
    call = _calls.session_finish(
        base_url,
        session_id,
        harness_files,
        harness_mount,
        test_command,
        result_files,
        timeout,
        output_limit,
        api_token,
        request_timeout,
    )
    return drive(call, session)


def delete_session(
    base_url: str,
    session_id: str,
    *,
    api_token: Optional[str] = None,
    session: Optional[Any] = None,
    request_timeout: float = 30.0,
) -> None:
    """Ends a session, at any moment. Never raises for what the endpoint does or does not say."""
    drive(_calls.delete_session(base_url, session_id, api_token, request_timeout), session)
