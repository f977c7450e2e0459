#!/bin/sh
# Installs what Brig needs on Debian 12. The one list of packages: README, Makefile and CI all use this script.
# usage: tools/install-deps.sh [build|test|bench|vm|all]   (default: all, which is without vm)
set -eu

build="gcc libc6-dev linux-libc-dev libcmocka-dev make meson ninja-build pkg-config python3
       libuv1-dev node-llhttp libjansson-dev libsqlite3-dev libseccomp-dev libssl-dev libcurl4-openssl-dev libwslay-dev zlib1g-dev liblzma-dev libzstd-dev"
# What the daemon needs to run: git and certificates for fetches, mkfs for layers, nft and ip for the open network.
run="git ca-certificates e2fsprogs nftables iproute2 python3-pytest openssh-client"
test="nodejs cmake busybox-static python3-pytest-xdist clang libclang-rt-14-dev bubblewrap prometheus python3-pytest sqlite3 curl python3-pip python3-setuptools python3-wheel docker-registry openssl openssh-server"
bench="wrk nginx-light bubblewrap"

# make test-vm: an emulator, and what the guest's disk is made of.
vm="qemu-system-x86 seabios busybox-static kmod e2fsprogs"

case "${1:-all}" in
build) packages="$build $run" ;;
test)  packages="$build $run $test" ;;
bench) packages="$build $run $bench" ;;
vm)    packages="$build $run $test $vm" ;;
all)   packages="$build $run $test $bench" ;;
*)     echo "usage: $0 [build|test|bench|vm|all]" >&2; exit 64 ;;
esac

# Python packages that the tests drive, apart from the system's: DSPy's own RLM module runs on Brig.
python_tests="dspy==3.4.1"
python_place=/opt/brig-tests/python
install_python() {
        case "${1:-all}" in build|bench) return 0 ;; esac
        [ "$(cat "$python_place.is" 2>/dev/null || true)" = "$python_tests" ] && return 0
        [ "$(id -u)" = 0 ] || { echo "these Python packages are missing, and installing them needs root: $python_tests" >&2; exit 1; }
        echo "installing: $python_tests"
        rm -rf "$python_place" && mkdir -p "$python_place"
        # shellcheck disable=SC2086  # a list of words on purpose
        /usr/bin/python3 -m pip install -q --root-user-action=ignore --no-compile --target "$python_place" $python_tests
        echo "$python_tests" >"$python_place.is"
}

missing=""
for p in $packages; do
        dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q '^install ok installed' || missing="$missing $p"
done
[ -n "$missing" ] || { install_python "$@"; exit 0; }
[ "$(id -u)" = 0 ] || { echo "these packages are missing, and installing them needs root:$missing" >&2; exit 1; }
echo "installing:$missing"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086  # a list of words on purpose
apt-get install -y -qq --no-install-recommends $missing >/dev/null
install_python "$@"
