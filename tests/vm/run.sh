#!/bin/bash
# Runs the sandbox's tests on Debian 12's own kernel (6.1) with pure cgroup v2, under qemu's emulation: no KVM, no network.
#
# usage: BRIG=build/brig tests/vm/run.sh       (from the top of the tree; the unit tests must be built)
# Everything is made at test time below build/vm: the packaged kernel is extracted, not installed; the guest's disk is an ext4
# image with busybox, Brig, its tests (VM_TESTS: only these) and the libraries they need. Prints the guest's results; exit status 0 if all passed.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(dirname "$(readlink -f "${BRIG:-build/brig}")")/../..
build=$(readlink -f "$build")
vm=$build/vm
here=tests/vm
limit=${VM_SECONDS:-1200}
tests=(${VM_TESTS:-cgroup seccomp confine idrange netns facilities network sandbox teardown limits image layer_image refusals helper escape blank isolation})

mkdir -p "$vm"

fetch_kernel() {
        compgen -G "$vm/kernel/boot/vmlinuz-*" >/dev/null && return
        local package
        package=$(apt-cache depends linux-image-amd64 | sed -n 's/^ *Depends: \(linux-image-6\.1\..*\)/\1/p' | head -1)
        [ -n "$package" ] || { echo "no packaged kernel 6.1 is known to apt (run apt-get update)" >&2; exit 1; }
        rm -f "$vm"/linux-image-*.deb
        (cd "$vm" && apt-get download -qq "$package")
        dpkg-deb -x "$vm"/linux-image-*.deb "$vm/kernel"
        rm -f "$vm"/linux-image-*.deb
}

# Copies a program with the libraries it needs.
add() {
        local to=$1 from=$2 as=${3:-$2} lib
        install -D -m 755 "$(readlink -f "$from")" "$to/$as"
        for lib in $(ldd "$(readlink -f "$from")" 2>/dev/null | grep -o '/[^ ]*'); do
                [ -e "$to/usr$(readlink -f "$lib" | sed 's,^/usr,,')" ] && [ -e "$to/usr${lib#/usr}" ] && continue
                install -D -m 755 "$(readlink -f "$lib")" "$to/usr${lib#/usr}"
        done
}

make_disk() {
        local root=$vm/root t
        rm -rf "$root"
        mkdir -p "$root"/{usr/bin,usr/sbin,usr/lib,usr/lib64,etc,opt,proc,sys,dev,tmp,run,var/lib/dpkg,root,mnt,home,usr/lib/brig-tests}
        ln -s usr/bin usr/sbin usr/lib usr/lib64 "$root/"
        install -m 755 /usr/bin/busybox "$root/usr/bin/busybox"
        for t in $(/usr/bin/busybox --list); do
                [ -e "$root/usr/bin/$t" ] || ln -s busybox "$root/usr/bin/$t"
        done
        # The tests speak to the real tools; busybox fills the rest.
        for t in $(dpkg -L coreutils findutils grep sed dash bash git | grep -E '^(/usr)?/bin/') /usr/bin/{python3,dpkg,dpkg-query,getent,hostname,ldd}; do
                [ -f "$t" ] || continue
                rm -f "$root/usr/bin/${t##*/}"
                add "$root" "$t" "/usr/bin/${t##*/}"
        done
        ln -sf dash "$root/usr/bin/sh"
        mkdir -p "$root/usr/lib/python3.11" "$root/usr/share/doc"
        (cd /usr/lib/python3.11 && tar -c --exclude=test --exclude=__pycache__ --exclude='config-*' --exclude=dist-packages .) |
                tar -x -C "$root/usr/lib/python3.11"
        for t in /usr/lib/python3.11/lib-dynload/{_ctypes,_socket,fcntl,termios}.*.so; do
                [ -f "$t" ] && add "$root" "$t"
        done
        mkdir -p "$root/usr/lib/git-core"      # where git looks for what it runs
        for t in git git-upload-pack; do
                ln -s ../../bin/git "$root/usr/lib/git-core/$t"
        done
        add "$root" /usr/sbin/nft /usr/sbin/nft
        add "$root" "$build/src/cmd/brig" /usr/bin/brig
        for t in "${tests[@]}"; do
                add "$root" "$build/tests/unit/sandbox_test_$t" "/usr/lib/brig-tests/test_$t"
        done
        add "$root" /usr/sbin/mke2fs /usr/sbin/mke2fs
        ln -sf mke2fs "$root/usr/sbin/mkfs.ext4"
        install -D -m 644 /etc/mke2fs.conf "$root/etc/mke2fs.conf"
        install -D -m 644 tests/unit/sandbox/escape.py "$root$(readlink -f tests/unit/sandbox/escape.py)"
        printf 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n' >"$root/etc/passwd"
        printf 'root:x:0:\nnogroup:x:65534:\n' >"$root/etc/group"
        cp /etc/os-release "$root/etc/os-release"
        dpkg-query -s base-files >"$root/var/lib/dpkg/status"
        printf '::1 localhost\n127.0.0.1 localhost\n' >"$root/etc/hosts"
        printf 'nameserver 203.0.113.53\n' >"$root/etc/resolv.conf"
        install -m 755 "$here/guest.sh" "$root/usr/bin/guest"
        rm -f "$vm/disk.img"
        mke2fs -q -t ext4 -d "$root" "$vm/disk.img" 1536M
}

