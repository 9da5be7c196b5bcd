"""Models of Firefox by their languages, such as firefox:de-en, from Mozilla's public list of them.

The list is a collection of Remote Settings: an object whose `data` has a record for each file, with its languages, its
version, and size, sha256 and place of the file. Of the versions the highest counts. The server of the list says where
the files are. A mirror, or a folder, has the list as a .json file, and the files beside it.

https://remote-settings.readthedocs.io, https://firefox-source-docs.mozilla.org/toolkit/components/translations
"""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
import threading
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote, urljoin

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from translane_server.bundle.bundle import file_entry
from translane_server.core.errors import BundleError
from translane_server.core.files import parse_json, read_regular, replaced_whole, written_whole
from translane_server.models.download import MOST_MANIFEST_BYTES, DownloadError, Link, download
from translane_server.settings.model_sources import FIREFOX_NAME, is_exposed

_FILES = ("model", "vocab", "srcvocab", "trgvocab", "lex")
_MOST_BYTES = 1 << 30  # of a file
_NUMBER = re.compile(r"\d{1,9}|[a-z]+")


class _Attachment(BaseModel):
    hash: str = Field(pattern="^[0-9a-f]{64}$")
    size: int = Field(ge=1, le=_MOST_BYTES)
    filename: str = Field(pattern=r"^[A-Za-z0-9][\w.-]{0,200}$")
    location: str = Field(pattern=r"^\w[\w-]*(/?\.?[\w-]+)*$", max_length=1_000)  # leads to no parent


class _Record(BaseModel):
    """A file of a model."""

    file_type: str = Field(alias="fileType")
    source: str = Field(alias="fromLang")
    target: str = Field(alias="toLang")
    version: str = Field(max_length=100)
    last_modified: int = 0
    attachment: _Attachment


class FirefoxModel:
    """A model of the list, as `look_up` finds it.

    Attributes:
        source, target: its languages.
        version: of Mozilla's.
        state: changes with its files.
    """

    def __init__(self, records: list[_Record], open_file: Callable[[str, int | None, BinaryIO], None]) -> None:
        first = records[0]
        self.source, self.target, self.version = first.source, first.target, first.version
        self._files = [record.attachment for record in records]
        self._open = open_file
        self.state = " ".join(sorted(file.hash for file in self._files))

    def folder(self, cache: Path) -> Path:
        """Return the folder of the files within `cache`. Those that are not there yet are fetched.

        Raises:
            BundleError: a file cannot be fetched, or is not the one that the list says.
        """
        name = f"{self.source}-{self.target}-{hashlib.sha256(self.state.encode()).hexdigest()[:16]}"
        folder = cache / name
        folder.mkdir(parents=True, exist_ok=True)
        for file in self._files:
            path = folder / file.filename
            if path.is_file() and file_entry(path).sha256 == file.hash:
                continue
            print(f"translane: downloading {file.filename}, {file.size / 1e6:.1f} MB", file=sys.stderr)
            try:
                with replaced_whole(path) as new:
                    with new.open("w+b") as opened:
                        self._open(file.location, file.size, opened)
                    digest = file_entry(new).sha256
                    if digest != file.hash:
                        raise BundleError(
                            f"firefox:{self.source}-{self.target}: {file.filename} is not the file of the list: its"
                            f" sha256 there is {digest}, and the list has {file.hash}"
                        )
            except (DownloadError, OSError) as error:
                problem = error.strerror if isinstance(error, OSError) else error
                raise BundleError(f"firefox:{self.source}-{self.target}: {file.filename}: {problem}") from None
        return folder


