"""`translane models`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from textwrap import wrap

from translane.arguments import Parser
from translane.results import ModelInfo, ServerInfo
from translane_client.cli import bulk
from translane_client.cli.flags import Flags
from translane_client.cli.inputs import StandardStreams, printable
from translane_client.cli.outputs import LineWriter

OPERANDS = ""

_MOST_TAGS = 5  # that stand in the table
_WIDTH = 100  # of the lines below the table

_COLUMNS = ("NAME", "VERSION", "LANGUAGES", "PRECISION", "DEVICE", "PARAMETERS", "SOURCE TOKENS", "TARGET TOKENS")


def add_flags(parser: Parser, flags: Flags) -> None:
    """Declares the arguments of the command."""
    parser.description = (
        "Lists the server's models and limits. The limits of source and target tokens are those of one text."
    )
    bulk.add_call_flags(flags)
    flags.section("output")
    flags.switch("--json", help="write JSON")


def run(arguments: argparse.Namespace, streams: StandardStreams) -> int:
    """Lists the server's models and limits; returns the exit code."""
    output = LineWriter(None, streams.stdout)
    with bulk.client_of(arguments) as client:
        info = client.server_info(timeout=arguments.timeout)
    shown = json.dumps(asdict(info), ensure_ascii=False, indent=2) if arguments.json else table(info)
    for line in shown.split("\n"):
        output.write(line)
    return 0


def table(info: ServerInfo) -> str:
    """The models, one on each line under headings, and the server's limits."""
    rows = [_COLUMNS, *(tuple(map(printable, _row(model))) for model in info.models)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    limits = info.limits
    return "\n".join(
        [
            *("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows),
            *(line for model in info.models for line in _details(model)),
            "",
            f"server {printable(info.version)}: at most {limits.max_request_texts} texts per request, "
            f"{limits.max_queue_size} sentences waiting, beam size {limits.max_beam_size}",
        ]
    )


def _row(model: ModelInfo) -> tuple[str, ...]:
    return (
        model.name,
        f"{model.version}@{model.digest}" if model.digest else model.version,
        f"{_languages(model.source_languages)}→{_languages(model.target_languages)}",
        model.precision,
        model.device,
        f"{model.parameters:,}",
        str(model.max_source_tokens),
        str(model.max_target_tokens),
    )


def _languages(tags: Sequence[str]) -> str:
    """The tags, if they fit into a line beside the rest; else their number, and `_details` has them."""
    return ",".join(tags) if len(tags) <= _MOST_TAGS else f"{len(tags)} languages"


def _details(model: ModelInfo) -> Iterator[str]:
    """Lines about what only some models have."""
    source, target = model.source_languages, model.target_languages
    for way, tags in (("among", source),) if source == target else (("from", source), ("to", target)):
        if len(tags) > _MOST_TAGS:
            yield from wrap(
                printable(f"{model.name} translates {way} {', '.join(tags)}"), _WIDTH, subsequent_indent="  "
            )
    if model.decoding_defaults:
        defaults = ", ".join(f"{name} {_shown(value)}" for name, value in model.decoding_defaults.items())
        yield printable(f"{model.name} decodes by default with {defaults}")
    if model.glossaries:
        yield printable(f"{model.name} has the glossaries {', '.join(model.glossaries)}")


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)
