"""`translane translate`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from contextlib import ExitStack

from translane.arguments import Parser
from translane.errors import TranslaneError
from translane.options import DecodingOptions
from translane.results import Translation
from translane_client.cli import bulk, decoding_flags, formats
from translane_client.cli.bulk import Output
from translane_client.cli.files import flags as file_flags
from translane_client.cli.files.translated_file import translate_file
from translane_client.cli.flags import Flags, integer
from translane_client.cli.inputs import Arguments, Inputs
from translane_client.cli.notes import Notes
from translane_client.cli.standard_streams import StandardStreams
from translane_client.cli.text_files import LineWriter
from translane_client.client import Client


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
    decoding_flags.settle_nbest(arguments)
    form = formats.TranslationFormat(arguments)
    if arguments.texts and "input" in arguments.given:
        arguments.parser.error("TEXT and -i exclude each other")
    if arguments.stream and not form.is_text_or_json:
        arguments.parser.error(
            "--stream writes the text of one hypothesis: it excludes n-best lines, and needs --json for tokens, scores"
            " and alignment"
        )
    file_flags.check(arguments, form)
    options = decoding_flags.decoding_options(arguments)
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
        client = stack.enter_context(bulk.client_of(arguments, inputs))
        if arguments.stream:
            _stream(client, arguments, options, inputs, output, notes)
        else:
            _translate(client, arguments, options, inputs, output, form, notes)


def _translate(
    client: Client,
    arguments: argparse.Namespace,
    options: DecodingOptions,
    inputs: Inputs[str],
    output: Output[LineWriter],
    form: formats.TranslationFormat,
    notes: Notes,
) -> None:
    def write(index: int, translation: Translation) -> None:
        notes.add(inputs.place(index), translation.treatment)
        for line in form.lines(index, translation):
            output.writer.write(line)

    settings = file_flags.request_settings(arguments)
    output.write_all(client.translate_iter(inputs.items(), **settings, **options), write)


def _stream(
    client: Client,
    arguments: argparse.Namespace,
    options: DecodingOptions,
    inputs: Inputs[str],
    output: Output[LineWriter],
    notes: Notes,
) -> None:
    writer = output.writer

    def write(index: int, text: str) -> None:
        with client.translate_stream(text, **file_flags.request_settings(arguments), **options) as stream:
            if arguments.json:
                for delta in stream:
                    writer.write(formats.delta_json(index, delta))
                writer.write(formats.stream_json(index, stream.result))
            else:
                _write_deltas(writer, stream)
            notes.add(inputs.place(index), stream.result.treatment)

    output.write_all(inputs.items(), write)


def _write_deltas(writer: LineWriter, deltas: Iterable[str]) -> None:
    """Writes one line as it arrives. A line that breaks off is ended, and does not count."""
    try:
        for delta in deltas:
            writer.write_part(delta)
    except TranslaneError:
        if writer.begun:
            writer.end_line(whole=False)
        raise
    writer.end_line()
