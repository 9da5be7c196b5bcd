"""Characters, and what is kept of a text as it is."""

import random
import sys
import unicodedata
from itertools import pairwise

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from translane_server.core.budget import Budget, OverBudgetError
from translane_server.text import characters
from translane_server.text.characters import boundary_before, composed, is_boundary
from translane_server.text.placeholders import (
    Kept,
    Kind,
    PreservePatternError,
    PreservePatterns,
    cut_at,
    untranslatable,
    without_overlaps,
)


def boundaries(text):
    return [index for index in range(len(text) + 1) if is_boundary(text, index)]


def test_the_boundaries_are_those_of_unicode():
    """Found one by one, they are the ends of the characters that `regex` finds from the start of the text."""
    chance = random.Random(7)
    kinds = [
        "CR", "LF", "Control", "Extend", "ZWJ", "RI", "Prepend", "SpacingMark", "L", "V", "T", "LV", "LVT", "Other",
    ]  # fmt: skip
    every = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000)
    pools = [regex.findall(rf"\p{{GCB={kind}}}", every) for kind in kinds]
    pools += [
        regex.findall(r"[\p{Extended_Pictographic}]", every),
        regex.findall(r"[\p{Devanagari}\p{Malayalam}]", every),
    ]
    for _ in range(10_000):
        text = "".join(chance.choice(chance.choice(pools)) for _ in range(8))
        expected = [0, *(match.end() for match in regex.finditer(r"\X", text))]
        assert boundaries(text) == expected, [hex(ord(c)) for c in text]
        for index in range(1, len(text)):
            assert boundary_before(text, index) == max(place for place in expected if place <= index)


