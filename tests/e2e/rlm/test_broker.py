"""Calls of tools: both faces of the broker."""
import http.client
import json
import sys
import threading

import pytest

sys.path.insert(0, __file__.rsplit("/", 1)[0])

from rlm_client import Host, error  # noqa: E402

MIB2 = 2 << 20

# A caller of its own, that a turn's code brings along: what the driver would not do. The secret is the turn's own, which its code may know.
RAW = r"""
import gc, http.client, json, os, socket, threading
def secret():
    for o in gc.get_objects():
        if type(o).__name__ == "Broker":
            return o.secret
def raw(body, path="/tool_call", method="POST", headers=None):
    c = http.client.HTTPConnection("127.0.0.1", 8765, timeout=60)
    h = {"X-Broker-Secret": secret()} if headers is None else headers
    c.request(method, path, body if body is None or isinstance(body, (bytes, str)) else json.dumps(body), h)
    r = c.getresponse()
    return r.status, r.read().decode()
"""


def raw_turn(host, tools=("t",), **more):
    turn = host.session().turn(tools, **more)
    assert turn.execute(RAW)["error"] is None
    return turn


def last(answer):
    """(status, body) that the code's last line printed."""
    assert answer["error"] is None, answer
    status, _, body = answer["stdout"].splitlines()[-1].partition(" ")
    return int(status), json.loads(body)


def test_a_tool_is_called_and_answers(host):
    turn = host.session().turn([{"name": "add", "parameters": {"type": "object", "properties": {"a": {}, "b": {"default": 5}}, "required": ["a"]}}])
    action = turn.execution("print(add(1, b=2))")
    request = turn.claim()
    assert request["tool_name"] == "add"
    assert (request["args"], request["kwargs"]) in (([1], {"b": 2}), ([], {"a": 1, "b": 2}), ([1, 2], {}))
    assert turn.settle(request, result=3).status == 200
    answer = action.result()
    assert answer["stdout"] == "3\n" and answer["usage"]["tool_calls"] == 1


def test_a_tool_error_is_an_exception_of_the_code(host):
    turn = host.session().turn(["t"])
    action = turn.execution("t()")
    turn.settle(turn.claim(), tool_error={"category": "quota", "message": "no more"})
    answer = action.result()
    assert answer["error_category"] == "tool_error" and "no more" in answer["error"]
    assert answer["tool_error"]["category"] == "quota" and answer["tool_error"]["message"] == "no more"
    assert answer["tool_error"]["call_id"]


def test_a_result_is_taken_once_and_with_its_lease_alone(host):
    turn = host.session().turn(["t"])
    action = turn.execution("print(t(), t())")
    one = turn.claim()
    forged = {"id": one["id"], "lease": "0" * 32}
    assert error(turn.settle(forged, result=1)) == (409, "stale_lease")
    assert error(turn.settle({"id": "never", "lease": one["lease"]}, result=1)) == (404, "unknown_call")
    assert turn.settle(one, result="first").status == 200
    two = turn.claim()
    assert error(turn.settle(one, result="again"))[1] in ("duplicate_call", "duplicate_result")
    assert error(turn.settle({"id": two["id"], "lease": one["lease"]}, result="x")) == (409, "stale_lease")
    assert turn.settle(two, result="second").status == 200
    assert action.result()["stdout"] == "first second\n"
    assert error(turn.settle(two, result="late")) == (409, "duplicate_call")


def test_an_unclaimed_call_has_no_lease_to_settle_it_with(host):
    turn = raw_turn(host)
    action = turn.execution("s, b = raw({'id': 'mine', 'tool_name': 't'}); print(s, b)")
    with turn.events() as following:
        while following()[0] != "tools_pending":
            pass
    for lease in ("", "0" * 32):
        assert error(turn.settle({"id": "mine", "lease": lease}, result=1)) == (409, "stale_lease")
    turn.settle(turn.claim(), result=1)
    assert last(action.result()) == (200, {"result": 1})


def test_a_claimed_call_is_never_issued_again(host):
    turn = host.session().turn(["t"])
    action = turn.execution("t()")
    request = turn.claim()
    assert turn.pending(wait=0)["requests"] == []
    assert turn.pending(wait=0)["remaining_s"] > 0
    turn.settle(request, result=None)
    action.result()
    assert turn.pending(wait=0) == {"requests": [], "remaining_s": None}


def test_head_claims_nothing(host):
    turn = host.session().turn(["t"])
    action = turn.execution("t()")
    answer = host.call("HEAD", turn.path + "/pending?wait=30")
    assert answer.status == 405 and answer.headers["Allow"] == "GET"
    turn.settle(turn.claim(), result=None)
    assert action.result()["error"] is None


