"""The network `allow` of tasks, through the real daemon: a name server and servers of the test's own, on loopback addresses that the
operator of this daemon lets sandboxes reach."""
import http.server
import json
import socket
import socketserver
import struct
import subprocess
import threading

import pytest
from brigd import BRIG, Daemon, Repository, until

SERVER, OTHER = "127.0.0.7", "127.0.0.8"
ZONE = {"files.test": SERVER, "packages.test": OTHER, "rebind.test": "127.0.0.1", "metadata.test": "169.254.169.254", "private.test": "10.9.8.7", "long.test": SERVER}
BY_TCP = {"long.test"}        # whose answer by UDP is cut


class Names(socketserver.BaseRequestHandler):
    """Answers A questions from ZONE; remembers what it was asked."""
    asked = []

    def handle(self):
        question, sock = self.request
        sock.sendto(self.answer(question, True), self.client_address)

    @staticmethod
    def answer(question, udp):
        labels, at = [], 12
        while question[at]:
            labels.append(question[at + 1:at + 1 + question[at]].decode())
            at += 1 + question[at]
        name, kind = ".".join(labels).lower(), struct.unpack("!H", question[at + 1:at + 3])[0]
        Names.asked.append(name)
        address = ZONE.get(name) if kind == 1 else None
        if udp and name in BY_TCP:
            return question[:2] + struct.pack("!HHHHH", 0x8380, 1, 0, 0, 0) + question[12:at + 5]
        head = question[:2] + struct.pack("!HHHHH", 0x8180 if name in ZONE else 0x8183, 1, 1 if address else 0, 0, 0)
        record = b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 1, 4) + socket.inet_aton(address) if address else b""
        return head + question[12:at + 5] + record


class NamesByTcp(socketserver.BaseRequestHandler):
    def handle(self):
        stream = self.request.makefile("rb")
        answer = Names.answer(stream.read(struct.unpack("!H", stream.read(2))[0]), False)
        for byte in struct.pack("!H", len(answer)) + answer:         # in pieces
            self.request.sendall(bytes([byte]))


