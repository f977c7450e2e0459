"""What the tables of the verbs say: help, manual pages, completions."""
import re
import subprocess

import pytest
from brigd import BRIG

NAMES = re.findall(r"^  ([a-z]+(?: [a-z]+)?)  ", subprocess.run([BRIG, "help"], capture_output=True, text=True).stdout, re.M)


def run(*words):
    return subprocess.run([BRIG, *words], capture_output=True, text=True)


@pytest.mark.parametrize("name", NAMES)
def test_every_option_of_the_help_is_in_the_manual_and_completed(name):
    help_text, page = run(*name.split(), "--help"), run("manual", *name.split())
    options = re.findall(r"^  (--?[a-z0-9-]+)", help_text.stdout, re.M)
    assert help_text.stdout.startswith(f"usage: brig {name}") and "--help" in options and page.returncode == 0
    for option in options:
        assert "\\fB" + option.replace("-", "\\-") + "\\fR" in page.stdout, option
        assert option in completions(*name.split(), option)


def completions(*words):
    """What bash would offer for the last word."""
    line = " ".join(words)
    script = f"""{run("completion", "bash").stdout}
COMP_WORDS=(brig {line}); COMP_CWORD={len(words)}; COMP_LINE="brig {line}"; _brig; printf '%s\\n' "${{COMPREPLY[@]}}" """
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout.split()


def test_verbs_are_completed():
    assert "score" in completions("sc") and "serve" not in completions("sc")


def test_words_of_a_value_are_completed():
    assert completions("score", "--network", "o") == ["open"]


def test_the_overview_names_every_verb():
    text = run("manual").stdout
    assert NAMES and all("brig\\-" + n.replace(" ", "\\-") in text for n in NAMES)


@pytest.mark.parametrize("words", [["nothing"], ["score", "--nothing"], ["completion", "csh"], ["manual", "nothing"], []])
def test_what_is_not_there_is_a_usage_error(words):
    done = run(*words)
    assert (done.returncode, done.stdout) == (64, "") and done.stderr
