"""`translane translate`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from contextlib import ExitStack
from typing import TypedDict

from translane_client import bulk, decoding_flags, formats
from translane_client.bulk import Output
from translane_client.client import Client
from translane_client.errors import TranslaneError
from translane_client.flags import Flags, integer
from translane_client.lines import LineWriter
from translane_client.options import DecodingOptions
from translane_client.sources import Arguments, Source
from translane_client.streams import Streams
from translane_client.types import Translation


def add_flags(parser: argparse.ArgumentParser, flags: Flags) -> None:
    """Declares the arguments of the command."""
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="a text to translate; none: read -i or standard input")
    bulk.add_flags(flags, input="file of texts, one on each line", output="file for the translations")
    flags.add("--priority", type=integer, default=0, metavar="N", help="higher ones are translated first")
    flags.add("--json", action=argparse.BooleanOptionalAction, default=False, help="write one JSON object per text")
    flags.add(
        "--stream",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="write each translation while it is being decoded, one text at a time",
    )
    decoding_flags.add_flags(flags)


def run(arguments: argparse.Namespace, streams: Streams) -> int:
    """Translates TEXTs, or the lines of a file.

    Raises:
        FileError: a file cannot be opened, or is not sound.
        CommandError: the translation ended early.
    """
    decoding_flags.settle_nbest(arguments)
    form = formats.TranslationFormat(arguments)
    if arguments.texts and "input" in arguments.given:
        arguments.parser.error("TEXT and -i exclude each other")
    if arguments.stream and not form.is_text_or_json:
        arguments.parser.error(
            "--stream writes the text of one hypothesis alone: n-best lines exclude it; add --json for tokens, scores "
            "and alignment"
        )
    options = decoding_flags.decoding_options(arguments)
    with ExitStack() as stack:
        source: Source[str]
        if arguments.texts:
            source = Arguments(arguments.texts, "text")
        else:
            source = bulk.lines_of(arguments.input, streams, stack)
        # One text on a line, whatever it holds; but what somebody typed on several lines is read on several lines.
        keep_breaks = bool(arguments.texts and arguments.split_sentences and form.is_text_alone)
        output = Output(arguments, streams, source, keep_breaks=keep_breaks)
        client = stack.enter_context(bulk.client_of(arguments, source))
        if arguments.stream:
            _stream(client, arguments, options, source, output)
        else:
            _translate(client, arguments, options, source, output, form)
    return 0


class _Settings(TypedDict):
    model: str
    source_language: str
    target_language: str
    priority: int
    timeout: float | None


def _settings(arguments: argparse.Namespace) -> _Settings:
    return _Settings(
        model=arguments.model,
        source_language=arguments.source_language,
        target_language=arguments.target_language,
        priority=arguments.priority,
        timeout=arguments.timeout,
    )


def _translate(
    client: Client,
    arguments: argparse.Namespace,
    options: DecodingOptions,
    source: Source[str],
    output: Output,
    form: formats.TranslationFormat,
) -> None:
    def write(index: int, translation: Translation) -> None:
        for line in form.lines(index, translation):
            output.writer.write(line)

    output.write_all(client.translate_iter(source.items(), **_settings(arguments), **options), write)


def _stream(
    client: Client, arguments: argparse.Namespace, options: DecodingOptions, source: Source[str], output: Output
) -> None:
    writer = output.writer

    def write(index: int, text: str) -> None:
        with client.translate_stream(text, **_settings(arguments), **options) as stream:
            if arguments.json:
                for delta in stream:
                    writer.write(formats.delta_json(index, delta))
                writer.write(formats.stream_json(index, stream.result))
            else:
                _write_deltas(writer, stream)

    output.write_all(source.items(), write)


def _write_deltas(writer: LineWriter, deltas: Iterable[str]) -> None:
    """Writes one line as it comes; one that breaks off is ended, and is no line."""
    try:
        for delta in deltas:
            writer.write_part(delta)
    except TranslaneError:
        if writer.begun:
            writer.end_line(whole=False)
        raise
    writer.end_line()
