"""The model bundle: a folder that `translane export` writes and the server reads. Its manifest describes it.

Loading checks everything that can be checked without running the model: the schema version, every field, the sha256 of
every file, and where links lead. The message of an error is one sentence.

A file may be a link, because Hugging Face's cache keeps the files of a repository in ``blobs``, named after their
content, and the folders of its revisions in ``snapshots``, full of links. A link may lead to a file in the bundle's
folder, or, from a folder in ``snapshots``, to the ``blobs`` beside it. So a downloaded bundle gives nothing away: it
cannot have the server read any other file of the machine.

What is served is what was checked, however long ago: whoever reads files of a checked bundle does so within
`Bundle.unchanged`. It knows a file again by its stamp, without reading it: its place on the disk, its size and its
times. The content of a file with another stamp is checked anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from io import BufferedReader
from operator import getitem
from pathlib import Path
from typing import Any

import msgspec

from translane_server.bundle.manifest import SCHEMA_VERSION, FileEntry, Manifest
from translane_server.core.errors import BundleError
from translane_server.core.files import (
    MOST_DESCRIPTION_BYTES,
    Stamp,
    open_regular,
    parse_json,
    read_regular,
    stamp_of,
)
from translane_server.core.terminal import printable

MANIFEST = "manifest.json"

# Names of folders in Hugging Face's cache: https://huggingface.co/docs/huggingface_hub/guides/manage-cache
_SNAPSHOTS, _BLOBS = "snapshots", "blobs"

# A file that was changed so recently may be changed again without another stamp: file systems count time in steps.
_SETTLING_TIME = 2_000_000_000  # nanoseconds

# The end of msgspec's message: the place of what is wrong, such as $.files[...].size.
_PLACE = re.compile(r" - at `\$\.((?:\w+|\[\d+\]|\[\.\.\.\]|\.)+)`\Z", re.ASCII)
_MOST_OF_A_PROBLEM = 300  # characters

_NOT_EXPORTED = f"is not the file that was exported ({MANIFEST} lists another size or sha256)"
_CHANGED = "has changed since it was checked; put it back, or bring another version and reload the model"


@dataclass(frozen=True, eq=False)
class Bundle:
    """A checked bundle: its folder, and the manifest that it had when it was checked."""

    folder: Path
    manifest: Manifest
    # the stamps of checked files, by name. A file without one is checked when it is read
    stamps: Mapping[str, Stamp] = field(default_factory=dict)
    digest: str = ""  # sha256 of the manifest's file, which has the digest of every other file

    def path(self, name: str) -> Path:
        """The path of the manifest's file `name`."""
        return self.folder / name

    @contextlib.contextmanager
    def unchanged(self, names: Collection[str]) -> Iterator[None]:
        """What is read of the files `names` within is what was checked, or there is an error.

        Raises:
            BundleError: a file is not the one that was checked, or it changes meanwhile.
        """
        stamps = {name: stamp_of(self.path(name)) for name in sorted(names)}
        for name, stamp in stamps.items():
            if stamp is None or stamp != self.stamps.get(name):
                _check_file(self.folder, name, self.manifest.files[name], _CHANGED)
        try:
            yield
        except Exception:
            self._expect(stamps)  # a file that changes is the better reason
            raise
        self._expect(stamps)

    def _expect(self, stamps: Mapping[str, Stamp | None]) -> None:
        for name, stamp in stamps.items():
            if stamp_of(self.path(name)) != stamp:
                raise BundleError(f"model bundle {self.folder}: {name} {_CHANGED}") from None


