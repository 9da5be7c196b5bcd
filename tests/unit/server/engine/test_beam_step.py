"""Beams beside sentences of other kinds, and with a history that alignments need, decode what they decode alone."""

import random
from dataclasses import replace

import numpy as np
import pytest

from fakes.language_model import EOS, RandomModel
from fakes.sequences import decode
from translane_server.engine.options import DecodingOptions
from translane_server.engine.sequence import Sentence

ROWS = 24


class CoarseModel(RandomModel):
    """Logits that are often equal, or -inf but for one of them."""

    def __init__(self, *, grid, banned, **settings):
        super().__init__(**settings)
        self.grid, self.banned = grid, banned

    def logits(self, source, fed):
        logits = super().logits(source, fed)
        if self.grid:
            logits = np.round(logits / np.float32(self.grid)) * np.float32(self.grid)
        if self.banned:
            generator = np.random.default_rng([*source, *fed])
            banned = generator.random(len(logits)) < self.banned
            banned[generator.integers(len(logits))] = False
            logits = np.where(banned, np.float32(-np.inf), logits)
        return logits


def draw_model(generator):
    return CoarseModel(
        grid=generator.choice([0, 0.5, 1.5]),
        banned=generator.choice([0, 0, 0.5, 0.9]),
        vocab_size=generator.choice([3, 5, 40]),
        seed=generator.randrange(5),
        scale=generator.choice([0.5, 2.0]),
        eos_bias=generator.choice([-1.0, 1.0, 3.0]),
    )


def draw_sentence(generator, beam_size):
    patience = generator.choice([1.0, 1.0, 2.0, 0.5])
    options = DecodingOptions(
        max_length=generator.randint(1, 12),
        beam_size=beam_size,
        num_hypotheses=generator.randint(1, min(beam_size, max(1, round(patience * beam_size)))),
        length_penalty=generator.choice([1.0, 0.0, 2.0, -0.5]),
        early_stopping=generator.random() < 0.5,
        patience=patience,
        scores=generator.random() < 0.5,
    )
    source = [generator.randint(2, 30) for _ in range(generator.randint(1, 3))]
    return Sentence([*source, EOS], options)


def aligned(sentence):
    return sentence._replace(options=replace(sentence.options, alignment=True))


def without_alignment(results):
    return {
        number: tuple(hypothesis._replace(alignment=()) for hypothesis in hypotheses)
        for number, hypotheses in results.items()
    }


def moves_of(decoded):
    return [sorted(moves) for moves in decoded.backend.moves]


@pytest.mark.parametrize("seed", range(200))
def test_beams_that_keep_their_history_decode_the_same_in_the_same_rows(seed):
    generator = random.Random(seed)
    model, beam_size = draw_model(generator), generator.randint(2, 6)
    sentences = [draw_sentence(generator, beam_size) for _ in range(generator.randint(1, 9))]
    plain = decode(sentences, model, ROWS, seed=seed, drops=0.05)
    streamed = decode(sentences, model, ROWS, seed=seed, drops=0.05, streamed=True)
    kept = decode([aligned(sentence) for sentence in sentences], model, ROWS, seed=seed, drops=0.05)
    assert plain.results == streamed.results == without_alignment(kept.results)
    assert moves_of(plain) == moves_of(streamed) == moves_of(kept)


@pytest.mark.parametrize("seed", range(100))
def test_they_decode_the_same_beside_sentences_of_other_kinds(seed):
    generator = random.Random(seed)
    model = draw_model(generator)
    sentences = [draw_sentence(generator, generator.randint(2, 5)) for _ in range(6)]
    mixed = [
        aligned(sentence)
        if number % 3 == 1
        else sentence._replace(options=DecodingOptions(max_length=sentence.options.max_length))
        if number % 3 == 2
        else sentence
        for number, sentence in enumerate(sentences)
    ]
    results = decode(mixed, model, ROWS, seed=seed, drops=0.05).results
    assert results == {number: decode([mixed[number]], model, ROWS).results[0] for number in results}
