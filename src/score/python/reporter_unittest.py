"""The reporter inside unittest. channel.py was run before, in the same namespace. Ids on the channel are dotted (TestCase.id())."""
import os as _os
import re as _re
import sys as _sys

_NAMED = _re.compile(r"^(\S+) \(([\w.]+)\)$")
_exists, _real = _os.path.exists, _os.path.realpath
FOREIGN_MAX = 64
NAME = "_brig_name"     # of a test that stands for a name: the name


def dotted(name):
    """"test_x (pkg.mod.Class)" and, since 3.11, "test_x (pkg.mod.Class.test_x)" -> "pkg.mod.Class.test_x"."""
    found = _NAMED.match(name)
    if not found:
        return name
    test, path = found.groups()
    return path if path.endswith("." + test) else path + "." + test


def module_of(name):
    """The longest part of a dotted name that is a module of the tree."""
    parts = dotted(name).split(".")
    for n in range(len(parts), 0, -1):
        path = "/".join(parts[:n])
        if _exists(path + ".py") or _exists(path + "/__init__.py"):
            return ".".join(parts[:n])
    return dotted(name)


def flatten(suite):
    try:
        inner = list(suite)
    except TypeError:
        return [suite]
    return [test for part in inner for test in flatten(part)]


def prune(unittest, channel, suite, commanded):
    """Leaves out what the loader made of ids that do not exist; says which modules could not be imported. A name that the command
    itself gave stays: it fails as it would without us, and is reported as missing. Returns (what stays, names of the missing by identity)."""
    kept, missing = unittest.TestSuite(), {}
    for test in flatten(suite):
        error = getattr(test, "_exception", None)
        if error is None:
            continue
        if isinstance(error, AttributeError):
            if commanded:
                kept.addTest(test)
                missing[id(test)] = getattr(test, NAME, test.id())
            continue
        kept.addTest(test)
        channel.emit("broken", path=getattr(test, "_testMethodName", ""), text=_clean(error, 1 << 20)[-TEXT_MAX:])
    return kept, missing


def naming_loader(unittest):
    """Its tests that stand for a name that is not there know the whole name; the loader keeps the last part."""
    class Loader(unittest.TestLoader):
        def loadTestsFromName(self, name, module=None):
            suite = unittest.TestLoader.loadTestsFromName(self, name, module)
            for test in flatten(suite):
                if is_failed_load(test):
                    setattr(test, NAME, name)
            return suite

    return Loader()


def is_failed_load(test):
    return getattr(test, "_exception", None) is not None and type(test).__name__ == "_FailedTest"


def is_where_it_says(module):
    """A module of the tree stands where its name says, unless its package is told to look for it elsewhere (`__path__`)."""
    path = getattr(module, "__file__", None)
    if not path or module.__name__ == "__main__":
        return True
    directory, name = _os.path.split(path)
    path = _os.path.join(directory, name.split(".")[0])
    if path.endswith("/__init__"):
        path = path[:-len("/__init__")]
    return ("/" + path).endswith("/" + module.__name__.replace(".", "/"))


def is_genuine(test):
    """Is it what its id says: a test of that class of that module? A class of another file can call itself so."""
    cls = type(test)
    if cls.__module__ in ("doctest", "unittest.case"):  # they name others
        return True
    found = _sys.modules.get(cls.__module__)
    try:
        if not is_where_it_says(found):
            return False
        for part in cls.__qualname__.split("."):
            found = getattr(found, part)
    except Exception:
        return False
    return found is cls and test.id().startswith(cls.__module__ + "." + cls.__qualname__ + ".")


