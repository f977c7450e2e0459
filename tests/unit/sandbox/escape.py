"""Runs inside a sandbox as its root and tries to get out. Prints a line for each attempt that worked, then the number of attempts.

usage: escape.py MARK PORT ABSTRACT PROFILE
MARK: a file of the host's /tmp; PORT: where the host listens on loopback; ABSTRACT: an abstract socket of the host's.
"""
import ctypes
import fcntl
import glob
import os
import pty
import socket
import stat
import struct
import subprocess
import sys
import termios

mark, port, abstract, profile = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
libc = ctypes.CDLL(None, use_errno=True)
attempts = 0


def attempt(name, f):
    """f returns something true if it got what it should not."""
    global attempts
    attempts += 1
    try:
        got = f()
    except (OSError, subprocess.SubprocessError):
        return
    if got:
        print(f"ESCAPED {name}: {got!r}")


def syscall(number, *args):
    return libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args]) >= 0


def can_write(path):
    fd = os.open(path, os.O_WRONLY)
    os.close(fd)
    return path


def read(path, n=4096):
    with open(path, "rb") as f:
        return f.read(n)


# ---- the kernel's files
for path in ["/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/vm/overcommit_memory", "/proc/sys/fs/binfmt_misc/register",
             "/proc/sys/net/ipv4/ip_forward", "/proc/sys/user/max_user_namespaces", "/proc/sys/kernel/hostname", "/proc/irq/default_smp_affinity",
             "/sys/kernel/uevent_helper", "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/power/state", "/sys/fs/cgroup/cgroup.procs",
             "/sys/kernel/security/landlock", "/sys/class/net/lo/mtu"]:
    attempt("write " + path, lambda: can_write(path))
attempt("sysrq", lambda: os.path.exists("/proc/sysrq-trigger") and os.write(os.open("/proc/sysrq-trigger", os.O_WRONLY), b"?") and
        not stat.S_ISREG(os.stat("/proc/sysrq-trigger").st_mode))
for path in ["/proc/kcore", "/proc/kmsg", "/proc/keys", "/proc/timer_list", "/proc/sched_debug", "/proc/1/environ", "/dev/mem", "/dev/kmsg", "/dev/sda", "/dev/vda",
             "/dev/loop-control", "/dev/fuse", "/dev/kvm", "/dev/net/tun", "/etc/shadow"]:
    attempt("read " + path, lambda: read(path))
attempt("devices", lambda: set(os.listdir("/dev")) - set("null zero full random urandom tty fd stdin stdout stderr ptmx pts shm mqueue core console".split()))

# ---- system calls: x86-64 numbers
buf = ctypes.create_string_buffer(4096)
for name, number, *args in [("mount", 165, b"none", b"/mnt", b"tmpfs", 0, None), ("umount", 166, b"/proc", 2), ("pivot_root", 155, b"/", b"/"),
                            ("unshare user", 272, 0x10000000), ("unshare mounts", 272, 0x20000), ("unshare net", 272, 0x40000000),
                            ("clone user", 56, 0x10000000 | 17, 0), ("clone3", 435, buf, 88), ("fsopen", 430, b"tmpfs", 0), ("open_tree", 428, -100, b"/", 1),
                            ("init_module", 175, buf, 10, b""), ("delete_module", 176, b"loop", 0), ("kexec", 246, 0, 0, buf, 0), ("bpf", 321, 0, buf, 64),
                            ("perf", 298, buf, 0, -1, -1, 0), ("userfaultfd", 323, 0), ("io_uring", 425, 8, buf), ("keyctl", 250, 0, -3, 1), ("add_key", 248, b"user", b"x", b"y", 1, -3),
                            ("reboot", 169, 0xfee1dead, 672274793, 0), ("swapon", 167, b"/tmp/x", 0), ("settimeofday", 164, buf, None), ("clock_settime", 227, 0, buf),
                            ("acct", 163, b"/tmp/x"), ("quotactl", 179, 0, b"/", 0, buf), ("iopl", 172, 3), ("ioperm", 173, 0, 8, 1), ("sethostname", 170, b"x", 1),
                            ("syslog", 103, 3, buf, 4096), ("open_by_handle_at", 304, -100, buf, 0), ("personality", 135, 0x0400000),
                            ("fanotify_init", 300, 0, 0), ("move_pages", 279, 1, 0, buf, buf, buf, 0), ("vhangup", 153)]:
    attempt("call " + name, lambda: syscall(number, *args))
attempt("setns", lambda: any(libc.setns(os.open("/proc/1/ns/" + n, os.O_RDONLY), 0) == 0 for n in os.listdir("/proc/1/ns")))

# ---- devices, links, roots
for name, device in [("mem", (stat.S_IFCHR, 1, 1)), ("kmsg", (stat.S_IFCHR, 1, 11)), ("disk", (stat.S_IFBLK, 254, 0)), ("loop", (stat.S_IFBLK, 7, 0))]:
    def node():
        path = "/tmp/node-" + name
        os.mknod(path, device[0] | 0o666, os.makedev(device[1], device[2]))
        return os.open(path, os.O_RDONLY) >= 0
    attempt("device " + name, node)


