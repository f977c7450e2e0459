# What a turn's process does: it runs the code of actions and carries calls of tools to the broker. It runs as the code does, in the same
# process, and nothing that it says is believed: limits, times and ends are the daemon's.
#
# `serve` is called in a process that is still root inside and holds three descriptors. Frames on the control socket, each a length (4 bytes,
# of what follows the kind), a kind and a payload, numbers in the machine's order:
#   to the daemon     H                                       it is there (the kernel adds who says it)
#                     B                                       it has begun: no root any more
#                     X text                                  it could not begin
#                     S action:8 sequence:4 json              SUBMIT; waits for A
#                     D action:8 kind:1 type text tool_error  an action has ended (each of the three with a length of 4 bytes before it)
#   from the daemon   b json                                  begin
#                     e action:8 length:4 code variables      execute
#                     A sequence:4 accepted:1 text
#
# This file's functions have builtins of their own, and use what they have taken here: code that replaces builtins or modules breaks itself.

import builtins
import gc
import os
import sys

import _thread
from _ast import Expr, Expression
from _json import encode_basestring, make_encoder, make_scanner
from _queue import SimpleQueue
from _signal import SIGINT, pthread_kill, signal
from _socket import AF_INET, AF_UNIX, IPPROTO_TCP, MSG_DONTWAIT, MSG_PEEK, SOCK_STREAM, TCP_NODELAY, socket
from _thread import get_ident
from os import _exit, dup2, getpid, stat, urandom

int_from = int.from_bytes
ORDER = sys.byteorder
FILE = "<brig>"
CONTROL, OUT, ERR = 3, 4, 5            # where the descriptors of a turn are; all are closed in programs that it starts
USER = 1000
SHARED = b"/dev/shm"
FRAME_MAX = 16 << 20
SUBMIT_MAX = (2 << 20) + 65536
BODY_MAX = 2 << 20                     # of a call of a tool; the broker's limit is the one that counts
ANSWER_MAX = 16 << 20
TEXT_MAX = 60000                       # bytes of an error's text
CONNECTIONS = 15
OK, SYNTAX, EXCEPTION, INTERRUPTED, TOOL = range(5)
AWAIT = 0x2000                         # ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
ONLY_AST = 0x400
COROUTINE = 0x80
PR_SET_DUMPABLE = 4


class ToolError(Exception):
    """A tool of the host has failed: `category`, `message`, `call_id` say how."""

    def __init__(self, message, category="error", call_id=None):
        super().__init__(message)
        self.message, self.category, self.call_id = message, category, call_id

    def __reduce__(self):
        return ToolError, (self.message, self.category, self.call_id)

    __module__ = "__main__"


class SubmitError(ValueError):
    """SUBMIT was refused; the action goes on and may try again."""

    __module__ = "__main__"


class BindingError(ValueError):
    """A value cannot travel as strict JSON."""

    __module__ = "__main__"


class Interrupted(KeyboardInterrupt):
    """The action's time is over."""

    __module__ = "__main__"


class _Submitted(SystemExit):
    """The action has ended with its outputs."""

    __module__ = "__main__"


# ---- strict JSON ----------------------------------------------------------------------------------------------------------------------

PLAIN = frozenset((str, int, float, bool, type(None)))


class _Context:
    strict, object_hook, object_pairs_hook = True, None, None
    parse_float, parse_int = float, int
    memo = {}

    @staticmethod
    def parse_constant(name):
        raise BindingError(f"{name} is not JSON")


_scan = make_scanner(_Context())


def _not_json(value):
    raise BindingError(f"a value of type {type(value).__name__} is not JSON")


def loads(data):
    text = data.decode("utf-8").strip(" \t\r\n")
    try:
        value, end = _scan(text, 0)
    except StopIteration:
        raise BindingError("not JSON") from None
    if end != len(text):
        raise BindingError("not one JSON value")
    return value


def _check_keys(value):
    # An encoder would turn other keys to strings without a word. Each container once, so a cycle ends here and is found by the encoder.
    seen, todo = set(), [value]
    while todo:
        value = todo.pop()
        if isinstance(value, (list, tuple)):
            inside = value
        elif isinstance(value, dict):
            for key in value:
                if not isinstance(key, str):
                    raise BindingError(f"a key of type {type(key).__name__} is not JSON: keys must be strings")
            inside = value.values()
        else:
            continue
        if id(value) in seen:
            continue
        seen.add(id(value))
        if not PLAIN.issuperset(map(type, inside)):
            todo.extend(v for v in inside if type(v) not in PLAIN)


