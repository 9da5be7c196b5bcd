"""Lists of Firefox's models on loopback, as Remote Settings answers, and their files."""

import hashlib
import json
import threading
from pathlib import Path
from typing import Any

from helpers.file_server import FileServer, Handler

RECORDS = "/v1/buckets/main/collections/translations-models/records"


class FirefoxList(FileServer):
    """A server of Remote Settings. Its files lie at the places that the records name."""

    def __init__(self) -> None:
        super().__init__(handler=_Handler)
        self.records: list[dict[str, Any]] = []  # of the list
        self.base = f"{super().url}/cdn/"  # where its root says that the files are
        self.meeting: threading.Barrier | None = None  # where requests for files wait for each other, if they do

    @property
    def url(self) -> str:
        return super().url + RECORDS

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


class _Handler(Handler):
    server: FirefoxList

    def do_GET(self) -> None:  # noqa: N802  the name that http.server calls
        self.server.asked.append(self.path)
        files = {f"/cdn/{place}": content for place, content in self.server.files.items()}
        files[RECORDS] = json.dumps({"data": self.server.records}).encode()
        files["/v1/"] = json.dumps({"capabilities": {"attachments": {"base_url": self.server.base}}}).encode()
        if self.server.meeting and self.path.startswith("/cdn/"):
            self.server.meeting.wait(10)
        self.answer(200 if self.path in files else 404, files.get(self.path, b""))