# Modules of the packaged kernel that the tests need; busybox's modprobe finds what they depend on.
# crc32c_generic is first: ext4 and netfilter ask for it by name, which is no dependency that modprobe sees.
modules='crc32c_generic virtio_pci virtio_blk ext4 overlay loop veth nf_tables nft_chain_nat nft_masq nft_nat nft_ct nft_fib_inet nf_conntrack nfnetlink inet_diag'

make_initramfs() {
        local ram=$vm/initramfs release
        release=$(basename "$vm"/kernel/boot/vmlinuz-* | sed 's/^vmlinuz-//')
        rm -rf "$ram"
        mkdir -p "$ram"/{bin,proc,sys,dev,root,lib/modules}
        install -m 755 /usr/bin/busybox "$ram/bin/busybox"
        depmod -b "$vm/kernel" "$release" 2>/dev/null
        local m f
        for m in $modules; do
                for f in $(modprobe -d "$vm/kernel" -S "$release" --show-depends "$m" 2>/dev/null | sed -n 's/^insmod \([^ ]*\).*/\1/p'); do
                        install -D -m 644 "$f" "$ram/lib/modules/$release/${f##*/lib/modules/"$release"/}"
                done
        done
        depmod -b "$ram" "$release" 2>/dev/null
        sed "s/@MODULES@/$modules/" "$here/init.sh" >"$ram/init"
        chmod 755 "$ram/init"
        (cd "$ram" && find . | busybox cpio -o -H newc 2>/dev/null | gzip -1) >"$vm/initramfs.gz"
}

ninja -C "$build" src/cmd/brig "${tests[@]/#/tests/unit/sandbox_test_}" >/dev/null
fetch_kernel
make_disk
make_initramfs
start=$SECONDS
timeout "$limit" qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m 3072 -nodefaults -no-reboot -nographic -serial stdio \
        -kernel "$vm"/kernel/boot/vmlinuz-* -initrd "$vm/initramfs.gz" -append "console=ttyS0 quiet panic=-1 mitigations=off" \
        -drive "file=$vm/disk.img,format=raw,if=virtio,cache=unsafe" </dev/null | tr -d '\r' >"$vm/console.log" || true
sed -n 's/^VM: //p' "$vm/console.log"
if grep -q '^VM: all passed' "$vm/console.log"; then
        echo "test-vm: passed in $((SECONDS - start)) s"
else
        echo "test-vm: FAILED after $((SECONDS - start)) s; the guest's console is in $vm/console.log" >&2
        exit 1
fi
