"""Each instruction of a Dockerfile through the daemon: what it leaves in the image, what a session then has, and what makes a step run again."""
import io
import json
import pathlib
import sys
import tarfile
import urllib.parse

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import brigd  # noqa: E402
from images import load, shell, with_configuration  # noqa: E402
from test_images import build, events, fails, run  # noqa: E402


@pytest.fixture(scope="module")
def daemon():
    with brigd.Daemon() as d:
        yield d


def made(daemon, name, dockerfile, **more):
    return build(daemon, dockerfile, names=[name], network="none", **more)


def test_a_base_with_instructions_for_who_builds_on_it_is_refused(daemon):
    load(daemon, with_configuration(shell(), name="triggers:1", OnBuild=["COPY . /app", "RUN make"]))
    fails(daemon, "dockerfile line 2: FROM: the base image has ONBUILD instructions, which are not supported: 'COPY . /app'", "# base\nFROM triggers:1\n")


# ---- the text -------------------------------------------------------------------------------------------------------------------


def test_lines_comments_and_directives(daemon):
    made(daemon, "text:1", "\ufeff# syntax=whatever/it:1\n# escape=`\n\n  # a comment\nfrom host\nRUN echo one >/t `\n# within\n\n   && echo two >>/t\r\nRUN echo '#three' >>/t\n")
    assert run(daemon, "text:1", "cat /t", network="none") == "one\ntwo\n#three\n"


HERE = """FROM host
ENV V=value
WORKDIR /w
RUN <<EOF
echo "first $V" >out
cat >>out <<INNER
inner
INNER
EOF
RUN <<EOF
#!/usr/bin/python3
open("out", "a").write("python\\n")
EOF
COPY <<A <<"B" /w/
$V
A
$V
B
COPY <<-TABS /w/tabs
\t\tno tabs
\tTABS
RUN cat <<EOF >>out
as input
EOF
"""


def test_here_documents(daemon):
    made(daemon, "here:1", HERE)
    assert run(daemon, "here:1", "cat out A B tabs", network="none") == "first value\ninner\npython\nas input\nvalue\n$V\nno tabs\n"


def test_run_as_shell_and_as_list(daemon):
    made(daemon, "run:1", """FROM host
RUN ["sh", "-c", "echo $0 $1 >/r", "a b", "$HOME"]
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
RUN [[ -n $BASH_VERSION ]] && echo bash >>/r
RUN (false | true) || echo pipefail >>/r
""")
    assert run(daemon, "run:1", "cat /r", network="none") == "a b $HOME\nbash\npipefail\n"


VARIABLES = """ARG TAG=host
ARG LATER=global
FROM ${TAG} AS base
ARG LATER
ARG OWN=own
ENV A=$LATER B="$OWN two" C='$OWN'
ENV OLD form of it
FROM base
ARG OWN=again
ENV PATH=/extra:$PATH
RUN echo "$A,$B,$C,$OLD,$OWN,${NONE:-default},${A:+set}" >/v
"""


def test_arguments_and_the_environment(daemon):
    made(daemon, "vars:1", VARIABLES)
    assert run(daemon, "vars:1", "cat /v; echo $OWN; echo $A; echo ${PATH%%:*}", network="none") == "global,own two,$OWN,form of it,again,default,set\n\nglobal\n/extra\n"
    made(daemon, "vars:2", VARIABLES, build_args={"LATER": "given", "OWN": "mine"})
    assert run(daemon, "vars:2", "cat /v", network="none") == "given,mine two,$OWN,form of it,mine,default,set\n"


def test_where_and_who(daemon):
    made(daemon, "who:1", "FROM host\nWORKDIR /a\nWORKDIR b/../c\nRUN pwd >/p\nUSER 1234:77\nWORKDIR /made\nRUN id -u >/tmp/u; id -g >>/tmp/u; pwd >>/tmp/u\nEXPOSE 80 443/udp\nLABEL one=1 two=\"2 3\"\n"
         "ENTRYPOINT [\"/bin/e\"]\nCMD a b\n")
    assert run(daemon, "who:1", "pwd; id -u; id -g; cat /p /tmp/u", network="none") == "/made\n1234\n77\n/a/c\n1234\n77\n/made\n"
    config = daemon.call("GET", "/v1/images/who:1").json["config"]
    assert config["User"] == "1234:77" and config["WorkingDir"] == "/made" and config["Labels"] == {"one": "1", "two": "2 3"}
    assert config["Entrypoint"] == ["/bin/e"] and config["Cmd"] == ["/bin/sh", "-c", "a b"] and set(config["ExposedPorts"]) == {"80", "443/udp"}


@pytest.mark.parametrize("line, word", [
    ("ONBUILD RUN x", "ONBUILD is not supported"), ("RUN --mount=type=cache,target=/x true", "RUN --mount is not supported"), ("COPY --parents a /x", "COPY --parents is not supported"),
    ("ADD --checksum=sha256:0 a /x", "ADD --checksum is not supported"), ("ADD git@example.org:a/b.git /x", "ADD of an address"), ("RUN --security=insecure x", "RUN --security is not supported"),
    ("SHELL sh -c", "SHELL takes a JSON list"), ("INCLUDE x", "unknown instruction: INCLUDE"), ("FROM host AS a b", "FROM takes at most 3"), ("COPY a", "needs a source and a destination"),
    ("RUN <<EOF\nno end", "the here-document EOF does not end"), ("RUN --network=host x", "not supported: none or default"),
])
def test_what_is_not_supported_is_said_with_its_line(daemon, line, word):
    error = fails(daemon, word, f"FROM host\n# two\n{line}\n", 400)
    assert error["message"].startswith("dockerfile line 3: "), error


