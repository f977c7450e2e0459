"""The event channel, as the reporters write it: one JSON object a line, ASCII.

    {"k": nonce, "n": sequence from 0, "e": event, ...}

Events and their fields:

    start     framework, version, python, root, tree: [names of the runner's packages that came from the tree],
              hidden: [names of installed modules that a new one of the tree stands before]
    ids       ids: [...]               the collected tests, in order; any number of these events
    collected count, plugins: [...],   the list is complete; files of the tree that are plugins of the runner;
              foreign: [...]           ids that name a class which the test is none of
    missing   ids: [...]               tests that the command names and that are not there; any number of these events
    broken    path, text               a file (or module) that could not be collected
    skipped   path, text               a file that was skipped as a whole
    run       i                        test i (its place in the list) begins
    test      i, p, d                  it ended: phases (below), milliseconds
    other     id, p                    an outcome of a test that is not in the list
    end       x, tests, bad            exit status, number of `test` events, how many of them did not pass

Phases are pairs of letters, in the order in which they were reported: which (s setup, c call, t teardown) and what
(p passed, f failed, e error, s skipped, x failed as expected, X passed though expected to fail).

Everything needed later is taken at import, before any code of the tree runs, and runs on private builtins.
"""
from sys import modules as _modules
from os import write as _write, getpid as _getpid
from time import perf_counter as _clock
try:
    from _json import encode_basestring_ascii as _quote
except ImportError:
    from json.encoder import py_encode_basestring_ascii as _quote

ID_MAX = 16384
TEXT_MAX = 2000


def _clean(text, limit):
    """What a strict JSON reader takes: no lone surrogates, no NUL, bounded."""
    text = str(text)[:limit].replace("\0", "\\0")
    try:
        text.encode("utf-8")
    except UnicodeError:
        text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text


def _files_of_class(cls):
    """Where a class of tests and those that it is from have their code: by their modules and by the code itself."""
    found = set()
    for one in cls.__mro__:
        found.add(getattr(_modules.get(one.__module__), "__file__", None))
        for member in list(vars(one).values()):
            found.add(getattr(getattr(getattr(member, "__func__", member), "__code__", None), "co_filename", None))
    return [path for path in found if isinstance(path, str) and path.startswith("/")]


class Channel(object):
    def __init__(self, fd, nonce):
        self._fd = fd
        self._head = '{"k":"%s","n":' % nonce
        self._seq = 0
        self._pid = _getpid()
        self._lost = False

    def emit(self, event, **fields):
        if self._lost or _getpid() != self._pid:  # a fork of the runner reports nothing
            return
        parts = [self._head, str(self._seq), ',"e":"', event, '"']
        for key in fields:
            parts.append(',"%s":' % key)
            parts.append(self._value(fields[key]))
        parts.append("}\n")
        self._seq += 1
        data = "".join(parts).encode("ascii")
        try:
            while data:
                data = data[_write(self._fd, data):]
        except OSError:
            self._lost = True

    def _value(self, v):
        if isinstance(v, int):
            return str(v)
        if isinstance(v, list):
            return "[" + ",".join([self._value(x) for x in v]) + "]"
        return _quote(_clean(v, ID_MAX))

    def emit_parts(self, event, ids):
        part, size = [], 0
        for one in ids:
            part.append(one)
            size += len(one)
            if len(part) == 64 or size > 16384:
                self.emit(event, ids=part)
                part, size = [], 0
        if part:
            self.emit(event, ids=part)

    def emit_ids(self, ids, **more):
        self.emit_parts("ids", ids)
        self.emit("collected", count=len(ids), **more)
