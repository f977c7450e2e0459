#!/bin/sh
# Scores three patches of a small library with a bug, end to end: the right one, a wrong one, and one that cheats. Starts a daemon of
# its own on embedded defaults (own home, free port), stops it, and leaves nothing. usage: BRIG=build/brig tools/demo.sh
set -eu

brig=$(realpath "${BRIG:-build/brig}")
[ "$(id -u)" = 0 ] || { echo "the demo needs root: sandboxes are made by a small privileged process" >&2; exit 1; }

# Below /var/tmp and open to all: the daemon gives root up and must still be able to read the repository.
top=$(mktemp -d /var/tmp/brig-demo-XXXXXX)
chmod 755 "$top"
daemon=
finish() {
        status=$?
        trap - EXIT INT TERM
        if [ -n "$daemon" ]; then
                kill -TERM "$daemon" 2>/dev/null || true
                if wait "$daemon"; then echo "the daemon has drained and stopped"; else echo "the daemon ended with status $?" >&2; status=1; fi
        fi
        [ "$status" = 0 ] || tail -n 20 "$top/daemon.log" >&2 2>/dev/null || true
        rm -rf "$top"
        exit "$status"
}
trap finish EXIT INT TERM

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
[ -t 1 ] || say() { printf '\n== %s\n' "$*"; }

# ---- a library with a bug ------------------------------------------------------------------------------------------------------
lib=$top/shelf
mkdir -p "$lib/shelf" "$lib/tests"
cat >"$lib/shelf/__init__.py" <<'EOF'
"""Shelves: sort books, and find the gap in a numbered series."""


def missing(numbers):
    """The smallest positive number that is not among `numbers`."""
    seen = set(numbers)
    n = 1
    while n in seen:
        n += 2
    return n


def by_title(books):
    """Titles in order; a leading article does not count."""
    def key(title):
        words = title.lower().split()
        return words[1:] if words and words[0] in ("a", "an", "the") else words
    return sorted(books, key=key)
EOF
cat >"$lib/tests/test_shelf.py" <<'EOF'
from shelf import by_title, missing


def test_articles_do_not_count():
    assert by_title(["The Sea", "A Boat", "Nets"]) == ["A Boat", "Nets", "The Sea"]


def test_nothing_on_the_shelf():
    assert missing([]) == 1
EOF
git() { command git -C "$lib" -c user.name=demo -c user.email=demo@localhost -c init.defaultBranch=main -c core.autocrlf=false "$@"; }
git init -q
git add -A
git commit -q -m "A shelf"
commit=$(git rev-parse HEAD)

# A patch is what a change of the tree looks like to git; the tree goes back to base each time.
save() { git add -A; git diff --cached >"$top/$1"; git reset -q --hard; }

cat >>"$lib/tests/test_shelf.py" <<'EOF'


def test_second_book_is_missing():
    assert missing([1, 3, 4]) == 2


def test_no_gap():
    assert missing([1, 2, 3]) == 4
EOF
save tests.diff
sed -i 's/n += 2/n += 1/' "$lib/shelf/__init__.py"
save right.diff
sed -i 's/n += 2/n += 3/' "$lib/shelf/__init__.py"
save wrong.diff
# The cheat leaves the bug alone and makes the runner call every test a pass.
cat >"$lib/conftest.py" <<'EOF'
import pytest


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    report.outcome = "passed"
    report.longrepr = None
EOF
printf '[pytest]\naddopts = -p no:assertion\n' >"$lib/pytest.ini"
save cheat.diff
chmod -R a+rX "$top"

# ---- a daemon ---------------------------------------------------------------------------------------------------------------------
say "starting the daemon"
mkfifo "$top/ready"
env -i PATH="$PATH" BRIG_HOME="$top/home" API_PORT=0 "$brig" serve >"$top/ready" 2>"$top/daemon.log" &
daemon=$!
read -r ready <"$top/ready" || ready=
case $ready in
"ready http://"*) echo "$ready" ;;
*) echo "the daemon did not start" >&2; exit 1 ;;
esac

# ---- three verdicts ---------------------------------------------------------------------------------------------------------------
field() { sed -n "s/^  $1  *//p" "$top/out" | head -n 1; }
row() { printf '  %-18s %-26s %-28s %-10s %.16s\n' "$@"; }
score() { # score NAME PATCH WANTED: prints the verdict; its exit status must be the one that is due
        say "$1"
        status=0
        env -u BRIG_API_TOKEN -u API_TOKEN BRIG_URL="${ready#ready }" "$brig" score --repo "$lib" --commit "$commit" --patch "$top/$2" \
                --test-patch "$top/tests.diff" \
                --fail-to-pass tests/test_shelf.py::test_second_book_is_missing tests/test_shelf.py::test_no_gap \
                --pass-to-pass tests/test_shelf.py::test_articles_do_not_count tests/test_shelf.py::test_nothing_on_the_shelf >"$top/out" || status=$?
        cat "$top/out"
        verdict=$(head -n 1 "$top/out")
        [ "$status" = "$3" ] || { verdict="$verdict (exit status $status, not $3)"; failed=1; }
        row "$1" "$verdict" "$(field tests | sed 's/;.*//')" "$(field integrity)" "$(field evidence)" >>"$top/table"
}
failed=0
score "the right patch" right.diff 0
score "a wrong patch" wrong.diff 1
score "a cheating patch" cheat.diff 1

say "three verdicts"
row patch verdict tests integrity evidence
cat "$top/table"
exit "$failed"
