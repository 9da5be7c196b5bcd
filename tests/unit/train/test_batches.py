import random

import torch

from translane_export.train.batches import EncodedPair, collate, plan_batches


def _pairs(count: int) -> list[EncodedPair]:
    draw = random.Random(1)
    return [EncodedPair([9] * draw.randint(1, 30), [9] * draw.randint(1, 30)) for _ in range(count)]


def test_each_pair_comes_once_and_batches_keep_to_their_size() -> None:
    pairs = _pairs(500)
    plan = plan_batches(pairs, max_tokens=200, seed=1, epoch=0)
    assert sorted(row for rows in plan for row in rows) == list(range(500))
    assert all(len(rows) * max(pairs[row].width for row in rows) <= 200 for rows in plan)


def test_a_batch_holds_similar_lengths() -> None:
    pairs = _pairs(5000)
    plan = plan_batches(pairs, max_tokens=500, seed=1, epoch=0)
    spreads = [max(n) - min(n) for n in ([len(pairs[row].target) for row in rows] for rows in plan)]
    assert sum(spreads) / len(spreads) < 1


def test_mixed_batches_hold_all_lengths_and_keep_to_their_size() -> None:
    """A batch norm learns the length of a translation from batches that are sorted by it."""
    pairs = _pairs(5000)
    plan = plan_batches(pairs, max_tokens=2000, seed=1, epoch=0, mixed=True)
    assert sorted(row for rows in plan for row in rows) == list(range(5000))
    assert all(len(rows) * max(pairs[row].width for row in rows) <= 2000 for rows in plan)
    means = [sum(len(pairs[row].target) for row in rows) / len(rows) for rows in plan]
    assert 10 < min(means) < max(means) < 21


def test_a_pair_longer_than_a_batch_gets_its_own() -> None:
    pairs = [EncodedPair([9], [9]), EncodedPair([9] * 50, [9]), EncodedPair([9], [9, 9])]
    plan = plan_batches(pairs, max_tokens=10, seed=1, epoch=0)
    assert [1] in plan


def test_the_order_follows_seed_and_epoch() -> None:
    pairs = _pairs(200)
    first = plan_batches(pairs, 100, seed=1, epoch=0)
    assert plan_batches(pairs, 100, seed=1, epoch=0) == first
    assert plan_batches(pairs, 100, seed=1, epoch=1) != first
    assert plan_batches(pairs, 100, seed=2, epoch=0) != first


def test_collate_pads_and_marks() -> None:
    batch = collate([EncodedPair([7, 8], [5]), EncodedPair([9], [4, 6])])
    assert batch.source_ids.tolist() == [[7, 8, 3], [9, 3, 0]]
    assert batch.source_lengths.tolist() == [3, 2]
    assert batch.target_input.tolist() == [[2, 5, 0], [2, 4, 6]]
    assert batch.target_output.tolist() == [[5, 3, 0], [4, 6, 3]]
    assert EncodedPair([9], [4, 6]).target_tokens == 3
    assert batch.source_ids.dtype == torch.int64
