"""A real HTTP server on this machine, with good and bad manners."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server(ThreadingHTTPServer):
    """Serves ``/manner/name``: `good` bytes, a `cut` or `stalled` answer, `other` bytes, and 404 for the rest."""

    daemon_threads = True

    def __init__(self, contents: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.contents = contents
        self.asked: list[str] = []
        self.accepted: set[str | None] = set()
        self.done = threading.Event()

    def address(self, manner: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{manner}/"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        self.server.accepted.add(self.headers.get("Accept-Encoding"))
        _, manner, name = self.path.split("/", 2)
        data = self.server.contents.get(name, b"")
        if manner not in ("good", "cut", "stalled", "other") or name not in self.server.contents:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if manner == "good":
            self.wfile.write(data)
        elif manner == "other":
            self.wfile.write(data[::-1])
        else:
            self.wfile.write(data[: len(data) // 2])
            self.wfile.flush()
            if manner == "stalled":
                self.server.done.wait(20)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serve(contents: dict[str, bytes]) -> Iterator[Server]:
    with Server(contents) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            server.done.set()
            server.shutdown()
            thread.join()
