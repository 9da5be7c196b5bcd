"""What holds for documents of all kinds, and plain text."""

import pytest
from unit.server.text.documents.translated import TYPES, read, same, texts, translated

from translane_server.core.budget import Budget, OverBudgetError
from translane_server.text.documents import DocumentError, parse
from translane_server.text.documents.document import MOST_TEXTS

LINES = "\ufeffHello,\r\n\r\n  my world. \n***\n\n猫\u2028a\x0b\rlast"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_each_line_of_plain_text_is_a_text(encoding):
    data = LINES.removeprefix("\ufeff" if encoding == "utf-16" else "").encode(encoding)
    assert texts("txt", data) == ["Hello,", "my world.", "猫\u2028a", "last"]
    assert [text.line for text in read("txt", data).texts] == [1, 3, 6, 7]
    assert translated("txt", data, same) == data
    assert translated("txt", data, lambda text: f" {text[0]}\r\nx\n").decode(encoding) == data.decode(encoding).replace(
        "Hello,", "H x"
    ).replace("my world.", "m x").replace("猫\u2028a", "猫 x").replace("last", "l x")


def test_a_text_stays_where_its_translation_is_blank():
    assert translated("txt", b"a\nb\n", lambda text: text.replace("a", " \n")) == b"a\nb\n"


def test_the_number_of_texts_is_bounded():
    line = b"a\n"
    assert len(texts("txt", line * MOST_TEXTS)) == MOST_TEXTS
    with pytest.raises(DocumentError, match=f"line {MOST_TEXTS + 1}: the document has more than {MOST_TEXTS} texts"):
        parse(line * (MOST_TEXTS + 1), "text/plain")


@pytest.mark.parametrize(
    ("kind", "data", "problem"),
    [
        ("txt", b"a\n\xff", "line 2: not valid UTF-8"),
        ("srt", b"Some text\n", "^no cue of SubRip"),
        ("vtt", b"Some text\n", "^no WebVTT"),
        ("po", b'msgstr "a"\n', "line 1: no catalogue of gettext"),
        ("po", b"/etc/passwd", "line 1: no catalogue of gettext"),
        ("po", b'msgid "a"\nmsgid "b"\nxyz\n', r"line \d: no catalogue of gettext"),
        ("po", b'msgid "a"\nmsgid_plural "b"\nmsgstr[1] ""\n', "line 3: .* msgstr is out of place"),
        ("po", b'msgid "a"\nmsgstr ""\nmsgstr[1] ""\n', "line 3: .* msgstr is out of place"),
        ("po", b'"Content-Type: text/plain; charset=none\\n"\n', "the file's encoding is not read; UTF-8 is, "),
        ("xliff", b"", "line 1: no well-formed XML"),
        ("xliff", b"<xliff version='1.2'>\n<a></b>", "line 2: no well-formed XML"),
        ("xliff", b"<html/>", "^no XLIFF of version 1 or 2"),
        ("xliff", b"<xliff/>", "^no XLIFF of version 1 or 2"),
        ("xliff", b'<!DOCTYPE a [<!ENTITY b "c">]><xliff version="1.2"/>', "line 1: XLIFF with entities"),
        ("xliff", b'<!DOCTYPE a SYSTEM "b">\n<xliff version="1.2">&c;</xliff>', "line 2: XLIFF with entities"),
        ("xliff", b'<?xml version="1.0" encoding="none"?><xliff/>', "the file's encoding is not read"),
        ("xliff", b"<xliff version='1.2'>\n" + b"<group>" * 100, "line 2: more than 100 elements within each other"),
    ],
)
def test_what_is_no_file_of_its_kind_is_refused(kind, data, problem):
    with pytest.raises(DocumentError, match=problem):
        texts(kind, data)


XLIFF = '<?xml version="1.0" encoding="{}"?><xliff version="1.2"><trans-unit><source>{}</source></trans-unit></xliff>'


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("ISO-8859-15", "Š"),
        ("windows-1251", "Я"),
        ("gb18030", "猫"),
        ("Big5", "貓"),
        ("Shift_JIS", "ネコ"),
        ("EUC-KR", "고"),
        # what files have, and Python's encodings of the names lack
        ("GB2312", "朱镕基——你好·吗"),
        ("Shift_JIS", "①髙"),
        ("EUC-KR", "똠"),
    ],
)
def test_a_document_keeps_its_encoding(encoding, text):
    wide = {"GB2312": "gbk", "Shift_JIS": "cp932", "EUC-KR": "cp949"}.get(encoding, encoding)
    data = XLIFF.format(encoding, text).encode(wide)
    assert texts("xliff", data) == [text]
    assert f">{text}{text}</target>".encode(wide) in translated("xliff", data, lambda each: each * 2)


def test_xliff_writes_what_its_encoding_lacks_as_references():
    data = XLIFF.format("GB2312", "a").encode()
    assert b">a&#169;</target>" in translated("xliff", data, lambda each: f"{each}©")


@pytest.mark.parametrize("encoding", ["idna", "punycode", "utf-7", "unicode_escape", "hz", "iso-2022-jp", "utf-16"])
def test_an_encoding_that_may_take_long_or_depends_on_what_is_before_is_refused(encoding):
    with pytest.raises(DocumentError, match=r"^the file's encoding is not read; UTF-8 is, "):
        texts("xliff", XLIFF.format(encoding, "a").encode())


def test_bytes_that_would_be_written_in_another_way_are_refused():
    with pytest.raises(DocumentError, match="line 2: bytes that BIG5 writes in another way"):
        texts("xliff", XLIFF.format("big5", "\n@").encode().replace(b"@", b"\xa2\xcc"))


def test_a_type_that_is_not_read_is_refused():
    with pytest.raises(DocumentError, match="types text/plain, "):
        parse(b"", "image/png")


@pytest.mark.parametrize("kind", sorted({*TYPES} - {"po", "xliff"}))
def test_translations_are_replaced_only_where_a_kind_has_any(kind):
    with pytest.raises(DocumentError, match=f"type {TYPES[kind]} has no translations to replace"):
        parse(b"", TYPES[kind], replace_translations=True)


CUES = b"1\n00:00:01,000 --> 00:00:02,000\na\n\n"
LONG = {
    "txt": b"a b\n" * 1000,
    "srt": CUES * 1000,
    "vtt": b"WEBVTT\n\n" + CUES * 1000,
    "html": b"<p>a</p>" * 1000,
    "md": b"a\n\n" * 1000,
    "po": b'msgid "a"\nmsgstr ""\n' * 1000,
    "xliff": b"<xliff version='2.0'>" + b"<segment><source>a</source></segment>" * 1000 + b"</xliff>",
}


@pytest.mark.parametrize("kind", LONG)
def test_work_ends_with_its_budget(kind):
    ticks = iter(range(10**6))
    budget = Budget(500, lambda: next(ticks))
    budget.start()
    for data in (LONG[kind], LONG[kind].replace(b"a", b".")):  # with texts, and without
        with pytest.raises(OverBudgetError):
            parse(data, TYPES[kind], budget=budget)
    document = parse(LONG[kind], TYPES[kind])
    budget.start()
    with pytest.raises(OverBudgetError):
        document.render([text.text for text in document.texts], budget)
