"""The reporter inside pytest (>= 3.6): a plugin object. channel.py was run before, in the same namespace."""
import os as _os
import sys as _sys

_join, _norm, _rel, _exists, _unlink = _os.path.join, _os.path.normpath, _os.path.relpath, _os.path.lexists, _os.unlink
_real = _os.path.realpath
PLUGINS_MAX = 64


class Selection(object):
    """Which of the collected tests run. Arguments with `::` select by id; a whole file or directory selects all below it."""

    def __init__(self, ids, cwd, whole_files):
        self.cwd, self.paths, self.whole, self.ids, self.cut_off = cwd, [], [], {}, {}
        self.gone, self.found = [], set()       # whole files that are not there; ids that are
        seen = set()
        for arg in ids:
            path, sep, rest = arg.partition("::")
            path = self.normal(path)
            there = _exists(_join(cwd, path))
            if there and path not in seen:
                seen.add(path)
                self.paths.append(path)
            if sep:
                self.ids.setdefault(path, set()).add(rest)
                if "[" in rest and "]" not in rest:  # cut off in the data
                    self.cut_off.setdefault(path, []).append(rest)
            elif not there:
                self.gone.append(path)
            if not sep or whole_files:
                self.whole.append(path)

    def normal(self, path):
        return _rel(_norm(_join(self.cwd, path)), self.cwd)

    def takes(self, nodeid):
        path, _, rest = nodeid.partition("::")
        named = self.names(path, rest)
        self.found.update((path, name) for name in named)
        return bool(named) or any(w == "." or path == w or path.startswith(w + "/") for w in self.whole)

    def names(self, path, rest):
        """Which of the wanted ids name this test."""
        wanted = self.ids.get(path, ())
        named = [rest] if rest in wanted else []
        for mark in ("::", "["):  # a class, or a function with all its parameters
            at = rest.find(mark)
            while wanted and at >= 0:
                if rest[:at] in wanted:
                    named.append(rest[:at])
                at = rest.find(mark, at + 1)
        return named + [start for start in self.cut_off.get(path, ()) if rest.startswith(start)]

    def missing(self):
        return sorted(path + "::" + rest for path in self.ids for rest in self.ids[path] if (path, rest) not in self.found)


