"""Where a term occurs, and where it does not."""

import pytest

from translane_server.options import RequiredPhrase
from translane_server.text.glossary import Glossary, Term, occurs


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
        assert Glossary([Term(source, phrase)]).required(text) == (phrase,)


def test_phrases_are_required_once_and_in_order():
    first, second = RequiredPhrase(b"x", (1,)), RequiredPhrase(b"y", (2,))
    glossary = Glossary([Term("b", second), Term("a", first), Term("c", second), Term("z", first)])
    assert glossary.required("a b c") == (second, first)
    assert glossary.required("none") == ()
