"""Subtitles keep numbers, times, settings, styles and tags."""

import random
import re

import pysubs2
import pytest
from unit.server.text.documents.translated import same, texts, translated

from translane_server.text.documents.subtitles import BrokenLines

SRT = """\ufeff1
00:00:01,000 --> 00:00:02,000 X1:100 X2:200
<i>We have been waiting</i>
for half an hour.

2
00:00:03,000 --> 00:00:04,000

3
00:00:05,000 --> 00:00:06,500
- Tom & Jerry < 3?
- {\\an8}No. Not
yet.

4
00:00:07,000 --> 00:00:08,000
♪ ♪


5
00:00:09,000 --> 00:00:10,000
1984

6
00:00:11,000 --> 00:00:12,000
above

below
7
00:00:13,000 --> 00:00:14,000
你好吗
我很好"""

VTT = """WEBVTT - a title --
Kind: captions

STYLE
::cue(v) { color: red }

NOTE a comment
on lines

REGION
id:r

intro
00:01.000 --> 00:04.000 align:start position:10%
<v Bob>Tom &amp; Jerry &lt;b&gt;
&nbsp;were <c.yellow>here</c></v>

00:05.000 --> 01:00:06.000
- One
- Two <00:05.500>three

NOTE the end
"""


SPACED = "1\n00:00:01,000 --> 00:00:02,000 \n  a <i>b</i>\t \n \n c \n"


TIMING = re.compile(rb"^[\d:,.]+ ?--> ?[\d:,.]+.*$", re.MULTILINE)


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(
    ("kind", "text"), [("srt", SRT), ("vtt", VTT), ("vtt", "WEBVTT"), ("srt", ""), ("srt", SPACED)]
)
def test_a_translation_that_changes_nothing_changes_no_byte(kind, text, line_end):
    data = text.replace("\n", line_end).encode()
    assert translated(kind, data, same) == data


def test_the_texts_of_subrip_and_of_webvtt_without_its_entities():
    assert texts("srt", SRT.encode()) == [
        "We have been waiting</i> for half an hour.",
        "Tom & Jerry < 3?",
        "No. Not yet.",
        "1984",
        "above",
        "below",
        "你好吗我很好",
    ]
    assert texts("vtt", VTT.encode()) == [
        "Tom & Jerry &lt;b&gt; \xa0were <c.yellow>here",
        "One",
        "Two <00:05.500>three",
    ]


def test_a_line_of_spaces_ends_no_cue_of_webvtt():
    data = b"WEBVTT\n\n00:01.000 --> 00:02.000\n \na <00:01.500><c>b</c>\n\nno cue\n"
    assert texts("vtt", data) == ["a <00:01.500><c>b"]
    assert translated("vtt", data, same) == data


@pytest.mark.parametrize(
    "time",
    [
        *("00:00:05 --> 00:00:06", "-00:00:01,500 --> 00:00:02,000", "00:00:05,000 --> -00:00:04,000"),
        *("00:00:5,500 --> 00:00:06,000", "00:00:05:500 --> 00:00:06:000", "00:00:05, -->", "00:00:05,0 -> 00:00:06,0"),
    ],
)
def test_times_of_other_forms_are_no_text_of_subrip(time):
    data = f"1\n00:00:01,000 --> 00:00:02,000\nabove\n\n2\n{time}\n5 -> 6\n".encode()
    assert texts("srt", data) == ["above", "5 -> 6"]
    assert texts("srt", data.partition(b"\n\n")[2]) == ["5 -> 6"]


def test_webvtt_is_escaped_but_for_its_own_tags():
    out = translated("vtt", VTT.encode(), lambda text: text.replace("Tom", "<i> & -->")).decode()
    assert "<v Bob>&lt;i&gt; &amp; --&gt; &amp; Jerry &lt;b&gt;" in out.replace("\n", " ")
    assert "were <c.yellow>here</c></v>\n" in out


@pytest.mark.parametrize(("kind", "text"), [("srt", SRT), ("vtt", VTT)])
@pytest.mark.filterwarnings("ignore")  # pysubs2 warns of what it does not know
def test_pysubs2_finds_the_same_times_and_the_translations(kind, text):
    before = pysubs2.SSAFile.from_string(text.removeprefix("\ufeff"), format_=kind)
    out = translated(kind, text.encode(), lambda each: re.sub("[a-z]", "x", each)).decode()
    after = pysubs2.SSAFile.from_string(out.removeprefix("\ufeff"), format_=kind)
    assert [(each.start, each.end) for each in after] == [(each.start, each.end) for each in before]
    assert len(before) == {"srt": 7, "vtt": 2}[kind]
    assert any("x" in each.plaintext for each in after)


@pytest.mark.parametrize("kind", ["srt", "vtt"])
def test_any_file_keeps_its_bytes(kind):
    pieces = ["1\n", "\n", "00:00:01,000 --> 00:00:02,000\n", "00:01.000-->00:02.000 a:b\r\n", "-", "– a", "<", ">"]
    pieces += ["<i>", "</i>", "{\\an8}", "a b", "猫", " ", "\r\n", "&amp;", "\t", "x\n", "NOTE\n", "\x00"]
    dice = random.Random(5)
    for _ in range(400):
        body = "".join(dice.choices(pieces, k=dice.randrange(30)))
        data = ("WEBVTT\n\n" if kind == "vtt" else "1\n00:00:01,000 --> 00:00:02,000\nHi\n\n").encode() + body.encode()
        out = translated(kind, data, same)
        assert len(texts(kind, out)) >= len(texts(kind, data))
        assert TIMING.findall(out) == TIMING.findall(data)
        assert out.count(b"\n\n") == data.count(b"\n\n")  # no line has become blank


@pytest.mark.parametrize(
    ("lines", "text", "cut"),
    [
        (["one"], "a b c", ["a b c"]),
        (["one", "two"], "aaa bbb", ["aaa", "bbb"]),
        (["one two three", "x"], "a b c d e f", ["a b c d e", "f"]),
        (["one", "two"], "word", ["word"]),
        (["one", "two", "six"], "a b", ["a", "b"]),
        (["one", "two"], "你好吗我很好", ["你好吗", "我很好"]),
        (["a b", "c d", "e f"], "a   b\u3000c  ", ["a  ", "b\u3000c  "]),
        (["你好", "我好"], "hello you", ["hello", "you"]),
    ],
)
def test_lines_keep_their_share_of_the_text(lines, text, cut):
    assert BrokenLines.of(lines).cut(text) == cut


@pytest.mark.parametrize(
    ("cue", "text"),
    [
        ("Say <i>&lt;i&gt;</i> now", "Say <i>&lt;i&gt;</i> now"),
        ("&lt;i&gt;Hi&lt;/i&gt;", "&lt;i&gt;Hi&lt;/i&gt;"),
        ("3 &lt; 4 &#38; 5&nbsp;m", "3 < 4 & 5\xa0m"),
        ("a &amp;lt; b", "a &amp;lt; b"),
        ("- &nbsp;\n- &#60;b", "<b"),
    ],
)
def test_entities_of_webvtt_come_back_as_they_were_written(cue, text):
    data = f"WEBVTT\n\n00:01.000 --> 00:04.000\n{cue}\n".encode()
    assert texts("vtt", data) == [text]
    assert translated("vtt", data, same) == data
