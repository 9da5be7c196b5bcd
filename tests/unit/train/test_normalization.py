import random
import tempfile
from functools import cache

import opencc
import pytest
import sentencepiece

from translane_export.train import normalization

pytestmark = pytest.mark.slow

rules = cache(normalization.rules)  # some need a second to build


@cache
def _normalizer(name: str) -> sentencepiece.SentencePieceNormalizer:
    sentencepiece.set_min_log_level(2)
    with tempfile.NamedTemporaryFile("w", encoding="ascii", suffix=".tsv") as table:
        table.write(normalization.rules_tsv(name))
        table.flush()
        return sentencepiece.SentencePieceNormalizer(rule_tsv=table.name)


@pytest.mark.parametrize("name", ["nmt_nfkc", "nfkc_cf"])
def test_a_rule_read_back_from_its_compiled_form_normalizes_as_the_original(name: str) -> None:
    original = sentencepiece.SentencePieceNormalizer(rule_name=name)
    ours = _normalizer(name)
    draw = random.Random(1)
    keys = draw.sample(sorted(rules(name)), 20_000)  # compositions of several code points included
    others = [chr(code) for code in draw.sample(range(1, 0xD800), 20_000)]
    different = [text for text in keys + others if original.normalize(f"a{text}b") != ours.normalize(f"a{text}b")]
    assert different == []


@pytest.mark.parametrize(
    ("traditional", "simplified"),
    [
        ("湯姆看來總是在工作。", "汤姆看来总是在工作。"),
        ("他們闖進了珠寶店！", "他们闯进了珠宝店！"),
        ("妳看著牠做甚麼？", "你看着它做什么？"),
        ("漢\uf900字", "汉岂字"),  # a compatibility ideograph whose canonical form is Traditional
    ],
)
def test_both_spellings_become_one(traditional: str, simplified: str) -> None:
    normalizer = _normalizer("nmt_nfkc_t2s")
    assert normalizer.normalize(traditional) == normalizer.normalize(simplified)


def test_simplifying_twice_changes_nothing() -> None:
    normalizer = _normalizer("nmt_nfkc_t2s")
    ideographs = "".join(chr(code) for code in range(0x4E00, 0xA000))
    once = normalizer.normalize(ideographs).removeprefix("▁")
    assert normalizer.normalize(once).removeprefix("▁") == once


def test_every_character_opencc_simplifies_is_simplified() -> None:
    table = rules("identity_t2s")
    converter = opencc.OpenCC("t2s")
    for character in "麼們來總寶漢體醫學聽說讀寫":
        assert table[character] == converter.convert(character)


def test_identity_has_no_rules_and_unknown_names_are_refused() -> None:
    assert rules("identity") == {}
    with pytest.raises(ValueError, match="unknown normalization 'nfc'; known are nmt_nfkc"):
        rules("nfc")
