"""What Marian writes, read as PyYAML reads it."""

import contextlib
import json
import random

import pytest
import yaml

from helpers.marian_files import MarianModel, settings_of
from translane_export.sources.flat_yaml import read_ids, read_settings

SETTINGS = r"""
# written by hand
version: v1.9.2 12cd13e 2020-01-17 10:01:34 -0800
empty: ""
nothing: ~
quoted: 'it''s'
escaped: "a\tb\"c\\d\u2581\x41\n"
colon: "a: b"
negative: -3
number: 0.6
scientific: 1e-06
flag: true
disabled: false
list:
  - one
  - 2
  - "3"
at-the-margin:
- 0.9
- false
flow: [1, two, "three"]
none:
  []
"""


def test_settings_are_those_of_yaml():
    expected = yaml.safe_load(SETTINGS)
    expected["scientific"] = 1e-06  # YAML 1.1 takes it for text, as it has no dot
    assert read_settings(SETTINGS) == expected


@pytest.mark.parametrize("model", [MarianModel(), MarianModel(pre_norm=True, embedding_norm=True)])
def test_settings_of_a_model(model):
    text = settings_of(model)
    assert read_settings(text) == yaml.safe_load(text)


def test_deeper_levels_are_passed_over():
    assert read_settings("a: 1\nb:\n  c: 2\n  d:\n    - 3\ne: 4\n") in (
        {"a": 1, "b": None, "e": 4},
        {"a": 1, "b": [3], "e": 4},
    )


def test_ids_are_those_of_yaml():
    pieces = [
        "</s>",
        "<unk>",
        "\u2581a",
        ":",
        "a:b",
        "'",
        '"',
        '\\"',
        "it's",
        "#",
        "-",
        "\u2028",
        "\x85",
        ">>fra<<",
        "0",
    ]
    text = "".join(f"{json.dumps(piece, ensure_ascii=False)}: {id_}\n" for id_, piece in enumerate(pieces))
    assert read_ids(text) == {piece: id_ for id_, piece in enumerate(pieces)}
    assert read_ids("a: 0\n'it''s': 1\n\"\\u2581b\": 2\n\n") == {"a": 0, "it's": 1, "\u2581b": 2}
    assert read_ids("a: 0\r\nb: 1\r\n") == {"a": 0, "b": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 0\nb\n", "line 2 is no piece"),
        ("a: -1", "line 1 is no"),
        ("a: 0\na: 1", "line 2 has a piece of a line before"),
    ],
)
def test_what_is_no_vocabulary(text, message):
    with pytest.raises(ValueError, match=message):
        read_ids(text)


def test_any_text_is_read_or_refused():
    pick = random.Random(3)
    for _ in range(3000):
        text = "".join(
            pick.choices(["a", ":", " ", "\n", "- ", '"', "\\", "'", "[", "]", "#", "1", "\\U00110000"], k=12)
        )
        for read in (read_settings, read_ids):
            with contextlib.suppress(ValueError):
                read(text)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("written", "name"),
    [
        ('"' + "\\" * 50_000 + '"', "\\" * 25_000),
        ("'" * 50_002, "'" * 25_000),
        ("a" * 100_000, "a" * 100_000),
        ("a" + " " * 100_000 + "b", "a" + " " * 100_000 + "b"),
        ("1" * 100_000, "1" * 100_000),
    ],
    ids=["backslashes", "quotes", "letters", "spaces", "digits"],
)
def test_a_long_line_takes_no_long_time_and_loses_nothing(written: str, name: str):
    for read in (read_settings, read_ids):
        assert read(f"{written}: 1") == {name: 1}
        with pytest.raises(ValueError, match="line 1 is no"):
            read(written[:-1])
    assert read_settings(f"a: {written}") == {"a": name}
