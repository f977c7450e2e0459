"""Images through the daemon: pulled from a real registry, built from Dockerfiles, with progress as events."""
import base64
import http.client
import io
import json
import pathlib
import sys
import tarfile
import urllib.parse

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "registry"))

import brigd  # noqa: E402
from registries import Image, RealRegistry, tar_layer  # noqa: E402


@pytest.fixture(scope="module")
def daemon():
    with brigd.Daemon() as d:
        yield d


def events(daemon, path, body, headers=None):
    """(event, data) of the answer's stream, in order."""
    connection = http.client.HTTPConnection(daemon.host, daemon.port, timeout=120)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request("POST", path, data, headers or {})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    assert answer.status == 200, (answer.status, text)
    found = []
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line and not line.startswith(":"))
        if "data" in lines:
            found.append((lines.get("event"), json.loads(lines["data"])))
    return found


def build(daemon, dockerfile, status=200, **more):
    answer = daemon.call("POST", "/v1/images/build", {"dockerfile": dockerfile, **more})
    assert answer.status == status, answer
    return answer.json


def fails(daemon, word, dockerfile, status=422, code=None, **more):
    error = build(daemon, dockerfile, status, **more)["error"]
    assert word in error["message"], error
    assert code in (None, error["code"]), error
    return error


def run(daemon, image, command, **more):
    """The command's output in a session of the image."""
    session = daemon.call("POST", "/v1/sessions?wait=60", {"image": image, **more})
    assert session.status == 201 and session.json["state"] == "ready", session
    answer = daemon.call("POST", f"/v1/sessions/{session.json['id']}/exec", {"argv": ["/bin/sh", "-c", command]})
    assert answer.status == 200 and answer.json["exit_code"] == 0, answer
    assert daemon.call("DELETE", f"/v1/sessions/{session.json['id']}").status == 200
    return answer.json["stdout"]


class TestPull:
    @pytest.fixture(scope="class")
    def registry(self):
        with RealRegistry() as r:
            yield r

    def test_a_pulled_image_is_in_the_store(self, daemon, registry):
        image = Image([tar_layer({"a/b": b"one", "a/gone": b"x"}), tar_layer({"a/.wh.gone": b"", "a/c": b"two"})], {"Env": ["A=b"], "WorkingDir": "/a", "User": "7"})
        name = registry.push("org/app", image, "1")
        answer = daemon.call("POST", "/v1/images/pull", {"name": name})
        assert answer.status == 200, answer
        assert answer.json["names"] == [name] and answer.json["layers"] == 2 and answer.json["origin"] == "pull"
        assert answer.json["config"]["Env"] == ["A=b"]

    def test_events_say_how_far_it_is(self, daemon, registry):
        name = registry.push("org/events", Image([tar_layer({f"f{i}": bytes([i]) * 100000}) for i in range(3)]))
        seen = events(daemon, "/v1/images/pull", {"name": name, "stream": True})
        assert seen[-1][0] == "image" and seen[-1][1]["layers"] == 3
        last = [data for event, data in seen if event == "progress"][-1]
        assert last["layers"] == last["layers_done"] == 3

    def test_what_is_not_there(self, daemon, registry):
        answer = daemon.call("POST", "/v1/images/pull", {"name": f"{registry.host}/none:1"})
        assert answer.status == 404 and answer.json["error"]["code"] == "image_not_found"
        assert events(daemon, "/v1/images/pull", {"name": f"{registry.host}/none:1", "stream": True})[-1][0] == "error"

    @pytest.mark.parametrize("body", [{}, {"name": ""}, {"name": "UPPER"}, {"name": 1}, {"name": "a", "auth": {"password": "x"}}, {"name": "a", "timeout": 0}])
    def test_a_bad_request_is_refused(self, daemon, body):
        assert daemon.call("POST", "/v1/images/pull", body).status == 400

    def test_a_layer_that_lies_is_refused(self, daemon, registry):
        image = Image([tar_layer({"a": b"x"})])
        config = json.loads(image.config)
        config["rootfs"]["diff_ids"] = ["sha256:" + "0" * 64]
        image.config = json.dumps(config).encode()
        from registries import digest
        image.document["config"].update(digest=digest(image.config), size=len(image.config))
        answer = daemon.call("POST", "/v1/images/pull", {"name": registry.push("liar", image)})
        assert answer.status == 422, answer


