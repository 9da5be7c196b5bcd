"""`translane bench`."""

from __future__ import annotations

import argparse
import json
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from translane.arguments import Parser
from translane.command_error import CommandError
from translane_client.cli import bulk, decoding_flags
from translane_client.cli.flags import ENV_PREFIX, Flags, count, duration, integer, pause, positive, unsigned
from translane_client.cli.inputs import FileError, StandardStreams, lines_of, text_of
from translane_client.cli.outputs import LineWriter, check_place, write_whole

if TYPE_CHECKING:
    from translane.results import ServerInfo
    from translane_client.bench.requests import Text

OPERANDS = ""

_OF_BENCHMARK = ("rate", "clients", "find_rate", "p95", "trials", "warm_up", "duration", "schedule_seed", "tokens")


def add_flags(parser: Parser, flags: Flags) -> None:
    """Declares the arguments of the command."""
    parser.description = (
        "Sends sentences at given rates, or from a number of clients, and measures how long the answers take; or"
        " searches the highest rate that keeps a latency. Latency counts from the moment when a request is due. No"
        " request is tried again."
    )
    flags.section(
        "load (one of --rate, --clients and --find-rate)", "A TIME is a number of seconds, or 500ms, 10s, 2m."
    )
    help = "sentences per second, one measurement for each R (default: 10)"
    flags.add("--rate", type=positive, nargs="+", metavar="R", help=help)
    help = "clients that each wait for their last answer, one measurement for each N"
    flags.add("--clients", type=count, nargs="+", metavar="N", help=help)
    flags.switch("--find-rate", help="search the highest rate that keeps --p95, beginning with --rate where it is set")
    flags.add("--p95", type=duration, default="500ms", metavar="TIME", help="latency that 95%% of requests may reach")
    flags.add("--trials", type=count, default=12, metavar="N", help="most trials of --find-rate")
    flags.add("--duration", type=duration, default="10s", metavar="TIME", help="length of each measurement")
    flags.add("--warm-up", type=pause, default="2s", metavar="TIME", help="time under load before each measurement")
    flags.add("--timeout", type=duration, default="30s", metavar="TIME", help="deadline of each request")
    flags.add("--connections", type=count, default=1, metavar="N", help="connections, which requests take in turn")
    flags.add("--schedule-seed", type=unsigned, default=0, metavar="N", help="the same N gives the same requests")
    flags.section("requests")
    help = "file of texts, one on each line; - is standard input (default: built-in sentences)"
    flags.add("-i", "--input", metavar="FILE", type=Path, help=help)
    flags.switch("--max-lengths", help="each line ends with a tab and the max_length of its translation")
    flags.add("--texts-per-request", type=count, default=1, metavar="N", help="texts in each request")
    bulk.add_model_flags(flags)
    flags.add("--priority", type=integer, default=0, metavar="N", help="texts of a higher priority go first")
    flags.section("output")
    help = f"write the measurements as JSON, too (environment: {ENV_PREFIX}JSON_FILE)"
    flags.add("--json", dest="json_file", metavar="FILE", type=Path, help=help)
    decoding_flags.add_flags(flags)
    parser.short_help = (
        *("server", "ca", "token_file", "rate", "clients", "find_rate", "p95", "duration", "warm_up"),
        *("input", "texts_per_request", "model", "source_language", "target_language", "json_file", "beam_size"),
    )


