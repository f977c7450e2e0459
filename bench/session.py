#!/usr/bin/env python3
"""Sessions over HTTP: what a command, a start and a thousand idle sessions cost.

- exec: `true` in a live session over a kept connection against a bare posix_spawn of the same program, in the same sandbox with the
  same environment (a Python process in it spawns and takes the time); blocks of both alternate, medians. Once in the executor's dialect
  (`bash -lc true`), once natively (`/bin/true`, no shell).
- start: POST /v1/sessions?wait to ready, against what a sandbox alone takes (bench_sandbox's "sandbox with init" less its exec is not
  the same thing; here it is the daemon's own histogram of creations, which ends where the sandbox can run its first process).
- idle: 1,000 sessions: resident memory of the daemon, the spawner and every process of ours inside; exec's p99 against that of 10.
"""
import json
import os
import pathlib
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

BLOCKS, BLOCK, STARTS, IDLE, TAIL = 20, 15, 60, 1000, 400
# Runs inside: spawns argv that often, prints the microseconds of each.
SPAWNER = """import os, sys, time
for _ in range(int(sys.argv[1])):
    began = time.perf_counter()
    pid = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
    os.waitpid(pid, 0)
    print((time.perf_counter() - began) * 1e6)
"""


class Client:
    """One kept connection, and as little Python as possible."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, method, path, body=b""):
        self.socket.sendall(b"%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (method, path, len(body), body))
        data = b""
        while b"\r\n\r\n" not in data:
            data += self.socket.recv(65536)
        head, _, rest = data.partition(b"\r\n\r\n")
        length = int(re.search(rb"content-length: (\d+)", head, re.I)[1])
        while len(rest) < length:
            rest += self.socket.recv(65536)
        return int(head[9:12]), rest

    def json(self, method, path, body=None):
        status, data = self.send(method.encode(), path.encode(), json.dumps(body).encode() if body is not None else b"")
        assert status < 300, (status, data)
        return json.loads(data)


def start_daemon(build, top):
    program = next(p for p in (os.path.join(build, "brig"), os.path.join(build, "src/cmd/brig")) if os.path.exists(p))
    process = subprocess.Popen([program, "serve"], stdout=subprocess.PIPE, stderr=open(top / "brig.log", "wb"),
                               env={"PATH": os.environ["PATH"], "BRIG_HOME": str(top / "home"), "API_PORT": "0", "BRIG_LOG_LEVEL": "warn"})
    line = process.stdout.readline().decode()
    if not line.startswith("ready "):
        raise RuntimeError(f"the daemon said {line!r}: {(top / 'brig.log').read_text()[-2000:]}")
    return process, int(line.rsplit(":", 1)[1])


def timed(call):
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1e6


def report(bar, value, limit, detail, unit="ratio"):
    print(json.dumps({"bar": bar, "value": round(value, 2), "limit": limit, "better": "lower", "unit": unit, "detail": detail}), flush=True)


def new(client, wait=60):
    return client.json("POST", f"/v1/sessions?wait={wait}", {"network": "none", "limits": {"disk_mb": 1024}})["id"]


def used(client):
    """A session in which something has run, as in every one that is idle for a while."""
    s = new(client)
    client.json("POST", f"/v1/sessions/{s}/exec", {"argv": ["/bin/true"]})
    return s


def compare(name, limit, session, path, body, argv, client):
    status, data = client.send(b"POST", path, body)
    assert status == 200 and json.loads(data)["exit_code"] == 0, data
    got = {"exec": [], "bare": []}

    def calls():
        got["exec"] += [timed(lambda: client.send(b"POST", path, body)) for _ in range(BLOCK)]

    def spawns():
        answer = client.json("POST", f"/v1/sessions/{session}/exec", {"argv": ["/usr/bin/python3", "-c", SPAWNER, str(BLOCK), *argv]})
        assert answer["exit_code"] == 0, answer
        got["bare"] += [float(line) for line in answer["stdout"].split()]

    calls(), spawns()
    got = {"exec": [], "bare": []}
    for _ in range(BLOCKS):
        for side in random.sample([calls, spawns], 2):
            side()
    mine, bare = statistics.median(got["exec"]), statistics.median(got["bare"])
    report(name, mine / bare, limit, f"{mine:.0f} µs against {bare:.0f} µs, {BLOCKS} blocks of {BLOCK}")


def creations(client):
    text = client.send(b"GET", b"/metrics")[1].decode()
    get = lambda what: float(re.search(rf"^brig_sandbox_create_seconds_{what} ([0-9.e+-]+)", text, re.M)[1])
    return get("sum"), get("count")


def starts(client):
    times = []
    before = creations(client)
    for _ in range(STARTS):
        began = time.perf_counter()
        s = new(client)
        times.append((time.perf_counter() - began) * 1e6)
        client.json("DELETE", f"/v1/sessions/{s}")
    after = creations(client)
    sandbox = (after[0] - before[0]) / (after[1] - before[1]) * 1e6
    mine = statistics.median(times)
    report("session start to ready against its sandbox", mine / sandbox, 3, f"p50 {mine:.0f} µs against {sandbox:.0f} µs (mean), {STARTS} starts, row on disk before the answer")


def children(pid):
    found, todo = [], [pid]
    parents = {}
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            ppid = int(re.search(r"^PPid:\t(\d+)", (entry / "status").read_text(), re.M)[1])
            parents.setdefault(ppid, []).append(int(entry.name))
        except (OSError, TypeError):
            continue
    while todo:
        at = todo.pop()
        found.append(at)
        todo += parents.get(at, [])
    return found


def resident(pids):
    total = 0
    for pid in pids:
        try:
            total += int(re.search(r"^VmRSS:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)[1])
        except (OSError, TypeError):
            continue
    return total


def tail(client, sessions):
    body = json.dumps({"argv": ["/bin/true"]}).encode()
    times = sorted(timed(lambda: client.send(b"POST", f"/v1/sessions/{random.choice(sessions)}/exec".encode(), body)) for _ in range(TAIL))
    return times[int(TAIL * 0.99) - 1], statistics.median(times)


def idle(client, daemon):
    few = [used(client) for _ in range(10)]
    tail(client, few)
    before = tail(client, few)
    many = few + [used(client) for _ in range(IDLE - 10)]
    pids = children(daemon.pid)
    held = resident(pids)
    after = tail(client, many)
    report(f"{IDLE} idle sessions, resident memory each", held / IDLE, 400, f"daemon, spawner and {len(pids) - 2} processes inside: {held / 1024:.0f} MiB in all", "KiB")
    report(f"exec p99 with {IDLE} sessions against 10", after[0] / before[0], 2, f"{after[0]:.0f} µs against {before[0]:.0f} µs; p50 {after[1]:.0f} against {before[1]:.0f}")
    for s in many:
        client.json("DELETE", f"/v1/sessions/{s}")


def main():
    build = sys.argv[1] if len(sys.argv) > 1 else "build"
    top = pathlib.Path(tempfile.mkdtemp(prefix="brig-bench-session-", dir="/var/tmp"))
    top.chmod(0o755)
    daemon, port = start_daemon(build, top)
    try:
        client = Client(port)
        s = new(client)
        compare("exec of `true` over HTTP against `bash -lc true`", 1.25, s, f"/session/{s}/exec".encode(), b'{"command":"true"}', ["/bin/bash", "-lc", "true"], client)
        compare("native exec of /bin/true over HTTP against posix_spawn", 1.5, s, f"/v1/sessions/{s}/exec".encode(), b'{"argv":["/bin/true"]}', ["/bin/true"], client)
        client.json("DELETE", f"/v1/sessions/{s}")
        starts(client)
        idle(client, daemon)
    finally:
        daemon.terminate()
        daemon.wait(120)
        shutil.rmtree(top, ignore_errors=True)


if __name__ == "__main__":
    main()
