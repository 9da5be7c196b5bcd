"""The flags of files: their kinds, what is translated in them, and going on after an interruption."""

from __future__ import annotations

import argparse
from typing import TypedDict

from translane.arguments import one_of
from translane.options import Format
from translane_client.cli.files.kinds import KINDS, Kind, Settings, kind_of
from translane_client.cli.flags import Flags, count, unicode
from translane_client.cli.formats import TranslationFormat

_OF_KINDS = {"columns", "field", "output_field", "all"}
"""The flags that concern some kinds of files only."""


def add_flags(flags: Flags) -> None:
    """Declares the flags."""
    flags.section("files")
    flags.add(
        "--file-format",
        type=one_of(KINDS),
        metavar="NAME",
        help=f"kind of the input: {', '.join(KINDS)} (default: by its extension, or else lines)",
    )
    flags.add("--columns", type=_columns, default="1", metavar="N,N", help="columns of .tsv files to translate, from 1")
    flags.add("--field", type=unicode, default="text", metavar="NAME", help="field of .jsonl files to translate")
    flags.add(
        "--output-field", type=unicode, default="translation", metavar="NAME", help="new field for the translation"
    )
    flags.switch("--all", help="replace the translations that are in .po and .xliff files already")
    flags.switch("--resume", help="go on where the same command was interrupted; needs -o")
    flags.add(
        "--format",
        type=one_of(Format),
        metavar="NAME",
        help=f"what each text is written in: {', '.join(Format)} (default: text, or by the kind of the file)",
    )


def check(arguments: argparse.Namespace, form: TranslationFormat) -> None:
    """Exits with a usage error where the flags do not fit each other or the kind of the file."""
    refuse = arguments.parser.error
    if arguments.texts:
        if not_for_texts := sorted(arguments.given & {"file_format", "resume", *_OF_KINDS}):
            refuse(f"{_flag(not_for_texts[0])} is about files: TEXT excludes it")
        return
    try:
        name = kind_name(arguments)
    except ValueError as error:
        refuse(str(error))
    kind = KINDS[name]
    if strange := sorted(arguments.given & _OF_KINDS - kind.flags):
        refuse(f"{_flag(strange[0])} is not about files of the kind {name}")
    if name != "lines" and not form.is_text_alone:
        refuse(
            f"a file of the kind {name} takes the text of one hypothesis: it excludes --json, n-best lines, scores,"
            " quality, tokens and alignment"
        )
    if name != "lines" and arguments.stream:
        refuse(f"--stream writes lines, and a file of the kind {name} is not written so")
    if kind.format and arguments.format not in (None, kind.format):
        refuse(f"--format {arguments.format} does not fit a file of the kind {name}")
    if arguments.resume and arguments.stream:
        refuse("--resume and --stream exclude each other")
    if arguments.resume and (arguments.output is None or str(arguments.output) == "-"):
        refuse("--resume needs a file of -o")


def kind_name(arguments: argparse.Namespace) -> str:
    """The name of the kind of the input file."""
    return arguments.file_format or kind_of(arguments.input)


def settings_of(arguments: argparse.Namespace, form: TranslationFormat) -> Settings:
    """What the arguments say about the files."""
    return Settings(form, arguments.columns, arguments.field, arguments.output_field, bool(arguments.all))


class RequestSettings(TypedDict):
    """What a request says beside its texts and options, as keywords of the client's methods."""

    model: str
    source_language: str
    target_language: str
    format: Format
    priority: int
    timeout: float | None


def request_settings(arguments: argparse.Namespace, kind: Kind | None = None) -> RequestSettings:
    """What the arguments say about requests, for a file of `kind`."""
    return RequestSettings(
        model=arguments.model,
        source_language=arguments.source_language,
        target_language=arguments.target_language,
        format=(kind and kind.format) or arguments.format or Format.TEXT,
        priority=arguments.priority,
        timeout=arguments.timeout,
    )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _columns(text: str) -> tuple[int, ...]:
    return tuple(map(count, text.split(",")))
