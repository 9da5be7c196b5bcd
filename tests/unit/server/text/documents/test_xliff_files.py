"""XLIFF: targets are filled, and nothing else changes."""

import re
from xml.etree import ElementTree

import pytest
from unit.server.text.documents.translated import same, texts, translated

from translane_server.text.documents import DocumentError

HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<!-- kept: <source>not this</source> -->
"""
VERSION_1 = """<xliff version='1.2' xmlns="urn:oasis:names:tc:xliff:document:1.2" xmlns:y="urn:y">
 <file source-language="en" target-language="de" original="a>b" datatype="plaintext"><body>
  <group id="g">
  <trans-unit id="1" y:a="1>0" resname='x"y'>
    <source xml:lang="en">Hello <g id="1">big</g> &amp; <x id="2"/> <![CDATA[<raw>]]> w\u00f6rld
</source>
    <note>Note</note>
  </trans-unit>
  <trans-unit id="2" translate="no"><source>Keep</source></trans-unit>
  <trans-unit id="3" approved="yes"><source>Done</source><target><![CDATA[Fertig]]></target></trans-unit>
  <trans-unit id="4"><source>New</source><target state="new" state-qualifier='x'>New</target>
    <alt-trans><source>old</source><target>alt</target></alt-trans></trans-unit>
  <trans-unit id="5"><source>Empty</source><target xml:lang="de"   /></trans-unit>
  <trans-unit id="6"><source>A. B.</source><seg-source><mrk mtype="seg" mid="1">A.</mrk> B.</seg-source></trans-unit>
  <trans-unit id="7"><source/></trans-unit>
  <trans-unit id="8"><source> <x id="1"/> </source></trans-unit>
  </group>
  <group translate="no"><trans-unit id="9"><source>Keep</source></trans-unit>
  <trans-unit id="10" translate="yes"><source>Last</source></trans-unit></group>
 </body></file>
</xliff>
"""
VERSION_2 = """<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.1" srcLang="en" trgLang="fr">
<file id="f"><unit id="u">
  <segment id="s" state="initial"><source>Hi <pc id="1">you</pc></source></segment>
  <ignorable><source> and </source></ignorable>
  <segment><source>Two</source><target>Deux</target></segment>
  <segment id="t">
    <source>Three</source>
    <target></target>
  </segment></unit>
  <unit id="v" translate="no"><segment><source>Keep</source></segment></unit>
