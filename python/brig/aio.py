"""brig.executor's functions as coroutines: the same names, arguments and meanings, without `session`.

A coroutine that is cancelled cleans up as its blocking twin does on an interrupt: run_task deletes its task, start_session its
session.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional

from . import _calls
from ._adrive import adrive
from .bodies import ExecResult, FinishResult, SessionStartSpec, TaskResult, TaskSpec


async def submit_task(base_url: str, spec: TaskSpec, *, api_token: Optional[str] = None, request_timeout: float = 30.0) -> str:
    return await adrive(_calls.submit_task(base_url, spec, api_token, request_timeout, True))


async def get_result(
    base_url: str, task_id: str, *, api_token: Optional[str] = None, request_timeout: float = 30.0
) -> Optional[TaskResult]:
    return await adrive(_calls.get_result(base_url, task_id, api_token, request_timeout))


async def delete_task(base_url: str, task_id: str, *, api_token: Optional[str] = None, request_timeout: float = 30.0) -> None:
    await adrive(_calls.delete_task(base_url, task_id, api_token, request_timeout))


async def run_task(
    base_url: str,
    spec: TaskSpec,
    *,
    api_token: Optional[str] = None,
    poll_interval: float = 2.0,
    overall_timeout: Optional[float] = None,
    cleanup: bool = True,
) -> TaskResult:
    return await adrive(_calls.run_task(base_url, spec, api_token, poll_interval, overall_timeout, cleanup, True))


async def start_session(
    base_url: str,
    spec: SessionStartSpec,
    *,
    api_token: Optional[str] = None,
    poll_interval: float = 2.0,
    overall_timeout: Optional[float] = None,
    request_timeout: float = 30.0,
) -> str:
    call = _calls.start_session(base_url, spec, api_token, poll_interval, overall_timeout, request_timeout, True)
    return await adrive(call)


async def get_session_status(
    base_url: str, session_id: str, *, api_token: Optional[str] = None, request_timeout: float = 30.0
) -> Dict[str, Any]:
    return await adrive(_calls.get_session_status(base_url, session_id, api_token, request_timeout))


async def session_exec(
    base_url: str,
    session_id: str,
    command: str,
    *,
    timeout: int = 60,
    cwd: Optional[str] = None,
    output_limit: Optional[int] = None,
    api_token: Optional[str] = None,
    request_timeout: Optional[float] = None,
) -> ExecResult:
    call = _calls.session_exec(base_url, session_id, command, timeout, cwd, output_limit, api_token, request_timeout)
    return await adrive(call)


async def session_export(
    base_url: str,
    session_id: str,
    *,
    path: str = "/workspace",
    timeout: int = 300,
    api_token: Optional[str] = None,
    request_timeout: Optional[float] = None,
) -> str:
    return await adrive(_calls.session_export(base_url, session_id, path, timeout, api_token, request_timeout))


async def session_finish(
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
    request_timeout: Optional[float] = None,
) -> FinishResult:
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
    return await adrive(call)


async def delete_session(base_url: str, session_id: str, *, api_token: Optional[str] = None, request_timeout: float = 30.0) -> None:
    await adrive(_calls.delete_session(base_url, session_id, api_token, request_timeout))
