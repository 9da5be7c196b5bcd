"""Every architecture and variant, as a whole model: what may depend on what, gradients, and what is saved."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from helpers.architectures import ARCHITECTURES, VARIANTS
from translane_export.model import Transformer, TransformerConfig
from translane_export.model.norms import BatchNorm

# longer than every window, so that there is something to hide
SOURCE_LENGTHS, TARGET_LENGTHS = torch.tensor([13, 6, 1]), torch.tensor([5, 11, 3])
EXACT: dict[str, Any] = {"rtol": 1e-12, "atol": 1e-12}

EVERY = VARIANTS | ARCHITECTURES
every_variant = pytest.mark.parametrize("variant", EVERY.values(), ids=EVERY.keys())


@pytest.fixture
def make(make_model):
    """Build a model whose running statistics are random, too."""

    def made(**variant: Any) -> Transformer:
        model: Transformer = make_model(**variant)
        for module in model.modules():
            if isinstance(module, BatchNorm):
                module.running_mean.normal_()
                module.running_var.uniform_(0.5, 2)
        return model

    return made


def sentences(lengths: Tensor, vocabulary: int, first: int | None = None) -> Tensor:
    size = int(lengths.max())
    ids = torch.randint(4, vocabulary, (len(lengths), size))
    if first is not None:
        ids[:, 0] = first
    return ids.masked_fill(torch.arange(size) >= lengths[:, None], 0)


def batch(config: TransformerConfig) -> tuple[Tensor, Tensor, Tensor]:
    source = sentences(SOURCE_LENGTHS, config.source_vocab_size)
    return source, SOURCE_LENGTHS, sentences(TARGET_LENGTHS, config.target_vocab_size, config.start_id)


@every_variant
def test_neither_padding_nor_neighbours_change_a_sentence(make, variant):
    model = make(**variant)
    source, lengths, target = batch(model.config)
    logits = model(source, lengths, target)
    # longer padding, of anything
    wider = nn.functional.pad(source, (0, 4)).masked_fill(torch.arange(17) >= lengths[:, None], 9)
    longer = model(wider, lengths, nn.functional.pad(target, (0, 3)))
    for row, (source_size, target_size) in enumerate(zip(SOURCE_LENGTHS, TARGET_LENGTHS, strict=True)):
        own = slice(row, row + 1)
        alone = model(source[own, :source_size], lengths[own], target[own, :target_size])
        torch.testing.assert_close(logits[own, :target_size], alone, **EXACT)
        torch.testing.assert_close(longer[own, :target_size], alone, **EXACT)


@every_variant
def test_gradients_are_those_of_finite_differences(make, variant):
    """All parameters at once, along random directions."""
    config = {
        "encoder_layers": 1,
        "decoder_layers": 1,
        "d_model": 8,
        "ffn_size": 6,
        "dropout": 0.0,
        "activation": "silu",
    }
    sizes = {} if "head_size" in variant else {"head_size": 4}
    model = make(**(variant | config | sizes)).train()
    source, target = torch.tensor([[4, 5, 6, 3], [7, 3, 0, 0]]), torch.tensor([[2, 4, 5], [2, 6, 0]])
    parameters = dict(model.named_parameters())
    statistics = {name: tensor.clone() for name, tensor in model.named_buffers()}

    def logits(*values: Tensor) -> Tensor:
        given = dict(zip(parameters, values, strict=True))
        copies = {name: tensor.clone() for name, tensor in statistics.items()}
        arguments = (source, torch.tensor([4, 2]), target)
        result: Tensor = torch.func.functional_call(model, given | copies, arguments)
        return result[target != 0]

    values = tuple(parameter.detach().requires_grad_() for parameter in parameters.values())
    assert torch.autograd.gradcheck(logits, values, fast_mode=True)
    used = torch.autograd.grad(logits(*values).square().sum(), values, allow_unused=True)
    assert [name for name, gradient in zip(parameters, used, strict=True) if gradient is None] == []


@every_variant
def test_training_in_bfloat16_has_numbers_everywhere(make_config, variant):
    model = Transformer(make_config(**variant)).train()
    source, lengths, target = batch(model.config)
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(source, lengths, target)
    logits.float().square().mean().backward()
    assert logits.isfinite().all()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
