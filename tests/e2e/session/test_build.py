"""Sessions on images that are made from a Dockerfile, in the executor's dialect."""
import base64

from brigd import until
from session_client import Session

DOCKERFILE = """\
FROM host
ARG WHO=nobody
ENV GREETING="hello $WHO"
WORKDIR /srv/app
COPY data.txt /srv/app/
RUN cat data.txt > made && echo built >> made
USER 1234:1235
"""


def start(daemon, **more):
    # The tests' machine has no network to give to RUN.
    return Session(daemon, image=None, mode="build", dockerfile=DOCKERFILE, build_context={"data.txt": {"b64": base64.b64encode(b"data\n").decode()}}, **more)


def test_a_session_on_a_dockerfile(daemon):
    s = start(daemon, build_args={"WHO": "you"})
    until(lambda: s.status() != "starting", "it is built", 120)
    assert s.status() == "ready", s.get()
    assert s.out("pwd; cat made; echo $GREETING") == "/srv/app\ndata\nbuilt\nhello you\n"
    assert s.exec("id -u; id -g")["stdout"] == "1234\n1235\n"
    again = start(daemon, build_args={"WHO": "you"}).ready()
    assert again.out("cat made") == "data\nbuilt\n"
    for one in (s, again):
        assert one.delete().status == 200


def test_an_instruction_that_fails(daemon):
    s = Session(daemon, image=None, mode="build", dockerfile="FROM host\nRUN echo why >&2; exit 9\n")
    until(lambda: s.status() == "failed", "the build fails", 120)
    assert "line 2" in s.get().json["error"], s.get()
    s.delete()


def test_a_dockerfile_that_is_none(daemon):
    answer = daemon.call("POST", "/session/start", {"mode": "build", "dockerfile": "FROM host\nFLY away\n"})
    assert answer.status == 400 and "line 2" in answer.json["error"], answer
    answer = daemon.call("POST", "/session/start", {"mode": "build", "dockerfile": "FROM host\n", "build_context": {"../x": ""}})
    assert answer.status == 400 and "build_context" in answer.json["error"], answer


def test_deleted_while_it_is_built(daemon):
    s = Session(daemon, image=None, mode="build", dockerfile="FROM host\nRUN sleep 60\n")
    assert s.status() == "starting"
    assert s.delete().status == 200 and s.get().status == 404
