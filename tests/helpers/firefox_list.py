"""Lists of Firefox's models on loopback, as Remote Settings answers, and their files."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

RECORDS = "/v1/buckets/main/collections/translations-models/records"


class FirefoxList(ThreadingHTTPServer):
    """A server of Remote Settings.

    Attributes:
        records: of the list.
        files: their content, by the place that the records name.
        asked: the paths of all requests.
        base: where its root says that the files are.
        meeting: where requests for files wait for each other, if they do.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.records: list[dict[str, Any]] = []
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.base = f"{self.root}/cdn/"
        self.meeting: threading.Barrier | None = None

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def url(self) -> str:
        return self.root + RECORDS

    def add(self, kind: str, name: str, content: bytes, pair: str = "de-en", version: str = "1.0") -> None:
        place = f"main-workspace/translations-models/{len(self.files)}.bin"
        source, _, target = pair.partition("-")
        digest = hashlib.sha256(content).hexdigest()
        attachment = {"hash": digest, "size": len(content), "filename": name, "location": place}
        record = {"name": name, "fileType": kind, "fromLang": source, "toLang": target, "version": version}
        self.files[place] = content
        self.records.append({**record, "attachment": attachment, "last_modified": len(self.records)})

    def write(self, folder: Path) -> Path:
        """Write the list and its files as a mirror has them; return the list's path."""
        for place, content in self.files.items():
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            (folder / place).write_bytes(content)
        path = folder / "records.json"
        path.write_text(json.dumps({"data": self.records}))
        return path


class _Handler(BaseHTTPRequestHandler):
    server: FirefoxList

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        files = {f"/cdn/{place}": content for place, content in self.server.files.items()}
        files[RECORDS] = json.dumps({"data": self.server.records}).encode()
        files["/v1/"] = json.dumps({"capabilities": {"attachments": {"base_url": self.server.base}}}).encode()
        content = files.get(self.path)
        if self.server.meeting and self.path.startswith("/cdn/"):
            self.server.meeting.wait(10)
        self.send_response(404 if content is None else 200)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        self.wfile.write(content or b"")

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def serving_list() -> Iterator[FirefoxList]:
    found = FirefoxList()
    thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield found
    finally:
        found.shutdown()
        thread.join()
        found.server_close()
