"""Profiles: curves, files, and what is refused of them."""

import json
import re

import pytest
from pydantic import ValidationError

from helpers.plan_profiles import profile
from translane_plan.errors import PlanError
from translane_plan.profile import Curve, read_profile, write_profile

COSTS = json.loads(profile().model_dump_json())["replica"]


def test_a_curve_is_made_of_lines():
    curve = Curve(counts=(1, 3, 7), seconds=(1.0, 2.0, 10.0))
    assert [curve.at(count) for count in (1, 2, 3, 5, 7, 9)] == [1, 1.5, 2, 6, 10, 14]
    assert curve.at(0) == 0.5
    assert Curve(counts=(2, 4), seconds=(1.0, 3.0)).at(0) == 0
    assert Curve(counts=(2, 4), seconds=(1.0, 3.0)).at(1) == 0.5
    assert Curve(counts=(1, 4), seconds=(3.0, 1.0)).at(100) == 1
    assert Curve(counts=(1, 4), seconds=(3.0, 0.0)).at(4) == 0
    assert Curve(counts=(5,), seconds=(1.0,)).at(100) == 1


@pytest.mark.parametrize(
    ("counts", "seconds", "problem"),
    [((1, 2), (1.0,), "not equally many"), ((2, 2), (1.0, 1.0), "do not ascend"), ((), (), "at least 1 item")],
)
def test_a_wrong_curve_is_refused(counts, seconds, problem):
    with pytest.raises(ValidationError, match=problem):
        Curve(counts=counts, seconds=seconds)


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "profile.json"
    write_profile(path, profile(encode=1e-5, delay=3e-5))
    assert read_profile(path) == profile(encode=1e-5, delay=3e-5)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"format": 2}, "format: input should be 1, not 2"),
        ({"delay": -1}, "delay: input should be greater than or equal to 0, not -1"),
        ({"threads": 0}, "threads: input should be greater than or equal to 1, not 0"),
        ({"lengths": []}, "lengths: tuple should have at least 1 item"),
        ({"lengths": [[0, 3]]}, "lengths.0.0: input should be greater than or equal to 1, not 0"),
        ({"other": 1}, "other: extra inputs are not permitted, not 1"),
        (
            {"replica": {**COSTS, "steps": {"counts": [1, 2], "seconds": [0, 0]}}},
            "replica: a decoder step takes at least 1e-09 seconds, not 0",
        ),
        ({"front_end": {"request": 1e9}}, "front_end.request: input should be less than or equal to 3600"),
    ],
)
def test_a_wrong_profile_is_refused_in_a_sentence(tmp_path, change, problem):
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({**json.loads(profile().model_dump_json()), **change}))
    with pytest.raises(PlanError, match=re.escape(problem)) as caught:
        read_profile(path)
    assert str(caught.value).startswith(f"profile {path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"{", "it is not JSON"), (b"\xff", "it is not JSON"), (b"[]", "it is no profile"), (b"3", "it is no profile")],
)
def test_a_file_of_something_else_is_refused(tmp_path, content, problem):
    path = tmp_path / "profile.json"
    path.write_bytes(content)
    with pytest.raises(PlanError, match=re.escape(problem)):
        read_profile(path)


def test_a_file_that_cannot_be_read_or_written_is_named(tmp_path):
    with pytest.raises(PlanError, match=r"missing\.json: it cannot be read: No such file"):
        read_profile(tmp_path / "missing.json")
    with pytest.raises(PlanError, match="it is a folder"):
        read_profile(tmp_path)
    with pytest.raises(PlanError, match="it cannot be written"):
        write_profile(tmp_path / "missing" / "profile.json", profile())
