"""The model bundle: a folder that `translane export` writes and the server reads. Its manifest describes it.

Loading checks everything that can be checked without running the model: the schema version, every field, the sha256 of
every file, and where links lead. The message of an error is one sentence.

A file may be a link, because Hugging Face's cache keeps the files of a repository in ``blobs``, named after their
content, and the folders of its revisions in ``snapshots``, full of links. A link may lead to a file in the bundle's
folder, or, from a folder in ``snapshots``, to the ``blobs`` beside it. So a downloaded bundle gives nothing away: it
cannot have the server read any other file of the machine.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from pydantic import ValidationError

from translane_server.errors import BundleError
from translane_server.files import MOST_DESCRIPTION_BYTES, check_regular, open_regular, parse_json, read_regular
from translane_server.manifest import READABLE_VERSIONS, FileEntry, Manifest

MANIFEST = "manifest.json"

# Names of folders in Hugging Face's cache: https://huggingface.co/docs/huggingface_hub/guides/manage-cache
_SNAPSHOTS, _BLOBS = "snapshots", "blobs"


class Bundle:
    """A checked bundle: its folder and its manifest."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest

    def path(self, name: str) -> Path:
        """The path of the manifest's file `name`."""
        return self.folder / name

    def check_unchanged(self) -> None:
        """Refuse a folder that holds another version by now. A replica may be replaced long after the check.

        Raises:
            BundleError: the manifest is not the one that was checked.
        """
        if read_manifest(self.folder) != self.manifest:
            raise BundleError(f"model bundle {self.folder}: it has changed since it was checked; reload the model")


def load_bundle(folder: Path) -> Bundle:
    """Read and check the bundle in `folder`.

    Raises:
        BundleError: the bundle is missing, corrupted, tampered with, or of an unsupported schema version.
    """
    manifest = read_manifest(folder)
    for name, entry in sorted(manifest.files.items()):
        _check_file(folder, name, entry)
    return Bundle(folder, manifest)


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest in `folder`. The files that the manifest lists are not checked.

    Raises:
        BundleError: the manifest is missing, malformed, or of an unsupported schema version.
    """
    path = folder / MANIFEST
    if not folder.is_dir():
        raise BundleError(f"model bundle {folder}: there is no such folder")
    try:
        _check_link(folder, MANIFEST)
        content = read_regular(path, MOST_DESCRIPTION_BYTES)
    except FileNotFoundError:
        raise BundleError(f"model bundle {folder}: it has no {MANIFEST}; translane export writes bundles") from None
    except OSError as error:
        raise BundleError(f"model bundle {folder}: {MANIFEST} cannot be read: {error.strerror}") from None
    return parse_manifest(content, str(folder))


def parse_manifest(text: bytes, place: str) -> Manifest:
    """Read the text of a manifest. `place` is the folder or the URL of the bundle, for messages.

    Raises:
        BundleError: the manifest is malformed, or of an unsupported schema version.
    """
    try:
        content = parse_json(text)
    except ValueError as error:
        raise BundleError(f"model bundle {place}: {MANIFEST} is not JSON: {error}") from None
    version = content.get("schema_version") if isinstance(content, dict) else None
    if not isinstance(version, int) or isinstance(version, bool):
        raise BundleError(f"model bundle {place}: {MANIFEST} has no schema_version")
    if version not in READABLE_VERSIONS:
        hint = (
            "upgrade the server"
            if version > READABLE_VERSIONS[-1]
            else "export the checkpoint again with translane export"
        )
        raise BundleError(
            f"model bundle {place}: this server reads schema versions"
            f" {READABLE_VERSIONS[0]} to {READABLE_VERSIONS[-1]}, not {version}; {hint}"
        )
    try:
        return Manifest.model_validate_json(json.dumps(content), strict=True)
    except ValidationError as error:
        raise BundleError(f"model bundle {place}: {MANIFEST}: {_first_problem(error)}") from None
    except ValueError as error:  # a number of too many digits
        raise BundleError(f"model bundle {place}: {MANIFEST}: {error}") from None


def file_entry(path: Path) -> FileEntry:
    """Size and digest of the regular file at `path`. Raises OSError."""
    with open_regular(path) as file:
        digest = hashlib.file_digest(file, "sha256")
        return FileEntry(size=file.tell(), sha256=digest.hexdigest())


def _check_file(folder: Path, name: str, expected: FileEntry) -> None:
    path = folder / name
    try:
        _check_link(folder, name)
        if check_regular(path).st_size == expected.size and file_entry(path) == expected:
            return
    except FileNotFoundError:
        raise BundleError(f"model bundle {folder}: {name} is missing") from None
    except OSError as error:
        raise BundleError(f"model bundle {folder}: {name} cannot be read: {error.strerror}") from None
    raise BundleError(
        f"model bundle {folder}: {name} is not the file that was exported ({MANIFEST} lists another size or sha256)"
    )


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


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(str(part) for part in problem["loc"])
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    message = problem["msg"].removeprefix("Value error, ") + more
    return f"{where}: {message}" if where else message
