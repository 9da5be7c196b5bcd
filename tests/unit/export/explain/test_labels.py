"""Labels are drawn in fonts that have their letters, or say which letters there are."""

from translane_export.explain.labels import Fonts, choose_fonts


def test_the_default_font_is_enough_for_many():
    assert choose_fonts(["▁cat", "Straße", "ёж"]) == Fonts(("DejaVu Sans",), frozenset())


def test_a_character_that_no_font_has_is_a_code_point():
    assert choose_fonts(["\U0003fffd"]).missing <= set(r"\U0003fffd")  # nobody's: escaped before it is drawn
    assert Fonts(("DejaVu Sans",), frozenset("我有")).label("▁我有x") == "▁U+6211 U+6709 x"


def test_a_font_that_has_boxes_for_everything_does_not_count():
    assert not any(family.startswith("Last Resort") for family in choose_fonts(["我有一只猫", "\U0001e900"]).families)


def test_labels_are_short_and_on_one_line():
    fonts = Fonts(("DejaVu Sans",), frozenset())
    assert fonts.label("a" * 40) == "a" * 15 + "…"
    assert fonts.label("a\nb\x1b\u202e") == r"a\nb\x1b\u202e"