def find_mark():
    places = ["", "/proc/1/root", "/proc/1/cwd", "/proc/self/root", "/proc/self/cwd/" + "../" * 30] + glob.glob("/proc/[0-9]*/root") + glob.glob("/proc/[0-9]*/cwd")
    return [p for p in places if os.path.exists(p + mark)]


def chroot_out():
    """The classic: keep a directory outside the new root, climb from it, make that the root."""
    pid = os.fork()
    if pid == 0:
        outside = os.open("/", os.O_RDONLY)
        os.makedirs("/tmp/jail", exist_ok=True)
        try:
            os.chroot("/tmp/jail")
            os.fchdir(outside)
            for _ in range(40):
                os.chdir("..")
            os.chroot(".")
        except OSError:
            os._exit(0)
        seen = os.path.exists(mark) or os.path.exists("/root/.bash_history") or os.path.exists("/etc/shadow")
        strange = not os.path.isdir("/usr/bin")
        os._exit(1 if seen else 2 if strange else 0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


attempt("the host's files", find_mark)
attempt("chroot", chroot_out)
attempt("descriptors", lambda: [t for t in (os.readlink(f) for f in glob.glob("/proc/self/fd/*") if os.path.lexists(f))
                                if t.startswith("/") and not t.startswith(("/proc/", "/dev/null", "/run/brig"))])
attempt("environment", lambda: set(os.environ) - {"PATH", "HOME", "LANG", "LC_CTYPE", "PWD", "SHLVL", "_", "OLDPWD"})
attempt("processes of others", lambda: len(glob.glob("/proc/[0-9]*")) > 8)
attempt("ids of the host", lambda: [line for line in read("/proc/self/uid_map").decode().splitlines() if int(line.split()[1]) < 65536])


def status(key):
    return next(line.split()[1] for line in read("/proc/self/status").decode().splitlines() if line.startswith(key + ":"))


# DAC_READ_SEARCH, NET_ADMIN, NET_RAW, SYS_MODULE, SYS_RAWIO, SYS_PTRACE, SYS_ADMIN, SYS_BOOT, SYS_RESOURCE, SYS_TIME, MKNOD, PERFMON, BPF
FORBIDDEN = [2, 12, 13, 16, 17, 19, 21, 22, 24, 25, 27, 38, 39]
attempt("capabilities", lambda: [c for c in FORBIDDEN for s in ("CapEff", "CapPrm", "CapBnd") if int(status(s), 16) >> c & 1])
attempt("no filter", lambda: status("Seccomp") != "2")
attempt("no_new_privs", lambda: profile == "score" and status("NoNewPrivs") != "1")


def setuid_binary():
    subprocess.run("cp /usr/bin/id /tmp/suid && chmod 4755 /tmp/suid", shell=True, check=True)
    out = subprocess.run(["/tmp/suid", "-u"], user=1000, group=1000, capture_output=True, text=True).stdout.strip()
    return profile == "score" and out == "0"


attempt("setuid binary", setuid_binary)
attempt("killing init", lambda: os.kill(1, 9) or not os.path.exists("/proc/1"))

# ---- network
for family, kind, protocol in [(socket.AF_PACKET, socket.SOCK_RAW, 3), (40, socket.SOCK_STREAM, 0), (38, socket.SOCK_SEQPACKET, 0), (socket.AF_INET, socket.SOCK_RAW, 1),
                               (socket.AF_NETLINK, socket.SOCK_RAW, 12)]:
    attempt(f"socket {family} {kind}", lambda: socket.socket(family, kind, protocol))


def reach(family, address):
    s = socket.socket(family, socket.SOCK_STREAM)
    s.settimeout(1)
    return s.connect(address) or address


attempt("the host's loopback", lambda: reach(socket.AF_INET, ("127.0.0.1", port)))
attempt("the host's abstract socket", lambda: reach(socket.AF_UNIX, "\0" + abstract))


def add_link():
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    s.bind((0, 0))
    body = struct.pack("BxHiII", 0, 0, 0, 0, 0)
    name = struct.pack("HH", 10, 3) + b"evil0\0\0\0"
    kind = struct.pack("HH", 9, 1) + b"dummy\0\0\0"
    info = struct.pack("HH", 4 + len(kind), 18) + kind
    payload = body + name + info
    s.send(struct.pack("IHHII", 16 + len(payload), 16, 0x605, 1, 0) + payload)
    return struct.unpack("i", s.recv(4096)[16:20])[0] == 0


attempt("a new link", add_link)


def feed_terminal():
    _, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSTI, b"x")
    return True


attempt("TIOCSTI", feed_terminal)
print(f"{attempts} attempts")
