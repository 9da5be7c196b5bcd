"""`translane translate`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from translane.arguments import Parser, one_of
from translane.options import DecodingOptions, Format
from translane.results import Translation
from translane_client.cli import bulk, decoding_flags, formats
from translane_client.cli.documents import HAVE_TRANSLATIONS, LINES, MIME_TYPES, kind_of, translate_document
from translane_client.cli.flags import Flags, integer
from translane_client.cli.inputs import StandardStreams, arguments_of, lines_of, printable, text_of
from translane_client.cli.outputs import Notes

OPERANDS = "[TEXT ...]"

_OF_BATCH_BY_FLAG = ("tsv", "jsonl")
_OF_BATCH = (".tsv", ".tab", ".jsonl", ".ndjson")


def add_flags(parser: Parser, flags: Flags) -> None:
    """Declares the arguments of the command."""
    parser.description = "Translates the TEXTs, or each line of a file or of standard input, in order."
    bulk.add_call_flags(flags)
    parser.add_argument(
        "texts", nargs="*", metavar="TEXT", help="text to translate; without one, -i or standard input is read"
    )
    flags.section("input and output")
    bulk.add_file_flags(flags, input="file to translate", output="file for the translations")
    flags.switch("--json", help="write one JSON object for each text")
    flags.switch("--stream", help="write each translation while it is being decoded, one text at a time")
    flags.section("files")
    flags.add(
        "--file-format",
        type=one_of((LINES, *MIME_TYPES, *_OF_BATCH_BY_FLAG)),
        metavar="NAME",
        help=f"kind of the input: {', '.join((LINES, *MIME_TYPES))} (default: by its extension, or else lines)",
    )
    flags.switch("--all", help="replace the translations that are in .po and .xliff files already")
    flags.add(
        "--format",
        type=one_of(Format),
        metavar="NAME",
        help=f"what each text is written in: {', '.join(Format)} (default: text)",
    )
    flags.section("requests")
    bulk.add_request_flags(flags)
    flags.add("--priority", type=integer, default=0, metavar="N", help="texts of a higher priority go first")
    decoding_flags.add_flags(flags)
    parser.short_help = (
        *("server", "ca", "token_file", "input", "output", "json", "scores", "stream", "format", "model"),
        *("source_language", "target_language", "beam_size", "terms", "nbest"),
    )


def run(arguments: argparse.Namespace, streams: StandardStreams) -> int:
    """Translates TEXTs, or the lines of a file; returns the exit code."""
    options = decoding_flags.decoding_options(arguments)
    form = formats.TranslationFormat(arguments)
    if arguments.texts and "input" in arguments.given:
        arguments.parser.error("TEXT and -i exclude each other")
    if arguments.stream and not form.is_text_or_json:
        arguments.parser.error(
            "--stream writes the text of one hypothesis: it excludes n-best lines, and needs --json for tokens, scores"
            " and alignment"
        )
    _refuse_corpora(arguments)
    kind = _kind(arguments, form)
    request = bulk.request_of(arguments)
    notes = Notes()
    try:
        if kind == LINES:
            _translate_texts(arguments, options, request, streams, form, notes)
        else:
            translate_document(arguments, options, request, kind, streams, notes)
    finally:
        if not arguments.json:  # JSON tells all of it
            notes.show(streams.say, "; --json has them all" if kind == LINES else "")
    return 0


def _refuse_corpora(arguments: argparse.Namespace) -> None:
    """Exits with a usage error where the input is a file of TSV or of JSON lines."""
    path: Path | None = None if arguments.texts else arguments.input
    by_name = path is not None and path.suffix.lower() in _OF_BATCH
    by_flag = not arguments.texts and arguments.file_format in _OF_BATCH_BY_FLAG
    if by_flag or (by_name and arguments.file_format is None):
        arguments.parser.error(
            "another command translates TSV and JSON lines:"
            f" translane batch {printable(str(path or 'FILE'))} -o FOLDER --model NAME --server {arguments.server}"
        )


def _kind(arguments: argparse.Namespace, form: formats.TranslationFormat) -> str:
    """The kind of the input. Exits with a usage error where the flags do not fit each other or the kind."""
    refuse = arguments.parser.error
    if arguments.texts:
        if "file_format" in arguments.given or arguments.all:
            refuse(f"{'--all' if arguments.all else '--file-format'} is about files: TEXT excludes it")
        return LINES
    try:
        kind = arguments.file_format or kind_of(arguments.input)
    except ValueError as error:
        refuse(str(error))
    if arguments.all and kind not in HAVE_TRANSLATIONS:
        refuse(f"--all is not about files of the kind {kind}")
    if kind != LINES and not form.is_text_alone:
        refuse(
            f"a file of the kind {kind} takes the text of one hypothesis: it excludes --json, n-best lines, scores,"
            " quality, tokens and alignment"
        )
    if kind != LINES and (arguments.stream or arguments.format):
        refuse(f"--{'stream' if arguments.stream else 'format'} is about texts, and not about files of the kind {kind}")
    return kind


def _translate_texts(
    arguments: argparse.Namespace,
    options: DecodingOptions,
    request: Mapping[str, Any],
    streams: StandardStreams,
    form: formats.TranslationFormat,
    notes: Notes,
) -> None:
    with ExitStack() as stack:
        if arguments.texts:
            inputs = arguments_of(arguments.texts, "text")
        else:
            inputs = lines_of(arguments.input, streams, stack, text_of)
        # A translation takes one line; but a TEXT typed on several lines gets its translation on several lines.
        keep_breaks = bool(arguments.texts and arguments.split_sentences is True and form.is_text_alone)
        writer = bulk.line_output(arguments, streams, inputs, keep_breaks=keep_breaks)
        client = stack.enter_context(bulk.client_of(arguments, inputs))
        form_of_texts = arguments.format or Format.TEXT

        def write(index: int, translation: Translation) -> None:
            notes.add(inputs.place(index, ""), translation.treatment)
            for line in form.lines(index, translation):
                writer.write(line)

        def stream(index: int, text: str) -> None:
            with client.translate_stream(text, format=form_of_texts, **request, **options) as deltas:
                if arguments.json:
                    for delta in deltas:
                        writer.write(formats.to_json({"index": index, "delta": delta}))
                    writer.write(formats.stream_json(index, deltas.result))
                else:
                    writer.write_parts(deltas)
                notes.add(inputs.place(index, ""), deltas.result.treatment)

        output = (arguments, streams, inputs, writer)
        if arguments.stream:
            bulk.write_all(*output, inputs.items(), stream)
        else:
            translations = client.translate_iter(inputs.items(), format=form_of_texts, **request, **options)
            bulk.write_all(*output, translations, write)
