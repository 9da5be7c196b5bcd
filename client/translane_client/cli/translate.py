"""`translane translate`."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path

from translane.arguments import Parser
from translane.options import DecodingOptions
from translane.results import Translation
from translane_client.cli import bulk, decoding_flags, formats
from translane_client.cli.files import flags as file_flags
from translane_client.cli.files.translated_file import translate_file
from translane_client.cli.flags import Flags, integer
from translane_client.cli.inputs import Arguments, Inputs
from translane_client.cli.notes import Notes
from translane_client.cli.printable import printable
from translane_client.cli.standard_streams import StandardStreams
from translane_client.cli.text_files import LineWriter

_OF_BATCH = (".tsv", ".tab", ".jsonl", ".ndjson")


def add_flags(parser: Parser, flags: Flags) -> None:
    """Declares the arguments of the command."""
    parser.add_argument(
        "texts", nargs="*", metavar="TEXT", help="text to translate; without one, -i or standard input is read"
    )
    flags.section("input and output")
    bulk.add_file_flags(flags, input="file to translate", output="file for the translations")
    flags.switch("--json", help="write one JSON object for each text")
    flags.switch("--stream", help="write each translation while it is being decoded, one text at a time")
    file_flags.add_flags(flags)
    flags.section("requests")
    bulk.add_request_flags(flags)
    flags.add("--priority", type=integer, default=0, metavar="N", help="texts of a higher priority go first")
    decoding_flags.add_flags(flags)
    parser.short_help = (
        *("server", "ca", "token_file", "input", "output", "json", "scores", "stream", "resume", "format", "model"),
        *("source_language", "target_language", "beam_size", "terms", "nbest"),
    )


def run(arguments: argparse.Namespace, streams: StandardStreams) -> int:
    """Translates TEXTs, or the lines of a file; returns the exit code.

    Raises:
        FileError: a file cannot be opened, or the file of terms is wrong.
        CommandError: the translation ended early.
    """
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
    file_flags.check(arguments, form)
    notes = Notes()
    try:
        if arguments.texts or arguments.stream:
            _translate_texts(arguments, options, streams, form, notes)
        else:
            translate_file(arguments, options, streams, form, notes)
    finally:
        if not arguments.json:  # JSON tells all of it
            notes.show(streams.stderr)
    return 0


def _refuse_corpora(arguments: argparse.Namespace) -> None:
    """Exits with a usage error where the input is a file of TSV or of JSON lines."""
    path: Path | None = None if arguments.texts else arguments.input
    by_name = path is not None and path.suffix.lower() in _OF_BATCH
    by_flag = not arguments.texts and arguments.file_format in ("tsv", "jsonl")
    if by_flag or (by_name and arguments.file_format is None):
        arguments.parser.error(
            "another command translates TSV and JSON lines:"
            f" translane batch {printable(str(path or 'FILE'))} -o FOLDER --model NAME --server {arguments.server}"
        )


def _translate_texts(
    arguments: argparse.Namespace,
    options: DecodingOptions,
    streams: StandardStreams,
    form: formats.TranslationFormat,
    notes: Notes,
) -> None:
    with ExitStack() as stack:
        inputs: Inputs[str]
        if arguments.texts:
            inputs = Arguments(arguments.texts, "text")
        else:
            inputs = bulk.lines_of(arguments.input, streams, stack)
        # A translation takes one line; but a TEXT typed on several lines gets its translation on several lines.
        keep_breaks = bool(arguments.texts and arguments.split_sentences is True and form.is_text_alone)
        output = bulk.line_output(arguments, streams, inputs, keep_breaks=keep_breaks)
        writer: LineWriter = output.writer
        client = stack.enter_context(bulk.client_of(arguments, inputs))
        settings = file_flags.request_settings(arguments)

        def write(index: int, translation: Translation) -> None:
            notes.add(inputs.place(index), translation.treatment)
            for line in form.lines(index, translation):
                writer.write(line)

        def stream(index: int, text: str) -> None:
            with client.translate_stream(text, **settings, **options) as deltas:
                if arguments.json:
                    for delta in deltas:
                        writer.write(formats.delta_json(index, delta))
                    writer.write(formats.stream_json(index, deltas.result))
                else:
                    writer.write_parts(deltas)
                notes.add(inputs.place(index), deltas.result.treatment)

        if arguments.stream:
            output.write_all(inputs.items(), stream)
        else:
            output.write_all(client.translate_iter(inputs.items(), **settings, **options), write)