def test_a_host_that_vanishes_leaves_a_504(host):
    turn = raw_turn(host)
    action = turn.execution("s, b = raw({'id': 'x', 'tool_name': 't'}); print(s, b)\n", timeout_s=1)
    request = turn.claim()
    answer = action.result()
    assert answer["error_category"] in (None, "timeout")
    assert answer["stdout"].startswith("504 ") or answer["error_category"] == "timeout"
    assert error(turn.settle(request, result=1)) == (409, "duplicate_call")


def test_the_codes_clock_stands_while_its_host_works(host):
    turn = host.session().turn(["t"])
    action = turn.execution("t(); print('on')", timeout_s=1, host_wait_s=60)
    request = turn.claim()
    assert turn.pending(wait=2)["requests"] == []          # longer than the code's own time
    turn.settle(request, result=None)
    answer = action.result()
    assert answer["stdout"] == "on\n" and answer["usage"]["host_wait_ms"] >= 1500


def test_ids_are_used_once(host):
    turn = raw_turn(host)
    code = "s, b = raw({'id': 'same', 'tool_name': 't'}); print(s, b)"
    action = turn.execution(code)
    turn.settle(turn.claim(), result=1)
    assert last(action.result()) == (200, {"result": 1})
    status, body = last(turn.execute(code))
    assert status == 409 and body["error"]["message"] == "duplicate call"


def test_nothing_is_taken_in_between_actions(host):
    turn = raw_turn(host)
    with turn.events() as following:
        turn.execute("""
if os.fork() == 0:
    while json.loads(raw(None, '/health', 'GET')[1])['executing']: pass
    os.write(1, ('%d %s\\n' % raw({'tool_name': 't'})).encode())
    os._exit(0)
""")
        said = ""
        while not said.endswith("\n"):
            name, data = following()
            said += data["data"] if name == "stdout" else ""
    status, _, body = said.partition(" ")
    assert status == "409" and json.loads(body)["error"]["code"] == "not_executing"
    assert turn.pending(wait=0)["requests"] == []


def test_a_call_that_waits_when_its_action_ends_is_answered(host):
    turn = raw_turn(host)
    action = turn.execution("""
left = []
thread = threading.Thread(target=lambda: left.append(raw({'id': 'left', 'tool_name': 't'})))
thread.start()
_ = raw({'id': 'go', 'tool_name': 't'})
""", timeout_s=60)
    requests = {}
    while len(requests) < 2:
        requests.update((r["id"], r) for r in turn.pending()["requests"])
    turn.settle(requests["go"], result=None)
    assert action.result()["error"] is None
    assert error(turn.settle(requests["left"], result="late")) == (409, "duplicate_call")
    status, body = last(turn.execute("thread.join(); print(*left[0])", timeout_s=60))
    assert status == 409 and body["error"]["message"] == "invocation is not executing"


@pytest.mark.parametrize("headers", [{}, {"X-Broker-Secret": ""}, {"X-Broker-Secret": "0" * 64}, {"X-Broker-Secret": "0" * 63}, {"Authorization": "Bearer x"}])
def test_everything_needs_the_secret(host, headers):
    turn = raw_turn(host)
    for path, method in (("/health", "GET"), ("/tool_call", "POST"), ("/pending", "GET"), ("/nothing", "GET")):
        body = "{}" if method == "POST" else None
        answer = turn.execute(f"print(*raw({body!r}, {path!r}, {method!r}, {headers!r}))")
        assert last(answer)[0] == 401


def test_health_and_nothing_else_is_there(host):
    turn = raw_turn(host)
    assert last(turn.execute("print(*raw(None, '/health', 'GET'))")) == (200, {"status": "ok", "executing": True})
    for path in ("/pending", "/result", "/v1/sessions", "/healthz"):
        assert last(turn.execute(f"print(*raw(None, {path!r}, 'GET'))"))[0] == 404


def test_a_secret_is_its_turns_alone(host):
    session = host.session()
    turn = session.turn(["t"])
    turn.execute(RAW + "\nopen('/workspace/secret', 'w').write(secret())")
    turn.end()
    turn = session.turn(["t"])
    answer = turn.execute(RAW + "\nold = open('/workspace/secret').read(); assert old != secret()\nprint(*raw(None, '/health', 'GET', {'X-Broker-Secret': old}))")
    assert last(answer)[0] == 401


@pytest.mark.parametrize("body", ["", "[]", "{", '{"tool_name": 7}', '{"args": []}', '{"tool_name": "t", "args": {}}', '{"tool_name": "t", "kwargs": []}', '{"tool_name": "t", "id": 7}',
                                  '{"tool_name": "t", "id": ""}', '{"tool_name": "t", "id": "a b"}', '{"tool_name": "t", "args": [NaN]}', '{"tool_name": "t", "args": [Infinity]}'])
