"""Tags of languages, and the language that a text is in."""

import sys

import langcodes
import pytest
from langcodes.data_dicts import LANGUAGE_ALPHA3, LANGUAGE_ALPHA3_BIBLIOGRAPHIC

from translane_server.core.budget import Budget, WorkEndedError
from translane_server.core.errors import InvalidRequestError
from translane_server.text import language_tags
from translane_server.text.language_id import LOOKED_AT, LanguageIdentifier
from translane_server.text.language_tags import is_auto, lookup, meaning, standard_tag


@pytest.mark.parametrize(
    ("wanted", "available", "found"),
    [
        ("zh", ["zh"], "zh"),
        ("zh-CN", ["zh"], "zh"),
        ("ZH-hant-tw", ["zh", "zh-Hant"], "zh-Hant"),
        ("zh-Hans-x-private", ["zh-Hans"], "zh-Hans"),
        ("en-a-bbb", ["en", "en-a"], "en"),
        ("zh", ["zh-Hans"], "zh-Hans"),
        ("zh-Hant", ["zh-Hans"], None),
        ("en", ["en-GB"], "en-GB"),
        ("en-US", ["en-GB"], None),
        ("en", ["en-GB", "en-US"], None),
        ("zho", ["zh"], "zh"),
        ("zh_CN", ["zh"], "zh"),
        ("cmn-Hant", ["zh-Hans", "zh-Hant"], "zh-Hant"),
        ("eng_Latn", ["en"], "en"),
        ("NO", ["nn", "nb"], "nb"),
        ("-", ["zh"], None),
        ("*", ["zh"], None),
        ("", ["zh"], None),
        ("fr", ["und"], "und"),
        ("", ["und"], None),
    ],
)
def test_lookup(wanted, available, found):
    assert lookup(wanted, available) == found


NLLB = [
    "ace_Arab",
    "ace_Latn",
    "arb_Arab",
    "acm_Arab",
    "eng_Latn",
    "nob_Latn",
    "pes_Arab",
    "srp_Cyrl",
    "zho_Hans",
    "zho_Hant",
]
MBART = ["ar_AR", "de_DE", "en_XX", "pt_XX", "zh_CN"]


@pytest.mark.parametrize(
    ("wanted", "available", "found"),
    [
        ("eng_Latn", NLLB, "eng_Latn"),
        ("ENG-latn", NLLB, "eng_Latn"),
        ("en", NLLB, "eng_Latn"),
        ("en-GB", NLLB, "eng_Latn"),
        ("ar", NLLB, "arb_Arab"),
        ("fa", NLLB, "pes_Arab"),
        ("no", NLLB, "nob_Latn"),
        ("zh", NLLB, "zho_Hans"),
        ("zh-Hans", NLLB, "zho_Hans"),
        ("zh-TW", NLLB, "zho_Hant"),
        ("ace", NLLB, None),
        ("ace-Latn", NLLB, "ace_Latn"),
        ("sr-Latn", NLLB, None),
        ("en_XX", MBART, "en_XX"),
        ("en", MBART, "en_XX"),
        ("de-AT", MBART, "de_DE"),
        ("pt-BR", MBART, "pt_XX"),
        ("zh-Hans", MBART, "zh_CN"),
        ("zho_Hans", MBART, "zh_CN"),
        ("zh-Hant", MBART, None),
        ("zh-TW", MBART, None),
    ],
)
def test_codes_of_models_are_found_by_tags_and_by_codes_of_others(wanted, available, found):
    assert lookup(wanted, available) == found


# What langcodes has instead. Norwegian and Filipino are the languages that models mean by these codes; the others are
# macrolanguages that langcodes does not know, or widens.
OTHERS = {
    **{"no": "no", "nor": "no", "fil": "fil", "tgl": "fil"},
    **{"fuv": "fuv", "ns": "ns", "pbt": "pbt", "quy": "quy", "twi": "ak"},
}
DEPRECATED = {"ji", "jw", "mo", "sh", "bh"}


def test_the_table_is_that_of_langcodes_but_for_known_differences():
    table = language_tags._TAGS
    theirs = {code: langcodes.standardize_tag(code, macro=True) for code in table}
    assert {code: theirs[code] for code, tag in table.items() if theirs[code] != tag} == OTHERS


def test_the_table_has_every_code_of_three_letters_that_has_a_tag_of_two():
    expected = LANGUAGE_ALPHA3 | LANGUAGE_ALPHA3_BIBLIOGRAPHIC
    pairs = [(tag, code) for tag, code in expected.items() if len(tag) == 2 and tag not in DEPRECATED]
    assert len(pairs) > 180
    assert [(tag, code) for tag, code in pairs if standard_tag(code) != standard_tag(tag)] == []


@pytest.mark.parametrize(
    ("wanted", "available", "theirs"),
    [("en-US", ["en-GB"], "en-GB"), ("en", ["en-GB", "en-US"], "en-US"), ("sr-Latn", ["srp_Cyrl"], "srp_Cyrl")],
)
def test_what_langcodes_takes_and_is_refused_here(wanted, available, theirs):
    assert lookup(wanted, available) is None
    assert langcodes.closest_supported_match(wanted, available, max_distance=9) == theirs


@pytest.mark.parametrize(
    ("tag", "expected"),
    [
        ("und", "an undetermined language"),
        ("UND-Latn", "an undetermined language"),
        ("mul", "several languages"),
        ("mis", "a language without a code"),
        ("zxx", "no language at all"),
        ("qaa", "a language for private use"),
        ("qtz-Latn", "a language for private use"),
        ("x-klingon", "a language for private use"),
        ("qua", None),
        ("que", None),
        ("de", None),
        ("", None),
    ],
)
def test_tags_that_name_no_language(tag, expected):
    assert meaning(tag) == expected


@pytest.mark.parametrize(
    ("code", "tag"),
    [("zho_Hant", "zh-hant"), ("pt_XX", "pt"), ("zh_CN", "zh-hans"), ("pt-BR", "pt-br"), ("kab", "kab"), ("ZH", "zh")],
)
def test_standard_tags(code, tag):
    assert standard_tag(code) == tag


def test_a_long_tag_means_nothing():
    """Dropping its subtags one by one would take hours."""
    assert lookup("zh-" + "a" * 97, ["zh"]) == "zh"
    assert lookup("zh-" + "a" * 98, ["zh"]) is None
    assert lookup("zh" + "-a" * 2_000_000, ["zh", "und"]) is None


# The language of a text, with py3langid itself.


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
