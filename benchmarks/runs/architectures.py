"""Holds exports of Hugging Face models to `generate`, and measures what an export takes.

    python -m benchmarks.runs.architectures                  # all of them: greedy and beam 4, 200 sentences each
    python -m benchmarks.runs.architectures --only T5 --sentences 500
    python -m benchmarks.runs.architectures --large marian   # Marian's base size: parity, time and peak memory
    python -m benchmarks.runs.architectures --large mt5      # above 2 GB, in shards: time and peak memory

Models are random ones of transformers' own classes, written and exported as folders; the server's dispatcher and
replica loop decode with the bundle. Ties are sentences where `generate` itself chose between scores closer than
rounding.

Memory is the peak of a process that only exports, memory-mapped files included, less the peak of a process that exports
a model of a few kilobytes: PyTorch, ONNX Runtime and capturing graphs take that much alone. The peak is VmHWM of
/proc/self/status; ru_maxrss begins at what the parent process had.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import places
from benchmarks.machine import peak_memory
from benchmarks.models.large import LARGE
from helpers import hugging_face
from translane_server.bundle import Bundle, load_bundle

if TYPE_CHECKING:
    from transformers import PreTrainedModel

BEAM_SIZES = (1, 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="architectures whose names contain this")
    parser.add_argument("--sentences", type=int, default=200)
    parser.add_argument("--large", choices=sorted(LARGE))
    parser.add_argument("--folder", type=Path, help="where large models are written; a temporary folder by default")
    parser.add_argument("--export", nargs=2, type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.export:
        export_alone(*arguments.export)
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder) as scratch:
        if arguments.large:
            large(arguments.large, Path(scratch), arguments.sentences)
        else:
            table(Path(scratch), arguments.only, arguments.sentences)


def table(scratch: Path, only: str, sentences: int) -> None:
    print("| architecture | search | sentences | tokens | ended | ties | mismatches |\n|---|---|--:|--:|--:|--:|--:|")
    for number, (name, drawn) in enumerate(hugging_face.MODELS.items()):
        if only in name:
            model = hugging_face.draw(drawn)
            model.save_pretrained(scratch / f"{number}")
            bundle = hugging_face.export(scratch / f"{number}", scratch / f"{number}.bundle")
            report(name, model, bundle, sentences)


def report(name: str, model: PreTrainedModel, bundle: Bundle, sentences: int) -> None:
    sources = hugging_face.sources(model, sentences)
    for beam_size in BEAM_SIZES:
        found = hugging_face.compare(bundle, model, sources, beam_size)
        search = "greedy" if beam_size == 1 else f"beam {beam_size}"
        cells = (found.sentences, found.tokens, found.ended, found.ties, len(found.mismatches))
        print(f"| {name} | {search} | " + " | ".join(f"{cell:,}" for cell in cells) + " |", flush=True)
        for mismatch in found.mismatches:
            print(mismatch, file=sys.stderr)


def large(name: str, scratch: Path, sentences: int) -> None:
    for case, drawn in ((name, LARGE[name]), ("tiny", hugging_face.MODELS["Marian"])):
        model = hugging_face.draw(drawn)
        model.save_pretrained(scratch / case, max_shard_size="1GB")
        if case == name and name == "mt5":
            del model
    size = sum(path.stat().st_size for path in (scratch / name).glob("*.safetensors"))
    measured = {case: measure(scratch / case, scratch / f"{case}.bundle") for case in ("tiny", name)}
    peak, base = measured[name]["peak"], measured["tiny"]["peak"]
    print(
        f"{name}: checkpoint {size / 1e6:,.0f} MB, exported in {measured[name]['seconds']:.0f} s,"
        f" peak {peak / 1e6:,.0f} MB, of which {base / 1e6:,.0f} MB for any model:"
        f" {(peak - base) / size:.2f} x the checkpoint"
    )
    if name == "marian":
        model = hugging_face.draw(LARGE[name])
        report(name, model, load_bundle(scratch / f"{name}.bundle"), sentences)


def measure(folder: Path, output: Path) -> dict[str, float]:
    """Seconds and bytes of an export in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.runs.architectures", "--export", str(folder), str(output)]
    done = subprocess.run(command, cwd=places.ROOT, check=True, stdout=subprocess.PIPE)
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


def export_alone(folder: Path, output: Path) -> None:
    start = time.monotonic()
    hugging_face.export(folder, output, log=log)
    print(json.dumps({"seconds": time.monotonic() - start, "peak": peak_memory()}))


def log(line: str) -> None:
    print(f"{peak_memory() / 1e6:8,.0f} MB  {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
