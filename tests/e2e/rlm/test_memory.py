"""Code that takes all the memory there is."""
import sys

import brigd
import pytest

sys.path.insert(0, __file__.rsplit("/", 1)[0])

from rlm_client import Host, error  # noqa: E402

LIMITS = {"BRIG_RUNTIME_ROOT_MEMORY": "128M", "BRIG_RUNTIME_ROOT_DISK": "64M"}
TAKE = "kept = []\nwhile True:\n    kept.append(b'x' * (1 << 20))\n"


@pytest.fixture(scope="module")
def host():
    with brigd.Daemon(**LIMITS) as daemon:
        yield Host(daemon)


@pytest.fixture(params=["itself", "a program of it", "many processes"])
def code(request):
    take = repr(["/usr/bin/python3", "-c", TAKE])
    return {
        "itself": TAKE,
        "a program of it": f"import subprocess, time\nsubprocess.run({take})\ntime.sleep(60)\n",
        "many processes": f"import subprocess, time\nfor i in range(8):\n    subprocess.Popen({take})\ntime.sleep(60)\n",
    }[request.param]


def test_memory_that_is_used_up_ends_the_turn_and_not_the_session(host, code):
    session = host.session()
    turn = session.turn()
    assert turn.execute("open('kept', 'w').write('x')\nprint(1)")["stdout"] == "1\n"
    answer = turn.execute("print('before', flush=True)\n" + code, timeout_s=100)
    assert (answer["error_category"], answer["turn_over"]) == ("memory_limit", True), answer
    assert answer["stdout"] == "before\n" and answer["final"] is None
    assert error(turn.post_execute("print(1)")) == (409, "turn_ended")
    following = session.turn()
    assert following.execute("print(2)")["stdout"] == "2\n"
    assert session.delete().status == 200
    seen = host.call("GET", "/sessions").json
    assert (seen["slots_used"], seen["roots"]) == (0, 0)


def test_python_that_is_refused_memory_hears_of_it(host):
    """More than there is in one piece: the limit does not fire, and the turn goes on."""
    session = host.session()
    turn = session.turn()
    answer = turn.execute("import resource\nresource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\nb'x' * (4 << 30)")
    assert (answer["error_type"], answer["turn_over"]) == ("MemoryError", False), answer
    assert turn.execute("print(3)")["stdout"] == "3\n"
    session.delete()
