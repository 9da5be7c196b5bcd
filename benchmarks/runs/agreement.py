"""Whether Translane and CTranslate2 compute the same: compares their translations, token for token.

    python -m benchmarks.runs.agreement
    python -m benchmarks.runs.agreement --models demo

Both decode in fp32, greedily and with four beams: the demo model every test sentence, the base model random sources.
Where a model's two best choices are closer than rounding, either one is right, and translations differ.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.engines.decoder_process import DecoderProcess
from benchmarks.engines.settings import CTRANSLATE2, TRANSLANE
from benchmarks.models.benchmarked import NAMES, prepare
from benchmarks.models.workload import LONGEST, SEARCHES, Load, make_load
from benchmarks.places import MODELS, SENTENCES
from benchmarks.runs.offline import pairs_of

BATCH = 32
RANDOM_SENTENCES, RANDOM_LENGTH = 256, 24  # random weights end few sentences


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--sentences", type=Path, default=SENTENCES, help="source, tab, reference on each line")
    parser.add_argument("--folder", type=Path, default=MODELS, help="of converted models")
    arguments = parser.parse_args()
    print("| model | search | sentences | tokens | mismatches |\n|---|---|---:|---:|---:|")
    for name in arguments.models:
        model = prepare(name, "fp32", arguments.folder)
        pairs = pairs_of(model, name, arguments.sentences)
        for search, beam_size in SEARCHES.items():
            count, length = (len(pairs), LONGEST) if name == "demo" else (RANDOM_SENTENCES, RANDOM_LENGTH)
            load = make_load(pairs, count, BATCH, beam_size, fixed=False, max_length=length)
            rows, longest = BATCH * beam_size, max(map(len, load.sources))
            capacity = {"source_tokens": longest, "target_tokens": load.max_length, "ends": True}
            ours = translate(
                TRANSLANE,
                load,
                model.bundle,
                replicas=1,
                threads=1,
                rows=rows,
                **capacity,
            )
            theirs = translate(
                CTRANSLATE2,
                load,
                model.converted,
                workers=1,
                threads=1,
                compute_type="float32",
            )
            tokens = sum(map(len, ours))
            print(f"| {name} | {search} | {len(ours):,} | {tokens:,} | {mismatches(ours, theirs):,} |", flush=True)


def translate(decoder: str, load: Load, model: Path, **options: Any) -> list[tuple[int, ...]]:
    with DecoderProcess(decoder) as process:
        process.open(model, **options)
        process.load(load)
        translations = process.decode(translations=True).translations
    assert translations is not None
    return translations


def mismatches(ours: Sequence[tuple[int, ...]], theirs: Sequence[tuple[int, ...]]) -> int:
    return sum(our != their for our, their in zip(ours, theirs, strict=True))


if __name__ == "__main__":
    main()
