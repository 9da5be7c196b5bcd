"""The table of faults behind Envoy."""

from benchmarks.runs.envoy_faults import table
from helpers.load_on_envoy import Outcome


def test_an_event_is_a_row_with_its_lost_calls():
    hangs = Outcome("one hangs", calls=80, streams=9, repeated=3, continued=1, slowest=14.26, lost=("gone", "gone"))
    assert table([hangs]).splitlines()[2:] == ["| one hangs | 80 | 9 | 3 | 1 | 14.3 | 2 |"]
