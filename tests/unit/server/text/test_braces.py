"""Placeholders in braces."""

import pytest

from translane_server.text.placeholders import braced


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a {b} c", ["{b}"]),
        ("{}", ["{}"]),
        ("${a} #{b} %{c} @{d}", ["${a}", "#{b}", "%{c}", "{d}"]),
        ("{{ a b }}", ["{{ a b }}"]),
        ("{% if a %} {# no #}", ["{% if a %}", "{# no #}"]),
        ("{a b}", []),
        ("{" + "a" * 128 + "}", ["{" + "a" * 128 + "}"]),
        ("{" + "a" * 129 + "}", []),
        ("{n, plural, one {a b} other {c d}}", ["{n, plural, one {a b} other {c d}}"]),
        ("{n, number}", ["{n, number}"]),
        ("{n, numbers}", []),
        ("{a {b} c}", ["{b}"]),
        ("} {a} {", ["{a}"]),
        ("{a}}", ["{a}"]),
        ("{ {a}", ["{a}"]),
    ],
)
def test_what_is_a_placeholder(text, found):
    assert [text[part.start : part.end] for part in braced(text)] == found


def test_inner_placeholders_come_before_outer_ones():
    text = "{n, select, a {{x}} other {y}}"
    parts = list(braced(text))
    assert parts == sorted(parts, key=lambda part: part.end)
    assert (parts[-1].start, parts[-1].end) == (0, len(text))


@pytest.mark.timeout(10)
@pytest.mark.parametrize("text", ["{" * 100_000, "{a" * 50_000 + "}" * 50_000, "{a, " * 30_000])
def test_long_runs_take_no_long_time(text):
    assert all(part.end <= len(text) for part in braced(text))
