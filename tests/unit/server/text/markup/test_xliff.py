"""XLIFF comes back well-formed, each inline element once, each start before its end; no markup takes long to read."""

import random
from collections import Counter

import lxml.etree
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.translations import identity, marked, nonsense
from translane_server.text.markup.document import MarkupError
from translane_server.text.markup.html import parse_html
from translane_server.text.markup.markdown import parse_markdown
from translane_server.text.markup.xliff import parse_xliff

WORDS = ["click", "the", "&lt;b&gt;", "&amp;", "你好", "é😀", ".", "5"]
ENDS = {"ept": "bpt", "ex": "bx", "ec": "sc"}


def random_content(generator, ids, depth=0):
    """Well-formed content with inline elements of both versions, each with an id of its own."""
    parts = []
    for _ in range(generator.randint(1, 4)):
        number = next(ids)
        inner = random_content(generator, ids, depth + 1) if depth < 3 else "x"
        match generator.randrange(11):
            case 0:
                parts.append(f'<g id="{number}">{inner}</g>')
            case 1:
                parts.append(f'<pc id="{number}" dataRefStart="d1">{inner}</pc>')
            case 2:
                parts.append(f'<x id="{number}"/>')
            case 3:
                parts.append(f'<ph id="{number}">&lt;br/> <sub>text</sub></ph>')
            case 4:
                parts.append(f'<bpt id="{number}">&lt;b></bpt>{inner}<ept id="{number}">&lt;/b></ept>')
            case 5:
                parts.append(f'<bx id="{number}" rid="r{number}"/>{inner}<ex id="e{number}" rid="r{number}"/>')
            case 6:
                parts.append(f'<sc id="{number}"/>{inner}<ec startRef="{number}"/>')
            case 7:
                kept = generator.choice(['translate="no"', 'mtype="protected"'])
                parts.append(f'<mrk id="{number}" {kept}>{inner}</mrk>')
            case 8:
                parts.append(f'<mrk id="{number}" mtype="term">{inner}</mrk>')
            case _:
                parts.append(" ".join(generator.choice(WORDS) for _ in range(3)))
    return generator.choice([" ", ""]).join(parts)


def elements(content):
    """Each element, with its attributes, what is around it, and its content if that is kept."""
    found: Counter[object] = Counter()

    def walk(element, around):
        name = element.tag if isinstance(element.tag, str) else "comment"
        if name in ("ph", "bpt", "ept") or "no" in element.attrib.values() or "protected" in element.attrib.values():
            element.tail = None
            found[around, lxml.etree.tostring(element)] += 1
            return
        found[around, name, tuple(element.attrib.items())] += 1
        for child in element:
            walk(child, (*around, name))

    walk(lxml.etree.fromstring(f"<source>{content}</source>"), ())
    return found


def check_starts(content):
    """Each end comes after its start."""
    seen = set()
    for element in lxml.etree.fromstring(f"<source>{content}</source>").iter(*ENDS, *ENDS.values()):
        number = element.get("startRef") or element.get("rid") or element.get("id")
        if element.tag in ENDS:
            assert (ENDS[element.tag], number) in seen
        else:
            seen.add((element.tag, number))


def test_entities_and_sections_are_text():
    document = parse_xliff("a &lt;b&gt; &#233; <![CDATA[c & <d>]]> &amp;")
    assert [block.text for block in document.blocks] == ["a <b> é c & <d> &"]
    assert identity(document) == "a &lt;b&gt; é c &amp; &lt;d&gt; &amp;"


def test_codes_whose_other_half_is_elsewhere_stand_alone():
    source = 'a <ex id="1"/> b <bpt id="2"/> c'
    document = parse_xliff(source)
    assert all(mark.is_single for mark in marked(document.blocks[0]).marks)
    assert identity(document) == source


def test_codes_that_cross_stay_where_they_are():
    source = '<bpt id="1"/>a <bpt id="2"/>b<ept id="1"/> c<ept id="2"/> d'
    document = parse_xliff(source)
    assert [block.text for block in document.blocks] == ["a", "b", "c", "d"]
    assert identity(document) == source


def test_characters_that_xml_has_not_are_left_out():
    assert parse_xliff("a").render(["b\0\x1b\ufffe<c>"]) == "b&lt;c&gt;"


@pytest.mark.parametrize(
    ("source", "line", "column"),
    [
        ("a & b", 1, 4),
        ("a\n<g>b</x>", 2, 7),
        ("a</s><s>b", 1, 6),
        ("é <", 1, 4),
        ("&nbsp;", 1, 1),
        ('<!DOCTYPE s [<!ENTITY a "b">]>&a;', 1, 3),
        ("a\0", 1, 2),
        ("a <g>b", 1, 7),
        ("a\r\n<g>b", 2, 5),
    ],
)
def test_a_text_that_is_not_well_formed_is_refused(source, line, column):
    with pytest.raises(MarkupError, match="no well-formed XML") as error:
        parse_xliff(source)
    assert f"(line {line}, column {column})" in str(error.value)


def test_a_text_with_too_deep_elements_is_refused():
    assert parse_xliff("<g>" * 100 + "a" + "</g>" * 100).blocks
    with pytest.raises(MarkupError, match="100 elements within each other"):
        parse_xliff("<g>" * 101 + "a" + "</g>" * 101)


@pytest.mark.parametrize("seed", range(100))
def test_random_content_keeps_its_elements(seed):
    generator = random.Random(seed)
    source = random_content(generator, iter(range(10_000)))
    document = parse_xliff(source)
    for rendered in (identity(document), nonsense(document, generator)):
        assert elements(rendered) == elements(source)
        check_starts(rendered)


@given(st.text(alphabet="<>/gx&;ab \n'\"=[]!é\0", max_size=40))
def test_any_text_is_read_or_refused(source):
    try:
        document = parse_xliff(source)
    except MarkupError:
        with pytest.raises(lxml.etree.XMLSyntaxError):
            lxml.etree.fromstring(f"<source>{source}</source>")
    else:
        assert elements(identity(document)) == elements(source)


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
