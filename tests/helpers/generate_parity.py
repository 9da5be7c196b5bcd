"""Compares decoding with Hugging Face's `generate`: sentences with random options, every token and every score."""

import random
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from helpers.bundles import SOURCES, bundle_model, random_bundle
from helpers.demo import demo_in_fp32
from helpers.driver import BundleDecoder
from helpers.generate_oracle import GenerateOracle, bundle_transformer
from helpers.hugging_face import TIE, Comparison, Generated
from helpers.tatoeba import tatoeba
from translane_server.bundle.bundle import load_bundle
from translane_server.engine.options import DecodingOptions
from translane_server.engine.sequence import Hypothesis, Sentence

# Random weights that end sentences at many lengths, with every arrangement that changes a decoder's arithmetic.
RANDOM_MODELS: dict[str, dict[str, Any]] = {
    "post-norm": {"seed": 0, "eos_bias": 1.5},
    "pre-norm": {"seed": 0, "eos_bias": 1.5, "norm": "pre", "activation": "gelu"},
    "recurrent unit": {"seed": 1, "eos_bias": 1.5, "decoder_unit": "ssru"},
    "starts with eos": {"seed": 3, "eos_bias": 1.5, "positions": "learned", "joint": True},
}


@dataclass(frozen=True)
class Case:
    """Sentences that are decoded with the same options; `picks` is the seed of the sentences and their prefixes."""

    options: DecodingOptions
    prefix_length: int
    picks: int


@dataclass(frozen=True)
class Subject:
    """A model as the server runs it, the same model for `generate`, and sources to decode."""

    driver: BundleDecoder
    oracle: GenerateOracle
    sources: Sequence[Sequence[int]]

    def sentences(self, case: Case, count: int) -> list[Sentence]:
        """Return `count` sentences of a case."""
        pick = random.Random(case.picks)
        ids = [i for i in range(self.oracle.vocab_size) if i not in (self.oracle.eos, self.oracle.pad)]
        return [
            Sentence(pick.choice(self.sources), case.options, tuple(pick.choices(ids, k=case.prefix_length)))
            for _ in range(count)
        ]

    def compare(self, cases: Sequence[Case], count: int, comparison: Comparison) -> None:
        """Decode `count` sentences of each case, all in one batch, and add the results to `comparison`."""
        sentences = [sentence for case in cases for sentence in self.sentences(case, count)]
        expected = self.oracle.generate(sentences)
        for sentence, found, wanted in zip(sentences, self.driver.together(sentences), expected, strict=True):
            comparison.add(sentence, found, wanted, partial(self._are_ties, sentence, found, wanted))

    def _are_ties(self, sentence: Sentence, found: Sequence[Hypothesis], wanted: Generated) -> bool:
        """Whether each hypothesis is as good as the expected one, by Hugging Face's own scores."""
        if len(found) != len(wanted.hypotheses):
            return False
        scores = [
            [self.oracle.rescore(sentence, h.token_ids, ended=h.is_complete) for h in side]
            for side in (found, wanted.hypotheses)
        ]
        return all(abs(ours - theirs) < TIE for ours, theirs in zip(*scores, strict=True))


def cases(vocab_size: int) -> st.SearchStrategy[Case]:
    """Draw options that `generate` has, too. Most of the vocabulary can still be chosen."""
    lengths = st.integers(1, 16) if vocab_size < 1000 else st.integers(1, 16) | st.just(40)

    @st.composite
    def case(draw: st.DrawFn) -> Case:
        beam_size = draw(st.integers(1, 6))
        max_length = draw(lengths)
        options = DecodingOptions(
            max_length=max_length,
            min_length=draw(st.just(0) | st.integers(0, max_length)),
            beam_size=beam_size,
            num_hypotheses=draw(st.integers(1, beam_size)),
            length_penalty=draw(st.just(1.0) | _tenths(-10, 20)),
            early_stopping=draw(st.booleans()),
            repetition_penalty=draw(st.just(1.0) | _tenths(8, 20)),
            no_repeat_ngram_size=draw(st.integers(0, 4)),
            suppressed_ids=draw(
                st.just(())
                | st.sets(st.integers(0, vocab_size - 1), max_size=min(8, vocab_size // 5)).map(
                    lambda ids: tuple(sorted(ids))
                )
            ),
        )
        return Case(options, draw(st.just(0) | st.integers(0, 4)), draw(st.integers(0, 2**32 - 1)))

    return case()


def count(subject: Subject, *, examples: int, sentences: int, together: int = 4) -> Comparison:
    """Compare `examples` bags of up to `together` option sets, with `sentences` for each set. Each run is the same."""
    comparison = Comparison()

    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(cases(subject.oracle.vocab_size), min_size=1, max_size=together))
    def compare(bag: list[Case]) -> None:
        before = len(comparison.mismatches)
        subject.compare(bag, sentences, comparison)
        assert len(comparison.mismatches) == before, comparison.mismatches[-1]

    compare()
    return comparison


@contextmanager
def random_subject(name: str) -> Iterator[Subject]:
    """Yield one of `RANDOM_MODELS`, with random sources."""
    settings_of_model = RANDOM_MODELS[name]
    model = bundle_model(**settings_of_model)
    start = model.config.eos_id if name == "starts with eos" else None
    shuffle = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        bundle = load_bundle(random_bundle(Path(folder) / "bundle", **settings_of_model))
        with BundleDecoder(bundle, decoder_start=start, target_capacity=24) as driver:
            texts = ["".join(shuffle.sample("".join(SOURCES), shuffle.randint(1, 24))) for _ in range(200)]
            yield Subject(driver, GenerateOracle(model, start), driver.tokenizer.encode(texts))


@contextmanager
def demo_subject() -> Iterator[Subject]:
    """Yield the demo model in fp32, with the sentences of Tatoeba's test split."""
    bundle = load_bundle(demo_in_fp32())
    with BundleDecoder(bundle, target_capacity=48) as driver:
        sources = [ids for ids in driver.tokenizer.encode(tatoeba()[0]) if len(ids) <= driver.backend.source_capacity]
        yield Subject(driver, GenerateOracle(bundle_transformer(bundle.folder)), sources)


def _tenths(lowest: int, highest: int) -> st.SearchStrategy[float]:
    return st.integers(lowest, highest).map(lambda tenths: tenths / 10)
