"""What each way to compute attention costs in training: time and peak memory of a forward and a backward pass.

    python -m benchmarks.runs.training_attention                # writes tables into docs/attention.md
    python -m benchmarks.runs.training_attention --lengths 128 512 1024 --blocks --no-page

One sentence, self-attention without projections, float32. *plain* has all weights in memory, *fused* is PyTorch's
kernel, *blocks* computes some queries at a time, and once more in the backward pass. *relative* has vectors for
distances up to 16, which PyTorch's kernel does not take. The last table compares sizes of blocks.

Each measurement is a process of its own. Memory is the most that it has had, less what it had before: the peak is VmHWM
of /proc/self/status. Time is processor time on one thread, the median of the rounds. The plain way takes some three
times the memory of its weights: 8,192 tokens and 4 heads take 3 GiB.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks import places
from benchmarks.machine import Usage, describe, peak_memory, version_of
from benchmarks.report.attention_tables import WAYS, of_training
from benchmarks.report.marked_part import write_part
from benchmarks.report.results import write
from translane_export.model.attention_kernels import Formula, attend_by_blocks, attend_fused, attend_plainly
from translane_export.model.relative_embeddings import RelativeEmbeddings
from translane_export.model.views import View

COMMAND = "python -m benchmarks.runs.training_attention"
HEAD_SIZE, WINDOW = 64, 16
LENGTHS, BLOCKS, BLOCKS_AT = (512, 2048, 8192), (64, 128, 256, 512, 1024), (2048, 8192)
FORMULAS = {"softmax": WAYS, "relative": ("plain", "blocks")}
SHORTEST = 0.2  # seconds of a measurement's repeated passes


def passes(formula: str, way: str, length: int, heads: int, block: int, rounds: int) -> dict[str, float]:
    """Seconds and bytes of a forward and a backward pass, in this process."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    relative = None
    if formula == "relative":
        relative = RelativeEmbeddings(window=WINDOW, tables=1, key_size=HEAD_SIZE, value_size=HEAD_SIZE, clipped=True)
    chosen = Formula(HEAD_SIZE**-0.5, relative=relative)

    def run(size: int) -> None:
        queries, keys, values = (torch.randn(1, heads, size, HEAD_SIZE).requires_grad_() for _ in range(3))
        view = View(size, size)
        match way:
            case "plain":
                context = attend_plainly(chosen, queries, keys, values, view)
            case "fused":
                context = attend_fused(chosen, queries, keys, values, view)
            case _:
                context = attend_by_blocks(chosen, queries, keys, values, view, block=block)
        context.sum().backward()  # type: ignore[no-untyped-call]  # public, but unannotated

    run(64)  # what is loaded once
    before = peak_memory()
    run(length)
    taken = peak_memory() - before
    seconds: list[float] = []
    end = time.process_time() + SHORTEST
    while len(seconds) < rounds or time.process_time() < end:
        start = time.process_time()
        run(length)
        seconds.append(time.process_time() - start)
    return {"seconds": statistics.median(seconds), "bytes": taken}


def measure(formula: str, way: str, length: int, arguments: argparse.Namespace, block: int) -> dict[str, float]:
    """The same in a process of its own."""
    alone = [formula, way, str(length), str(arguments.heads), str(block), str(arguments.rounds)]
    command = [sys.executable, "-m", "benchmarks.runs.training_attention", "--alone", *alone]
    done = subprocess.run(command, cwd=places.ROOT, check=True, stdout=subprocess.PIPE)
    found: dict[str, float] = json.loads(done.stdout)
    print(formula, way, f"{length:,} tokens, blocks of {block}: {found}", flush=True)
    return found


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--block", type=int, default=256, help="queries at a time, in the first table")
    parser.add_argument("--blocks", type=int, nargs="*", default=BLOCKS, help="sizes that are compared")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-o", "--output", type=Path, default=places.result("training-attention"))
    parser.add_argument("--page", type=Path, default=places.ROOT / "docs" / "attention.md")
    parser.add_argument("--no-page", action="store_true", help="leave the page alone")
    parser.add_argument("--alone", nargs=6, help=argparse.SUPPRESS)
    arguments = parser.parse_args(given)
    if arguments.alone:
        formula, way, *numbers = arguments.alone
        print(json.dumps(passes(formula, way, *map(int, numbers))))
        return
    usage, machine = Usage(), describe()
    machine["versions"]["torch"] = version_of("torch")
    record: dict[str, Any] = {"machine": machine, "heads": arguments.heads, "ways": {}, "blocks": {}}
    for formula, ways in FORMULAS.items():
        record["ways"][formula] = {
            str(length): {way: measure(formula, way, length, arguments, arguments.block) for way in ways}
            for length in arguments.lengths
        }
    for length in BLOCKS_AT if arguments.blocks else ():
        record["blocks"][str(length)] = {
            str(block): measure("softmax", "blocks", length, arguments, block) for block in arguments.blocks
        }
    record["usage"] = usage.so_far()
    write(arguments.output, record)
    lines = "\n".join(of_training(record))
    print(f"\n{lines}")
    if not arguments.no_page:
        write_part(arguments.page, "training", COMMAND, lines)


if __name__ == "__main__":
    main()
