"""No cut within what a reader sees as one character, and a cut is possible everywhere else."""

import random

import pytest
import regex

from translane_server.text.characters import boundary_before, is_boundary

WHOLE = {
    "combining marks": "e\u0301\u0323",
    "emoji with a skin tone": "👍🏽",
    "a family": "👩‍👩‍👧‍👦",
    "a variation": "☂\ufe0f",
    "a key": "1\ufe0f\u20e3",
    "a flag": "🇩🇪",
    "a flag of a region": "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "a Hangul syllable of letters": "\u1112\u1161\u11ab",
    "a Devanagari conjunct": "क्षि",
    "a Tamil syllable": "கொ",
    "Thai": "กำ",
    "a line break": "\r\n",
}


def boundaries(text):
    return [index for index in range(len(text) + 1) if is_boundary(text, index)]


@pytest.mark.parametrize("character", WHOLE.values(), ids=WHOLE)
def test_one_character_to_a_reader_has_no_boundary_within(character):
    assert boundaries(character) == [0, len(character)]
    text = f"x{character}x"
    assert [boundary_before(text, index) for index in range(1, len(text))] == [*[1] * len(character), len(text) - 1]


@pytest.mark.parametrize("text", ["ab", "你好", "क।", "🇩🇪🇫🇷", "한국", "!\n", "カタ", "กข"])
def test_characters_of_their_own_have_a_boundary_between(text):
    half = len(text) // 2
    assert boundaries(text) == [0, half, len(text)]


def test_flags_are_cut_in_pairs():
    assert boundaries("🇩🇪🇫🇷🇮") == [0, 2, 4, 5]


def test_the_boundaries_are_those_of_unicode():
    """Found one by one, they are the ends of the characters that `regex` finds from the start of the text."""
    chance = random.Random(7)
    kinds = [
        "CR",
        "LF",
        "Control",
        "Extend",
        "ZWJ",
        "RI",
        "Prepend",
        "SpacingMark",
        "L",
        "V",
        "T",
        "LV",
        "LVT",
        "Other",
    ]
    every = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000)
    pools = [regex.findall(rf"\p{{GCB={kind}}}", every) for kind in kinds]
    pools += [
        regex.findall(r"[\p{Extended_Pictographic}]", every),
        regex.findall(r"[\p{Devanagari}\p{Malayalam}]", every),
    ]
    for _ in range(10_000):
        text = "".join(chance.choice(chance.choice(pools)) for _ in range(8))
        expected = [0, *(match.end() for match in regex.finditer(r"\X", text))]
        assert boundaries(text) == expected, [hex(ord(c)) for c in text]


@pytest.mark.parametrize("part", ["\u0301", "👩\u200d", "क्"])
def test_a_character_of_a_million_code_points_takes_no_longer_at_its_end(part):
    """A search from its start at each place would take hours."""
    text = part * (1_000_000 // len(part))
    places = range(len(text) - 10_000, len(text))
    assert not any(is_boundary(text, index) for index in places)
    assert boundary_before(text[:10_000], 9_000) == 0
