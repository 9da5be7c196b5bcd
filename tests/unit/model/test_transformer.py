"""The Transformer as a whole: what it computes, its greedy search, its loss, its views and its recurrent unit."""

import random
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the field's spelling
from hypothesis import example, given, settings
from hypothesis import strategies as st
from local_attention import LocalAttention
from torch import nn

from helpers.bundles import SMALL_SIZES
from translane_export.model import PRESETS, Transformer, TransformerConfig, label_smoothed_cross_entropy
from translane_export.model.attention import ScaledDotProduct
from translane_export.model.fast_attention import attend_plainly
from translane_export.model.greedy import greedy_decode
from translane_export.model.layers import SSRU
from translane_export.model.masks import CausalRule, MaskRule, View, WindowRule

SOURCE = torch.tensor([[4, 5, 6, 7, 3], [8, 9, 3, 0, 0], [10, 3, 0, 0, 0]])
SOURCE_LENGTHS = torch.tensor([5, 3, 2])
TARGET = torch.tensor([[2, 4, 5, 6], [2, 7, 8, 9], [2, 10, 0, 0]])
EXACT: dict[str, Any] = {"rtol": 1e-12, "atol": 1e-12}


@pytest.mark.parametrize("rate", ["dropout", "attention_dropout", "activation_dropout"])
def test_each_dropout_acts_in_training_alone(make_model, rate):
    quiet = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
    model = make_model(**(quiet | {rate: 0.5}))
    evaluated = [model(SOURCE, SOURCE_LENGTHS, TARGET) for _ in range(2)]
    model.train()
    trained = [model(SOURCE, SOURCE_LENGTHS, TARGET) for _ in range(2)]

    assert torch.equal(*evaluated)
    assert not torch.allclose(*trained)


def test_padding_may_be_what_the_decoder_starts_with(make_model):
    model = make_model(decoder_start_id=0)
    target = TARGET.clone()
    target[:, 0] = 0
    memory = model.encode(SOURCE, SOURCE_LENGTHS)
    expected = model.decode(target, memory, SOURCE_LENGTHS)  # without lengths, everything is seen
    for row, length in enumerate((4, 4, 2)):
        found = model(SOURCE, SOURCE_LENGTHS, target)[row, :length]
        torch.testing.assert_close(found, expected[row, :length], **EXACT)


def test_the_logit_scale_is_of_the_logits_without_their_bias(make_model):
    model = make_model(logit_scale=1.0)
    scaled, bias = Transformer(model.config.changed(logit_scale=0.25)).double().eval(), model.output_projection.bias
    scaled.load_state_dict(model.state_dict())
    expected = (model(SOURCE, SOURCE_LENGTHS, TARGET) - bias) * 0.25 + bias
    torch.testing.assert_close(scaled(SOURCE, SOURCE_LENGTHS, TARGET), expected, **EXACT)


def parameter_count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_the_base_preset_has_the_papers_size():
    with torch.device("meta"):
        model = Transformer(
            TransformerConfig(
                source_vocab_size=37000, target_vocab_size=37000, tie_embeddings="three-way", **PRESETS["base"]
            )
        )
    # Table 3 says 65 million; 63 with its 37,000 pieces, of which 19 are embeddings.
    assert parameter_count(model) == pytest.approx(63.1e6, rel=0.002)


def test_initialisation(make_config):
    config = make_config(d_model=64, target_vocab_size=500, tie_embeddings="none")
    model = Transformer(config)
    embedding = model.decoder.embedding.tokens.weight.detach()
    ffn_limit = (6 / (64 + config.ffn_size)) ** 0.5
    layer: Any = model.encoder.layers[0]
    up_proj = layer.feed_forward.up_proj

    assert embedding[config.pad_id].abs().max() == 0
    assert embedding[1:].std().item() == pytest.approx(64**-0.5, rel=0.05)
    assert up_proj.weight.abs().max().item() == pytest.approx(ffn_limit, rel=0.02)
    # Q, K and V begin as parts of one matrix, [3·64, 64].
    assert layer.self_attention.q_proj.weight.abs().max().item() == pytest.approx((6 / (4 * 64)) ** 0.5, rel=0.02)
    assert all(module.bias.abs().max() == 0 for module in model.modules() if isinstance(module, nn.Linear))


CONFIG = TransformerConfig(**SMALL_SIZES | {"max_positions": 30, "dropout": 0.5})


def _model() -> Transformer:
    torch.manual_seed(3)
    return Transformer(CONFIG)


def _sources(count: int) -> list[list[int]]:
    draw = torch.Generator().manual_seed(1)
    lengths = torch.randint(1, 20, (count,), generator=draw).tolist()
    return [torch.randint(4, 30, (length,), generator=draw).tolist() for length in lengths]


def test_translations_end_at_the_limits_and_the_mode_is_restored():
    model, sources = _model().train(), _sources(20)
    with torch.no_grad():
        model.output_projection.bias[3] = -100.0  # eos never comes
    lengths = [len(ids) for ids in greedy_decode(model, sources)]
    assert lengths == [min(30, 2 * len(source) + 10) for source in sources]
    assert max(len(ids) for ids in greedy_decode(model, sources, max_length=7)) == 7
    assert model.training


def test_other_markers_and_suppressed_ids_are_the_models():
    torch.manual_seed(3)
    model = Transformer(CONFIG.changed(bos_id=3, decoder_start_id=0))
    (source,) = _sources(1)
    (ids,) = greedy_decode(model, [[7, *source]], complete=True)
    model.eval()
    memory = model.encode(torch.tensor([[7, *source]]), torch.tensor([len(source) + 1]))
    logits = model.decode(torch.tensor([[0, *ids]]), memory, torch.tensor([len(source) + 1]))[0]
    assert logits.argmax(dim=-1).tolist()[: len(ids)] == ids
    suppressing = Transformer(model.config.changed(suppressed_ids=(ids[0],)))
    suppressing.load_state_dict(model.state_dict())
    assert ids[0] not in greedy_decode(suppressing, [[7, *source]], complete=True)[0]


