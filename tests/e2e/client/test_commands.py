"""Background commands by both clients: output as it comes, over connections that are lost."""
import asyncio
import json
import os
import pathlib
import select
import socket
import subprocess
import threading

import pytest

import brig as client

BUILD = pathlib.Path(os.environ.get("BRIG_BUILD", pathlib.Path(__file__).resolve().parents[3] / "build"))


class Cutter:
    """Carries connections to the daemon; the first `cuts` answers with events end after some bytes."""

    def __init__(self, port, cuts, after):
        self.port, self.cuts, self.after, self.cut = port, cuts, after, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.carry, args=(near,), daemon=True).start()

    def carry(self, near):
        far = socket.create_connection(("127.0.0.1", self.port))
        left, events = self.after, False
        with near, far:
            while True:
                for s in select.select([near, far], [], [])[0]:
                    try:
                        data = s.recv(65536)
                        if not data:
                            return
                        if s is far:
                            events = events or b"text/event-stream" in data
                            if events and self.cut < self.cuts:
                                data = data[:left]
                                left -= len(data)
                        (far if s is near else near).sendall(data)
                    except OSError:
                        return
                    if left == 0:
                        self.cut += 1
                        return

    def close(self):
        self.listener.close()


@pytest.fixture
def standing(brig):
    d = brig()
    d.url = f"http://127.0.0.1:{d.port}"
    session = client.start_session(d.url, client.SessionStartSpec(image="host"))
    yield d, session
    client.delete_session(d.url, session)


@pytest.fixture
def cutter():
    made = []

    def make(*arguments):
        made.append(Cutter(*arguments))
        return made[-1]

    yield make
    for c in made:
        c.close()


def gather(items):
    out = {"stdout": b"", "stderr": b""}
    for item in items:
        if item.stream == "exit":
            return out["stdout"], out["stderr"], item
        out[item.stream] += item.data
    raise AssertionError("no end")


def test_output_is_followed_to_the_end(standing):
    d, s = standing
    c = client.start_command(d.url, s, "mkfifo /tmp/go; echo one; read x < /tmp/go; printf 'two\\377' >&2; exit 7")
    items = iter(client.follow_command(d.url, s, c))
    assert next(items) == client.CommandOutput("stdout", b"one\n")
    client.session_exec(d.url, s, "echo > /tmp/go")
    out, err, end = gather(items)
    assert (out, err, end.exit_code, end.session_ended) == (b"", b"two\xff", 7, False)
    assert list(items) == [], "the end is the last"
    assert gather(client.follow_command(d.url, s, c, stream="stdout", offset=-3))[:2] == (b"ne\n", b"")


def test_lost_connections_lose_nothing(standing, cutter):
    d, s = standing
    c = client.start_command(d.url, s, "seq 1 200000")
    cut = cutter(d.port, 4, 200000)
    out, _, end = gather(client.follow_command(cut.url, s, c))
    assert out == b"".join(b"%d\n" % i for i in range(1, 200001)) and end.exit_code == 0
    assert cut.cut == 4


def test_what_is_not_there_is_said(standing):
    d, s = standing
    with pytest.raises(client.TaskExecutorError) as e:
        next(iter(client.follow_command(d.url, s, 99)))
    assert e.value.status == 404
    with pytest.raises(client.TaskExecutorError) as e:
        client.start_command(d.url, "no-such", "true")
    assert e.value.status == 404


def test_a_coroutine_follows_and_can_be_cancelled(standing):
    d, s = standing
    c = client.start_command(d.url, s, "echo hello; sleep 1000")

    async def first():
        async for item in client.afollow_command(d.url, s, c):
            return item

    async def all_of_it():
        seen = asyncio.Event()

        async def read():
            async for _ in client.afollow_command(d.url, s, c):
                seen.set()

        task = asyncio.create_task(read())
        await seen.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert asyncio.run(first()) == client.CommandOutput("stdout", b"hello\n")
    asyncio.run(asyncio.wait_for(all_of_it(), 60))


def sums(data):
    total = 0
    for b in data:
        total = (total * 31 + b) % 2**64
    return total


def test_the_c_client_follows_over_lost_connections(standing, cutter):
    d, s = standing

    def follow(url, *arguments):
        done = subprocess.run([BUILD / "tests/e2e/client_tool", "follow", url, *arguments], capture_output=True, text=True, timeout=120)
        assert done.stdout, done
        return json.loads(done.stdout)

    out = b"".join(b"%d\n" % i for i in range(1, 200001))
    cut = cutter(d.port, 4, 200000)
    r = follow(cut.url, s, json.dumps({"command": "seq 1 200000; printf '\\0\\377' >&2; exit 3"}))
    assert r == {"code": 0, "exit_code": 3, "session_ended": False, "n": len(out) + 2, "out": sums(out), "err": sums(b"\0\xff")}
    assert cut.cut == 4
    assert follow(d.url, "no-such", '{"command":"true"}')["http_status"] == 404
    assert follow(d.url, s, "{}")["http_status"] == 400
    assert follow(d.url, s, '{"command":"true"}', "both")["code"] == -2