class TestBuild:
    def test_a_small_dockerfile(self, daemon):
        image = build(daemon, 'FROM host\nENV A=1 B="two words"\nWORKDIR /app\nRUN echo "$A $B" >out && pwd >>out\nLABEL x=y\nCMD ["cat", "out"]\n', names=["small"])
        assert image["names"] == ["small:latest"] and image["origin"] == "build"
        assert image["config"]["WorkingDir"] == "/app" and "B=two words" in image["config"]["Env"] and image["config"]["Cmd"] == ["cat", "out"]

    def test_events_name_the_steps_and_carry_the_output(self, daemon):
        dockerfile = "FROM host\nRUN echo hello\nRUN echo there >&2\n"
        seen = events(daemon, "/v1/images/build", {"dockerfile": dockerfile, "stream": True})
        steps = [data for event, data in seen if event == "step"]
        assert [(s["step"], s["steps"], s["line"], s["text"]) for s in steps] == [
            (1, 3, 1, "FROM host"), (2, 3, 2, "RUN echo hello"), (3, 3, 3, "RUN echo there >&2")]
        output = "".join(data["text"] for event, data in seen if event == "output")
        assert "hello" in output and "there" in output and seen[-1][0] == "image"
        again = events(daemon, "/v1/images/build", {"dockerfile": dockerfile, "stream": True})
        assert [event for event, _ in again].count("cached") == 2 and "output" not in [event for event, _ in again]

    def test_a_failing_step_names_its_line_and_its_last_words(self, daemon):
        fails(daemon, "dockerfile line 3: RUN", "FROM host\n\nRUN echo why; exit 3\n", code="build_failed")
        assert "why" in fails(daemon, "3", "FROM host\n\nRUN echo why; exit 3\n")["message"]


FILES = {"a.txt": "a", "d/b.txt": "b", "d/e/c.txt": {"b64": base64.b64encode(b"\0c").decode()}, "skip.log": "no", ".dockerignore": "*.log\n"}


def looks(daemon, dockerfile, command, context=FILES, **more):
    """What the command says as the last step of the build."""
    seen = events(daemon, "/v1/images/build", {"dockerfile": f"{dockerfile}\nRUN {command}; echo ={next(COUNT)}", "build_context": context, "stream": True, **more})
    assert seen[-1][0] == "image", seen[-1]
    last = max(data.get("line", 0) for _, data in seen)
    return "".join(data["text"] for event, data in seen if event == "output" and data["line"] == last).rsplit("=", 1)[0]


COUNT = iter(range(1000))
LIST = "cd /w && find . -type f | sort | xargs -d '\\n' stat -c '%n %a %u:%g'"


