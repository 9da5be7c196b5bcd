"""`translane score`."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from translane.arguments import Parser
from translane.results import Score, perplexity_of
from translane_client.cli import bulk, formats
from translane_client.cli.flags import Flags, unicode
from translane_client.cli.inputs import (
    STANDARD,
    Inputs,
    StandardStreams,
    arguments_of,
    lines_of,
    pair_of,
    parallel,
    text_of,
)

OPERANDS = "[SOURCE TARGET]"


def add_flags(parser: Parser, flags: Flags) -> None:
    """Declares the arguments of the command."""
    parser.description = (
        "Writes the log-probability of the TARGET, or of each target in a file, in order. The number of pairs and of"
        " tokens, the mean log-probability and the perplexity go to standard error."
    )
    bulk.add_call_flags(flags)
    parser.add_argument(
        "pair",
        nargs="*",
        type=unicode,
        metavar="SOURCE TARGET",
        help="text and its translation; without them, -s and -t, or -i, or standard input is read",
    )
    flags.section("input and output")
    for short, name, side in (("-s", "--source-file", "sources"), ("-t", "--target-file", "targets")):
        help = f"file of {side}, one on each line; - is standard input"
        flags.add(short, name, metavar="FILE", type=Path, help=help)
    bulk.add_file_flags(flags, input="file of source TAB target, one pair on each line", output="file for the scores")
    flags.switch("--tokens", help="write the score of each token")
    flags.switch("--json", help="write one JSON object for each pair")
    flags.section("requests")
    bulk.add_request_flags(flags)


def run(arguments: argparse.Namespace, streams: StandardStreams) -> int:
    """Scores a pair of arguments, or the pairs of files; returns the exit code."""
    pairs = tokens = 0
    total = 0.0

    def write(_: int, score: Score) -> None:
        nonlocal pairs, tokens, total
        writer.write(line_of(score, arguments))
        pairs += 1
        tokens += len(score.token_log_probs)
        total += score.total_log_prob

    with ExitStack() as stack:
        inputs = _inputs(arguments, streams, stack)
        writer = bulk.line_output(arguments, streams, inputs)
        client = stack.enter_context(bulk.client_of(arguments, inputs))
        scores = client.score_iter(inputs.items(), return_tokens=arguments.tokens, **bulk.request_of(arguments))
        bulk.write_all(arguments, streams, inputs, writer, scores, write)
    print(summary(pairs, tokens, total), file=streams.stderr)
    return 0


def line_of(score: Score, arguments: argparse.Namespace) -> str:
    """The line of a pair: its total log-probability, with that of each token where asked for; or JSON."""
    if arguments.json:
        means = {"total_log_prob": score.total_log_prob, "mean_log_prob": score.mean_log_prob}
        return formats.to_json({**means, **asdict(score)})
    total = formats.number(score.total_log_prob)
    return f"{total}\t{formats.tokens_line(score.tokens, score.token_log_probs)}" if arguments.tokens else total


def summary(pairs: int, tokens: int, total: float) -> str:
    """One sentence about all pairs; `total` is the sum of their log-probabilities."""
    if not pairs:
        return "0 pairs"
    mean = total / max(1, tokens)
    return (
        f"{pairs} {'pair' if pairs == 1 else 'pairs'}, {tokens} {'token' if tokens == 1 else 'tokens'}: "
        f"mean log-probability {formats.number(mean)} per token, perplexity {perplexity_of(mean):.4g}"
    )


def _inputs(arguments: argparse.Namespace, streams: StandardStreams, stack: ExitStack) -> Inputs[tuple[str, str]]:
    """The pairs to score. A file on the command line wins over files in the environment. Exits on wrong usage."""
    refuse = arguments.parser.error
    given = arguments.given & {"input", "source_file", "target_file"}
    if len(arguments.pair) not in (0, 2):
        refuse(f"SOURCE and TARGET are needed, or neither; not {len(arguments.pair)} of them")
    if arguments.pair and given:
        refuse("SOURCE TARGET and files exclude each other")
    if "input" in given and len(given) > 1:
        refuse("-i and -s, -t exclude each other")
    if arguments.pair:
        source, target = arguments.pair
        return arguments_of([(source, target)], "pair")
    files = [arguments.source_file, arguments.target_file]
    if "input" in given or files == [None, None]:
        return lines_of(arguments.input, streams, stack, pair_of)
    if None in files:
        refuse("-s and -t are needed together")
    if files == [STANDARD] * 2:
        refuse("one of -s and -t can be standard input, not both")
    sources, targets = (lines_of(file, streams, stack, text_of) for file in files)
    return parallel(sources, targets)
