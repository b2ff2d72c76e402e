"""A webhook's receiver on this host, and alerts to send to it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from typing import Any


@dataclass
class Request:
    path: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Receiver:
    """`status`, `headers` and `answer` are what it says to the next request."""

    port: int
    status: int = 200
    answer: bytes = b"ok"
    headers: dict[str, str] = field(default_factory=dict)
    requests: Queue[Request] = field(default_factory=Queue)

    def url(self, path: str = "/services/T000/B000/s3cretpathpart") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def next(self) -> Request:
        return self.requests.get(timeout=30)


@contextmanager
def receiving() -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            here.requests.put(Request(self.path, dict(self.headers), body))
            self.send_response(here.status)
            for name, value in here.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(here.answer)))
            self.end_headers()
            self.wfile.write(here.answer)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    here = Receiver(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield here
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def an_alert(number: int = 1, **changes: Any) -> dict[str, Any]:
    return {
        "id": f"loss-gt-10@1.{number}",
        "rule": "loss-gt-10",
        "kind": "rule",
        "severity": "error",
        "state": "fired",
        "action": "pause",
        "metric": "train/loss",
        "value": 12.5,
        "threshold": 10.0,
        "message": "loss > 10",
        "step": number,
        "wall": 1_700_000_000.0 + number,
        **changes,
    }
