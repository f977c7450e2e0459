"""Tools as the code of a turn sees them, against a broker that this test plays."""
import threading

import driver
import pytest

ADD = {"name": "add", "description": "Adds two numbers.",
       "parameters": {"type": "object", "properties": {"a": {"type": "integer", "description": "the first"}, "b": {"type": "integer", "default": 3}}, "required": ["a"]}}
ANY = {"name": "anything"}


@pytest.fixture(scope="module")
def interpreter():
    it = driver.Interpreter()
    yield it
    it.close()


def test_what_one_interpreter_has_compiled_serves_another(interpreter):
    other = driver.Interpreter(cache=interpreter.cache)        # which says no C
    turn = other.turn()
    assert turn.says("1 + 1") == "2\n"
    turn.close()
    other.close()


def test_what_another_python_has_compiled_does_not(interpreter):
    other = driver.Interpreter(cache=b"2.7\0" + interpreter.cache)
    assert other.hear(b"C").startswith(interpreter.cache.partition(b"\0")[0] + b"\0")
    other.close()


@pytest.fixture
def play(interpreter):
    """play(answer, tool...) -> turn and broker"""
    made = []

    def start(answer, *tools, **setup):
        broker = driver.Broker(answer)
        turn = interpreter.turn({"tools": list(tools) or [ADD, ANY], **setup}, broker.address)
        made.extend((turn, broker))
        return turn, broker

    yield start
    for it in made:
        it.close()


def echo(request):
    return 200, {"result": [request["args"], request["kwargs"]]}


def test_a_tool_is_a_function(play):
    turn, _ = play(echo)
    assert turn.says("import inspect\nprint(add.__name__, inspect.signature(add), type(add).__name__, add.__doc__, sep='|')") == \
        "add|(a, b=3)|function|Adds two numbers.\n\nArguments:\n    a: the first\n"


def test_arguments_arrive_as_they_were_given_and_defaults_are_filled_in(play):
    turn, broker = play(echo)
    assert turn.says("add(1)") == "[[1], {'b': 3}]\n"
    assert turn.says("add(1, 2)") == "[[1, 2], {}]\n"
    assert turn.says("add(a=1, b=None)") == "[[], {'a': 1, 'b': None}]\n"
    assert turn.says("anything(1, x={'y': [True]})") == "[[1], {'x': {'y': [True]}}]\n"
    assert [r["tool_name"] for r in broker.requests] == ["add", "add", "add", "anything"]
    assert len({r["id"] for r in broker.requests}) == 4
    assert broker.secrets == {"s3cret"}


def test_wrong_arguments_do_not_leave_the_sandbox(play):
    turn, broker = play(echo)
    assert "missing 1 required positional argument: 'a'" in turn.run("add()").error
    assert "unexpected keyword argument 'c'" in turn.run("add(1, c=2)").error
    assert broker.requests == []


def test_a_needed_argument_behind_an_optional_one_has_no_position(play):
    tool = {"name": "f", "parameters": {"properties": {"a": {"default": 1}, "b": {}}, "required": ["b"]}}
    turn, _ = play(echo, tool)
    assert turn.says("f(b=2)") == "[[], {'b': 2, 'a': 1}]\n"
    assert turn.run("f(1, 2)").type == "TypeError"


def test_a_connection_is_used_again(play):
    turn, broker = play(echo)
    assert turn.says("for i in range(50): _ = add(i)") == ""
    assert (len(broker.requests), broker.connections) == (50, 1)


def test_a_connection_that_was_closed_meanwhile_is_replaced(play):
    turn, broker = play(lambda r: (*echo(r), "hang up"))
    assert turn.says("for i in range(10): _ = add(i)\nadd(10)") == "[[10], {'b': 3}]\n"
    assert broker.connections == 11
    turn, broker = play(lambda r: (*echo(r), "close"))
    assert turn.says("for i in range(10): _ = add(i)\nadd(10)") == "[[10], {'b': 3}]\n"


def test_a_broker_that_never_answers_is_not_asked_twice(play):
    turn, broker = play(lambda r: None)
    result = turn.run("add(1)")
    assert (result.kind, result.tool_error["category"]) == ("tool", "transport")
    assert len(broker.requests) == 1