PAD = 0


def batch(rows: int, size: int, vocabulary: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(rows, size, vocabulary, generator=generator, dtype=torch.float64)
    targets = torch.randint(0, vocabulary, (rows, size), generator=generator)
    targets[:, 0] = vocabulary - 1
    targets[0, -1] = PAD
    return logits.requires_grad_(), targets


def check(logits: torch.Tensor, targets: torch.Tensor, smoothing: float) -> None:
    theirs = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=PAD, label_smoothing=smoothing)

    ours = label_smoothed_cross_entropy(logits, targets, PAD, smoothing)

    torch.testing.assert_close(ours.mean, theirs, **EXACT)
    assert ours.token_count == (targets != PAD).sum()
    (gradient,) = torch.autograd.grad(3 * ours.mean, logits)  # as a process scales its share of a batch
    (expected,) = torch.autograd.grad(3 * theirs, logits)
    torch.testing.assert_close(gradient, expected, **EXACT)
    assert (gradient[targets == PAD] == 0).all()


@settings(max_examples=25, deadline=None)
@example(rows=3, size=401, vocabulary=1001, seed=0, smoothing=0.1)  # rows that do not fit a cache at once
@given(rows=st.integers(1, 3), size=st.integers(2, 5), vocabulary=st.integers(2, 9), seed=st.integers(0, 99),
       smoothing=st.sampled_from([0.0, 0.1, 0.7]))  # fmt: skip
def test_the_loss_equals_torch_with_padding_and_gradient(rows, size, vocabulary, seed, smoothing):
    check(*batch(rows, size, vocabulary, seed), smoothing)


def test_all_padding_is_a_loss_of_zero():
    logits = torch.randn(2, 3, 5, requires_grad=True)
    result = label_smoothed_cross_entropy(logits, torch.zeros(2, 3, dtype=torch.long), PAD, 0.1)
    result.mean.backward()
    assert result.mean == 0
    assert result.token_count == 0
    assert logits.grad is not None
    assert logits.grad.abs().max() == 0


def test_half_precision_logits_are_summed_in_float32():
    logits, targets = batch(2, 3, 400)
    half = logits.detach().to(torch.bfloat16).requires_grad_()
    result = label_smoothed_cross_entropy(half, targets, PAD, 0.1)
    expected = label_smoothed_cross_entropy(half.double(), targets, PAD, 0.1)
    result.mean.backward()

    assert result.mean.dtype == torch.float32
    torch.testing.assert_close(result.mean.double(), expected.mean, rtol=1e-6, atol=0)
    assert half.grad is not None
    assert half.grad.dtype == torch.bfloat16


def differences(draw: random.Random) -> int:
    """How many real positions of one random case differ from the package's."""
    causal, exact, autopad = (draw.random() < 0.5 for _ in range(3))
    window, backward = draw.randint(1, 6), draw.randint(0, 2)
    forward = 0 if causal else draw.randint(0, 2)
    rows, heads = draw.randint(1, 2), draw.randint(1, 2)
    size = draw.randint(1, 20) if autopad else window * draw.randint(1, 4)
    lengths = torch.tensor([draw.randint(1, size) for _ in range(rows)])
    real = torch.arange(size) < lengths[:, None]  # [B, T]
    queries, keys, values = (torch.randn(rows, heads, size, 4, dtype=torch.float64) for _ in range(3))
    package = LocalAttention(
        window_size=window, causal=causal, look_backward=backward, look_forward=forward, autopad=autopad,
        exact_windowsize=exact, use_rotary_pos_emb=False,
    )  # fmt: skip
    rules: list[MaskRule] = [WindowRule(window, backward, forward, exact)]
    view = View(size, size, lengths, [CausalRule(), *rules] if causal else rules)
    ours = attend_plainly(ScaledDotProduct(4**-0.5), queries, keys, values, view).transpose(1, 2)
    # what the package pads with is hidden by its mask alone
    whole = bool(real.all()) and (causal or size % window == 0)
    theirs = package(queries, keys, values, mask=None if whole else real).transpose(1, 2)
    return int(((ours - theirs).abs().amax((-1, -2)) > 1e-12)[real].sum())


@pytest.mark.parametrize("seed", range(4))
def test_windows_are_those_of_the_package_local_attention(seed):
    draw = random.Random(seed)
    assert sum(differences(draw) for _ in range(300)) == 0


@pytest.mark.parametrize("size", [1, 2, 3, 8, 13])
def test_all_positions_of_a_recurrent_unit_at_once_are_a_loop_over_them(make_config, size):
    unit = SSRU(make_config(decoder_unit="ssru")).double()
    x = torch.randn(3, size, unit.cell_proj.in_features, dtype=torch.float64, requires_grad=True)
    cell, outputs = torch.zeros_like(x[:, 0]), []
    for here in x.unbind(1):
        forget = torch.sigmoid(here @ unit.forget_proj.weight.T + unit.forget_proj.bias)
        cell = forget * cell + (1 - forget) * (here @ unit.cell_proj.weight.T)
        outputs.append(cell.relu())
    expected = torch.stack(outputs, dim=1)
    torch.testing.assert_close(unit(x), expected, rtol=1e-12, atol=1e-12)
    values = (x, *unit.parameters())
    weights = torch.randn_like(expected)
    for ours, theirs in zip(
        torch.autograd.grad((unit(x) * weights).sum(), values),
        torch.autograd.grad((expected * weights).sum(), values),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
