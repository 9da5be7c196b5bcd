"""Catalogues of gettext: only a msgstr changes."""

import random

import polib
import pytest
from unit.server.text.documents.translated import texts, translated

from translane_server.text.documents import DocumentError

HEADER = r"""# A catalogue.
#
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\n"
"""

ENTRIES = r"""
#. for translators
#: a.c:1 b.c:2
#, c-format
msgctxt "menu"
msgid   "Hello %s"
msgstr ""

#, fuzzy, python-format
#| msgid "Old"
msgid "New"
msgstr "Neu?"

msgid "Done"
msgstr "Fertig"

msgid "One cat"
msgid_plural "%d cats"
msgstr[0] ""
msgstr[1]   ""

msgid ""
"\n"
"  First \"line\"\n"
"and\tthe second. \n"
msgstr ""

msgid "..."
msgstr ""

#~ msgid "Obsolete"
#~ msgstr ""

  msgid "last"
  msgstr ""
  """

CATALOGUE = HEADER + ENTRIES


def by_id(data: bytes) -> dict[str, polib.POEntry]:
    return {entry.msgid: entry for entry in polib.pofile(data.decode())}


def test_the_only_form_of_a_plural_is_of_all_counts():
    assert texts("po", b'msgid "One cat"\nmsgid_plural "%d cats"\nmsgstr[0] ""\n') == ["%d cats"]


def test_strings_on_a_line_are_one_and_domains_stay():
    data = b'domain "x"\nmsgid "a" "b"\nmsgstr "" ""\n\ndomain "y"\nmsgid "c"\nmsgstr ""\n'
    assert texts("po", data) == ["ab", "c"]
    assert translated("po", data) == data.replace(b'msgstr "" ""', b'msgstr "AB"').replace(b'tr ""', b'tr "C"')


def test_everything_else_stays_byte_for_byte():
    out = translated("po", CATALOGUE.encode()).decode()
    multiline = 'msgstr ""\n"\\n"\n"  FIRST \\"LINE\\"\\n"\n"AND\\tTHE SECOND. \\n"'
    expected = CATALOGUE.replace('"Hello %s"\nmsgstr ""', '"Hello %s"\nmsgstr "HELLO %S"')
    expected = expected.replace('msgstr[0] ""', 'msgstr[0] "ONE CAT"').replace('msgstr[1]   ""', 'msgstr[1] "%D CATS"')
    expected = expected.replace('second. \\n"\nmsgstr ""', f'second. \\n"\n{multiline}').replace(
        '  msgid "last"\n  msgstr ""', '  msgid "last"\n  msgstr "LAST"'
    )
    assert out == expected


@pytest.mark.parametrize("length", [1, 10, 60, 70, 75, 80, 200, 1000])
def test_long_translations_are_cut_after_spaces(length):
    translation = " ".join(["wörd\\"] * length) + " \t\x0b."
    out = translated("po", CATALOGUE.encode(), lambda _: translation)
    assert by_id(out)["last"].msgstr == translation
    added = [line for line in out.decode().split("\n") if "wörd" in line]
    assert max(map(len, added)) <= 79


def test_line_ends_and_the_mark_at_the_beginning_stay():
    data = b"\xef\xbb\xbf" + CATALOGUE.replace("\n", "\r\n").encode()
    out = translated("po", data)
    assert out.startswith(b"\xef\xbb\xbf# A")
    assert b"\n" not in out.replace(b"\r\n", b"")
    assert out.replace(b"\r\n", b"\n")[3:] == translated("po", CATALOGUE.encode())


def test_the_encoding_is_that_of_the_header():
    data = (HEADER.replace("UTF-8", "ISO-8859-1") + '\nmsgid "Ä"\nmsgstr ""\n').encode("latin-1")
    assert texts("po", data) == ["Ä"]
    assert translated("po", data, lambda _: "é").endswith(b'msgid "\xc4"\nmsgstr "\xe9"\n')
    with pytest.raises(DocumentError, match=r"line 8: the file's encoding ISO-8859-1 has no U\+732B"):
        translated("po", data, lambda _: "猫")


def test_a_template_names_no_encoding():
    data = (HEADER.replace("UTF-8", "CHARSET") + '\nmsgid "\\303\\251t\\xc3\\xa9 \\101"\nmsgstr ""\n').encode()
    assert texts("po", data) == ["été A"]


def test_characters_that_end_lines_elsewhere_are_part_of_a_text():
    assert texts("po", (HEADER + '\nmsgid "a\u2028b\x0cc"\nmsgstr ""\n').encode()) == ["a\u2028b\x0cc"]


PIECES = [
    'msgid "A %s"\nmsgstr ""\n', '#, fuzzy\nmsgid "B"\nmsgstr "C"\n', "\n", "# n\n", "#. b\n#: c:1\n#, c-format\n",
    'msgid "one"\nmsgid_plural "many"\nmsgstr[0] ""\nmsgstr[1] "x"\n', '#~ msgid "o"\n#~ msgstr "p"\n', '#, fuzzy\n',
    'msgid ""\n"\\n"\n" two\\n"\n"words \\"q\\" "\nmsgstr ""\n""\n', '  msgctxt "m"\n  msgid "é 猫"\n  msgstr ""\n',
    f'msgid "{"many words " * 12}"\nmsgstr ""\n',
]  # fmt: skip


@pytest.mark.parametrize("replace", [False, True])
def test_polib_finds_the_same_entries_and_the_translations(replace):
    dice = random.Random(3)
    filled = 0
    for _ in range(200):
        data = (HEADER + "\n" + "".join(dice.choices(PIECES, k=dice.randrange(12)))).encode()
        before, after = polib.pofile(data.decode()), polib.pofile(translated("po", data, replace=replace).decode())
        assert [(each.msgctxt, each.msgid, each.flags, each.comment, each.obsolete) for each in after] == [
            (each.msgctxt, each.msgid, each.flags, each.comment, each.obsolete) for each in before
        ]
        for old, new in zip(before, after, strict=True):
            sources = {0: old.msgid, 1: old.msgid_plural} if old.msgid_plural else {0: old.msgid}
            for number, source in sources.items():
                was, now = ((e.msgstr_plural[number] if old.msgid_plural else e.msgstr) for e in (old, new))
                is_open = not old.obsolete and (replace or not (was or old.fuzzy))
                assert now == (source.upper() if is_open else was)
                filled += is_open
    assert filled > 200
