"""Markdown comes back with the same structure, as a parser finds it."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.random_markdown import RENDERER, is_nested, letters, random_document, tags
from helpers.translations import identity, marked, nonsense
from translane_server.text.markup.document import MarkupError
from translane_server.text.markup.markdown import parse_markdown

DOCUMENT = """---
title: a page
---
# Title *here* #

Some **bold** text with `code`, a [link](http://x "t") and <http://y.z>.\\
A second line.

Setext _title_
---

> quoted *text*
>
> 1. one
> 2. [ ] two `a|b`
> 10) **all bold**

* * *

| a | b \\| c |
|---|:-:|
| x **y** | `p\\|q` z |
|  | only |

```python
code
```

    indented

<div align="center">
  raw
</div>

[the foo][foo] ![a picture](i.png "t") <b>bold</b> <kbd>F1</kbd> a_b_c 1 * 2

[foo]: http://foo
"""


def texts(source):
    return [block.text for block in parse_markdown(source).blocks]


def test_a_document_translated_to_itself_is_the_same():
    assert identity(parse_markdown(DOCUMENT)) == DOCUMENT
    assert identity(parse_markdown(DOCUMENT.replace("\n", "\r\n"))) == DOCUMENT.replace("\n", "\r\n")


def test_blocks_are_paragraphs_headings_and_cells():
    assert texts(DOCUMENT) == [
        "Title here",
        "Some bold text with, a link and.",
        "A second line.",
        "Setext title",
        "quoted text",
        "one",
        "two",
        "all bold",
        "a",
        "b | c",
        "x y",
        "z",
        "only",
        "a picture",
        "the foo bold a_b_c 1 * 2",
    ]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a?[^1] b[^n].\n\n[^1]: c d\n[^n]: - e", ["a? b.", "c d", "- e"]),
        ("a[^1] b\n\n[^1]: 猫", ["a b", "猫"]),
        ("a[^1][^2]\n\n[^1]: http://x.y\n[^2]: <http://x.y>", ["a"]),
        ("> [!NOTE]\n> # a\n\n> [!tip]\n> b\n> c", ["a", "b c"]),
        ("x [a[^1] b](c)", ["x a b"]),
        ("[^a](b) [c^]: d", ["^a [c^]: d"]),
        ("a *b [^1]: c* d", ["a b: c d"]),
        ("[^1]: http://x.y\n[foo]: u\n\n[a][foo]", ["a"]),
        ("+++\na = 1\n...\n+++\nb", ["b"]),
    ],
)
def test_footnotes_alerts_and_front_matter_stay(source, expected):
    assert texts(source) == expected
    assert identity(parse_markdown(source)) == source.replace("b\n> c", "b c").replace("[c^]", "\\[c^\\]")


@pytest.mark.parametrize(
    ("source", "same"),
    [
        ("> one\n> *two\n> three*\n\nfour", "> one *two three*\n\nfour"),
        ("[foo] bar ![foo] [foo][] baz\n\n[foo]: u", "[foo][foo] bar ![foo][foo] [foo][foo] baz\n\n[foo]: u"),
        *((text, text) for text in ("Use `foo and *bar* now", "a ``b` c", "a ` b\n> c", "| a ` b |\n|-|\n| ``c |")),
    ],
)
def test_lines_are_joined_links_are_named_and_lone_backquotes_stay(source, same):
    assert identity(parse_markdown(source)) == same


@pytest.mark.parametrize(
    ("source", "translation", "written"),
    [
        ("x", "# a", "\\# a"),
        ("x", "1. a", "1\\. a"),
        ("x", "- a", "\\- a"),
        ("x", "---", "\\---"),
        ("x", "> a", "\\> a"),
        ("x", "a * b_c *d*", "a * b_c \\*d\\*"),
        ("x", "[a](b) <b> &amp; R&D", "\\[a\\](b) \\<b> \\&amp; R&D"),
        ("x", "a\n\nb", "a b"),
        ("x", "`a` \\. \\a ~~b~~", "\\`a\\` \\\\. \\a \\~\\~b\\~\\~"),
        ("x", "| a |\n|-|", "\\| a | |-|"),
        ("# x", "C #", "# C \\#"),
        ("x\n---", "a|b", "a&#124;b\n---"),
        ("| x |\n|---|", "a|b", "| a\\|b |\n|---|"),
        ("![x](i)", "a]b", "![a\\]b](i)"),
    ],
)
def test_no_text_becomes_markup(source, translation, written):
    assert parse_markdown(source).render([translation]) == written


@pytest.mark.parametrize(
    ("source", "translation", "written"),
    [
        ("one *two* three", "三{0.opening}“二”{0.closing}一", "三<em>“二”</em>一"),
        ("one *two* three", "a{0.opening}{0.closing}", "a<em></em>"),
        ("a `b` c `d`", "x{0.opening}{1.opening}", "x`b` `d`"),
        ("a <http://x.y> b", "{0.opening} b", "<http://x.y> b"),  # starts no block
        ("a <!-- c --> b", "{0.opening}x", "&#8203;<!-- c -->x"),
        ("a[^1](b c)", "a{0.opening}(b)", "a[^1]\\(b)"),  # becomes no link
        ("a[^1](b c)", "{0.opening}: a", "[^1]\\: a"),  # and no other note
    ],
)
def test_marks_that_move_become_nothing_else(source, translation, written):
    document = parse_markdown(source)
    assert document.render([translation.format(*marked(document.blocks[0]).marks)]) == written


def test_emphasis_around_all_of_a_block_stays_outside_but_where_it_depends_on_other_emphasis():
    assert [len(marked(parse_markdown(source).blocks[0]).marks) for source in ("**a**", "***a***")] == [0, 2]


@pytest.mark.parametrize("seed", range(100))
def test_random_documents_keep_their_structure(seed):
    generator = random.Random(seed)
    source = random_document(generator)
    document = parse_markdown(source)
    same, other = identity(document), nonsense(document, generator)
    assert tags(same) == tags(source) == tags(other)
    assert letters(same) == letters(source)
    if is_nested(source):
        assert is_nested(same)
        assert is_nested(other)


@given(st.text(alphabet="*_`[]()<>!&\\|-#~ab \n\r\t\0é😀:;\"'=+1.", max_size=60))
def test_any_text_is_read(source):
    document = parse_markdown(source)
    assert RENDERER.render(document.render([block.text for block in document.blocks])) is not None


@pytest.mark.parametrize(
    ("source", "message"),
    [("[" * 5_001, "brackets"), ("*" * 20_001, "signs of markup"), ("\n" * 20_001, "signs of markup")],
)
def test_a_text_with_too_many_signs_is_refused(source, message):
    with pytest.raises(MarkupError, match=message):
        parse_markdown(source)


def test_backquotes_that_could_start_code_are_escaped():
    document = parse_markdown("a ` b<br>c")
    assert document.render(["a ` b", "c ` d"]) == "a ` b<br>c \\` d"
    assert document.render(["a ` b ` c", "d"]) == "a \\` b \\` c<br>d"


def test_a_few_signs_make_no_large_table():
    head = f"|{'a|' * 1000}\n|{'-|' * 1000}\n"
    assert len(parse_markdown(head + "|b\n" * 3).blocks) == 1003
    with pytest.raises(MarkupError, match="tables of more than 10000 cells"):
        parse_markdown(head + "|b\n" * 10)
    assert len(parse_markdown("a|b\n-|-\nc|d\n\n" * 100).blocks) == 400
