"""The parts of a text that a vocabulary cannot spell."""

import pytest

from translane_server.text.placeholders import Kept, Kind
from translane_server.text.scripts import untold_letters
from translane_server.text.unknown_parts import token_spans, unknown_parts, with_left_out

UNK = 1


@pytest.mark.parametrize(
    ("text", "surfaces", "spans"),
    [
        ("ab c", ["a", "b", " c", ""], [(0, 1), (1, 2), (2, 4), None]),
        ("a  b", ["a", "b", ""], [(0, 1), (3, 4), None]),
        ("é!", ["é", "é", "!"], [(0, 1), (0, 1), (1, 2)]),
        ("x", ["", "x", "?"], [None, (0, 1), None]),
    ],
)
def test_where_tokens_are(text, surfaces, spans):
    assert token_spans(text, surfaces) == spans


@pytest.mark.parametrize(
    ("text", "surfaces", "ids", "parts"),
    [
        ("我玥你", ["我", "玥", "你"], [5, UNK, 6], ["玥"]),
        ("naïve, no", ["na", "ï", "ve", ",", " no"], [5, UNK, 6, 7, 8], ["naïve"]),
        ("мы с am", ["мы", " с", " am"], [UNK, UNK, 5], ["мы с"]),
        ("x ☃!", ["x", " ☃", "!"], [5, UNK, 6], ["☃"]),
        ("don’t", ["don", "’", "t"], [5, UNK, 6], ["’"]),
    ],
)
def test_what_is_unknown(text, surfaces, ids, parts):
    found = unknown_parts(text, ids, surfaces, UNK)
    assert [text[start:end] for start, end in found] == parts


@pytest.mark.parametrize(
    ("text", "unknown", "kept", "copied"),
    [
        ("我玥你", ["玥"], [], []),
        ("他叫 Żółw 吗", ["Żółw"], [], ["Żółw"]),
        ("玥 A 玥B", ["玥", "玥B"], [], ["玥B"]),
        ("价€五十", ["€"], [], ["€"]),
        ("一；二", ["；"], [], []),
        ("「一二」", ["「", "」"], [], ["「", "」"]),
        ("一「%s」二", ["「", "」"], ["%s"], ["「", "」"]),
        ("一 「二」 三", ["「", "」"], [], []),
        ("一（Ż：二", ["（", "Ż", "："], [], ["（", "Ż", "："]),
        ("一（玥：二", ["（", "玥", "："], [], []),
    ],
)
def test_what_tells_the_reader_something_is_copied(text, unknown, kept, copied):
    """A sentence of Chinese, for a reader of English."""

    def parts(words):
        found, place = [], 0
        for word in words:
            place = text.index(word, place)
            found.append(Kept(place, place + len(word)))
            place += len(word)
        return found

    found = with_left_out(text, (0, len(text)), parts(unknown), parts(kept), untold_letters("zh", "en"))
    assert [text[part.start : part.end] for part in found if part.kind is not Kind.LEFT_OUT] == copied
    assert len(found) == len(unknown)


@pytest.mark.parametrize(
    ("source", "target", "letters", "others"),
    [
        ("zh", "en", "玥", "aあя"),
        ("zho_Hans", "eng_Latn", "玥", "a"),
        ("ja", "zh", "あカ", "玥a"),
        ("zh", "ja", "", "玥"),
        ("ru", "uk", "", "я"),
        ("sr-Latn", "en", "", "я"),
        ("sr-Cyrl", "en", "я", ""),
        ("en", "zh", "", "é"),
        ("und", "en", "", "玥"),
    ],
)
def test_letters_that_a_reader_of_the_target_does_not_know(source, target, letters, others):
    pattern = untold_letters(source, target)
    assert all(pattern.match(letter) for letter in letters)
    assert not pattern or not any(pattern.match(letter) for letter in others)
