"""The table of what access costs."""

import pytest

pytest.importorskip("trustme")

from benchmarks.runs.access import ALL, Measured, table


def test_a_row_has_the_medians_and_what_each_round_has_more_than_the_plain_one():
    plain = Measured(wait=[1e-3, 3e-3, 2e-3], server=[1e-4, 1e-4, 1e-4])
    more = Measured(wait=[1.1e-3, 3.2e-3, 1.9e-3], server=[2e-4, 1e-4, 3e-4])
    found = {"call": {access.name: plain if access.name == "plain" else more for access in ALL}}
    lines = table(found).splitlines()
    assert lines[0] == "| server | call, wait | call, server |"
    assert lines[2] == "| plain | 2,000 µs | 100 µs |"
    assert lines[3] == "| TLS | 1,900 µs (+100) | 200 µs (+100) |"
    assert len(lines) == 2 + len(ALL)


def test_the_wait_for_a_translation_is_left_out():
    found = {"Translate": {access.name: Measured(wait=[1.0], server=[1e-3]) for access in ALL}}
    assert table(found).splitlines()[0] == "| server | Translate, server |"
