"""Plays the exchanges of tests/e2e/wire: what the protocol's contract says, value by value."""
import json
import pathlib
import time
import uuid

import pytest

WIRE = pathlib.Path(__file__).resolve().parents[1] / "wire"


def fill(value, names):
    if isinstance(value, str):
        for name, text in names.items():
            value = value.replace("{" + name + "}", text)
        return value
    if isinstance(value, list):
        return [fill(v, names) for v in value]
    if isinstance(value, dict):
        return {k: fill(v, names) for k, v in value.items()}
    return value


def is_uuid(value):
    try:
        return str(uuid.UUID(value)) == value
    except (ValueError, AttributeError, TypeError):
        return False


def same(want, got):
    if want == "$any":
        return True
    if want == "$uuid":
        return is_uuid(got)
    if want == "$string":
        return isinstance(got, str)
    if want == "$number":
        return isinstance(got, (int, float)) and not isinstance(got, bool)
    if isinstance(want, dict):
        more = "$more" in want
        want = {k: v for k, v in want.items() if k != "$more"}
        return isinstance(got, dict) and (set(want) == set(got) or more and set(want) <= set(got)) and all(same(v, got[k]) for k, v in want.items())
    if isinstance(want, list):
        return isinstance(got, list) and len(want) == len(got) and all(map(same, want, got))
    if isinstance(want, bool) or isinstance(got, bool):
        return want is got
    return want == got


def play(daemon, step, names):
    send = fill(step["send"], names)
    body = send["raw"].encode() if "raw" in send else send.get("body")
    deadline = time.monotonic() + 60
    while True:
        answer = daemon.call(send["method"], send["path"], body, send.get("headers", {}))
        if "until" not in step or answer.status == step["until"]:
            return answer
        assert time.monotonic() < deadline, answer
        time.sleep(0.05)


@pytest.mark.parametrize("path", sorted(WIRE.glob("*.json")), ids=lambda p: p.stem)
def test_exchange(daemon, repository, path):
    names = {"repo": repository.url, "commit": repository.commit, "patch": repository.right_patch}
    for number, step in enumerate(json.loads(path.read_text())):
        answer = play(daemon, step, names)
        want = fill(step["expect"], names)
        assert answer.status == want["status"], (number, step["send"], answer)
        if "body" in want:
            assert answer.headers["Content-Type"].split(";")[0] == "application/json"
            assert same(want["body"], answer.json), (number, step["send"], answer.json)
        for name, key in step.get("save", {}).items():
            names[name] = answer.json[key]


def test_the_comparison_can_fail():
    assert same({"a": [1, "$uuid"]}, {"a": [1, str(uuid.uuid4())]})
    for want, got in (({}, {"a": 1}), ({"a": 1}, {}), ([1], [1, 2]), (1, True), (True, 1), ("$uuid", "x"), (None, False), ("1", 1), ({"$more": 1, "a": 1}, {"a": 2})):
        assert not same(want, got), (want, got)
