"""The alignment layer is the one that looks sharply and all over the source, and a flag overrides it."""

import numpy as np
import pytest

from helpers.bundles import SIZES, random_model
from translane_export.checks import alignment_layer
from translane_export.checks.alignment_layer import choose_alignment, score
from translane_export.model import TransformerConfig

SOURCES = [[5, 6, 7, 3], [8, 9, 3]]


@pytest.fixture(scope="module")
def model():
    return random_model(
        TransformerConfig(source_vocab_size=20, target_vocab_size=20, **SIZES | {"decoder_layers": 3, "heads": 2})
    )


def test_word_by_word_is_better_than_vague_and_than_staring():
    diagonal = np.eye(5, 6, dtype=np.float32)
    vague = np.full((5, 6), 1 / 6, np.float32)
    at_one_word, at_the_end = np.zeros((2, 5, 6), np.float32)
    at_one_word[:, 2] = at_the_end[:, 5] = 1
    assert score(diagonal) == 1
    assert score(at_the_end) == 0
    assert score(diagonal) > score(0.5 * diagonal + 0.5 * vague) > score(at_one_word) > score(vague)


def test_coverage_expects_no_more_source_tokens_than_there_are_steps():
    assert score(np.eye(2, 9, dtype=np.float32)) == 1


@pytest.mark.parametrize(
    ("scores", "layer"), [([0.1, 0.2, 0.9], 2), ([0.3, 0.2, 0.1], 0), ([0.2, 0.2, 0.201], 1), ([0.0, 0.0, 0.0], 1)]
)
def test_the_best_layer_or_else_the_penultimate_one(model, monkeypatch, scores, layer):
    monkeypatch.setattr(alignment_layer, "_score_layers", lambda *_: np.array(scores))
    chosen = choose_alignment(model, SOURCES)
    assert (chosen.layer, chosen.heads) == (layer, (0, 1))


def test_without_sources_it_is_the_penultimate_layer_unless_another_is_asked_for(model):
    assert [choose_alignment(model, sources).layer for sources in ([], [[3]])] == [1, 1]
    assert choose_alignment(model, SOURCES, layer=0).layer == 0
