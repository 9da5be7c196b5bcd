"""HTML and Markdown travel whole."""

from __future__ import annotations

import pytest
from unit.client.cli.files import translated as files

from translane_client.cli.files import document, markdown_sections
from translane_client.cli.text_files import FileError


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
