"""The Python side of a turn without a daemon: this plays the daemon's part on its sockets, and a broker's."""
import json
import os
import pathlib
import socket
import sys
import threading

SOURCES = pathlib.Path(__file__).resolve().parents[3] / "src/rlm/python"
BOOT = ("import os\ns=os.pread(3,1<<20,0).split(b'\\0',2)\nos.close(3)\n"
        "exec(compile(s[0],'<brig>','exec'),{'__name__':'brig_zygote','SOURCE_DRIVER':s[1],'CACHE':s[2]})")
ORDER = sys.byteorder
KINDS = ["ok", "syntax", "exception", "interrupted", "tool"]


class Broker:
    """Answers POST /tool_call on an abstract Unix socket: `answer(request)` gives (status, document)."""

    def __init__(self, answer):
        self.answer, self.requests, self.connections, self.secrets = answer, [], 0, set()
        self.socket = socket.socket(socket.AF_UNIX)
        self.name = f"brig-test-{os.getpid()}-{id(self)}"
        self.socket.bind("\0" + self.name)
        self.socket.listen(64)
        threading.Thread(target=self.accept, daemon=True).start()

    @property
    def address(self):
        return "unix:@" + self.name

    def accept(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        with connection, connection.makefile("rb") as lines:
            while True:
                first = lines.readline()
                if not first:
                    return
                assert first == b"POST /tool_call HTTP/1.1\r\n", first
                headers = {}
                for line in iter(lines.readline, b"\r\n"):
                    name, _, value = line.decode().partition(":")
                    headers[name.lower()] = value.strip()
                self.secrets.add(headers.get("x-broker-secret"))
                request = json.loads(lines.read(int(headers["content-length"])))
                self.requests.append(request)
                answer = self.answer(request)
                if answer is None:
                    return
                status, document, *more = answer
                body = document if isinstance(document, bytes) else json.dumps(document).encode()
                close = b"Connection: close\r\n" if "close" in more else b""
                try:
                    connection.sendall(b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s" % (status, close, len(body), body))
                except OSError:
                    return
                if close or "hang up" in more:
                    return

    def close(self):
        self.socket.close()


class Interpreter:
    def __init__(self, python="/usr/bin/python3", cache=b""):
        source = os.memfd_create("source", 0)
        os.write(source, (SOURCES / "zygote.py").read_bytes() + b"\0" + (SOURCES / "driver.py").read_bytes() + b"\0" + cache)
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.settimeout(30)
        self.pid = os.fork()
        if self.pid == 0:
            high = [os.dup2(fd, 200 + i) for i, fd in enumerate((source, theirs.fileno()))]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)
            os.closerange(5, 1024)
            os.execve(python, [python, "-I", "-S", "-c", BOOT], {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"})
        theirs.close()
        os.close(source)
        self.version = self.hear(b"R").decode()
        self.hear(b"W")
        self.cache = cache or self.hear(b"C")
        self.refs = 0

    def hear(self, kind):
        said = b"x"
        while said[:1] == b"x":        # some earlier turn has ended
            said = self.control.recv(1 << 20)
        assert said[:1] == kind, said
        return said[1:]

    def turn(self, setup=None, broker="unix:@none"):
        self.refs += 1
        control, theirs = socket.socketpair()
        out, err = os.pipe(), os.pipe()
        socket.send_fds(self.control, [b"F" + self.refs.to_bytes(8, ORDER)], [theirs.fileno(), out[1], err[1]])
        theirs.close()
        os.close(out[1])
        os.close(err[1])
        turn = Turn(control, out[0], err[0])
        assert turn.hear() == (b"H", b"")
        assert self.hear(b"f") == self.refs.to_bytes(8, ORDER) + bytes(4)
        turn.say(b"b", json.dumps({"cwd": "/tmp", "broker": broker, "secret": "s3cret", "setup": setup or {}}).encode())
        assert turn.hear() == (b"B", b"")
        return turn

    def close(self):
        self.control.close()
        os.waitpid(self.pid, 0)


class Result:
    def __init__(self, turn, payload):
        self.kind, at, parts = KINDS[payload[8]], 9, []
        for _ in range(3):
            n = int.from_bytes(payload[at:at + 4], ORDER)
            parts.append(payload[at + 4:at + 4 + n].decode())
            at += 4 + n
        assert at == len(payload)
        self.type, self.error, tool_error = parts
        self.tool_error = json.loads(tool_error) if tool_error else None
        self.out, self.err = turn.read(turn.out), turn.read(turn.err)


class Turn:
    def __init__(self, control, out, err):
        self.control, self.out, self.err, self.data, self.action = control, out, err, b"", 0
        control.settimeout(30)
        os.set_blocking(out, False)
        os.set_blocking(err, False)
        self.submitted = []

    @staticmethod
    def read(fd):
        got = b""
        try:
            while more := os.read(fd, 1 << 20):
                got += more
        except BlockingIOError:
            pass
        return got.decode()

    def say(self, kind, payload):
        self.control.sendall(len(payload).to_bytes(4, ORDER) + kind + payload)

    def hear(self):
        while len(self.data) < 5 or len(self.data) < 5 + int.from_bytes(self.data[:4], ORDER):
            more = self.control.recv(1 << 20)
            if not more:
                return None
            self.data += more
        n = 5 + int.from_bytes(self.data[:4], ORDER)
        frame, self.data = self.data[:n], self.data[n:]
        return frame[4:5], frame[5:]

    def start(self, code, variables=None):
        self.action += 1
        text = code.encode()
        self.say(b"e", self.action.to_bytes(8, ORDER) + len(text).to_bytes(4, ORDER) + text + (json.dumps(variables).encode() if variables else b""))

    def wait(self):
        while True:
            heard = self.hear()
            assert heard, "the turn has ended"
            kind, payload = heard
            if kind == b"S":
                self.submitted.append(json.loads(payload[12:]))
                self.say(b"A", payload[8:12] + b"\1")
                continue
            assert kind == b"D" and payload[:8] == self.action.to_bytes(8, ORDER), heard
            return Result(self, payload)

    def run(self, code, variables=None):
        self.start(code, variables)
        return self.wait()

    def says(self, code):
        result = self.run(code)
        assert result.kind == "ok", result.error
        return result.out

    def close(self):
        self.control.close()
        os.close(self.out)
        os.close(self.err)
