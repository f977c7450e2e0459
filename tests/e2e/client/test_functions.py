"""The reference client's functions: against the daemon, and against endpoints that misbehave."""
import asyncio
import base64
import io
import socket
import subprocess
import tarfile
import threading

import brigd
import pytest

import brig as client
import brig.aio as aio


def test_run_task_scores_a_patch_and_deletes_the_record(brig, repository):
    d = brig()
    url = f"http://127.0.0.1:{d.port}"
    spec = client.TaskSpec(**repository.request(patch=repository.right_patch))
    result = client.run_task(url, spec, cleanup=False)
    assert (result["status"], result["exit_code"], result["tests_passed"], result["tests_failed"]) == ("completed", 0, 2, 0)
    assert client.get_result(url, result["task_id"]) == result
    client.delete_task(url, result["task_id"])
    with pytest.raises(client.TaskExecutorError) as e:
        client.get_result(url, result["task_id"])
    assert e.value.status == 404
    assert client.run_task(url, spec)["exit_code"] == 0 and d.rows() == 0


def test_run_task_as_a_coroutine_many_at_once(brig, repository):
    url = f"http://127.0.0.1:{brig().port}"

    async def all_of_them():
        return await asyncio.gather(*(aio.run_task(url, repository.request(test_command=f"exit {i}")) for i in range(6)))

    assert [r["exit_code"] for r in asyncio.run(all_of_them())] == list(range(6))


def test_the_token_comes_from_the_environment_or_the_argument(brig, monkeypatch):
    d = brig(API_TOKEN="sesame", BRIG_LISTEN="127.0.0.1:0")
    url = f"http://127.0.0.1:{d.port}"
    monkeypatch.setenv("DOCKYARD_SANDBOX_API_TOKEN", "sesame")
    with pytest.raises(client.TaskExecutorError, match="404"):
        client.get_result(url, "x")
    with pytest.raises(client.TaskExecutorError, match="401"):
        client.get_result(url, "x", api_token="wrong")


def test_a_unix_socket_is_an_endpoint(brig, repository):
    d = brig(start=False)
    url = d.variables["BRIG_LISTEN"] = f"unix:{d.home}/socket"
    with open(d.top / "stderr", "ab") as log:
        d.process = subprocess.Popen([brigd.BRIG, "serve"], env=d.variables, stdout=subprocess.PIPE, stderr=log, text=True)
    assert d.process.stdout.readline().startswith("ready "), d.stderr()
    assert client.run_task(url, repository.request(test_command="exit 3"))["exit_code"] == 3
    assert asyncio.run(aio.run_task(url, repository.request(test_command="exit 4")))["exit_code"] == 4


def test_a_result_is_held_back_by_the_endpoint_not_asked_for_again_and_again(executors):
    e = executors()
    e.gate.clear()
    threading.Timer(0.5, e.gate.set).start()
    client.run_task(e.url, {"test_command": "x"}, poll_interval=0.01)
    assert len(e.paths()) == 1


def test_an_endpoint_that_cannot_hold_back_is_polled(executors):
    e = executors(holds=False)
    e.gate.clear()
    threading.Timer(0.5, e.gate.set).start()
    client.run_task(e.url, {"test_command": "x"}, poll_interval=0.2)
    assert 3 <= len(e.paths()) <= 12


def test_a_submission_whose_answer_is_lost_is_sent_again_and_runs_once(executors):
    e = executors(cut=2)
    assert client.run_task(e.url, {"test_command": "x"})["exit_code"] == 0
    assert len(e.paths("POST")) == 3 and len(e.tasks) == 1


def test_nothing_listens(executors):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{s.getsockname()[1]}"
        with pytest.raises(client.TaskExecutorError) as e:
            client.submit_task(url, {"test_command": "x"})
    assert e.value.status is None and url in str(e.value)


@pytest.mark.parametrize("url", ["", "ftp://host", "http://", "http://host:port", "/tmp/x"])
def test_what_is_no_url_is_said(url):
    with pytest.raises(client.TaskExecutorError):
        client.submit_task(url, {"test_command": "x"})


