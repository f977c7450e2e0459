#!/usr/bin/bash
# Runs in the guest: pure cgroup v2, kernel 6.1. Lines that begin with "VM: " are the result.
export PATH=/usr/sbin:/usr/bin
failed=0
say() { echo "VM: $*"; }
finish() {
        if [ "$failed" = 0 ]; then say "all passed"; else say "$failed failed"; fi
        sync
        poweroff -f
}
trap finish EXIT

mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs tmpfs /run
chmod 1777 /tmp
mkdir -p /dev/pts /dev/shm
mount -t devpts -o ptmxmode=0666 devpts /dev/pts
mount -t tmpfs -o mode=1777 shm /dev/shm
ip link set lo up
ulimit -c 0
export BRIG_PROGRAM=/usr/bin/brig BRIG_TEST_HOME=/var/brig BRIG=/usr/bin/brig BRIG_TEST_SLOW=10

say "kernel $(uname -r), $(grep -c . /sys/fs/cgroup/cgroup.controllers) line of controllers: $(cat /sys/fs/cgroup/cgroup.controllers)"
brig doctor | while IFS= read -r line; do say "  $line"; done
brig doctor >/dev/null || failed=$((failed + 1))

# One cmocka program: its summary, and what failed.
run() {
        local name=$1 status
        shift
        timeout 120 "$@" >/tmp/out 2>&1
        status=$?
        if [ "$status" = 0 ]; then
                say "ok      $name: $(grep -c '\[       OK' /tmp/out) tests"
        else
                failed=$((failed + 1))
                say "FAILED  $name (status $status)"
                grep -vE '^\[( RUN|       OK)' /tmp/out | head -25 | while IFS= read -r line; do say "    $line"; done
        fi
}

for t in /usr/lib/brig-tests/test_*; do
        run "$(basename "$t")" "$t"
done

# The same from a group that is not the root: Brig must first move itself to a leaf.
for t in cgroup sandbox; do
        [ -x /usr/lib/brig-tests/test_$t ] || continue
        mkdir "/sys/fs/cgroup/service-$t"
        run "test_$t below a group" bash -c "echo \$\$ >/sys/fs/cgroup/service-$t/cgroup.procs && exec /usr/lib/brig-tests/test_$t"
done

# A whole task, in this process: mirror, tree, patch, tests, verdict.
score() {
        local name=$1 patch=$2 want=$3 status
        BRIG_HOME=/var/brig-score timeout 120 brig score --repo /srv/calc --commit HEAD --patch "$patch" --test-patch /srv/test.patch \
                --fail-to-pass test_calc.T.test_add --pass-to-pass test_calc.T.test_same --command 'python3 -m unittest test_calc' --quiet >/tmp/out 2>&1
        status=$?
        if [ "$status" = "$want" ]; then
                say "ok      $name: $(head -1 /tmp/out)"
        else
                failed=$((failed + 1))
                say "FAILED  $name (status $status)"
                head -30 /tmp/out | while IFS= read -r line; do say "    $line"; done
        fi
}
make_calc() (
        export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.com GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.com HOME=/tmp
        mkdir -p /srv/calc && cd /srv/calc && git init -q -b main . || exit 1
        echo 'add = lambda a, b: a - b' >calc.py
        printf 'import unittest\nimport calc\n\n\nclass T(unittest.TestCase):\n    def test_same(self):\n        self.assertEqual(calc.add(2, 0), 2)\n' >test_calc.py
        git add -A && git commit -q -m base || exit 1
        sed 's/a - b/a + b/' calc.py >new && mv new calc.py && git diff >/srv/right.patch
        git checkout -q . && sed 's/a - b/a * b/' calc.py >new && mv new calc.py && git diff >/srv/wrong.patch
        git checkout -q . && printf '\n    def test_add(self):\n        self.assertEqual(calc.add(2, 3), 5)\n' >>test_calc.py && git diff >/srv/test.patch
        git checkout -q .
)
make_calc
score "a task with the right patch" /srv/right.patch 0
score "the same with a wrong one" /srv/wrong.patch 1

# Every fallback at once, on the oldest kernel.
export BRIG_FORCE_MISSING=clone-into-cgroup,cgroup-kill,landlock,detached-source,overlay-append
[ ! -x /usr/lib/brig-tests/test_sandbox ] || run "test_sandbox with every fallback" /usr/lib/brig-tests/test_sandbox
unset BRIG_FORCE_MISSING
