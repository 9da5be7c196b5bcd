"""The words of a text, where a term occurs and where it does not, and files of terms."""

import unicodedata
from typing import Any

import pytest
import Stemmer
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.refusals import refusal
from translane.options import Term
from translane_server.core.errors import GlossaryError
from translane_server.text import glossaries
from translane_server.text.glossaries import StoredGlossaries, StoredGlossary, read_name, read_terms
from translane_server.text.glossary import STEMMERS, Glossary, Words, stemmer_of


def found(glossary, text):
    words = Words(text)
    return glossary.find(words, bytearray(len(words)))


def occurs(source, text, language="", **how: Any):
    return bool(found(Glossary([Term(source, "x", **how)], language), text))


THERE = [
    ("cat", "the cat sat"), ("cat", "cat"), ("cat", "(cat)"), ("cat", "concat cat"), ("a b", "x a b."),
    ("C++", "C++ is"), ("北京", "我爱北京天安门"), ("京", "东京"), ("PDF", "打开PDF文件"), ("ラム", "プログラム"),
    ("ไทย", "ภาษาไทยกลาง"), ("3", "第3章"), ("кот", "мой кот"), ("a b", "a a b"), ("a a b", "a a a b"),
    ("caf\u00e9", "un cafe\u0301 noir"), ("cafe\u0301", "un caf\u00e9 noir"),
]  # fmt: skip
NOT_THERE = [
    ("cat", "concat"), ("cat", "cats"), ("cat", "Cat"), ("3", "34"), ("кот", "котик"), ("서울", "서울시"),
    ("e", "e\u0323"), ("cat", ""),
]  # fmt: skip


@pytest.mark.parametrize(("term", "text"), [*THERE, *NOT_THERE])
def test_terms_are_whole_words(term, text):
    assert occurs(term, text) == ((term, text) in THERE)


@pytest.mark.parametrize(
    ("term", "text", "language"),
    [
        ("Haus", "Drei Häuser stehen dort.", "de"), ("Haus", "Die Größe des Hauses", "de-AT"),
        ("Vertrag", "alle Verträge", "de"), ("contract", "two contracts", "en"), ("body", "foreign bodies", "eng_Latn"),
        ("договор", "пять договоров", "ru"), ("больница", "в больнице", "ru"), ("cheval", "des chevaux", "fr"),
        ("contrat de vente", "les contrats de vente", "fr"),
    ],
)  # fmt: skip
def test_inflected_forms_are_found_if_they_are_asked_for(term, text, language):
    assert occurs(term, text, language, inflected=True)
    assert occurs(term.upper(), text, language, inflected=True, ignore_case=True)
    assert not occurs(term, text, language)
    assert not occurs(term, text, language, ignore_case=True)


@pytest.mark.parametrize(
    ("term", "text", "language"),
    [
        ("Haus", "Häuser", "zh"), ("contract", "Contracts", "en"), ("IT", "its it", "en"),
        ("b" * 65, "b" * 65 + "s", "en"),
    ],
)  # fmt: skip
def test_what_is_no_inflected_form(term, text, language):
    assert not occurs(term, text, language, inflected=True)


def test_every_stemmer_is_there_and_a_language_without_one_finds_what_is_written():
    assert set(STEMMERS.values()) <= set(Stemmer.algorithms())
    assert [stemmer_of(tag) for tag in ("deu_Latn", "nob_Latn", "en-GB")] == ["german", "norwegian", "english"]
    assert stemmer_of("zh-Hant") == stemmer_of("und") == stemmer_of("") == ""
    assert occurs("Haus", "ein Haus", "xx", inflected=True)
    assert occurs("haus", "ein Haus", "", inflected=True, ignore_case=True)


@pytest.mark.parametrize(("term", "text"), [("straße", "STRASSE"), ("Äpfel", "ÄPFEL"), ("ΣΑΣ", "σας"), ("i̇", "İ")])
def test_case_is_ignored_if_it_is_asked_for(term, text):
    assert occurs(term, text, ignore_case=True)
    assert not occurs(term, text)


