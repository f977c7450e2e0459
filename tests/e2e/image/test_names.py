"""What a name without a host means: the operator's registry, or nothing."""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "registry"))

import brigd  # noqa: E402
from registries import HostileRegistry, Image, tar_layer  # noqa: E402


def pull(daemon, name):
    return daemon.call("POST", "/v1/images/pull", {"name": name})


def test_without_a_registry_a_short_name_is_an_image_of_the_store_only():
    with brigd.Daemon(BRIG_REGISTRY_DEFAULT="") as d:
        for name in ("debian", "debian:12", "group/app"):
            answer = pull(d, name)
            assert answer.status == 400 and "registry.default" in answer.json["error"]["message"], answer
            session = d.call("POST", "/v1/sessions?wait=30", {"image": name, "network": "none"})
            assert "registry.default" in session.json["error"]["message"] if session.status != 201 else session.json["state"] == "failed", session
            if session.status == 201:
                assert "registry.default" in session.json["error"] and "no image" in session.json["error"], session
        answer = d.call("POST", "/v1/images/build", {"dockerfile": "\nFROM debian:12\n"})
        assert answer.status == 404 and "dockerfile line 2" in answer.json["error"]["message"] and "registry.default" in answer.json["error"]["message"], answer
        assert d.call("POST", "/v1/images/build", {"dockerfile": "FROM scratch\nLABEL a=b\n", "names": ["debian:12"]}).status == 200
        assert d.call("POST", "/v1/images/build", {"dockerfile": "FROM debian:12\nLABEL b=c\n"}).json["config"]["Labels"] == {"a": "b", "b": "c"}


@pytest.mark.parametrize("space, path", [("library", "library/app"), ("team/base", "team/base/app"), ("-", "app")])
def test_a_short_name_goes_to_the_operator_s_registry(space, path):
    with HostileRegistry(Image([tar_layer({"a": b"x"})]), path) as registry:
        with brigd.Daemon(BRIG_REGISTRY_DEFAULT=registry.host, BRIG_REGISTRY_NAMESPACE=space) as d:
            answer = pull(d, "app:1")
            assert answer.status == 200 and answer.json["names"] == ["app:1"], answer
            assert f"/v2/{path}/manifests/1" in [p for p, _ in registry.seen]
            registry.seen.clear()
            assert pull(d, "other/app").status == 404
            assert pull(d, f"{registry.host}/app2").status == 404
            assert [p for p, _ in registry.seen if "manifests" in p] == ["/v2/other/app/manifests/latest", "/v2/app2/manifests/latest"]


@pytest.mark.parametrize("setting, value", [("BRIG_REGISTRY_DEFAULT", "https://r.example"), ("BRIG_REGISTRY_NAMESPACE", "Upper/")])
def test_a_registry_that_cannot_be_stops_the_daemon(tmp_path, setting, value):
    d = brigd.Daemon(**{setting: value})
    with pytest.raises(AssertionError):
        d.start()
    assert setting.lower().replace("brig_registry_", "registry.") in d.stderr()
