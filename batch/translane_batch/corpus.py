"""The files of a corpus, in the order in which they are read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from translane_batch.records import ENDINGS, RecordFiles, files_of, kind_of
from translane_batch.settings import STANDARD_OUTPUT, BatchError, BatchSettings
from translane_server.core.files import check_regular

_LEFT_OUT = ".left-out.jsonl"
_MOST_NAME_BYTES = 255  # on the file systems of Linux and macOS


@dataclass(frozen=True)
class CorpusFile:
    """A file of the corpus, as it is when the run begins; `name` is its path within it, with / between folders."""

    name: str
    path: Path
    output: Path
    left_out: Path
    files: RecordFiles
    fingerprint: Sequence[Any]


def find_corpus(settings: BatchSettings) -> list[CorpusFile]:
    """Return the files of the corpus, by name. Names that begin with a dot or an underscore are left out."""
    corpus = settings.corpus
    readers: dict[str, RecordFiles] = {}
    found = []
    try:
        _check_folders(settings)
        for path, name in _paths(corpus):
            kind = kind_of(path, settings.kind)
            if not kind:
                known = ", ".join(ENDINGS)
                raise BatchError(f"{path}: its name ends in none of {known}, also with .gz; --kind names its kind")
            if kind not in readers:
                readers[kind] = files_of(kind, settings)
            output = settings.output / name
            left_out = output.with_name(output.name + _LEFT_OUT)
            found.append(CorpusFile(name, path, output, left_out, readers[kind], fingerprint(name, path)))
    except OSError as error:
        raise BatchError(f"{error.filename or corpus}: {error.strerror or error}") from error
    if not found:
        raise BatchError(f"{corpus}: the folder holds no files")
    _check_outputs(found)
    _check_summary(settings, found)
    return found


def fingerprint(name: str, path: Path) -> list[Any]:
    """What changes if a file of the corpus does. OSError: it is no regular file."""
    status = check_regular(path)
    return [name, status.st_size, status.st_mtime_ns]


def _check_folders(settings: BatchSettings) -> None:
    """Refuse a corpus that would be read while it is written, and one that a run would remove as its state."""
    corpus, output, work = (path.resolve() for path in (settings.corpus, settings.output, settings.work_folder))
    if corpus.is_dir() and any(each.is_relative_to(corpus) for each in (output, work)):
        raise BatchError(
            f"{settings.output}: the output and the work folder must not be within the corpus, {settings.corpus}"
        )
    for path in (corpus, output):
        if path.is_relative_to(work):
            raise BatchError(f"{path}: it must not be within the state of the run, {settings.work_folder}")


def _paths(corpus: Path) -> list[tuple[Path, str]]:
    """The paths of all files, and their names within the corpus, by name."""
    if not corpus.is_dir():
        check_regular(corpus)
        return [(corpus, corpus.name)]
    found = []
    for name, folders, files in os.walk(corpus, onerror=_raise):
        folder = Path(name)
        folders[:] = filter(_is_shown, folders)
        for each in folders:
            if (folder / each).is_symlink():
                raise BatchError(f"{folder / each}: it is a link to a folder, and would be left out; name that folder")
        found += [folder / each for each in filter(_is_shown, files)]
    return sorted(((path, path.relative_to(corpus).as_posix()) for path in found), key=lambda each: each[1])


def _raise(error: OSError) -> None:
    raise error


def _is_shown(name: str) -> bool:
    return not name.startswith((".", "_"))


def _check_outputs(corpus: Sequence[CorpusFile]) -> None:
    """Refuse a corpus where two files would be one, or where an output is a file of the corpus."""
    names = {file.name for file in corpus}
    for file in corpus:
        if file.name + _LEFT_OUT in names:
            raise BatchError(f"{file.path}: the list of what is left out of it has the name of another file")
        if len(os.fsencode(file.left_out.name)) > _MOST_NAME_BYTES:
            raise BatchError(
                f"{file.path}: its name is too long: NAME{_LEFT_OUT} has more than {_MOST_NAME_BYTES} bytes"
            )
        if file.path.resolve() in (file.output.resolve(), file.left_out.resolve()):
            raise BatchError(f"{file.path}: it would be replaced by its output; --output names another folder")


def _check_summary(settings: BatchSettings, corpus: Sequence[CorpusFile]) -> None:
    """Refuse a file for the figures that cannot be written, or whose place something else of the run has."""
    if settings.summary in (None, STANDARD_OUTPUT):
        return
    path = settings.summary.resolve()
    taken = {each.resolve() for file in corpus for each in (file.path, file.output, file.left_out)}
    folders = [settings.work_folder.resolve(), settings.corpus.resolve()]  # a corpus may be a file: its own folder
    problem = ""
    if path in taken or any(path.is_relative_to(folder) for folder in folders):
        problem = "it would replace a file of the corpus or of the run, or be among them"
    elif path.is_dir():
        problem = "it is a folder"
    elif not path.parent.is_dir() and path.parent != settings.output.resolve():  # the run makes the output folder
        problem = "its folder does not exist"
    if problem:
        raise BatchError(f"--summary: {settings.summary}: {problem}", exit_code=2)
