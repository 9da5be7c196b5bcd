"""Finds models in folders, and the versions of a model.

The folder of a model is one of these:

- a bundle: it has a manifest;
- a folder of bundles, each in a folder named after its precision (see `bundle.devices`);
- a folder of versions, each a bundle or a folder of precisions. The highest version comes first. Names of versions are
  compared piece by piece: numbers by value, everything else by its characters. So 10 is above 9, and 1.10 above 1.9.

Folders whose names start with a dot are never versions or models, so that a copy can be prepared beside them.
"""

from __future__ import annotations

import hashlib
import logging
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from translane_server.bundle.bundle import MANIFEST, read_manifest
from translane_server.bundle.devices import PRECISIONS
from translane_server.core.errors import BundleError, SettingsError
from translane_server.settings.model_sources import ModelPlace, is_model_name

_MOST_MODELS = 256  # each has some dozens of series in the metrics
_SHOWN = 8

_log = logging.getLogger(__name__)


def find_models(places: Sequence[ModelPlace], library: Path | None = None) -> dict[str, Path]:
    """Return the folder of each model, by the models' names.

    A place without a name has the name of its manifest. In the `library`, each model is in a folder of its name.

    Raises:
        SettingsError: there is no model, there are too many models, two models have the same name, or one is named
            twice.
        BundleError: a manifest that should name a model cannot be read, a name is not one of a model, or what may be a
            model in the library cannot be read.
    """
    found: dict[str, Path] = {}
    for place in named(places):
        if place.name in found and found[place.name].resolve() == place.folder.resolve():
            raise SettingsError(f"the model {place.name} is named twice: {place.folder}")
        _add(found, place.name, place.folder)
    for name, folder in _in_library(library) if library else ():
        _add(found, name, folder)
    if not found:
        raise SettingsError(f"--models {library}: there is no model bundle in this folder")
    if len(found) > _MOST_MODELS:
        raise SettingsError(f"there are {len(found)} models, and a server takes {_MOST_MODELS} at most")
    return found


def _add(found: dict[str, Path], name: str, folder: Path) -> None:
    if name in found and found[name].resolve() != folder.resolve():
        raise SettingsError(f"two models have the name {name}: {found[name]} and {folder}")
    found[name] = folder


def versions(folder: Path) -> list[Path]:
    """Return the versions of the model in `folder`, highest first. A folder without versions is its only version."""
    try:
        found = _versions(folder)
    except BundleError:  # the reader of the manifest says what is wrong with the folder
        found = []
    return sorted(found, key=lambda entry: (_pieces(entry.name), entry.name), reverse=True) or [folder]


def _versions(folder: Path) -> list[Path]:
    """The versions in `folder`; none if it has none. Raises BundleError if only what cannot be read may be one."""
    if _bundles(folder):
        return [folder]
    try:
        entries = _folders(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise BundleError(f"model bundle {folder}: it cannot be read: {error.strerror}") from None
    found, problems = [], []
    for entry in entries:
        try:
            if _bundles(entry):
                found.append(entry)
        except BundleError as error:
            problems.append(error)
    if problems and not found:
        raise problems[0]
    return found


def manifest_names(version: Path) -> list[str]:
    """Return the names in the manifests of a version: usually one, even if there is a bundle for each precision.

    Raises BundleError if a manifest is missing or malformed.
    """
    return list(dict.fromkeys(read_manifest(bundle).name for bundle in _bundles(version) or [version]))


def fingerprint(version: Path) -> str:
    """Return a digest of the version's place and manifests.

    A manifest lists the digests of all other files, so two versions differ if their fingerprints do.

    Raises:
        BundleError: a manifest cannot be read.
    """
    digest = hashlib.sha256(str(version).encode())
    for bundle in _bundles(version):
        try:
            with (bundle / MANIFEST).open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            raise BundleError(f"model bundle {bundle}: {MANIFEST} cannot be read: {error.strerror}") from None
    return digest.hexdigest()


def pinned(folder: Path) -> Path:
    """Return `folder` without symbolic links, so that it stays the same folder if a link is changed.

    A path without links is returned as it is.
    """
    real = folder.resolve()
    return folder if folder.absolute() == real else real


def named(places: Sequence[ModelPlace]) -> list[ModelPlace]:
    """Return places with the names of their manifests, where they have none. Raises BundleError as `find_models`."""
    found = [place if place.name else ModelPlace(place.folder, _name_of(place.folder)) for place in places]
    for place in found:
        if not is_model_name(place.name):
            raise BundleError(f"model bundle {place.folder}: {place.name:.40}… is too long for the name of a model")
    return found


def _name_of(folder: Path) -> str:
    """The name in the manifest of the highest version that has a readable one."""
    problems = []
    for version in versions(folder):
        try:
            return manifest_names(version)[0]
        except BundleError as error:
            problems.append(error)
    raise problems[0]


def _in_library(library: Path) -> Iterator[tuple[str, Path]]:
    try:
        folders = _folders(library)
    except OSError as error:
        raise SettingsError(f"--models {library}: the folder cannot be read: {error.strerror}") from None
    if has_manifest(library):
        raise SettingsError(f"--models {library}: this folder is a model bundle itself; name it without --models")
    names = [folder.name for folder in folders]
    if _bundles(library) and set(names) <= set(PRECISIONS):
        raise SettingsError(
            f"--models {library}: its folders ({', '.join(sorted(names))}) are named after precisions, as those of one"
            " model are; name it without --models"
        )
    without = []
    for folder in sorted(folders):
        try:
            found = _versions(folder)
        except BundleError:
            if is_model_name(folder.name):  # to leave it out would remove a model that is served
                raise
            found = []
        if not found:
            without.append(folder.name)
        elif not is_model_name(folder.name):
            raise BundleError(f"model bundle {folder}: the name of a model has letters, digits and . _ - (100 at most)")
        else:
            yield folder.name, folder
    if without:
        _log.warning("%s: no model bundle in %s", library, ", ".join(without[:_SHOWN]))


def _folders(folder: Path) -> list[Path]:
    """The folders in `folder`, without hidden ones. Raises OSError."""
    return [entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith(".")]


def _bundles(version: Path) -> list[Path]:
    """The bundles of a version: the folder itself, or its folders of precisions; none if it is no version.

    Raises BundleError if that cannot be read.
    """
    if has_manifest(version):
        return [version]
    return [folder for folder in (version / each for each in PRECISIONS) if has_manifest(folder)]


def has_manifest(folder: Path) -> bool:
    """Whether a bundle is in `folder`. Raises BundleError if that cannot be told."""
    try:
        return stat.S_ISREG((folder / MANIFEST).stat().st_mode)
    except (FileNotFoundError, NotADirectoryError, ValueError):  # no file has a name with a zero byte
        return False
    except OSError as error:
        raise BundleError(f"model bundle {folder}: it cannot be read: {error.strerror}") from None


def _pieces(name: str) -> list[tuple[int, int, str]]:
    """The pieces of a version's name, for comparison. Numbers are above other pieces."""
    return [
        (1, int(piece), "") if piece.isascii() and piece.isdigit() else (0, 0, piece)
        for piece in re.findall("[0-9]+|[^0-9]+", name)
    ]
