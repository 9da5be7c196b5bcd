"""The tables of positions are the model's own."""

import pytest
import torch

from helpers.architectures import ARCHITECTURES
from helpers.bundles import SMALL_SIZES, random_model
from translane_export.explain.positions import position_tables
from translane_export.model import TransformerConfig
from translane_export.model.positions import sinusoid_table


def tables(**config):
    model = random_model(TransformerConfig(**{**SMALL_SIZES, **config}))
    return model, position_tables(model)


@pytest.mark.parametrize(("most", "shown"), [(8, 8), (300, 128)])
def test_sinusoids_are_shown_once(most, shown):
    _, (table,) = tables(max_positions=most)
    torch.testing.assert_close(torch.from_numpy(table.values), sinusoid_table(shown, 16))


def test_learned_ones_are_shown_for_each_stack():
    model, (encoder, decoder) = tables(positions="learned")
    for table, stack in ((encoder, model.encoder), (decoder, model.decoder)):
        torch.testing.assert_close(torch.from_numpy(table.values), stack.embedding.positions.embedding.weight)


def test_biases_are_shown_by_distance():
    model, (encoder, decoder) = tables(**ARCHITECTURES["T5"])
    cpu = torch.device("cpu")
    bias = model.encoder.view(20, None, cpu).whole.bias[0]  # [H, T, T]
    for distance in (-12, -3, 0, 1, 12):  # the key's place less the query's
        column = distance - encoder.first_column
        expected = bias[:, max(0, -distance), max(0, -distance) + distance]
        torch.testing.assert_close(torch.from_numpy(encoder.values[:, column]), expected.detach())
    assert (decoder.first_column, decoder.values.shape) == (-12, (2, 13))
    expected = model.decoder.view(20, None, cpu).whole.bias[0, :, 12, :13]
    torch.testing.assert_close(torch.from_numpy(decoder.values), expected.detach())


def test_a_model_may_have_neither():
    assert tables(positions="none")[1] == ()


def test_what_attention_knows_of_positions_is_shown():
    _, (rotary,) = tables(positions="rotary", max_positions=20)
    assert rotary.values.shape == (20, 4)
    _, (encoder, decoder) = tables(positions="alibi")
    assert encoder.values[:, -encoder.first_column].tolist() == [0, 0]
    assert decoder.values.argmax(1).tolist() == [128, 128]  # the query's own place
    _, found = tables(positions="none", relative_window=3)
    assert [table.values.shape for table in found] == [(8, 7)]