class TestCopy:
    @pytest.mark.parametrize("copy, found", [
        ("COPY . .", ["./.dockerignore 644 0:0", "./a.txt 644 0:0", "./d/b.txt 644 0:0", "./d/e/c.txt 644 0:0"]),
        ("COPY a.txt /w/x", ["./x 644 0:0"]),
        ("COPY a.txt x/", ["./x/a.txt 644 0:0"]),
        ("COPY d x", ["./x/b.txt 644 0:0", "./x/e/c.txt 644 0:0"]),
        ("COPY d/*.txt a.txt x/y/", ["./x/y/a.txt 644 0:0", "./x/y/b.txt 644 0:0"]),
        ("COPY --chown=7:8 --chmod=0600 a.txt .", ["./a.txt 600 7:8"]),
        ("COPY --chown=daemon a.txt .", ["./a.txt 644 1:1"]),
        ('COPY ["a.txt", "x y"]', ["./x y 644 0:0"]),
        ("ARG F=a\nENV D=z\nCOPY ${F}.txt $D/${G:-g}", ["./z/g 644 0:0"]),
        ("COPY <<EOF <<'TWO' x/\nv=$V\nEOF\n$V\nTWO", ["./x/EOF 644 0:0", "./x/TWO 644 0:0"]),
        ("RUN mkdir x\nCOPY a.txt x", ["./x/a.txt 644 0:0"]),
        ("RUN mkdir /real && ln -s /real x && ln -s ../../../../../etc/../w/y up\nCOPY a.txt x/\nRUN cp /real/a.txt .", ["./a.txt 644 0:0"]),
    ])
    def test_where_files_go(self, daemon, copy, found):
        out = looks(daemon, f"FROM host\nWORKDIR /w\n{copy}", LIST)
        assert out.splitlines() == found

    def test_what_the_sandbox_has_mounted_is_not_written(self, daemon):
        assert looks(daemon, "FROM host\nRUN ln -s /proc /w\nCOPY a.txt /w/x\nCOPY a.txt /dev/x", "ls /proc/x /dev/x 2>/dev/null; true") == ""

    def test_contents_are_the_context_s(self, daemon):
        assert looks(daemon, "FROM host\nWORKDIR /w\nCOPY . .\nENV V=1\nCOPY <<EOF h\nv=$V\nEOF", "cat a.txt d/b.txt h; od -c d/e/c.txt | head -1") == "abv=1\n0000000  \\0   c\n"

    def test_an_archive_is_unpacked_by_add_only(self, daemon):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w:gz") as tar:
            info = tarfile.TarInfo("in/side")
            info.size = 2
            tar.addfile(info, io.BytesIO(b"ok"))
        context = {"x.tgz": {"b64": base64.b64encode(out.getvalue()).decode()}}
        assert looks(daemon, "FROM host\nADD x.tgz /w\nCOPY x.tgz /w/", "cat /w/in/side; ls /w", context) == "okin\nx.tgz\n"

    def test_stages_and_images_give_files(self, daemon):
        build(daemon, "FROM scratch\nCOPY a.txt /from/image\n", build_context=FILES, names=["source:1"])
        dockerfile = ("ARG BASE=host\nFROM ${BASE} AS one\nRUN mkdir /o && echo one >/o/f && chown 5:6 /o/f\n"
                      "FROM host AS unused\nRUN exit 1\n"
                      "FROM one AS two\nRUN echo two >>/o/f\n"
                      "FROM host\nCOPY --from=one /o /w/one\nCOPY --from=2 /o/f /w/two\nCOPY --from=source:1 /from/image /w/")
        assert looks(daemon, dockerfile, "cat /w/one/f /w/two /w/image; stat -c %u:%g /w/one/f") == "one\none\ntwo\na5:6\n"

    def test_a_target_stops_early(self, daemon):
        image = build(daemon, "FROM host AS a\nLABEL at=a\nFROM a\nRUN exit 1", target="A")
        assert image["config"]["Labels"] == {"at": "a"}

    @pytest.mark.parametrize("dockerfile, word", [
        ("FROM host\n\nCOPY none /w", "dockerfile line 3: COPY: none: no such file"),
        ("FROM host\nCOPY ../../etc/passwd /w", "no such file"),
        ("FROM host\nCOPY /etc/passwd /w", "no such file"),
        ("FROM host\nCOPY *.none /w/", "nothing matches"),
        ("FROM host\nCOPY skip.log /w", ".dockerignore"),
        ("FROM host\nCOPY a.txt d /w", "end with '/'"),
        ("FROM host\nCOPY --chown=nobodyatall a.txt /w", "no such user"),
        ("FROM host\nCOPY --chmod=u+x a.txt /w", "octal"),
        ("FROM host\nRUN echo x >/w\nCOPY d /w", "dockerfile line 3"),
        ("FROM host\nCOPY --from=127.0.0.1:1/none:1 /a /b", "dockerfile line 2"),
        ("FROM host\nRUN nothing-of-that-name", "127"),
        ('FROM host\nRUN ["/nothing"]', "dockerfile line 2"),
        ("FROM host\nUSER nobodyatall\nRUN id", "dockerfile line 3"),
        ("FROM 10.0.0.1/private:1", "dockerfile line 1"),
    ])
    def test_what_goes_wrong_names_its_line(self, daemon, dockerfile, word):
        answer = daemon.call("POST", "/v1/images/build", {"dockerfile": dockerfile, "build_context": FILES})
        assert answer.status in (422, 404, 502, 403), answer
        assert word in answer.json["error"]["message"], answer

    @pytest.mark.parametrize("body, word", [
        ({"dockerfile": "FROM host\nFOO x"}, "dockerfile line 2: unknown instruction: FOO"),
        ({"dockerfile": "FROM host\nADD https://x.example/ /y"}, "dockerfile line 2: ADD of an address"),
        ({"dockerfile": "RUN x"}, "before the first FROM"),
        ({"dockerfile": "FROM host", "build_args": {"X": "1"}}, "no ARG X"),
        ({"dockerfile": "FROM host", "target": "x"}, "no stage 'x'"),
        ({"dockerfile": "FROM --platform=linux/s390x host"}, "builds for linux/"),
        ({"dockerfile": "FROM host AS a\nCOPY --from=0 /x /y"}, "no such earlier stage"),
        ({"dockerfile": "FROM host", "build_context": {"../x": "y"}}, "not a relative path"),
        ({"dockerfile": "FROM host", "build_context": {"/x": "y"}}, "not a relative path"),
        ({"dockerfile": "FROM host", "build_context": {"x": 1}}, "must be a string"),
        ({"dockerfile": "FROM host", "names": ["Ä"]}, "names"),
        ({}, "dockerfile"),
    ])
    def test_what_can_be_said_at_once_is_a_400(self, daemon, body, word):
        answer = daemon.call("POST", "/v1/images/build", body)
        assert answer.status == 400 and word in answer.json["error"]["message"], answer

    def test_variables_that_double_themselves_end(self, daemon):
        lines = "".join(f"ENV A=$A$A\n" for _ in range(40))
        error = build(daemon, f"FROM host\nENV A={'x' * 100}\n{lines}", 422)["error"]
        assert "dockerfile line" in error["message"] and "longer" in error["message"]


