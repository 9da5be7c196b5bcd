"""`--languages` keeps some languages of a model of many."""

import pytest

from translane_export.errors import ExportError
from translane_export.pruning.vocabulary import keep_languages
from translane_export.sources import language_codes
from translane_server.bundle.manifest import Languages, LanguageTemplates, LanguageTokens

NLLB = Languages(
    source=language_codes.NLLB200,
    target=language_codes.NLLB200,
    templates=LanguageTemplates(
        source={code: LanguageTokens(source_prefix=(id_,)) for id_, code in enumerate(language_codes.NLLB200)},
        target={code: LanguageTokens(forced=(id_,)) for id_, code in enumerate(language_codes.NLLB200)},
    ),
)
T5 = Languages(
    source=("en",),
    target=("de", "fr", "ro"),
    templates=LanguageTemplates(
        pair_prefixes={"en": {"de": "to German: ", "fr": "to French: ", "ro": "to Romanian: "}}
    ),
)
MARIAN = Languages(
    source=("zh",),
    target=("fra", "deu"),
    templates=LanguageTemplates(target={"fra": LanguageTokens(source_prefix=(7,)), "deu": LanguageTokens()}),
)
PAIR = Languages(source=("zh",), target=("en",))


def test_both_languages_of_one_pair_stay():
    assert keep_languages(PAIR, ("en", "zh")) == PAIR


@pytest.mark.parametrize("wanted", [("de", "en"), ("deu", "eng_Latn"), ("de-AT", "en-US"), ("DE", "en", "de")])
def test_tags_are_found_as_those_of_requests(wanted):
    found = keep_languages(NLLB, wanted)
    assert found.source == found.target == ("deu_Latn", "eng_Latn")
    for code in found.source:
        assert found.templates.source[code] == NLLB.templates.source[code]
        assert found.templates.target[code] == NLLB.templates.target[code]
    assert len(found.templates.source) == len(found.templates.target) == 2


def test_the_first_tag_is_the_first_language():
    assert keep_languages(NLLB, ("en", "zh-TW")).source == ("eng_Latn", "zho_Hant")


@pytest.mark.parametrize("wanted", [("fr",), ("zh", "fr")])
def test_a_side_with_one_language_keeps_it(wanted):
    found = keep_languages(MARIAN, wanted)
    assert (found.source, found.target) == (("zh",), ("fra",))
    assert found.templates.target == {"fra": LanguageTokens(source_prefix=(7,))}


def test_pairs_are_those_of_the_languages():
    found = keep_languages(T5, ("de", "en"))
    assert (found.source, found.target) == (("en",), ("de",))
    assert found.templates.pair_prefixes == {"en": {"de": "to German: "}}


@pytest.mark.parametrize(
    ("languages", "wanted", "message"),
    [
        (NLLB, ("de", "tlh"), r"^--languages: 'tlh' is not a language of the model, which has: ace_Arab, .* and 196"),
        (MARIAN, ("zh",), r"^--languages: the model translates to none of them, but to fra, deu$"),
        (MARIAN, ("es",), r"^--languages: 'es' is not a language of the model, which has: zh, fra, deu$"),
        (PAIR, ("zh",), r"^--languages: the model has one pair of languages, zh to en; leave it out$"),
        (PAIR, ("en",), r"^--languages: the model has one pair of languages, zh to en; leave it out$"),
        (T5, ("en\x1b",), r"^--languages: .* is not a language of the model, which has: en, de, fr, ro$"),
    ],
)
def test_what_there_is_not(languages, wanted, message):
    with pytest.raises(ExportError, match=message) as caught:
        keep_languages(languages, wanted)
    assert str(caught.value).isprintable()
