"""Bodies of the task executor's protocol, as typed dictionaries: every key is optional to the type checker, the comments say
which the endpoint requires. Times are seconds, sizes bytes, unless a name says otherwise."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, TypedDict, Union

#: A file's content: text, or {"b64": base64 text} for bytes.
FileContent = Union[str, Dict[str, str]]


class Limits(TypedDict, total=False):
    memory_mb: int
    cpus: float
    pids: int
    disk_mb: int
    inodes: int
    output_bytes: int
    wall_s: int


class TaskSpec(TypedDict, total=False):
    """Body of POST /task/submit. Clone mode requires repo_url and test_command (or ids), image mode requires image."""

    mode: str  # "clone" (default) or "image"
    timeout: int  # 300, of the command
    # clone mode
    repo_url: str
    test_command: str
    base_commit: str  # "HEAD"
    patch: str
    test_patch: str
    lint_command: str
    capture_diff: bool
    reference_patch: str
    # image mode
    image: str
    harness_files: Mapping[str, FileContent]  # read-only at harness_mount
    harness_mount: str  # "/harness"
    output_mount: str  # "/out"
    entry_command: str
    result_files: List[str]
    block_network: bool
    pull_timeout: int  # 1800
    # what Brig adds
    fail_to_pass: List[str]
    pass_to_pass: List[str]
    test_framework: str
    run: str  # "ids" (default) or "files"
    repo_path: str  # "/testbed"
    tree: str  # "clone" (default) or "image"
    setup_command: str
    setup_network: Any
    setup_timeout: int
    env: Mapping[str, str]
    user: Any
    network: Any  # "none", "open" or {"allow": [...]}
    limits: Limits
    patch_mode: str  # "repair" (default), "strict" or "ladder"
    gold_patch: str
    control: str  # "off", "auto" or "require"
    protect: List[str]
    allow_config: List[str]
    priority: int
    labels: Mapping[str, str]
    idempotency_key: str


class TaskResult(TypedDict, total=False):
    """Record of GET /task/<id>/result. status is "completed" when the command ran to an exit status, whatever it was, and
    "failed" on a timeout or a fault of the infrastructure (exit_code is then -1)."""

    task_id: str
    status: str
    mode: str
    exit_code: int
    stdout: str
    stderr: str
    tests_passed: Optional[int]
    tests_failed: Optional[int]
    lint_errors: Optional[int]
    lint_output: Optional[str]
    patch_diff: Optional[str]
    patch_similarity: Optional[float]
    execution_time: Optional[float]
    patch_applied: Optional[bool]
    test_patch_applied: Optional[bool]
    image: Optional[str]
    result_files: Optional[Dict[str, Optional[str]]]
    # what Brig adds
    outcome: str
    resolved: bool
    timed_out: bool
    tests: Dict[str, str]
    fail_to_pass: Dict[str, List[str]]
    pass_to_pass: Dict[str, List[str]]
    integrity: Dict[str, Any]
    error: Optional[Dict[str, str]]
    limits_hit: List[str]
    report_channel: str
    framework: Optional[str]
    report_route: Optional[str]
    restored: List[str]
    unverified: List[str]
    flaky: List[str]
    cached: bool
    usage: Dict[str, Any]
    timing: Dict[str, Any]
    evidence: str
    log_url: str


class SessionStartSpec(TypedDict, total=False):
    """Body of POST /session/start. Image mode (default) requires image, build mode requires dockerfile."""

    mode: str  # "image" (default) or "build"
    image: str
    dockerfile: str
    build_context: Mapping[str, FileContent]
    build_args: Mapping[str, str]
    env: Mapping[str, str]
    block_network: bool
    cap_drop: List[str]
    startup_command: str
    pull_timeout: int  # 1800
    build_timeout: int  # 1800
    # what Brig adds
    network: Any
    limits: Limits
    labels: Mapping[str, str]
    idempotency_key: str


class ExecResult(TypedDict):
    """Answer of POST /session/<id>/exec."""

    session_id: str
    exit_code: int  # 124 when it timed out
    stdout: str
    stderr: str
    timed_out: bool


class FinishResult(TypedDict, total=False):
    """Answer of POST /session/<id>/finish. result_files: path in the sandbox to its text, None where it is absent."""

    session_id: str
    exit_code: int
    stdout: str
    stderr: str
    result_files: Dict[str, Optional[str]]
    timed_out: bool
    error: Optional[str]
    execution_time: Optional[float]
    # what Brig adds
    integrity: str
    stale_files: List[str]
