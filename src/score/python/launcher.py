"""Starts a test runner with Brig's reporter in it: `python -S launcher.py EVENTS PLAN` (numbers of two descriptors).

PLAN is read once and closed: one JSON object, made by score/run.c. EVENTS is where the reporter writes what happened
(channel.py says how); it is moved to a high number and is not inherited by programs that tests start.

The order matters. The interpreter starts without `site` and without PYTHONPATH, so nothing of the tree can run before this
file. Then `site` is set up, with the directories of the tree hidden while sitecustomize is looked for. Then the runner is
imported, still without the tree. Only then sys.path becomes what `python -m RUNNER` would have.

Python >= 3.5, standard library only.
"""
import sys

HERE = sys.path.pop(0)  # the directory of this file: not a place to import from

import os  # noqa: E402


def _read_plan(fd):
    from _json import scanstring  # noqa: F401  (the C scanner must be there before the tree is)
    import json

    chunks = []
    while True:
        chunk = os.read(fd, 1 << 20)
        if not chunk:
            break
        chunks.append(chunk)
    os.close(fd)
    return json.loads(b"".join(chunks).decode("utf-8"))


def _move_up(fd):
    import fcntl

    for low in (600 + os.getpid() % 300, 100, 10):
        try:
            moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, low)
            break
        except OSError:
            pass
    else:
        return fd
    os.close(fd)
    return moved


def _redirect(redirects):
    for fd, op, target in redirects:
        if op == ">&":
            os.dup2(int(target), fd)
            continue
        flags = {"<": os.O_RDONLY, ">": os.O_WRONLY | os.O_CREAT | os.O_TRUNC, ">>": os.O_WRONLY | os.O_CREAT | os.O_APPEND}[op]
        opened = os.open(target, flags, 0o666)
        if opened != fd:
            os.dup2(opened, fd)
            os.close(opened)
        else:
            os.set_inheritable(fd, True)


def _in_tree(path, tree):
    path = os.path.realpath(path or ".")
    return path == tree or path.startswith(tree + "/")


def _set_up_site(tree):
    """site.main(), but sitecustomize and usercustomize of the tree are not honoured."""
    import site

    def guarded(original):
        def call():
            kept = list(sys.path)
            sys.path[:] = [p for p in kept if not _in_tree(p, tree) or p in packages()]
            try:
                original()
            finally:
                sys.path.extend(p for p in kept if p not in sys.path)
                sys.path.sort(key=lambda p: kept.index(p) if p in kept else len(kept))
        return call

    def packages():
        try:
            return site.getsitepackages()
        except AttributeError:  # an old virtualenv's site
            return []

    site.execsitecustomize = guarded(site.execsitecustomize)
    site.execusercustomize = guarded(site.execusercustomize)
    site.main()
    return packages()


def _provided_by(roots, name):
    for root in roots:
        for candidate in (os.path.join(root, name + ".py"), os.path.join(root, name, "__init__.py")):
            if os.path.exists(candidate):
                return candidate
    return None


def _load_runner(framework):
    if framework == "unittest":
        import unittest.main
        import unittest.runner
        return unittest
    import pytest
    import _pytest.config
    for name in _pytest.config.default_plugins:
        __import__("_pytest." + name)
    return pytest


def _is_distrusted(at, distrusted):
    return at in distrusted or os.path.dirname(at) in distrusted  # a package is named by its __init__.py, or by a link to it


def _hidden(distrusted, roots, clean):
    """Installed modules in whose place the patch has put its own."""
    names, roots = set(), set(os.path.realpath(p) for p in roots)
    for at in distrusted:
        where, base = os.path.split(at[:-len("/__init__.py")] if at.endswith("/__init__.py") else at)
        name = base.split(".")[0]
        if os.path.lexists(at) and where in roots and _provided_by(clean, name):
            names.add(name)
    return sorted(names)


