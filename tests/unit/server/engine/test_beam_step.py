"""Beams beside sentences of other kinds, and with a history that alignments need, decode what they decode alone."""

import random
from dataclasses import replace

import numpy as np
import pytest

from fakes.language_model import EOS, RandomBackend, RandomModel
from fakes.sequences import enter, sequences
from translane_server.engine.options import DecodingOptions
from translane_server.engine.running_batch import RunningBatch
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


def decode(sentences, model, seed, drops=0.05, streamed=False):
    """Hypotheses of each sentence that is not dropped, and all moves; sentences join, leave and are dropped."""
    generator = random.Random(seed)
    backend = RandomBackend(model, rows=ROWS)
    batch = RunningBatch(ROWS, backend.target_capacity, backend.source_capacity, model.vocabulary)
    waiting = sequences(sentences, streamed=streamed)
    results, moves = {}, []
    while waiting or batch.size:
        while waiting and waiting[0].rows <= ROWS - batch.reserved and (generator.random() < 0.7 or not batch.size):
            enter(batch, backend, [waiting.pop(0)])
        if generator.random() < drops:
            batch.drop({generator.randrange(len(sentences))})
        closed = batch.compact()
        backend.move_rows(closed)
        if batch.size:
            update = batch.advance(backend.decode_step(*batch.inputs, batch.needs))
            backend.move_rows(update.moves)
            moves.append((closed, sorted(update.moves)))
            results.update({search.sequence.number: search.hypotheses() for search in update.done})
    assert batch.reserved == 0
    return results, moves


@pytest.mark.parametrize("seed", range(200))
def test_beams_that_keep_their_history_decode_the_same_in_the_same_rows(seed):
    generator = random.Random(seed)
    model, beam_size = draw_model(generator), generator.randint(2, 6)
    sentences = [draw_sentence(generator, beam_size) for _ in range(generator.randint(1, 9))]
    plain = decode(sentences, model, seed)
    assert plain == decode(sentences, model, seed, streamed=True)
    results, moves = decode([aligned(sentence) for sentence in sentences], model, seed)
    assert plain == (without_alignment(results), moves)


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
    results, _ = decode(mixed, model, seed)
    alone = {number: decode([mixed[number]], model, seed, drops=0)[0] for number in results}
    assert {number: {0: found} for number, found in results.items()} == alone