def test_terms_are_found_once_and_in_the_order_of_the_text():
    terms = [Term("b", "y"), Term("a", "x"), Term("c", "y"), Term("a", "z")]
    glossary = Glossary(terms)
    assert found(glossary, "c a b a") == [terms[2], terms[1], terms[3], terms[0]]
    assert found(glossary, "none") == []


def test_what_is_written_exactly_comes_before_another_form():
    exact, folded = Term("IT", "EDV"), Term("it", "es", ignore_case=True)
    assert found(Glossary([folded, exact]), "IT") == [exact]
    assert found(Glossary([folded, exact]), "It") == [folded]
    longer = Term("it works", "es geht", ignore_case=True)
    assert found(Glossary([exact, longer]), "IT works") == [longer]


def test_taken_words_are_no_part_of_another_term():
    words = Words("a b c d")
    taken = bytearray(len(words))
    first, second = Glossary([Term("b", "x")]), Glossary([Term("a b c", "y"), Term("c d", "z"), Term("b", "x")])
    assert [term.target for term in first.find(words, taken)] == ["x"]
    assert [term.target for term in second.find(words, taken)] == ["z"]
    assert bytes(taken) == b"\0\0\1\0\1\1\1"


# How terms are found one by one: what `Glossary` finds in one pass.


def places(source, text):
    """Where `source` begins in `text` as whole words."""
    starts = [place for place in range(len(text)) if text.startswith(source, place)]
    return [start for start in starts if not (within_word(text, start) or within_word(text, start + len(source)))]


def found_one_by_one(sources, text):
    """The sources that are found from left to right, the longest first."""
    sources = [unicodedata.normalize("NFC", source) for source in sources]
    text = unicodedata.normalize("NFC", text)
    everywhere = {source: places(source, text) for source in sources}
    place, seen = 0, set()
    while place < len(text):
        here = [source for source in sources if place in everywhere[source]]
        seen |= {longest := max(here, key=len)} if here else set()
        place += len(longest) if here else 1
    return [source in seen for source in sources]


def within_word(text, place):
    if not 0 < place < len(text):
        return False
    if is_mark(text[place]):
        return True
    before = place - 1
    while before and is_mark(text[before]):
        before -= 1
    return of_spaced_word(text[before]) and of_spaced_word(text[place])


def is_mark(character):
    return unicodedata.category(character).startswith("M")


def of_spaced_word(character):
    script = unicodedata.name(character, "").partition(" ")[0]
    return character.isalnum() and script not in {"CJK", "THAI", "HIRAGANA", "HALFWIDTH"}


CHARACTERS = "abe\u00e9\u0301\u0323人民ไทำ12 ._-각\u1100\u1161か\u3099ｶ\uff9e\u094dक\u200d\U00020000ﬁ²\u0f73\ue000"
POOLS = st.lists(st.sampled_from(CHARACTERS), min_size=1, max_size=5, unique=True)


@given(st.data())
@settings(max_examples=500)
def test_all_terms_are_found_that_are_found_one_by_one(data):
    pool = data.draw(POOLS)
    words = st.text(pool, min_size=1, max_size=4).filter(str.strip)
    sources = data.draw(st.lists(words, max_size=6, unique=True))
    text = data.draw(st.text(pool, max_size=16))
    terms = [Term(source, str(number)) for number, source in enumerate(sources)]
    there = found(Glossary(terms), text)
    assert [term in there for term in terms] == found_one_by_one(sources, text)
    assert len(set(there)) == len(there)


@pytest.mark.parametrize("ending", ["", "b"])
@pytest.mark.parametrize("letter", ["a", "人", "a "])
def test_terms_within_terms_take_one_pass_of_a_long_text(letter, ending):
    terms = [Term((letter * length).strip() + ending, str(length)) for length in range(1, 129 // len(letter))]
    there = found(Glossary(terms), letter * 10_000)
    longest = [] if ending or letter == "a" else [terms[-1]]
    assert there[:1] == longest


# What a file of a glossary may hold, and which stored glossary a request gets.


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
        (b"a\tb\na\tb\tinflected\na\tb\tignore-case\n",
         [Term("a", "b"), Term("a", "b", inflected=True), Term("a", "b", ignore_case=True)]),
        ("a\u2028b\tx\x0by".encode(), [Term("a\u2028b", "x\x0by")]),
    ],
)  # fmt: skip
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
        (b"caf\xc3\xa9\tx", "the source is that of line 1"),  # in another normal form
    ],
)
def test_a_line_that_is_no_term_is_named(line, problem):
    content = "cafe\u0301\tx\ndog\tHund\n".encode() + line + b"\n"
    assert refusal(GlossaryError, list, read_terms(content)) == f"line 3: {problem}"


