"""Credentials in a repo_url never reach the disk."""
import os


SECRET = "hush-4711-hush"
NOWHERE = f"http://user:{SECRET}@192.0.2.1/r.git"      # answers nothing, so the task stays where it is
REFUSED = f"http://user:{SECRET}@127.0.0.1:9/r.git"    # nobody there, in the fetch's own network


def data(fd):
    """The pieces of a file that are not holes: layers are big and mostly holes."""
    at, end = 0, os.fstat(fd).st_size
    while at < end:
        try:
            at = os.lseek(fd, at, os.SEEK_DATA)
        except OSError:                                 # nothing but a hole from here on
            return
        hole = os.lseek(fd, at, os.SEEK_HOLE)
        yield os.pread(fd, hole - at, at)
        at = hole


def files_with(top, text):
    found = []
    for where, _, names in os.walk(top):
        for name in names:
            path = os.path.join(where, name)
            if os.path.islink(path) or not os.path.isfile(path):
                continue
            fd = os.open(path, os.O_RDONLY)
            found += [path for piece in data(fd) if text in piece]
            os.close(fd)
    return found


def request(url):
    return {"repo_url": url, "base_commit": "0" * 40, "test_command": "true"}


def secretless(d):
    assert files_with(d.home, b"r.git")                 # what is kept is found like this
    assert SECRET not in d.stderr()
    return files_with(d.home, SECRET.encode()) == []


def test_credentials_are_nowhere_below_the_home_queued_running_or_finished(brig, repository):
    d = brig(BRIG_QUEUE_RUNNING_MAX="1")
    first = d.until_running(d.submit(repository.takes(60)))
    queued = d.submit(request(REFUSED), Idempotency_Key="k")
    assert secretless(d)
    assert d.call("DELETE", f"/task/{first}").status == 200
    record = d.result(queued)
    assert record["error"]["code"] == "repo_unreachable" and "restart" not in record["error"]["message"]
    assert record["repo_url"] == "http://***@127.0.0.1:9/r.git"
    assert SECRET not in str(record) and secretless(d)
    assert d.submit(request(REFUSED), Idempotency_Key="k") == queued
    other = d.call("POST", "/task/submit", request(REFUSED.replace(SECRET, "x")), {"Idempotency-Key": "k"})
    assert other.status == 409, other
    running = d.until_running(d.submit(request(NOWHERE)))
    assert secretless(d)
    assert d.call("DELETE", f"/task/{running}").status == 200


def test_after_a_restart_a_task_with_credentials_says_that_they_are_gone(brig, repository):
    d = brig(BRIG_QUEUE_RUNNING_MAX="1")
    d.until_running(d.submit(repository.held()))
    task = d.submit(request(REFUSED), Idempotency_Key="k")
    d.kill()
    assert secretless(d)
    d.start()
    d.let_end(1)
    record = d.result(task)
    assert (record["outcome"], record["error"]["code"]) == ("infra_error", "repo_unreachable")
    assert "restart" in record["error"]["message"]
    assert d.submit(request(REFUSED), Idempotency_Key="k") == task
