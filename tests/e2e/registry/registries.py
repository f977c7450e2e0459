"""Registries on loopback: the real one of its Debian package, one that is hostile, images to push, and a server of tokens."""
import base64
import contextlib
import gzip
import hashlib
import http.client
import http.server
import io
import json
import os
import pathlib
import platform
import select
import socket
import subprocess
import tarfile
import tempfile
import threading
import time
import urllib.parse

from brigd import free_port

ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
OCI = "application/vnd.oci.image."
DOCKER = "application/vnd.docker."


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def tar_layer(files):
    """{name: bytes or a tarfile.TarInfo (its `data` attribute is the content)} as an uncompressed tar."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in files.items():
            if isinstance(content, tarfile.TarInfo):
                info, content = content, getattr(content, "data", b"")
            else:
                info = tarfile.TarInfo(name)
                info.mode = 0o755 if name.startswith("bin/") else 0o644
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


class Image:
    """Blobs and a manifest. layers: uncompressed tars, bottom first."""

    def __init__(self, layers, config=None, oci=True, compress=True, architecture=ARCHITECTURE, system="linux"):
        self.diff_ids = [digest(layer) for layer in layers]
        self.blobs = [gzip.compress(layer, 1, mtime=0) if compress else layer for layer in layers]
        self.config = json.dumps({
            "architecture": architecture, "os": system, "config": config or {},
            "rootfs": {"type": "layers", "diff_ids": self.diff_ids}}).encode()
        kind = "layer.v1.tar" + ("+gzip" if compress else "") if oci else "image.rootfs.diff.tar" + (".gzip" if compress else "")
        self.media_type = OCI + "manifest.v1+json" if oci else DOCKER + "distribution.manifest.v2+json"
        self.document = {
            "schemaVersion": 2, "mediaType": self.media_type,
            "config": {"mediaType": OCI + "config.v1+json" if oci else DOCKER + "container.image.v1+json",
                       "digest": digest(self.config), "size": len(self.config)},
            "layers": [{"mediaType": (OCI if oci else DOCKER) + kind, "digest": digest(blob), "size": len(blob)} for blob in self.blobs]}

    @property
    def manifest(self):
        return json.dumps(self.document).encode()

    @property
    def digest(self):
        return digest(self.manifest)

    def everything(self):
        return {digest(blob): blob for blob in [*self.blobs, self.config]}


def index(images, oci=True):
    """images: [(architecture, Image)]."""
    media_type = OCI + "index.v1+json" if oci else DOCKER + "distribution.manifest.list.v2+json"
    return media_type, json.dumps({
        "schemaVersion": 2, "mediaType": media_type,
        "manifests": [{"mediaType": image.media_type, "digest": image.digest, "size": len(image.manifest),
                       "platform": {"architecture": architecture, "os": "linux"}} for architecture, image in images]}).encode()


class RealRegistry:
    """docker-registry on loopback, with content that push() brings. token_server: a TokenServer; basic: {name: password} hashes are made by htpasswd-less means, so tokens only."""

    def __init__(self, token_server=None):
        self.token_server = token_server

    def __enter__(self):
        self.directory = tempfile.TemporaryDirectory(prefix="brig-registry-")
        top = pathlib.Path(self.directory.name)
        self.port = free_port()
        auth = ""
        if self.token_server:
            (top / "cert.pem").write_text(self.token_server.certificate)
            auth = (f"auth:\n  token:\n    realm: {self.token_server.url}\n    service: test-registry\n    issuer: test-issuer\n"
                    f"    rootcertbundle: {top}/cert.pem\n")
        (top / "config.yml").write_text(
            f"version: 0.1\nlog:\n  level: error\n  accesslog:\n    disabled: true\nstorage:\n  filesystem:\n    rootdirectory: {top}/data\n"
            f"http:\n  addr: 127.0.0.1:{self.port}\n{auth}")
        self.log = open(top / "log", "wb")
        self.process = subprocess.Popen(["docker-registry", "serve", str(top / "config.yml")], stdout=self.log, stderr=self.log,
                                        env={"PATH": "/usr/bin:/bin", "OTEL_TRACES_EXPORTER": "none"})
        deadline = time.monotonic() + 120
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            assert self.process.poll() is None and time.monotonic() < deadline, (top / "log").read_text()[-2000:]
            select.select([], [], [], 0.02)

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.log.close()
        self.directory.cleanup()

    @property
    def host(self):
        return f"127.0.0.1:{self.port}"

    def call(self, method, path, body=b"", headers=None, scope=None):
        headers = dict(headers or {})
        if self.token_server:
            headers["Authorization"] = "Bearer " + self.token_server.token(scope)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request(method, path, body=body, headers=headers)
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        assert answer.status < 300, (method, path, answer.status, data[:500])
        return answer

    def push(self, name, image, tag="latest", indexed=None):
        """image under name:tag; indexed: (media type, text) of an index that gets the tag instead."""
        scope = f"repository:{name}:pull,push"
        for key, blob in image.everything().items():
            where = self.call("POST", f"/v2/{name}/blobs/uploads/", scope=scope).headers["Location"]
            where = urllib.parse.urlsplit(where)
            self.call("PUT", f"{where.path}?{where.query}&digest={urllib.parse.quote(key)}", blob, {"Content-Type": "application/octet-stream"}, scope)
        self.call("PUT", f"/v2/{name}/manifests/{image.digest if indexed else tag}", image.manifest, {"Content-Type": image.media_type}, scope)
        if indexed:
            self.call("PUT", f"/v2/{name}/manifests/{tag}", indexed[1], {"Content-Type": indexed[0]}, scope)
        return f"{self.host}/{name}:{tag}"


class Server:
    """A threaded HTTP server on loopback; handle(request) answers with request.answer(...). tls: (certificate file, key file)."""

    def __init__(self, tls=None):
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 30

            def do_GET(self):
                outer.seen.append((self.path, dict(self.headers)))
                outer.handle(self)

            def answer(self, status, body=b"", headers=None, length=None):
                self.send_response(status)
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body) if length is None else length))
                self.end_headers()
                with contextlib.suppress(OSError):
                    self.wfile.write(body)
                if length is not None and length != len(body):
                    self.close_connection = True

            def log_message(self, *_):
                pass

        self.seen = []
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.handle_error = lambda *_: None
        self.server.daemon_threads = True
        self.server.block_on_close = False
        self.tls = tls
        if tls:
            import ssl
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_port

    @property
    def host(self):
        return f"127.0.0.1:{self.port}"

    @property
    def url(self):
        return f"{'https' if self.tls else 'http'}://{self.host}/token"

    def __enter__(self):
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


class TokenServer(Server):
    """Gives RS256 tokens that docker-registry verifies by a certificate made with openssl."""

    def __init__(self, users=None, directory=None):
        super().__init__()
        self.users = users or {}
        self.directory = tempfile.TemporaryDirectory(prefix="brig-token-")
        self.key = os.path.join(self.directory.name, "key.pem")
        certificate = os.path.join(self.directory.name, "cert.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", self.key, "-out", certificate, "-days", "2",
                        "-subj", "/CN=test-issuer"], check=True, capture_output=True)
        self.certificate = pathlib.Path(certificate).read_text()
        self.chain = ["".join(self.certificate.split("-----")[2].split())]

    def __exit__(self, *args):
        super().__exit__(*args)
        self.directory.cleanup()

    def token(self, scope):
        kind, name, actions = scope.split(":")
        now = int(time.time())
        claims = {"iss": "test-issuer", "sub": "t", "aud": "test-registry", "exp": now + 300, "nbf": now - 10, "iat": now, "jti": str(now),
                  "access": [{"type": kind, "name": name, "actions": actions.split(",")}]}
        part = [base64.urlsafe_b64encode(json.dumps(x).encode()).rstrip(b"=") for x in ({"typ": "JWT", "alg": "RS256", "x5c": self.chain}, claims)]
        signed = subprocess.run(["openssl", "dgst", "-sha256", "-sign", self.key], input=b".".join(part), check=True, capture_output=True).stdout
        return b".".join([*part, base64.urlsafe_b64encode(signed).rstrip(b"=")]).decode()

    def handle(self, request):
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(request.path).query)
        given = request.headers.get("Authorization", "")
        if self.users:
            name, _, password = base64.b64decode(given.partition(" ")[2] or b"").decode().partition(":")
            if self.users.get(name) != password:
                request.answer(401, b'{"details":"no"}')
                return
        request.answer(200, json.dumps({"token": self.token(query["scope"][0])}).encode(), {"Content-Type": "application/json"})


class HostileRegistry(Server):
    """Serves an image; `tricks` maps a path's kind ("manifest", "config", "blob", or an exact path) to a function(request, body)
    that answers in its place. A trick with `times` set runs so often and then not."""

    def __init__(self, image, name="evil/image", tls=None):
        super().__init__(tls)
        self.image, self.name, self.tricks = image, name, {}

    @property
    def ref(self):
        return f"{self.host}/{self.name}"

    def count(self, part):
        return sum(part in path for path, _ in self.seen)

    def body(self, path):
        base = f"/v2/{self.name}/"
        if path.startswith(base + "manifests/"):
            return "manifest", self.image.manifest, self.image.media_type
        key = path[len(base + "blobs/"):]
        data = self.image.everything().get(key)
        if data is None:
            return "missing", b"", ""
        return "config" if key == digest(self.image.config) else "blob", data, "application/octet-stream"

    def handle(self, request):
        kind, data, media_type = self.body(request.path)
        trick = self.tricks.get(request.path) or self.tricks.get(kind)
        if trick:
            left = getattr(trick, "times", None)
            if left != 0:
                if left:
                    trick.times = left - 1
                trick(request, data)
                return
        if kind == "missing":
            request.answer(404, b"{}")
            return
        headers = {"Content-Type": media_type}
        start = 0
        asked = request.headers.get("Range")
        if asked:
            start = int(asked.partition("=")[2].rstrip("-"))
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        request.answer(206 if asked else 200, data[start:], headers)
