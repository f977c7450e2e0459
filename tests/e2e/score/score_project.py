"""Small repositories with patches made by git."""
import os
import subprocess
import textwrap

PYTEST = "python3 -m pytest -p no:cacheprovider -q"
CALC = {
    "calc.py": """
        def add(a, b):
            return a - b
        """,
    "tests/test_calc.py": """
        import calc
        def test_zero():
            assert calc.add(0, 0) == 0
        """,
}
RIGHT = {"calc.py": """
        def add(a, b):
            return a + b
        """}
GOLD = {"tests/test_calc.py": """
        import calc
        def test_zero():
            assert calc.add(0, 0) == 0
        def test_add():
            assert calc.add(1, 2) == 3
        """}
ADD, ZERO = "tests/test_calc.py::test_add", "tests/test_calc.py::test_zero"


class Project:
    """Files at base; patches are what git says about other contents. The text of a file is dedented; None removes it; a path that ends in
    ">" is a link."""

    def __init__(self, path, files):
        self.path, self.n = path, 0
        path.mkdir()
        self.git("init", "-q", "-b", "main")
        self.write(files)
        self.git("add", "-Af")
        self.git("commit", "-q", "--allow-empty", "-m", "base")
        self.commit = self.git("rev-parse", "HEAD").strip()

    def git(self, *words):
        return subprocess.run(["git", "-C", self.path, "-c", "user.name=t", "-c", "user.email=t@example.com", *words], check=True,
                              capture_output=True, text=True).stdout

    def write(self, files):
        for name, text in files.items():
            path = self.path / name.rstrip(">")
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_symlink() or path.is_file():
                path.unlink()
            if name.endswith(">"):
                if path.is_dir():
                    path.rmdir()
                os.symlink(text, path)
            elif isinstance(text, bytes):
                path.write_bytes(text)
            elif text is not None:
                path.write_text(textwrap.dedent(text))

    def patch(self, files):
        self.write(files)
        self.git("add", "-Af")
        text = self.git("diff", "--cached", "--binary")
        self.git("reset", "-q", "--hard")
        return text

    def request(self, patch=None, gold=None, **more):
        request = {"repo_url": f"file://{self.path}", "base_commit": self.commit, "test_command": PYTEST, **more}
        if patch is not None:
            request["patch"] = patch if isinstance(patch, str) else self.patch(patch)
        if gold is not None:
            request["test_patch"] = self.patch(gold)
        return request


def kinds(record):
    return {f["kind"] for f in record["integrity"]["findings"]}
