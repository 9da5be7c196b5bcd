"""Choosing among translations."""

from translane_export.distill.distilled_text import Closest
from translane_export.distill.journal import Output

OUTPUTS = [Output(text, 5) for text in ("It is a dog.", "He has a cat.", "I have a cat.", "I have a cat .")]


def test_the_output_closest_to_the_reference_is_taken() -> None:
    closest = Closest("en")
    assert closest.choose(OUTPUTS, "I have a cat.") == OUTPUTS[2]
    assert closest.choose(OUTPUTS, "He has a dog.") == OUTPUTS[1]


def test_the_likeliest_of_equally_close_outputs_is_taken() -> None:
    assert Closest("en").choose(OUTPUTS, "Something else entirely") == OUTPUTS[0]
    assert Closest("en").choose(OUTPUTS[1:2], "") == OUTPUTS[1]


def test_chinese_is_compared_by_characters() -> None:
    outputs = [Output("我是狗", 3), Output("我有一只猫。", 6)]
    assert Closest("zh-Hans").choose(outputs, "我有一只小猫。") == outputs[1]