def test_a_task_that_does_not_end_in_time_is_cancelled(executors):
    e = executors()
    e.gate.clear()
    with pytest.raises(client.TaskExecutorError, match="did not finish within 0s"):
        client.run_task(e.url, {"test_command": "x"}, overall_timeout=0.3, poll_interval=0.1)
    assert e.deleted == ["task-0"]


def test_a_coroutine_that_is_cancelled_cancels_its_task(executors):
    e = executors()
    e.gate.clear()

    async def begin_and_leave():
        task = asyncio.ensure_future(aio.run_task(e.url, {"test_command": "x"}))
        while not e.paths():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(begin_and_leave())
    assert e.deleted == ["task-0"]


def test_an_answer_that_is_cut_short_is_no_answer(tmp_path):
    """A record whose end is missing must never be taken for one."""
    server = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{server.getsockname()[1]}"

    def serve():
        for _ in range(2):
            c, _ = server.accept()
            c.recv(65536)
            c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}")
            c.close()

    threading.Thread(target=serve, daemon=True).start()
    with pytest.raises(client.TaskExecutorError):
        client.get_result(url, "t")
    with pytest.raises(client.TaskExecutorError):
        asyncio.run(aio.get_result(url, "t"))
    server.close()


def test_a_slow_drip_ends_with_the_request_timeout():
    server = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{server.getsockname()[1]}"
    stop = threading.Event()

    def serve():
        for _ in range(2):
            c, _ = server.accept()
            c.recv(65536)
            c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
            try:
                while not stop.wait(0.05):
                    c.sendall(b"x")
            except OSError:
                pass

    threading.Thread(target=serve, daemon=True).start()
    with pytest.raises(client.TaskExecutorError, match="timed out"):
        client.get_result(url, "t", request_timeout=0.3)
    with pytest.raises(client.TaskExecutorError, match="timed out"):
        asyncio.run(aio.get_result(url, "t", request_timeout=0.3))
    stop.set()
    server.close()


class Response:
    def __init__(self, status_code, body):
        self.status_code, self.body, self.text = status_code, body, str(body)

    def json(self):
        return self.body


class Borrowed:
    """What a caller of the reference client may hand in: three methods, three attributes, and nothing else."""

    def __init__(self, *answers):
        self.answers, self.calls = list(answers), []

    def _answer(self, method, url, **arguments):
        self.calls.append((method, url, arguments))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def post(self, url, *, json, headers, timeout):
        return self._answer("POST", url, json=json, headers=headers, timeout=timeout)

    def get(self, url, *, headers, timeout):
        return self._answer("GET", url, headers=headers, timeout=timeout)

    def delete(self, url, *, headers, timeout):
        return self._answer("DELETE", url, headers=headers, timeout=timeout)


def test_a_borrowed_session_sees_the_reference_clients_requests():
    s = Borrowed(
        Response(202, {"task_id": "t", "status": "pending"}), Response(202, {"status": "running"}),
        Response(200, {"status": "completed", "exit_code": 0}), Response(200, {}),
    )
    result = client.run_task("http://h:1", {"test_command": "x"}, session=s, poll_interval=0, api_token="k")
    assert result == {"status": "completed", "exit_code": 0}
    assert [(m, u) for m, u, _ in s.calls] == [
        ("POST", "http://h:1/task/submit"), ("GET", "http://h:1/task/t/result"),
        ("GET", "http://h:1/task/t/result"), ("DELETE", "http://h:1/task/t"),
    ]
    assert s.calls[0][2] == {"json": {"test_command": "x"}, "headers": {"Authorization": "Bearer k"}, "timeout": 30.0}


def test_a_borrowed_session_that_raises_is_not_asked_twice():
    s = Borrowed(ConnectionError("no route"))
    with pytest.raises(client.TaskExecutorError, match="no route"):
        client.submit_task("http://h:1", {"test_command": "x"}, session=s)
    assert len(s.calls) == 1


