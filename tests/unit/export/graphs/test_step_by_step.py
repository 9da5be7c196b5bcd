"""The graphs of every variant, run eagerly: a decoder that goes step by step gives what teacher forcing gives."""

from typing import Any

import pytest
import torch
from torch import Tensor

from helpers.architectures import VARIANTS
from helpers.bundles import SMALL_SIZES, random_model
from translane_export.graphs.encoder_decoder import DecoderGraph, EncoderGraph
from translane_export.graphs.head_padding import padded_config
from translane_export.graphs.signatures import own_caches
from translane_export.model import Transformer, TransformerConfig

SIZES: dict[str, Any] = SMALL_SIZES | {"source_vocab_size": 23, "encoder_layers": 2, "max_positions": 16}
SOURCE_LENGTHS = torch.tensor([11, 5, 1])
STEPS, CAPACITY = 12, 14


def model_of(variant: dict[str, Any], dtype: torch.dtype) -> Transformer:
    return random_model(TransformerConfig(**(SIZES | variant))).to(dtype)


def teacher_forcing(model: Transformer, source: Tensor, target: Tensor) -> Tensor:
    memory = model.encode(source, SOURCE_LENGTHS)
    return model.decode(target, memory, SOURCE_LENGTHS)  # [B, T, V]


def step_by_step(model: Transformer, source: Tensor, target: Tensor) -> Tensor:
    """Decode one token after the other; row b begins b steps late, so that rows are at positions of their own.

    Rows that have not begun, or are over, run the same step again and again.
    """
    config = padded_config(model.config)
    cross = EncoderGraph(model)(source, SOURCE_LENGTHS.int())
    decoder = DecoderGraph(model)
    rows, size = target.shape
    count, shape = own_caches(config, CAPACITY)
    # what other rows have left behind
    caches = [torch.randn(rows, *shape, dtype=decoder.dtype) * 100 for _ in range(count)]
    logits = torch.zeros(rows, size, config.target_vocab_size, dtype=decoder.dtype)
    row = torch.arange(rows)
    for step in range(size + rows - 1):
        positions = (step - row).clamp(0, size - 1)
        run = decoder.run(target[row, positions], positions.int(), SOURCE_LENGTHS.int(), [*caches, *cross])
        logits[row, positions], caches = run.logits, run.present
    return logits


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS.keys())
@torch.inference_mode()
def test_steps_equal_teacher_forcing(variant):
    torch.manual_seed(0)
    source = torch.randint(4, 23, (3, 11)).masked_fill(torch.arange(11) >= SOURCE_LENGTHS[:, None], 0)
    target = torch.randint(4, 30, (3, STEPS))
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.float64, 1e-10)):
        model = model_of(variant, dtype)
        expected = teacher_forcing(model, source, target)
        actual = step_by_step(model, source, target)
        assert expected.std() > 0.1
        assert actual.dtype == dtype
        torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)
