"""Files that the server translates whole: subtitles, catalogues, XLIFF, HTML and Markdown."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

from translane.command_error import CommandError
from translane.options import DecodingOptions
from translane.progress import Progress
from translane.results import DocumentProgress, Treatment
from translane_client.cli import bulk
from translane_client.cli.inputs import FileError, StandardStreams, lines_of, naming, text_of
from translane_client.cli.outputs import LineWriter, Notes, check_place, write_whole

LINES = "lines"  # the kind of a file that this command reads itself: each line is a text

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
    **{".txt": LINES, ".pot": "po", ".htm": "html", ".md": "markdown"},
    **dict.fromkeys((".xlf", ".sdlxliff", ".mqxliff", ".mxliff"), "xliff"),
}
# Kinds of files whose lines are no texts. A translation of their lines is broken.
_NO_LINES = frozenset(
    f".{name}"
    for name in (
        *("arb", "ass", "csv", "dfxp", "docx", "epub", "gz", "ini", "json", "odt", "pdf", "pptx", "properties", "resx"),
        *("rtf", "sbv", "ssa", "strings", "svg", "tbx", "tex", "tmx", "toml", "ts", "ttml", "xhtml", "xlsx", "xml"),
        *("yaml", "yml", "zip"),
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
        path = bulk.output_path(arguments, lines, may_be_input=True)
        if path:
            check_place(path)
        writer = None if path else LineWriter(None, streams.stdout)
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
            message = bulk.message_of(error, arguments, {"content": name}.get)
            raise CommandError(message.replace(f"{name}: line ", f"{name}, line ")) from error
    for note in document.notes:
        treatment = Treatment(cut_sentences=note.cut_sentences, terms=(note.term,) if note.term else ())
        notes.add(f"{name}, line {note.line}", treatment)
    if path:
        write_whole(path, document.content)
    elif writer:
        writer.put(document.content)


def _read(file: BinaryIO, name: str) -> bytes:
    with naming(name):
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise FileError(f"{name}: longer than {_MOST_BYTES} bytes")
    return content