def test_calls_that_cannot_be_are_refused(host, body):
    turn = raw_turn(host)
    status, answer = last(turn.execute(f"print(*raw({body!r}))"))
    assert status == 400 and answer["error"]["code"] == "invalid"


def test_a_tool_that_is_not_there_is_named(host):
    turn = raw_turn(host)
    status, body = last(turn.execute("print(*raw({'id': 'u', 'tool_name': 'other'}))"))
    assert status == 200 and body["tool_error"]["category"] == "unknown_tool" and body["tool_error"]["call_id"] == "u"


def test_bodies_of_two_mebibytes_pass_and_one_byte_more_does_not(host):
    turn = raw_turn(host)
    sized = f"""
def sized(n, id):
    empty = len(json.dumps({{'id': id, 'tool_name': 't', 'args': ['']}}))
    return json.dumps({{'id': id, 'tool_name': 't', 'args': ['x' * (n - empty)]}})
s, b = raw(sized({MIB2}, 'fits')); print(s, len(b))
print(*raw(sized({MIB2} + 1, 'over')))
"""
    action = turn.execution(sized)
    request = turn.claim()
    shell = len(json.dumps({"id": request["id"], "lease": request["lease"], "result": ""}).encode())
    body = json.dumps({"id": request["id"], "lease": request["lease"], "result": "y" * (MIB2 + 1 - shell)}).encode()
    assert len(body) == MIB2 + 1
    answer = host.call("POST", turn.path + "/result", body)
    assert error(answer) == (413, "ToolResultTooLarge")
    body = json.dumps({"id": request["id"], "lease": request["lease"], "result": "y" * (MIB2 - shell)}).encode()
    assert host.call("POST", turn.path + "/result", body).status == 200
    answer = action.result()
    assert answer["stdout"].splitlines()[0] == f"200 {len(json.dumps({'result': 'y' * (MIB2 - shell)}, separators=(',', ':')))}"
    status, body = last(answer)
    assert status == 413 and body["error"]["code"] == "ToolResultTooLarge"


@pytest.mark.parametrize("text", [b'{"id":"x","lease":"y","result":NaN}', b'{"id":"x","lease":"y","result":-Infinity}', b'{"id":"x","lease":"y"}', b'{"id":"x","result":1}', b"{",
                                  b'{"id":"x","lease":"y","result":1,"tool_error":{"category":"c"}}', b'{"id":"x","lease":"y","tool_error":"text"}', b'{"id":7,"lease":"y","result":1}'])
def test_results_that_cannot_be_are_refused(host, text):
    turn = host.session().turn()
    assert error(host.call("POST", turn.path + "/result", text)) == (400, "invalid")


def test_calls_of_a_turn_are_counted(brig):
    host = Host(brig(BRIG_RUNTIME_MAX_TOOL_CALLS="3"))
    turn = raw_turn(host)
    action = turn.execution("for i in range(4): s, b = raw({'tool_name': 't'})\nprint(s, b)")
    for _ in range(3):
        turn.settle(turn.claim(), result=None)
    status, body = last(action.result())
    assert status == 200 and body["tool_error"]["category"] == "too_many_calls"


def test_calls_that_wait_are_counted(brig):
    host = Host(brig(BRIG_RUNTIME_MAX_PENDING_CALLS="2"))
    turn = raw_turn(host)
    with turn.events() as following:
        action = turn.execution("""
done, one = [], threading.Event()
threads = [threading.Thread(target=lambda: (done.append(raw({'tool_name': 't'})), one.set())) for _ in range(3)]
[t.start() for t in threads]
one.wait()
print(*done[0], flush=True)
_ = [t.join() for t in threads]
""", timeout_s=60)
        requests = []
        while len(requests) < 2:
            requests += turn.pending()["requests"]
        while following()[0] != "stdout":                       # the third has been refused
            pass
        for request in requests:
            turn.settle(request, result=None)
    status, body = last(action.result())
    assert status == 200 and body["tool_error"]["category"] == "too_many_pending"


def test_prompts_of_a_turn_are_counted_and_a_batch_is_reserved_at_once(host):
    turn = host.session().turn()
    action = turn.execution("print(llm_query_batched(['a'] * 30)[29], llm_query('b'))\ntry:\n  llm_query_batched(['c', 'd'])\nexcept Exception as e:\n  print(e)\nprint(llm_query('e'))")
    first = turn.claim()
    assert first["tool_name"] == "llm_query_batched"
    turn.settle(first, result=[f"[ERROR] {i}" for i in range(30)])
    turn.settle(turn.claim(), result="B")
    turn.settle(turn.claim(), result="E")
    lines = action.result()["stdout"].splitlines()
    assert lines[0] == "[ERROR] 29 B" and "aggregate in Python" in lines[1] and lines[2] == "E"


