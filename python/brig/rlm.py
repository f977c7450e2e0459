"""Host side of the RLM runtime (docs/rlm.md): code that a model wrote runs turn by turn in a sandbox and calls functions of this process.

    from brig.rlm import Session

    def search(query: str, limit: int = 10) -> list:
        "Finds documents."
        return index.search(query, limit)

    with Session("http://127.0.0.1:9090") as session:
        with session.turn(tools=[search], outputs={"answer": str}, llm=ask_model) as turn:
            action = turn.execute("hits = search('brig')\\nSUBMIT(answer=llm_query(f'Sum up: {hits}'))")
            print(action["final"]["answer"])

A call of the sandbox is run once and never again: a `ToolHost` claims it, runs the function in a thread (or, if it is a coroutine function, in an event loop of its own),
and posts the result until it is answered. Only a 200 settles it; of what else may be answered only `duplicate_call` is benign (the sandbox gave up meanwhile),
everything else is in `ToolHost.failures`.

Thread-safe: an action may run in one thread while another cancels its turn. Times are seconds.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Coroutine, Dict, Iterable, List, Mapping, Optional, Sequence, TypedDict, Union, cast

from ._calls import base_of, headers_of, json_object
from ._drive import drive
from ._effects import Answer, Call, Exchange, Rest
from .errors import TaskExecutorError, TransportError

GRACE_S = 10.0  # the transport waits longer than the sandbox answers
CALL_S = 60.0  # of a call that waits for nothing but the daemon
POLL_S = 20.0  # a poll is held back at most this long
SETTLE_TRIES = 5  # of one result
REST_FIRST_S = 0.1  # before the second try; doubles
WORKERS = 16  # functions that run at a time for one turn
RESERVED = ("llm_query", "llm_query_batched")

Tool = Callable[..., Any]
Outputs = Union[Mapping[str, Any], Sequence[Mapping[str, Any]]]


class RlmError(TaskExecutorError):
    """The daemon refused a call, or did not answer it. code: its word for why, None without an answer (docs/rlm.md)."""

    def __init__(self, message: str, *, status: Optional[int] = None, code: Optional[str] = None) -> None:
        super().__init__(message, status=status)
        self.code = code


class ToolError(Exception):
    """Raised by a tool: the code in the sandbox gets it with this category. Any other exception has its class's name as category."""

    def __init__(self, message: str, category: str = "error") -> None:
        super().__init__(message)
        self.category = category


class Usage(TypedDict):
    wall_ms: int
    cpu_ms: Optional[int]
    host_wait_ms: int
    tool_calls: int
    prompts: int


class Action(TypedDict):
    """What `execute` came to. An exception of the code is no exception here."""

    stdout: str
    stderr: str
    truncated: bool
    final: Optional[Dict[str, Any]]
    error: Optional[str]
    error_type: Optional[str]
    error_category: Optional[str]
    tool_error: Optional[Dict[str, Any]]
    turn_over: bool
    usage: Usage


# ---- what the sandbox is told of a function ------------------------------------------------------------------------------------

_JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array", dict: "object", "str": "string", "int": "integer",
               "float": "number", "bool": "boolean", "list": "array", "dict": "object"}


def describe(name: str, function: Tool) -> Dict[str, Any]:
    """The tool as a session is told of it: name, docstring, and a JSON schema of the parameters that can be named. A parameter of another type than
    str, int, float, bool, list and dict has no type there; *args and **kwargs are left to the call."""
    properties: Dict[str, Any] = {}
    required: List[str] = []
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    for p in parameters:
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            continue
        one: Dict[str, Any] = {}
        if p.annotation in _JSON_TYPES:
            one["type"] = _JSON_TYPES[p.annotation]
        if p.default is p.empty:
            required.append(p.name)
        elif _is_json(p.default):
            one["default"] = p.default
        properties[p.name] = one
    return {"name": name, "description": inspect.getdoc(function) or "", "parameters": {"type": "object", "properties": properties, "required": required}}


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _type_name(value: Any) -> Any:
    return value.__name__ if isinstance(value, type) else value


