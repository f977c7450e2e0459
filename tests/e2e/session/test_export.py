"""A session's files as an archive, in the executor's dialect."""
import base64
import io
import tarfile

import pytest


def archive(answer):
    assert answer.status == 200, answer
    return tarfile.open(fileobj=io.BytesIO(base64.b64decode(answer.json["tar_b64"], validate=True)), mode="r:gz")


def test_the_workspace(session):
    s = session()
    s.out("mkdir -p /workspace/d; echo one > /workspace/a; echo two > /workspace/d/b; ln -s ../a /workspace/d/l; chmod 750 /workspace/d/b")
    answer = s.post("export")
    assert set(answer.json) == {"session_id", "path", "tar_b64"} and answer.json["session_id"] == s.id and answer.json["path"] == "/workspace"
    with archive(answer) as tar:
        names = {m.name.removeprefix("./").rstrip("/"): m for m in tar.getmembers()}
        assert {"a", "d", "d/b", "d/l"} <= set(names)
        assert tar.extractfile(names["a"]).read() == b"one\n" and names["d/b"].mode & 0o777 == 0o750 and names["d/l"].linkname == "../a"
    assert s.out("echo on") == "on\n"


def test_another_path_and_a_file(session):
    s = session()
    s.out("mkdir -p '/x/sp ace'; echo f > '/x/sp ace/f'")
    with archive(s.post("export", {"path": "/x/sp ace", "timeout": "30"})) as tar:
        assert [m.name.removeprefix("./") for m in tar.getmembers() if m.isfile()] == ["f"]
    with archive(s.post("export", {"path": "/x/sp ace/f"})) as tar:
        assert tar.extractfile(tar.getmembers()[0]).read() == b"f\n"


def test_a_path_that_is_not_there(session):
    s = session()
    answer = s.post("export")
    assert answer.status == 500 and set(answer.json) == {"error"} and "No such file" in answer.json["error"]
    assert s.out("echo on") == "on\n"


def test_links_and_devices_lead_nowhere(session, daemon):
    s = session()
    s.out(f"mkdir /workspace; ln -s {daemon.home} /workspace/home; mkfifo /workspace/fifo; ln -s /proc/1/root /workspace/proc; echo x > /workspace/x")
    with archive(s.post("export")) as tar:
        members = {m.name.removeprefix("./").rstrip("/"): m for m in tar.getmembers()}
    assert members["home"].issym() and members["proc"].issym() and "fifo" not in members and members["x"].isfile()
    s.out(f"ln -s {daemon.home} /workspace2")
    assert s.post("export", {"path": "/workspace2"}).status == 500


def test_a_hundred_megabytes_cost_no_memory(session, daemon):
    s = session()
    s.out("mkdir /workspace; head -c 100000000 /dev/urandom > /workspace/big")
    before = daemon.usage()
    answer = s.post("export")
    with archive(answer) as tar:
        assert max(m.size for m in tar.getmembers()) == 100000000
    assert daemon.usage() - before < 16 << 20


@pytest.mark.parametrize("body, field", [({"path": "relative"}, "path"), ({"path": 1}, "path"), ({"timeout": "x"}, "timeout")])
def test_wrong_fields(session, body, field):
    answer = session().post("export", body)
    assert answer.status == 400 and f"'{field}'" in answer.json["error"]


def test_unknown(daemon):
    answer = daemon.call("POST", "/session/nobody/export")
    assert answer.status == 404 and answer.json == {"error": "session not found"}