def dumps(value):
    """The value as bytes of JSON; BindingError says why not."""
    _check_keys(value)
    encode = make_encoder({}, _not_json, encode_basestring, None, ":", ",", False, False, False)
    try:
        return "".join(encode(value, 0)).encode("utf-8")
    except UnicodeEncodeError as e:
        raise BindingError(f"a string with the lone surrogate {e.object[e.start]!a} is not JSON") from None
    except RecursionError:
        raise BindingError("nested too deeply for JSON") from None
    except BindingError:
        raise
    except ValueError as e:
        text = str(e)
        if "ircular" in text:
            text = "a value that contains itself is not JSON"
        elif "float" in text:
            text = "NaN and Infinity are not JSON"
        raise BindingError(text) from None


# ---- the broker ---------------------------------------------------------------------------------------------------------------------------


class Stale(Exception):
    """A kept connection was closed before it said a word."""


class Broker:
    """Calls over HTTP, one at a time on a connection; as many at once as there are connections."""

    def __init__(self, address, secret, body_max):
        kind, _, rest = address.partition(":")
        if kind == "unix":
            self.family, self.address = AF_UNIX, "\0" + rest[1:] if rest.startswith("@") else rest
        else:
            host, _, port = rest.rpartition(":")
            self.family, self.address = AF_INET, (host, int(port))
        self.secret, self.body_max = secret, body_max
        self.count = 0
        self.reset()

    def reset(self):
        self.pid, self.idle, self.tokens = getpid(), [], SimpleQueue()
        for _ in range(CONNECTIONS):
            self.tokens.put(None)

    def connect(self):
        s = socket(self.family, SOCK_STREAM)
        try:
            s.connect(self.address)
            if self.family == AF_INET:
                s.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
        except BaseException:
            s.close()
            raise
        return s

    def call(self, name, args, kwargs):
        if getpid() != self.pid:
            self.reset()           # a fork: connections are its parent's
        self.count += 1
        call_id = f"{self.pid}-{self.count}-{urandom(6).hex()}"
        body = dumps({"id": call_id, "tool_name": name, "args": args, "kwargs": kwargs})
        if len(body) > self.body_max:
            raise ToolError(f"the arguments of {name} take {len(body)} bytes as JSON, at most {self.body_max} can be sent", "ToolArgumentsTooLarge", call_id)
        status, answer = self.exchange(call_id, body)
        return self.settle(name, call_id, status, answer)

    def exchange(self, call_id, body):
        head = (f"POST /tool_call HTTP/1.1\r\nHost: broker\r\nX-Broker-Secret: {self.secret}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n").encode()
        tokens, idle = self.tokens, self.idle
        tokens.get()
        try:
            while True:
                kept = bool(idle)
                try:
                    s = idle.pop() if kept else self.connect()
                except IndexError:
                    continue
                try:
                    status, answer, keep = self.talk(s, head + body if len(body) < 65536 else head, body if len(body) >= 65536 else b"", kept)
                except Stale:
                    s.close()
                    continue       # the same id: should it have arrived after all, the broker says so
                except BaseException:
                    s.close()
                    raise
                if keep:
                    idle.append(s)
                else:
                    s.close()
                return status, answer
        except OSError as e:
            raise ToolError(f"the broker cannot be reached: {e}", "transport", call_id) from None
        finally:
            tokens.put(None)

    @staticmethod
    def talk(s, first, second, kept):
        try:
            s.sendall(first)
            if second:
                s.sendall(second)
        except (BrokenPipeError, ConnectionResetError):
            pass                   # there may be an answer all the same
        data = bytearray()
        while True:
            at = data.find(b"\r\n\r\n")
            if at >= 0:
                break
            try:
                more = s.recv(65536)
            except ConnectionResetError:
                more = b""
            if not more:
                if kept and not data:
                    raise Stale
                raise ConnectionError("it closed the connection without an answer")
            data += more
            if len(data) > ANSWER_MAX:
                raise ConnectionError("its answer is too long")
        lines = bytes(data[:at]).lower().split(b"\r\n")
        status, length, keep = int(lines[0].split()[1]), None, lines[0].startswith(b"http/1.1")
        for line in lines[1:]:
            key, _, value = line.partition(b":")
            if key == b"content-length":
                length = int(value)
            elif key == b"connection" and b"close" in value:
                keep = False
        if length is None or length > ANSWER_MAX:
            raise ConnectionError("its answer has no length, or is too long")
        del data[:at + 4]
        while len(data) < length:
            more = s.recv(min(1 << 20, length - len(data)))
            if not more:
                raise ConnectionError("its answer breaks off")
            data += more
        return status, bytes(data), keep

    @staticmethod
    def settle(name, call_id, status, answer):
        try:
            value = loads(answer) if answer else {}
        except (ValueError, RecursionError):
            raise ToolError(f"the broker's answer to {name} ({status}) is not JSON", "transport", call_id) from None
        if status == 200 and isinstance(value, dict):
            if "result" in value:
                return value["result"]
            error = value.get("tool_error")
            if isinstance(error, dict):
                raise ToolError(str(error.get("message", "")), str(error.get("category", "error")), error.get("call_id") or call_id)
        said = value.get("error") if isinstance(value, dict) else None
        category = None
        if isinstance(said, dict):
            category, said = said.get("code"), said.get("message")
        if not category:
            category = {401: "unauthorized", 409: "conflict", 413: "ToolArgumentsTooLarge", 504: "timeout"}.get(status, "transport")
        raise ToolError(f"{name}: {said or 'the broker answered ' + str(status)}", str(category), call_id)


