"""Drives tree_tool, makes repositories, and serves them over http with git's own backend."""
import base64
import http.server
import os
import pathlib
import queue
import subprocess
import threading
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ.get("BRIG_BUILD", "build"))
BUILD = BUILD if BUILD.is_absolute() else ROOT / BUILD
WAIT = 60  # s: longer than anything here may take; reaching it fails the test

GIT_ENV = {
    "PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.com",
    "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@example.com", "GIT_AUTHOR_DATE": "2020-01-02T03:04:05Z", "GIT_COMMITTER_DATE": "2020-01-02T03:04:05Z",
}
COMMIT_TIME = 1577934245


class Repository:
    def __init__(self, path):
        self.path = path
        path.mkdir()
        self.git("init", "-q", "-b", "main", ".")
        self.git("config", "uploadpack.allowAnySHA1InWant", "true")

    def git(self, *args, **kwargs):
        done = subprocess.run(["git", *args], cwd=self.path, env=GIT_ENV, check=True, capture_output=True, text=True, umask=0o022, **kwargs)
        return done.stdout.strip()

    def write(self, files):
        for name, text in files.items():
            p = self.path / name
            p.parent.mkdir(parents=True, exist_ok=True)
            p.write_bytes(text if isinstance(text, bytes) else text.encode())

    def commit(self, files, message="change"):
        self.write(files)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")


class Answer:
    def __init__(self, fields):
        self.kind = fields[0]
        if self.kind == "got":
            self.commit, self.tree_hash, self.time, self.cached, self.layer, self.setup, self.ms = fields[2:]
            self.time, self.cached, self.ms = int(self.time), self.cached == "1", int(self.ms)
            self.text = ""
        else:
            self.code, self.text = (fields[2], fields[3]) if self.kind == "failed" else (None, fields[2])

    def __repr__(self):
        return f"<{vars(self)}>"


class Store:
    def __init__(self, home, max_bytes=1 << 40, roots=(), env=None):
        self.home = home
        self.log_path = pathlib.Path(f"{home}.log")
        self.log = open(self.log_path, "ab")
        self.p = subprocess.Popen([BUILD / "tests/e2e/tree_tool", BUILD / "src/cmd/brig", home, str(max_bytes), *map(str, roots)],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True, env=env or {})
        self.lines = queue.Queue()
        self.early = []
        threading.Thread(target=self.read, daemon=True).start()
        assert self.line(lambda f: f[0] == "ready" or f[0].startswith("failed"))[0] == "ready"

    def read(self):
        for line in self.p.stdout:
            self.lines.put(line.rstrip("\n").split("\t"))
        self.lines.put(["end"])

    def line(self, wanted):
        for f in self.early:
            if wanted(f):
                self.early.remove(f)
                return f
        while True:
            f = self.lines.get(timeout=WAIT)
            if wanted(f):
                return f
            assert f[0] != "end", "the tool ended"
            self.early.append(f)

    def send(self, *fields):
        self.p.stdin.write("\t".join(map(str, fields)) + "\n")
        self.p.stdin.flush()

    def ask(self, n, url, commit, setup="", path="/testbed", network="none", timeout_ms=60000):
        self.send("acquire", n, url, commit, path, setup, network, timeout_ms)

    def answer(self, n):
        return Answer(self.line(lambda f: f[0] in ("got", "failed", "refused") and f[1] == str(n)))

    def acquire(self, n, url, commit, **options):
        self.ask(n, url, commit, **options)
        return self.answer(n)

    def get(self, n, url, commit, **options):
        a = self.acquire(n, url, commit, **options)
        assert a.kind == "got", a
        return a

    def run(self, n, command):
        """Status and output of a command in a fresh sandbox on tree n (-1: on the bare image)."""
        self.send("exec", n, command)
        f = self.line(lambda f: f[0] == "ran" and f[1] == str(n))
        return int(f[2]), f[3].replace("\\n", "\n").replace("\\t", "\t")

    def out(self, n, command):
        status, text = self.run(n, command)
        assert status == 0, text
        return text

    def release(self, n):
        self.send("release", n)
        self.line(lambda f: f == ["ok", str(n)])

    def cancel(self, n):
        self.send("cancel", n)
        self.line(lambda f: f == ["ok", str(n)])

    def check(self, url, commit="HEAD"):
        self.send("check", url, commit)
        f = self.line(lambda f: f == ["ok"] or (f[0] == "refused" and len(f) == 2))
        return f[1] if f[0] == "refused" else None

    def layers(self):
        return sorted(p.stem for p in (self.home / "layers").glob("*.img"))

    def kill(self):
        self.p.kill()
        self.line(lambda f: f == ["end"])
        self.p.wait(WAIT)

    def close(self):
        if self.p.poll() is None:
            self.send("quit")
            assert self.line(lambda f: f[0] in ("bye", "end"))[0] == "bye"
            assert self.p.wait(WAIT) == 0
        self.log.close()


class GitServer:
    """http on loopback; every request is counted. With `password`, only those who know it are let in. `hold` stops fetches."""

    def __init__(self, root, password=None, allow_any=True):
        self.requests = []
        self.gate = threading.Event()
        self.gate.set()
        self.reached = threading.Semaphore(0)
        outer = self
        config = [] if allow_any else ["-c", "uploadpack.allowAnySHA1InWant=false", "-c", "uploadpack.allowReachableSHA1InWant=false", "-c", "uploadpack.allowTipSHA1InWant=false"]

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def serve(self):
                outer.requests.append((self.command, self.path, self.headers.get("Authorization")))
                if password:
                    wanted = "Basic " + base64.b64encode(password.encode()).decode()
                    if self.headers.get("Authorization") != wanted:
                        self.send_response(401)
                        self.send_header("WWW-Authenticate", 'Basic realm="x"')
                        self.send_header("Content-Length", "0")
                        self.end_headers()
                        return
                outer.reached.release()
                outer.gate.wait(WAIT)
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                path, _, query = self.path.partition("?")
                path = urllib.parse.urlsplit(path).path     # a proxy is asked for a whole address
                env = {**GIT_ENV, "GIT_PROJECT_ROOT": str(root), "GIT_HTTP_EXPORT_ALL": "1", "REQUEST_METHOD": self.command, "PATH_INFO": path,
                       "QUERY_STRING": query, "CONTENT_TYPE": self.headers.get("Content-Type", ""), "REMOTE_ADDR": "127.0.0.1",
                       "CONTENT_LENGTH": str(len(body)), "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*",
                       "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", "")}
                if allow_any:
                    env["GIT_PROTOCOL"] = self.headers.get("Git-Protocol", "")
                out = subprocess.run(["git", *config, "http-backend"], input=body, env=env, capture_output=True).stdout
                head, _, data = out.partition(b"\r\n\r\n")
                status = 200
                lines = [line.split(b": ", 1) for line in head.split(b"\r\n") if b": " in line]
                for k, v in lines:
                    if k == b"Status":
                        status = int(v.split()[0])
                self.send_response(status)
                for k, v in lines:
                    if k != b"Status":
                        self.send_header(k.decode(), v.decode())
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = serve

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def url(self, name="repo/.git", credentials=""):
        return f"http://{credentials}127.0.0.1:{self.port}/{name}"

    def fetches(self):
        return sum(1 for method, path, _ in self.requests if method == "POST")

    def stop(self):
        self.gate.set()
        self.server.shutdown()
        self.server.server_close()
