"""The tables of what the cache costs."""

import re

from benchmarks.runs.cache import KNOWN, LOOK_UPS, UNKNOWN, WITHOUT, Measured, look_up_table, table


def test_a_row_has_medians_and_the_processor_time_of_each_side():
    slow = Measured(wait=[1e-2, 3e-2, 2e-2], server=[1e-3, 1e-3, 2e-3], processes=[5e-3, 6e-3, 7e-3])
    found = {WITHOUT: slow, UNKNOWN: slow, KNOWN: Measured(wait=[1e-3], server=[5e-4], processes=[5e-4])}
    lines = table(found).splitlines()
    assert lines[2] == f"| {WITHOUT} | 20,000 µs | 1,000 µs | 5,000 µs |"
    assert lines[4] == f"| {KNOWN} | 1,000 µs | 500 µs | 0 µs |"
    assert len(lines) == 5


def test_the_look_up_is_measured_for_short_and_long_texts():
    rows = look_up_table().splitlines()[2:]
    assert len(rows) == len(LOOK_UPS)
    times = [float(cell.replace(",", "")) for row in rows for cell in re.findall(r"([\d.,]+) µs", row)]
    assert len(times) == 3 * len(rows)
    assert min(times) > 0
