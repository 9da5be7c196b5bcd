"""What stands around sources, and what decoders are forced to generate, for the languages of a request."""

import pytest

from fakes.backend import EOS
from fakes.serving import FakeTokenizer
from translane_server.bundle.manifest import Languages, LanguageTemplates, LanguageTokens
from translane_server.translation.languages import LanguagePairs

MANY = Languages(
    source=("eng_Latn", "zho_Hans", "zho_Hant"),
    target=("eng_Latn", "fra_Latn"),
    templates=LanguageTemplates(
        source={
            "eng_Latn": LanguageTokens(source_prefix=(91,)),
            "zho_Hans": LanguageTokens(source_prefix=(92,), source_suffix=(93,)),
        },
        target={"eng_Latn": LanguageTokens(forced=(94, 95)), "fra_Latn": LanguageTokens(source_prefix=(96,))},
    ),
)
PREFIXES = Languages(
    source=("en", "de"),
    target=("de", "fr"),
    templates=LanguageTemplates(text_prefix="unused", pair_prefixes={"en": {"de": "G: ", "fr": "F: "}}),
)
A, B = (ids[0] for ids in FakeTokenizer().encode(["a", "b"]))


def find(languages, source, target):
    return LanguagePairs(languages, FakeTokenizer()).find(source, target)


@pytest.mark.parametrize(
    ("source", "target", "ids", "forced"),
    [
        ("en", "en-GB", [91, A, EOS], (94, 95)),
        ("zho_Hans", "fra_Latn", [92, 96, A, EOS, 93], ()),
        ("zh-TW", "en", [A, EOS], (94, 95)),
    ],
)
def test_languages_put_tokens_around_sources_and_before_targets(source, target, ids, forced):
    pair, wrong = find(MANY, source, target)
    assert not wrong
    assert pair.encode(["a", " ", ""]) == [ids, [], []]
    assert pair.forced_ids == forced
    assert pair.source_surfaces("a") == ["a" if id_ == A else "" for id_ in ids]
    assert pair.source_surfaces(" ") == []
    assert pair.tokenizer.encode_target(["ab"]) == FakeTokenizer().encode_target(["ab"])


def test_a_pair_has_its_own_text_before_sources():
    pair, wrong = find(PREFIXES, "en", "fr")
    assert not wrong
    assert pair.encode(["ab"]) == FakeTokenizer().encode(["F: ab"])
    assert pair.source_surfaces("ab")[-3:] == ["a", "b", ""]
    assert not any(pair.source_surfaces("ab")[:2])
    assert LanguagePairs(PREFIXES, FakeTokenizer()).default().target == "de"


def test_pairs_that_the_model_does_not_have():
    _, wrong = find(PREFIXES, "de", "fr")
    assert [(each.field, each.description) for each in wrong] == [
        ("target_language", "the model does not translate de to fr; it does en to de, en to fr")
    ]


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("und", "fr", "'und' means an undetermined language; send a language of the model (en, de) or \"auto\""),
        ("x-elvish", "de", "'x-elvish' means a language for private use; send a language of the model (en, de) or"),
        ("en", "mul", "'mul' means several languages; send a language of the model (de, fr)"),
        ("en", "auto", "'auto' means a source language that is found out, for translations alone; send a language of"),
        ("AUTO", "de", "'AUTO' means a source language that is found out, for translations alone; send a language of"),
    ],
)
def test_tags_that_name_no_language_are_explained(source, target, expected):
    (violation,) = find(PREFIXES, source, target)[1]
    assert violation.description.startswith(expected)
    assert violation.field == ("target_language" if source == "en" else "source_language")


def test_of_many_languages_an_error_names_some():
    codes = tuple(f"{first}{second}" for first in "abcdefghij" for second in "xyz")
    _, wrong = find(Languages(source=codes, target=("en",)), "q" * 100, "")
    (violation,) = wrong
    assert violation.field == "source_language"
    assert " … " in violation.description.partition(" is not a language of the model; it has ")[0]
    assert violation.description.endswith("ax, ay, az, bx, by, bz, cx, cy, cz, dx, dy, dz and 18 more")
