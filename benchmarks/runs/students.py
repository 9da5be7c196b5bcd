"""Firefox's students of their true sizes: Translane in int8 against fxtranslate, on one thread.

    pip install --group bench
    python -m benchmarks.runs.students --sizes tiny base --tool FOLDER

The recorded students (shared/data/marian-students beside the checkout) and the tool that makes models are no part of
the repository. The models have random weights, 32,000 pieces, of which a vocabulary of the recorded students has the
first, and end no sentence: both engines translate as far as fxtranslate's rule of length lets them. Both get texts and
give texts.
fxtranslate has no batches. The engines take turns, and times are processor times, as other programs run meanwhile.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import places
from benchmarks.machine import Usage, describe
from benchmarks.measuring.turns import turns
from benchmarks.report.results import write
from helpers.driver import BundleDecoder
from helpers.marian_students import STUDENTS, lexicon, recorded, student_folder
from translane_export.bundle_writer import export_checkpoint
from translane_export.core.settings import ExportSettings
from translane_export.sources.marian_bin import read_container
from translane_server.bundle.bundle import Bundle, load_bundle
from translane_server.engine.options import DecodingOptions
from translane_server.engine.sequence import Sentence

NAME, PIECES, OF_A_LIST = "de-en-shared", 32_000, 50
SIZES = {  # --dim, --enc, --dec and --ffn
    "tiny": (256, 6, 2, 1536),
    "base-memory": (384, 6, 4, 1536),
    "base": (512, 6, 2, 2048),
}
LONGEST = 256  # tokens


def made(size: str, tool: Path, folder: Path) -> tuple[Path, Bundle]:
    """The folder of a student as Firefox ships it, with a shortlist, and its int8 bundle; made once, and kept."""
    student, output = folder / f"student-{size}", folder / f"student-{size}-int8"
    if not student.exists():
        files = STUDENTS / NAME
        flags = zip(("dim", "enc", "dec", "ffn"), SIZES[size], strict=True)
        command = [sys.executable, str(tool / "make_model.py"), str(folder / size), "--kind=random", "--stop=0"]
        command += [f"--src-vocab={files / 'vocab.spm'}", f"--text={files / 'expected.tsv'}", "--calib=4"]
        command += [f"--vocab-size={PIECES}", "--no-saturation", *(f"--{name}={value}" for name, value in flags)]
        subprocess.run(command, check=True)
        student_folder(student, NAME, unknowns=True)
        next(student.glob("model.*.bin")).write_bytes(_without_ends(folder / size / "model.bin"))
        draw = np.random.default_rng(3)
        lists = [sorted(set(draw.integers(0, 2_000, OF_A_LIST).tolist())) for _ in range(2_000)]
        (student / "lex.50.50.deen.s2t.bin").write_bytes(lexicon(lists, first=OF_A_LIST))
    if not output.exists():
        export_checkpoint(ExportSettings(checkpoint=student, output=output, threads=1, precision="int8"))
    return student, load_bundle(output)


def _without_ends(path: Path) -> bytes:
    """The file of a student, whose end of a sentence has a bias that no logit makes up for."""
    bias = read_container(path).arrays["decoder_ff_logit_out_b"].numpy()
    before = bias.tobytes()
    bias[0, 0] = -100
    return path.read_bytes().replace(before, bias.tobytes())


class Ours:
    """Translane's engine on a bundle."""

    def __init__(self, decoder: BundleDecoder, rows: int, *, shortlist: bool) -> None:
        self._decoder = decoder
        self._rows = rows
        self._shortlist = shortlist
        self.tokens = 0

    def translate(self, texts: Sequence[str]) -> None:
        """Translate texts, `rows` at a time; their tokens are counted."""
        decoder, self.tokens = self._decoder, 0
        decoder.vocabulary = replace(decoder.vocabulary, surfaces=())  # a server reads them once
        for first in range(0, len(texts), self._rows):
            sentences = [
                Sentence(ids, DecodingOptions(min(2 * len(ids) + 4, LONGEST), shortlist=self._shortlist, scores=False))
                for ids in decoder.tokenizer.encode(list(texts[first : first + self._rows]))
            ]
            found = [list(best.token_ids) for best, *_ in decoder.together(sentences)]
            decoder.tokenizer.decode(found)
            self.tokens += sum(map(len, found))


def _each(engine: Any, texts: Sequence[str]) -> None:
    """Have an engine translate texts, one by one."""
    for text in texts:
        engine.translate(text)


def seconds(translate: Callable[[Sequence[str]], object], texts: Sequence[str]) -> float:
    """Processor time."""
    started = time.process_time()
    translate(texts)
    return time.process_time() - started


def measure(student: Path, bundle: Bundle, texts: Sequence[str], rounds: int) -> dict[str, dict[str, float]]:
    """Median tokens/s of each engine, with the whole vocabulary and with the shortlist."""
    engine = importlib.import_module("fxtranslate").Translator
    vocabulary = (STUDENTS / NAME / "vocab.spm").read_bytes()
    model, lists = (next(student.glob(pattern)).read_bytes() for pattern in ("model.*.bin", "lex.*.bin"))
    found: dict[str, dict[str, list[float]]] = {}
    with BundleDecoder(bundle, rows=32, source_capacity=LONGEST, target_capacity=LONGEST) as decoder:
        for kind, content in (("vocabulary", ()), ("shortlist", (lists,))):
            theirs = engine(model, vocabulary, vocabulary, *content)
            ours = {f"translane {rows}": Ours(decoder, rows, shortlist=bool(content)) for rows in (1, 32)}
            engines: dict[str, Callable[[Sequence[str]], object]] = {
                name: each.translate for name, each in ours.items()
            }
            engines["fxtranslate"] = partial(_each, theirs)
            times = found[kind] = {name: [] for name in engines}
            for order in turns([*engines], rounds):
                for name in order:
                    times[name].append(seconds(engines[name], texts))
            tokens = ours["translane 1"].tokens
            found[kind] = {name: [tokens / each for each in times[name]] for name in engines}
    return {kind: {name: statistics.median(each) for name, each in rates.items()} for kind, rates in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=tuple(SIZES))
    parser.add_argument("--tool", type=Path, default=STUDENTS.parents[1] / "tools/marian-student")
    parser.add_argument("--sentences", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=places.MODELS, help="of models that are made")
    parser.add_argument("-o", "--output", type=Path, default=places.result("students"))
    arguments = parser.parse_args()
    texts = [source for source, _ in recorded(NAME)[: arguments.sentences]]
    usage = Usage()
    record: dict[str, Any] = {"machine": describe(), "sentences": len(texts), "sizes": {}}
    for size in arguments.sizes:
        found = measure(*made(size, arguments.tool, arguments.folder), texts, arguments.rounds)
        record["sizes"][size] = found
        write(arguments.output, record | {"usage": usage.so_far()})
        for kind, rates in found.items():
            print(f"{size}, {kind}: " + ", ".join(f"{name} {each:,.0f}" for name, each in rates.items()), "tokens/s")


if __name__ == "__main__":
    main()
