"""Parts of a source that the vocabulary does not know, and texts of tokens that come bit by bit."""

from functools import cache
from itertools import accumulate, pairwise

import pytest
import regex
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from helpers.vocabularies import vocabulary
from translane_server.text.characters import untold_letters
from translane_server.text.placeholders import Kept, Kind
from translane_server.text.tokenizer import Detokenizer, Tokenizer
from translane_server.text.unknown_parts import unknown_parts, with_left_out
from translane_server.text.vocabularies import SentencePieceVocabulary

UNK = 1


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
    spans = list(pairwise(accumulate(map(len, surfaces), initial=0)))
    found = unknown_parts(text, ids, spans, UNK)
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


# Deltas of text while tokens come, with SentencePiece models that fall back to bytes.


KINDS = ["char", "bpe", "unigram"]
TEXTS = (
    "I have a cat, and you have two.",
    "你好，今天天气很好。",
    "नमस्ते, क्षमा कीजिए।",
    "e\u0301\u0323 à la carte",
    "👩‍👩‍👧‍👦 and 👍🏽, 🇩🇪🇫🇷, 1\ufe0f\u20e3, 🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f!",
    "한국 \u1112\u1161\u11ab, กำลัง,  two spaces",
    "عَرَبِيّ ֎ \ufffd \U0001f9d1\u200d\U0001f680",
)


@cache
def model(kind):
    """A vocabulary of few pieces, some combining marks among them, and of all bytes."""
    model = vocabulary(
        ["the cat and the hat sat on the mat, caf\u0065\u0301", "你好今天。👩\u200d👧", "\u0301 🇩 x 🇪"] * 3,
        320,
        model_type=kind,
        byte_fallback=True,
        character_coverage=1.0,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        pad_id=0,
        unk_id=1,
        bos_id=2,
        eos_id=3,
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    pieces = SentencePieceVocabulary(processor, len(processor))
    return Tokenizer(pieces, pieces, None)


def stream(tokenizer, ids, sizes=None):
    """The deltas of `ids`, of which as many as `sizes` says are certain after each call."""
    detokenizer, deltas, start = Detokenizer(), [], 0
    for size in sizes or range(1, len(ids) + 1):
        deltas.append(detokenizer.push([tokenizer.target_surfaces[token] for token in ids[start:size]]))
        start = size
    return [*deltas, detokenizer.finish(tokenizer.decode([ids])[0])]


def check(tokenizer, ids, sizes=None):
    deltas = stream(tokenizer, ids, sizes)
    (text,) = tokenizer.decode([ids])
    assert "".join(deltas) == text
    allowed = {0, *(match.end() for match in regex.finditer(r"\X", text))}
    position = 0
    for delta in deltas[:-1]:
        position += len(delta)
        assert position in allowed, (deltas, text)
        assert not delta or not delta[-1].isspace()
    return deltas


@st.composite
def growing(draw):
    ids = draw(st.lists(st.integers(0, 330), max_size=40))
    sizes = draw(st.lists(st.integers(0, len(ids)), max_size=20).map(sorted))
    return ids, sizes


@pytest.mark.parametrize("kind", KINDS)
@given(growing())
def test_deltas_of_any_ids_are_the_text_and_end_with_characters(kind, drawn):
    ids, sizes = drawn
    tokenizer = model(kind)
    ids = [i % len(tokenizer.target_surfaces) for i in ids]
    check(tokenizer, ids)
    check(tokenizer, ids, sizes)


@pytest.mark.parametrize("kind", KINDS)
@given(st.lists(st.sampled_from([*TEXTS, "\u0301", "\u200d", "🇪", "x", " "])).map("".join) | st.text())
def test_deltas_of_any_text_are_the_text_and_end_with_characters(kind, text):
    tokenizer = model(kind)
    check(tokenizer, *tokenizer.encode_target([text]))


class Words:
    """Each token is a word; 0 ends the word before."""

    target_surfaces = tuple(b"." if token == 0 else b" w%d" % token for token in range(10))

    def decode(self, lists):
        return [b"".join(self.target_surfaces[token] for token in ids).decode().removeprefix(" ") for ids in lists]


def test_a_delta_is_what_tokens_were_certain_before_the_last_one():
    assert stream(Words(), (7, 8, 0, 9)) == ["", "w7", " w8", ".", " w9"]
    assert stream(Words(), (7, 8, 0, 9), [3]) == ["w7 w8", ". w9"]


def test_what_a_token_makes_of_the_one_before_is_waited_for():
    tokenizer = model("char")
    names = tokenizer.target_pieces(range(len(tokenizer.target_surfaces)))
    pieces = ("▁", "e", "\u0301", "<0xCC>", "<0xA3>", "t", "<0xE4>", "<0xBD>", "<0xA0>", "t")
    assert stream(tokenizer, [names.index(piece) for piece in pieces]) == [
        "", "", "", "", "", "e\u0301\u0323", "", "", "t", "你", "t",
    ]  # fmt: skip


@pytest.mark.parametrize("unit", ["\u0301", "e\u200d", " ", "\u094d" + "\u0301" * 50 + "क", "\u0600", "क\u094d"])
def test_text_that_cannot_be_cut_is_searched_once(unit):
    """Searching all of it after each token would take an hour."""
    detokenizer = Detokenizer()
    surface = (unit * 64)[:64].encode()
    deltas = [detokenizer.push([surface]) for _ in range(4000)]
    text = "".join(deltas)
    whole = (surface * 4000).decode().removeprefix(" ")
    assert whole.startswith(text)
    assert text + detokenizer.finish(whole) == whole