def look_up(name: str, address: str, cache: Path) -> FirefoxModel:
    """Return the model firefox:SOURCE-TARGET of the list at an address. The list stays in `cache` for times without it.

    Raises:
        BundleError: the list cannot be read, or has no such model.
    """
    kept = cache / f"list-{hashlib.sha256(address.encode()).hexdigest()[:16]}.json"
    try:
        content, open_file = _list_in(Path(address)) if "://" not in address else _list_at(address)
    except (DownloadError, OSError) as error:
        problem = error.strerror if isinstance(error, OSError) else error
        if not kept.is_file():
            raise BundleError(f"{name}: the list of Firefox's models cannot be read: {problem}") from None
        print(f"translane: the list of Firefox's models cannot be read: {problem}; the last one holds", file=sys.stderr)
        content, open_file = read_regular(kept, MOST_MANIFEST_BYTES), _refuse
    records = _records(content, name)
    try:
        cache.mkdir(parents=True, exist_ok=True)
        if not kept.is_file() or read_regular(kept) != content:
            with written_whole(kept) as new:
                new.write(content)
    except OSError as error:
        print(f"translane: the list of Firefox's models is not kept in {cache}: {error.strerror}", file=sys.stderr)
    return FirefoxModel(_newest(records, name), open_file)


def _refuse(_location: str, _size: int | None, _file: BinaryIO) -> None:
    """Nothing can be fetched while the list does not answer."""
    raise DownloadError("it is not there yet, and the list of Firefox's models does not answer")


def _records(content: bytes, name: str) -> list[_Record]:
    try:
        data = parse_json(content)["data"]
        known = [each for each in data if isinstance(each, dict) and each.get("fileType") in _FILES]
        return TypeAdapter(list[_Record]).validate_python(known)
    except (ValidationError, ValueError, KeyError, TypeError) as error:
        raise BundleError(f"{name}: the list of Firefox's models is none ({type(error).__name__})") from None


def _newest(records: list[_Record], name: str) -> list[_Record]:
    """The records of the highest version of a model, one for each kind of file."""
    named = FIREFOX_NAME.fullmatch(name)
    assert named
    versions: dict[str, dict[str, _Record]] = {}
    for record in sorted(records, key=lambda each: each.last_modified):
        if [record.source.lower(), record.target.lower()] == [named[1].lower(), named[2].lower()]:
            versions.setdefault(record.version, {})[record.file_type] = record
    whole = [
        version
        for version, files in versions.items()
        if "model" in files and ("vocab" in files or {"srcvocab", "trgvocab"} <= files.keys())
    ]
    if not whole:
        pairs = {f"{each.source}-{each.target}" for each in records if each.file_type == "model"}
        raise BundleError(f"{name}: the list of Firefox's models has no such one among its {len(pairs)} pairs")
    return list(versions[max(whole, key=_order)].values())


def _order(version: str) -> tuple[tuple[int, ...], bool]:
    """What versions are compared by: 1.10 comes after 1.9, and 2.0a1 before 2.0."""
    parts = _NUMBER.findall(version)
    numbers = [int(part) for part in parts if part.isdigit()]
    return tuple(numbers[: 2 if len(parts) > len(numbers) else None]), len(parts) == len(numbers)


def _list_in(folder: Path) -> tuple[bytes, Callable[[str, int | None, BinaryIO], None]]:
    path = folder / "records.json" if folder.is_dir() else folder

    def open_file(location: str, _size: int | None, file: BinaryIO) -> None:
        with (path.parent / location).open("rb") as found:
            shutil.copyfileobj(found, file)

    return read_regular(path, MOST_MANIFEST_BYTES), open_file


def _list_at(address: str) -> tuple[bytes, Callable[[str, int | None, BinaryIO], None]]:
    def fetch(url: str, size: int | None, file: BinaryIO, *, is_pinned: bool) -> None:
        if not is_pinned and is_exposed(url):
            raise DownloadError("it is at http:// of another machine, where others can change it; take https://")
        download("Firefox's models", lambda: Link(url, {}, is_pinned), file, size, threading.Event())

    def read(url: str) -> bytes:
        fetch(url, None, content := BytesIO(), is_pinned=False)
        return content.getvalue()

    found = read(address)
    base = address
    if not address.endswith(".json"):
        root = re.match(r"https?://[^/]+/v\d+/", address)
        try:
            base = parse_json(read(root[0] if root else address))["capabilities"]["attachments"]["base_url"]
        except (ValueError, KeyError, TypeError):
            raise DownloadError("its server does not say where the files are") from None
        if not re.match("https?://", str(base)):
            raise DownloadError("its server does not say where the files are")
    return found, lambda location, size, file: fetch(urljoin(base, quote(location)), size, file, is_pinned=True)
