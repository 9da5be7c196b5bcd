"""Near keys have scalars of their own, far ones share them, and beyond the limit all are alike."""

from __future__ import annotations

import pytest
import torch

from translane_export.model.positions import RelativePositions, bucket_table


def test_t5s_buckets_of_what_is_behind():
    """Half for single distances, the others to where log(distance / 16) / log(128 / 16) grows by another sixteenth."""
    table = bucket_table(32, 128, both_ways=False).tolist()
    assert table[:21] == [*range(17), 16, 16, 17, 17]
    assert [table.index(bucket) for bucket in (18, 20, 24, 30, 31)] == [21, 27, 46, 99, 113]
    assert table[128] == 31
    assert table == sorted(table)


def test_an_encoder_has_half_of_them_for_either_direction():
    table = bucket_table(32, 128, both_ways=True).tolist()
    behind, here, ahead = table[129:], table[128], table[127::-1]
    assert here == 0
    assert behind[:8] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert behind[-1] == 15
    assert ahead == [bucket + 16 for bucket in behind]


@pytest.mark.parametrize(("buckets", "furthest"), [(4, 3), (6, 17), (8, 20), (32, 17)])
@pytest.mark.parametrize("both_ways", [False, True])
def test_any_number_of_them_is_used_to_the_last(buckets, furthest, both_ways):
    table = bucket_table(buckets, furthest, both_ways=both_ways)
    assert len(table) == (2 * furthest + 1 if both_ways else furthest + 1)
    assert table.min() == 0
    assert table.max() == buckets - 1


def among_all(positions: RelativePositions, size: int) -> torch.Tensor:
    at = torch.arange(size)
    return positions.between(at[:, None], at)  # [H, T, T]


@pytest.mark.parametrize("both_ways", [False, True])
def test_the_bias_is_the_weight_of_the_distances_bucket(make_config, both_ways):
    config = make_config(relative_buckets=8, relative_max_distance=9)
    positions = RelativePositions(config, both_ways=both_ways)
    table = bucket_table(8, 9, both_ways=both_ways)
    bias = among_all(positions, 30)
    assert bias.shape == (config.heads, 30, 30)
    for query, key in ((0, 0), (5, 4), (4, 5), (20, 3), (3, 20), (29, 0), (12, 9)):
        offset = min(max(query - key, -9 if both_ways else 0), 9) + (9 if both_ways else 0)
        assert torch.equal(bias[:, query, key], positions.weight[table[offset]])


def test_a_row_at_its_own_position_has_that_positions_bias(make_config):
    positions = RelativePositions(make_config(relative_buckets=8, relative_max_distance=9), both_ways=False)
    at = torch.tensor([7, 0, 15])
    rows = positions.between(at[:, None, None], torch.arange(16))  # [B, H, 1, T]
    assert torch.equal(rows[:, :, 0], among_all(positions, 16)[:, at].transpose(0, 1))