# ---- the context --------------------------------------------------------------------------------------------------------------------


def context(*entries):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content, *more in entries:
            info = tarfile.TarInfo(name)
            for key, value in (more[0] if more else {}).items():
                setattr(info, key, value)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def post(daemon, data, **options):
    return daemon.call("POST", "/v1/images/build?options=" + urllib.parse.quote(json.dumps({"network": "none", **options})), data, {"Content-Type": "application/x-tar"})


def test_what_is_ignored(daemon):
    ignore = b"# comment\n*.log\n!keep.log\n**/cache\ntop/*/deep\n/only-top\n?x\n[ab]1\n\\#odd\n!**/cache/back\n"
    names = ["a.log", "keep.log", "in/b.log", "cache/f", "in/cache/f", "in/cache/back", "top/x/deep", "top/deep", "only-top", "in/only-top", "zx", "zzx", "a1", "c1", "#odd", "plain"]
    answer = post(daemon, context(("Dockerfile", b"FROM host\nCOPY . /w\n"), (".dockerignore", ignore), *((n, b"") for n in names)), names=["ignored:1"])
    assert answer.status == 200, answer
    found = run(daemon, "ignored:1", "cd /w; find . -type f | LC_ALL=C sort", network="none").split()
    assert found == ["./.dockerignore", "./Dockerfile", "./c1", "./in/b.log", "./in/cache/back", "./in/only-top", "./keep.log", "./plain", "./top/deep", "./zzx"]


@pytest.mark.parametrize("entries, word", [
    ([("Dockerfile", b"FROM host\nLABEL a=b\n\0RUN exit 9\n")], "NUL"),
    ([("Dockerfile", b"FROM host\nCOPY l/passwd /w/\n"), ("l", b"", {"type": tarfile.SYMTYPE, "linkname": "/etc"})], "line 2: COPY: l/passwd: no such file"),
    ([("Dockerfile", b"FROM host\nCOPY l/etc/passwd /w/\n"), ("l", b"", {"type": tarfile.SYMTYPE, "linkname": "../../../.."})], "no such file"),
    ([("Dockerfile", b"", {"type": tarfile.SYMTYPE, "linkname": "/proc/self/environ"})], "holds no file Dockerfile"),
    ([("Dockerfile", b"", {"type": tarfile.FIFOTYPE})], "holds no file Dockerfile"),
    ([("Dockerfile", b"FROM host\nCOPY . /w\n"), ("null", b"", {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 3})], "device"),
    ([("Dockerfile", b"FROM host\nCOPY . /w\n"), (".dockerignore", b"a\0b\n")], ".dockerignore line 1"),
    ([("Dockerfile", b"FROM host\nCOPY . /w\n"), (".dockerignore", b"**/a*/**/b*\n" * 20000)], ".dockerignore"),
    ([("Dockerfile", b"FROM host\n" + b"# x\n" * 20000)], "larger than"),
])
def test_a_hostile_context_is_refused_by_name(daemon, entries, word):
    def images():
        return {i["digest"] for i in daemon.call("GET", "/v1/images").json["images"]}
    before = images()
    answer = post(daemon, context(*entries))
    assert answer.status == 422 and word in answer.json["error"]["message"], answer
    assert images() == before


def test_links_of_the_context_are_copied_as_links(daemon):
    link = {"type": tarfile.SYMTYPE, "linkname": "/etc/hostname"}
    assert post(daemon, context(("Dockerfile", b"FROM host\nCOPY d /w\n"), ("d/l", b"", link)), names=["links:1"]).status == 200
    assert run(daemon, "links:1", "readlink /w/l", network="none") == "/etc/hostname\n"


# ---- what makes a step run again ----------------------------------------------------------------------------------------------------------


def test_contents_and_modes_count_and_times_do_not(daemon):
    dockerfile = b"FROM host\nRUN : again\nCOPY a /w/\nRUN : %s\nCOPY d /w/d\nRUN : %s\n"

    def cached(a=b"1", d=b"1", mtime=0, mode=0o644, last=b"x"):
        data = context(("Dockerfile", dockerfile % (b"y", last)), ("a", a, {"mtime": mtime, "mode": mode}), ("d/f", d, {"mtime": mtime + 5}))
        seen = events(daemon, "/v1/images/build?options=" + urllib.parse.quote(json.dumps({"network": "none", "stream": True})), data, {"Content-Type": "application/x-tar"})
        assert seen[-1][0] == "image", seen[-1]
        return {e["line"] for event, e in seen if event == "cached" and e["line"]}
    cached()
    everything = cached()
    assert everything >= {2, 3, 4, 5, 6}
    assert cached(mtime=1000000000) == everything
    assert cached(last=b"other") == everything - {6}
    assert cached(d=b"2") == everything - {5, 6}
    assert cached(mode=0o755) == everything - {3, 4, 5, 6}
    assert cached(a=b"2") == everything - {3, 4, 5, 6}
