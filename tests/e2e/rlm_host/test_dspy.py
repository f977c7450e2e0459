"""The released dspy package's own RLM module on Brig, with a scripted model."""
import sys

import pytest

sys.path.append("/opt/brig-tests/python")              # tools/install-deps.sh

import dspy  # noqa: E402
from dspy.primitives.code_interpreter import CodeExecutionError, CodeInterpreter, CodeInterpreterError, FinalOutput  # noqa: E402
from dspy.utils import DummyLM  # noqa: E402

import brig.dspy  # noqa: E402


def scripted(*code, **last):
    """A model that answers with these cells, one after the other."""
    return DummyLM([{"reasoning": "as planned", "code": f"```python\n{c}\n```"} for c in code] + ([last] if last else []))


@pytest.fixture
def interpreter(rlm_url):
    made = []

    def make(**options):
        made.append(brig.dspy.Interpreter(rlm_url, **options))
        return made[-1]
    yield make
    for i in made:
        i.shutdown()


def test_dspys_own_module_runs_with_tools_sub_queries_a_recursive_child_and_typed_outputs(rlm_url):
    looked = []

    def lookup(key: str, times: int = 1) -> str:
        """Looks a word up."""
        looked.append((key, times))
        return (key + "!") * times

    lm = scripted("print(len(context), lookup('k', times=2), llm_query_batched(['a', 'b']))",
                  "import dspy\nr = dspy.RLM('context -> short')(context=context[:5])\nprint(r.short)",
                  "SUBMIT(answer=lookup('end'), n='many')", "SUBMIT(answer=lookup('end'), n=len(context))")
    sub = DummyLM([{"answer": "A"}, {"answer": "B"}, {"reasoning": "deep", "code": "```python\nSUBMIT(short=context.upper())\n```"}])
    with dspy.context(lm=lm):
        rlm = dspy.RLM("context, query -> answer: str, n: int", tools=[lookup], sub_lm=sub, interpreter_factory=brig.dspy.interpreters(rlm_url))
        said = rlm(context="hello world" * 10, query="what?")
    assert (said.answer, said.n) == ("end!", 110) and looked[0] == ("k", 2), said
    first, second, refused = [step["output"] for step in said.trajectory[:3]]
    assert first.startswith("110 k!k! [") and "A" in first and "B" in first and second == "HELLO\n"
    assert "n" in refused and "int" in refused, refused
    assert len(said.trajectory) == 4


def test_it_is_a_code_interpreter(interpreter):
    assert isinstance(interpreter(), CodeInterpreter)


def test_what_execute_gives(interpreter):
    i = interpreter(output_fields=[{"name": "answer", "type": "int"}])
    i.start()
    i.start()
    assert i.execute("x = 1") is None
    assert i.execute("print(x + y)", {"y": 2}) == "3\n"
    assert i.execute("SUBMIT(answer=x)") == FinalOutput({"answer": 1})
    with pytest.raises(SyntaxError):
        i.execute("x = = 1")
    with pytest.raises(CodeExecutionError, match="ZeroDivisionError"):
        i.execute("1/0")
    assert i.execute("print(x)") == "1\n"


def test_code_longer_than_an_action_is_run_all_the_same(interpreter):
    i = interpreter()
    assert i.execute("#" * 20000 + "\nlong = 7\nprint(long)") == "7\n" and i.execute("print(long)") == "7\n"


def test_a_tools_exception_is_the_codes_and_the_interpreter_goes_on(interpreter):
    def fails(word: str):
        raise LookupError(f"no {word}")

    i = interpreter(tools={"fails": fails})
    with pytest.raises(CodeExecutionError, match="no luck"):
        i.execute("fails('luck')")
    assert i.execute("try: fails('luck')\nexcept Exception as e: print(e.category)") == "LookupError\n"


def test_an_interpreter_that_is_over_says_so(interpreter):
    i = interpreter()
    with pytest.raises(CodeInterpreterError, match="process_exited"):
        i.execute("import os; os._exit(3)")
    with pytest.raises(CodeInterpreterError, match="process_exited"):
        i.execute("1")
    i.shutdown()
    with pytest.raises(CodeInterpreterError):
        i.execute("1")


def test_tools_are_sealed_by_the_first_execute(interpreter):
    i = interpreter(tools={"a": lambda: 1})
    i.tools["a"] = lambda: 2
    assert i.execute("print(a())") == "2\n"
    i.tools["b"] = lambda: 3
    with pytest.raises(CodeInterpreterError, match="'b'"):
        i.execute("b()")


def test_a_daemon_that_is_not_there_is_no_fault_of_the_code():
    with pytest.raises(CodeInterpreterError):
        brig.dspy.Interpreter("http://127.0.0.1:1").execute("1")
