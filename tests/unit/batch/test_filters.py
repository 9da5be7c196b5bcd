"""Which translations are left out."""

from __future__ import annotations

from typing import Any

import pytest
from unit.batch.fake_workers import settings_of

from translane.results import FinishReason, Hypothesis, ModelInfo, Translation, Treatment
from translane_batch.filters import LANGUAGE, LOW_QUALITY, UNENDED, Filters, languages_of
from translane_batch.records import Answer
from translane_batch.translator import named_models
from translane_server.core.suspect_pairs import COPY, EMPTY, RATIO


def filters(**settings: Any) -> Filters:
    return Filters(settings_of(**settings), ("zh", "en"))


def translation(text: str, **changes: Any) -> Translation:
    return Translation((Hypothesis(text, None, **changes),), 4)


@pytest.mark.parametrize(
    ("settings", "source", "found", "expected"),
    [
        ({}, "好", translation("Good."), Answer("Good.")),
        ({}, "好", translation("好"), Answer("好")),
        ({}, "好", translation(""), Answer("", EMPTY)),
        ({"leave_out": ["copy"]}, "好", translation("好"), Answer("", COPY)),
        ({"leave_out": ["copy"], "keep_left_out": True}, "好", translation("好"), Answer("好", COPY)),
        ({}, "好", translation("a a", finish_reason=FinishReason.MAX_LENGTH), Answer("a a")),
        (
            {"leave_out": ["unended"]},
            "好",
            translation("a a", finish_reason=FinishReason.MAX_LENGTH),
            Answer("", UNENDED),
        ),
        ({"max_ratio": 2}, "好", translation("a", tokens=("a",) * 8), Answer("a")),
        ({"max_ratio": 2}, "好", translation("a", tokens=("a",) * 9), Answer("", RATIO)),
        ({"max_ratio": 2}, "好", translation("a", tokens=("a",)), Answer("", RATIO)),
        ({"min_quality": 0.5}, "好", translation("a", quality=0.5), Answer("a")),
        ({"min_quality": 0.5}, "好", translation("a", quality=0.4567), Answer("", LOW_QUALITY, "0.457")),
        ({"min_quality": 0.5}, "好", translation("a"), Answer("a")),
    ],
)
def test_rules(settings: dict[str, Any], source: str, found: Translation, expected: Answer) -> None:
    assert filters(**settings).answer(source, found) == expected


def test_all_translations_are_kept_with_the_best_one() -> None:
    found = Translation((Hypothesis("a", None), Hypothesis("好", None)), 4)
    assert filters(leave_out=["copy"], num_hypotheses=2).answer("好", found) == Answer("a", others=("好",))
    found = Translation((Hypothesis("好", None), Hypothesis("a", None)), 4)
    assert filters(leave_out=["copy"], num_hypotheses=2).answer("好", found) == Answer("", COPY)


def test_a_translation_in_the_source_language_is_left_out() -> None:
    pytest.importorskip("py3langid")
    chosen = filters(leave_out=["language"])
    assert chosen.answer("我有一只猫", translation("I have a cat.")) == Answer("I have a cat.")
    assert chosen.answer("我有一只猫", translation("我没有一只猫。")) == Answer("", LANGUAGE, "zh")
    detected = Translation(
        (Hypothesis("J'ai un petit chat noir.", None),), 4, treatment=Treatment(source_language="fr")
    )
    assert chosen.answer("Mon chat", detected) == Answer("", LANGUAGE, "fr")


def test_only_what_a_filter_looks_at_is_asked_for() -> None:
    assert filters(leave_out=["copy", "unended"]).options == {}
    assert filters(min_quality=0.1, max_ratio=3).options == {"return_quality": True, "return_tokens": True}


def model(name: str, sources: tuple[str, ...], targets: tuple[str, ...]) -> ModelInfo:
    return ModelInfo(name, "1", sources, targets, "int8", "cpu", "", 1, 256, 256, 256)


def test_languages_and_models_are_those_of_the_servers() -> None:
    models = (model("a", ("zh",), ("en",)), model("b", ("de", "fr"), ("en",)))
    assert languages_of(settings_of(), models[:1]) == ("zh", "en")
    named = settings_of(model="b", server="x")
    assert languages_of(named, models) == ("", "en")
    assert named_models(named, models) == "b 1 int8"
    all_of_them = settings_of(model="", server="x", source_language="auto", target_language="en")
    assert languages_of(all_of_them, models) == ("", "en")
    assert named_models(all_of_them, models) == "a 1 int8, b 1 int8"