# ---- tools ------------------------------------------------------------------------------------------------------------------------------------


def _documentation(tool, properties):
    text = str(tool.get("description") or "")
    lines = []
    for name, schema in properties.items():
        about = schema.get("description") if isinstance(schema, dict) else None
        if about:
            lines.append(f"    {name}: {about}")
    return text + ("\n\n" if text and lines else "") + ("Arguments:\n" + "\n".join(lines) if lines else "") or None


def _signature(name, properties, required):
    # A function with these arguments that says which were given: python's own words for those that are wrong, and something to inspect.
    # Those behind a needed one that comes after an optional one have no position.
    scope, words, positions, optional, named = {"__builtins__": {}}, [], {}, False, False
    for i, (p, schema) in enumerate(properties.items()):
        if p in required and optional and not named:
            named = True
            words.append("*")
        if p in required:
            words.append(p)
        else:
            optional = True
            scope[f"_{i}"] = schema.get("default") if isinstance(schema, dict) else None
            words.append(f"{p}=_{i}")
        positions[p] = sys.maxsize if named else i
    exec(compile(f"def {name}({', '.join(words)}): pass", FILE, "exec", dont_inherit=True), scope)
    return scope[name], positions


def _identifier(name):
    return isinstance(name, str) and name.isidentifier() and name.isascii() and name not in KEYWORDS


KEYWORDS = frozenset("False None True and as assert async await break class continue def del elif else except finally for from global if import in is "
                     "lambda nonlocal not or pass raise return try while with yield".split())


def make_tool(turn, tool):
    """A function of the tool's name, arguments, defaults and documentation that calls the host."""
    name, schema = tool["name"], tool.get("parameters")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or not all(_identifier(p) for p in properties):
        properties = {} if schema else None
    bind, defaults = None, {}
    if properties is not None:
        required = schema.get("required") if isinstance(schema, dict) else ()
        required = frozenset(required if isinstance(required, (list, tuple)) else ())
        bind, position = _signature(name, properties, required)
        defaults = {p: s["default"] for p, s in properties.items() if p not in required and isinstance(s, dict) and "default" in s}

    def call(*args, **kwargs):
        if bind is not None:
            bind(*args, **kwargs)
            for p, value in defaults.items():
                if p not in kwargs and position[p] >= len(args):
                    kwargs[p] = value
        return turn.call(name, args, kwargs)

    return _finish_function(call, name, _documentation(tool, properties or {}), bind)


def _finish_function(call, name, documentation, bind):
    async def aio(*args, **kwargs):
        return await __import__("asyncio").to_thread(call, *args, **kwargs)

    call.__name__ = call.__qualname__ = name
    call.__module__ = "__main__"
    call.__doc__ = documentation
    if bind is not None:
        bind.__module__, bind.__doc__ = "__main__", documentation
        call.__wrapped__ = bind
    aio.__name__ = aio.__qualname__ = name + ".aio"
    call.aio = aio
    return call


