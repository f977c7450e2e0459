"""brig doctor says what the kernel offers, for people and for programs."""
import json
import os
import subprocess

import brigd


def doctor(*args, **env):
    return subprocess.run([brigd.BRIG, "doctor", *args], env={**os.environ, **env}, capture_output=True, text=True, timeout=30)


def test_this_machine_can_score():
    run = doctor()
    assert run.returncode == 0, run.stdout
    assert "This machine can run sandboxes." in run.stdout


def test_json_has_a_row_a_facility():
    rows = {f["name"]: f for f in json.loads(doctor("-o", "json").stdout)["facilities"]}
    assert rows["user-ns"]["required"] and rows["user-ns"]["state"] == "ok"
    assert rows["cgroup"]["state"] in ("ok", "degraded")


def test_something_required_missing_is_exit_status_1():
    run = doctor("-o", "json", BRIG_FORCE_MISSING="cgroup")
    assert run.returncode == 1
    table = json.loads(run.stdout)
    assert not table["sufficient"]
    (row,) = [f for f in table["facilities"] if f["name"] == "cgroup"]
    assert row["forced"] and row["state"] == "missing" and row["lost"]


def test_an_unknown_option_is_a_usage_error():
    assert doctor("--frobnicate").returncode == 64
