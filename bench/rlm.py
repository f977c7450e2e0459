#!/usr/bin/env python3
"""The RLM runtime over HTTP: actions, calls of tools, turns' beginnings, memory, many sessions.

- action: `x = 1` in a live turn against GET /healthz, blocks of both alternate over one kept connection.
- call: measured inside, from the call to its result; a host polls, and settles at once. With 1 MiB there and back what both Pythons took for
  their own (JSON inside and at the host, the host's time between request and answer) is taken off.
- turn: POST .../turns of a fresh session against `python3 -c pass` in the same sandbox (spawned by a process in it); with sandboxes ready, and
  with a daemon that keeps none ready.
- memory: resident memory of the daemon over the actions of a turn, from the first fiftieth to the end. RLM_ACTIONS says how many.
- sessions: 64 at a time, each with a turn whose calls all have to come back once, with the value that was theirs.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from session import Client, timed

BLOCKS, BLOCK, CALLS, BIG, STARTS = 20, 50, 400, 30, 40
ACTIONS = int(os.environ.get("RLM_ACTIONS", "100000"))
SESSIONS, CALLS_EACH = 64, 20
MIB = 1 << 20
TOOL = {"name": "echo", "parameters": {"properties": {"value": {}}, "required": ["value"]}}
COLD = """import os, time
times = []
for _ in range(3):
    began = time.perf_counter()
    os.waitpid(os.posix_spawn("/usr/bin/python3", ["python3", "-c", "pass"], {"PATH": "/usr/bin:/bin"}), 0)
    times.append((time.perf_counter() - began) * 1e3)
print(min(times))
"""
SMALL_CALLS = """import time, statistics
times = []
for i in range(%d):
    began = time.perf_counter()
    assert echo(i) == i
    times.append((time.perf_counter() - began) * 1e3)
print(statistics.median(times))
"""
BIG_CALL = """import json, time
text = "x" * (1 << 20)
began = time.perf_counter()
back = echo(text)
whole = time.perf_counter() - began
assert back == text
began = time.perf_counter()
json.loads(json.dumps({"result": text}))
print(whole * 1e3, (time.perf_counter() - began) * 1e3)
"""


class Daemon:
    def __init__(self, build, *flags, **env):
        self.top = pathlib.Path(tempfile.mkdtemp(prefix="brig-bench-", dir="/var/tmp"))
        self.top.chmod(0o755)
        program = next(p for p in (os.path.join(build, "brig"), os.path.join(build, "src/cmd/brig")) if os.path.exists(p))
        self.process = subprocess.Popen([program, "serve", *flags], stdout=subprocess.PIPE, stderr=open(self.top / "brig.log", "wb"),
                                        env={"PATH": os.environ["PATH"], "BRIG_HOME": str(self.top / "home"), "API_PORT": "0", "BRIG_LOG_LEVEL": "warn",
                                             "BRIG_RUNTIME_MAX_TOOL_CALLS": "100000", **env})
        line = self.process.stdout.readline().decode()
        if not line.startswith("ready "):
            raise RuntimeError(f"the daemon said {line!r}: {(self.top / 'brig.log').read_text()[-2000:]}")
        self.port = int(line.rsplit(":", 1)[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(60)
        shutil.rmtree(self.top, ignore_errors=True)

    def client(self):
        return Client(self.port)

    def resident(self):
        return int(re.search(r"^VmRSS:\s+(\d+) kB", pathlib.Path(f"/proc/{self.process.pid}/status").read_text(), re.M)[1]) / 1024


class Turn:
    """A session with a turn; `client` is whose thread it is made in."""

    def __init__(self, client):
        self.client = client
        self.session = "/v1/rlm/sessions/" + client.json("POST", "/v1/rlm/sessions", {})["session"]

    def begin(self):
        self.path = f"{self.session}/turns/" + self.client.json("POST", self.session + "/turns", {"tools": [TOOL], "acquire_timeout_s": 120})["turn"]
        return self

    def execute(self, code):
        answer = self.client.json("POST", self.path + "/execute", {"code": code})
        assert answer["error"] is None, answer
        return answer["stdout"]

    def delete(self):
        self.client.json("DELETE", self.session)


def serve(client, path, stop, seen):
    """A host: claims, and settles with the argument. Its own time of each call goes to `seen`, with the call's id."""
    while not stop.is_set():
        answer = client.send(b"GET", b"%s/pending?wait=1" % path.encode())[1]
        began = time.perf_counter()
        for request in json.loads(answer).get("requests", ()):
            body = json.dumps({"id": request["id"], "lease": request["lease"], "result": (request["args"] or list(request["kwargs"].values()))[0]}).encode()
            seen.append((request["id"], (time.perf_counter() - began) * 1e3))
            status, data = client.send(b"POST", path.encode() + b"/result", body)
            assert status == 200, data


class Host:
    def __init__(self, daemon, turn):
        self.stop, self.seen = threading.Event(), []
        self.thread = threading.Thread(target=serve, args=(daemon.client(), turn.path, self.stop, self.seen), daemon=True)
        self.thread.start()

    def end(self):
        self.stop.set()
        self.thread.join(60)