def _import_runner(plan, tree, clean, final):
    """Imports the runner from outside the tree, unless the tree is itself the runner or a package that the runner is made of: then
    the tests are about the tree's copy, and that one must be loaded. Returns (module, names that came from the tree)."""
    before = set(sys.modules)
    roots = [p for p in final if p not in clean]
    distrusted = set(os.path.join(tree, p) for p in plan["distrust"])
    names, runner = [], None
    sys.path[:] = clean
    try:
        runner = _load_runner(plan["framework"])
    except ImportError:
        names = ["?"]
    if plan["framework"] == "unittest":
        return runner, []
    stdlib = os.path.dirname(os.__file__) + "/"
    loaded = set()
    for full in set(sys.modules) - before:
        where = getattr(sys.modules[full], "__file__", None) or ""
        if "-packages/" in where or not where.startswith(stdlib):
            loaded.add(full.split(".")[0])
    for name in loaded:
        at = _provided_by(roots, name) if name in sys.modules and getattr(sys.modules[name], "__file__", None) else None
        if at and not _is_distrusted(at, distrusted):
            names.append(name)
    if names:
        for full in set(sys.modules) - before:
            if full.split(".")[0] in loaded:
                del sys.modules[full]
        sys.path[:] = final
        runner = _load_runner(plan["framework"])
    return runner, sorted(names)


def _become_main(runner_name):
    """sys.modules['__main__'] as after `python -m RUNNER`, so that multiprocessing and pickling see nothing of this file."""
    import importlib.util
    import types

    runner = sys.modules[runner_name]  # a package, or (pytest before 5) one module
    spec = importlib.util.find_spec(runner_name + ".__main__") if hasattr(runner, "__path__") else getattr(runner, "__spec__", None)
    main = types.ModuleType("__main__")
    if spec is not None:
        main.__spec__ = spec
        main.__file__ = spec.origin
        main.__package__ = runner_name
    sys.modules["__main__"] = main
    return main.__dict__.get("__file__") or runner_name


def _reporter(name):
    """Source is run in a namespace with its own copy of the builtins: a test that patches builtins does not change it."""
    import builtins

    space = {"__builtins__": dict(vars(builtins)), "__name__": "brig_reporter"}
    for part in ("channel.py", name):
        with open(os.path.join(HERE, part), "rb") as f:
            exec(compile(f.read(), "brig:" + part, "exec", dont_inherit=True), space)
    return space


def main():
    leave = os._exit
    events, plan = int(sys.argv[1]), _read_plan(int(sys.argv[2]))
    events = _move_up(events)
    _redirect(plan["redirects"])
    os.environ.update(plan["environment"])
    tree = os.path.realpath(plan["tree"])
    packages = _set_up_site(tree)
    first = [] if plan["console"] else [os.getcwd()]
    given = [os.path.abspath(p) if p else os.getcwd() for p in plan["environment"].get("PYTHONPATH", "").split(":")] \
        if plan["environment"].get("PYTHONPATH") else []
    final = first + given + [p for p in sys.path if p not in given]
    clean = [p for p in final if not _in_tree(p, tree) or p in packages]
    try:
        runner, from_tree = _import_runner(plan, tree, clean, final)
    except ImportError as e:
        sys.stderr.write("%s: %s\n" % (sys.executable, e))
        sys.stderr.flush()
        leave(1)
    space = _reporter("reporter_%s.py" % plan["framework"])
    hidden = _hidden(set(os.path.join(tree, p) for p in plan["distrust"]), [p for p in final if p not in clean], clean)
    # Plugins of the image are loaded before the tree's first file; the reporter makes `final` of it then.
    sys.path[:] = clean + [p for p in final if p not in clean] if hidden else final
    plan["path"] = final
    keep = sys.modules["__main__"]  # its namespace is this function's
    sys.argv[:] = [_become_main(plan["framework"])]
    if plan["base_config"]:
        extra = dict(_reporter("base_config.py"))
        plan["config"] = extra["prepare"](plan, tree, getattr(runner, "__version__", "0"))
    plan["hidden"] = hidden
    channel = space["Channel"](events, plan["nonce"])
    status = space["run"](runner, channel, plan, from_tree)
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        try:
            stream.flush()
        except Exception:
            pass
    leave(status)
    return keep


if __name__ == "__main__":
    main()