def _named(tools: Union[Mapping[str, Tool], Iterable[Tool]]) -> Dict[str, Tool]:
    return dict(tools) if isinstance(tools, Mapping) else {t.__name__: t for t in tools}


# ---- calls -------------------------------------------------------------------------------------------------------------------------


class _Daemon:
    def __init__(self, base_url: str, api_token: Optional[str]) -> None:
        self.base, self.headers = base_of(base_url), headers_of(api_token)

    def call(self, method: str, path: str, body: Optional[Mapping[str, Any]] = None, *, timeout: float = CALL_S, query: str = "", key: Optional[str] = None,
             tries: int = 1) -> Dict[str, Any]:
        headers = {**self.headers, "Idempotency-Key": key} if key else self.headers
        answer = drive(_exchange(Exchange(method, self.base, "/v1/rlm" + path, timeout, headers, body, query), tries))
        what = f"{method} {path}"
        if answer.status in (200, 201):
            return json_object(answer, what)
        code, message = refusal(answer)
        raise RlmError(f"{what}: {message}", status=answer.status, code=code)


def _exchange(x: Exchange, tries: int) -> Call[Answer]:
    rest = REST_FIRST_S
    for attempt in range(1, tries + 3):
        try:
            return cast(Answer, (yield x))
        except TransportError as e:
            if attempt >= (tries if e.sent else tries + 2):
                raise RlmError(f"{x.method} {x.path}: {e}") from e
        yield Rest(rest)
        rest *= 2
    raise AssertionError("unreachable")


def refusal(answer: Answer) -> "tuple[Optional[str], str]":
    """Code and message of an error."""
    try:
        error = answer.json()["error"]
        return str(error["code"]), str(error["message"])
    except (ValueError, KeyError, TypeError):
        return None, f"HTTP {answer.status}: {answer.text[:200]}"


# ---- functions that the sandbox calls -------------------------------------------------------------------------------------------------


class ToolHost:
    """Runs the calls of one turn until `close`. failures: results that were not settled, as text: for a log; a call's own exception is not one of them."""

    def __init__(self, daemon: _Daemon, path: str, tools: Mapping[str, Tool], workers: int = WORKERS) -> None:
        self.failures: List[str] = []
        self.settled = 0
        self._daemon, self._path, self._tools = daemon, path, dict(tools)
        self._pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="brig-tool")
        self._closed = threading.Event()
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._lock = threading.Lock()
        self._poller = threading.Thread(target=self._poll, name="brig-tool-host", daemon=True)
        self._poller.start()

    def close(self) -> None:
        """After the turn has ended: the poll under way is answered then. What still runs is waited for; its result is late."""
        self._closed.set()
        self._poller.join()
        self._pool.shutdown(wait=True)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)

    def _poll(self) -> None:
        rest = REST_FIRST_S
        while not self._closed.is_set():
            try:
                answer = self._daemon.call("GET", f"{self._path}/pending", query=f"?wait={POLL_S:g}", timeout=POLL_S + GRACE_S)
                rest = REST_FIRST_S
            except RlmError as e:
                if e.status is not None and e.status < 500 and e.status != 429:
                    return  # the turn is no more
                self._closed.wait(rest)
                rest = min(rest * 2, 5.0)
                continue
            for request in answer.get("requests", ()):
                self._pool.submit(self._serve, request)

    # A lease that was issued is served whatever happens here: nobody else will.
    def _serve(self, request: Mapping[str, Any]) -> None:
        try:
            self._settle(request, {"result": self._run(request)})
        except BaseException as e:
            self._settle(request, {"tool_error": {"category": getattr(e, "category", None) or type(e).__name__, "message": str(e)}})

    def _run(self, request: Mapping[str, Any]) -> Any:
        function = self._tools.get(request["tool_name"])
        if function is None:
            raise ToolError(f"no such tool: {request['tool_name']}", "unknown_tool")
        value = function(*request.get("args", ()), **request.get("kwargs", {}))
        if inspect.isawaitable(value):
            value = asyncio.run_coroutine_threadsafe(_await(value), self._event_loop()).result()
        if not _is_json(value):
            raise ToolError(f"the result of {request['tool_name']} is not JSON: {type(value).__name__}", "not_json")
        return value

    def _settle(self, request: Mapping[str, Any], outcome: Mapping[str, Any]) -> None:
        body = {"id": request["id"], "lease": request["lease"], **outcome}
        try:
            self._daemon.call("POST", f"{self._path}/result", body, tries=SETTLE_TRIES)
            self.settled += 1
        except RlmError as e:
            if e.status == 413 and "result" in outcome:
                self._settle(request, {"tool_error": {"category": "ToolResultTooLarge", "message": "the result has more than 2 MiB"}})
            elif e.code != "duplicate_call":
                self.failures.append(f"call {request['id']} of {request['tool_name']}: {e}")

    def _event_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="brig-tool-loop", daemon=True).start()
            return self._loop