def load_bundle(folder: Path) -> Bundle:
    """Read and check the bundle in `folder`.

    Raises BundleError if it is missing, corrupted, tampered with, or of another schema version.
    """
    content = _read_manifest(folder)
    manifest = parse_manifest(content, str(folder))
    settled_before = time.time_ns() - _SETTLING_TIME
    stamps = {name: _check_file(folder, name, entry) for name, entry in sorted(manifest.files.items())}
    settled = {name: stamp for name, stamp in stamps.items() if stamp.changed < settled_before}
    return Bundle(folder, manifest, settled, hashlib.sha256(content).hexdigest())


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest in `folder`. The files that it lists are not checked. Raises BundleError as `load_bundle`."""
    return parse_manifest(_read_manifest(folder), str(folder))


def _read_manifest(folder: Path) -> bytes:
    if not folder.is_dir():
        is_file = "it is a file; name the folder that it lies in" if folder.is_file() else "there is no such folder"
        raise BundleError(f"model bundle {folder}: {is_file}")
    try:
        _check_link(folder, MANIFEST)
        return read_regular(folder / MANIFEST, MOST_DESCRIPTION_BYTES)
    except FileNotFoundError:
        raise BundleError(f"model bundle {folder}: it has no {MANIFEST}; translane export writes bundles") from None
    except OSError as error:
        raise BundleError(f"model bundle {folder}: {MANIFEST} cannot be read: {error.strerror}") from None


def parse_manifest(text: bytes, place: str) -> Manifest:
    """Read the text of a manifest. `place` is the folder or the URL of the bundle, for messages.

    Raises BundleError if it is malformed, or of another schema version.
    """
    try:
        content = parse_json(text)
    except ValueError as error:
        raise BundleError(f"model bundle {place}: {MANIFEST} is not JSON: {error}") from None
    version = content.get("schema_version") if isinstance(content, dict) else None
    if not isinstance(version, int) or isinstance(version, bool):
        raise BundleError(f"model bundle {place}: {MANIFEST} has no schema_version")
    if version != SCHEMA_VERSION:
        raise BundleError(
            f"model bundle {place}: it is of schema version {version}, and this release reads version"
            f" {SCHEMA_VERSION}; 'translane export CHECKPOINT --output FOLDER' of this release writes it anew"
        )
    try:
        return msgspec.convert(content, Manifest)
    except msgspec.ValidationError as error:
        problem = problem_of(error)
    with contextlib.suppress(LookupError, TypeError):  # the name of a field looks like a place
        problem = _with_keys(problem, content)
    raise BundleError(f"model bundle {place}: {MANIFEST}: {problem}")


def file_entry(path: Path) -> FileEntry:
    """Size and digest of the regular file at `path`. Raises OSError."""
    with open_regular(path) as file:
        return _entry(file)


def _entry(file: BufferedReader) -> FileEntry:
    digest = hashlib.file_digest(file, "sha256")
    return FileEntry(size=file.tell(), sha256=digest.hexdigest())


def _check_file(folder: Path, name: str, expected: FileEntry, otherwise: str = _NOT_EXPORTED) -> Stamp:
    """Check the content of a file, and return the stamp that it had before. `otherwise` says what is wrong with it.

    Raises BundleError if the file is missing, is elsewhere, or is not what is expected.
    """
    try:
        _check_link(folder, name)
        with open_regular(folder / name) as file:
            status = os.fstat(file.fileno())
            if status.st_size == expected.size and _entry(file) == expected:
                return Stamp.of(status)
    except FileNotFoundError:
        raise BundleError(f"model bundle {folder}: {name} is missing") from None
    except OSError as error:
        raise BundleError(f"model bundle {folder}: {name} cannot be read: {error.strerror}") from None
    raise BundleError(f"model bundle {folder}: {name} {otherwise}")


def _check_link(folder: Path, name: str) -> None:
    """Refuse a file of the bundle that is elsewhere; see the module about links. Raises OSError and BundleError."""
    try:
        home = folder.resolve(strict=True)
        place = (home / name).resolve(strict=True)
    except RuntimeError:  # Python's word for links in a circle before 3.13
        raise BundleError(f"model bundle {folder}: {name} cannot be read: its links lead in a circle") from None
    except ValueError:
        return  # a name with a zero byte, which is reported when the file is opened
    allowed = [home, *(parent.with_name(_BLOBS) for parent in home.parents if parent.name == _SNAPSHOTS)]
    if not any(place.is_relative_to(root) for root in allowed):
        raise BundleError(
            f"model bundle {folder}: {name} is a link to {place}, outside of the bundle; put the file itself there"
        )


def problem_of(error: msgspec.ValidationError) -> str:
    """What is wrong with a part of a manifest, after the part's name."""
    message, found = str(error), _PLACE.search(str(error))
    if found:
        message = f"{found[1]}: {message[:1].lower()}{message[1 : found.start()]}"
    return printable(message.replace("`", ""), _MOST_OF_A_PROBLEM)


def _with_keys(problem: str, content: dict[str, Any]) -> str:
    """Name the keys in a problem's place, which has "[...]" for each: without the other keys, it is the same problem.

    What is left of `content` is of no use.
    """
    where: list[str] = []
    place, colon, reason = problem.partition(": ")
    for part in place.split("[...]")[:-1] if colon else ():
        where += filter(None, part.split("."))
        *before, last = where
        holder = reduce(getitem, before, content)
        whole = holder[last]
        keys = list(whole)
        while len(keys) > 1:  # of many keys, the time is that of a few manifests
            half = keys[: len(keys) // 2]
            holder[last] = {key: whole[key] for key in half}
            keys = half if _first_problem(content) == problem else keys[len(half) :]
        holder[last] = {keys[0]: whole[keys[0]]}
        where.append(keys[0])
    rest = place.rpartition("[...]")[2]
    return f"{'.'.join(map(printable, where))}{rest}{colon}{reason}" if where else problem


def _first_problem(content: dict[str, Any]) -> str:
    try:
        msgspec.convert(content, Manifest)
    except msgspec.ValidationError as error:
        return problem_of(error)
    return ""