def make_queries(turn):
    def llm_query(prompt):
        """Asks the language model once and returns its answer as text."""
        if not isinstance(prompt, str):
            raise TypeError(f"llm_query takes one string, not {type(prompt).__name__}")
        return turn.call("llm_query", (prompt,), {})

    def llm_query_batched(prompts):
        """Asks the language model for each of a list of prompts, side by side; the answers are in the same order. One that failed is
        a text that starts with "[ERROR]"."""
        listed = [] if isinstance(prompts, str) else list(prompts)
        if isinstance(prompts, str) or not all(isinstance(p, str) for p in listed):
            raise TypeError("llm_query_batched takes a list of strings")
        return turn.call("llm_query_batched", (listed,), {})

    return [_finish_function(f, f.__name__, f.__doc__, None) for f in (llm_query, llm_query_batched)]


def make_submit(turn, outputs):
    fields = [o for o in outputs if isinstance(o, dict) and _identifier(o.get("name"))]
    names = [o["name"] for o in fields]

    def SUBMIT(*args, **outputs):
        if len(args) > len(names):
            raise TypeError(f"SUBMIT takes {len(names)} positional arguments, {len(args)} were given")
        for name, value in zip(names, args):
            if name in outputs:
                raise TypeError(f"SUBMIT got {name} twice")
            outputs[name] = value
        turn.submit(outputs)

    lines = []
    for o in fields:
        about = " ".join(str(o[k]) for k in ("type", "description") if o.get(k))
        lines.append(f"    {o['name']}: {about}{'' if o.get('required', True) else ' (optional)'}")
    SUBMIT.__qualname__, SUBMIT.__module__ = "SUBMIT", "__main__"
    SUBMIT.__doc__ = "Ends the action with these outputs." + ("\n\nOutputs:\n" + "\n".join(lines) if lines else "")
    return SUBMIT


# ---- a turn --------------------------------------------------------------------------------------------------------------------------------------


