"""Graphs, weights and their names are those that are recorded; and faults of rounding."""

from typing import Any

import pytest
import torch
import transformers

from helpers import hugging_face, rounding_faults
from helpers.recorded_exports import NAMES, differences, precisions, state_dict_differs

RECORDED = [(name, precision) for name in NAMES for precision in precisions(name)]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "precision"), RECORDED)
def test_graphs_and_weights_are_those_that_are_recorded(name, precision):
    different = list(differences(name, precision))
    assert not different, "\n".join(different)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_weights_have_the_names_that_are_recorded(name):
    different = list(state_dict_differs(name))
    assert not different, "\n".join(different)


# An honest export passes however a model's weights amplify rounding, and one with a fault in it does not.


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Marian", "mBART", "T5 v1.1"])  # norms after and before, and relative positions
def test_an_honest_export_passes_and_faults_do_not(name):
    exported = rounding_faults.export(name, 10)
    assert exported.passes()
    assert [fault.__name__ for fault in rounding_faults.FAULTS if exported.passes(fault)] == []


@pytest.mark.slow
def test_large_weights_of_a_model_of_transformers_export():
    assert rounding_faults.exports(hugging_face.draw(hugging_face.MODELS["mBART-50"], seed=1), 10)


@pytest.mark.slow
def test_large_activations_behind_small_logits_export():
    torch.manual_seed(0)
    config: Any = transformers.T5Config(  # type: ignore[call-arg]  # what all configurations take is not in its type
        vocab_size=320,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=1,
        num_heads=4,
        feed_forward_proj="gated-gelu",
        tie_word_embeddings=False,
    )
    assert rounding_faults.exports(transformers.T5ForConditionalGeneration(config), 3)
