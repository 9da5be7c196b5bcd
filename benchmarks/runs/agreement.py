"""Whether the engines that are compared compute the same thing: their translations, token for token.

    python benchmarks/agreement.py
    python benchmarks/agreement.py --models demo

In fp32, greedy and with four beams: the demo model on every test sentence, the base model on random sources. A model's
two best choices may be closer than rounding; then either is right, and translations differ.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarked_models import NAMES, prepare
from decoder_process import DecoderProcess
from offline import ROOT, SEARCHES, SENTENCES, pairs_of
from workload import LONGEST, Load, make_load

BATCH = 32
RANDOM_SENTENCES, RANDOM_LENGTH = 256, 24  # random weights end few sentences


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--sentences", type=Path, default=SENTENCES, help="source, tab, reference on each line")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "bench" / "models", help="of converted models")
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
                "translane_decoder.TranslaneDecoder", load, model.bundle, replicas=1, threads=1, rows=rows, **capacity
            )
            theirs = translate(
                "ctranslate2_peer.CTranslate2Decoder", load, model.peer, workers=1, threads=1, compute_type="float32"
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
