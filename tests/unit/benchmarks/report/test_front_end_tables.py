import pytest

from benchmarks.measuring import front_end_model
from benchmarks.report import front_end_tables
from benchmarks.report.front_end_tables import costs_of, modelled_tables, parts_table, rates_table

PARTS = {
    "gRPC alone": {"front": [0.0005, 0.0004], "replicas": [0.0, 0.0]},
    "Translate": {"front": [0.0012, 0.0008], "replicas": [0.004, 0.0009]},
}
RATE = {"p95": 0.1, "front_ends": 0.001, "replicas": 0.0009, "callers": 0.0004, "cores": 1.9}
RATES = {
    "decoded": [
        {"name": "1", "ratio": 1.0, "rates": 800.0, **RATE},
        {"name": "2", "ratio": 1.1, "rates": 880.0, **RATE},
    ]
}


def test_a_part_that_uses_no_processor_has_no_figure():
    assert "| gRPC alone | 500 | 400 | – | – |" in parts_table(PARTS)
    assert "| Translate | 1,200 | 800 | 4,000 | 900 |" in parts_table(PARTS)


def test_rates_are_shown_with_processor_seconds_of_a_thousand_requests():
    assert "| decoded | 2 | 880 | 1.10 | 100 | 1.00 | 0.90 | 0.40 | 1.90 |" in rates_table(RATES)


def test_costs_give_back_what_was_measured():
    costs = costs_of(PARTS, RATES, "decoded", 64)
    assert costs.front_end + costs.threads == pytest.approx(0.001)
    assert (costs.alone + 63 * costs.more) / 64 == pytest.approx(0.0009)
    assert costs.alone == 0.004


def test_the_tables_of_the_model_have_a_cell_for_each_number_of_front_ends_that_fits(monkeypatch):
    for name, value in {
        "CORES": (2, 4),
        "NUMBERS": (1, 4),
        "CONNECTIONS": (2,),
        "RUNS": 1,
        "RUNS_OF_CONNECTIONS": 1,
    }.items():
        monkeypatch.setattr(front_end_tables, name, value)
    monkeypatch.setattr(front_end_model, "_CALLS", 600)
    check, cores, connections = modelled_tables(PARTS, RATES, (2, 8, 8)).split("\n\n")
    assert len(check.splitlines()) == 4
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in cores.splitlines()[2:]]
    assert [row[:2] for row in rows] == [["short", "2"], ["short", "4"], ["long", "2"], ["long", "4"]]
    assert [bool(row[3]) for row in rows] == [False, True, False, True]
    assert len(connections.splitlines()) == 3
