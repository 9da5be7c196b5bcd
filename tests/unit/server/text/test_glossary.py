"""Where a term occurs, and where it does not."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from translane_server.options import RequiredPhrase
from translane_server.text.glossary import Glossary, Term


def occurs(term, text):
    return bool(Glossary([Term(term, RequiredPhrase(b"x", (1,)))]).required(text, 1))


@pytest.mark.parametrize(
    ("term", "text"),
    [
        ("cat", "the cat sat"), ("cat", "cat"), ("cat", "(cat)"), ("cat", "concat cat"), ("a b", "x a b."),
        ("C++", "C++ is"), ("北京", "我爱北京天安门"), ("京", "东京"), ("PDF", "打开PDF文件"), ("ラム", "プログラム"),
        ("ไทย", "ภาษาไทยกลาง"), ("3", "第3章"), ("кот", "мой кот"),
    ],
)  # fmt: skip
def test_there(term, text):
    assert occurs(term, text)


@pytest.mark.parametrize(
    ("term", "text"),
    [
        ("cat", "concat"), ("cat", "cats"), ("cat", "Cat"), ("3", "34"), ("кот", "котик"),
        ("서울", "서울시"), ("e", "e\u0323"),
    ],
)  # fmt: skip
def test_not_there(term, text):
    assert not occurs(term, text)


def test_normal_forms_are_the_same():
    phrase = RequiredPhrase(b"x", (1,))
    for source, text in (("caf\u00e9", "un cafe\u0301 noir"), ("cafe\u0301", "un caf\u00e9 noir")):
        assert Glossary([Term(source, phrase)]).required(text, 9) == (phrase,)


def test_phrases_are_required_once_and_in_order():
    first, second = RequiredPhrase(b"x", (1,)), RequiredPhrase(b"y", (2,))
    glossary = Glossary([Term("b", second), Term("a", first), Term("c", second), Term("z", first)])
    assert glossary.required("a b c", 9) == (second, first)
    assert glossary.required("none", 9) == ()


# How terms are found one by one: what `Glossary` finds in one pass.


def found_one_by_one(term, text):
    term, text = (unicodedata.normalize("NFC", each) for each in (term, text))
    starts = [place for place in range(len(text)) if text.startswith(term, place)]
    return any(not (within_word(text, start) or within_word(text, start + len(term))) for start in starts)


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
    phrases = [RequiredPhrase(bytes([number]), (number,)) for number in range(len(sources))]
    glossary = Glossary([Term(*each) for each in zip(sources, phrases, strict=True)])
    expected = [phrase for source, phrase in zip(sources, phrases, strict=True) if found_one_by_one(source, text)]
    assert list(glossary.required(text, len(sources))) == expected
    one_target = Glossary([Term(source, phrases[0]) for source in sources])
    assert bool(one_target.required(text, 1)) == bool(expected)


def test_more_terms_than_asked_for_are_not_all_looked_for():
    glossary = Glossary([Term(c, RequiredPhrase(c.encode(), (1,))) for c in "abcdefgh"])
    assert len(glossary.required("a b c d e f g h", 3)) == 4
    assert len(glossary.required("a b c d e f g h", 8)) == 8


@pytest.mark.parametrize(("letter", "targets"), [("a", 128), ("人", 128), ("人", 1), ("人", 16)])
def test_terms_within_terms_take_one_pass_of_a_long_text(letter, targets):
    """One by one, they would take minutes."""
    lengths = range(1, 129) if targets != 16 else range(1, 17)
    phrases = [RequiredPhrase(b"%d" % number, (number,)) for number in range(targets)]
    terms = [Term(letter * length, phrases[length % targets]) for length in lengths]
    found = Glossary(terms).required(letter * 500_000, 16)
    assert len(found) == (0 if letter == "a" else {128: 17, 1: 1, 16: 16}[targets])