class Reporter(object):
    def __init__(self, pytest, channel, plan, from_tree):
        self.channel, self.plan, self.from_tree = channel, plan, from_tree
        self.version = getattr(pytest, "__version__", "?")
        self.cwd = _os.getcwd()
        self.root = self.cwd
        self.selection = None
        self.index = {}
        self.phases, self.current, self.began = [], None, 0.0
        self.tests = self.bad = 0
        self.spelled = {}

    # ---- before collection

    def drop_config(self):
        for path in self.plan.pop("remove", ()):
            try:
                _unlink(path)
            except OSError:
                pass

    def pytest_load_initial_conftests(self):
        self.drop_config()
        if self.plan["hidden"]:
            _sys.path[:] = [p for p in _sys.path if p not in self.plan["path"]] + self.plan["path"]

    def no_workers(self, config):
        """Tests run in this process: workers of xdist would run without the selection."""
        for name, value in (("numprocesses", None), ("dist", "no"), ("tx", []), ("looponfail", False), ("distload", False)):
            if hasattr(config.option, name):
                setattr(config.option, name, value)

    def pytest_cmdline_main(self, config):
        self.no_workers(config)
        if not getattr(config.option, "pyargs", False):
            ids = self.plan["ids"] or config.args
            if self.plan["ids"] or any("::" in str(a) for a in ids):
                self.selection = Selection([str(a) for a in ids], self.cwd, self.plan["run"] == "files")
                config.args[:] = self.selection.paths
                if not config.args:  # no file is left: collect nothing instead of everything
                    config.args[:] = [self.empty_directory()]

    def empty_directory(self):
        import tempfile
        return tempfile.mkdtemp(prefix="brig-none-")

    def pytest_configure(self, config):
        self.no_workers(config)
        self.root = str(getattr(config, "rootpath", None) or config.rootdir)
        self.channel.emit("start", framework="pytest", version=self.version, python="%d.%d.%d" % tuple(_sys.version_info[:3]),
                          root=self.root, tree=self.from_tree, hidden=self.plan["hidden"])

    # ---- collection

    def spell(self, nodeid):
        """As pytest prints it: relative to the working directory, without the instances that pytest before 3.9 shows."""
        nodeid = nodeid.replace("::()", "")
        if self.root == self.cwd:
            return nodeid
        path, sep, rest = nodeid.partition("::")
        if path not in self.spelled:
            self.spelled[path] = _rel(_join(self.root, path), self.cwd)
        return self.spelled[path] + sep + rest

    def pytest_collectreport(self, report):
        if report.outcome != "passed":
            longrepr = getattr(report, "longrepr", "")
            text = longrepr[2] if isinstance(longrepr, tuple) and len(longrepr) == 3 else longrepr
            self.channel.emit("broken" if report.outcome == "failed" else "skipped", path=self.spell(report.nodeid),
                              text=_clean(text, 1 << 20)[-TEXT_MAX:])

    def pytest_collection_modifyitems(self, session, config, items):
        if self.selection is None:
            return
        taken, left = [], []
        for item in items:
            (taken if self.selection.takes(self.spell(item.nodeid)) else left).append(item)
        if left:
            config.hook.pytest_deselected(items=left)
            items[:] = taken

    def pytest_collection_finish(self, session):
        ids = []
        for item in session.items:
            if item.nodeid not in self.index:
                self.index[item.nodeid] = len(ids)
                ids.append(self.spell(item.nodeid))
        self.channel.emit_ids(ids, plugins=self.plugins(session.config.pluginmanager, self.borrowed(session)))
        if self.is_commanded():
            self.channel.emit_parts("missing", self.selection.missing())

    def is_commanded(self):
        """The command itself names what runs, by id."""
        return self.selection is not None and self.plan["mode"] != "collect" and not self.plan["ids"]

    def plugins(self, manager, more):
        """Files of the tree that are plugins by the word of a conftest or a configuration (`pytest_plugins`, `-p`), or as an installed project,
        or that a conftest has its hooks from. A module can say anything of itself, so the name by which it was asked for counts as well."""
        tree = _real(self.plan["tree"]) + "/"
        files = self.hook_files(manager) + more
        for name, plugin in manager.list_name_plugin():
            if plugin is not None:
                files += [getattr(plugin, "__file__", None), getattr(getattr(plugin, "__spec__", None), "origin", None)]
                files += self.files_of(name)
        files = [_real(path) for path in files if isinstance(path, str) and path.startswith("/")]
        found = sorted(set(path[len(tree):] for path in files if path.startswith(tree) and not path.endswith("/conftest.py")))
        return found[:PLUGINS_MAX]

    def files_of(self, name):
        rest = name.replace(".", "/")
        paths = [_join(_join(self.cwd, root), rest + end) for root in set(self.plan["path"]) for end in (".py", "/__init__.py")]
        return [path for path in paths if not name.startswith("/") and _exists(path)]

    def borrowed(self, session):
        """Files that tests, their classes or fixtures are from, and that are not the test's own."""
        found, own, classes = set(), set(), set()
        for item in session.items:
            try:
                at = _real(str(item.fspath))
                own.add(at)
                code = _real(item.function.__code__.co_filename)
                if code != at:
                    found.add(code)
                if item.cls is not None and item.cls not in classes:
                    classes.add(item.cls)
                    found.update(_real(path) for path in _files_of_class(item.cls))
            except Exception:  # an item of another kind; a function without code of its own
                pass
        try:
            defined = [d for many in session._fixturemanager._arg2fixturedefs.values() for d in many]
        except Exception:  # not in every version
            defined = []
        for one in defined:
            code = getattr(getattr(one.func, "__code__", None), "co_filename", None)
            if code is not None and _real(code) not in own:
                found.add(_real(code))
        return sorted(found - own)

    def hook_files(self, manager):
        found = []
        for hook in list(vars(manager.hook).values()):
            try:
                found += [impl.function.__code__.co_filename for impl in hook.get_hookimpls()]
            except Exception:  # an old pluggy, or a hook that is no function
                pass
        return found

    # ---- tests

    def pytest_runtest_logstart(self, nodeid):
        self.current, self.phases, self.began = nodeid, [], _clock()
        if nodeid in self.index:
            self.channel.emit("run", i=self.index[nodeid])

    def pytest_runtest_logreport(self, report):
        what = {"passed": "p", "failed": "f", "skipped": "s"}.get(report.outcome)
        if what is None:  # "rerun" and the like: another report of the same phase follows
            return
        if hasattr(report, "wasxfail"):
            what = {"p": "X", "s": "x"}.get(what, what)
        phase = {"setup": "s", "call": "c", "teardown": "t"}.get(report.when, "c") + what
        if report.nodeid == self.current:
            self.phases.append(phase)
        elif report.nodeid in self.index:
            self.finish(report.nodeid, phase, 0)
        else:
            self.channel.emit("other", id=self.spell(report.nodeid), p=phase)

    def pytest_runtest_logfinish(self, nodeid):
        if nodeid == self.current:
            self.finish(nodeid, "".join(self.phases), int((_clock() - self.began) * 1000))
            self.current = None

    def finish(self, nodeid, phases, ms):
        if nodeid not in self.index:
            self.channel.emit("other", id=self.spell(nodeid), p=phases)
            return
        self.tests += 1
        self.bad += 1 if "f" in phases or "e" in phases else 0
        self.channel.emit("test", i=self.index[nodeid], p=phases, d=ms)


def run(pytest, channel, plan, from_tree):
    for name in ("pytest_load_initial_conftests", "pytest_cmdline_main", "pytest_configure", "pytest_collection_modifyitems"):
        setattr(Reporter, name, pytest.hookimpl(tryfirst=True)(getattr(Reporter, name)))
    reporter = Reporter(pytest, channel, plan, from_tree)
    args = list(plan.get("config", ())) + plan["args"]
    if plan["ids"]:
        args += [p for p in Selection(plan["ids"], reporter.cwd, True).paths if not p.startswith("-")]
    if plan["mode"] == "collect":
        args += ["--collect-only", "-qq"]
    plan["remove"] = [p for p in plan.get("config", ())[1:2] if "/.brig-config-" in p]
    try:
        status = pytest.main(args, plugins=[reporter])
    except SystemExit as e:
        status = e.code
    finally:
        reporter.drop_config()
    status = 0 if status is None else int(status) if isinstance(status, int) else 1
    # What the command names and is not there is pytest's usage error: who reads the exit status alone must not take it for a pass.
    if status in (0, 5) and reporter.is_commanded():
        for name in reporter.selection.gone + reporter.selection.missing():
            _sys.stderr.write("ERROR: not found: %s\n" % name)
            status = 4
    channel.emit("end", x=status, tests=reporter.tests, bad=reporter.bad)
    return status