class Report(object):
    def __init__(self, channel, tree):
        self.tree = _real(tree) + "/"
        self.channel, self.index, self.tests = channel, {}, []
        self.current, self.phases, self.began = None, [], 0.0
        self.count = self.bad = 0
        self.last_of, self.done = {}, set()
        self.missing = {}       # by identity, tests that stand for a name of the command that is not there

    def collected(self, tests):
        for test in tests:
            if test.id() not in self.index:
                self.index[test.id()] = len(self.tests)
                self.tests.append(test)
        foreign = [t.id() for t in self.tests if not is_genuine(t)]
        self.channel.emit_ids([t.id() for t in self.tests], foreign=foreign[:FOREIGN_MAX], plugins=self.borrowed()[:FOREIGN_MAX])
        self.channel.emit_parts("missing", sorted(set(self.missing.values())))

    def borrowed(self):
        """Files of the tree that classes of tests are from and that have no tests themselves."""
        found, own = set(), set()
        for cls in set(type(t) for t in self.tests):
            own.add(_real(getattr(_sys.modules.get(cls.__module__), "__file__", None) or "/"))
            found.update(_real(path) for path in _files_of_class(cls))
        return sorted(path[len(self.tree):] for path in found - own if path.startswith(self.tree))

    def start(self, test):
        self.current, self.phases, self.began = test.id(), [], _clock()
        if self.current in self.index:
            self.channel.emit("run", i=self.index[self.current])

    def stop(self, test):
        if self.current == test.id() and id(test) not in self.missing:
            self.finish(self.current, "".join(self.phases), int((_clock() - self.began) * 1000))
            for owner in (type(test), type(test).__module__):
                self.last_of[owner if isinstance(owner, str) else owner.__module__ + "." + owner.__qualname__] = self.current
        self.current = None

    def finish(self, name, phases, ms=0):
        if name not in self.index:
            self.channel.emit("other", id=name, p=phases)
            return
        self.done.add(name)
        self.count += 1
        self.bad += 1 if "f" in phases or "e" in phases else 0
        self.channel.emit("test", i=self.index[name], p=phases, d=ms)

    def phase(self, test, what):
        if self.current is not None:
            self.phases.append("c" + what)
        else:
            self.fixture(test.id(), what)

    def fixture(self, name, what):
        """setUpClass (m.C), setUpModule (m): all tests of it that did not run; tear-downs: the last one that did."""
        found = _NAMED.match(name)
        if not found:
            self.finish(name, "c" + what)
            return
        kind, owner = found.groups()
        if kind.startswith("tearDown"):
            self.finish(self.last_of.get(owner, name), "t" + what)
            return
        for test in self.tests:
            cls = type(test).__module__ + "." + type(test).__qualname__
            if (cls == owner or type(test).__module__ == owner) and test.id() not in self.done:
                self.finish(test.id(), "s" + what)


def result_class(unittest, report):
    base = unittest.TextTestResult

    class Result(base):
        def startTest(self, test):
            report.start(test)
            base.startTest(self, test)

        def stopTest(self, test):
            base.stopTest(self, test)
            report.stop(test)

        def addSuccess(self, test):
            report.phase(test, "p")
            base.addSuccess(self, test)

        def addError(self, test, err):
            report.phase(test, "e")
            base.addError(self, test, err)

        def addFailure(self, test, err):
            report.phase(test, "f")
            base.addFailure(self, test, err)

        def addSkip(self, test, reason):
            report.phase(test, "s")
            base.addSkip(self, test, reason)

        def addExpectedFailure(self, test, err):
            report.phase(test, "x")
            base.addExpectedFailure(self, test, err)

        def addUnexpectedSuccess(self, test):  # unittest counts it as a failure
            report.phase(test, "f")
            base.addUnexpectedSuccess(self, test)

        def addSubTest(self, test, subtest, err):
            if err is not None:
                report.phase(test, "f" if issubclass(err[0], test.failureException) else "e")
            base.addSubTest(self, test, subtest, err)

    return Result


def run(unittest, channel, plan, from_tree):
    report = Report(channel, plan["tree"])
    _sys.path[:] = plan["path"]

    class Runner(unittest.TextTestRunner):
        resultclass = result_class(unittest, report)

        def run(self, test):
            if plan["mode"] == "collect":
                raise SystemExit(0)
            return unittest.TextTestRunner.run(self, test)

    class Program(unittest.TestProgram):
        def createTests(self, *args, **kwargs):
            unittest.TestProgram.createTests(self, *args, **kwargs)
            broken, report.missing = prune(unittest, channel, self.test, not plan["ids"] and plan["mode"] != "collect")
            tests = [t for t in flatten(self.test) if not is_failed_load(t)]
            report.collected(tests)
            if broken.countTestCases() or len(tests) != self.test.countTestCases():
                self.test = unittest.TestSuite([self.without_failed(self.test), broken])

        def without_failed(self, suite):
            try:
                inner = list(suite)
            except TypeError:
                return suite
            return type(suite)([self.without_failed(t) for t in inner if not is_failed_load(t)])

    channel.emit("start", framework="unittest", version="%d.%d" % tuple(_sys.version_info[:2]),
                 python="%d.%d.%d" % tuple(_sys.version_info[:3]), root=_os.getcwd(), tree=from_tree)
    named = module_of if plan["run"] == "files" else dotted
    names, seen = [], set()
    for arg in plan["args"] + plan["ids"]:
        name = arg if arg.startswith("-") or "/" in arg or arg == "discover" else named(arg) if arg in plan["ids"] or "." in arg else arg
        if name not in seen or arg not in plan["ids"]:
            names.append(name)
        seen.add(name)
    try:
        Program(module=None, argv=["python -m unittest"] + names, testRunner=Runner, testLoader=naming_loader(unittest))
        status = 0
    except SystemExit as e:
        status = 0 if e.code is None else int(e.code) if isinstance(e.code, (int, bool)) else 1
    channel.emit("end", x=status, tests=report.count, bad=report.bad)
    return status
