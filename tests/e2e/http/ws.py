"""A WebSocket client of a few lines: what is sent is exactly what stands in the test."""
import base64
import hashlib
import os
import struct

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


class WebSocket:
    """Over a `Peer` that has just connected."""

    def __init__(self, peer, path, *headers):
        key = base64.b64encode(os.urandom(16))
        self.peer = peer
        lines = [f"GET {path} HTTP/1.1", "Host: localhost", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
                 f"Sec-WebSocket-Key: {key.decode()}", *headers, "", ""]
        self.answer = peer.send("\r\n".join(lines)).answer()
        if self.answer.status == 101:
            assert self.answer.headers["sec-websocket-accept"] == base64.b64encode(hashlib.sha1(key + GUID).digest()).decode()

    def send(self, opcode, data, fin=True):
        data = data.encode() if isinstance(data, str) else data
        key = os.urandom(4)
        n = len(data)
        length = bytes([0x80 | n]) if n < 126 else b"\xfe" + struct.pack(">H", n) if n < 65536 else b"\xff" + struct.pack(">Q", n)
        pad = (key * (n // 4 + 1))[:n]
        masked = (int.from_bytes(data, "big") ^ int.from_bytes(pad, "big")).to_bytes(n, "big")
        self.peer.send(bytes([opcode | (0x80 if fin else 0)]) + length + key + masked)
        return self

    def receive(self):
        """(opcode, payload) of the next frame; the server never fragments."""
        first, n = self.peer.exactly(2)
        assert first & 0x80 and not n & 0x80
        if n == 126:
            n = struct.unpack(">H", self.peer.exactly(2))[0]
        elif n == 127:
            n = struct.unpack(">Q", self.peer.exactly(8))[0]
        return first & 15, self.peer.exactly(n)

    def receive_close(self):
        """(code, reason) of the close frame that must come now."""
        opcode, payload = self.receive()
        assert opcode == CLOSE
        return (struct.unpack(">H", payload[:2])[0], payload[2:].decode()) if payload else (1005, "")

    def close(self, code=1000, reason=""):
        self.send(CLOSE, struct.pack(">H", code) + reason.encode())
        return self.receive_close()
