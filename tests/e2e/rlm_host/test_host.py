"""Sessions, turns and tools by the Python library."""
import asyncio
import threading

import pytest

from brig.rlm import RlmError, Session, ToolError, describe


def test_a_tool_is_a_function_of_the_host(session):
    seen = []

    def search(query: str, limit: int = 10) -> list:
        """Finds documents."""
        seen.append((query, limit))
        return [query] * limit

    with session.turn([search], {"answer": list}) as turn:
        action = turn.execute("import inspect\nprint(inspect.signature(search), search.__doc__)\nSUBMIT(answer=search('brig', limit=2))")
    assert action["final"] == {"answer": ["brig", "brig"]} and seen == [("brig", 2)], action
    assert "query" in action["stdout"] and "limit" in action["stdout"] and "Finds documents." in action["stdout"]
    assert action["usage"]["tool_calls"] == 1 and turn.host.settled == 1 and turn.host.failures == []


def test_coroutines_and_functions_run_side_by_side(session):
    both = threading.Barrier(2, timeout=30)

    async def slow(n):
        await asyncio.get_running_loop().run_in_executor(None, both.wait)
        return n

    def quick(n):
        both.wait()
        return n

    with session.turn([slow, quick]) as turn:
        action = turn.execute("from concurrent.futures import ThreadPoolExecutor as P\nwith P(2) as p:\n    a, b = p.submit(slow, 1), p.submit(quick, 2)\n    print(a.result(), b.result())", host_wait=60)
    assert action["stdout"] == "1 2\n", action


def test_exceptions_of_tools_reach_the_code_by_category(session):
    def fails():
        raise ToolError("not today", "closed")

    def breaks():
        return 1 / 0

    with session.turn([fails, breaks]) as turn:
        action = turn.execute("for f in fails, breaks:\n    try: f()\n    except Exception as e: print(e.category, e.message)")
        assert action["stdout"] == "closed not today\nZeroDivisionError division by zero\n", action
        assert turn.execute("fails()")["error_category"] == "tool_error"
    assert turn.host.failures == []


@pytest.mark.parametrize("value, category", [(float("nan"), "not_json"), ({1, 2}, "not_json"), ("x" * (3 << 20), "ToolResultTooLarge")], ids=["nan", "set", "large"])
def test_what_cannot_be_carried_is_an_error_of_the_tool(session, value, category):
    with session.turn({"give": lambda: value}) as turn:
        action = turn.execute("try: give()\nexcept Exception as e: print(e.category)")
    assert action["stdout"] == category + "\n" and turn.host.failures == [], action


def test_prompts_are_answered_in_order_and_fail_by_themselves(session):
    async def llm(prompt):
        if prompt == "bad":
            raise RuntimeError("no such model")
        return prompt.upper()

    with session.turn(llm=llm) as turn:
        action = turn.execute("print(llm_query('a'), llm_query_batched(['b', 'bad', 'c']))")
    assert action["stdout"] == "A ['B', '[ERROR] no such model', 'C']\n", action
    assert action["usage"]["prompts"] == 4


def test_an_exception_of_the_code_is_an_answer(session):
    with session.turn() as turn:
        action = turn.execute("x = 1\n1/0")
        assert action["error_category"] == "exception" and "ZeroDivisionError" in action["error"]
        assert turn.execute("print(x)", {"y": 2})["stdout"] == "1\n"
        with pytest.raises(RlmError) as e:
            turn.execute("")
        assert (e.value.status, e.value.code) == (400, "empty_code")


def test_files_stay_from_turn_to_turn(session):
    with session.turn() as turn:
        turn.execute("open('kept', 'w').write('here')")
    with session.turn() as turn:
        assert turn.execute("print(open('kept').read())")["stdout"] == "here\n"


def test_a_cancelled_turn_lets_go_of_its_host(session):
    called, let_go = threading.Event(), threading.Event()

    def wait():
        called.set()
        let_go.wait(60)

    turn = session.turn([wait])
    got = []
    thread = threading.Thread(target=lambda: got.append(turn.execute("wait()", timeout=60)))
    thread.start()
    assert called.wait(30)
    threading.Timer(0.2, let_go.set).start()
    before = turn.generation
    assert turn.cancel() > before
    thread.join(30)
    assert got[0]["error_category"] == "cancelled" and got[0]["turn_over"]
    with session.turn() as next_turn:
        assert next_turn.execute("print(1)")["stdout"] == "1\n"


def test_a_child_runs_a_sub_agent(session):
    """A recursive tool: the host runs the sub-agent's code in a sandbox of its own."""
    def rlm_query(task: str) -> str:
        with turn.child(outputs={"answer": str}) as child:
            return child.execute(f"SUBMIT(answer={task!r}.upper())")["final"]["answer"]

    turn = session.turn([rlm_query], {"said": str})
    with turn:
        assert turn.execute("SUBMIT(said=rlm_query('deep'))", host_wait=60)["final"] == {"said": "DEEP"}


def test_a_session_that_is_there_is_taken_up(session, rlm_url):
    with session.turn() as turn:
        turn.execute("open('kept', 'w').write('1')")
    again = Session(rlm_url, session=session.id)
    with again.turn() as turn:
        assert turn.execute("print(open('kept').read())")["stdout"] == "1\n"
    with pytest.raises(RlmError) as e:
        Session(rlm_url, session="00000000-0000-4000-8000-000000000000").turn()
    assert e.value.code == "not_found"


def test_what_a_tool_says_of_itself():
    def f(a: str, b: "int" = 3, *rest, c=object(), **more):
        """Doc."""
    assert describe("f", f) == {"name": "f", "description": "Doc.", "parameters": {
        "type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer", "default": 3}, "c": {}}, "required": ["a"]}}