async def _await(value: Any) -> Any:
    return await cast(Coroutine[Any, Any, Any], value)


def queries(llm: Callable[[str], Any], workers: int = 8) -> Dict[str, Tool]:
    """llm_query and llm_query_batched by one function of a prompt (a coroutine function is fine). In a batch a failure is "[ERROR] ..." at its place."""

    def one(prompt: str) -> Any:
        value = llm(prompt)
        return asyncio.run(_await(value)) if inspect.isawaitable(value) else value

    def llm_query(prompt: str) -> Any:
        return one(prompt)

    def llm_query_batched(prompts: List[str]) -> List[Any]:
        def guarded(prompt: str) -> Any:
            try:
                return one(prompt)
            except Exception as e:
                return f"[ERROR] {e}"
        with ThreadPoolExecutor(max_workers=workers) as pool:
            return list(pool.map(guarded, prompts))

    return {"llm_query": llm_query, "llm_query_batched": llm_query_batched}


# ---- sessions and turns -------------------------------------------------------------------------------------------------------------------


class Turn:
    """One turn: a fresh Python process with tools. `with` ends it. host: the calls it has served."""

    def __init__(self, daemon: _Daemon, path: str, generation: int, tools: Mapping[str, Tool]) -> None:
        self.path, self.generation = path, generation
        self.host = ToolHost(daemon, path, tools)
        self._daemon = daemon
        self._ended = False

    @property
    def id(self) -> str:
        return self.path.rsplit("/", 1)[1]

    def execute(self, code: str, variables: Optional[Mapping[str, Any]] = None, *, timeout: float = 120.0, host_wait: float = 0.0) -> Action:
        """Runs code of at most 12,000 characters. timeout: of the code; host_wait: seconds for which its clock may stand still while it waits for tools.
        RlmError: it was not run (`code`), or nobody knows (no status): then the turn should be cancelled."""
        body: Dict[str, Any] = {"code": code, "timeout_s": timeout}
        if variables:
            body["variables"] = dict(variables)
        if host_wait:
            body["host_wait_s"] = host_wait
        return cast(Action, self._daemon.call("POST", f"{self.path}/execute", body, timeout=timeout + host_wait + GRACE_S))

    def cancel(self) -> int:
        """Takes the turn's authority away at once; the session's new generation. Files stay."""
        answer = self._daemon.call("POST", f"{self.path}/cancel", {}, tries=3)
        self._close()
        return int(answer["generation"])

    def end(self) -> None:
        """Answered when all its processes are confirmed dead. One that is no more has ended."""
        try:
            self._daemon.call("DELETE", self.path, tries=3)
        except RlmError as e:
            if e.status not in (404, 409):
                raise
        finally:
            self._close()

    def child(self, tools: Union[Mapping[str, Tool], Iterable[Tool]] = (), outputs: Optional[Outputs] = None, *, llm: Optional[Callable[[str], Any]] = None) -> "Child":
        """A sandbox for a sub-agent. RlmError `admission_timeout`: there was no room; say "not_started" to the code."""
        handlers, body = _begin(tools, outputs, llm)
        answer = self._daemon.call("POST", f"{self.path}/children", body, key=uuid.uuid4().hex, tries=3)
        return Child(self._daemon, answer["child"], answer["turn"], answer["generation"], handlers)

    def _close(self) -> None:
        if not self._ended:
            self._ended = True
            self.host.close()

    def __enter__(self) -> "Turn":
        return self

    def __exit__(self, *_: Any) -> None:
        if not self._ended:
            self.end()