class Turn:
    def __init__(self, control):
        self.control, self.received = control, bytearray()
        self.pid, self.main = getpid(), get_ident()
        self.lock = _thread.RLock()
        self.asking = False
        self.executing = self.submitted = self.pending = self.compiling = self.published = False
        self.critical = self.sequence = self.action = 0
        self.sources, self.broker, self.loop = {}, None, None
        self.stdout, self.stderr = sys.stdout, sys.stderr
        self.libc = self.prctl = self.user_site = None
        self.steps = [load_site, find_prctl, touch]
        self.namespace = {}

    # -- frames

    def send(self, kind, *parts):
        payload = b"".join(parts)
        self.control.sendall(len(payload).to_bytes(4, ORDER) + kind + payload)

    def receive(self):
        data = self.received
        while len(data) < 5 or len(data) < 5 + int_from(data[:4], ORDER):
            if len(data) >= 5 and int_from(data[:4], ORDER) > FRAME_MAX:
                _exit(71)
            more = self.control.recv(1 << 20)
            if not more:
                _exit(0)
            data += more
        end = 5 + int_from(data[:4], ORDER)
        kind, payload = bytes(data[4:5]), bytes(data[5:end])
        del data[:end]
        return kind, payload

    # -- the beginning

    def told(self):
        try:
            self.control.recv(1, MSG_PEEK | MSG_DONTWAIT)
            return True
        except BlockingIOError:
            return False

    def prepare(self, ahead):
        # Ahead of the order to begin, as far as time allows; the rest when it is answered, before any code. Modules are looked for where code has not put any.
        while self.steps and not (ahead and self.told()):
            self.steps.pop(0)(self)

    def clear_memory(self):
        # Memory by name is not for this turn: it belonged to processes that are dead. Where nobody runs, nobody changes it meanwhile; directories in it
        # may lie deeper than a path reaches, so what is in one comes up before that goes.
        n = 0
        while names := os.listdir(SHARED):
            for name in names:
                path = os.path.join(SHARED, name)
                try:
                    os.unlink(path)
                    continue
                except IsADirectoryError:
                    pass
                for inner in os.listdir(path):
                    n += 1
                    os.rename(os.path.join(path, inner), b"%s/%d.%s" % (SHARED, n, urandom(16).hex().encode()))
                os.rmdir(path)

    def show_itself(self):
        # What has changed its user is hidden from that user, and so from itself: /proc/self would not open.
        if self.prctl:
            self.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)

    def begin(self, payload):
        order = loads(payload)
        if self.libc is None and "ctypes" in sys.modules:
            find_prctl(self)
        self.clear_memory()
        os.setgroups([USER])
        os.setresgid(USER, USER, USER)
        os.setresuid(USER, USER, USER)
        self.show_itself()
        os.umask(0o022)
        os.chdir(order["cwd"])
        os.environ["HOME"] = os.environ["PWD"] = order["cwd"]
        setup = order.get("setup") or {}
        body_max = setup.get("body_max")
        self.broker = Broker(order["broker"], order["secret"], body_max if isinstance(body_max, int) else BODY_MAX)
        self.make_namespace(setup)
        self.user_site = f"{order['cwd']}/.local/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
        gc.enable()

    def make_namespace(self, setup):
        module = type(sys)("__main__")
        sys.modules["__main__"] = module
        self.namespace = namespace = vars(module)
        namespace["__builtins__"] = builtins
        for tool in setup.get("tools") or ():
            if isinstance(tool, dict) and _identifier(tool.get("name")):
                namespace[tool["name"]] = make_tool(self, tool)
        for f in make_queries(self):
            namespace[f.__name__] = f
        namespace["SUBMIT"] = make_submit(self, setup.get("outputs") or ())
        namespace["ToolError"], namespace["SubmitError"] = ToolError, SubmitError

    # -- what code calls

    def call(self, name, args, kwargs):
        if self.submitted:
            raise _Submitted(0)
        return self.broker.call(name, args, kwargs)

    def submit(self, outputs):
        if getpid() != self.pid:
            raise SubmitError("SUBMIT works in the turn's own process, not in a fork of it")
        data = dumps_for_submit(outputs)
        main = get_ident() == self.main
        if main:
            self.critical += 1
        try:
            self.ask(data)
        finally:
            if main:
                self.critical -= 1
                if self.pending and self.critical == 0:
                    self.pending = False
                    raise Interrupted("the action's time is over")
        if not main:
            pthread_kill(self.main, SIGINT)
            raise SystemExit(0)    # which ends a thread without a word
        raise _Submitted(0)

    def ask(self, data):
        with self.lock:
            if self.asking:
                raise SubmitError("SUBMIT within SUBMIT")
            if not self.executing:
                raise SubmitError("no action is executing")
            if self.submitted:
                return
            self.asking = True
            try:
                self.sequence = (self.sequence + 1) & 0xffffffff
                self.send(b"S", self.action.to_bytes(8, ORDER), self.sequence.to_bytes(4, ORDER), data)
                while True:
                    kind, answer = self.receive()
                    if kind == b"A" and int_from(answer[:4], ORDER) == self.sequence:
                        break
            finally:
                self.asking = False
            if answer[4] != 1:
                raise SubmitError(answer[5:].decode("utf-8", "replace"))
            self.submitted = True

    def on_interrupt(self, *_):
        if getpid() != self.pid:
            raise KeyboardInterrupt
        if not self.executing:
            return
        if self.submitted:
            raise _Submitted(0)
        if self.critical:
            self.pending = True
            return
        raise Interrupted("the action's time is over")

    # -- an action

    def restore(self):
        # What code did to the standard streams holds for its own action only.
        dup2(OUT, 1)
        dup2(ERR, 2)
        if self.stdout.closed:
            self.stdout = open(1, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
        if self.stderr.closed:
            self.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
        sys.stdout, sys.stderr = self.stdout, self.stderr
        try:
            if self.user_site and stat(self.user_site):
                sys.path.append(self.user_site)    # somebody has installed something
                self.user_site = None
        except OSError:
            pass
        signal(SIGINT, self.on_interrupt)

    def await_(self, coroutine):
        if self.loop is None or self.loop.is_closed():
            asyncio = __import__("asyncio")
            self.loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self.loop)
        return self.loop.run_until_complete(coroutine)

    def run(self, code):
        value = eval(code, self.namespace)
        return self.await_(value) if code.co_flags & COROUTINE else value

    def evaluate(self, source, name):
        """Runs it; the value of its last expression."""
        self.compiling = True
        tree = compile(source, name, "exec", ONLY_AST | AWAIT, True)
        last = tree.body.pop() if tree.body and type(tree.body[-1]) is Expr else None
        first = compile(tree, name, "exec", AWAIT, True) if tree.body else None
        last = last and compile(Expression(last.value), name, "eval", AWAIT, True)
        self.compiling = False
        if first:
            self.run(first)
        return self.run(last) if last else None

    def show(self, value):
        if value is not None:
            self.namespace["_"] = value
            sys.stdout.write(repr(value) + "\n")

    def flush(self):
        for stream in {id(s): s for s in (sys.stdout, sys.stderr, self.stdout, self.stderr)}.values():
            try:
                stream.flush()
            except (OSError, ValueError, AttributeError):
                pass

    def work(self, source, variables, name):
        """(kind, type, text, tool error) of an action."""
        failed = None
        try:
            try:
                if variables:
                    self.namespace.update(loads(variables))
                self.show(self.evaluate(source, name))
                self.flush()
                return OK, "", "", ""
            except _Submitted:
                self.flush()
                return OK, "", "", ""
            except SystemExit as e:
                self.flush()
                if e.code is None or e.code == 0:
                    return OK, "", "", ""
                return EXCEPTION, "SystemExit", f"SystemExit: {e.code}", ""
            except BaseException as e:
                failed = e
                self.flush()
                return self.describe(e)
        except _Submitted:
            return OK, "", "", ""
        except Interrupted as e:
            return INTERRUPTED, "Interrupted", f"Interrupted: {e}", ""
        except BaseException as e:
            return EXCEPTION, type(failed or e).__name__, self.plain(failed or e), ""

    def plain(self, e):
        # Where nothing but this file works any more.
        lines, tb = [], e.__traceback__
        while tb and len(lines) < 50:
            code = tb.tb_frame.f_code
            if code.co_filename != FILE:
                lines.append(f'  File "{code.co_filename}", line {tb.tb_lineno}, in {code.co_name}')
                source = self.sources.get(code.co_filename, "").split("\n")
                if 0 < tb.tb_lineno <= len(source):
                    lines.append("    " + source[tb.tb_lineno - 1].strip())
            tb = tb.tb_next
        try:
            said = str(e)
        except Exception:
            said = "(its text cannot be had)"
        return "\n".join(lines + [f"{type(e).__name__}: {said}"])

    def describe(self, e):
        kind, tool_error = EXCEPTION, ""
        if isinstance(e, Interrupted):
            kind = INTERRUPTED
        elif isinstance(e, SyntaxError) and self.compiling:
            kind = SYNTAX
        elif isinstance(e, ToolError):
            kind = TOOL
            tool_error = dumps({"category": str(e.category), "message": clean(str(e.message)), "call_id": None if e.call_id is None else str(e.call_id)})
        try:
            text = self.traceback(e)
        except Exception:
            text = self.plain(e)
        return kind, type(e).__name__, text, tool_error

    def traceback(self, e):
        traceback = __import__("traceback")
        self.publish_sources()
        te = traceback.TracebackException(type(e), e, e.__traceback__, limit=None, compact=True) if sys.version_info >= (3, 10) else \
            traceback.TracebackException(type(e), e, e.__traceback__)
        seen, todo = set(), [te]
        while todo:
            t = todo.pop()
            if t is None or id(t) in seen:
                continue
            seen.add(id(t))
            t.stack[:] = [f for f in t.stack if f.filename != FILE]
            todo += [t.__cause__, t.__context__, *(getattr(t, "exceptions", None) or ())]
        text = "".join(te.format()).rstrip("\n")
        head = "Traceback (most recent call last):\n"
        return text[len(head):] if text.startswith(head) and not te.stack and not te.__cause__ and not te.__context__ else text

    def publish_sources(self):
        linecache = __import__("linecache")
        for name, source in self.sources.items():
            if name not in linecache.cache:
                linecache.cache[name] = (len(source), None, [line + "\n" for line in source.split("\n")], name)
        self.published = True

    def publish(self, name, source):
        # All once, then what is new: a turn may have a hundred thousand actions.
        if "linecache" not in sys.modules:
            return
        if self.published:
            sys.modules["linecache"].cache[name] = (len(source), None, [line + "\n" for line in source.split("\n")], name)
        else:
            self.publish_sources()

    def execute(self, payload):
        self.action = int_from(payload[:8], ORDER)
        end = 12 + int_from(payload[8:12], ORDER)
        name = f"<action {self.action}>"
        source = payload[12:end].decode("utf-8")
        self.sources[name] = source
        self.submitted = self.pending = self.compiling = False
        self.restore()
        self.executing = True
        try:
            self.publish(name, source)
        except Exception:
            pass                   # somebody has made it into something else
        return self.work(source, payload[end:], name)

    def reply(self, kind, type_name, text, tool_error):
        parts = [clip(type_name.encode("utf-8", "backslashreplace"), 200), clip(text.encode("utf-8", "backslashreplace"), TEXT_MAX),
                 tool_error if isinstance(tool_error, bytes) else tool_error.encode()]
        with self.lock:
            self.executing = False
            self.send(b"D", self.action.to_bytes(8, ORDER), bytes([kind]), *(x for p in parts for x in (len(p).to_bytes(4, ORDER), p)))

    def step(self):
        kind, payload = self.receive()
        if kind == b"b":
            try:
                self.begin(payload)
            except BaseException as e:
                self.send(b"X", f"{type(e).__name__}: {e}".encode("utf-8", "backslashreplace")[:400])
                _exit(72)
            self.send(b"B")
            self.prepare(False)
            sys.path.insert(0, "")
        elif kind == b"e":
            result = self.execute(payload)
            if getpid() != self.pid:
                _exit(0)        # a fork that has come to the end of its parent's action
            self.reply(*result)
        elif kind != b"A":
            _exit(71)


