"""What a file of a glossary may hold, and which stored glossary a request gets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from translane.options import Term
from translane_server.core.errors import GlossaryError
from translane_server.text import glossaries
from translane_server.text.characters import composed
from translane_server.text.glossaries import StoredGlossaries, StoredGlossary, read_name, read_terms
from translane_server.text.glossary import Glossary

PHRASES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t\r\n\0"), min_size=1, max_size=20)
PHRASES = PHRASES.map(str.strip).filter(lambda text: text and text[0] not in "#\ufeff")


@pytest.mark.parametrize(
    ("content", "terms"),
    [
        (b"", []),
        (b"\n\n", []),
        ("猫\tcat\n狗\tdog".encode(), [Term("猫", "cat"), Term("狗", "dog")]),
        ("\ufeffHaus\thouse\r\n\r\n# a comment\tx\n".encode(), [Term("Haus", "house")]),
        (b"  a b \t x  y \t\n", [Term("a b", "x  y")]),
        (b"a\tb\tignore-case\nc\td\tinflected\n", [Term("a", "b", ignore_case=True), Term("c", "d", inflected=True)]),
        (b"a\tb\tinflected , ignore-case\n", [Term("a", "b", ignore_case=True, inflected=True)]),
        (b"a\tb\na\tb\tinflected\n", [Term("a", "b"), Term("a", "b", inflected=True)]),
        ("a\u2028b\tx\x0by".encode(), [Term("a\u2028b", "x\x0by")]),
    ],
)
def test_a_line_is_a_term(content, terms):
    assert list(read_terms(content)) == terms


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"cat", "it has no tab, and a term has one or two: between source, target and flags"),
        (b"a\tb\tinflected\tx", "it has 3 tabs, and a term has one or two: between source, target and flags"),
        (b"\tb", "the source is empty"),
        (b"a\t \tinflected", "the target is empty"),
        (b"a\tb\tinflekted", "'inflekted' is not a flag; there is ignore-case and inflected"),
        (b"a" * 129 + b"\tb", "the source has 129 characters, at most 128 are accepted"),
        (b"a\t" + b"b" * 129, "the target has 129 characters, at most 128 are accepted"),
        (b"x" * 5000, "it has 5,000 bytes, at most 4096 are accepted"),
        (b"\xff\tb", "it is not UTF-8"),
        (b"\xed\xa0\x80\tb", "it is not UTF-8"),
        (b"a\0\tb", "the source has a zero character"),
        (b"dog\tx", "the source is that of line 2"),
    ],
)
def test_a_line_that_is_no_term_is_named(line, problem):
    with pytest.raises(GlossaryError) as caught:
        list(read_terms(b"# animals\ndog\tHund\n" + line + b"\n"))
    assert str(caught.value) == f"line 3: {problem}"


def test_a_source_is_the_same_in_another_normal_form():
    with pytest.raises(GlossaryError, match="line 2: the source is that of line 1"):
        list(read_terms("caf\u00e9\ta\ncafe\u0301\tb\n".encode()))


def test_a_file_has_so_many_terms(monkeypatch):
    monkeypatch.setattr(glossaries, "MOST_TERMS", 2)
    assert len(list(read_terms(b"a\tx\nb\tx\n#\n"))) == 2
    with pytest.raises(GlossaryError, match="line 4: a file has at most 2 terms"):
        list(read_terms(b"a\tx\nb\tx\n#\nc\tx\n"))


@given(st.lists(st.builds(Term, PHRASES, PHRASES, st.booleans(), st.booleans()), unique_by=lambda term: term.source))
def test_what_is_written_is_read_back(terms):
    flags = {"ignore-case": lambda term: term.ignore_case, "inflected": lambda term: term.inflected}
    lines = [
        f"{term.source}\t{term.target}\t{','.join(name for name, is_set in flags.items() if is_set(term))}\n"
        for term in terms
    ]
    content = "".join(lines).encode()
    if len({(composed(term.source), term.ignore_case, term.inflected) for term in terms}) < len(terms):
        with pytest.raises(GlossaryError, match="the source is that of line"):
            list(read_terms(content))
    else:
        assert list(read_terms(content)) == terms


@given(st.binary() | st.text("a\t\n#\r,inflected").map(str.encode))
def test_any_bytes_are_terms_or_a_sentence(content):
    try:
        terms, problem = list(read_terms(content)), ""
    except GlossaryError as error:
        terms, problem = [], str(error)
    assert all(term.source and term.target for term in terms)
    assert not problem or (problem.startswith("line ") and problem.isprintable())


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("medical.de.en.tsv", ("medical", "de", "en")),
        ("law-2.1.zh-Hans.pt_BR.tsv", ("law-2.1", "zh-Hans", "pt_BR")),
        ("x.deu_Latn.eng_Latn.tsv", ("x", "deu_Latn", "eng_Latn")),
    ],
)
def test_the_name_of_a_file_tells_its_languages(name, parts):
    assert read_name(name) == parts


@pytest.mark.parametrize(
    "name",
    ["medical.tsv", "medical.de-en.tsv", ".de.en.tsv", "a b.de.en.tsv", "x.d.en.tsv", "x.de..tsv", "\udc80.de.en.tsv",
     "é.de.en.tsv", "x" * 101 + ".de.en.tsv", "x.de.en-" + "a" * 9 + ".tsv"],
)  # fmt: skip
def test_other_names_are_refused(name):
    with pytest.raises(GlossaryError, match="its name must be NAME"):
        read_name(name)


STORED = StoredGlossaries(
    StoredGlossary(source, target, Glossary(name=name))
    for name, source, target in (
        ("medical", "de", "en"),
        ("medical", "en", "de"),
        ("medical", "de", "pt-BR"),
        ("medical", "de", "pt"),
        ("law", "de", "en"),
        ("any", "und", "en"),
    )
)


@pytest.mark.parametrize(
    ("name", "source", "target", "there"),
    [
        ("medical", "de", "en", True), ("medical", "de-AT", "en-GB", True), ("medical", "deu_Latn", "eng_Latn", True),
        ("medical", "fr", "en", False), ("Medical", "de", "en", False), ("law", "en", "de", False),
        ("any", "xx", "en", True), ("", "de", "en", False),
    ],
)  # fmt: skip
def test_a_glossary_is_found_by_its_name_and_languages(name, source, target, there):
    assert (STORED.find(name, source, target) is not None) == there


def test_the_nearest_language_is_found():
    of_brazil = STORED.find("medical", "de", "pt-BR")
    assert of_brazil is not None
    assert STORED.find("medical", "de", "pt-PT") not in (None, of_brazil)


@pytest.mark.parametrize(
    ("name", "pair", "told"),
    [
        ("x", ("de", "en"), "'x' is not a glossary of this server; for de to en there is any, law, medical"),
        ("law", ("en", "de"), "'law' is a glossary for de to en, and not for en to de"),
        ("x", ("fr", "it"), "'x' is not a glossary of this server, which has none for fr to it"),
        ("a\nb", ("fr", "it"), r"'a\nb' is not a glossary of this server, which has none for fr to it"),
    ],
)
def test_what_is_told_of_a_glossary_that_is_not_there(name, pair, told):
    assert STORED.problem(name, *pair) == told


def test_a_server_may_store_none():
    assert StoredGlossaries().problem("x", "de", "en") == "this server stores no glossaries"
    assert StoredGlossaries().names(("de",), ("en",)) == ()
    assert len(STORED) == 6


def test_the_names_for_a_model():
    assert STORED.names(("deu_Latn", "fra_Latn"), ("eng_Latn",)) == ("any", "law", "medical")
    assert STORED.names(("und",), ("und",)) == ("any", "law", "medical")
    assert STORED.names(("fr",), ("en",)) == ("any",)
    assert STORED.names(("fr",), ("it",)) == ()
