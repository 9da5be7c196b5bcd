"""HTML and Markdown travel whole, or in pieces that mean what the whole means."""

from __future__ import annotations

import random

import pytest
from unit.client.cli.files import translated as files

from helpers.random_pages import random_page, random_soup
from translane_client.cli.files import document, html_sections, markdown_sections
from translane_client.cli.text_files import FileError
from translane_server.text.markup.html import parse_html


@pytest.mark.parametrize("kind", ["html", "markdown"])
def test_a_document_is_one_text_and_the_space_around_stays(kind: str):
    data = "\ufeff\r\n <p>ä</p>\r\n\r\nb\n\n".encode()
    assert files.texts(kind, data) == ["<p>ä</p>\r\n\r\nb"]
    assert files.translated(kind, data) == "\ufeff\r\n <P>Ä</P>\r\n\r\nB\n\n".encode()


@pytest.mark.parametrize("data", [b"", b" \n"])
def test_a_document_without_text_stays(data: bytes):
    assert files.texts("html", data) == []
    assert files.translated("html", data) == data


def test_a_page_is_in_the_encoding_that_it_names():
    data = '<html><head><meta charset="ISO-8859-1"></head>ä'.encode("latin-1")
    assert files.translated("html", data, files.same) == data
    assert files.texts("html", data)[0].endswith("ä")
    with pytest.raises(FileError, match="f, line 1: the file's encoding ISO-8859-1 has no '猫'"):
        files.translated("html", data, lambda _: "猫")


def test_a_document_is_of_a_bounded_size(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(document, "LARGEST_DOCUMENT", 1 << 20)
    with pytest.raises(FileError, match="f: larger than 1 MiB"):
        files.texts("markdown", b"a" * ((1 << 20) + 1))


PARAGRAPH = "Words of a paragraph, *some* of them `code`.\n\n" * 400


def test_a_long_document_is_cut_before_headings():
    text = f"# One\n\n{PARAGRAPH}## Two\n\n```sh\n\n# no heading\n```\n\n{PARAGRAPH}# Three\r\n\r\n{PARAGRAPH}"
    cut = list(markdown_sections.sections(text))
    assert [piece.split("\n")[0].strip() for piece in cut] == ["# One", "## Two", "# Three"]
    assert "".join(cut) == text
    assert files.translated("markdown", text.encode(), files.same) == text.encode()
    assert len(files.texts("markdown", text.encode())) == 3


def test_short_sections_stay_together():
    text = "# One\n\nText.\n\n" * 4000
    assert all(len(piece) >= markdown_sections.LEAST for piece in markdown_sections.sections(text))
    assert len(list(markdown_sections.sections("# One\n\nText.\n\n# Two\n\nText.\n"))) == 1


@pytest.mark.parametrize(
    "block",
    [
        "[a]: http://b",
        "[^1]: A note.",
        "> - [a]: http://b",
        "<!-- open",
        "<pre>\n\n# no heading",
        "- ```\n\n# no heading",
        "> ~~~",
        "    ```",
        "``` `a`",
        "~~~\n\n# never closed",
        "text ``` text",
    ],
)
def test_a_document_whose_pieces_may_depend_on_each_other_stays_whole(block: str):
    text = f"# One\n\n{PARAGRAPH}{block}\n\n# Two\n\n{PARAGRAPH}"
    assert list(markdown_sections.sections(text)) == [text]


def test_a_document_with_data_about_itself_stays_whole():
    text = f"---\na: b\n\n# c\n---\n\n# One\n\n{PARAGRAPH}# Two\n\n{PARAGRAPH}"
    assert list(markdown_sections.sections(text)) == [text]


@pytest.mark.parametrize("fence", ["```", "~~~~", "  ```"])
@pytest.mark.parametrize("inside", ["# no heading", "~~~", "``` x", "```` ```", "[a]: b", "<!--", "- ```"])
def test_markdown_it_finds_the_same_blocks_in_the_pieces(fence: str, inside: str):
    markdown = pytest.importorskip("markdown_it").MarkdownIt()
    block = f"{fence}\n\n{inside}\n\n{fence}\n\n"
    text = f"# One\n\n- a\n{PARAGRAPH}{block}# Two\n\n> a\n\n{PARAGRAPH}{block}\n# Three\n\n{PARAGRAPH}"
    pieces = "".join(markdown.render(piece) for piece in markdown_sections.sections(text))
    assert pieces == markdown.render(text)


@pytest.mark.timeout(20)
def test_hostile_documents_take_no_long_time_and_lose_nothing():
    for run in ("<meta ", "<meta a ", "#", "# ", "`", "```\n", "[", "[a", "> ", "- ", "~~~\n\n# a\n\n", "# a\n\n"):
        data = run.encode() * 50_000
        assert files.translated("html", data, files.same) == data
        assert files.translated("markdown", data, files.same) == data


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
    assert list(html_sections.sections("".join(pieces))) == pieces


@pytest.mark.slow
@pytest.mark.parametrize("make", [random_page, random_soup])
@pytest.mark.usefixtures("short")
def test_pieces_have_the_blocks_of_the_page(make):
    generator = random.Random(7)
    several = 0
    for _ in range(300):
        page = "<p>a</p><p>b</p>" + "".join(make(generator) for _ in range(2))
        pieces = list(html_sections.sections(page))
        assert "".join(pieces) == page
        assert [text for piece in pieces for text in blocks(piece)] == blocks(page)
        several += len(pieces) > 1
    assert several or make is random_soup  # most soup is not clear enough


def test_pieces_have_a_size():
    page = "<p>some words of a page</p>\n" * 5000
    pieces = list(html_sections.sections(page))
    assert "".join(pieces) == page
    assert all(html_sections.LEAST <= len(piece) < html_sections.LEAST + 100 for piece in pieces[:-1])
    assert list(html_sections.sections(page[: html_sections.LEAST + 10])) == [page[: html_sections.LEAST + 10]]


@pytest.mark.timeout(10)
@pytest.mark.parametrize("run", ["<", "<p ", "<p a=", "<!--", "</p><p>", "<script>", "<p a='", "<!-- -", "<p a "])
def test_long_runs_take_no_long_time(run: str):
    page = run * (200_000 // len(run))
    assert "".join(html_sections.sections(page)) == page
