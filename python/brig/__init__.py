"""Client of Brig, a sandbox fleet. Standard library only, Python 3.9 and later.

One endpoint, by function (the task executor's protocol, so any executor that speaks it):

    from brig import TaskSpec, run_task
    result = run_task("http://127.0.0.1:9090", TaskSpec(repo_url=..., base_commit=..., test_command=...))

Many endpoints, with health, retries and fail-over:

    from brig import Pool
    with Pool() as pool:                       # BRIG_URLS or DOCKYARD_SANDBOX_URLS
        for result in pool.map(specs):
            ...

The same for asyncio: `brig.aio` has the functions as coroutines, `AsyncPool` is the pool.
"""

from .errors import TaskExecutorError
from .executor import (
    delete_session,
    delete_task,
    get_result,
    get_session_status,
    run_task,
    session_exec,
    session_export,
    session_finish,
    start_session,
    submit_task,
)
from .commands import CommandExit, CommandOutput, afollow_command, follow_command, start_command
from .pool import AsyncPool, Pool
from .bodies import ExecResult, FinishResult, SessionStartSpec, TaskResult, TaskSpec

__all__ = [
    "AsyncPool",
    "CommandExit",
    "CommandOutput",
    "ExecResult",
    "FinishResult",
    "Pool",
    "SessionStartSpec",
    "TaskExecutorError",
    "TaskResult",
    "TaskSpec",
    "afollow_command",
    "delete_session",
    "delete_task",
    "follow_command",
    "get_result",
    "get_session_status",
    "run_task",
    "session_exec",
    "session_export",
    "session_finish",
    "start_command",
    "start_session",
    "submit_task",
]