def test_a_tools_error_is_an_exception_with_its_parts(play):
    turn, _ = play(lambda r: (200, {"tool_error": {"category": "denied", "message": "not you", "call_id": "c1"}}))
    assert turn.says("try: add(1)\nexcept ToolError as e: print(e, e.category, e.call_id)") == "not you denied c1\n"
    result = turn.run("x = 1\nadd(x)")
    assert (result.kind, result.type) == ("tool", "ToolError")
    assert result.tool_error == {"category": "denied", "message": "not you", "call_id": "c1"}
    assert "line 2, in <module>\n    add(x)" in result.error
    assert "<brig>" not in result.error


@pytest.mark.parametrize("status,document,category,text", [
    (409, {"error": "duplicate call"}, "conflict", "duplicate call"),
    (409, {"error": {"code": "not_executing", "message": "invocation is not executing"}}, "not_executing", "invocation is not executing"),
    (504, {"error": "the wait has ended"}, "timeout", "the wait has ended"),
    (401, {}, "unauthorized", "401"),
    (500, b"<html>", "transport", "is not JSON"),
    (200, {"neither": 1}, "transport", "200"),
])
def test_each_refusal_has_its_category(play, status, document, category, text):
    turn, _ = play(lambda r: (status, document))
    result = turn.run("add(1)")
    assert result.tool_error["category"] == category
    assert text in result.tool_error["message"]


def test_no_broker_at_all(interpreter):
    turn = interpreter.turn({"tools": [ADD]}, "unix:@brig-nobody-is-here")
    assert turn.run("add(1)").tool_error["category"] == "transport"
    turn.close()


@pytest.mark.parametrize("value,text", [
    ("float('nan')", "NaN and Infinity are not JSON"), ("[1e999]", "NaN and Infinity are not JSON"), ("loop", "contains itself"), ("'\\ud800'", "lone surrogate"),
    ("{(1, 2): 3}", "keys must be strings"), ("object()", "a value of type object is not JSON"), ("b''", "a value of type bytes is not JSON")])
def test_arguments_are_strict_json(play, value, text):
    turn, broker = play(echo)
    result = turn.run(f"loop = []\nloop.append(loop)\nanything({value})")
    assert (result.kind, result.type) == ("exception", "BindingError")
    assert text in result.error
    assert broker.requests == []


def test_arguments_of_two_mebibytes_are_sent_and_one_byte_more_is_not(play):
    turn, broker = play(lambda r: (200, {"result": len(r["args"][0])}))
    room = turn.says("anything('')") and (2 << 20)
    turn.run("import sys")
    frame = "len(__import__('json').dumps({'id': 'x' * %d, 'tool_name': 'anything', 'args': [''], 'kwargs': {}}, separators=(',', ':')))" % len(broker.requests[0]["id"])
    empty = int(turn.says(frame))
    # The id counts calls, and its length with them.
    assert turn.says(f"anything('x' * {room - empty})") == f"{room - empty}\n"
    result = turn.run(f"anything('x' * {room - empty + 1})")
    assert result.tool_error["category"] == "ToolArgumentsTooLarge"


def test_a_large_result_arrives(play):
    turn, _ = play(lambda r: (200, {"result": "y" * (2 << 20)}))
    assert turn.says("len(add(1))") == f"{2 << 20}\n"


def test_calls_from_threads_go_side_by_side(play):
    together = threading.Barrier(8, timeout=30)

    def answer(request):
        together.wait()
        return 200, {"result": request["args"][0]}

    turn, _ = play(answer)
    assert turn.says("from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(8) as p: r = list(p.map(add, range(16)))\nr") == f"{list(range(16))}\n"


def test_more_threads_than_connections(play):
    turn, broker = play(lambda r: (200, {"result": r["args"][0]}))
    assert turn.says("from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(60) as p: r = list(p.map(add, range(200)))\nr == list(range(200))") == "True\n"
    assert broker.connections <= 15


