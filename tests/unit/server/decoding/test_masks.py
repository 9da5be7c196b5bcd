import numpy as np

from translane_server.decoding.masks import MaskTable


def test_the_first_mask_bans_nothing():
    assert not MaskTable(5).masks[0].any()


def test_equal_keys_share_a_mask_until_all_have_released_it():
    table = MaskTable(5)
    first = table.acquire((1, 2), np.array([1, 2]))
    assert table.acquire((1, 2), np.array([1, 2])) == first != 0
    table.release((1, 2))
    other = table.acquire((3,), np.array([3]))
    assert other != first
    assert table.masks[first].tolist() == [False, True, True, False, False]
    table.release((1, 2))
    reused = table.acquire((0,), np.array([0]))
    assert reused == first
    assert table.masks[reused].tolist() == [True, False, False, False, False]
    assert len(table.masks) == 3