@pytest.mark.parametrize("part", ["\u0301", "👩\u200d", "क्"])
def test_a_character_of_a_million_code_points_takes_no_longer_at_its_end(part):
    """A search from its start at each place would take hours."""
    text = part * (1_000_000 // len(part))
    places = range(len(text) - 10_000, len(text))
    assert not any(is_boundary(text, index) for index in places)
    assert boundary_before(text[:10_000], 9_000) == 0


MARKS = "\u0301\u0323\u0315\u0f73\u0344\u3099\u09be"
PIECES = st.one_of(
    st.text(max_size=40),
    st.text("ea각\u1100\u1161\u11a8か\u09c7x", max_size=40),
    st.text(MARKS, max_size=30).map(lambda marks: "e" + marks),
)


@given(st.lists(PIECES, max_size=60).map("".join))
def test_the_same_as_of_the_whole_text(text):
    assert composed(text) == unicodedata.normalize("NFC", text)


def test_where_a_piece_ends_nothing_composes():
    """Each character that may follow a cut leaves every kind of character before it as it is."""
    before = ["e", "\u09c7", "\u1100", "가", "か", "\u0f71", "e\u0301", "\U00011347", "\u0dd9"]
    assert all(unicodedata.is_normalized("NFC", other) is (other != "e\u0301") for other in before)
    for point in range(sys.maxunicode + 1):
        character = chr(point)
        assigned = unicodedata.category(character) not in ("Cn", "Co", "Cs")
        if assigned and not characters._may_change_with_the_one_before(character):
            alone = unicodedata.normalize("NFC", character)
            whole = "\n".join(other + character for other in before)
            expected = "\n".join(unicodedata.normalize("NFC", other) + alone for other in before)
            assert unicodedata.normalize("NFC", whole) == expected, hex(point)


@pytest.mark.parametrize("marks", ["\u0315\u0300", "\u0f73", "\u0327\u0301\u0345"])
def test_a_million_marks_take_no_longer_than_a_million_letters(marks):
    """The whole run at once would take an hour."""
    text = "e" + marks * (1_000_000 // len(marks))
    assert len(composed(text)) >= 999_990


# What of a text is not translated: by rules, in braces, and by patterns of callers.


def kept(text):
    return [text[part.start : part.end] for part in untranslatable(text)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Hello {name}, {0} and {}", ["{name}", "{0}", "{}"]),
        ("{{ user.name }} ${x} #{y} %{z} {% if a %}", ["{{ user.name }}", "${x}", "#{y}", "%{z}", "{% if a %}"]),
        ("{n, plural, one {# file} other {{n} files}}!", ["{n, plural, one {# file} other {{n} files}}"]),
        ("{a {b} c} {你好} } {a} { {b}} {a b}", ["{b}", "{你好}", "{a}", "{b}"]),
        ("{" + "a" * 128 + "} {" + "b" * 129 + "}", ["{" + "a" * 128 + "}"]),
        ("{n, number} {n, numbers} @{d}", ["{n, number}", "{d}"]),
        ("%s %d%% %1$s %(name)s %.2f %5d %@ %-3i", ["%s", "%d", "%%", "%1$s", "%(name)s", "%.2f", "%5d", "%@", "%-3i"]),
        ("第%d章 %s。", ["%d", "%s"]),
        ('a <b>c</b> <x id="1"/> <br>', ["<b>", "</b>", '<x id="1"/>', "<br>"]),
        ('<a href="x>y">z</a >', ['<a href="x>y">', "</a >"]),
        ("<!-- no --> &nbsp;&#160;&#xA0;", ["<!-- no -->", "&nbsp;", "&#160;", "&#xA0;"]),
        ("https://a.org/{id}/x https://a.org/x{n, select, other {y}}",
         ["https://a.org/{id}/x", "https://a.org/x", "{n, select, other {y}}"]),
        ("访问https://example.com/a?b=c。谢谢", ["https://example.com/a?b=c"]),
        ("(see https://a.org/b_(c)), www.a.org.", ["https://a.org/b_(c)", "www.a.org"]),
        ("at example.com/x or example.org.", ["example.com/x", "example.org"]),
        ("写信给a.b+c@mail.example.org。", ["a.b+c@mail.example.org"]),
        ("run `ls -l` or ``a`b``", ["`ls -l`", "``a`b``"][:1]),
        ("run `a``b`", ["`a``b`"]),
        ("in /usr/lib, ~/x/y, ./a.txt or C:\\Users\\me", ["/usr/lib", "~/x/y", "./a.txt", "C:\\Users\\me"]),
        ("看https://a.b/c你好 https://a.b/cประเทศ www.a.org/x안녕", ["https://a.b/c", "https://a.b/c", "www.a.org/x"]),
        ("https://a.b/cé/привет https://a.b/cｶﾞー", ["https://a.b/cé/привет", "https://a.b/c"]),
        ("在C:\\Users\\me里 C:\\用户\\x", ["C:\\Users\\me", "C:\\用户\\x"]),
        ("&lt;i&gt;x&lt;/i&gt; 3 &lt; 4", ["&lt;i&gt;", "&lt;/i&gt;", "&lt;"]),
        ("see readme.md and src/main.py.", ["readme.md", "src/main.py"]),
        ("a snake_case, __init__ and f_x()", ["snake_case", "__init__", "f_x()"]),
        ("ABC-1234 v1.2.3 192.168.0.1 3f2a9bc1 #ff00a0", ["ABC-1234", "v1.2.3", "192.168.0.1", "3f2a9bc1", "#ff00a0"]),
        ("颜色是#ababab或#FFAABB、#fff和#0aF #000。", ["#ababab", "#FFAABB", "#fff", "#0aF", "#000"]),
        ("打开 http://你好.com/a 或https://例子-1.cn。", ["http://你好.com/a", "https://例子-1.cn"]),
        ("http://www.例え.jp/a http://教育部.中国/ https://a.cn/图", ["http://www.例え.jp/a", "http://教育部.中国/", "https://a.cn/"]),
        ("地址是2001:db8::1。或 fe80::1, 2a00:1:2:3:4:5:6:7.", ["2001:db8::1", "fe80::1", "2a00:1:2:3:4:5:6:7"]),
        ("2001:db8::192.0.2.33", ["192.0.2.33"]),
        ("从2001:db8::/32到 fe80::/10, 2001:db8::.", ["2001:db8::/32", "fe80::/10", "2001:db8::"]),
        ("它是D41D8CD98F00B204E9800998ECF8427E。", ["D41D8CD98F00B204E9800998ECF8427E"]),
        ("🙂 👩‍👩‍👧‍👦🏳️‍🌈 1️⃣ 🇩🇪 👍🏽", ["🙂", "👩‍👩‍👧‍👦🏳️‍🌈", "1️⃣", "🇩🇪", "👍🏽"]),
    ],
)  # fmt: skip
def test_what_is_found(text, found):
    assert kept(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "100 % sure, 5% of them, 20%的人 and 50% discount.",
        "He and/or she drove 90 km/h in the 1960s; 3.5 a.m., e.g. z.B. U.S. 1/2.",
        "COVID-19, H1N1, MP3, 3D, B2B, F-16, 1960er, 20th.",
        "a < b and c > d, <3, AT&T, R&D; x = {this is a sentence}.",
        "C# and #1, @ 5 €, C++, 10:30, 2020-01-02, 1,000.50",
        "ticket #111, #444 and #123: #decade, #facade, #bad and #add",
        "12:30:45, 12:30:45:00, A4::B5:x, std::dec, x[1::2], face::bad, 1990::1995, 1234567890123456",
        "He said: 'Stop'... \"Really?\" — yes (no).",
        "汤姆昨天买了一辆新车，他很高兴！",
    ],
)
def test_words_are_translated(text):
    assert kept(text) == []


