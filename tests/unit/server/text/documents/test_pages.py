"""HTML and Markdown: blocks are texts, and mean alone what they mean in their page."""

import random
from dataclasses import replace

import pytest
from unit.server.text.documents.translated import read, same, texts, translated

from helpers.random_markdown import random_document
from helpers.random_pages import random_page, random_soup
from helpers.translations import identity, nonsense
from translane.options import Format
from translane_server.core.budget import UNLIMITED, Budget
from translane_server.text.documents import DocumentError
from translane_server.text.documents.document import TextFile
from translane_server.text.documents.page import PageDocument
from translane_server.text.markup.document import Document as Page
from translane_server.text.markup.html import parse_html
from translane_server.text.markup.markdown import parse_markdown
from translane_server.text.markup.xliff import parse_xliff

PAGE = """\ufeff<!doctype html>\r
<title>A &lt;b> title</title>\r
<p class=x>Some <b>bold</b> words &amp;\r
more, <code>a  b</code> <img alt='a "cat"' src=y>. <!-- c -->\r
<ul><li>1984<li>***<li translate=no>Kept</ul>\r
"""


def test_the_blocks_of_a_page_are_texts():
    assert [(text.text, text.format, text.line) for text in read("html", PAGE.encode()).texts] == [
        ("A &lt;b&gt; title", Format.XLIFF, 2),
        ('a "cat"', Format.XLIFF, 4),
        ('Some <bpt i="0"/>bold<ept i="0"/> words &amp; more, <x id="1"/> <x id="2"/>.', Format.XLIFF, 3),
        ("1984", Format.XLIFF, 5),
    ]


def test_what_is_around_blocks_stays():
    out = translated("html", PAGE.encode(), lambda text: text.replace("o", "0"))
    expected = PAGE.replace("Some", "S0me").replace("bold", "b0ld").replace("words &amp;\r\nmore", "w0rds &amp; m0re")
    assert out.decode() == expected.replace("A &lt;b> title", "A &lt;b&gt; title")


@pytest.mark.parametrize("kind", ["html", "md"])
@pytest.mark.parametrize("data", [b"", b" \n", b"\xef\xbb\xbf", b"<hr>\n"])
def test_a_document_without_text_stays(kind, data):
    assert texts(kind, data) == []
    assert translated(kind, data) == data


def test_a_page_is_in_the_encoding_that_it_names():
    data = '<html><head><meta charset="ISO-8859-1"></head>ä'.encode("latin-1")
    assert texts("html", data) == ["ä"]
    assert translated("html", data, lambda _: "ö") == data.replace(b"\xe4", b"\xf6")
    assert translated("html", data, lambda _: "猫") == data.replace(b"\xe4", b"&#29483;")


@pytest.mark.parametrize("name", ["ISO-8859-1", "us-ascii"])
def test_latin_1_of_a_page_is_that_of_windows(name):
    data = f'<meta charset="{name}">“a”'.encode("cp1252")
    assert texts("html", data) == ["“a”"]
    assert translated("html", data, same) == data
    data += b"\x81"  # which Windows does not know
    assert translated("html", data, same) == data


def test_entities_of_a_page_that_its_encoding_lacks_are_no_fault():
    data = '<meta charset="gb2312"><p>&copy; 公司'.encode("gbk")
    assert translated("html", data, same) == data.replace(b"&copy;", b"&#169;")


@pytest.mark.parametrize("translation", ["a", '<x id="0"/>', '<bpt i="0"/>a', '<bpt i="0"/><ept i="0"/><ept i="0"/>a'])
def test_a_translation_that_has_lost_a_tag_is_refused(translation):
    with pytest.raises(DocumentError, match="line 2: the translation has other tags than the document"):
        translated("html", b"<p>a\n<p>b <i>c</i> d", lambda text: translation if "<" in text else text)


def test_a_block_stays_where_its_translation_is_blank():
    assert translated("html", b"<p>a <b>b</b> c", lambda _: " ") == b"<p>a <b>b</b> c"


def test_a_translation_that_would_become_a_part_of_its_own_is_refused():
    def parse_without_escapes(text: str, budget: Budget) -> Page:
        return replace(parse_html(text, budget), write=lambda _, parts: "".join(part.text for part in parts))

    document = PageDocument.of(parse_without_escapes, TextFile("<p>a", "utf-8"), UNLIMITED)
    assert document.render(["&lt;b&gt;b&lt;/b&gt; c"]) == b"<p><b>b</b> c"
    with pytest.raises(DocumentError, match="the translation would break the file"):
        document.render(["b &lt;p&gt;c"])


def test_text_that_looks_like_markup_stays_text():
    words = '<b> &lt; <x id="1"/> *_`'
    escaped = words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    data = translated("html", b"<p title=a>b", lambda _: escaped)
    assert texts("html", data) == [escaped] * 2
    named = translated(
        "html", b"<p>a <b>b</b> c", lambda text: f"{text}\ufdd00\ufdd1"
    )  # how a page names its first tag
    assert named.decode() == "<p>a <b>b</b> c\ufffd0\ufffd"


def test_a_long_document_is_read_and_a_long_paragraph_is_not():
    assert len(texts("md", b"*a*\n\n" * 6_000)) == 6_000
    for data in (b"***\n" * 20_000, b"`a\n" * 10_500):
        with pytest.raises(DocumentError, match=r"the document has more than [26]0000 signs of markup"):
            texts("md", data)


@pytest.mark.parametrize(
    ("kind", "parse", "make"),
    [("html", parse_html, random_page), ("html", parse_html, random_soup), ("md", parse_markdown, random_document)],
)
def test_blocks_alone_are_those_of_the_page(kind, parse, make):
    generator = random.Random(11)
    differ = 0
    for _ in range(25):
        source = make(generator)
        page, document = parse(source), read(kind, source.encode())
        alone = [parse_xliff(text.text) for text in document.texts]
        assert [block.text for each in alone for block in each.blocks] == [block.text for block in page.blocks]
        out = document.render([identity(each) for each in alone]).decode()
        whole = identity(page)
        assert sorted("".join(out.split())) == sorted("".join(whole.split()))
        differ += out != whole  # single things side by side, which may have white space between
        document.render([nonsense(each, generator) for each in alone])
    assert differ < 4
