"""HTML and Markdown travel whole."""

from __future__ import annotations

import pytest
from unit.client.cli.files import translated as files

from translane_client.cli.files import document
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
