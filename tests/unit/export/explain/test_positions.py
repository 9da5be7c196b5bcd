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
    bias = model.encoder.relative_positions(20)[0]  # [H, T, T]
    for distance in (-12, -3, 0, 1, 12):  # the key's place less the query's
        column = distance - encoder.first_column
        expected = bias[:, max(0, -distance), max(0, -distance) + distance]
        torch.testing.assert_close(torch.from_numpy(encoder.values[:, column]), expected.detach())
    assert (decoder.first_column, decoder.values.shape) == (-12, (2, 13))
    expected = model.decoder.relative_positions(20)[0, :, 12, :13]
    torch.testing.assert_close(torch.from_numpy(decoder.values), expected.detach())


def test_a_model_may_have_neither():
    assert tables(positions="none")[1] == ()