def test_calls_from_asyncio(play):
    turn, _ = play(lambda r: (200, {"result": r["args"][0]}))
    assert turn.says("import asyncio\nasync def f(n): return add(n)\nawait f(1)") == "1\n"
    assert turn.says("await asyncio.gather(*(asyncio.to_thread(add, i) for i in range(5)))") == "[0, 1, 2, 3, 4]\n"
    assert turn.says("await asyncio.gather(*(add.aio(i) for i in range(5)))") == "[0, 1, 2, 3, 4]\n"
    assert turn.says("def sync(): return add(7)\nasync def g(): return await asyncio.get_running_loop().run_in_executor(None, sync)\nasyncio.run(g())") == "7\n"


def test_a_call_within_a_call_of_the_same_thread(play):
    # Objects that call tools while others are made into JSON, shown or destroyed.
    turn, _ = play(lambda r: (200, {"result": 1}))
    assert turn.says("class V:\n    def __repr__(self): return f'V{add(1)}'\nV()") == "V1\n"
    assert turn.says("class D:\n    def __del__(self): print('gone', add(2))\nd = D()\ndel d\nadd(3)") == "gone 1\n1\n"
    assert turn.says("import signal\nsignal.signal(signal.SIGALRM, lambda *a: print('alarm', add(4)))\nsignal.setitimer(signal.ITIMER_REAL, 0.01)\nimport time\ntime.sleep(0.2)") == "alarm 1\n"


def test_calls_from_a_fork(play):
    turn, broker = play(lambda r: (200, {"result": r["args"][0]}))
    assert turn.says("_ = add(0)\nimport os\nif (pid := os.fork()) == 0:\n    print(add(1), flush=True)\n    os._exit(0)\n_ = os.waitpid(pid, 0)\nadd(2)") == "1\n2\n"
    assert broker.connections == 2
    assert turn.says("import multiprocessing, pickle\nwith multiprocessing.get_context('fork').Pool(2) as p: r = p.map(add, [1, 2, 3])\nr, pickle.loads(pickle.dumps(ToolError('a', 'b', 'c'))).category") == "([1, 2, 3], 'b')\n"


def test_queries(play):
    def answer(request):
        argument = request["args"][0]
        return 200, {"result": argument.upper() if request["tool_name"] == "llm_query" else [p.upper() for p in argument]}

    turn, broker = play(answer)
    assert turn.says("llm_query('a'), llm_query_batched(['b', 'c']), llm_query_batched(p for p in 'de')") == "('A', ['B', 'C'], ['D', 'E'])\n"
    assert [r["tool_name"] for r in broker.requests] == ["llm_query", "llm_query_batched", "llm_query_batched"]
    assert turn.run("llm_query(1)").type == "TypeError"
    assert turn.run("llm_query_batched('abc')").type == "TypeError"
    assert turn.run("llm_query_batched([1])").type == "TypeError"
    assert len(broker.requests) == 3


def test_no_call_after_a_submit(play):
    turn, broker = play(echo)
    assert turn.says("try: SUBMIT(answer=1)\nexcept BaseException: pass\nadd(1)\nprint('not here')") == ""
    assert (turn.submitted, broker.requests) == ([{"answer": 1}], [])


def test_tools_with_names_that_are_none_are_left_out(play):
    turn, _ = play(echo, {"name": "a b"}, {"name": "class"}, {"name": 7}, "text", {"name": "fine", "parameters": {"properties": {"x y": {}}}})
    assert turn.says("fine.__name__") == "'fine'\n"


def test_json_of_all_kinds_goes_there_and_back(play):
    turn, _ = play(lambda r: (200, {"result": r["args"][0]}))
    assert turn.says("v = {'a': [1, -2.5, 1e300, True, None, 'é\\n\\0\"', {'': []}], 'b': 10**30}\nanything(v) == v") == "True\n"
    assert turn.says("anything((1, (2, [3])))") == "[1, [2, [3]]]\n"
    assert turn.says("import enum\nclass E(enum.IntEnum): A = 4\nanything({'e': E.A, 'f': True})") == "{'e': 4, 'f': True}\n"


def test_help_shows_the_outputs(play):
    turn, _ = play(echo, outputs=[{"name": "answer", "type": "int", "description": "the sum"}, {"name": "note", "required": False}])
    assert turn.says("print(SUBMIT.__doc__)") == "Ends the action with these outputs.\n\nOutputs:\n    answer: int the sum\n    note:  (optional)\n"
