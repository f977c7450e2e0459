#!/usr/bin/env python3
"""Memory of the daemon while 1 GiB goes up into a session, comes down as a file and as an archive, and is exported by the executor's
protocol. What counts is the most that VmRSS rises above what it was before, looked at every 20 ms; the speed is told beside it.

The content does not compress, so the archives have its size.
"""
import http.client
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

SIZE = 1 << 30
PIECE = os.urandom(1 << 20)


class Daemon:
    def __init__(self, build, top):
        self.process = subprocess.Popen([os.path.join(build, "brig"), "serve", "--drain-grace=0"], stdout=subprocess.PIPE, stderr=open(top / "stderr", "wb"),
                                        env=dict(os.environ, BRIG_HOME=str(top / "home"), API_PORT="0"))
        line = self.process.stdout.readline().decode()
        if not line.startswith("ready "):
            raise RuntimeError(f"the daemon said {line!r}: {(top / 'stderr').read_text()[-2000:]}")
        self.host, port = line.split("//")[1].strip().rsplit(":", 1)
        self.port = int(port)

    def rss(self):
        """MiB."""
        return int(re.search(r"^VmRSS:\s+(\d+) kB", pathlib.Path(f"/proc/{self.process.pid}/status").read_text(), re.M)[1]) / 1024

    def request(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=600)
        connection.request(method, path, body=body, headers=headers or {})
        answer = connection.getresponse()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {answer.read(500)!r}")
        return answer

    def json(self, method, path, body=None):
        return json.loads(self.request(method, path, json.dumps(body) if body is not None else None).read())


def drain(answer):
    total = 0
    while data := answer.read(1 << 20):
        total += len(data)
    return total


def measure(d, bar, work):
    before, peak, done = d.rss(), [0.0], threading.Event()

    def watch():
        while not done.wait(0.02):
            peak[0] = max(peak[0], d.rss())
    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.monotonic()
    try:
        moved = work()
    finally:
        seconds = time.monotonic() - start
        done.set()
        watcher.join()
    if moved < SIZE:
        raise RuntimeError(f"{bar}: only {moved} bytes")
    print(json.dumps({"bar": f"memory growth, {bar}", "value": round(max(peak[0] - before, 0), 1), "limit": 16, "better": "lower", "unit": "MiB",
                      "detail": f"{SIZE / seconds / 1e6:.0f} MB/s, from {before:.1f} MiB"}), flush=True)


def main():
    top = pathlib.Path(tempfile.mkdtemp(prefix="brig-files-", dir="/tmp"))
    top.chmod(0o755)
    try:
        d = Daemon(sys.argv[1], top)
        session = d.json("POST", "/v1/sessions?wait=60", {"image": "host", "network": "none"})["id"]
        at = f"/v1/sessions/{session}"
        d.request("PUT", f"{at}/files?path=/workspace/small&parents=1", b"x").read()

        def up():
            answer = d.request("PUT", f"{at}/files?path=/workspace/big", (PIECE for _ in range(SIZE >> 20)), {"Content-Length": str(SIZE)})
            return json.loads(answer.read())["size"]
        measure(d, "upload of 1 GiB", up)
        measure(d, "download of 1 GiB", lambda: drain(d.request("GET", f"{at}/files?path=/workspace/big")))
        measure(d, "archive of 1 GiB down", lambda: drain(d.request("GET", f"{at}/archive?path=/workspace")))
        measure(d, "export of 1 GiB", lambda: drain(d.request("POST", f"/session/{session}/export", json.dumps({"path": "/workspace"}))))
        d.request("DELETE", at).read()
        d.process.terminate()
        if d.process.wait(60) != 0:
            raise RuntimeError("the daemon did not end well")
    finally:
        shutil.rmtree(top, ignore_errors=True)


if __name__ == "__main__":
    main()
