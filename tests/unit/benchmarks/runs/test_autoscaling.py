"""What an autoscaler sees of a server."""

from typing import cast

from benchmarks.runs.autoscaling import Sample, Seen, Watch, sample_of, table
from helpers.reliability.server_process import ServerProcess


class Metrics:
    def metrics(self) -> dict[str, float]:
        return {
            'translane_rows{front_end="0",model="a",state="active"}': 12.0,
            'translane_rows{front_end="1",model="a",state="active"}': 4.0,
            'translane_rows{front_end="0",model="a",state="free"}': 20.0,
            'translane_rows_limit{front_end="0",model="a"}': 32.0,
            'translane_rows_limit{front_end="1",model="a"}': 32.0,
            'translane_sentences_waiting{front_end="0",model="a"}': 5.0,
            'translane_sentences_waiting_limit{front_end="0",model="a"}': 1024.0,
        }


def test_the_numbers_are_sums_of_the_series():
    assert sample_of(cast(ServerProcess, Metrics())) == Sample(busy=0.25, waiting=5)


def test_the_beginning_of_a_load_does_not_count():
    samples = [Sample(0, number) for number in range(9)]
    assert [each.waiting for each in Watch(samples).steady()] == [3, 4, 5, 6, 7, 8]


def test_a_load_is_a_row():
    rows = table([Seen(0.5, 0.314, 2.25, 0.0418), Seen(1.2, 1, 312, None)]).splitlines()[2:]
    assert rows == ["| 50% | 31% | 2.2 | 42 |", "| 120% | 100% | 312.0 | – |"]
