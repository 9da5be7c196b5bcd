"""The table of faults, from lines of figures."""

from __future__ import annotations

import pytest

from benchmarks.places import ROOT
from benchmarks.report import fault_tables
from benchmarks.report.fault_tables import fault_table
from benchmarks.runs.faults import TESTS
from helpers.reliability.figures import Figures


def line(test, **values):
    found = Figures(test)
    found.add(**values)
    return found.line


def test_lines_of_a_test_are_one_row():
    stream = "test_a_stream_goes_on_when_all_servers_were_killed"
    killed = line(
        "test_a_killed_server_costs_no_call", callers=8, faults={"killed": 2, "drained": 1}, calls=1234,
        tried_again_by_the_client=5, failed={"Unavailable(gone, away)": 1}, lost=1, doubled=0, longest_answer_s=1.5,
    )  # fmt: skip
    streams = [
        line(f"{stream}[{name}]", faults={"killed": 2}, calls=1, tried_again_by_the_client=3, lost=0, doubled=0)
        for name in ("greedy, long", "beams")
    ]
    assert fault_table([*streams, killed, line("test_of_others", calls=5)]).splitlines()[2:] == [
        "| one of two servers is killed, and comes back | 1,234 | 3 | 5 | 1 | 0 |",
        "| both servers are killed in the middle of a stream | 2 | 4 | 6 | 0 | 0 |",
    ]


@pytest.mark.parametrize("test", fault_tables._FAULTS)
def test_a_row_is_of_a_test(test):
    sources = [(ROOT / path).read_text(encoding="utf-8") for path in TESTS]
    assert sum(f"def {test}(" in source for source in sources) == 1


def test_what_was_not_counted_is_no_number():
    told = line("test_retries_of_grpc_itself_lose_no_call", calls=371, faults={"drained": 1, "killed": 1}, lost=0)
    assert fault_table([told]).endswith("gRPC itself tries again | 371 | 2 | – | 0 | – |")


def test_the_columns_are_figures_of_the_tests():
    client_load = (ROOT / "tests" / "helpers" / "reliability" / "client_load.py").read_text(encoding="utf-8")
    for name in ("calls", "tried again by the client", "lost", "doubled"):
        assert name in fault_tables._COLUMNS.values()
        assert f'"{name.replace(" ", "_")}"' in client_load
