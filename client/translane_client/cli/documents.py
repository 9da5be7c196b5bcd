"""Files that the server translates whole: subtitles, catalogues, XLIFF, HTML and Markdown."""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, BinaryIO

from translane.command_error import CommandError
from translane.options import DecodingOptions
from translane.progress import Progress
from translane.results import DocumentProgress, Treatment
from translane_client.cli import bulk
from translane_client.cli.inputs import FileError, StandardStreams, lines_of, text_of
from translane_client.cli.outputs import Notes

if TYPE_CHECKING:
    from translane.errors import TranslaneError

LINES = "lines"
"""The kind of a file that this command reads itself: each line is a text."""

MIME_TYPES: Mapping[str, str] = {
    "srt": "application/x-subrip",
    "vtt": "text/vtt",
    "po": "text/x-gettext-translation",
    "xliff": "application/xliff+xml",
    "html": "text/html",
    "markdown": "text/markdown",
}
"""Name of a kind, as --file-format takes it → its MIME type."""
HAVE_TRANSLATIONS = ("po", "xliff")

_EXTENSIONS = {
    **{f".{name}": name for name in MIME_TYPES},
    **{".txt": LINES, ".pot": "po", ".xlf": "xliff", ".htm": "html", ".md": "markdown"},
}
# Kinds of files whose lines are no texts. A translation of their lines is broken.
_NO_LINES = frozenset(
    f".{name}"
    for name in (
        *("arb", "ass", "csv", "docx", "epub", "gz", "ini", "json", "odt", "pdf", "pptx", "properties", "resx", "rtf"),
        *("sbv", "ssa", "strings", "tbx", "tex", "tmx", "toml", "ts", "xlsx", "xml", "yaml", "yml", "zip"),
    )
)
_MOST_BYTES = 1 << 30  # a file that is no document must not fill the memory


def kind_of(path: Path | None) -> str:
    """The kind that the file's extension says: lines, where it says nothing. ValueError: nobody reads such files."""
    extension = path.suffix.lower() if path else ""
    if extension in _NO_LINES:
        kinds = ", ".join((LINES, *MIME_TYPES))
        raise ValueError(f"{path}: {extension} is no kind of file that is read; --file-format is one of {kinds}")
    return _EXTENSIONS.get(extension, LINES)


def translate_document(
    arguments: argparse.Namespace,
    options: DecodingOptions,
    request: Mapping[str, Any],
    kind: str,
    streams: StandardStreams,
    notes: Notes,
) -> None:
    """Translates the file of -i, or standard input. The file of -o appears when it is whole, and may be that of -i."""
    from translane.errors import TranslaneError

    with ExitStack() as stack:
        lines = lines_of(arguments.input, streams, stack, text_of)
        (file,), name = lines.files, lines.name
        path = _checked(bulk.output_path(arguments, lines, may_be_input=True), streams)
        content = _read(file, name)
        client = stack.enter_context(bulk.client_of(arguments))
        stream, say = (None, None) if lines.typed else (streams.stderr, streams.say)
        shown = Progress("sentences", stream=stream, say=say)
        stack.callback(shown.close)

        def show(progress: DocumentProgress) -> None:
            shown.total = progress.texts
            shown.add(max(0, progress.texts_done - shown.count))

        try:
            most = client.server_info().limits.document_bytes
            if not most:
                raise CommandError(f"{name}: the server is of a version that translates no documents")
            if len(content) >= most:
                raise CommandError(f"{name} has {len(content)} bytes, and the server takes documents below {most}")
            replace = bool(arguments.all)
            document = client.translate_document(
                content, MIME_TYPES[kind], progress=show, replace_translations=replace, **request, **options
            )
        except TranslaneError as error:
            raise CommandError(_message(error, name, arguments)) from error
    for note in document.notes:
        treatment = Treatment(cut_sentences=note.cut_sentences, terms=(note.term,) if note.term else ())
        notes.add(f"{name}, line {note.line}", treatment)
    _write(path, document.content, streams)


def _message(error: TranslaneError, name: str, arguments: argparse.Namespace) -> str:
    def place(field: str) -> str | None:
        return name if field == "content" else None

    message = bulk.message_of(error, arguments, place)
    return message.replace(f"{name}: line ", f"{name}, line ")


def _read(file: BinaryIO, name: str) -> bytes:
    try:
        content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise FileError(f"{name}: {error.strerror or error}") from error
    if len(content) > _MOST_BYTES:
        raise FileError(f"{name}: longer than {_MOST_BYTES} bytes")
    return content


def _checked(path: Path | None, streams: StandardStreams) -> Path | None:
    """The file of -o, or None. FileError: nothing can be written there, which is told before the translation."""
    if path is None:
        if streams.stdout is None:
            raise FileError("standard output is closed")
        return None
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise FileError(f"{path}: it is a folder")
    if not (_is_special(target) or os.access(target.parent, os.W_OK | os.X_OK)):
        raise FileError(f"{path}: no file can be written in its folder")
    return path


def _is_special(target: Path) -> bool:
    """Whether it is a pipe or a device, which is written, and not replaced."""
    return target.exists() and not target.is_file()


def _write(path: Path | None, content: bytes, streams: StandardStreams) -> None:
    """Writes the document: a new file beside the one of -o takes its place when it is whole."""
    try:
        if path is None:
            assert streams.stdout is not None
            streams.stdout.write(content)
            streams.stdout.flush()
            return
        target = Path(os.path.realpath(path))
        if _is_special(target):
            target.write_bytes(content)
            return
        part = target.with_name(f".{token_hex(8)}.part")  # nobody else's file, and no other command's
        try:
            with part.open("xb") as file:
                if target.exists():
                    shutil.copymode(target, part)
                file.write(content)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise FileError(f"{path or 'standard output'}: {error.strerror or error}") from error
