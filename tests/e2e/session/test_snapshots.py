"""Snapshots of sessions, sessions that start from them, forks, and what a session has changed."""
import concurrent.futures

import pytest
from brigd import until
from session_client import Session

# Something of everything: new, changed, deleted, replaced, made anew in the place of another; in each plane of the host's image.
WORK = """set -e
mkdir -p /project/deep && echo one > /project/deep/one && ln -s deep/one /project/link && ln /project/deep/one /project/hard
chmod 4711 /project/deep/one; touch -d @1000000000 /project/deep/one
rm -rf /usr/share/doc && mkdir /usr/share/doc && echo mine > /usr/share/doc/mine
rm /etc/hostname 2>/dev/null || rm /etc/passwd-
echo extra >> /etc/profile; mkdir -p /opt/tool && echo t > /opt/tool/t
mknod /project/pipe p; head -c 3000000 /dev/urandom > /project/random; truncate -s 100M /project/sparse
sha256sum /project/random > /project/sum
"""


def adopted(daemon, session_id):
    """A session that somebody else has started."""
    s = Session.__new__(Session)
    s.daemon, s.id = daemon, session_id
    return s


def call(session, method, path, body=None, status=200):
    answer = session.daemon.call(method, f"/v1/sessions/{session.id}{path}", body)
    assert answer.status == status, answer
    return answer.json


def changes(session, **query):
    tail = "&".join(f"{k}={v}" for k, v in query.items())
    answer = call(session, "GET", f"/diff?{tail}")
    return {c["path"]: (c["change"], c["type"]) for c in answer["changes"]}, answer["more"]


def check_work(other):
    done = other.exec("""cd /project && sha256sum -c sum && cat link && stat -c '%a %Y %h' deep/one && ls /usr/share/doc && tail -1 /etc/profile
        cat /opt/tool/t; stat -c %s sparse; test ! -e pipe""")
    assert done["exit_code"] == 0, done
    assert done["stdout"].split() == "/project/random: OK one 4711 1000000000 2 mine extra t 104857600".split()


def test_a_session_starts_from_a_snapshot_with_all_that_was_written(session):
    a = session(image="host")
    assert a.exec(WORK)["exit_code"] == 0
    image = call(a, "POST", "/snapshots", {"name": "snap-all"})
    assert image["names"] == ["snap-all:latest"] and image["origin"] == "snapshot"
    check_work(session(image="snap-all"))


def test_the_session_goes_on_and_the_snapshot_does_not_change(session):
    a = session(image="host")
    a.exec("echo before > /f")
    image = call(a, "POST", "/snapshots")
    assert a.exec("cat /f; echo after > /f")["stdout"] == "before\n"
    assert session(image=f"sha256:{image['digest']}").exec("cat /f")["stdout"] == "before\n"


def test_equal_contents_are_one_image(session):
    a, b = session(image="host"), session(image="host")
    for s in (a, b):
        s.exec("mkdir -p /same && echo x > /same/x && touch -d @1000000000 /same/x /same && touch -d @1000000000 /")
    assert call(a, "POST", "/snapshots")["digest"] == call(b, "POST", "/snapshots")["digest"]


