"""Translates one file: reads its parts, has their texts translated, writes the parts, and keeps a journal."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from translane.options import DecodingOptions
from translane.results import Translation
from translane_client.cli import bulk
from translane_client.cli.bulk import Output
from translane_client.cli.decoding_flags import FLAGS
from translane_client.cli.files.flags import kind_name, request_settings, settings_of
from translane_client.cli.files.journal import Journal
from translane_client.cli.files.kinds import KINDS
from translane_client.cli.files.part import Part
from translane_client.cli.files.part_writer import PartWriter
from translane_client.cli.files.parts import Parts
from translane_client.cli.formats import TranslationFormat
from translane_client.cli.inputs import is_same, is_terminal
from translane_client.cli.notes import Notes
from translane_client.cli.printable import printable
from translane_client.cli.standard_streams import StandardStreams
from translane_client.cli.text_files import FileError


def translate_file(
    arguments: argparse.Namespace,
    options: DecodingOptions,
    streams: StandardStreams,
    form: TranslationFormat,
    notes: Notes,
) -> None:
    """Translates the file of -i, or standard input.

    Raises:
        FileError: a file cannot be opened, or the interrupted command was another one.
        CommandError: the translation ended early.
    """
    name = kind_name(arguments)
    kind = KINDS[name]
    with ExitStack() as stack:
        lines = bulk.lines_of(arguments.input, streams, stack)
        inputs = Parts(lines.files[0], lines.name, kind.parts(lines.files[0], lines.name, settings_of(arguments, form)))
        path = bulk.output_path(arguments, inputs, may_be_input=kind.is_document)
        journal = _journal(path, _request(arguments, options, name))
        writer = PartWriter(path, None if path else streams.stdout, is_document=kind.is_document, journal=journal)
        stack.callback(writer.close)
        in_place = path is not None and is_same(lines.files[0], path)
        if arguments.resume and path and path.exists() and not in_place and not (journal and journal.exists):
            told = f"{path} is there, and no command that was interrupted: nothing is done"
            print(f"translane: {printable(told)}", file=streams.stderr)
            return
        skipped = 0
        if arguments.resume and journal and journal.exists:
            if flag := journal.changed_flag():
                raise FileError(
                    f"{flag} differs from the command that was interrupted; without --resume, {path} is written anew"
                )
            if writer.is_left_over():
                return
            checkpoint = writer.resume()
            skipped = inputs.skip(checkpoint.parts, checkpoint.read)
        to_terminal = not path and is_terminal(streams.stdout)
        output = Output(arguments, streams, inputs, writer, to_terminal=to_terminal)
        output.skip(skipped)
        client = stack.enter_context(bulk.client_of(arguments, inputs))

        def write(_: int, answer: tuple[Part, list[Translation]]) -> None:
            part, translations = answer
            for translation in translations:
                notes.add(f"{inputs.name}, line {part.line}", translation.treatment)
            data = part.render(translations)
            inputs.digest.update(part.raw)
            writer.write(data, len(part.texts), inputs.digest.hexdigest())

        if kind.preserve:
            options = {**options, "preserve": [*(options.get("preserve") or ()), *kind.preserve]}
        translations = client.translate_iter(inputs.items(), **request_settings(arguments, kind), **options)
        output.write_all(inputs.whole(translations), write, lambda answer: len(answer[1]))


def _journal(path: Path | None, request: Mapping[str, Any]) -> Journal | None:
    """The journal of the output at `path`; None where the output is no regular file."""
    if path is None or (path.exists() and not path.is_file()):
        return None
    return Journal(path.with_name(f"{path.name}.journal"), request)


def _request(arguments: argparse.Namespace, options: DecodingOptions, kind: str) -> dict[str, Any]:
    """What makes the translation what it is: flag → value. A command that goes on must have the same."""
    names = ("model", "source_language", "target_language", "format", "columns", "field", "output_field", "all", "json")
    chosen = {f"--{name.replace('_', '-')}": getattr(arguments, name) for name in names}
    searched = {FLAGS[name].name: value for name, value in options.items() if name in FLAGS}
    return {"--file-format": kind, "--nbest": arguments.nbest, **chosen, **searched}
