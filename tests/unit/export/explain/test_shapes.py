"""A token's way ends at the model's own probabilities, in every arrangement, and every shape is what it says."""

import pytest
import torch

from helpers.architectures import ARCHITECTURES, TRAINED
from helpers.bundles import SMALL_SIZES, random_model
from translane_export.explain.shapes import follow_token
from translane_export.model import TransformerConfig

SOURCE, FED = [5, 6, 7, 3], [2, 9, 11]


def made(**config):
    sizes = {key: value for key, value in {**SMALL_SIZES, **config}.items() if key != "joint"}
    return random_model(TransformerConfig(**sizes))


@pytest.mark.parametrize("name", [*ARCHITECTURES, *TRAINED])
def test_it_ends_at_the_models_probabilities(name):
    model = made(**{**ARCHITECTURES, **TRAINED}[name])
    way = follow_token(model, SOURCE, FED)
    with torch.inference_mode():
        logits = model(torch.tensor([SOURCE]), torch.tensor([4]), torch.tensor([FED]))
    torch.testing.assert_close(way.probabilities, logits[0, -1].softmax(-1))
    assert [step.shape for step in way.steps][-1] == (1, 1, model.config.target_vocab_size)


def test_the_decoder_reads_one_token_and_looks_at_all_so_far():
    shapes = {(step.part, step.name): step.shape_text for step in follow_token(made(), SOURCE, FED).steps}
    assert shapes["decoder layer 1", "self-attention: queries"] == "[B, H, 1, D] = [1, 2, 1, 8]"
    assert shapes["decoder layer 1", "self-attention: keys"] == "[B, H, T, D] = [1, 2, 3, 8]"
    assert shapes["decoder layer 1", "cross-attention: values"] == "[B, H, S, D] = [1, 2, 4, 8]"
    assert shapes["encoder layer 0", "self-attention: queries"] == "[B, H, S, D] = [1, 2, 4, 8]"


def test_formulas_are_the_models():
    def formulas(**config):
        return {step.formula for step in follow_token(made(**config), SOURCE, FED).steps}

    assert {"QKᵀ / √D", "x W + b", "E[ids] · √M"} <= formulas()
    t5 = formulas(**ARCHITECTURES["T5"])
    assert {"QKᵀ + bias", "QKᵀ", "0.25 · x W", "E[ids]"} <= t5
    assert not any(formula.endswith(" + b") for formula in t5)