def test_session_calls_send_the_reference_clients_bodies():
    s = Borrowed(
        Response(202, {"session_id": "s"}), Response(200, {"status": "starting"}), Response(200, {"status": "ready"}),
        Response(200, {"exit_code": 0}), Response(200, {"tar_b64": "AA=="}), Response(200, {"exit_code": 1}), Response(200, {}),
    )
    at = dict(session=s, api_token="")
    assert client.start_session("http://h:1", {"image": "host"}, poll_interval=0, **at) == "s"
    assert client.session_exec("http://h:1", "s", "true", timeout=5, cwd="/w", output_limit=9, **at) == {"exit_code": 0}
    assert client.session_export("http://h:1", "s", **at) == "AA=="
    assert client.session_finish("http://h:1", "s", harness_files={"test.sh": "exit 1"}, result_files=["/r"], **at) == {"exit_code": 1}
    client.delete_session("http://h:1", "s", **at)
    assert [(m, u.rsplit(":1", 1)[1], a.get("json")) for m, u, a in s.calls] == [
        ("POST", "/session/start", {"image": "host"}), ("GET", "/session/s", None), ("GET", "/session/s", None),
        ("POST", "/session/s/exec", {"command": "true", "timeout": 5, "cwd": "/w", "output_limit": 9}),
        ("POST", "/session/s/export", {"path": "/workspace", "timeout": 300}),
        ("POST", "/session/s/finish", {"timeout": 600, "harness_files": {"test.sh": "exit 1"}, "result_files": ["/r"]}),
        ("DELETE", "/session/s", None),
    ]
    assert [a["timeout"] for _, _, a in s.calls] == [30.0, 30.0, 30.0, 35.0, 330.0, 660.0, 30.0]


def test_a_session_that_fails_to_start_is_deleted_and_its_reason_said():
    s = Borrowed(Response(202, {"session_id": "s"}), Response(200, {"status": "failed", "error": "no such image"}), Response(200, {}))
    with pytest.raises(client.TaskExecutorError, match="no such image"):
        client.start_session("http://h:1", {"image": "x"}, session=s)
    assert s.calls[-1][:2] == ("DELETE", "http://h:1/session/s")


def test_a_session_from_start_to_finish(brig):
    url = f"http://127.0.0.1:{brig().port}"
    session_id = client.start_session(url, {"image": "host", "env": {"COLOUR": "blue"}, "block_network": True})
    assert client.get_session_status(url, session_id)["status"] == "ready"
    result = client.session_exec(url, session_id, "mkdir -p /workspace && cd /workspace && echo $COLOUR > f; echo out; echo err >&2; exit 3")
    assert (result["exit_code"], result["stdout"], result["stderr"], result["timed_out"]) == (3, "out\n", "err\n", False)
    late = client.session_exec(url, session_id, "echo begun; sleep 1000", timeout=3)
    assert (late["exit_code"], late["timed_out"], late["stdout"]) == (124, True, "begun\n")
    archive = tarfile.open(fileobj=io.BytesIO(base64.b64decode(client.session_export(url, session_id))), mode="r:gz")
    assert archive.extractfile("./f").read() == b"blue\n"
    finish = client.session_finish(
        url, session_id, harness_files={"test.sh": "cat /workspace/f > /tmp/result; exit 5"}, result_files=["/tmp/result", "/none"])
    assert (finish["exit_code"], finish["result_files"]) == (5, {"/tmp/result": "blue\n", "/none": None})
    with pytest.raises(client.TaskExecutorError, match="409|404"):
        client.session_exec(url, session_id, "true")


def test_a_session_whose_image_is_not_there_says_so(brig):
    with pytest.raises(client.TaskExecutorError, match="failed to start"):
        client.start_session(f"http://127.0.0.1:{brig().port}", {"image": "/nothing/here"})


def test_sessions_of_a_pool(brig):
    with client.Pool([f"http://127.0.0.1:{brig().port}"]) as pool:
        with pool.start_session({"image": "host", "network": "none"}) as session:
            assert session.exec("echo hello")["stdout"] == "hello\n"
            assert pool.status()[0]["in_flight"] == 1
        assert pool.status()[0]["in_flight"] == 0