def test_equal_contents_at_once_are_one_image(session):
    """Each packs by itself; whoever is published later uses what is there."""
    made = [session(image="host") for _ in range(4)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for i in range(8):
            list(pool.map(lambda s, i=i: s.exec(f"echo {i} > /same; touch -d @1000000000 /same /"), made))
            images = list(pool.map(lambda s: call(s, "POST", "/snapshots"), made))
            assert len({image["digest"] for image in images}) == 1


def test_ten_forks_at_once_and_a_fork_of_a_fork(session, daemon):
    a = session(image="host", env={"COLOUR": "blue"}, workdir="/srv", labels={"kind": "fork-test"})
    a.exec("echo 7 > /srv/n")
    answer = call(a, "POST", "/fork", {"count": 10}, 201)
    assert len(set(answer["sessions"])) == 10
    forks = [adopted(daemon, i) for i in answer["sessions"]]
    try:
        with concurrent.futures.ThreadPoolExecutor(10) as pool:
            said = list(pool.map(lambda s: s.ready().exec("echo $COLOUR $(cat n); echo more >> n; wc -l < n"), forks))
        assert [s["stdout"] for s in said] == ["blue 7\n2\n"] * 10, said[0]
        assert a.exec("wc -l < /srv/n")["stdout"] == "1\n"
        again = call(forks[0], "POST", "/fork", {}, 201)["sessions"]
        grandchild = adopted(daemon, again[0])
        forks.append(grandchild)
        assert grandchild.ready().exec("cat n")["stdout"] == "7\nmore\n"
        assert changes(grandchild) == ({}, False)
    finally:
        for f in forks:
            f.delete()


def test_a_fork_of_a_deletion_in_another_plane_stays_deleted(session, daemon):
    """The layer of the first holds nothing in /usr; what the second removes there must be seen to be gone."""
    a = session(image="host")
    a.exec("echo x > /x")
    first = call(a, "POST", "/snapshots")["digest"]
    b = session(image=f"sha256:{first}")
    b.exec("rm -rf /usr/share/doc; mkdir /usr/share/doc")
    assert changes(b)[0]["/usr/share/doc/bash"] == ("deleted", None)
    c = session(image=f"sha256:{call(b, 'POST', '/snapshots')['digest']}")
    assert c.exec("ls -A /usr/share/doc; cat /x")["stdout"] == "x\n"


def test_the_diff_says_what_was_added_changed_and_deleted(session):
    a = session(image="host")
    assert changes(a) == ({}, False)
    assert a.exec(WORK)["exit_code"] == 0
    found, more = changes(a, limit=10000)
    assert not more
    assert found["/project"] == ("added", "directory") and found["/project/deep/one"] == ("added", "file")
    assert found["/project/link"] == ("added", "symlink") and found["/project/pipe"] == ("added", "other")
    assert found["/etc/profile"] == ("changed", "file") and found["/opt/tool/t"] == ("added", "file")
    assert found["/usr/share/doc/mine"] == ("added", "file") and found["/usr/share/doc/bash"] == ("deleted", None)
    assert "/usr/share" not in found and "/etc" not in found and not any(p.startswith(("/proc", "/dev", "/sys")) for p in found)


def test_what_was_opened_but_not_written_is_no_change(session):
    a = session(image="host")
    a.exec("exec 3>>/etc/profile; exec 3>&-; chmod 600 /etc/bash.bashrc")
    assert changes(a)[0] == {"/etc/bash.bashrc": ("changed", "file")}


def test_the_diff_comes_in_pages(session):
    a = session(image="host")
    a.exec("mkdir /many && cd /many && touch $(seq -w 50)")
    seen, offset = {}, 0
    while True:
        page, more = changes(a, offset=offset, limit=20)
        assert len(page) <= 20
        seen.update(page)
        offset += len(page)
        if not more:
            break
    assert sorted(seen) == ["/many"] + [f"/many/{i:02}" for i in range(1, 51)]


def test_a_paused_session_is_snapshot_and_stays_paused(session):
    a = session(image="host")
    a.exec("echo p > /p")
    call(a, "POST", "/pause")
    digest = call(a, "POST", "/snapshots")["digest"]
    assert call(a, "GET", "/usage")["paused"] is True
    call(a, "POST", "/resume")
    assert session(image=f"sha256:{digest}").exec("cat /p")["stdout"] == "p\n"


@pytest.mark.parametrize("path,body,status,text", [
    ("/snapshots", {"name": "Not A Name"}, 400, "name"), ("/snapshots", {"name": 7}, 400, "name"), ("/fork", {"count": 0}, 400, "count"),
    ("/fork", {"count": 65}, 400, "count"), ("/fork", {"count": "x"}, 400, "count"),
])
def test_bad_requests_name_the_field(session, path, body, status, text):
    answer = session(image="host").daemon.call("POST", f"/v1/sessions/{session(image='host').id}{path}", body)
    assert answer.status == status and text in answer.json["error"]["message"], answer


def test_a_session_that_is_not_there(daemon):
    for method, path in (("POST", "snapshots"), ("POST", "fork"), ("GET", "diff")):
        assert daemon.call(method, f"/v1/sessions/none/{path}", {} if method == "POST" else None).status == 404


def test_files_that_lie_to_the_walk(session):
    """Names of any bytes, links to nowhere and to everywhere, a directory that may not be read by others."""
    a = session(image="host")
    a.exec(r"""mkdir /h && cd /h && ln -s /etc/shadow s && ln -s loop loop && touch $'a\nb' $'\xff\xfe' .wh.fake && mkdir -m 0 closed && touch closed/x
        ln -s / root; python3 - <<'E'
import os
p = '/h'
for i in range(60): p += '/' + 'd' * 30; os.mkdir(p)
E""")
    found, _ = changes(a, limit=10000)
    assert found["/h/s"] == ("added", "symlink") and found["/h/closed/x"] == ("added", "file") and found["/h/a\nb"][0] == "added"
    answer = a.daemon.call("POST", f"/v1/sessions/{a.id}/snapshots", {})
    assert answer.status in (200, 422), answer


def test_nothing_is_started_while_a_snapshot_is_made(session):
    """A command is refused, not lost; above all a finish, which there is only once."""
    a = session(image="host")
    a.exec("head -c 150000000 /dev/urandom > /r")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        snapshot = pool.submit(call, a, "POST", "/snapshots")
        until(lambda: snapshot.done() or call(a, "GET", "/usage")["paused"], "the session stands still")
        assert a.post("exec", {"command": "true"}).status == 409
        assert a.post("finish", {"test_command": "true"}).status == 409
        snapshot.result()
    assert a.finish(test_command="exit 3")["exit_code"] == 3


def test_a_snapshot_may_outlive_its_session(session):
    """Whatever is left of the session by then, its image's configuration is."""
    a = session(image="host")
    image = call(a, "POST", "/snapshots")
    for delay in range(4):
        b = session(image=f"sha256:{image['digest']}")
        b.exec("head -c 40000000 /dev/urandom > /r")
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            snapshot = pool.submit(b.daemon.call, "POST", f"/v1/sessions/{b.id}/snapshots", {})
            until(lambda: snapshot.done() or call(b, "GET", "/usage")["paused"], "the session stands still")
            concurrent.futures.wait([snapshot], delay * 0.1)
            assert b.delete().status == 200
            assert snapshot.result().status in (200, 409), snapshot.result()


def test_a_paused_session_cannot_finish_and_loses_nothing(session):
    a = session(image="host")
    call(a, "POST", "/pause")
    assert a.post("finish", {"test_command": "exit 3"}).status == 409
    call(a, "POST", "/finish", {"test_command": "exit 3"}, 409)
    call(a, "POST", "/terminals", {}, 409)
    call(a, "POST", "/resume")
    assert a.finish(test_command="exit 3")["exit_code"] == 3


OWN = ["open", {"allow": ["files.test"]}]


@pytest.mark.parametrize("network", OWN, ids=["open", "allow"])
def test_the_name_servers_that_brig_wrote_are_no_change(session, network):
    a = session(image="host", network=network)
    assert "nameserver" in a.exec("cat /etc/resolv.conf")["stdout"]
    assert changes(a) == ({}, False)
    image = call(a, "POST", "/snapshots")
    b = session(image=f"sha256:{image['digest']}", network=network)
    assert "nameserver" in b.exec("cat /etc/resolv.conf")["stdout"]
    assert changes(b) == ({}, False)
    # Nor does the snapshot hold them: without a network there is what the host's image says, in both.
    alone = [session(image=i).exec("cat /etc/resolv.conf 2>&1; ls -l /etc/resolv.conf 2>&1")["stdout"] for i in ("host", f"sha256:{image['digest']}")]
    assert alone[0] == alone[1]


@pytest.mark.parametrize("how", ["echo nameserver 192.0.2.1 >> /etc/resolv.conf", "rm /etc/resolv.conf; echo nameserver 192.0.2.1 > /etc/resolv.conf",
                                 "cp /etc/resolv.conf /x; cat /x > /etc/resolv.conf; echo nameserver 192.0.2.1 >> /x; mv /x /etc/resolv.conf"])
@pytest.mark.parametrize("network", OWN, ids=["open", "allow"])
def test_name_servers_that_the_session_wrote_are_a_change(session, network, how):
    a = session(image="host", network=network)
    assert a.exec(how)["exit_code"] == 0
    found, _ = changes(a)
    assert list(found) == ["/etc/resolv.conf"] and found["/etc/resolv.conf"][0] in ("added", "changed")
    image = call(a, "POST", "/snapshots")
    assert "192.0.2.1" in session(image=f"sha256:{image['digest']}").exec("cat /etc/resolv.conf")["stdout"]
