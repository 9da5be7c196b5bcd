"""A Hugging Face Hub on loopback, as far as `huggingface_hub` asks one."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class Hub(ThreadingHTTPServer):
    """Serves the files of models.

    Attributes:
        models: the folder of each model; its only revisions are `main` and its commit.
        token: what callers must show; None if it is open.
        asked: methods and paths of all requests, in their order.
        holds: after how many bytes a file's answer waits until the hub ends; by the name of the file.
    """

    daemon_threads = True

    def __init__(self, models: dict[str, Path], token: str | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.models = models
        self.token = token
        self.asked: list[str] = []
        self.holds: dict[str, int] = {}
        self.stopping = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def downloads(self) -> list[str]:
        """Names of the files that were asked for, with their content."""
        return [path.rpartition("/")[2] for path in self.asked if path.startswith("GET") and "/resolve/" in path]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that close their connection."""


@contextmanager
def serving_hub(models: dict[str, Path], token: str | None = None) -> Iterator[Hub]:
    hub = Hub(models, token)
    thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield hub
    finally:
        hub.stopping.set()
        hub.shutdown()
        thread.join()
        hub.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.server.asked.append(f"{self.command} {path}")
        if self.server.token and self.headers.get("Authorization") != f"Bearer {self.server.token}":
            self._answer(401, b"{}", {"X-Error-Code": "RepoNotFound"})
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/([^/]+))?(/tree/.*)?", path):
            self._describe(*found.groups())
        elif found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._send(*found.groups())
        else:
            self._answer(404, b"{}", {"X-Error-Code": "EntryNotFound"})

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def _describe(self, name: str, revision: str | None, tree: str | None) -> None:
        folder = self.server.models.get(name)
        if folder is None:
            self._answer(404, b"{}", {"X-Error-Code": "RepoNotFound"})
        elif revision not in (None, "main", _commit(folder)):
            self._answer(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        else:
            files = sorted(path for path in folder.iterdir() if path.is_file())
            siblings = [{"rfilename": path.name} for path in files]
            entries = [{"type": "file", "path": path.name, "size": path.stat().st_size, "oid": ""} for path in files]
            info = {"_id": name, "id": name, "modelId": name, "sha": _commit(folder), "siblings": siblings, "tags": []}
            self._answer(200, json.dumps(entries if tree else info).encode(), {"Content-Type": "application/json"})

    def _send(self, name: str, _revision: str, file: str) -> None:
        path = self.server.models[name] / file
        if not path.is_file():
            self._answer(404, b"", {"X-Error-Code": "EntryNotFound"})
            return
        content = path.read_bytes()
        headers = {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Repo-Commit": _commit(path.parent)}
        if asked := re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", "")):
            first = int(asked[1])
            headers["Content-Range"] = f"bytes {first}-{len(content) - 1}/{len(content)}"
            self._answer(206, content[first:], headers)
        else:
            self._answer(200, content, headers, self.server.holds.get(file))

    def _answer(self, status: int, body: bytes, headers: dict[str, str], hold: int | None = None) -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if hold is not None:
            self.wfile.write(body[:hold])
            self.wfile.flush()
            self.server.stopping.wait(60)
        self.wfile.write(body[hold or 0 :])


def _commit(folder: Path) -> str:
    return hashlib.sha1(str(sorted(path.name for path in folder.iterdir())).encode()).hexdigest()
