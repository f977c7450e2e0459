"""Small images made of this machine's own files, for tests: a shell, a Python that can run pytest, the configuration around them."""
import functools
import hashlib
import io
import json
import os
import pathlib
import re
import subprocess
import tarfile
import urllib.parse

BUSYBOX = "/bin/busybox"
APPLETS = ("sh", "cat", "ls", "id", "env", "pwd", "touch", "mkdir", "rm", "sleep", "true", "false", "printf", "echo", "head", "ln", "test", "find", "chown", "dd", "kill")
PYTEST_PARTS = ("pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "attr", "attrs")
USERS = b"root:x:0:0::/root:/bin/sh\napp:x:77:78::/home/app:/bin/sh\n"


class Tar:
    def __init__(self):
        self.bytes, self.seen = io.BytesIO(), set()
        self.tar = tarfile.open(fileobj=self.bytes, mode="w")

    def add(self, name, data=b"", mode=0o644, **more):
        info = tarfile.TarInfo(name)
        info.size, info.mode = len(data), mode
        for key, value in more.items():
            setattr(info, key, value)
        self.tar.addfile(info, io.BytesIO(data))
        return self

    def directory(self, name, mode=0o755, **more):
        return self.add(name, mode=mode, type=tarfile.DIRTYPE, **more)

    def link(self, name, target):
        return self.add(name, type=tarfile.SYMTYPE, linkname=target)

    def host(self, path, name=None):
        """The file of the machine, at the same path where no other name is given."""
        name = (name or path).lstrip("/")
        if name not in self.seen:
            self.seen.add(name)
            self.add(name, pathlib.Path(path).read_bytes(), 0o755 if os.access(path, os.X_OK) else 0o644)
        return self

    def program(self, path, name=None):
        """And the libraries that it is linked with."""
        self.host(os.path.realpath(path), name or path)
        told = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
        for library in re.findall(r"(/\S+) \(0x", told):
            self.host(os.path.realpath(library), library)
        return self

    def tree(self, path, skip=()):
        for top, directories, files in os.walk(path):
            directories[:] = sorted(d for d in directories if d not in ("__pycache__", *skip))
            for name in sorted(files):
                self.host(os.path.join(top, name))
        return self

    def done(self):
        self.tar.close()
        return self.bytes.getvalue()


def shell(*more):
    """Busybox as /bin/sh and what goes with it; `more` is called with the archive."""
    t = Tar().directory("bin").host(BUSYBOX)
    for name in APPLETS:
        t.link("bin/" + name, "busybox")
    t.directory("tmp", 0o1777).add("etc/passwd", USERS).add("etc/group", b"root:x:0:\napp:x:78:\n")
    for one in more:
        one(t)
    return t.done()


@functools.lru_cache(None)
def python():
    """A shell (bash too), and a python3 with pytest: about 25 MB."""
    def add(t):
        t.program("/usr/bin/python3", "/usr/bin/python3").program("/bin/bash")
        t.tree("/usr/lib/python3.11", ("test", "idlelib", "tkinter", "lib2to3", "ensurepip", "pydoc_data", "config-3.11-x86_64-linux-gnu"))
        for name in PYTEST_PARTS:
            t.tree("/usr/lib/python3/dist-packages/" + name)
        for info in pathlib.Path("/usr/lib/python3/dist-packages").glob("pytest-*info"):
            t.tree(str(info))
        for module in pathlib.Path("/usr/lib/python3.11/lib-dynload").glob("*.so"):
            t.program(str(module), str(module))
    return shell(add)


def sha(data):
    return hashlib.sha256(data).hexdigest()


def with_configuration(*layers, name, **config):
    """The layers as an archive of `docker save`, with an image configuration (Env=[...], WorkingDir=, User=)."""
    text = json.dumps({"architecture": "amd64", "os": "linux", "config": config, "rootfs": {"type": "layers", "diff_ids": ["sha256:" + sha(x) for x in layers]}}).encode()
    t = Tar()
    names = [f"l{i}/layer.tar" for i in range(len(layers))]
    t.add("manifest.json", json.dumps([{"Config": "c.json", "RepoTags": [name], "Layers": names}]).encode()).add("c.json", text)
    for at, data in zip(names, layers):
        t.add(at, data)
    return t.done()


def load(daemon, body, **query):
    """Imports it; what the daemon says of the image."""
    answer = daemon.call("POST", "/v1/images/import?" + urllib.parse.urlencode(query), body)
    assert answer.status == 200, answer
    return answer.json


def users(daemon, name):
    """How many use the image now."""
    found = [i for i in daemon.call("GET", "/v1/images").json["images"] if name in i["names"]]
    assert found, name
    return found[0]["users"]
