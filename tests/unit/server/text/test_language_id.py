"""The language of a text, with py3langid itself."""

import sys

import pytest

from translane_server.core.budget import Budget, WorkEndedError
from translane_server.core.errors import InvalidRequestError
from translane_server.text.language_id import LOOKED_AT, LanguageIdentifier
from translane_server.text.language_tags import is_auto

GERMAN = "Das Wetter ist heute sehr schön, und wir gehen in den Park."
ENGLISH = "The weather is very nice today, and we are going to the park."
CHINESE = "今天天气很好，我们去公园吧。"


@pytest.fixture(scope="module")
def identifier():
    return LanguageIdentifier()


@pytest.mark.parametrize(
    "candidates",
    [
        ["zh", "en", "de", "sr"],
        ["fra_Latn", "deu_Latn", "srp_Cyrl", "eng_Latn", "zho_Hans"],
        ["de_DE", "zh_CN", "en_XX"],
    ],
)
def test_languages_by_the_tags_of_the_candidates(identifier, candidates):
    texts = [GERMAN, ENGLISH, CHINESE, ENGLISH.upper()]
    found = [tag[:2] for tag in identifier.find(texts, candidates)]
    assert found == ["de", "en", "zh", "en"]


def test_only_candidates_are_found(identifier):
    assert identifier.find([GERMAN, CHINESE], ["nl", "ja"]) == ["nl", "ja"]
    assert identifier.find([GERMAN], ["zh"]) == ["zh"]


def test_norwegian_is_the_written_norm_of_most(identifier):
    assert identifier.find(["Været er veldig fint i dag, og vi skal i parken."], ["en", "nob_Latn"]) == ["nob_Latn"]


@pytest.mark.parametrize("text", ["", " \n", "1234", "3.14 + 2 = ?", "😀🎉", "\ufffd", "\u0301" * 10])
def test_a_text_without_letters_has_the_first_language(identifier, text):
    assert identifier.find([text], ["zh", "de", "en"]) == ["zh"]


def test_candidates_that_nobody_knows(identifier):
    assert identifier.find([GERMAN], ["tlh", "und"]) == ["tlh"]
    assert identifier.find([GERMAN, CHINESE], ["tlh", "zh"]) == ["zh", "zh"]


def test_of_several_tags_of_a_language_the_usual_one(identifier):
    assert identifier.find([CHINESE], ["en", "zho_Hant", "zho_Hans"]) == ["zho_Hans"]
    assert identifier.find([ENGLISH], ["de", "en-GB", "en-US"]) == ["en-GB"]


def test_only_the_start_of_a_text_is_looked_at(identifier):
    start = (GERMAN * 20)[:LOOKED_AT]
    assert identifier.find([start + CHINESE * 1000], ["zh", "de"]) == ["de"]


def test_the_budget_ends_the_work(identifier):
    budget = Budget()
    budget.end()
    with pytest.raises(WorkEndedError):
        identifier.find([GERMAN], ["de", "en"], budget)


def test_without_the_library_a_request_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "py3langid", None)
    with pytest.raises(InvalidRequestError, match=r'^source_language: "auto" needs the extra translane\[language-id\]'):
        LanguageIdentifier()


@pytest.mark.parametrize(("tag", "expected"), [("auto", True), ("AUTO", True), ("", False), ("aut", False)])
def test_auto(tag, expected):
    assert is_auto(tag) is expected
