"""`translane bench`."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from translane_client import bulk, decoding_flags
from translane_client._messages import translate_settings
from translane_client.bench.arrivals import Text, serialized_requests, text_with_length
from translane_client.bench.benchmark import Benchmark
from translane_client.bench.load import Load
from translane_client.bench.sentences import BUILT_IN, built_in
from translane_client.bulk import CommandError
from translane_client.client import Client
from translane_client.flags import Flags, count, duration, integer, positive, unsigned
from translane_client.lines import FileError, LineWriter
from translane_client.retry import RetryPolicy
from translane_client.streams import Streams
from translane_client.types import ServerInfo


def add_flags(parser: argparse.ArgumentParser, flags: Flags) -> None:
    """Declares the arguments of the command."""
    yes_or_no: dict[str, Any] = {"action": argparse.BooleanOptionalAction, "default": False}
    flags.section(
        "load", "one of --rate, --clients and --find-rate; unset: --rate 10. A TIME is in seconds, or as 500ms or 2m"
    )
    flags.add("--rate", type=positive, nargs="+", metavar="R", help="sentences per second, one measurement each")
    flags.add("--clients", type=count, nargs="+", metavar="N", help="clients that each wait for their last answer")
    flags.add("--find-rate", help="search the highest rate that keeps --p95, from --rate on where set", **yes_or_no)
    flags.add("--p95", type=duration, default=0.5, metavar="TIME", help="bound that 95%% of requests are to keep")
    flags.add("--trials", type=count, default=12, metavar="N", help="most trials of --find-rate")
    flags.add("--duration", type=duration, default=10.0, metavar="TIME", help="measured time of each rate")
    flags.add("--warm-up", type=_pause, default=2.0, metavar="TIME", help="time before it under the same load")
    flags.add("--timeout", type=duration, default=30.0, metavar="TIME", help="deadline of each request")
    flags.add("--schedule-seed", type=unsigned, default=0, metavar="N", help="settles times and order of the requests")
    flags.add("--connections", type=count, default=1, metavar="N", help="connections that requests take in turn")
    flags.section("requests", "what is sent")
    flags.add(
        "-i", "--input", metavar="FILE", type=Path, help="texts, one on each line; - is standard input; unset: our own"
    )
    flags.add("--max-lengths", help="each line ends with a tab and the max_length of its translation", **yes_or_no)
    flags.add("--texts-per-request", type=count, default=1, metavar="N", help="texts in each request")
    bulk.add_model_flags(flags)
    flags.add("--priority", type=integer, default=0, metavar="N", help="higher ones are translated first")
    flags.section("output", "beside the table")
    flags.add("--json", dest="json_file", metavar="FILE", type=Path, help="write the measurements as JSON")
    decoding_flags.add_flags(flags)
    parser.epilog = "Latency counts from when a request was due. No request is tried again."


def run(arguments: argparse.Namespace, streams: Streams) -> int:
    """Puts load on a server, and writes a table.

    Raises:
        FileError: a file cannot be read or written.
        TranslaneError: the server is away, or refuses the requests.
        CommandError: there is nothing to send.
    """
    decoding_flags.settle_nbest(arguments)
    _settle_load(arguments)
    options = decoding_flags.decoding_options(arguments)
    settings = translate_settings(
        arguments.model, arguments.source_language, arguments.target_language, arguments.priority, options
    )
    if arguments.json_file:
        _check_writable(arguments.json_file)
    texts = _texts(arguments, streams)
    load = Load(
        arguments.server,
        serialized_requests(texts, arguments.texts_per_request, settings, arguments.schedule_seed),
        texts_per_request=arguments.texts_per_request,
        timeout=arguments.timeout,
        connections=arguments.connections,
        count_tokens=bool(arguments.tokens),
    )
    with LineWriter(None, streams.stdout) as output:
        benchmark = Benchmark(arguments, load, output.write)
        try:
            asyncio.run(benchmark.run())
        finally:  # after Ctrl-C, what was measured is told all the same
            benchmark.finish(streams.stderr)
    return 0 if benchmark.is_answered else 1


def _pause(text: str) -> float:
    return 0.0 if text in ("0", "0s") else duration(text)


def _settle_load(arguments: argparse.Namespace) -> None:
    """Leaves one kind of load; the command line wins over the environment. Exits on wrong usage."""
    kinds = {"rate", "clients", "find_rate"}
    chosen = {name for name in kinds & arguments.given if getattr(arguments, name)} or {
        name for name in kinds if getattr(arguments, name)
    }
    if "clients" in chosen and len(chosen) > 1:
        arguments.parser.error("--clients excludes --rate and --find-rate")
    if "find_rate" in chosen and len(arguments.rate or ()) > 1:
        arguments.parser.error("--find-rate takes one --rate, where it begins")
    for name in kinds - chosen - ({"rate"} if "find_rate" in chosen else set()):
        setattr(arguments, name, None)
    if not chosen:
        arguments.rate = [10.0]


def _texts(arguments: argparse.Namespace, streams: Streams) -> list[Text]:
    """What is sent: the lines of the input, or our own sentences in a language that the server's model takes."""
    if arguments.input is None:
        if arguments.max_lengths:
            arguments.parser.error("--max-lengths needs -i")
        with Client(arguments.server, retry=RetryPolicy(attempts=1)) as client:
            sentences = built_in(_source_languages(client.server_info(timeout=arguments.timeout), arguments))
        if not sentences:
            raise CommandError(f"there are sentences in {', '.join(BUILT_IN)} only: -i FILE names a file of others")
        return [Text(sentence) for sentence in sentences]
    with ExitStack() as stack:
        lines = bulk.lines_of(arguments.input, streams, stack)
        texts = list(_read(lines.items(), lines.place, with_lengths=arguments.max_lengths))
    if not texts:
        raise CommandError(f"{lines.name}: no texts to send")
    return texts


def _read(lines: Iterator[str], place: Callable[[int], str], *, with_lengths: bool) -> Iterator[Text]:
    for index, line in enumerate(lines):
        if line.strip():
            yield text_with_length(line, place(index)) if with_lengths else Text(line)


def _source_languages(info: ServerInfo, arguments: argparse.Namespace) -> tuple[str, ...]:
    if arguments.source_language:
        return (arguments.source_language,)
    return next((each.source_languages for each in info.models if arguments.model in ("", each.name)), ())


def _check_writable(path: Path) -> None:
    """FileError: the file cannot be written, which is to be known before the measurements."""
    try:
        existed = path.exists()
        path.open("ab").close()
        if not existed:
            path.unlink()
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from error
