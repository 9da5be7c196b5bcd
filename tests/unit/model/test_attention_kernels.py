"""The ways to compute attention give the same numbers and gradients, whatever the formula and the view; dropout."""

import random
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from translane_export.model.attention import ScaledDotProduct
from translane_export.model.fast_attention import attend, attend_by_blocks, attend_fused, attend_plainly
from translane_export.model.masks import BlockRule, CausalRule, DistanceBias, MaskRule, View, WindowRule
from translane_export.model.positions import Alibi, ProximalBias, RelativeBuckets, RelativeVectors

EXACT: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-9}
WAYS: dict[str, Any] = {"plain": attend_plainly, "blocks": partial(attend_by_blocks, block=2), "fused": attend_fused}


class Case:
    """A formula, a view and inputs, small and random; ``trained`` are the numbers that get gradients."""

    def __init__(self, draw: random.Random, make_config: Any) -> None:
        self.draw, self.make_config = draw, make_config
        groups, sharing = draw.choice(((1, 1), (1, 2), (2, 1), (2, 2), (1, 3)))
        self.heads, rows = groups * sharing, draw.randint(1, 3)
        size, value_size = draw.randint(1, 4), draw.randint(1, 4)
        self.to_self = draw.random() < 0.6
        queries = draw.randint(1, 9)
        keys = queries if self.to_self else draw.randint(1, 9)
        shapes = ((rows, self.heads, queries, size), (rows, groups, keys, size), (rows, groups, keys, value_size))
        q, k, v = (torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in shapes)
        self.inputs = (q, k, v)
        self.modules: list[nn.Module] = []
        relative = self._relative(size, value_size) if self.to_self and draw.random() < 0.4 else None
        biases = self._biases() if self.to_self else []
        # a row of length 0 has queries that see nothing
        lengths = torch.tensor([draw.randint(0, keys) for _ in range(rows)]) if draw.random() < 0.7 else None
        self.formula = ScaledDotProduct(draw.choice((1.0, size**-0.5)), draw.random() < 0.4, relative)
        self._of_view = (queries, keys, lengths, self._rules() if self.to_self else [], biases)

    @property
    def view(self) -> View:
        """A view anew: a view keeps a bias that it has found, and the graph of its gradients."""
        return View(*self._of_view)

    @property
    def trained(self) -> list[Tensor]:
        return [*self.inputs, *(parameter for module in self.modules for parameter in module.parameters())]

    def _relative(self, size: int, value_size: int) -> RelativeVectors:
        draw = self.draw
        tables, window = draw.choice((1, self.heads)), draw.randint(1, 4)
        relative = RelativeVectors(
            window=window, tables=tables, key_size=size, value_size=value_size, clipped=draw.random() < 0.5
        ).double()
        self.modules.append(relative)
        return relative

    def _biases(self) -> list[DistanceBias]:
        draw, biases = self.draw, list[DistanceBias]()
        if draw.random() < 0.2:
            biases.append(Alibi(self.heads).double())
        if draw.random() < 0.2:
            biases.append(ProximalBias().double())
        if draw.random() < 0.2:
            config = self.make_config(heads=self.heads, head_size=4, relative_buckets=8, relative_max_distance=9)
            learned = RelativeBuckets(config, both_ways=True).double()
            self.modules.append(learned)
            biases.append(learned)
        return biases

    def _rules(self) -> list[MaskRule]:
        draw = self.draw
        rules: list[MaskRule] = [CausalRule()] if draw.random() < 0.4 else []
        if draw.random() < 0.3:
            rules.append(BlockRule(draw.randint(1, 4)))
        elif draw.random() < 0.4:
            size, backward, forward = draw.randint(1, 4), draw.randint(0, 2), draw.randint(0, 2)
            rules.append(WindowRule(size, backward, forward, draw.random() < 0.5))
        return rules


def numbers_and_gradients(case: Case, way: Any, up: Tensor) -> list[Tensor]:
    context = way(case.formula, *case.inputs, case.view)
    gradients = torch.autograd.grad(context, case.trained, up, allow_unused=True, materialize_grads=True)
    return [context.detach(), *gradients]


@pytest.mark.parametrize("seed", range(8))
def test_every_way_gives_the_same_numbers_and_gradients(make_config, seed):
    draw, fused = random.Random(seed), 0
    for _ in range(60):
        case = Case(draw, make_config)
        others = [partial(attend_by_blocks, block=draw.randint(1, 10)), attend]
        if case.formula.relative is None:
            others.append(attend_fused)
            fused += 1
        up = torch.randn_like(attend_plainly(case.formula, *case.inputs, case.view))
        plain = numbers_and_gradients(case, attend_plainly, up)
        assert all(tensor.isfinite().all() for tensor in plain)
        for way in others:
            for other, expected in zip(numbers_and_gradients(case, way, up), plain, strict=True):
                torch.testing.assert_close(other, expected, **EXACT)
    assert fused > 20


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("one", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_half_precision_has_no_number_that_is_none(way, one, biased, dtype):
    """Scores at the end of the type's range, and rows that see nothing."""
    queries, keys, values = (torch.randn(2, 2, 6, 4).to(dtype).mul_(12).requires_grad_() for _ in range(3))
    rules: list[MaskRule] = [CausalRule()]
    view = View(6, 6, torch.tensor([6, 0]), rules, [Alibi(2).to(dtype), ProximalBias().to(dtype)] if biased else [])
    context = WAYS[way](ScaledDotProduct(0.5, one), queries, keys, values, view)
    context.float().square().mean().backward()
    assert context.isfinite().all()
    assert context[1].abs().max() == 0
    for given in (queries, keys, values):
        assert given.grad is not None
        assert given.grad.isfinite().all()


def test_long_sequences_are_not_attended_to_plainly():
    """The ways give the same numbers, so only memory tells them apart: plainly, all weights are kept."""
    size = 600  # 600 * 600 weights are more than are kept
    queries, keys, values = (torch.randn(1, 1, size, 2, requires_grad=True) for _ in range(3))
    view = View(size, size)
    relative = RelativeVectors(window=2, tables=1, key_size=2, value_size=2, clipped=True)
    kept: list[int] = []
    for formula in (ScaledDotProduct(1.0), ScaledDotProduct(1.0, relative=relative)):
        with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x):
            context = attend(formula, queries, keys, values, view)
        torch.testing.assert_close(context, attend_plainly(formula, queries, keys, values, view), rtol=1e-4, atol=1e-5)
    assert max(kept) < size * size


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_dropout_drops_weights_and_keeps_the_mean(way):
    ones = torch.ones(1, 1, 20000, 1)
    context = way(ScaledDotProduct(1.0), torch.zeros(1, 1, 1, 1), ones, ones, View(1, 20000), dropout=0.25)
    assert context.item() == pytest.approx(1, abs=0.03)
    assert context.item() != 1


def test_blocks_drop_the_same_weights_once_more_in_the_backward_pass():
    """The context is linear in the values, so its gradient tells which weights the backward pass had."""
    queries, keys, values = (torch.randn(1, 1, 9, size, dtype=torch.float64, requires_grad=True) for size in (2, 2, 1))
    context = attend_by_blocks(ScaledDotProduct(1.0), queries, keys, values, View(9, 9), dropout=0.5, block=4)
    (gradient,) = torch.autograd.grad(context.sum(), values)
    torch.testing.assert_close((gradient * values).sum(), context.sum(), **EXACT)
