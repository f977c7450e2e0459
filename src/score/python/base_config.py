"""pytest's configuration as at base, where the agent's patch changed a file that holds it and other things (pyproject.toml,
setup.cfg, tox.ini). The file in the tree stays as patched. pytest gets the base text by `-c`, from a file beside the original (so that
paths in it mean the same) which is removed once it is read, and by `--rootdir` the directory that pytest would have found itself.
"""
import os as _os
import re as _re

_NAMES = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
_SECTIONS = {"pyproject.toml": r"^\s*\[\s*tool\.pytest(\.ini_options)?\s*[\].]", "tox.ini": r"^\[pytest\]", "setup.cfg": r"^\[tool:pytest\]"}


class Tree(object):
    def __init__(self, plan, tree, version):
        self.base = dict((_os.path.join(tree, path), text) for path, text in plan["base_config"])
        major = int(_re.match(r"\d*", version).group() or 0)
        self.names = [n for n in _NAMES if major >= 9 or not n.endswith("pytest.toml")]
        self.names = [n for n in self.names if major >= 6 or n != "pyproject.toml"]

    def text(self, path):
        if path in self.base:
            return self.base[path]
        try:
            with open(path, encoding="utf-8", errors="replace") as f:
                return f.read()
        except OSError:
            return None

    def config_in(self, directory):
        for name in self.names:
            path = _os.path.join(directory, name)
            text = self.text(path)
            if text is not None and (name not in _SECTIONS or _re.search(_SECTIONS[name], text, _re.M)):
                return path
        return None


def _upward(directory):
    while True:
        yield directory
        parent = _os.path.dirname(directory)
        if parent == directory:
            return
        directory = parent


def _directories(words):
    found = []
    for word in words:
        path = _os.path.abspath(word.split("::")[0])
        if not word.startswith("-") and _os.path.exists(path):
            found.append(path if _os.path.isdir(path) else _os.path.dirname(path))
    return found


def _find(tree, words):
    """pytest's own search for (root directory, configuration file)."""
    directories = _directories(words)
    ancestor = _os.path.commonpath(directories) if directories else _os.getcwd()
    for directory in _upward(ancestor):
        path = tree.config_in(directory)
        if path:
            return directory, path
    for directory in _upward(ancestor):
        if _os.path.exists(_os.path.join(directory, "setup.py")):
            return directory, None
    for start in directories if directories != [ancestor] else []:
        for directory in _upward(start):
            path = tree.config_in(directory)
            if path:
                return directory, path
    return _os.path.commonpath([_os.getcwd(), ancestor]), None


def _explicit(args):
    """The file of -c in the arguments, and the arguments without it."""
    left, path, skip = [], None, False
    for i, word in enumerate(args):
        if skip:
            skip = False
        elif word in ("-c", "--config-file") and i + 1 < len(args):
            path, skip = args[i + 1], True
        elif word.startswith("--config-file="):
            path = word.split("=", 1)[1]
        elif word.startswith("-c") and not word.startswith("--"):
            path = word[2:]
        else:
            left.append(word)
    return path, left


def prepare(plan, root, version):
    """["-c", FILE, "--rootdir", DIRECTORY] to go before the arguments, or [] where base and patch read the same."""
    tree = Tree(plan, root, version)
    path, left = _explicit(plan["args"])
    if path is not None:
        path = _os.path.abspath(path)
        if path not in tree.base:
            return []
        directory = _os.path.dirname(path)
        plan["args"] = left
    else:
        directory, path = _find(tree, left + plan["ids"])
    name, text = ".ini", "[pytest]\n"
    beside = _os.path.dirname(path) if path else directory
    if path:
        name, text = _os.path.splitext(path)[1], tree.text(path) or ""
    if _os.path.basename(path or "") in ("pytest.toml", ".pytest.toml"):
        return ["-c", path, "--rootdir", directory]
    for where in (beside, "/tmp"):
        target = _os.path.join(where, ".brig-config-%s%s" % (plan["nonce"][:16], name))
        try:
            with open(target, "x", encoding="utf-8") as f:
                f.write(text)
        except OSError:
            continue
        given = any(w == "--rootdir" or w.startswith("--rootdir=") for w in left)
        return ["-c", target] + ([] if given else ["--rootdir", directory])
    return []
