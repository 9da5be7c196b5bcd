"""A step gives what is asked for, and asking for more changes nothing about the rest."""

import numpy as np
import pytest

from helpers.bundles import SOURCES, random_bundle
from translane_server.bundle.bundle import load_bundle
from translane_server.runtime.backend import RowMove, StepNeeds
from translane_server.runtime.ort import OrtBackend
from translane_server.runtime.sessions import Sessions
from translane_server.text.tokenizer import load_tokenizer

ROWS = 4


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return load_bundle(random_bundle(tmp_path_factory.mktemp("needs") / "bundle"))


@pytest.fixture
def backend(bundle):
    backend = OrtBackend(Sessions(bundle, threads=1), rows=ROWS, source_capacity=32, target_capacity=16)
    backend.encode(load_tokenizer(bundle).encode(SOURCES[:ROWS]), 0)
    return backend


def step(backend, rows=ROWS, position=0, **needs):
    return backend.decode_step(np.full(rows, 5, np.int64), np.full(rows, position, np.int32), StepNeeds(**needs))


def test_the_best_token_alone_unless_more_is_asked_for(backend):
    step = backend.decode_step(np.full(2, 5, np.int64), np.zeros(2, np.int32))
    assert step.token_ids.shape == step.log_probs.shape == (2, 1)
    assert step.logits is None


def test_candidates_are_the_best_by_logits(backend):
    asked = step(backend, num_candidates=6, logits=True)
    order = np.argsort(-asked.logits, axis=1, kind="stable")[:, :6]
    assert np.array_equal(asked.token_ids, order)


def test_more_candidates_than_tokens_are_all_tokens(backend, bundle):
    size = bundle.manifest.architecture.target_vocab_size
    asked = step(backend, num_candidates=size + 9)
    assert asked.token_ids.shape == (ROWS, size)
    assert np.array_equal(np.sort(asked.token_ids, axis=1), np.tile(np.arange(size), (ROWS, 1)))


def test_what_is_needed_changes_nothing_about_the_rest(backend):
    """Growing, shrinking and growing again, with other numbers of rows between."""
    log_probs: dict[tuple[int, int], float] = {}
    for rows, k, logits in ((4, 1, False), (2, 7, True), (4, 3, False), (3, 20, True), (4, 1, True), (4, 7, False)):
        asked = step(backend, rows, num_candidates=k, logits=logits)
        assert asked.token_ids.shape == (rows, k)
        assert (asked.logits is not None) == logits
        for row in range(rows):
            for token, log_prob in zip(asked.token_ids[row].tolist(), asked.log_probs[row].tolist(), strict=True):
                assert log_probs.setdefault((row, token), log_prob) == log_prob


def test_without_log_probabilities_the_candidates_are_the_same(backend):
    asked = step(backend, num_candidates=5)
    ids, log_probs = asked.token_ids.copy(), asked.log_probs.copy()
    for _ in range(2):
        without = step(backend, num_candidates=5, log_probs=False)
        assert without.log_probs is None
        assert np.array_equal(without.token_ids, ids)
        again = step(backend, num_candidates=5)
        assert np.array_equal(again.token_ids, ids)
        assert np.array_equal(again.log_probs, log_probs)


def test_a_duplicated_row_goes_on_as_its_source(backend):
    """With a source length of 0 too, where the target decodes the same sentence already."""
    for position in range(3):
        step(backend, position=position)
    backend.move_rows([RowMove(2, 0, target_length=3, source_length=32)])
    copied = step(backend, position=3, logits=True).logits.copy()
    assert np.array_equal(copied[0], copied[2])
    assert not np.array_equal(copied[0], copied[1])
    backend.decode_step(np.arange(4, 4 + ROWS), np.full(ROWS, 4, np.int32))  # 0 and 2 go different ways
    backend.move_rows([RowMove(0, 2, target_length=5, source_length=0)])
    again = step(backend, position=5, logits=True).logits
    assert np.array_equal(again[0], again[2])
