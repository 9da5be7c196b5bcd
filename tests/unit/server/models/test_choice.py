"""Which models have a language pair, and how names are listed."""

import pytest

from fakes.serving import make_manifest
from translane_server.core.terminal import listed
from translane_server.models.choice import has_pair

MANY = make_manifest(source_languages=("eng_Latn", "zho_Hans"), target_languages=("fra_Latn", "deu_Latn")).languages
ONE = make_manifest().languages
PREFIXED = make_manifest(
    source_languages=("en", "de"),
    target_languages=("de", "en"),
    language_templates={"pair_prefixes": {"en": {"de": "a: "}, "de": {"en": "b: "}}},
).languages


@pytest.mark.parametrize(
    ("languages", "source", "target", "expected"),
    [
        (ONE, "", "", True),
        (ONE, "zh-CN", "en-GB", True),
        (ONE, "", "en", True),
        (ONE, "de", "", False),
        (MANY, "en", "fr", True),
        (MANY, "zh", "de-AT", True),
        (MANY, "", "fr", False),
        (MANY, "zh-TW", "fr", False),
        (PREFIXED, "en", "de", True),
        (PREFIXED, "en", "en", False),
    ],
)
def test_pairs(languages, source, target, expected):
    assert has_pair(languages, source, target) is expected


def test_a_long_tag_is_no_language():
    assert not has_pair(ONE, "zh-" * 40_000, "en")
    assert not has_pair(ONE, "zh", "en-" * 40_000)


def test_lists_of_names_are_short():
    assert listed(["a"]) == "a"
    assert listed(["a", "b", "c"]) == "a, b, c"
    assert listed(map(str, range(300))) == ", ".join(map(str, range(12))) + " and 288 more"
    assert listed(["x" * 100, "y" * 100]) == "x" * 100 + " and 1 more"
