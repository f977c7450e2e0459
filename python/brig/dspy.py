"""Brig as the code interpreter of DSPy modules (`dspy.RLM` and others): their code runs in a sandbox, their tools and models stay in this process.

    import brig.dspy, dspy

    rlm = dspy.RLM("context, query -> answer", interpreter_factory=brig.dspy.interpreters("http://127.0.0.1:9090"))

Needs the `dspy` package, which is imported with this module.
"""

from __future__ import annotations

import inspect
import threading
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from dspy.primitives.code_interpreter import CodeExecutionError, CodeInterpreterError, FinalOutput

from .rlm import Action, RlmError, Session, Turn

CODE_MAX = 12000  # characters of an action; longer code is handed over as a variable
BROKEN = ("timeout", "process_exited", "protocol_violation", "submit_not_ended", "memory_limit", "sandbox_ended", "cancelled")
RUN_LONG = "exec(compile(_brig_code, '<cell>', 'exec'), globals())"


class Interpreter:
    """Satisfies DSPy's `CodeInterpreter`: one session with one turn, from the first `execute` to `shutdown`.

    tools may be changed until then, output_fields too ([{"name", "type"?}]); the runtime seals both when the turn begins.
    timeout: seconds for the code of one execute; host_wait: how long its clock may stand still meanwhile, for tools and models.
    """

    def __init__(self, base_url: str, *, tools: Optional[Mapping[str, Callable[..., Any]]] = None, output_fields: Optional[List[Dict[str, Any]]] = None,
                 api_token: Optional[str] = None, timeout: float = 120.0, host_wait: float = 3600.0) -> None:
        self.tools: Dict[str, Callable[..., Any]] = dict(tools or {})
        self.output_fields = output_fields
        self._url, self._token, self._timeout, self._host_wait = base_url, api_token, timeout, host_wait
        self._session: Optional[Session] = None
        self._turn: Optional[Turn] = None
        self._over = ""
        self._sealed: "set[str]" = set()
        self._lock = threading.Lock()

    def start(self) -> None:
        """Makes the session; the turn begins with the first execute, when the tools are known."""
        with self._lock:
            if self._session is None:
                self._session = self._asked(lambda: Session(self._url, api_token=self._token))

    def execute(self, code: str, variables: Optional[Mapping[str, Any]] = None) -> Any:
        """FinalOutput, the text that was printed, or None. CodeExecutionError and SyntaxError are the code's; CodeInterpreterError ends the interpreter."""
        self.start()
        turn = self._begun()
        given = dict(variables or {})
        if len(code) > CODE_MAX:
            given["_brig_code"] = code
            code = RUN_LONG
        action = self._asked(lambda: turn.execute(code, given, timeout=self._timeout, host_wait=self._host_wait))
        return self._outcome(action)

    def shutdown(self) -> None:
        with self._lock:
            session, turn, self._session, self._turn = self._session, self._turn, None, None
            self._over = self._over or "it was shut down"
        try:
            if turn is not None:
                turn.end()
        finally:
            if session is not None:
                session.delete()

    # DSPy may add tools after the first execute (its facade does before): what is new then begins nothing, since files stay but variables do not.
    def _begun(self) -> Turn:
        with self._lock:
            if self._over or self._session is None:
                raise CodeInterpreterError(f"the interpreter is no more: {self._over}")
            if self._turn is None:
                self._sealed = set(self.tools)
                handlers = {name: self._late(name) for name in self.tools}
                self._turn = self._asked(lambda: self._session.turn(handlers, self._outputs()))  # type: ignore[union-attr]
            elif set(self.tools) - self._sealed:
                raise CodeInterpreterError(f"tools were added after the first execute: {sorted(set(self.tools) - self._sealed)}")
            return self._turn

    def _late(self, name: str) -> Callable[..., Any]:
        """Whatever stands under that name when it is called, and what is known of it now. DSPy's tools take keywords only, whatever they say."""
        known = self.tools[name]

        def call(*args: Any, **kwargs: Any) -> Any:
            function = self.tools[name]
            return function(**_keywords(function, args, kwargs)) if args else function(**kwargs)
        call.__doc__ = getattr(known, "__doc__", None)
        call.__wrapped__ = known  # type: ignore[attr-defined]
        return call

    def _outputs(self) -> Optional[List[Dict[str, Any]]]:
        if not self.output_fields:
            return None
        return [{"name": f["name"], "type": {"NoneType": "any"}.get(f.get("type", "any"), f.get("type", "any"))} for f in self.output_fields]

    def _asked(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except RlmError as e:
            if e.code in ("code_too_large", "empty_code", "invalid"):
                raise CodeExecutionError(str(e)) from e
            self._over = str(e)
            raise CodeInterpreterError(str(e)) from e

    def _outcome(self, action: Action) -> Any:
        if action["final"] is not None:
            return FinalOutput(action["final"])
        if action["error"] is None and action["error_category"] is None:
            return action["stdout"] or None
        said = f"{action['stdout']}{action['error'] or action['error_category']}"
        if action["turn_over"]:
            self._over = f"{action['error_category']}: {action['error']}"
            raise CodeInterpreterError(self._over)
        if action["error_category"] == "syntax_error":
            raise SyntaxError(said)
        raise CodeExecutionError(said)


def _keywords(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Dict[str, Any]:
    """All of them by name. TypeError as for a call that does not fit."""
    named: Dict[str, Any] = {}
    signature = inspect.signature(function)
    for name, value in signature.bind(*args, **kwargs).arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            raise TypeError(f"{name} cannot be given by keyword")
        named.update(value if kind is inspect.Parameter.VAR_KEYWORD else {name: value})
    return named


def interpreters(base_url: str, **options: Any) -> Callable[[], Interpreter]:
    """What DSPy takes as `interpreter_factory`."""
    def make() -> Interpreter:
        return Interpreter(base_url, **options)
    make.execution_instructions = (  # type: ignore[attr-defined]
        "CPython in a sandbox on Linux. Files in the working directory stay. Without SUBMIT print what you want to see.")
    return make