</file></xliff>"""


def elements(data: bytes) -> list[tuple[str, str]]:
    """Name and text of each element."""
    return [(each.tag.rpartition("}")[2], "".join(each.itertext())) for each in ElementTree.fromstring(data).iter()]


def test_the_sources_without_a_target_are_translated():
    assert texts("xliff", (HEAD + VERSION_1).encode()) == [
        'Hello <g id="1">big</g> &amp; <x id="2"/> <![CDATA[<raw>]]> wörld',
        "New",
        "Empty",
        '<mrk mtype="seg" mid="1">A.</mrk> B.',
        "Last",
    ]
    assert texts("xliff", VERSION_2.encode()) == ['Hi <pc id="1">you</pc>', "Three"]


def test_existing_targets_are_translated_where_it_is_asked_for():
    assert "Done" in texts("xliff", VERSION_1.encode(), replace=True)
    assert texts("xliff", VERSION_2.encode(), replace=True) == ['Hi <pc id="1">you</pc>', "Two", "Three"]
    done = VERSION_2.replace("<segment><source>Two", '<segment state="final" subState="x:y"><source>Two').encode()
    assert b'<segment state="translated"><source>Two' in translated("xliff", done, same, replace=True)
    approved = translated("xliff", VERSION_1.encode(), same, replace=True)
    assert b'<trans-unit id="3"><source>Done</source><target state="translated" state-qualifier="mt' in approved


@pytest.mark.parametrize(
    ("version", "unit", "text"),
    [
        ("1.2", '<trans-unit><source>a</source><target><mrk mtype="seg" mid="1"/></target></trans-unit>', "a"),
        ("1.2", "<trans-unit><source><![CDATA[a]]></source><target> </target></trans-unit>", "<![CDATA[a]]>"),
        ("2.0", '<segment state="initial"><source>a</source><target>a</target></segment>', "a"),
    ],
)
def test_what_has_a_target_without_a_translation_is_translated(version, unit, text):
    data = f'<xliff version="{version}">{unit}</xliff>'.encode()
    assert texts("xliff", data) == [text]
    out = translated("xliff", data, lambda _: "b")
    assert elements(out)[-1] == ("target", "b")
    assert texts("xliff", out) == []


def test_each_segment_of_a_source_is_a_text():
    first, last = '<mrk mtype="seg" mid="1">A.</mrk>\n', '<mrk mtype="seg"/>.'
    second = """<mrk mid="2" mtype='seg' ><g id="1"> <mrk mtype="term">b</mrk> c.</g></mrk> """
    unit = f"<source>A. b c.</source><seg-source>{first}{second}{last}</seg-source>"
    data = f'<xliff version="1.2"><trans-unit>{unit}</trans-unit></xliff>'.encode()
    assert texts("xliff", data) == ["A.", '<g id="1"> <mrk mtype="term">b</mrk> c.</g>']
    out = translated("xliff", data, lambda text: text.replace("A", "X").replace(" c", " z")).decode()
    assert '<mrk mtype="seg" mid="1">X.</mrk>\n<mrk mid="2"' in out
    assert ' z.</g></mrk> <mrk mtype="seg"/>.</target>' in out


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
@pytest.mark.parametrize("body", [VERSION_1, VERSION_2])
def test_without_the_new_targets_the_file_is_the_same(body, encoding, line_end):
    name = "ISO-8859-1" if encoding == "latin-1" else "UTF-16" if encoding == "utf-16" else "UTF-8"
    text = (HEAD.replace("UTF-8", name) + body).replace("\n", line_end)
    out = translated("xliff", text.encode(encoding), same).decode(encoding)
    assert ElementTree.fromstring(out.encode(encoding)) is not None
    added = r"\s*<target state=\"translated\" state-qualifier=\"mt-suggestion\">.*?</target>"
    if body == VERSION_1:
        for kept in ("<target state=\"new\" state-qualifier='x'>New</target>", '<target xml:lang="de"   />'):
            text = text.replace(kept, "")
        out = re.sub(r'<target xml:lang="de" state.*?</target>', "", out)
        assert re.sub(added, "", out, flags=re.DOTALL) == text
    else:
        expected = text.replace('state="initial"', 'state="translated"').replace('id="t"', 'id="t" state="translated"')
        expected = expected.replace("you</pc></source>", 'you</pc></source><target>Hi <pc id="1">you</pc></target>')
        assert out == expected.replace("<target></target>", "<target>Three</target>")


def test_a_new_target_stands_on_a_line_of_its_own_where_the_source_does():
    out = translated("xliff", VERSION_1.encode(), same).decode()
    assert "</source>\n    <target state=" in out
    assert "wörld\n</target>\n    <note>" in out


def test_only_the_attributes_of_the_state_change():
    data = (
        b"""<xliff version="1.2"><trans-unit><source>a</source><target note=' state="b"'  state="new"  state-x="c"/>"""
    )
    data += b"</trans-unit></xliff>"
    added = b'<target note=\' state="b"\'  state-x="c" state="translated" state-qualifier="mt-suggestion">'
    assert added in translated("xliff", data)


def test_prefixes_of_names_are_kept():
    data = b'<x:xliff version="1.2" xmlns:x="urn:oasis:names:tc:xliff:document:1.2"><x:trans-unit id="1">'
    data += b"<x:source>a</x:source></x:trans-unit></x:xliff>"
    out = translated("xliff", data)
    assert elements(out)[-1] == ("target", "A")
    assert b">A</x:target>" in out


def test_a_translation_that_would_break_the_file_is_refused():
    for broken in ("a & b", "<g id='1'>", "</target>", "\x01", "&unknown;"):
        with pytest.raises(DocumentError, match="the translation would break the file"):
            translated("xliff", VERSION_2.encode(), {"Three": broken, 'Hi <pc id="1">you</pc>': broken}.__getitem__)