class TestCache:
    def test_a_changed_file_makes_anew_from_there(self, daemon):
        dockerfile = "FROM host\nRUN echo cache-one\nCOPY a.txt /w/\nRUN cat /w/a.txt\nCOPY d /w/d\nRUN ls /w/d"

        def cached(context):
            seen = events(daemon, "/v1/images/build", {"dockerfile": dockerfile, "build_context": context, "stream": True})
            assert seen[-1][0] == "image"
            return {data["line"] for event, data in seen if event == "cached" and data["line"]}
        first = {"a.txt": "1", "d/x": "1", "other": "1"}
        cached(first)
        assert cached(first) >= {2, 3, 4, 5, 6}
        assert cached({**first, "other": "2"}) >= {2, 3, 4, 5, 6}
        assert cached({**first, "a.txt": "2"}) & {2, 3, 4, 5, 6} == {2}
        assert cached({**first, "d/x": "2"}) & {2, 3, 4, 5, 6} == {2, 3, 4}

    def test_equal_builds_at_a_time_share_their_steps(self, daemon):
        import concurrent.futures
        dockerfile = "FROM host\nRUN head -c 16 /dev/urandom | od >/once; sleep 1"
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            images = list(pool.map(lambda _: build(daemon, dockerfile)["digest"], range(4)))
        assert len(set(images)) == 1

    def test_no_cache_runs_again(self, daemon):
        one = [build(daemon, "FROM host\nRUN head -c 16 /dev/urandom | od >/again", no_cache=True)["digest"] for _ in range(2)]
        assert one[0] != one[1]


class TestArchive:
    @staticmethod
    def context(files, mode="w:gz"):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode=mode) as tar:
            for name, content in files.items():
                info = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(name)
                data = b"" if isinstance(content, tarfile.TarInfo) else content.encode()
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        return out.getvalue()

    def post(self, daemon, data, **options):
        path = "/v1/images/build?options=" + urllib.parse.quote(json.dumps(options))
        return daemon.call("POST", path, data, {"Content-Type": "application/x-tar"})

    def test_a_context_with_its_dockerfile(self, daemon):
        data = self.context({"Dockerfile": "FROM host\nCOPY a /w\nLABEL l=x", "sub/D": "FROM host\nCOPY sub /w\nLABEL l=y", "a": "a"})
        assert self.post(daemon, data).json["config"]["Labels"] == {"l": "x"}
        assert self.post(daemon, data, path="sub/D").json["config"]["Labels"] == {"l": "y"}
        assert self.post(daemon, data, dockerfile="FROM host\nLABEL l=z").json["config"]["Labels"] == {"l": "z"}

    def test_what_is_no_context_is_refused(self, daemon):
        link = tarfile.TarInfo("Dockerfile")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        climb = tarfile.TarInfo("../../x")
        for data, options in ((b"garbage" * 1000, {}), (self.context({"a": "a"}), {}), (self.context({"x": link}), {}), (self.context({"x": climb}), {}),
                              (self.context({"a": "a"}), {"path": "../../etc/passwd"})):
            answer = self.post(daemon, data, **options)
            assert answer.status == 422, answer
        assert self.post(daemon, b"x", build_context={"a": "b"}).status == 400
        assert daemon.call("POST", "/v1/images/build?options=x", b"x", {"Content-Type": "application/x-tar"}).status == 400


class TestTime:
    def test_an_endless_run_ends_with_the_build_s_time(self, daemon):
        error = build(daemon, "FROM host\n\nRUN sleep 1000", 504, timeout=2)["error"]
        assert error["code"] == "timeout" and "dockerfile line 3" in error["message"]

    def test_a_client_that_goes_ends_its_build(self, daemon):
        connection = http.client.HTTPConnection(daemon.host, daemon.port, timeout=30)
        connection.request("POST", "/v1/images/build", json.dumps({"dockerfile": "FROM host\nRUN sleep 1000.75", "stream": True}))
        answer = connection.getresponse()
        while b"RUN sleep" not in answer.fp.readline():
            pass
        answer.close()
        connection.close()
        brigd.until(lambda: not any(b"1000.75" in argv and b"sleep" in argv[0] for _, _, argv in brigd.processes() if argv), "its processes are gone")
