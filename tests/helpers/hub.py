"""A Hugging Face Hub on loopback, as far as `huggingface_hub` asks one."""

import hashlib
import json
import os
import re
from pathlib import Path

from helpers.file_server import FileServer, Handler, whole


class Hub(FileServer):
    """Serves the files of models.

    Attributes:
        asked: methods and paths of all requests, in their order.
        holds: after how many bytes a file's answer waits until the hub ends; by the name of the file.
    """

    def __init__(self, models: dict[str, Path], token: str | None = None) -> None:
        super().__init__(handler=_Handler)
        self.models = models  # the folder of each model; its only revisions are `main` and its commit
        self.token = token  # what callers must show; None if it is open
        self.holds: dict[str, int] = {}

    def environ(self, folder: Path) -> dict[str, str]:
        """The variables of a process that asks this hub, and keeps what it gets in `folder`."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TRANSLANE_", "HF_"))}
        places = {"HF_HOME": str(folder / "hub"), "XDG_CACHE_HOME": str(folder / "cache")}
        return kept | places | {"HF_ENDPOINT": self.url, "CUDA_VISIBLE_DEVICES": ""}

    def downloads(self) -> list[str]:
        """Names of the files that were asked for, with their content."""
        return [path.rpartition("/")[2] for path in self.asked if path.startswith("GET") and "/resolve/" in path]


class _Handler(Handler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:  # noqa: N802  the name that http.server calls
        path = self.path.partition("?")[0]
        self.server.asked.append(f"{self.command} {path}")
        if self.server.token and self.headers.get("Authorization") != f"Bearer {self.server.token}":
            self.answer(401, b"{}", X_Error_Code="RepoNotFound")
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/([^/]+))?(/tree/.*)?", path):
            self._describe(*found.groups())
        elif found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._send(*found.groups())
        else:
            self.answer(404, b"{}", X_Error_Code="EntryNotFound")

    do_HEAD = do_GET  # noqa: N815

    def _describe(self, name: str, revision: str | None, tree: str | None) -> None:
        folder = self.server.models.get(name)
        if folder is None:
            self.answer(404, b"{}", X_Error_Code="RepoNotFound")
        elif revision not in (None, "main", _commit(folder)):
            self.answer(404, b"{}", X_Error_Code="RevisionNotFound")
        else:
            files = sorted(path for path in folder.iterdir() if path.is_file())
            siblings = [{"rfilename": path.name} for path in files]
            entries = [{"type": "file", "path": path.name, "size": path.stat().st_size, "oid": ""} for path in files]
            info = {"_id": name, "id": name, "modelId": name, "sha": _commit(folder), "siblings": siblings, "tags": []}
            self.answer(200, json.dumps(entries if tree else info).encode(), Content_Type="application/json")

    def _send(self, name: str, _revision: str, file: str) -> None:
        path = self.server.models[name] / file
        if not path.is_file():
            self.answer(404, b"", X_Error_Code="EntryNotFound")
            return
        content = path.read_bytes()
        headers = {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X_Repo_Commit": _commit(path.parent)}
        hold = self.server.holds.get(file)
        if hold is None or self.command == "HEAD" or "Range" in self.headers:
            whole(self, content, **headers)
        else:
            self.answer(200, content[:hold], len(content), **headers)
            self.server.stopping.wait(60)
            self.wfile.write(content[hold:])


def _commit(folder: Path) -> str:
    return hashlib.sha1(str(sorted(path.name for path in folder.iterdir())).encode()).hexdigest()
