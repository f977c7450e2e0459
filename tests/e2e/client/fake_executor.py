"""An endpoint that speaks the task executor's protocol and does nothing: it counts, and misbehaves as it is told.

The reference's side of the contract where `holds` is False: it does not know ?wait=, and answers at once.
"""
import http.server
import json
import threading
import urllib.parse


class FakeExecutor:
    def __init__(self, holds=True, slots=None, refuse=None, cut=0, forgets=False, record=None):
        self.holds, self.slots, self.refuse, self.cut, self.forgets = holds, slots, refuse, cut, forgets
        self.record = record or {"status": "completed", "exit_code": 0, "resolved": True}
        self.lock = threading.Condition()
        self.tasks, self.keys, self.deleted, self.requests = {}, {}, [], []
        self.gate = threading.Event()  # results are there once it is set
        self.gate.set()
        self.answered = threading.Event()  # the first submission is answered once it is set
        self.answered.set()
        self.running = self.running_most = 0
        fake = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                fake.handle(self, None)

            do_DELETE = do_GET

            def do_POST(self):
                fake.handle(self, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self):
        self.gate.set()
        self.answered.set()
        self.server.shutdown()
        self.server.server_close()

    def handle(self, h, body):
        target = urllib.parse.urlsplit(h.path)
        with self.lock:
            self.requests.append((h.command, h.path, body, dict(h.headers)))
            cut = self.cut > 0 and h.command == "POST"
            self.cut -= cut
        if cut:  # as a connection that breaks: the request came, no answer goes
            self.accept(h, body)
            h.connection.shutdown(2)
            h.close_connection = True
            return
        if target.path == "/readyz":
            self.answer(h, 200, {"status": "ready", "slots": self.slots} if self.slots else {"status": "ready"})
        elif self.refuse:
            self.answer(h, *self.refuse)
        elif target.path == "/task/submit":
            known = len(self.tasks)
            task = self.accept(h, body)
            if not known:
                self.answered.wait(60)
            self.answer(h, 202, {"task_id": task, "status": "pending"})
        elif target.path.endswith("/result"):
            self.result(h, target)
        elif h.command == "DELETE":
            with self.lock:
                self.deleted.append(target.path.split("/")[-1])
            self.answer(h, 200, {"deleted": True})
        else:
            self.answer(h, 404, {"error": "Not found"})

    def accept(self, h, body):
        key = h.headers.get("Idempotency-Key")
        with self.lock:
            if key in self.keys:
                return self.keys[key]
            task = f"task-{len(self.tasks)}"
            self.tasks[task] = body
            if key:
                self.keys[key] = task
            self.running += 1
            self.running_most = max(self.running_most, self.running)
            return task

    def result(self, h, target):
        task = target.path.split("/")[2]
        wait = float(urllib.parse.parse_qs(target.query).get("wait", ["0"])[0]) if self.holds else 0
        if self.forgets or task not in self.tasks:
            self.answer(h, 404, {"error": "Task not found"})
        elif self.gate.wait(wait):
            with self.lock:
                self.running -= 1
            self.answer(h, 200, {"task_id": task, **self.record})
        else:
            self.answer(h, 202, {"task_id": task, "status": "running", "message": "Task not yet complete"})

    @staticmethod
    def answer(h, status, body, **headers):
        data = json.dumps(body).encode()
        h.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": len(data), **headers}.items():
            h.send_header(name, str(value))
        try:
            h.end_headers()
            h.wfile.write(data)
        except OSError:  # the client did not wait
            h.close_connection = True

    def paths(self, method="GET"):
        return [path for m, path, _, _ in self.requests if m == method and path != "/readyz"]
