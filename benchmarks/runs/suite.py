"""All benchmarks, one after the other, and then the report: what `make bench` runs.

    python -m benchmarks.runs.suite                          # about ninety minutes
    python -m benchmarks.runs.suite --quick                  # about twenty minutes
    python -m benchmarks.runs.suite --full                   # ten hours at most
    python -m benchmarks.runs.suite --device cuda            # what there is to measure on a GPU
    python -m benchmarks.runs.suite --only growth products

Each benchmark has a time limit, and so have all together; a benchmark is ended when the time has passed. A benchmark
that fails or is ended leaves what it has measured, and the next one begins. Ctrl-C ends the benchmark that runs and
goes on to the report. A benchmark begins its files anew.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks import places
from benchmarks.machine import has_vnni, processor
from benchmarks.models.benchmarked import NAMES, PRECISIONS, Unavailable, own_bundle
from translane_client.bench.requests import BUILT_IN
from translane_server.bundle.devices import choose_precision
from translane_server.core.errors import DeviceError

GRACE = 30.0  # seconds that a benchmark gets to end
ENDED = 124  # the exit code of what was ended at its limit
MINUTES = {"quick": 20.0, "usual": 90.0, "full": 600.0}  # of all benchmarks together


class Part(NamedTuple):
    """A benchmark to run."""

    name: str  # of what it measures
    words: tuple[str, ...]  # its module, and the module's arguments
    minutes: float  # after which it is ended

    def __str__(self) -> str:
        return " ".join(self.words)


# The arguments of each benchmark, and its minutes, by how long all may take.
PARTS: Mapping[str, Mapping[str, tuple[str, float]]] = {
    "quick": {
        "offline": ("--quick --precisions int8 --batches 1 32", 10),
        "without_vnni": ("--quick --precisions int8 --searches greedy --batches 1 32", 5),
        "serving": ("--plan quick --models demo --precisions int8 --searches greedy", 5),
        "growth": ("--models demo --rounds 2 --rows 1 8 32 128", 4),
        "products": ("--rounds 2 --rows 1 32", 1),
    },
    "usual": {
        "offline": ("--quick --batches 1 8 32 64", 45),
        "without_vnni": ("--quick --precisions int8 --batches 1 8 32", 18),
        "serving": ("--plan usual --precisions int8", 45),
        "growth": ("--rounds 3 --rows 1 8 32 128", 12),
        "products": ("--rounds 3 --rows 1 8 32 64", 3),
    },
    "full": {
        "offline": ("", 180),
        "without_vnni": ("--quick --batches 1 8 32 64", 60),
        "serving": ("", 150),
        "growth": ("", 45),
        "products": ("--rounds 9", 10),
    },
}


def parts(
    length: str, device: str, sentences: Path, bundles: Mapping[str, Path], *, vnni: bool = False
) -> Iterator[Part]:
    """What is run, in order. `length` is one of `PARTS`; the `bundles` are those whose steps are measured."""
    on_cuda = device == "cuda"
    texts = () if sentences == places.SENTENCES else ("--sentences", str(sentences))
    for name, (flags, minutes) in PARTS[length].items():
        words: tuple[str, ...] = (f"benchmarks.runs.{name}", *flags.split())
        if name in ("offline", "growth"):
            words += ("--device", device) if on_cuda else ()
        elif on_cuda or (name == "without_vnni" and not vnni):
            continue
        if name == "without_vnni":
            words = ("benchmarks.runs.avx2", "python", "-m", "benchmarks.runs.offline", *words[1:])
            words += ("-o", str(places.result(name)))
        if name in ("offline", "serving", "without_vnni"):
            words += texts
        if name != "products":
            yield Part(name, words, minutes)
            continue
        for model, bundle in bundles.items():
            output = ("-o", str(places.result(f"products-{model}")))
            yield Part(name, (words[0], str(bundle), *words[1:], *output), minutes)


def run(part: Part, environment: Mapping[str, str]) -> int:
    """Run it to its end or its limit; return its exit code. KeyboardInterrupt: Ctrl-C ended it."""
    process = subprocess.Popen(
        [sys.executable, "-m", *part.words],
        cwd=places.ROOT,
        env=environment,
        start_new_session=True,  # so that Ctrl-C reaches the process once, from here
    )
    try:
        return process.wait(timeout=60 * part.minutes)
    except subprocess.TimeoutExpired:
        return ENDED
    finally:
        end(process)


def run_all(
    chosen: Sequence[Part],
    environment: Mapping[str, str],
    minutes: float,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, int]:
    """Run benchmarks one after the other for so many minutes at most; return the exit code of each."""
    codes = {}
    begun = clock()
    for part in chosen:
        left = minutes - ((started := clock()) - begun) / 60
        if left <= 0:
            print(f"\nsuite: {part}: left out, as {minutes:g} minutes are over", flush=True)
            codes[str(part)] = ENDED
            continue
        print(f"\nsuite: {part}", flush=True)
        try:
            codes[str(part)] = code = run(part._replace(minutes=min(part.minutes, left)), environment)
        except KeyboardInterrupt:
            codes[str(part)] = 130
            break
        told = {0: "done", ENDED: "ended at its limit; what it had is kept"}.get(code, f"failed with exit code {code}")
        print(f"suite: {told}, {clock() - started:.0f} s", flush=True)
    return codes


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process, if it runs, and then what is left of its descendants."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout=GRACE)
        except subprocess.TimeoutExpired:
            print(f"suite: process {process.pid} does not end; it is killed", file=sys.stderr)
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


def libraries() -> str:
    """The folders of CUDA's libraries that pip installed, and then LD_LIBRARY_PATH: CTranslate2 looks nowhere else."""
    folders = sorted(Path(sysconfig.get_path("purelib")).glob("nvidia/*/lib"))
    return os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])


