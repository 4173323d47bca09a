"""The page from a small server of this machine's own: it brings itself up to date while runs go on, and nothing is ever written.

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
from mollifier_lab.report.looking import look
from mollifier_lab.report.page import EVERY, page_html

PORT = 8765
TRIES = 20  # ports that are tried in turn
FILES = ("config.json", "wanted.json", "metrics.jsonl", "result.json", "failure.txt", "study.json")
WAITING = """<!doctype html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="2">
<meta name="color-scheme" content="light dark"><title>waiting for runs</title></head>
<body><main><h1>No run to show yet</h1><p>{}</p><p>This page looks again by itself.</p></main></body></html>"""


class Server(ThreadingHTTPServer):
    """Serves the page of a folder. It only reads: the folder, and GET and HEAD requests.

    Args:
        folder: A run, or any folder with runs in it, now or later.
        host: The address to listen at; the machine's own by default, which no other machine reaches.
        port: The port, or the first free one after it; 0: any.

    Raises:
        LabError: If the folder is not there, or the address can not be listened at.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, folder: Path, host: str = "127.0.0.1", port: int = PORT) -> None:
        if not folder.is_dir():
            raise LabError(f"{folder}: there is no such folder; expected one of a run, of a comparison, or of many")
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
        """Where a browser finds it."""
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}/"

    @property
    def private(self) -> bool:
        """Whether only this machine can reach the server."""
        return ip_address(str(self.server_address[0])).is_loopback

    def stamp(self) -> str:
        """What the files of the runs are like now; another whenever one of them has changed."""
        facts = []
        for name in FILES:
            for path in self.folder.rglob(name):
                try:
                    found = path.stat()
                except OSError:  # gone since
                    continue
                facts.append((str(path), found.st_size, found.st_mtime_ns))
        return hashlib.sha256(json.dumps(sorted(facts)).encode(errors="replace")).hexdigest()[:16]

    def page(self) -> str:
        """The page of the files as they are; made again only when they have changed."""
        with self._lock:
            stamp = self.stamp()
            if self._kept[0] != stamp:
                self._kept = (stamp, self._make(stamp))
            return self._kept[1]

    def _make(self, stamp: str) -> str:
        try:
            seen = look(self.folder)
        except LabError as error:
            return WAITING.format(html.escape(str(error)))
        return page_html(self.folder, seen.tasks, seen.rows, seen.notes, {}, live=stamp)


class _Handler(BaseHTTPRequestHandler):
    server: Server
    server_version, sys_version = "mollifier", ""

    def do_GET(self) -> None:
        """Answer with the page, or with what the files are like."""
        if not self._meant_for_us():
            self.send_error(403, "this server answers to its own address alone")
        elif self.path == "/":
            self._send("text/html; charset=utf-8", self.server.page())
        elif self.path == "/state":
            self._send("application/json", json.dumps({"stamp": self.server.stamp(), "every": EVERY}))
        elif self.path == "/favicon.ico":
            self.send_error(404, "there is none; the page has its own")
        else:
            self.send_error(404, "there is the page, /, and nothing else")

    def do_HEAD(self) -> None:
        """Answer without the contents."""
        self.do_GET()

    def _meant_for_us(self) -> bool:
        """Whether the request names this machine: a page of somebody else's may point a name of its own here, to read what it may not."""
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
        """Say nothing: a page that asks every other second would fill the terminal."""
