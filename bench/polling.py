#!/usr/bin/env python3
"""GET /task/<id> against nginx: how fast the daemon answers the call that pollers make.

Pairs of runs of wrk (one thread, 64 keep-alive connections) alternate between `brig serve` and nginx with one worker that returns the same
bytes, on loopback; which comes first is shuffled. The value is the median over pairs of (Brig's rate ÷ nginx's rate).
"""
import http.client
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

PAIRS, SECONDS, CONNECTIONS = 7, 3, 64

NGINX = """\
worker_processes 1;
daemon off;
pid {top}/nginx.pid;
error_log {top}/nginx.log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    default_type application/json;
    client_body_temp_path {top}/t1; proxy_temp_path {top}/t2; fastcgi_temp_path {top}/t3; uwsgi_temp_path {top}/t4; scgi_temp_path {top}/t5;
    server {{
        listen 127.0.0.1:{port};
        location / {{ return 200 '{body}'; }}
    }}
}}
"""


def call(port, method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, path, body=json.dumps(body) if body is not None else None)
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    return answer.status, data


def start_brig(build, top):
    process = subprocess.Popen([os.path.join(build, "brig"), "serve"], stdout=subprocess.PIPE, stderr=open(top / "brig.log", "wb"),
                               env={"PATH": os.environ["PATH"], "BRIG_HOME": str(top / "home"), "API_PORT": "0"})
    line = process.stdout.readline().decode()
    if not line.startswith("ready "):
        raise RuntimeError(f"the daemon said {line!r}: {(top / 'brig.log').read_text()[-2000:]}")
    return process, int(line.rsplit(":", 1)[1])


def finished_task(port, top):
    """A task that has ended: its status is what is polled."""
    git = ["git", "-C", str(top / "repo"), "-c", "user.name=b", "-c", "user.email=b@b"]
    subprocess.run(["git", "init", "-q", str(top / "repo")], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "base"], check=True)
    status, data = call(port, "POST", "/task/submit", {"repo_url": f"file://{top}/repo", "test_command": "true"})
    assert status == 202, data
    task = json.loads(data)["task_id"]
    status, data = call(port, "GET", f"/task/{task}/result?wait=60")
    assert status == 200, data
    return task


def start_nginx(top, body):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    (top / "nginx.conf").write_text(NGINX.format(top=top, port=port, body=body))
    process = subprocess.Popen(["nginx", "-c", str(top / "nginx.conf"), "-p", str(top)], stderr=subprocess.DEVNULL)
    end = time.monotonic() + 20
    while True:
        try:
            call(port, "GET", "/")
            return process, port
        except OSError:
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError("nginx does not answer") from None


def rate(port, path, seconds=SECONDS):
    out = subprocess.run(["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}", f"http://127.0.0.1:{port}{path}"], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert "Non-2xx" not in out and "Socket errors" not in out, out
    return float(re.search(r"Requests/sec:\s+([0-9.]+)", out)[1])


def main():
    build = sys.argv[1] if len(sys.argv) > 1 else "build"
    top = pathlib.Path(tempfile.mkdtemp(prefix="brig-bench-http-", dir="/var/tmp"))
    top.chmod(0o755)
    processes = []
    try:
        brig, brig_port = start_brig(build, top)
        processes.append(brig)
        path = f"/task/{finished_task(brig_port, top)}"
        body = call(brig_port, "GET", path)[1].decode()
        nginx, nginx_port = start_nginx(top, body)
        processes.append(nginx)
        assert call(nginx_port, "GET", path)[1].decode() == body
        sides = {"brig": brig_port, "nginx": nginx_port}
        for port in sides.values():
            rate(port, path, 1)
        pairs = []
        for i in range(PAIRS):
            order = random.sample(sorted(sides), 2)
            got = {name: rate(sides[name], path) for name in order}
            pairs.append(got)
            print(f"pair {i + 1}: brig {got['brig']:.0f}/s, nginx {got['nginx']:.0f}/s", file=sys.stderr, flush=True)
        value = statistics.median(p["brig"] / p["nginx"] for p in pairs)
        detail = (f"{statistics.median(p['brig'] for p in pairs):.0f}/s against {statistics.median(p['nginx'] for p in pairs):.0f}/s, "
                  f"{PAIRS} pairs, {CONNECTIONS} connections")
        print(json.dumps({"bar": "GET /task/<id> against nginx", "value": round(value, 2), "limit": 0.7, "better": "higher", "unit": "ratio", "detail": detail}))
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(60)
        shutil.rmtree(top, ignore_errors=True)


if __name__ == "__main__":
    main()
