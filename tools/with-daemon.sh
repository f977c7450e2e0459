#!/bin/sh
# Runs a command of brig's against the daemon that answers on this machine (or at BRIG_URL); where none does, against one that is started for it, in
# BRIG_HOME, and stopped after it. usage: BRIG=build/brig tools/with-daemon.sh VERB...
set -eu

brig=$(realpath "${BRIG:-build/brig}")
if [ -n "${BRIG_URL:-}" ] || "$brig" session ls -q >/dev/null 2>&1; then
        exec "$brig" "$@"
fi
[ "$(id -u)" = 0 ] || { echo "no daemon answers, and starting one needs root: sandboxes are made by a small privileged process" >&2; exit 2; }

top=$(mktemp -d /var/tmp/brig-daemon-XXXXXX)
daemon=
finish() {
        status=$?
        trap - EXIT INT TERM
        if [ -n "$daemon" ]; then
                kill -TERM "$daemon" 2>/dev/null || true
                wait "$daemon" || { echo "the daemon ended with status $?" >&2; status=2; }
        fi
        rm -rf "$top"
        exit "$status"
}
trap finish EXIT INT TERM
mkfifo "$top/ready"
API_PORT=0 "$brig" serve >"$top/ready" 2>"$top/daemon.log" &
daemon=$!
read -r ready <"$top/ready" || ready=
case $ready in
"ready http://"*) ;;
*)
        echo "no daemon answers, and one could not be started in ${BRIG_HOME:-its default home}:" >&2
        tail -n 5 "$top/daemon.log" >&2
        exit 2
        ;;
esac
BRIG_URL="${ready#ready }" "$brig" "$@"
