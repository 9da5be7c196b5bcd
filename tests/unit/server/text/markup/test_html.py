"""HTML comes back with each tag once, around the words that it was around; all that is not translated stays."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.random_pages import kept, libxml_tree, random_page, random_soup, spec_tree, text_of
from helpers.translations import identity, marked, nonsense
from translane_server.text.markup.document import MOST_BLOCKS, MOST_TAGS, MarkupError
from translane_server.text.markup.html import parse_html


def texts(source):
    return [block.text for block in parse_html(source).blocks]


def upper(source):
    """The document with all its blocks in upper case, which have no marks."""
    document = parse_html(source)
    assert not any(block.tags for block in document.blocks)
    return document.render([block.text.upper() for block in document.blocks])


@pytest.mark.parametrize(
    "source",
    [
        '<!DOCTYPE html>\n<html lang="en">\n<head><title>Hi</title>\n<meta name="x" content="a > b"></head>\n<body  >\n'
        "<p class='a'>Hello <b>big</b> world!\n</p></body></html>\n",
        "<ul><li>one<li>two <br> three</ul>",
        "just text &amp; more",
        '<div>Text <p>para</p> tail <br>line<img alt="A cat" src=x></div>',
        '<p>Use <code>ls -l</code> to <a href="x" title="the list">list <i>files</i></a>. See <kbd>F1</kbd>.</p>',
        "<p><b>x <i>y</b> z</i> end</p>",
        "<p>a <!-- c --> b</p><!-- d -->",
        "<P TITLE='Up'>Hi&nbsp;there</P>",
        '<a name="top"></a>Hello<i class="icon"></i>',
        "<p>a <b>b <i>c</b> d</i> e <u>f</p>",
        "<p>a <a>b <a>c</a> d",
        '<p translate="no">a <b translate="yes">b c</b> d <code translate=yes>e</code></p> f',
        "<p>Run <code>a <b>b</b></code> and <kbd>F1</kbd>.</p>",
        "<p>\ufdd0\ufdd1 a \ufdd2 <b>b \ufdef\uffff</b></p>",  # noncharacters, of which two are the marks of tags
        "<p>a \ufdd00\ufdd1 <b>b</b></p>",
    ],
)
def test_a_document_translated_to_itself_is_the_same(source):
    assert identity(parse_html(source)) == source


@pytest.mark.parametrize(
    ("source", "blocks"),
    [
        ("<div>one<p>two</p>three</div>", ["one", "two", "three"]),
        ("one<br>two", ["one", "two"]),
        ("<table><tr><td>a<td><b>b</b></table>", ["a", "b"]),
        ("<select><option>a<option>b</select>", ["a", "b"]),
        ("<custom-tag>a</custom-tag> b", ["a b"]),
        ("<title>a &lt;b&gt;</title>", ["a <b>"]),
        ("<p>a <b>b <i>c</b> d</i> e <u>f</p>", ["a", "b", "c", "d", "e", "f"]),  # tags that cross
        ("<p>a <a>b <a>c</a> d", ["a", "b", "c d"]),
        ('<p translate="no">a <b translate="yes">b c</b> d <code translate=yes>e</code></p> f', ["b c", "e", "f"]),
        ("<p>  a\n\t b </p>", ["a b"]),
        ("<p>a<b> b</b>  c</p>", ["a b c"]),
        ("<p>...</p><p>&nbsp;</p><p><code>x</code></p><p></p>", []),
        ('<img alt="a cat">', ["a cat"]),
        ('<p alt="no">', []),
        ('<img alt="">', []),
        ('<input placeholder="no" value="no" alt="yes">', ["yes"]),
    ],
)
def test_lines_between_blocks_are_blocks(source, blocks):
    assert texts(source) == blocks


@pytest.mark.parametrize(
    "source", ["<p><b><i>a c</i></b> <img></p>", "<p><img> <img>a c<img></p>", "<b>a c</b> &nbsp;<img><br>"]
)
def test_what_is_at_the_ends_of_a_block_is_no_part_of_it(source):
    (block,) = parse_html(source).blocks
    assert (block.text, list(block.tags)) == ("a c", [])


@pytest.mark.parametrize(
    "source",
    [
        "<pre>a b</pre>",
        "<script>a < b</script>",
        "<style>a b</style>",
        "<textarea>a b</textarea>",
        "<svg><title>a b</title></svg>",
        "<svg><![CDATA[ </svg> a b ]]></svg>",
        "<math><mi>a</mi></math>",
        '<div translate="no">a <p>b</p></div>',
        '<p class="x notranslate">a</p>',
        "<iframe>a</iframe>",
        '<noscript><img src="a"> b <b>c</b></noscript>',
        "<script translate=yes>a</script>",
        "<plaintext>a <b>",
        "<!-- a b --><?a b?><!DOCTYPE a><![CDATA[a]]>",
        '<img translate="no" alt="a">',
        "<p title=''>",
        "",
    ],
)
def test_what_is_no_language_stays(source):
    assert texts(source) == []
    assert identity(parse_html(source)) == source


def test_code_is_a_part_of_the_sentence():
    (block,) = parse_html("<p>Run <code>a <b>b</b></code> and <kbd>F1</kbd>.</p>").blocks
    assert block.text == "Run and."
    assert [(mark.start, mark.space_before, mark.space_after) for mark in marked(block).marks] == [
        (4, True, True),
        (7, True, False),
    ]


def test_entities_are_decoded_and_text_is_escaped():
    source = "<p>&lt;b&gt; &amp;amp; &eacute;&#x1F600;&copy; &notit; R&D &#xFDD0;1&#64977; <b>b</b></p>"
    assert texts(source) == ["<b> &amp; é😀© ¬it; R&D \ufdd01\ufdd1 b"]
    assert identity(parse_html(source)) == "<p>&lt;b&gt; &amp;amp; é😀© ¬it; R&amp;D \ufdd01\ufdd1 <b>b</b></p>"


@pytest.mark.parametrize(
    ("source", "written"),
    [
        ("<img alt='a b'>", "<img alt='C&#39;\"D&lt;'>"),
        ('<img alt="a b">', '<img alt="C\'&quot;D&lt;">'),
        ("<img alt=ab>", '<img alt="C\'&quot;D&lt;">'),
    ],
)
def test_an_attribute_keeps_its_quotes(source, written):
    assert parse_html(source).render(["C'\"D<"]) == written


def test_an_attribute_of_a_tag_within_a_sentence_is_translated():
    document = parse_html('<p>See <a title="the list" href=x>here</a> now</p>')
    assert [block.text for block in document.blocks] == ["the list", "See here now"]
    (mark,) = marked(document.blocks[1]).marks
    rendered = document.render(["die Liste", f"Siehe {mark.opening}hier{mark.closing} jetzt"])
    assert rendered == '<p>Siehe <a title="die Liste" href=x>hier</a> jetzt</p>'


def test_a_text_that_leaves_no_noncharacter_for_marks_is_refused():
    page = "".join(map(chr, range(0xFDD0, 0xFDEF)))
    with pytest.raises(MarkupError, match="two must be left for marks"):
        parse_html(page)


@pytest.mark.parametrize("make", [random_page, random_soup])
@pytest.mark.parametrize("seed", range(60))
def test_random_pages_keep_all_but_their_words(seed, make):
    """Tag soup keeps its tags; a page that is well-formed keeps what is not translated, too."""
    generator = random.Random(seed)
    page, is_page = make(generator), make is random_page
    document = parse_html(page)
    same, other = identity(document), nonsense(document, generator)
    for tree in (spec_tree, libxml_tree):
        expected = kept(tree, page, protected=is_page)
        assert kept(tree, same, protected=is_page) == expected
        assert kept(tree, other, protected=is_page) == expected
        # Words stay whole, so a tag within a word moves to its end.
        assert not is_page or Counter(text_of(tree(same))) == Counter(text_of(tree(page)))


@given(st.text(alphabet="<>/ab!-'\"=&; \r\n\t\0é😀", max_size=60))
def test_any_text_is_read_and_keeps_its_elements(source):
    document = parse_html(source)
    assert kept(spec_tree, identity(document), protected=False) == kept(spec_tree, source, protected=False)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("<b>" * 600, "512 elements within each other"),
        ("<p><i>a</i>" + "<b>" * 101 + "x" + "</b>" * 101 + "y", "100 pairs"),
        ("a<br>" * (MOST_BLOCKS + 1), "10000 parts"),
        ("<p>a" + " <wbr>b" * (MOST_TAGS + 1), "10000 tags"),
        ("<svg>" + "<![CDATA[]]>" * 20, "CDATA"),
    ],
)
def test_a_text_with_too_many_parts_is_refused(source, message):
    with pytest.raises(MarkupError, match=message):
        parse_html(source)


@pytest.mark.parametrize(
    ("source", "written"),
    [
        ("one<a", "ONE<a"),
        ("one</b", "ONE</b"),
        ("one<?x", "ONE<?x"),
        ('<p>one <a href="http://x.y/z', '<p>ONE <a href="http://x.y/z'),
        ("<p>one</p>two</p", "<p>ONE</p>TWO</p"),
        ("x<a title='y>z", "X<a title='y>z"),
        ('<a b="', '<a b="'),
        ("<p>a &lt;b&gt;<i title='x", "<p>A &lt;B&gt;<i title='x"),  # after a sign that would finish it
        ("a <", "A &lt;"),  # these are no unfinished tags
        ("<script>foo", "<script>foo"),
        ("<!-- x", "<!-- x"),
    ],
)
def test_a_tag_that_the_text_ends_within_stays_at_the_end(source, written):
    assert upper(source) == written