def clean(text):
    return text.encode("utf-8", "backslashreplace").decode()[:4000]


def clip(data, most):
    """At most that many bytes: beginning and end, whole characters."""
    if len(data) <= most:
        return data
    head, tail = data[:most // 2], data[-(most // 2 - 40):]
    while head and head[-1] & 0xc0 == 0x80:
        head = head[:-1]
    if head and head[-1] >= 0xc0:
        head = head[:-1]
    while tail and tail[0] & 0xc0 == 0x80:
        tail = tail[1:]
    return head + b"\n... cut ...\n" + tail


def dumps_for_submit(outputs):
    try:
        data = dumps(outputs)
    except BindingError as e:
        raise SubmitError(str(e)) from None
    if len(data) > SUBMIT_MAX:
        raise SubmitError(f"the outputs take {len(data)} bytes as JSON, at most {SUBMIT_MAX} can be sent")
    return data


def place(fds):
    # At numbers that code will not meet by chance, and nothing else open.
    high = [dup2(fd, 20 + i, False) for i, fd in enumerate(fds)]
    for fd, target in zip(high, (CONTROL, OUT, ERR)):
        dup2(fd, target, False)
    os.closerange(6, 4096)
    dup2(OUT, 1)
    dup2(ERR, 2)
    return socket(fileno=CONTROL)


def touch(turn):
    # The first action's memory is copied now. Where the turn has begun it will come to that by itself.
    if turn.broker:
        return
    turn.make_namespace({"tools": [{"name": "f", "parameters": {"properties": {"a": {}}}}]})
    turn.execute(b"\0" * 8 + (5).to_bytes(4, ORDER) + b"x = 1" + b"{}")
    turn.executing = False
    turn.sources.clear()
    if "linecache" in sys.modules:
        sys.modules["linecache"].cache.clear()


def load_site(turn):
    if "site" not in sys.modules:
        __import__("site").main()


def find_prctl(turn):
    try:
        turn.libc = __import__("ctypes").CDLL(None)
        turn.prctl = turn.libc.prctl
    except (ImportError, OSError, AttributeError):
        return
    if turn.broker:
        turn.show_itself()


def serve(fds):
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    sys.argv = [""]
    turn = Turn(place(fds))
    turn.send(b"H")
    turn.prepare(True)
    while True:
        try:
            turn.step()
        except BaseException as e:
            if getpid() != turn.pid:
                _exit(1)
            if not turn.executing:
                _exit(73)
            turn.reply(EXCEPTION, type(e).__name__, type(e).__name__, "")
