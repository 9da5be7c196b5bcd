"""Which pair of a source a student learns from."""

from __future__ import annotations

import pytest
from sacrebleu.metrics.bleu import BLEU

from translane_export.distill.text import LONG, closest, why_unfit
from translane_export.train.evaluate import bleu_tokenizer
from translane_server.core.suspect_pairs import COPY, EMPTY, RATIO

ENGLISH = ["It is a dog.", "He has a cat.", "I have a cat.", "I have a cat ."]


@pytest.mark.parametrize(
    ("source", "source_pieces", "translation", "pieces", "reason"),
    [
        ("我有一只猫。", 6, "I have a cat.", 5, ""),
        ("我有一只猫。", 6, "", 0, EMPTY),
        ("Tom", 2, "Tom", 1, COPY),
        ("长", 11, "Long.", 10, ""),
        ("长", 12, "Long.", 10, LONG),
        ("长", 10, "Long.", 11, LONG),
        ("好", 2, "That is good.", 5, ""),
        ("好", 2, "That is good and well.", 6, RATIO),
        ("这本书很有意思", 7, "Yes", 1, RATIO),
    ],
)
def test_pairs_that_teach_mistakes_are_left_out(
    source: str, source_pieces: int, translation: str, pieces: int, reason: str
) -> None:
    assert why_unfit(source, translation, source_pieces, pieces, 10, 3.0) == reason


@pytest.mark.parametrize(
    ("language", "texts", "reference", "chosen"),
    [
        ("en", ENGLISH, "I have a cat.", 2),
        ("en", ENGLISH, "He has a dog.", 1),
        ("en", ENGLISH, "Something else entirely", 0),  # the likeliest of equally close ones
        ("en", ENGLISH[1:2], "", 0),
        ("zh-Hans", ["我是狗", "我有一只猫。"], "我有一只小猫。", 1),  # by characters
    ],
)
def test_the_closest_translation_is_taken(language: str, texts: list[str], reference: str, chosen: int) -> None:
    bleu = BLEU(tokenize=bleu_tokenizer(language), effective_order=True)
    assert closest(bleu, texts, reference) == texts[chosen]
