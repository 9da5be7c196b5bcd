"""docs/markup.md says what is translated, and what the limits are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from translane_server.text.markup.html import parse_html
from translane_server.text.markup.markdown import parse_markdown
from translane_server.text.markup.xliff import parse_xliff

DOCS = (Path(__file__).parents[5] / "docs" / "markup.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (`+)(.*?)\1 \| (.*) \|$", re.MULTILINE)


@pytest.mark.parametrize(
    ("heading", "parse", "rows"), [("HTML", parse_html, 5), ("Markdown", parse_markdown, 5), ("XLIFF", parse_xliff, 3)]
)
def test_examples(heading, parse, rows):
    section = DOCS.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = ROW.findall(section)
    assert len(found) == rows
    for _, source, translated in found:
        assert [block.text for block in parse(source).blocks] == re.findall(r"`([^`]*)`", translated)
