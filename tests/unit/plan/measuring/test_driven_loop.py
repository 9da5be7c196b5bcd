"""The server's replica loop, driven round after round over a backend without a model."""

import itertools

import pytest

from fakes.backend import EOS, VOCABULARY, FakeBackend
from translane_plan.errors import PlanError
from translane_plan.measuring.driven_loop import Round, run_rounds
from translane_server.options import DecodingOptions
from translane_server.sentence import Sentence
from translane_server.vocabulary import TargetVocabulary

OPTIONS = DecodingOptions(max_length=20, scores=False)


def sentences(*lengths):
    return [Sentence([10] * (length - 1) + [EOS], OPTIONS) for length in lengths]


def run(rounds, vocabulary=VOCABULARY, backend=None):
    backend = backend or FakeBackend(rows=4)
    ticks = itertools.count()
    return list(run_rounds(backend, vocabulary, iter(rounds), lambda: float(next(ticks)))), backend


def test_every_round_has_its_own_times():
    done, backend = run([sentences(3, 5), sentences(4)])
    assert [each.sentences for each in done] == [2, 1]
    assert [each.targets for each in done] == [{0: 3, 1: 5}, {0: 4}]
    assert [len(each.steps) for each in done] == [5, 4]
    assert [rows for _, rows in done[0].steps] == [2, 2, 2, 1, 1]
    assert [tokens for _, tokens in done[0].encodes] == [8]
    for each in done:
        assert each.seconds >= each.encode + sum(seconds for seconds, _ in each.steps)
        assert each.rest > 0
    assert backend.closed


def test_only_their_lengths_end_sentences_without_an_end():
    options = DecodingOptions(max_length=3, scores=False)
    done, _ = run([[Sentence([10] * 9, options)] * 2], TargetVocabulary(VOCABULARY.decoder_start, -1, ()))
    assert done[0].targets == {0: 3, 1: 3}
    assert [rows for _, rows in done[0].steps] == [2, 2, 2]


def test_a_step_that_fails_is_an_error():
    backend = FakeBackend(rows=4)
    backend.fail_at_step = 1
    with pytest.raises(PlanError, match="a step of the model has failed"):
        run([sentences(3)], backend=backend)


def test_the_rest_of_a_round_is_what_no_part_took():
    found = Round(1, seconds=10.0, encodes=[(1.0, 4), (0.5, 4)], steps=[(2.0, 1), (4.0, 1)], moves=[(0.5, 1)])
    assert (found.encode, found.step, found.rest) == (1.5, 3.0, 2.0)
