"""What graphs make of relative vectors, against the model's way and against sums that are written out."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from translane_export.graphs import relative_graph
from translane_export.graphs.onnx_nodes import HeadForm
from translane_export.model.relative_embeddings import RelativeEmbeddings

B, H, D, C = 3, 2, 4, 9
FORM = HeadForm(heads=H, kv_heads=H, size=D, scale=1.0, one_in_denominator=False, rotary=None)
EXACT: dict[str, Any] = {"rtol": 1e-12, "atol": 1e-12}

every_kind = pytest.mark.parametrize(
    ("clipped", "shared", "window"),
    [(clipped, shared, window) for clipped in (True, False) for shared in (True, False) for window in (1, 3, 12)],
)


def embeddings(clipped: bool, shared: bool, window: int) -> RelativeEmbeddings:
    tables = 1 if shared else H
    return RelativeEmbeddings(window=window, tables=tables, key_size=D, value_size=D, clipped=clipped).double()


def place_of(offset: int, window: int, clipped: bool) -> int | None:
    if abs(offset) > window and not clipped:
        return None
    return max(-window, min(window, offset)) + window


@every_kind
def test_scores_and_contexts_are_those_of_the_model(clipped, shared, window):
    relative = embeddings(clipped, shared, window)
    at, lengths = torch.arange(C), torch.tensor([9, 4, 1])
    queries = torch.randn(B, C, H * D, dtype=torch.float64)
    tables = relative_graph.RelativeTables(relative)
    products = tables.score(queries.flatten(0, 1), FORM).view(B, C, H, -1).transpose(1, 2)
    places = relative.places(at[:, None], at)
    by_head = queries.view(B, C, H, D).transpose(1, 2)
    raised = products.gather(3, places.expand(B, H, -1, -1))
    torch.testing.assert_close(raised, relative.raise_scores(by_head, places), **EXACT)

    real = (at < lengths[:, None])[:, None, None]
    weights = torch.rand(B, H, C, C).double()
    given = weights.masked_fill(~real, torch.nan)  # they mean nothing from a row's length on
    shares = relative_graph.shares_of_sentence(tables, given, lengths, at).transpose(1, 2).flatten(0, 1)
    context = tables.mix(shares, FORM).view(B, C, H, D).transpose(1, 2)
    torch.testing.assert_close(context, relative.mix(weights * real, places), **EXACT)


@every_kind
def test_the_shares_of_a_sentence_are_sums_of_weights(clipped, shared, window):
    relative, lengths, at = embeddings(clipped, shared, window), torch.tensor([9, 4, 1]), torch.arange(C)
    weights = torch.rand(B, H, C, C).double()
    expected = torch.zeros(B, H, C, 2 * window + 1).double()
    for row in range(B):
        for i in range(C):
            for j in range(int(lengths[row])):
                if (place := place_of(j - i, window, clipped)) is not None:
                    expected[row, :, i, place] += weights[row, :, i, j]
    shares = relative_graph.shares_of_sentence(relative_graph.RelativeTables(relative), weights, lengths, at)
    torch.testing.assert_close(shares, expected, **EXACT)


@every_kind
def test_a_step_sees_what_is_behind_it(clipped, shared, window):
    relative, positions, at = embeddings(clipped, shared, window), torch.tensor([0, 5, 8]), torch.arange(C)
    query = torch.randn(B, H * D, dtype=torch.float64)
    tables = relative_graph.RelativeTables(relative)
    products = tables.score(query, FORM)
    places = relative.places(positions[:, None, None], at)[:, 0]  # [B, C]
    raised = products.gather(2, places[:, None].expand(-1, H, -1))  # [B, H, C]
    weights = torch.rand(B, H, C).double()
    given = weights.masked_fill((at > positions[:, None])[:, None], torch.nan)
    context = tables.mix(relative_graph.shares_of_step(tables, given, positions, at), FORM).view(B, H, D)
    expected = torch.zeros(B, H, D).double()
    for row, head in ((row, head) for row in range(B) for head in range(H)):
        table = 0 if shared else head
        for j in range(int(positions[row]) + 1):
            place = place_of(j - int(positions[row]), window, clipped)
            score = 0.0
            if place is not None:
                score = float(query[row, head * D : (head + 1) * D] @ relative.keys[table, place].detach())
                expected[row, head] += weights[row, head, j] * relative.values[table, place].detach()
            assert raised[row, head, j].item() == pytest.approx(score, abs=1e-12)
    torch.testing.assert_close(context.detach(), expected, **EXACT)


@every_kind
def test_tables_are_read_back_to_the_bit(clipped, shared, window):
    relative = embeddings(clipped, shared, window)
    tables = relative_graph.RelativeTables(relative)
    keys, values = relative_graph.read_tables(tables.keys.weight, tables.values.weight, 1 if shared else H)
    assert torch.equal(keys, relative.keys)
    assert torch.equal(values, relative.values)