def remove(names: Collection[str], device: str) -> None:
    """Remove what these benchmarks wrote before, so that the report mixes no runs."""
    for name in names:
        folder = places.result(name, device).parent
        # others of `offline` are runs that somebody kept
        for path in (folder / f"{name}.json", *(folder.glob(f"{name}-*.json") if name != "offline" else ())):
            path.unlink(missing_ok=True)


def sentences_of(path: Path | None, folder: Path) -> Path:
    """What is translated: the file named, the test sentences beside the repository, or a few of our own."""
    if path or places.SENTENCES.is_file():
        return path or places.SENTENCES
    own = folder / "own-sentences.tsv.gz"
    folder.mkdir(parents=True, exist_ok=True)
    with gzip.open(own, "wt", encoding="utf-8") as file:
        file.writelines(
            f"{source}\t{reference}\n" for source, reference in zip(BUILT_IN["zh"], BUILT_IN["en"], strict=True)
        )
    print(f"suite: there is no {places.SENTENCES}; {len(BUILT_IN['zh'])} sentences are translated again and again")
    return own


def bundles_of() -> dict[str, Path]:
    """The bundles whose steps are measured, by name and precision; made where they are not there."""
    bundles = {}
    for name, precision in itertools.product(NAMES, PRECISIONS):
        try:
            bundles[f"{name}-{precision}"] = own_bundle(name, precision, places.MODELS)
        except Unavailable as reason:
            print(f"suite: skipped: {reason}", file=sys.stderr)
    return bundles


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--quick", dest="length", action="store_const", const="quick", help="fewer cells and rounds")
    kinds.add_argument("--full", dest="length", action="store_const", const="full", help="all cells, more rounds")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--only", nargs="+", choices=PARTS["usual"])
    parser.add_argument("--sentences", type=Path, help="source, tab, reference on each line; gzip")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the benchmark that runs is ended, too
    if arguments.device == "cuda":
        try:
            choose_precision("cuda", ["fp16"])
        except DeviceError as error:
            print(f"suite: skipped: {error}")
            return
    wanted = arguments.only or list(PARTS["usual"])
    bundles = bundles_of() if "products" in wanted and arguments.device == "cpu" else {}
    sentences = sentences_of(arguments.sentences, places.RESULTS)
    vnni = has_vnni(processor())
    length = arguments.length or "usual"
    chosen = [part for part in parts(length, arguments.device, sentences, bundles, vnni=vnni) if part.name in wanted]
    print("\n".join(f"suite: {part}, {part.minutes:g} minutes at most" for part in chosen))
    print(f"suite: {MINUTES[length]:g} minutes at most, all together", flush=True)
    remove({part.name for part in chosen}, arguments.device)
    environment = dict(os.environ)
    if arguments.device == "cuda":
        environment["LD_LIBRARY_PATH"] = libraries()
    codes = run_all(chosen, environment, MINUTES[length])
    report = [sys.executable, "-m", "benchmarks.report", "--device", arguments.device]
    codes["report"] = subprocess.run(report, cwd=places.ROOT, check=False).returncode
    failed = {name: code for name, code in codes.items() if code not in (0, ENDED)}
    sys.exit(f"suite: failed: {json.dumps(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
