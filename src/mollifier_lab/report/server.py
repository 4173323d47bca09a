"""Serve the page from a small server on this machine. It updates itself while runs are in progress, and nothing is ever written.

>>> import tempfile
>>> server = Server(Path(tempfile.mkdtemp()), port=0)
>>> server.address.startswith("http://127.0.0.1:")
True
>>> server.server_close()
"""

from __future__ import annotations

import hashlib
import html
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path

from mollifier_lab.errors import LabError
from mollifier_lab.report.folder_contents import read_folder
from mollifier_lab.report.page import EVERY, page_html

PORT = 8765
TRIES = 20  # ports that are tried in turn
FILES = ("config.json", "wanted.json", "metrics.jsonl", "result.json", "failure.txt", "study.json")
WAITING = """<!doctype html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="2">
<meta name="color-scheme" content="light dark"><title>waiting for runs</title></head>
<body><main><h1>No run to show yet</h1><p>{}</p><p>This page reloads by itself.</p></main></body></html>"""


class Server(ThreadingHTTPServer):
    """Serve the page of a folder. The server only reads the folder, and answers only GET and HEAD requests.

    Args:
        folder: A run, or any folder with runs in it, now or later.
        host: The address to listen at; by default the local one, which no other machine can reach.
        port: The port, or the first free one after it; 0: any.

    Raises:
        LabError: If the folder does not exist, or the server cannot listen at the address.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, folder: Path, host: str = "127.0.0.1", port: int = PORT) -> None:
        if not folder.is_dir():
            raise LabError(
                f"{folder}: there is no such folder; expected the folder of a run, of a comparison, or of several"
            )
        self.folder, self.host = folder, host
        self._lock = threading.Lock()
        self._kept = ("", "")
        for each in [port] if not port else range(port, min(port + TRIES, 65_536)):
            try:
                super().__init__((host, each), _Handler)
                return
            except (OSError, OverflowError) as error:
                problem = error
        raise LabError(f"cannot listen at {host}, port {port}: {problem}; name another with --port or --host")

    @property
    def address(self) -> str:
        """The address for a browser."""
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}/"

    @property
    def private(self) -> bool:
        """Whether only this machine can reach the server."""
        return ip_address(str(self.server_address[0])).is_loopback

    def stamp(self) -> str:
        """Return the state of the runs' files, which changes whenever one of them changes."""
        facts = []
        for name in FILES:
            for path in self.folder.rglob(name):
                try:
                    found = path.stat()
                except OSError:  # removed since
                    continue
                facts.append((str(path), found.st_size, found.st_mtime_ns))
        return hashlib.sha256(json.dumps(sorted(facts)).encode(errors="replace")).hexdigest()[:16]

    def page(self) -> str:
        """Return the page for the present files. It is made again only when they have changed."""
        with self._lock:
            stamp = self.stamp()
            if self._kept[0] != stamp:
                self._kept = (stamp, self._make(stamp))
            return self._kept[1]

    def _make(self, stamp: str) -> str:
        try:
            seen = read_folder(self.folder)
        except LabError as error:
            return WAITING.format(html.escape(str(error)))
        return page_html(self.folder, seen.tasks, seen.rows, seen.notes, {}, live=stamp)


class _Handler(BaseHTTPRequestHandler):
    server: Server
    server_version, sys_version = "mollifier", ""

    def do_GET(self) -> None:
        """Answer with the page, or with the state of the files."""
        if not self._meant_for_us():
            self.send_error(403, "this server answers only requests to its own address")
        elif self.path == "/":
            self._send("text/html; charset=utf-8", self.server.page())
        elif self.path == "/state":
            self._send("application/json", json.dumps({"stamp": self.server.stamp(), "every": EVERY}))
        elif self.path == "/favicon.ico":
            self.send_error(404, "there is none; the page contains its own")
        else:
            self.send_error(404, "there is only the page, /")

    def do_HEAD(self) -> None:
        """Answer without the contents."""
        self.do_GET()

    def _meant_for_us(self) -> bool:
        """Return whether the request names this machine. A foreign web page could point a name of its own here, to read what it must not
        read.
        """
        if not self.server.private:
            return True
        name = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
        return name in ("127.0.0.1", "localhost", "[::1]", str(self.server.server_address[0]))

    def _send(self, kind: str, text: str) -> None:
        data = text.encode(errors="replace")
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: a page that asks every other second would fill the terminal."""