def report(bar, value, limit, detail, unit="ratio"):
    print(json.dumps({"bar": bar, "value": round(value, 3), "limit": round(limit, 3), "better": "lower", "unit": unit, "detail": detail}), flush=True)


def actions(daemon):
    turn = Turn(daemon.client()).begin()
    path, body = (turn.path + "/execute").encode(), b'{"code": "x = 1"}'
    mine, nothing = [], []
    for block in range(BLOCKS + 1):
        for _ in range(BLOCK):
            mine.append(timed(lambda: turn.client.send(b"POST", path, body)) / 1e3)
        for _ in range(BLOCK):
            nothing.append(timed(lambda: turn.client.send(b"GET", b"/healthz")) / 1e3)
        if block == 0:
            mine, nothing = [], []
    turn.delete()
    action, noop = statistics.median(mine), statistics.median(nothing)
    report("action x = 1 over HTTP: p50", action, max(1.5, 3 * noop), f"{action:.3f} ms against {noop:.3f} ms for GET /healthz, {BLOCKS} blocks of {BLOCK}", "ms")


def calls(daemon):
    turn = Turn(daemon.client()).begin()
    host = Host(daemon, turn)
    small = float(turn.execute(SMALL_CALLS % CALLS))
    report("call of a tool, sandbox to host and back: p50", small, 3, f"{CALLS} calls, long polls, a Python host", "ms")
    shares, wholes = [], []
    for _ in range(BIG):
        host.seen.clear()
        whole, inside = map(float, turn.execute(BIG_CALL).split())
        shares.append(whole - inside - host.seen[0][1])
        wholes.append(whole)
    host.end()
    turn.delete()
    report("1 MiB of argument and of result: what is not Python's own, p50", statistics.median(shares), 15,
           f"{statistics.median(wholes):.1f} ms in all, {BIG} calls", "ms")


def begin_of_turns(daemon, ready):
    client, starts, cold = daemon.client(), [], []
    for _ in range(STARTS):
        turn = Turn(client)
        until = time.monotonic() + 30
        while ready and client.json("GET", "/v1/rlm/sessions")["warm"] == 0 and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.15)               # what is made ahead is made, and nobody competes
        starts.append(timed(turn.begin) / 1e3)
        cold.append(float(turn.execute(COLD)))
        turn.delete()
    start, base = statistics.median(starts), statistics.median(cold)
    report(f"turn start over HTTP {'with a sandbox ready' if ready else 'from nothing'} against python3 -c pass in it", start / base, 0.15 if ready else 2,
           f"p50 {start:.2f} ms against {base:.2f} ms, {STARTS} fresh sessions")


def memory(daemon):
    turn = Turn(daemon.client()).begin()
    path, body = (turn.path + "/execute").encode(), b'{"code": "x = 1"}'
    early = daemon.resident()
    for i in range(ACTIONS):
        status, data = turn.client.send(b"POST", path, body)
        assert status == 200, data
        if i == ACTIONS // 50:
            early = daemon.resident()
    late = daemon.resident()
    turn.delete()
    report("resident memory that actions leave in the daemon", late - early, 1, f"{early:.2f} MiB, then {late:.2f} MiB after {ACTIONS} actions", "MiB")


def one_of_many(daemon, number, gate):
    turn = Turn(daemon.client()).begin()
    host = Host(daemon, turn)
    gate.wait(300)                     # all have a turn at the same time
    out = turn.execute(f"got = [echo({number} * 1000 + i) for i in range({CALLS_EACH})]\nprint(sum(a != {number} * 1000 + i for i, a in enumerate(got)), len(got))")
    host.end()
    wrong, came = map(int, out.split())
    ids = [i for i, _ in host.seen]
    turn.delete()
    return wrong, CALLS_EACH - came, len(ids) - len(set(ids)), abs(CALLS_EACH - len(set(ids)))


def many(build):
    with Daemon(build, "--max-active-leases", str(SESSIONS + 1)) as daemon, concurrent.futures.ThreadPoolExecutor(SESSIONS) as pool:
        began = time.monotonic()
        gate = threading.Barrier(SESSIONS)
        done = [pool.submit(one_of_many, daemon, n, gate) for n in range(SESSIONS)]
        failed, sums = 0, [0, 0, 0, 0]
        for d in done:
            try:
                sums = [a + b for a, b in zip(sums, d.result(600))]
            except Exception as e:
                failed += 1
                gate.abort()
                print(f"a session failed: {e!r}", file=sys.stderr)
        wrong, lost, doubled, missing = sums
        report(f"calls lost, doubled or wrong, and sessions that failed, of {SESSIONS} at a time", wrong + lost + doubled + missing + failed, 0,
               f"{SESSIONS} turns at once, {SESSIONS * CALLS_EACH} calls, {time.monotonic() - began:.1f} s in all; {daemon.resident():.1f} MiB resident at the end", "errors")


def main():
    build = sys.argv[1] if len(sys.argv) > 1 else "build"
    with Daemon(build) as daemon:
        actions(daemon)
        calls(daemon)
        begin_of_turns(daemon, True)
        memory(daemon)
    with Daemon(build, BRIG_RUNTIME_WARM_ROOTS="0") as daemon:
        begin_of_turns(daemon, False)
    many(build)


if __name__ == "__main__":
    main()
