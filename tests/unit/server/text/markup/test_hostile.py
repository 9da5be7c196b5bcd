"""Texts that are made to take long end soon."""

from __future__ import annotations

import pytest

from translane_server.text.markup.document import MarkupError
from translane_server.text.markup.html import parse_html
from translane_server.text.markup.markdown import parse_markdown
from translane_server.text.markup.xliff import parse_xliff

LENGTH = 200_000
UNITS = [
    "<", "<a ", "&", "<b>", '<a b="', "<!--", "*", "[", "`", ">", "[](", "![", "[a][b]", "*a ", "*_", "\\", "\n", "- ",
    "|\n", "<p>a", "<svg>", "<svg><![CDATA[]]>", "<code>", "<kbd>", "<![CDATA[", "]]>", "<x/>", "&amp;", "a", "é",
    "</b>",
]  # fmt: skip


@pytest.mark.timeout(20)
@pytest.mark.parametrize("parse", [parse_html, parse_markdown, parse_xliff])
@pytest.mark.parametrize("unit", UNITS)
def test_repetitions_end_soon(parse, unit):
    source = (unit * LENGTH)[:LENGTH]
    try:
        document = parse(source)
    except MarkupError:
        return
    assert document.render([block.text for block in document.blocks])


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "unit", ["*a ", "*_", "[a](b) ", "**a _", "`a`", "- a\n", "|a|\n", "*a*", "![a](b)", "[", "[a][b] "]
)
def test_repetitions_in_markdown_that_are_not_refused_end_soon(unit):
    size = min(4_900 // max(1, unit.count("[")), 9_000 // len(unit))
    source = unit * size
    document = parse_markdown(source)
    assert document.render([block.text for block in document.blocks])