class Child(Turn):
    """The one turn of a sub-agent. Ending it deletes the sandbox, and is answered when nothing of it is left."""

    def __init__(self, daemon: _Daemon, session: str, turn: str, generation: int, tools: Mapping[str, Tool]) -> None:
        super().__init__(daemon, f"/sessions/{session}/turns/{turn}", generation, tools)
        self.session = session

    def end(self) -> None:
        try:
            self._daemon.call("DELETE", f"/sessions/{self.session}", tries=3)
        except RlmError as e:
            if e.status != 404:
                raise
        finally:
            self._close()


class Session:
    """One conversation: files stay from turn to turn. `with` deletes it. base_url, api_token: as for the other functions of this package."""

    def __init__(self, base_url: str, *, session: Optional[str] = None, workspace: Optional[str] = None, api_token: Optional[str] = None) -> None:
        """session: one that is there; None makes one."""
        self._daemon = _Daemon(base_url, api_token)
        if session is None:
            body = {"workspace": workspace} if workspace else {}
            session = self._daemon.call("POST", "/sessions", body, key=uuid.uuid4().hex, tries=3)["session"]
        self.id = session

    def turn(self, tools: Union[Mapping[str, Tool], Iterable[Tool]] = (), outputs: Optional[Outputs] = None, *, llm: Optional[Callable[[str], Any]] = None,
             acquire_timeout: float = 30.0) -> Turn:
        """Begins one. tools: functions of this process, by their names, or a mapping. outputs: what SUBMIT takes, {"name": type}, or the runtime's own form. llm: answers
        prompts. acquire_timeout: seconds to wait for a sandbox (RlmError `admission_timeout`)."""
        handlers, body = _begin(tools, outputs, llm)
        body["acquire_timeout_s"] = acquire_timeout
        answer = self._daemon.call("POST", f"/sessions/{self.id}/turns", body, timeout=acquire_timeout + CALL_S, key=uuid.uuid4().hex, tries=3)
        return Turn(self._daemon, f"/sessions/{self.id}/turns/{answer['turn']}", answer["generation"], handlers)

    def delete(self) -> None:
        """Answered when nothing of it is left. One that is no more is fine."""
        try:
            self._daemon.call("DELETE", f"/sessions/{self.id}", tries=3)
        except RlmError as e:
            if e.status != 404:
                raise

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: Any) -> None:
        self.delete()


def _begin(tools: Union[Mapping[str, Tool], Iterable[Tool]], outputs: Optional[Outputs], llm: Optional[Callable[[str], Any]]) -> "tuple[Dict[str, Tool], Dict[str, Any]]":
    """Who answers the calls, and what the turn is told."""
    handlers = _named(tools)
    body: Dict[str, Any] = {"tools": [describe(name, f) for name, f in handlers.items() if name not in RESERVED]}
    if outputs is not None:
        body["outputs"] = {k: _type_name(v) for k, v in outputs.items()} if isinstance(outputs, Mapping) else [dict(o) for o in outputs]
    if llm is not None:
        handlers = {**queries(llm), **handlers}
    return handlers, body
