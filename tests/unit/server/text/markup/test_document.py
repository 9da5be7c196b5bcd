"""Blocks, tags and the text around them make a document."""

from __future__ import annotations

import random

import pytest

from helpers.random_markdown import random_document
from helpers.random_pages import random_page, random_soup
from translane_server.text.markup.html import parse_html
from translane_server.text.markup.markdown import parse_markdown


@pytest.mark.parametrize(
    ("parse", "make"), [(parse_html, random_page), (parse_html, random_soup), (parse_markdown, random_document)]
)
def test_blocks_are_sentences_with_marks_in_order(parse, make):
    generator = random.Random(1)
    for _ in range(50):
        for block in parse(make(generator)).blocks:
            assert any(map(str.isalnum, block.text))
            assert block.text == " ".join(part for part in block.text.split(" ") if part)
            assert [mark.start for mark in block.marks] == sorted(mark.start for mark in block.marks)
            for number, mark in enumerate(block.marks):
                assert mark.parent < number
                assert 0 <= mark.start <= mark.end <= len(block.text)
                assert mark.is_single == (not mark.closing)
                if mark.parent >= 0:
                    parent = block.marks[mark.parent]
                    assert parent.start <= mark.start <= mark.end <= parent.end


def test_a_document_is_rendered_as_often_as_wanted():
    document = parse_html("<p>a <b>b</b></p>")
    (mark,) = document.blocks[0].marks
    for word in ("x", "y"):
        assert document.render([f"{mark.opening}{word}{mark.closing}"]) == f"<p><b>{word}</b></p>"


def test_text_that_is_preserved_beside_tags_is_escaped():
    document = parse_html("<p>a &lt;x/&gt; b</p>")
    assert document.render(["c <x/> & {d}"]) == "<p>c &lt;x/&gt; &amp; {d}</p>"