class Files(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = f"from {self.headers['Host']}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def servers():
    by_tcp = socketserver.ThreadingTCPServer(("127.0.0.1", 0), NamesByTcp)
    names = socketserver.ThreadingUDPServer(by_tcp.server_address, Names)
    files = http.server.ThreadingHTTPServer((SERVER, 0), Files)
    other = http.server.ThreadingHTTPServer((OTHER, files.server_port), Files)
    for s in (by_tcp, names, files, other):
        threading.Thread(target=s.serve_forever, daemon=True).start()
    yield names.server_address[1], files.server_port
    for s in (by_tcp, names, files, other):
        s.shutdown()
        s.server_close()


@pytest.fixture(scope="module")
def port(servers):
    return servers[1]


@pytest.fixture(scope="module")
def daemon(servers):
    with Daemon(BRIG_NETWORK_ALLOW="127.0.0.0/8", BRIG_NETWORK_RESOLVER=f"127.0.0.1:{servers[0]}", BRIG_NETWORK_DENY=f"{OTHER}:1-65535") as d:
        yield d


@pytest.fixture(scope="module")
def repository(daemon):
    return Repository(daemon.top / "repo")


GET = """python3 - <<'E'
import urllib.request, sys
for url in sys.argv[1:] or {urls}:
    try: print(urllib.request.urlopen(url, timeout=60).read().decode())
    except OSError as e: print(type(getattr(e, 'reason', e)).__name__)
E"""


@pytest.fixture
def get(daemon, repository):
    def get(*urls, **fields):
        record = daemon.result(daemon.submit(repository.request(test_command=GET.replace("{urls}", repr(list(urls))), **fields)))
        return record["stdout"].splitlines(), record["usage"]["network"], record
    return get


def test_what_is_allowed_is_reached_and_the_rest_is_recorded(get, port):
    lines, network, _ = get(f"http://files.test:{port}/", f"http://secret-data.attacker.test:{port}/", f"http://10.1.2.3:{port}/",
                            network={"allow": ["Files.test."]})
    assert lines == [f"from files.test:{port}", "gaierror", "ConnectionResetError"]
    assert network["rules"] == ["files.test"]
    assert network["counters"]["connections"] == 1 and network["counters"]["denied"] >= 2
    assert network["counters"]["bytes_up"] > 0 < network["counters"]["bytes_down"]
    denied = {(d["kind"], d["target"], d["port"], d["reason"]) for d in network["denied"]}
    assert ("question", "secret-data.attacker.test", None, "not_allowed") in denied
    assert ("connection", "10.1.2.3", port, "not_allowed") in denied
    assert "secret-data.attacker.test" not in Names.asked and "files.test" in Names.asked


def test_ranges_allow_addresses(get, port):
    lines, network, _ = get(f"http://{SERVER}:{port}/", f"http://{OTHER}:{port}/", network=["127.0.0.0/8"])
    # 127/8 is the sandbox's own, whatever a rule says.
    assert lines == ["ConnectionRefusedError", "ConnectionRefusedError"]
    assert network["counters"]["connections"] == 0


def test_an_answer_that_was_cut_is_asked_for_by_tcp(get, port):
    lines, network, _ = get(f"http://long.test:{port}/", network={"allow": ["long.test"]})
    assert lines == [f"from long.test:{port}"] and network["counters"]["failed"] == 0


def test_the_command_line_takes_rules(daemon, repository, port, tmp_path):
    (tmp_path / "none.patch").write_text("")
    words = [BRIG, "score", "--url", f"http://127.0.0.1:{daemon.port}", "--repo", str(repository.path), "--patch", str(tmp_path / "none.patch"), "-o", "json",
             "--command", GET.replace("{urls}", repr([f"http://files.test:{port}/"]))]
    done = subprocess.run([*words, "--allow", f"files.test:{port}", "--allow", "10.0.0.0/8"], capture_output=True, text=True, timeout=120)
    record = json.loads(done.stdout)
    assert record["stdout"] == f"from files.test:{port}\n" and record["usage"]["network"]["rules"] == [f"files.test:{port}", "10.0.0.0/8"]
    wrong = subprocess.run([*words, "--network", "none", "--allow", "x.test"], capture_output=True, text=True, timeout=120)
    assert wrong.returncode == 64 and "--allow goes with" in wrong.stderr


def test_the_files_that_programs_look_up_names_with(get, daemon, repository):
    command = "cat /etc/resolv.conf; getent hosts localhost; getent hosts $(hostname) > /dev/null && echo itself; ls -l /etc/resolv.conf /etc/hosts | cut -c1; echo x >> /etc/hosts && tail -n 1 /etc/hosts"
    record = daemon.result(daemon.submit(repository.request(test_command=command, network={"allow": ["files.test"]})))
    lines = record["stdout"].splitlines()
    assert [line for line in lines if line.startswith("nameserver")] == ["nameserver 198.18.0.1"], record["stdout"]
    assert any("localhost" in line for line in lines) and "itself" in lines and lines[-3:] == ["-", "-", "x"], record["stdout"]


def test_a_name_does_not_lead_where_it_must_not(daemon, get, port):
    lines, network, _ = get("http://metadata.test/latest", f"http://packages.test:{port}/", "http://private.test/", f"http://rebind.test:{daemon.port}/healthz",
                            network={"allow": ["*.test"]})
    assert lines == ["ConnectionResetError"] * 4 or set(lines) <= {"ConnectionResetError", "RemoteDisconnected"}, lines
    assert {(d["target"], d["reason"], d["address"]) for d in network["denied"] if d["kind"] == "connection"} == {
        ("metadata.test", "local_address", "169.254.169.254"), ("packages.test", "operator", OTHER), ("private.test", "private_address", "10.9.8.7"),
        ("rebind.test", "local_address", "127.0.0.1")}


def test_other_networks_have_no_such_record(get, port):
    for network in ("none", "open"):
        _, seen, _ = get(f"http://{SERVER}:{port}/", network=network)
        assert seen is None


def test_a_set_up_gets_what_it_may_reach_and_is_kept_by_its_rules(daemon, repository, port):
    command = f"python3 -c \"import urllib.request; open('got', 'w').write(urllib.request.urlopen('http://files.test:{port}/').read().decode())\""
    allowed = repository.request(setup_command=command, setup_network={"allow": [f"files.test:{port}"]}, test_command="cat got", network="none")
    record = daemon.result(daemon.submit(allowed))
    assert record["stdout"] == f"from files.test:{port}", record
    refused = daemon.result(daemon.submit({**allowed, "setup_network": {"allow": ["files.test:1"]}}))
    assert refused["error"]["code"] == "setup_failed", refused


def test_many_names_and_broken_questions_harm_nobody(daemon, repository, port):
    script = f"""python3 - <<'E'
import os, socket, urllib.request
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('198.18.0.1', 53))
for i in range(300):
    try: s.send(os.urandom(i % 600))
    except OSError: pass
    try: s.send(b'\\0\\1\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0' + b'\\xc0\\x0c' * (i % 20) + b'\\0\\1\\0\\1')
    except OSError: pass
for i in range(150):
    try: socket.gethostbyname(f'n{{i}}.other.test')
    except OSError: pass
t = socket.create_connection(('198.18.0.1', 53)); t.sendall(b'\\0\\5hello')
try: print(t.recv(9))
except OSError as e: print(type(e).__name__)
print(socket.gethostbyname('files.test')[:7], urllib.request.urlopen('http://files.test:{port}/').read().decode())
E"""
    record = daemon.result(daemon.submit(repository.request(test_command=script, network=["files.test"])))
    assert record["stdout"].splitlines()[-1] == f"198.18. from files.test:{port}", record
    assert len(record["usage"]["network"]["denied"]) <= 128
    assert record["usage"]["network"]["counters"]["denied"] >= 150


def test_who_asked_too_much_by_tcp_may_ask_again(daemon, repository):
    script = """python3 - <<'E'
import socket, struct, time
question = b'\\0\\1\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\\5files\\4test\\0\\0\\1\\0\\1'
def ask(n):
    got, each = 0, 2 + len(question) + 16
    with socket.create_connection(('198.18.0.1', 53)) as s:
        s.settimeout(10)
        try:
            s.sendall(n * (struct.pack('!H', len(question)) + question))
            while got < n * each:
                more = len(s.recv(65536))
                got += more
                if not more: break
        except OSError: pass
    return got // each
print(ask(600) < 600)
end = time.monotonic() + 60
while ask(1) < 1 and time.monotonic() < end: time.sleep(0.05)
print(ask(1))
E"""
    record = daemon.result(daemon.submit(repository.request(test_command=script, network=["files.test"])))
    assert record["stdout"].splitlines() == ["True", "1"], record


def test_a_live_session_gets_other_rules(daemon, port):
    session = daemon.call("POST", "/v1/sessions?wait=60", {"image": "host", "network": {"allow": ["files.test"]}}).json
    at = f"/v1/sessions/{session['id']}"
    fetch = f"python3 -c \"import urllib.request; print(urllib.request.urlopen('http://files.test:{port}/', timeout=60).read().decode(), end='')\""
    try:
        assert daemon.call("POST", f"{at}/exec", {"command": fetch}).json["stdout"] == f"from files.test:{port}"
        hold = f"import socket; s = socket.create_connection(('files.test', {port})); print('up', flush=True); print(s.recv(9))"
        command = daemon.call("POST", f"{at}/commands", {"argv": ["python3", "-c", hold]}).json
        until(lambda: daemon.call("GET", f"{at}/network").json["counters"]["open"] == 1, "the connection is open")
        changed = daemon.call("PUT", f"{at}/network", {"allow": ["other.test:443"]})
        assert changed.status == 200 and changed.json["rules"] == ["other.test:443"], changed
        ended = until(lambda: (c := daemon.call("GET", f"{at}/commands/{command['id']}").json)["state"] == "exited" and c, "the cut command ends")
        assert ended["exit_code"] == 1
        assert daemon.call("POST", f"{at}/exec", {"command": fetch}).json["exit_code"] == 1
        seen = daemon.call("GET", f"{at}/network").json
        assert seen["counters"]["connections"] == 2 and seen["counters"]["open"] == 0
        assert {d["reason"] for d in seen["denied"]} == {"not_allowed"}
        for body in ({}, {"allow": "x"}, {"allow": ["a b"]}, {"allow": [1]}):
            bad = daemon.call("PUT", f"{at}/network", body)
            assert bad.status == 400 and "allow" in bad.json["error"]["message"], bad
    finally:
        daemon.call("DELETE", at)


def test_what_a_session_did_is_told_after_its_end(daemon, port):
    session = daemon.call("POST", "/v1/sessions?wait=60", {"image": "host", "network": {"allow": ["files.test"]}}).json
    at = f"/v1/sessions/{session['id']}"
    daemon.call("POST", f"{at}/exec", {"argv": ["python3", "-c", f"import urllib.request; urllib.request.urlopen('http://files.test:{port}/').read(); urllib.request.urlopen('http://no.test/')"]})
    before = daemon.call("GET", f"{at}/network").json
    assert before["counters"]["connections"] == 1 and before["denied"]
    assert daemon.call("POST", f"{at}/finish", {"test_command": "true"}).json["exit_code"] == 0
    after = daemon.call("GET", f"{at}/network")
    assert after.status == 200 and after.json == {**before, "counters": {**before["counters"], "open": 0}}
    put = daemon.call("PUT", f"{at}/network", {"allow": []})
    assert (put.status, put.json["error"]["code"]) == (409, "not_ready")
    assert daemon.call("DELETE", at).status == 200
    assert daemon.call("GET", f"{at}/network").status == 404


def test_a_fork_has_the_rules_of_the_moment(daemon, port):
    session = daemon.call("POST", "/v1/sessions?wait=60", {"image": "host", "network": {"allow": ["files.test"]}}).json
    at = f"/v1/sessions/{session['id']}"
    assert daemon.call("PUT", f"{at}/network", {"allow": ["other.test"]}).status == 200
    forked = daemon.call("POST", f"{at}/fork", {"count": 1})
    assert forked.status == 201, forked
    [child] = forked.json["sessions"]
    child = child if isinstance(child, str) else child["id"]
    daemon.call("GET", f"/v1/sessions/{child}?wait=60")
    assert daemon.call("GET", f"/v1/sessions/{child}/network").json["rules"] == ["other.test"]
    for s in (session["id"], child):
        daemon.call("DELETE", f"/v1/sessions/{s}")


def test_other_networks_of_sessions_have_no_rules(daemon):
    session = daemon.call("POST", "/v1/sessions?wait=60", {"image": "host", "network": "none"}).json
    for method in ("GET", "PUT"):
        answer = daemon.call(method, f"/v1/sessions/{session['id']}/network", {"allow": []})
        assert (answer.status, answer.json["error"]["code"]) == (409, "not_allow")
    daemon.call("DELETE", f"/v1/sessions/{session['id']}")
    assert daemon.call("GET", f"/v1/sessions/{session['id']}/network").status == 404
