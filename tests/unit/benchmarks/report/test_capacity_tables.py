"""The generated parts of docs/scaling.md."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from benchmarks.measuring import capacity_model
from benchmarks.measuring.capacity_model import modelled
from benchmarks.places import ROOT
from benchmarks.report.capacity_tables import check_table, dispatch_table, model_tables, profile_table
from benchmarks.report.pictures import Pictures
from benchmarks.runs.capacity import COMMAND, PAGE
from helpers.plan_profiles import MILLI, profile
from translane_plan.profile import LoopCosts

PROFILE = profile(step=MILLI / 4, row=MILLI / 16, front_end=LoopCosts(request=MILLI, dispatch=1e-7), encode=1e-6)


def checked(rate, p50, p95, simulated=1.0, others=0.02):
    measured = {"p50": p50, "p95": p95, "answered": rate, "cores": 0.5}
    found = {name: simulated * value for name, value in measured.items()}
    return {"rate": rate, "measured": measured, "simulated": found, "lag": 0.001, "others": others}


def cells(table):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line[:1] == "|"][2:]


def test_the_check_shows_medians_and_how_far_off_they_are():
    rounds = [checked(100, 0.010, 0.020), checked(200, 0.02, 0.06, 0.9), checked(100, 0.012, 0.020, 1.1, 0.3)]
    table = check_table({"check": [*rounds, checked(100, 0.011, 0.020)]})
    first, second = cells(table)
    assert first[:4] == ["100", "11.0", "11.0", "+0%"]
    assert first[-1] == "30%"
    assert second[:7] == ["200", "20.0", "18.0", "-10%", "60.0", "54.0", "-10%"]
    assert table.endswith("At worst, p50 is off by 10%, p95 by 10%, and cores by 10%.")
    assert check_table({}) == "Not measured yet."


def test_a_dispatcher_has_a_highest_rate():
    table = dispatch_table({"dispatch": {"64": 1e-4, "4": 5e-5}})
    assert cells(table) == [["4", "50", "20,000"], ["64", "100", "10,000"]]
    assert dispatch_table({}) == "Not measured yet."


def test_profiles_stand_beside_each_other():
    record = json.loads(PROFILE.model_dump_json())
    table = profile_table({"profile": record, "base": record})
    assert table.splitlines()[0] == "| what | demo | base |"
    rows = {row[0]: row[1:] for row in cells(table)}
    assert rows["parameters [millions]"] == ["7.0", "7.0"]
    assert rows["tokens of a sentence, source → target"] == ["4.0 → 8.0"] * 2
    assert rows["front end: each request [µs]"] == ["977"] * 2
    assert all(len(row) == 3 for row in cells(table))


@pytest.fixture(scope="module")
def model():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capacity_model, "REQUESTS", 300)
        patch.setattr(capacity_model, "REQUESTS_OF_A_CORE", 10)
        patch.setattr(capacity_model, "LOADS", (0.5, 1.0))
        return modelled(PROFILE)


@pytest.mark.slow
def test_the_model_fills_every_part_of_the_page(model, tmp_path):
    tables = model_tables({"demo": model, "base": model}, 0.25, Pictures(tmp_path, "pictures"))
    page = PAGE.read_text(encoding="utf-8")
    for name, lines in tables.items():
        assert f"<!-- {name}: begin; `{COMMAND}` writes what is between these lines -->\n" in page
        assert f"<!-- {name}: end -->\n" in page
        for picture in re.findall(r"\]\(pictures/(\S+)\)", lines):
            assert (tmp_path / picture).stat().st_size > 1000
        assert "nan" not in lines
    assert len(cells(tables["rates"])) == 2 * len(capacity_model.CORES)
    assert len(cells(tables["rules of thumb"])) == 4


@pytest.mark.slow
def test_twice_the_cores_bring_about_twice_the_rate(model):
    rates = [model["machines"][cores]["rate"] for cores in ("4", "8", "16")]
    for less, more in itertools.pairwise(rates):
        assert 1.5 * less < more < 2.6 * less
    one = model["front_ends"]["1"]
    assert one["64"] < 1.1 / MILLI  # however many cores there are


def test_pictures_of_the_page_are_there():
    page = PAGE.read_text(encoding="utf-8")
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page)
    assert [each for each in pictures if not (ROOT / "docs" / Path(each)).exists()] == []
