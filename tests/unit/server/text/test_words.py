"""Texts as words, in the forms in which terms are found."""

import pytest

from translane_server.text.glossary import Form, Words, stemmer_of


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("a cat, 2x", ["a", " ", "cat", ",", " ", "2x"]),
        ("我有cat", ["我", "有", "cat"]),
        ("カー ｶﾞ", ["カ", "ー", " ", "ｶ", "ﾞ"]),
        ("ประ", ["ป", "ร", "ะ"]),
        ("한국 말", ["한국", " ", "말"]),
        ("cafe\u0301", ["caf\u00e9"]),
        ("कि", ["कि"]),
    ],
)
def test_a_text_is_cut_into_words(text, words):
    found = Words(text)
    assert found.in_form(Form()) == words
    assert len(found) == len(words)


def test_case_is_ignored_where_it_is_asked_for():
    assert Words("Straße İx").in_form(Form(ignore_case=True)) == Words("STRASSE i\u0307X").in_form(
        Form(ignore_case=True)
    )


def test_inflected_words_have_one_form():
    words = Words("cats Cats CATS cat")
    assert words.in_form(Form(ignore_case=True, stemmer="english"))[::2] == ["cat"] * 4
    assert words.in_form(Form(stemmer="english"))[::2] == ["cat", "Cat", "CAT", "cat"]


def test_a_very_long_word_has_no_inflected_forms():
    assert Words("a" * 65 + "s").in_form(Form(ignore_case=True, stemmer="english")) == ["a" * 65 + "s"]


def test_a_form_is_made_once():
    words = Words("cats")
    form = Form(stemmer="english")
    assert words.in_form(form) is words.in_form(form)


@pytest.mark.parametrize(("language", "stemmer"), [("en-GB", "english"), ("deu", "german"), ("zh", ""), ("", "")])
def test_a_language_has_a_stemmer_or_none(language, stemmer):
    assert stemmer_of(language) == stemmer
