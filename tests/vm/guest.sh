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
        mkdir "/sys/fs/cgroup/service-$t"
        run "test_$t below a group" bash -c "echo \$\$ >/sys/fs/cgroup/service-$t/cgroup.procs && exec /usr/lib/brig-tests/test_$t"
done

# Every fallback at once, on the oldest kernel.
export BRIG_FORCE_MISSING=clone-into-cgroup,cgroup-kill,landlock,detached-source,proc-pidns,close-range
run "test_sandbox with every fallback" /usr/lib/brig-tests/test_sandbox
unset BRIG_FORCE_MISSING
