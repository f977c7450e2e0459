"""What operators ask of the daemon, and who may ask."""
import re
import signal
import subprocess
import sys

import brigd

CLIENT = """
import http.client, os, sys
os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
c = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=20)
c.request("GET", "/healthz")
print(c.getresponse().status)
"""


def values(daemon):
    text = daemon.call("GET", "/metrics").body.decode()
    return {name: float(value) for name, value in re.findall(r"^([a-z_]+(?:\{[^}]*\})?) (\S+)$", text, re.M)}


def test_health_and_readiness_need_no_token_and_the_rest_does(brig):
    d = brig(API_TOKEN="sesame", BRIG_LISTEN="127.0.0.1:0")
    assert (d.call("GET", "/healthz").status, d.call("GET", "/healthz").json) == (200, {"status": "ok"})
    ready = d.call("GET", "/readyz")
    assert (ready.status, ready.json["status"], ready.json["running"], ready.json["queued"]) == (200, "ready", 0, 0) and ready.json["slots"] >= 1
    for method, path in (("GET", "/metrics"), ("GET", "/task/x"), ("POST", "/task/submit"), ("POST", "/task/batch"), ("DELETE", "/task/x"), ("GET", "/none")):
        answer = d.call(method, path)
        assert (answer.status, answer.body) == (401, b'{"error":"Unauthorized"}'), path
    assert d.call("GET", "/metrics", headers={"Authorization": "Bearer sesame"}).status == 200


def test_metrics_count_tasks_by_outcome_and_faults_by_code(brig, repository):
    d = brig()
    before = values(d)
    assert before["brig_tasks_submitted_total"] == 0 and before["brig_score_seconds_count"] == 0
    assert d.result(d.submit(repository.request(patch=repository.right_patch)))["outcome"] == "resolved"
    assert d.result(d.submit(repository.request()))["outcome"] == "unresolved"
    assert d.result(d.submit(repository.request(base_commit="0" * 40)))["error"]["code"] == "commit_not_found"
    after = values(d)
    assert after["brig_tasks_submitted_total"] == 3
    assert {k: v for k, v in after.items() if "outcome=" in k} == {
        'brig_tasks_finished_total{outcome="resolved"}': 1, 'brig_tasks_finished_total{outcome="unresolved"}': 1,
        'brig_tasks_finished_total{outcome="infra_error"}': 1}
    assert after['brig_infra_errors_total{code="commit_not_found"}'] == 1
    assert after["brig_exec_seconds_count"] == 2 and after["brig_exec_seconds_sum"] > 0
    assert after["brig_score_seconds_count"] == after["brig_task_queued_seconds_count"] == 3
    assert after["brig_sandbox_create_seconds_count"] >= 2 and after["brig_sandbox_create_seconds_sum"] > 0
    assert after['brig_http_requests_total{code="202"}'] >= 3
    assert after["brig_tasks_queued"] == after["brig_tasks_running"] == 0
    assert after["brig_http_connections"] >= 1 and after["process_resident_memory_bytes"] > 1 << 20


def test_gauges_show_what_waits_and_what_runs(brig, repository):
    d = brig(BRIG_QUEUE_RUNNING_MAX="1")
    tasks = [d.submit(repository.takes(100)) for _ in range(3)]
    d.until_running(tasks[0])
    now = values(d)
    assert (now["brig_tasks_running"], now["brig_tasks_queued"]) == (1, 2)
    for task in tasks:
        assert d.call("DELETE", f"/task/{task}").status == 200
    now = values(d)
    assert (now["brig_tasks_running"], now["brig_tasks_queued"]) == (0, 0)


def test_the_daemons_exposition_passes_promtool(brig):
    done = subprocess.run(["promtool", "check", "metrics"], input=brig().call("GET", "/metrics").body, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_draining_daemon_is_healthy_but_not_ready(brig, repository):
    d = brig()
    task = d.until_running(d.submit(repository.takes(100)))
    d.process.send_signal(signal.SIGTERM)
    brigd.until(lambda: d.call("GET", "/readyz").status == 503, "the daemon drains")
    assert d.call("GET", "/readyz").json == {"status": "draining"}
    assert d.call("GET", "/healthz").status == 200
    assert d.call("DELETE", f"/task/{task}").status == 200
    assert d.wait() == 0


def test_processes_with_the_ids_of_sandboxes_are_refused(brig):
    d = brig(BRIG_ID_BASE="983040000")
    def status(uid):
        out = subprocess.run([sys.executable, "-c", CLIENT, str(d.port), str(uid)], capture_output=True, text=True, timeout=60, check=True)
        return int(out.stdout)
    assert [status(uid) for uid in (0, 12345, 983039999)] == [200, 200, 200]
    assert [status(uid) for uid in (983040000, 983040000 + 65536 + 1000)] == [403, 403]


def test_web_pages_of_others_are_refused(brig):
    d = brig()
    assert d.call("GET", "/healthz", headers={"Host": "evil.example"}).status == 403
    assert d.call("GET", "/healthz", headers={"Origin": "http://evil.example"}).status == 403
    assert d.call("GET", "/healthz", headers={"Host": f"localhost:{d.port}", "Origin": f"http://localhost:{d.port}"}).status == 200
