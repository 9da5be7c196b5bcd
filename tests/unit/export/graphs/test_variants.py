"""Every variant eagerly: steps give what teacher forcing gives, and heads of padded sizes compute the same."""

from typing import Any

import pytest
import torch
from torch import Tensor

from helpers.architectures import VARIANTS
from helpers.bundles import SMALL_SIZES, random_model
from translane_export.graphs.encoder_decoder import DecoderGraph, EncoderGraph
from translane_export.graphs.head_padding import pad_heads, padded_config, unpad_heads
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


UNEVEN: dict[str, Any] = SMALL_SIZES | {"source_vocab_size": 13, "d_model": 12, "heads": 3, "max_positions": 16}
ODD: dict[str, dict[str, Any]] = {
    "odd sizes": {"head_size": 5, "value_size": 3},
    "values longer, odd": {"head_size": 3, "value_size": 17},
    "one number a head": {"head_size": 1},
    "grouped": {"head_size": 5, "value_size": 11, "kv_heads": 1, "attention_biases": False},
    "no scale": {"head_size": 5, "attention_scale": False},
    "any scale": {"head_size": 5, "attention_scale": 0.3},
    "rotary, halves": {"positions": "rotary", "head_size": 6},
    "rotary, halves, short values": {"positions": "rotary", "head_size": 10, "value_size": 3},
    "rotary, halves, long values": {"positions": "rotary", "head_size": 10, "value_size": 37},
    "rotary, neighbours": {"positions": "rotary", "head_size": 6, "rotary_interleaved": True},
    "rotary, neighbours, of a size that fits": {"positions": "rotary", "head_size": 16, "rotary_interleaved": True},
    "rotary, neighbours, odd values": {
        "positions": "rotary", "head_size": 18, "value_size": 5, "rotary_interleaved": True, "kv_heads": 1,
    },
    "relative vectors by head": {"relative_window": 2, "relative_shared": False, "head_size": 5, "value_size": 9},
    "relative vectors, unclipped": {"relative_window": 2, "relative_clipped": False, "head_size": 9, "value_size": 5},
}  # fmt: skip
CELLS = {"recurrent unit": VARIANTS["recurrent unit"] | {"d_model": 16, "heads": 2}}  # it needs a multiple of 8
EVERY = VARIANTS | ODD | CELLS


@pytest.mark.parametrize("variant", EVERY.values(), ids=EVERY.keys())
@torch.no_grad()
def test_a_padded_model_computes_the_same_and_its_weights_come_back_to_the_bit(variant):
    model = random_model(TransformerConfig(**(UNEVEN | variant))).double()
    source, lengths = torch.tensor([[4, 5, 6, 7, 8, 3], [9, 3, 0, 0, 0, 0]]), torch.tensor([6, 2])
    target = torch.tensor([[2, 4, 5, 6, 7], [2, 8, 9, 0, 0]])
    expected, before = model(source, lengths, target), {k: v.clone() for k, v in model.state_dict().items()}
    padded = pad_heads(model)
    torch.testing.assert_close(padded(source, lengths, target), expected, rtol=1e-12, atol=1e-12)
    restored = unpad_heads(padded.state_dict(), model.config)
    assert restored.keys() == before.keys()
    for name, tensor in before.items():
        assert torch.equal(model.state_dict()[name], tensor), name  # it is still what it was
        assert torch.equal(restored[name], tensor), name