SIGNS = ["{", "}", "<", ">", "%", "&", "`", "@", "://", "www.", ".", "/", "\\", "_", "-", "#", "$", "=", '"', "'", " ",
         "a", "A", "0", "é", "你", "🙂", "\u200d", "🇩", "\ufe0f", "\n", ";", "plural,", "!--", "(", ")"]  # fmt: skip


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "hostile",
    ["{", "<", "%", "a@", "<a ", '<a b="', "<a b='", "&", "`", "```", "/", "a/", "a.", "{{", "<!--", "_", "a_", "://",
     "http://(", "www.", "A-", "0a", "🙂", "\u200d", "🇩", "%(", "%1$", "a@a.", "c:\\", "{a,plural,", "1.", "~/", "A",
     "</", "0:", "A0", "#", "http://你", "://你"],
)  # fmt: skip
def test_the_time_grows_with_the_length_of_the_text(hostile):
    untranslatable(hostile * (500_000 // len(hostile)))


@given(st.lists(st.sampled_from(SIGNS)).map("".join))
def test_parts_are_in_order_and_do_not_overlap(text):
    parts = untranslatable(text)
    ends = [0, *(part.end for part in parts)]
    assert all(end <= part.start < part.end <= len(text) for end, part in zip(ends, parts, strict=False))


@given(st.text(st.sampled_from("🙂👩👧🏽🇩🇪\u200d\ufe0fa ♀✔1\u20e3"), max_size=12))
def test_no_emoji_is_cut(text):
    inner = {match.end() for match in regex.finditer(r"\X", text)} | {0}
    for part in untranslatable(text):
        assert part.kind is Kind.EMOJI
        assert part.end in inner
        assert part.start in inner


SPANS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 6)).map(lambda each: Kept(each[0], sum(each))), max_size=8
)


@given(SPANS, SPANS)
def test_the_parts_of_the_first_kind_are_kept_in_any_case(first, second):
    first = without_overlaps(first)
    found = without_overlaps(second, first)
    assert set(first) <= set(found)
    assert all(one.end <= other.start for one, other in pairwise(found))
    assert all(any(part.start < each.end and each.start < part.end for each in found) for part in second)


@given(SPANS, st.lists(st.integers(0, 40), unique=True).map(sorted))
def test_parts_are_cut_at_places_within_them(parts, places):
    parts = without_overlaps(parts)
    parts = [part._replace(kind=Kind.EMOJI) for part in parts]
    found = cut_at(parts, places)
    assert all(part.kind is Kind.EMOJI for part in found)
    assert len(found) == len(parts) + sum(part.start < place < part.end for part in parts for place in places)
    assert {at for part in found for at in range(part.start, part.end)} == {
        at for part in parts for at in range(part.start, part.end)
    }
    assert not any(part.start < place < part.end for part in found for place in places)


@pytest.mark.timeout(10)
def test_deep_braces_take_no_long_time():
    assert not untranslatable("{a " * 50_000 + "}" * 50_000)[1:]


def test_the_first_part_wins_and_of_these_the_longest():
    assert without_overlaps([Kept(2, 9), Kept(0, 1), Kept(0, 3), Kept(3, 4)]) == [Kept(0, 3), Kept(3, 4)]


def matched(text, *patterns):
    return [text[part.start : part.end] for part in PreservePatterns(patterns).find(text)]


def test_what_patterns_match():
    assert matched("ä🙂 foo, FOO\nfoobar", "(?i)foo", "o+b", "foobar") == ["foo", "FOO", "foobar"]
    assert matched("aaa\nb", "a+|a", r"\s*b", r"\b") == ["aaa", "b"]


@pytest.mark.parametrize("pattern", ["(", "(?=x)", r"(a)\1", "x*", "", "a{1001}", "(?:x{1,90}){1,11}", "\\"])
def test_what_is_no_pattern_is_refused(pattern, capfd):
    with pytest.raises(PreservePatternError) as caught:
        PreservePatterns(["a", pattern])
    assert caught.value.number == 1
    assert capfd.readouterr() == ("", "")


@pytest.mark.timeout(20)
def test_a_hostile_pattern_takes_time_in_proportion():
    assert matched("ab" * 50_000, "(a|b)*a(a|b){40}c", "(a*)*b{2}") == []


@pytest.mark.timeout(20)
def test_the_budget_ends_the_search():
    now = iter(range(10_000))
    budget = Budget(100, clock=lambda: float(next(now)))
    budget.start()
    with pytest.raises(OverBudgetError):
        PreservePatterns(["a"]).find("a" * 5000, budget)