def run(arguments: argparse.Namespace, streams: StandardStreams) -> int:
    """Puts load on a server, and writes a table; returns the exit code."""
    import asyncio

    from translane.errors import TranslaneError
    from translane.v1 import translation_pb2 as pb
    from translane_client._requests import request_fields
    from translane_client.bench.benchmark import Benchmark
    from translane_client.bench.load import Load
    from translane_client.bench.requests import serialized_requests

    _settle_load(arguments)
    request = {**bulk.request_of(arguments), **decoding_flags.decoding_options(arguments)}
    settings = pb.TranslateRequest(**request_fields(request))
    if arguments.json_file:
        check_place(arguments.json_file)
    texts = _texts(arguments, streams)
    load = Load(
        arguments.connection,
        serialized_requests(texts, arguments.texts_per_request, settings, arguments.schedule_seed),
        texts_per_request=arguments.texts_per_request,
        timeout=arguments.timeout,
        connections=arguments.connections,
        count_tokens=bool(arguments.tokens),
    )
    with LineWriter(None, streams.stdout) as output:
        flags = {name: getattr(arguments, name) for name in _OF_BENCHMARK}
        benchmark = Benchmark(load, output.write, streams.stderr, **flags)
        try:
            asyncio.run(benchmark.run())
        except TranslaneError as error:
            raise CommandError(bulk.message_of(error, arguments, lambda _field: None)) from error
        finally:  # after Ctrl-C, too, the command writes what it has measured
            benchmark.finish(streams.say)
            if arguments.json_file and benchmark.measurements:
                report = {"server": arguments.server, **benchmark.as_json()}
                write_whole(arguments.json_file, json.dumps(report, indent=2).encode() + b"\n")
    return 0 if benchmark.succeeded else 1


def _settle_load(arguments: argparse.Namespace) -> None:
    """Leaves one kind of load; the command line wins over the environment. Exits on wrong usage."""
    kinds = {name for name in ("rate", "clients", "find_rate") if getattr(arguments, name)}
    chosen = kinds & arguments.given or kinds
    if "clients" in chosen and len(chosen) > 1:
        arguments.parser.error("--clients excludes --rate and --find-rate")
    if "find_rate" in chosen and len(arguments.rate or ()) > 1:
        arguments.parser.error("--find-rate takes one --rate, the rate to begin with")
    arguments.rate = () if chosen == {"clients"} else arguments.rate or (() if chosen else [10.0])
    arguments.clients = arguments.clients if "clients" in chosen else ()
    arguments.find_rate = "find_rate" in chosen
    arguments.tokens = bool(arguments.tokens)


def _texts(arguments: argparse.Namespace, streams: StandardStreams) -> list[Text]:
    """The texts to send: the lines of the input, or built-in sentences in a language of the server's model."""
    from translane_client.bench.requests import BUILT_IN, Text, built_in

    if arguments.input is None:
        if arguments.max_lengths:
            arguments.parser.error("--max-lengths needs -i")
        arguments.attempts = 1
        with bulk.client_of(arguments) as client:
            info = client.server_info(timeout=arguments.timeout)
        sentences = built_in(_source_languages(info, arguments))
        if not sentences:
            raise CommandError(f"built-in sentences exist in {', '.join(BUILT_IN)} only: -i FILE names a file of texts")
        return [Text(sentence) for sentence in sentences]
    texts = list[Text]()
    with ExitStack() as stack:
        lines = lines_of(arguments.input, streams, stack, text_of)
        for index, line in enumerate(lines.items()):
            text, tab, length = line.rpartition("\t") if arguments.max_lengths else (line, "", "")
            if not line.strip():
                continue
            if arguments.max_lengths and not (tab and length.strip().isdecimal() and 0 < int(length) < 2**31):
                raise FileError(f"{lines.place(index, '')}: a text, a tab and a positive number are needed")
            texts.append(Text(text, int(length) if arguments.max_lengths else None))
    if not texts:
        raise CommandError(f"{lines.name}: no texts to send")
    return texts


def _source_languages(info: ServerInfo, arguments: argparse.Namespace) -> tuple[str, ...]:
    """The languages that the sentences may be in. CommandError: the server does not have the model."""
    if arguments.source_language:
        return (arguments.source_language,)
    for model in info.models:
        if arguments.model in ("", model.name):
            return model.source_languages
    raise CommandError(
        f"the server has no model named {arguments.model!r}" if info.models else "the server has no model"
    )