def test_a_file_has_so_many_terms(monkeypatch):
    monkeypatch.setattr(glossaries, "MOST_TERMS", 2)
    assert len(list(read_terms(b"a\tx\nb\tx\n#\n"))) == 2
    with pytest.raises(GlossaryError, match="line 4: a file has at most 2 terms"):
        list(read_terms(b"a\tx\nb\tx\n#\nc\tx\n"))


@given(st.binary() | st.text("a\t\n#\r,inflected").map(str.encode))
def test_any_bytes_are_terms_or_a_sentence(content):
    try:
        terms, problem = list(read_terms(content)), ""
    except GlossaryError as error:
        terms, problem = [], str(error)
    assert all(term.source and term.target for term in terms)
    assert not problem or (problem.startswith("line ") and problem.isprintable())


def test_the_name_of_a_file_tells_its_languages():
    assert read_name("law-2.1.zh-Hans.pt_BR.tsv") == ("law-2.1", "zh-Hans", "pt_BR")
    assert read_name("x.deu_Latn.eng_Latn.tsv") == ("x", "deu_Latn", "eng_Latn")


@pytest.mark.parametrize(
    "name",
    ["medical.tsv", "medical.de-en.tsv", ".de.en.tsv", "a b.de.en.tsv", "x.d.en.tsv", "x.de..tsv", "\udc80.de.en.tsv",
     "é.de.en.tsv", "x" * 101 + ".de.en.tsv", "x.de.en-" + "a" * 9 + ".tsv"],
)  # fmt: skip
def test_other_names_are_refused(name):
    with pytest.raises(GlossaryError, match="its name must be NAME"):
        read_name(name)


STORED = StoredGlossaries(
    StoredGlossary(source, target, Glossary([Term("x", f"{source}-{target}")], name=name))
    for name, source, target in (
        ("medical", "de", "en"),
        ("medical", "en", "de"),
        ("medical", "de", "pt-BR"),
        ("medical", "de", "pt"),
        ("law", "de", "en"),
        ("any", "und", "en"),
        ("mixed", "de", "en"),
        ("mixed", "de-AT", "fr"),
    )
)


@pytest.mark.parametrize(
    ("name", "source", "target", "found"),
    [
        ("medical", "de", "en", "de-en"), ("medical", "de-AT", "en-GB", "de-en"),
        ("medical", "deu_Latn", "eng_Latn", "de-en"), ("medical", "de", "pt-BR", "de-pt-BR"),
        ("medical", "de", "pt-PT", "de-pt"), ("medical", "fr", "en", None), ("Medical", "de", "en", None),
        ("law", "en", "de", None), ("any", "xx", "en", "und-en"), ("", "de", "en", None),
        ("mixed", "de-AT", "en", "de-en"),  # of the languages of those with the target, the nearest
    ],
)  # fmt: skip
def test_a_glossary_is_found_by_its_name_and_the_nearest_languages(name, source, target, found):
    glossary = STORED.find(name, source, target)
    assert (glossary and glossary.terms[0].target) == found


def test_the_names_for_a_model():
    assert StoredGlossaries().problem("x", "de", "en") == "this server has none"
    assert STORED.problem("a\nb", "fr", "it").startswith(r"'a\nb' is not a glossary of this server")
    assert StoredGlossaries().names(("de",), ("en",)) == ()
    assert STORED.names(("deu_Latn", "fra_Latn"), ("eng_Latn",)) == ("any", "law", "medical", "mixed")
    assert STORED.names(("und",), ("und",)) == ("any", "law", "medical", "mixed")
    assert STORED.names(("fr",), ("en",)) == ("any",)
    assert STORED.names(("fr",), ("it",)) == ()
