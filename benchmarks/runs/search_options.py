"""Where the options of CTranslate2's search mean what they mean here: counts equal translations for each option.

    python -m benchmarks.runs.search_options

Both decode the demo model in fp32. docs/decoding.md explains the differences.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.models.ctranslate2_conversion import END, START, UNKNOWN, convert_bundle, tokens
from benchmarks.places import SENTENCES
from benchmarks.runs.agreement import BATCH
from helpers.demo import demo_in_fp32
from helpers.driver import BundleDecoder
from translane_export.train.data import read_parallel
from translane_server.bundle import Bundle, load_bundle
from translane_server.options import DecodingOptions
from translane_server.sentence import Sentence

LONGEST = 100
EARLY = {"beam_size": 4, "early_stopping": True}
FOUR = {"beam_size": 4}
# What is compared: options here, options of translate_batch.
CASES: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    ({}, {"beam_size": 1}),
    (EARLY, FOUR),
    (FOUR, FOUR),
    ({**EARLY, "length_penalty": 0.6}, {**FOUR, "length_penalty": 0.6}),
    ({**EARLY, "length_penalty": 0.0}, {**FOUR, "length_penalty": 0.0}),
    ({**FOUR, "length_penalty": 0.0}, {**FOUR, "length_penalty": 0.0}),
    ({**EARLY, "patience": 2.0}, {**FOUR, "patience": 2.0}),
    ({**EARLY, "max_length": 5}, {**FOUR, "max_decoding_length": 5}),
    ({"min_length": 8}, {"beam_size": 1, "min_decoding_length": 8}),
    ({**EARLY, "min_length": 8}, {**FOUR, "min_decoding_length": 8}),
    ({"repetition_penalty": 1.5}, {"beam_size": 1, "repetition_penalty": 1.5}),
    ({**EARLY, "repetition_penalty": 1.5}, {**FOUR, "repetition_penalty": 1.5}),
    ({"no_repeat_ngram_size": 2}, {"beam_size": 1, "no_repeat_ngram_size": 2}),
    ({**EARLY, "no_repeat_ngram_size": 2}, {**FOUR, "no_repeat_ngram_size": 2}),
    ({**EARLY, "coverage_penalty": 0.3}, {**FOUR, "coverage_penalty": 0.3}),
)


class Scored(NamedTuple):
    """A translation and its score."""

    token_ids: tuple[int, ...]
    score: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=Path, default=SENTENCES, help="source, tab, reference on each line")
    parser.add_argument("--count", type=int, default=200, help="sentences to translate")
    arguments = parser.parse_args()
    bundle = load_bundle(demo_in_fp32())
    texts = [pair.source for pair in read_parallel(arguments.sentences).pairs]
    with (
        tempfile.TemporaryDirectory() as folder,
        BundleDecoder(bundle, rows=48, source_capacity=LONGEST, target_capacity=LONGEST) as driver,
    ):
        sources = [ids for ids in driver.tokenizer.encode(texts[: arguments.count]) if 0 < len(ids) <= LONGEST]
        other = CTranslate2(bundle, Path(folder))
        print("| here | CTranslate2 | sentences | same tokens | of these, same scores |\n|---|---|--:|--:|--:|")
        for ours, theirs in CASES:
            options = DecodingOptions(**{"max_length": LONGEST, **ours})
            found = [best for best, *_ in driver.together([Sentence(source, options) for source in sources])]
            wanted = other.translate(sources, **theirs)
            pairs = [each for each in zip(found, wanted, strict=True) if tuple(each[0].token_ids) == each[1].token_ids]
            scored = sum(abs((one.score or 0.0) - two.score) < 1e-4 for one, two in pairs)
            print(f"| {_said(ours)} | {_said(theirs)} | {len(sources)} | {len(pairs)} | {scored} |", flush=True)


class CTranslate2:
    """The bundle's model in CTranslate2, which is imported here alone."""

    def __init__(self, bundle: Bundle, folder: Path) -> None:
        import ctranslate2

        convert_bundle(bundle.folder, folder / "model", "float32")
        self._translator = ctranslate2.Translator(str(folder / "model"), compute_type="float32", intra_threads=1)
        ids, sizes = bundle.manifest.special_ids, bundle.manifest.architecture
        specials = {ids.unk: UNKNOWN, ids.decoder_start: START, ids.eos: END}
        self._sources = tokens(sizes.source_vocab_size, specials)
        self._targets = {name: id_ for id_, name in enumerate(tokens(sizes.target_vocab_size, specials))}

    def translate(self, sources: Sequence[Sequence[int]], **options: Any) -> list[Scored]:
        named = [[self._sources[id_] for id_ in source] for source in sources]
        options = {"max_decoding_length": LONGEST, "min_decoding_length": 0, **options}
        results = self._translator.translate_batch(named, max_batch_size=BATCH, return_scores=True, **options)
        return [Scored(tuple(self._targets[name] for name in one.hypotheses[0]), one.scores[0]) for one in results]


def _said(options: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in options.items()) or "nothing set"


if __name__ == "__main__":
    main()
