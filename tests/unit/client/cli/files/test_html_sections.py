"""Long pages in pieces that mean what the page means."""

from __future__ import annotations

import random

import pytest

from helpers.random_pages import random_page, random_soup
from translane_client.cli.files import html_sections
from translane_client.cli.files.html_sections import LEAST, sections
from translane_server.text.markup.html import parse_html


def blocks(page: str) -> list[str]:
    return [block.text for block in parse_html(page).blocks]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch):
    """Pieces of any size."""
    monkeypatch.setattr(html_sections, "LEAST", 1)


@pytest.mark.parametrize(
    "pieces",
    [
        ["<p>a</p>", "<p>b</p>\n", "<h2>c</h2>"],
        ["<html><body class=x><div><p>a</p></div>\n", "<div id='>'>b</div>", "<p>c</body>"],
        ["<p>a <b>b</b></p>text<p>c</p>", "<p>d</p>"],
        ["<p>a</p><!-- <p> --><p>b</p>", "<p>c</p>"],
        ["<script>'</p><p>'</script><p>a</p>", "<pre>x</pre>", "<p>b</p>"],
        ["<p>a</p>", "<div translate=no><p>b</p><p>c</p><div></div><p>d</p></div>", "<p>e</p>"],
        ["<p>a</p>", "<div class='b notranslate'><p>b</p><p>c</p></div>"],
        ["<p>a</p><div class='b notranslate'><p>b</p><p>c</p>"],
        ["<div><p>a</p><p>b <code>c</div><p>d</p>"],
        ["<svg><p></p><p></p></svg><p>a</p>", "<p>b</p>"],
        ["<p>a</p><![CDATA[<p></p>]]><p>b</p><p>c</p>"],
        ["<p>a</p><p b'c><p>b</p><p>c</p>"],
        ["<p>a</p><textarea><p></p><p>"],
        ["a"],
        [""],
    ],
)
@pytest.mark.usefixtures("short")
def test_a_page_is_cut_between_blocks(pieces: list[str]):
    assert list(sections("".join(pieces))) == pieces


@pytest.mark.slow
@pytest.mark.parametrize("make", [random_page, random_soup])
@pytest.mark.usefixtures("short")
def test_pieces_have_the_blocks_of_the_page(make):
    generator = random.Random(7)
    several = 0
    for _ in range(300):
        page = "<p>a</p><p>b</p>" + "".join(make(generator) for _ in range(2))
        pieces = list(sections(page))
        assert "".join(pieces) == page
        assert [text for piece in pieces for text in blocks(piece)] == blocks(page)
        several += len(pieces) > 1
    assert several or make is random_soup  # most soup is not clear enough


def test_pieces_have_a_size():
    page = "<p>some words of a page</p>\n" * 5000
    pieces = list(sections(page))
    assert "".join(pieces) == page
    assert all(LEAST <= len(piece) < LEAST + 100 for piece in pieces[:-1])
    assert list(sections(page[: LEAST + 10])) == [page[: LEAST + 10]]


@pytest.mark.timeout(10)
@pytest.mark.parametrize("run", ["<", "<p ", "<p a=", "<!--", "</p><p>", "<script>", "<p a='", "<!-- -", "<p a "])
def test_long_runs_take_no_long_time(run: str):
    page = run * (200_000 // len(run))
    assert "".join(sections(page)) == page
