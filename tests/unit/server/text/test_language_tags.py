"""Tags of languages, and the language that a text is in."""

import langcodes
import pytest
from langcodes.data_dicts import LANGUAGE_ALPHA3, LANGUAGE_ALPHA3_BIBLIOGRAPHIC

from translane_server.core.budget import Budget, WorkEndedError
from translane_server.text import language_tags
from translane_server.text.language_id import LOOKED_AT, LanguageIdentifier
from translane_server.text.language_tags import lookup, standard_tag

NLLB = ["ace_Arab", "ace_Latn", "arb_Arab", "acm_Arab", "eng_Latn", "nob_Latn", "pes_Arab", "srp_Cyrl", "zho_Hans"]
NLLB += ["zho_Hant"]
MBART = ["ar_AR", "de_DE", "en_XX", "pt_XX", "zh_CN"]


@pytest.mark.parametrize(
    ("wanted", "available", "found"),
    [
        ("ZH-hant-tw", ["zh", "zh-Hant"], "zh-Hant"),
        ("zh-Hans-x-private", ["zh-Hans"], "zh-Hans"),
        ("en-a-bbb", ["en", "en-a"], "en"),
        ("zh", ["zh-Hans"], "zh-Hans"),
        ("zh-Hant", ["zh-Hans"], None),
        ("en", ["en-GB"], "en-GB"),
        ("en-US", ["en-GB"], None),
        ("en", ["en-GB", "en-US"], None),
        ("cmn-Hant", ["zh-Hans", "zh-Hant"], "zh-Hant"),
        ("eng_Latn", ["en"], "en"),
        ("NO", ["nn", "nb"], "nb"),
        ("-", ["zh"], None),
        ("*", ["zh"], None),
        ("", ["zh"], None),
        ("fr", ["und"], "und"),
        ("", ["und"], None),
        # codes of models, by tags and by codes of others
        *((wanted, NLLB, "eng_Latn") for wanted in ("eng_Latn", "ENG-latn", "en", "en-GB")),
        ("ar", NLLB, "arb_Arab"),
        ("fa", NLLB, "pes_Arab"),
        ("no", NLLB, "nob_Latn"),
        *((wanted, NLLB, "zho_Hans") for wanted in ("zh", "zh-Hans")),
        ("zh-TW", NLLB, "zho_Hant"),
        ("ace-Latn", NLLB, "ace_Latn"),
        *((wanted, NLLB, None) for wanted in ("ace", "sr-Latn")),
        *((wanted, MBART, "en_XX") for wanted in ("en_XX", "en")),
        ("de-AT", MBART, "de_DE"),
        ("pt-BR", MBART, "pt_XX"),
        *((wanted, MBART, "zh_CN") for wanted in ("zh-Hans", "zho_Hans")),
        *((wanted, MBART, None) for wanted in ("zh-Hant", "zh-TW")),
        # A longer tag means nothing: dropping its subtags one by one would take hours.
        ("zh-" + "a" * 97, ["zh"], "zh"),
        ("zh-" + "a" * 98, ["zh"], None),
        ("zh" + "-a" * 2_000_000, ["zh", "und"], None),
    ],
    ids=lambda value: str(value)[:20],
)
def test_lookup(wanted, available, found):
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


GERMAN = "Das Wetter ist heute sehr schön, und wir gehen in den Park."
ENGLISH = "The weather is very nice today, and we are going to the park."
CHINESE = "今天天气很好，我们去公园吧。"


@pytest.fixture(scope="module")
def identifier():
    return LanguageIdentifier()


@pytest.mark.parametrize(
    ("texts", "candidates", "found"),
    [
        ([GERMAN, ENGLISH, CHINESE, ENGLISH.upper()], ["zh", "en", "de", "sr"], ["de", "en", "zh", "en"]),
        ([GERMAN, ENGLISH], ["fra_Latn", "deu_Latn", "srp_Cyrl", "eng_Latn", "zho_Hans"], ["deu_Latn", "eng_Latn"]),
        ([GERMAN, CHINESE], ["de_DE", "zh_CN", "en_XX"], ["de_DE", "zh_CN"]),
        ([GERMAN, CHINESE], ["nl", "ja"], ["nl", "ja"]),  # only candidates
        ([GERMAN], ["zh"], ["zh"]),
        (["Været er veldig fint i dag, og vi skal i parken."], ["en", "nob_Latn"], ["nob_Latn"]),  # the norm of most
        ([GERMAN], ["tlh", "und"], ["tlh"]),  # nobody knows them
        ([GERMAN, CHINESE], ["tlh", "zh"], ["zh", "zh"]),
        ([CHINESE], ["en", "zho_Hant", "zho_Hans"], ["zho_Hans"]),  # of several tags of a language, the usual one
        ([ENGLISH], ["de", "en-GB", "en-US"], ["en-GB"]),
    ],
)
def test_the_nearest_candidate_is_found(identifier, texts, candidates, found):
    assert identifier.find(texts, candidates) == found


@pytest.mark.parametrize("text", ["", " \n", "1234", "3.14 + 2 = ?", "😀🎉", "\ufffd", "\u0301" * 10])
def test_a_text_without_letters_has_the_first_language(identifier, text):
    assert identifier.find([text], ["zh", "de", "en"]) == ["zh"]


def test_only_the_start_of_a_text_is_looked_at(identifier):
    start = (GERMAN * 20)[:LOOKED_AT]
    assert identifier.find([start + CHINESE * 1000], ["zh", "de"]) == ["de"]


def test_the_budget_ends_the_work(identifier):
    budget = Budget()
    budget.end()
    with pytest.raises(WorkEndedError):
        identifier.find([GERMAN], ["de", "en"], budget)
