"""The metrics' text is what Prometheus reads."""
import subprocess


def test_the_exposition_passes_promtool(server):
    with server.peer() as p:
        text = p.get("/metrics").body
    assert b"brig_score_seconds_bucket" in text and b'brig_tasks_finished_total{outcome="a\\"b"} 1' in text
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