def test_connections_of_a_sandbox_are_counted(host):
    turn = raw_turn(host)
    answer = turn.execute("""
held = []
for i in range(40):
    s = socket.create_connection(('127.0.0.1', 8765)); held.append(s)
s.settimeout(60)
print(s.recv(4096).split(b'\\r\\n')[0].decode())
""")
    assert answer["stdout"].strip().split(" ", 1)[1].startswith("503")
    assert turn.execute("[s.close() for s in held]; print(1)")["stdout"] == "1\n"


def test_the_last_call_of_many_threads_is_neither_lost_nor_doubled(host):
    turn = host.session().turn(["t"])
    action = turn.execution("""
import threading
out = {}
def work(i):
    for k in range(5): out[i, k] = t(i, k)
threads = [threading.Thread(target=work, args=(i,)) for i in range(12)]
[t_.start() for t_ in threads]; [t_.join() for t_ in threads]
print(len(out), all(v == list(key) for key, v in out.items()))
""", timeout_s=60)
    seen = []
    while len(seen) < 60:
        for request in turn.pending()["requests"]:
            seen.append(request["id"])
            assert turn.settle(request, result=request["args"]).status == 200
    assert action.result()["stdout"] == "60 True\n"
    assert len(set(seen)) == 60


def test_several_polls_share_the_calls(host):
    turn = host.session().turn(["t"])
    got = []

    def poll():
        got.extend(turn.pending(wait=60)["requests"])

    polls = [threading.Thread(target=poll) for _ in range(3)]
    for p in polls:
        p.start()
    action = turn.execution("print(t(1)); print(t(2)); print(t(3))", timeout_s=60)
    settled = 0
    while settled < 3:
        while len(got) > settled:
            turn.settle(got[settled], result="ok")
            settled += 1
        polls[0].join(0.01)
    for p in polls:
        p.join(60)
    assert action.result()["stdout"] == "ok\nok\nok\n"


def test_a_poll_ends_with_its_turn(host):
    session = host.session()
    turn = session.turn(["t"])
    answers = []
    poll = threading.Thread(target=lambda: answers.append(host.call("GET", turn.path + "/pending?wait=60")))
    poll.start()
    turn.cancel()
    poll.join(60)
    assert error(answers[0]) == (409, "stale_generation")


def test_a_poll_that_waits_in_vain_answers_nothing(host):
    turn = host.session().turn(["t"])
    assert turn.pending(wait=0.2) == {"requests": [], "remaining_s": None}
    assert error(host.call("GET", turn.path + "/pending?wait=soon")) == (400, "invalid")


def test_a_caller_that_goes_away_is_forgotten(host):
    turn = raw_turn(host)
    action = turn.execution("""
s = socket.create_connection(('127.0.0.1', 8765))
body = json.dumps({'id': 'gone', 'tool_name': 't'})
s.sendall(f'POST /tool_call HTTP/1.1\\r\\nHost: x\\r\\nX-Broker-Secret: {secret()}\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n{body}'.encode())
print(t('first') if False else raw({'id': 'stays', 'tool_name': 't'}))
s.close()
print(raw({'id': 'after', 'tool_name': 't'}))
""", timeout_s=60)
    requests = {}
    while len(requests) < 2:
        requests.update((r["id"], r) for r in turn.pending()["requests"])
    turn.settle(requests["stays"], result=1)
    after = turn.claim()
    assert error(turn.settle(requests["gone"], result=1)) == (409, "duplicate_call")
    turn.settle(after, result=2)
    assert action.result()["error"] is None


def test_a_second_result_before_the_first_is_taken_is_no_benign_one(host):
    turn = raw_turn(host)
    action = turn.execution("""
s = socket.socket(socket.AF_UNIX); s.connect('\\0brig-broker')
body = json.dumps({'id': 'slow', 'tool_name': 't'})
s.sendall(f'POST /tool_call HTTP/1.1\\r\\nHost: x\\r\\nX-Broker-Secret: {secret()}\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n{body}'.encode())
_ = raw({'id': 'go', 'tool_name': 't'})
got = b''
while got.count(b'y') < 1500000: got += s.recv(1 << 20)
_ = raw({'id': 'end', 'tool_name': 't'})
""", timeout_s=60)
    requests = {}
    while len(requests) < 2:
        requests.update((r["id"], r) for r in turn.pending()["requests"])
    slow = requests["slow"]
    assert turn.settle(slow, result="y" * 1500000).status == 200
    assert error(turn.settle(slow, result="again")) == (409, "duplicate_result")
    turn.settle(requests["go"], result=None)
    end = turn.claim()
    assert error(turn.settle(slow, result="late")) == (409, "duplicate_call")
    turn.settle(end, result=None)
    assert action.result()["error"] is None
