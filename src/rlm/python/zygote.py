# The interpreter of a sandbox, from which the processes of turns are forked. It runs before any untrusted code and never executes any. It is
# root inside and not dumpable, holds one descriptor of the daemon's (CONTROL), and knows no secret.
#
# Datagrams on CONTROL, numbers in the machine's order:
#   from the daemon   F ref:8 + three descriptors (socket, stdout, stderr): fork a process that serves the socket
#   to the daemon     R version    it is ready
#                     W            what turns are likely to import is imported
#                     C cache      what CACHE should have been
#                     E text       it cannot work here
#                     f ref:8 r:4  0 or -errno of a fork
#                     x ref:8 s:4  a forked process has ended; wait status
#
# Nothing is imported that is not needed: the start of the first turn waits for it. SOURCE_DRIVER is the text of driver.py, CACHE
# what an earlier zygote of the same image has made of it: the version of python that did, a NUL, and its marshalled code.

import gc
import marshal
import os
import sys

import _signal
import _socket

CONTROL = 4
FORK_SIZE = 9
QUIET_S = 0.03                 # after a request: another may follow, and somebody waits for what was forked
PRELOAD = ("site", "traceback", "linecache", "json", "threading", "random", "datetime", "functools", "collections", "contextlib",
           "ctypes")


class Zygote:
    def __init__(self, source, cache):
        self.control = _socket.socket(fileno=CONTROL)
        self.children = {}
        self.make_turn = {"__name__": "brig_driver", "__builtins__": dict(vars(__import__("builtins")))}
        version, _, code = cache.partition(b"\0")
        self.to_cache = None
        if version == sys.version.encode():
            code = marshal.loads(code)
        else:
            code = compile(source, "<brig>", "exec", dont_inherit=True)
            self.to_cache = sys.version.encode() + b"\0" + marshal.dumps(code)
        exec(code, self.make_turn)

    def say(self, kind, payload=b""):
        while True:
            try:
                self.control.send(kind + payload)
                return
            except (_socket.timeout, BlockingIOError):
                self.control.settimeout(None)
            except OSError:
                os._exit(0)

    def reap(self, *_):
        while self.children:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            ref = self.children.pop(pid, None)
            if ref is not None:
                self.say(b"x", ref + status.to_bytes(4, sys.byteorder))

    def fork(self, ref, fds):
        # The end of a child must not be seen before its number is known.
        _signal.pthread_sigmask(_signal.SIG_BLOCK, [_signal.SIGCHLD])
        try:
            pid = os.fork()
        except OSError as e:
            pid = -e.errno
        if pid == 0:
            try:
                self.become_turn(fds)
            finally:
                os._exit(70)
        if pid > 0:
            self.children[pid] = ref
        for fd in fds:
            os.close(fd)
        self.say(b"f", ref + min(pid, 0).to_bytes(4, sys.byteorder, signed=True))
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, [_signal.SIGCHLD])

    def become_turn(self, fds):
        _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, [_signal.SIGCHLD])
        self.control.close()
        os.setsid()
        self.make_turn["serve"](fds)

    def receive(self):
        try:
            data, ancillary, _, _ = self.control.recvmsg(64, _socket.CMSG_SPACE(3 * 4), _socket.MSG_CMSG_CLOEXEC)
        except ConnectionError:
            os._exit(0)
        fds = []
        for level, kind, content in ancillary:
            if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
                fds += [int.from_bytes(content[i:i + 4], sys.byteorder) for i in range(0, len(content) - 3, 4)]
        if not data:
            os._exit(0)
        if data[:1] != b"F" or len(data) != FORK_SIZE or len(fds) != 3:
            self.say(b"E", b"a request that is none")
            os._exit(1)
        self.fork(data[1:], fds)

    def serve(self):
        self.say(b"R", sys.version.split()[0].encode())
        self.control.settimeout(QUIET_S)
        for name in PRELOAD:
            try:
                while True:
                    self.receive()
            except (_socket.timeout, BlockingIOError):
                self.control.settimeout(0)
            try:
                load(name)
            except ImportError:
                pass
            try:
                self.receive()
                self.control.settimeout(QUIET_S)
            except BlockingIOError:
                pass               # nobody waits: on with it
        self.control.settimeout(None)
        gc.collect()
        gc.freeze()
        self.say(b"W")
        if self.to_cache:
            self.say(b"C", self.to_cache)
        while True:
            self.receive()


def load(name):
    module = __import__(name)
    if name == "site":
        module.main()          # python runs without, because its own start must not wait for it


def set_undumpable():
    # A change of the effective group makes it so, and needs no library.
    os.setegid(1)
    os.setegid(0)


def main(source, cache):
    if sys.version_info < (3, 9):
        _socket.socket(fileno=CONTROL).send(b"Epython 3.9 or later is needed, this is " + sys.version.split()[0].encode())
        os._exit(1)
    set_undumpable()
    gc.disable()
    zygote = Zygote(source, cache)
    _signal.signal(_signal.SIGCHLD, zygote.reap)
    _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
    zygote.serve()


main(SOURCE_DRIVER, CACHE)
