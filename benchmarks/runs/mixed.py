"""What plain rows pay for a row that decodes in another way beside them.

    python -m benchmarks.runs.mixed models/zh-en

A step of plain greedy rows among themselves, of each other kind of sentence alone, and of both together, in turns:
processor time on one thread. Together they may take what the other sentence takes alone, and little more than what the
plain rows take. No sentence ends before the others.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import places
from benchmarks.machine import Usage, describe
from benchmarks.measuring.turns import turns
from benchmarks.report import tables
from benchmarks.report.results import write
from translane_server.bundle.bundle import load_bundle
from translane_server.engine import sequence
from translane_server.engine.loop import EngineLoop
from translane_server.engine.offline import GivenSequences
from translane_server.engine.options import DecodingOptions, RequiredPhrase, Sampling
from translane_server.runtime.ort import OrtBackend
from translane_server.runtime.sessions import Sessions

NEVER = -1  # an end-of-sentence id that no model predicts
BEAM = 4
SOURCE_LENGTH = 12
# The options and fields of a sentence of each kind.
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "stream": ({}, {}),
    "scores": ({"scores": True}, {}),
    "alignment": ({"alignment": True}, {}),
    "sample": ({"sampling": Sampling(seed=1, top_k=10)}, {}),
    "sample of all": ({"sampling": Sampling(seed=1, top_p=0.9)}, {}),
    "beam": ({"beam_size": BEAM}, {}),
    "n-best": ({"beam_size": BEAM, "num_hypotheses": BEAM, "scores": True}, {}),
    "constraint": ({"beam_size": BEAM}, {"required_phrases": (RequiredPhrase(b"27 28", (27, 28)),)}),
}


class Steps:
    """Decodes sentences of `steps` tokens, beside at most `plain_rows` plain ones."""

    def __init__(self, folder: Path, plain_rows: int, steps: int) -> None:
        self.bundle = bundle = load_bundle(folder)
        rows = plain_rows + BEAM
        self._backend = OrtBackend(
            Sessions(bundle, threads=1), rows=rows, source_capacity=SOURCE_LENGTH, target_capacity=steps
        )
        self._backend.warm_up()
        size = bundle.manifest.architecture.target_vocab_size
        surfaces = [b" %d" % token for token in range(size)]
        self._vocabulary = sequence.TargetVocabulary(bundle.manifest.special_ids.decoder_start, NEVER, surfaces)
        self._steps = steps
        pick = random.Random(0)
        ids = range(4, bundle.manifest.architecture.source_vocab_size - 1)
        self._sources = [pick.choices(ids, k=SOURCE_LENGTH) for _ in range(rows)]

    def seconds(self, kinds: Sequence[str]) -> float:
        """Processor time of a step of sentences of these kinds."""
        sequences = []
        for number, (kind, source) in enumerate(zip(kinds, self._sources, strict=False)):
            options, fields = KINDS[kind]
            sentence = sequence.Sentence(source, DecodingOptions(self._steps, **{"scores": False, **options}), **fields)
            sequences.append(sequence.Sequence(number, 0, time.perf_counter(), kind == "stream", sentence))
        given = GivenSequences(sequences)
        started = time.thread_time()
        EngineLoop(self._backend, given, self._vocabulary).run()
        assert len(given.results) == len(kinds), "a step has failed"
        return (time.thread_time() - started) / self._steps

    def close(self) -> None:
        """Release the model."""
        self._backend.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path, nargs="?", default=places.DEMO)
    parser.add_argument("--rows", type=int, default=31, help="plain ones")
    parser.add_argument("--steps", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("-o", "--output", type=Path, default=places.result("mixed"))
    arguments = parser.parse_args()
    steps, usage, record = Steps(arguments.bundle, arguments.rows, arguments.steps), Usage(), {"machine": describe()}
    plain = ("plain",) * arguments.rows
    cases = [plain, *[(kind,) for kind in KINDS], *[(*plain, kind) for kind in KINDS]]
    found: dict[tuple[str, ...], list[float]] = {case: [] for case in cases}
    for case in cases:
        steps.seconds(case)  # what is done once for a number of rows
    for order in turns(cases, arguments.rounds):
        for case in order:
            found[case].append(steps.seconds(case))
    steps.close()
    manifest = steps.bundle.manifest
    measured = record | {
        "usage": usage.so_far(),
        "model": manifest.name,
        "precision": manifest.precision,
        "plain_rows": arguments.rows,
        "plain": found[plain],
        "kinds": {kind: {"alone": found[kind,], "together": found[(*plain, kind)]} for kind in KINDS},
    }
    write(arguments.output, measured)
    print("\n".join(tables.mixed(measured)))


if __name__ == "__main__":
    main()
